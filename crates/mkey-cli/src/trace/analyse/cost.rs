//! What registration cost: by verb, by process, by place.

use super::ground::{Ground, Kind, took};
use super::head::{ProcessCost, cpu};
use super::list::List;
use super::spans::union;
use super::tally::{SiteCost, Tally};
use super::times::{Times, share};
use serde::Serialize;
use std::collections::BTreeMap;

/// What registration cost. Calls that failed are in it with their time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Registration {
    /// Registrations, changes of registrations, deregistrations.
    pub registrations: u64,
    /// See `registrations`.
    pub reregistrations: u64,
    /// See `registrations`.
    pub deregistrations: u64,
    /// Their time, of all threads.
    pub ns: u64,
    /// The time in which at least one thread of a process was in one, of all processes.
    pub busy_ns: u64,
    /// That as a share of the time that the processes lived: 0 to 1.
    pub share_of_wall: f64,
    /// CPU time in those calls of which it was measured, and how many these are.
    pub cpu_ns: u64,
    /// See `cpu_ns`.
    pub cpu_calls: u64,
    /// That as a share of the CPU time of the processes of which it is known; nothing if it is not.
    pub share_of_cpu: Option<f64>,
    /// By verb, all verbs, the costliest first.
    pub verbs: Vec<VerbCost>,
    /// By process.
    pub processes: List<ProcessCost>,
    /// By the place in the program.
    pub sites: List<SiteCost>,
}

/// What calls of a verb cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VerbCost {
    /// Its name.
    pub verb: String,
    /// What it does to a registration, if it is about one.
    pub kind: Option<Kind>,
    /// How long its calls took.
    pub times: Times,
    /// CPU time of those calls of which it was measured.
    pub cpu_ns: u64,
    /// How many failed.
    pub failed: u64,
}

impl Registration {
    /// Of a recording.
    pub fn of(ground: &Ground<'_>) -> Self {
        let recording = ground.recording;
        let mut all = Self { verbs: verbs(ground), ..Self::default() };
        let cpu = cpu(recording);
        let mut processes: Vec<ProcessCost> =
            cpu.iter().enumerate().map(|(n, cpu)| ProcessCost::new(recording, n, *cpu)).collect();
        let mut spans: Vec<Vec<(u64, u64)>> = vec![Vec::new(); processes.len()];
        let mut tally = Tally::new(&ground.places);
        let mut known_cpu = 0u64;
        for (call, kind) in ground.registration() {
            let count = match kind {
                Kind::Register => &mut all.registrations,
                Kind::Reregister => &mut all.reregistrations,
                Kind::Deregister => &mut all.deregistrations,
            };
            *count += 1;
            let ns = took(call);
            all.ns = all.ns.saturating_add(ns);
            all.cpu_calls += u64::from(call.cpu.is_some());
            all.cpu_ns = all.cpu_ns.saturating_add(call.cpu.unwrap_or(0));
            tally.add(ground.places.number(call.stack), ns, call.len);
            let Some(n) = (call.process as usize).checked_sub(1) else { continue };
            if cpu.get(n).copied().flatten().is_some() {
                known_cpu = known_cpu.saturating_add(call.cpu.unwrap_or(0));
            }
            if let (Some(process), Some(spans)) = (processes.get_mut(n), spans.get_mut(n)) {
                process.calls += 1;
                process.ns = process.ns.saturating_add(ns);
                spans.push((call.begin, call.end));
            }
        }
        for (process, spans) in processes.iter_mut().zip(&mut spans) {
            process.busy_ns = union(spans);
            process.share = share(process.busy_ns, process.lived_ns);
            all.busy_ns = all.busy_ns.saturating_add(process.busy_ns);
        }
        all.share_of_wall = share(all.busy_ns, ground.lived);
        let whole = cpu.into_iter().flatten().fold(0, u64::saturating_add);
        all.share_of_cpu = (all.cpu_calls > 0 && whole > 0).then(|| share(known_cpu, whole));
        processes.sort_by(|a, b| b.busy_ns.cmp(&a.busy_ns).then(a.pid.cmp(&b.pid)));
        all.processes = List::of(processes);
        all.sites = tally.costliest(&ground.places, ground.lived);
        all
    }

    /// All calls that were about registrations.
    pub fn calls(&self) -> u64 {
        self.registrations + self.reregistrations + self.deregistrations
    }
}

fn verbs(ground: &Ground<'_>) -> Vec<VerbCost> {
    #[derive(Default)]
    struct Of {
        times: Vec<u64>,
        cpu: u64,
        failed: u64,
    }
    let mut by_verb: BTreeMap<&str, Of> = BTreeMap::new();
    for call in &ground.recording.calls {
        let of = by_verb.entry(&call.verb).or_default();
        of.times.push(took(call));
        of.cpu = of.cpu.saturating_add(call.cpu.unwrap_or(0));
        of.failed += u64::from(call.errno != 0);
    }
    let mut verbs: Vec<VerbCost> = by_verb
        .into_iter()
        .map(|(verb, mut of)| VerbCost {
            verb: verb.to_owned(),
            kind: Kind::of(verb),
            times: Times::of(&mut of.times),
            cpu_ns: of.cpu,
            failed: of.failed,
        })
        .collect();
    verbs.sort_by_key(|verb| std::cmp::Reverse(verb.times.ns));
    verbs
}

#[cfg(test)]
mod tests {
    use super::super::sample::Builder;
    use super::*;

    #[test]
    fn overlapping_calls_of_two_threads_are_busy_once() {
        let mut builder = Builder::new();
        let (a, b) = (builder.place("a", 10), builder.place("b", 20));
        builder.region(0, 4096, 100_000_000, 100_000_000, a);
        builder.region(4096, 8192, 150_000_000, 100_000_000, b).process = 1;
        builder.dereg(300_000_000, 50_000_000, b);
        builder.call("ibv_create_cq", 0, 7, a);
        let all = Registration::of(&Ground::new(&builder.recording));
        assert_eq!((all.registrations, all.deregistrations, all.calls()), (2, 1, 3));
        assert_eq!((all.ns, all.busy_ns), (250_000_000, 200_000_000));
        assert_eq!((all.share_of_wall, all.share_of_cpu), (0.2, Some(0.5)));
        let sites: Vec<_> =
            all.sites.first.iter().map(|s| (s.place.at.as_str(), s.calls, s.ns, s.bytes)).collect();
        assert_eq!(
            sites,
            [("b main.c:20", 2, 150_000_000, 16384), ("a main.c:10", 1, 100_000_000, 4096)]
        );
        let verbs: Vec<_> = all.verbs.iter().map(|v| (v.verb.as_str(), v.times.calls)).collect();
        assert_eq!(verbs, [("ibv_reg_mr", 2), ("ibv_dereg_mr", 1), ("ibv_create_cq", 1)]);
    }

    #[test]
    fn processes_are_told_apart_and_their_unions_added() {
        let mut builder = Builder::new();
        builder.process(false);
        builder.region(0, 4096, 100, 100, 0);
        builder.region(0, 4096, 100, 100, 0);
        builder.recording.calls[1].process = 2;
        builder.recording.calls[1].cpu = None;
        let all = Registration::of(&Ground::new(&builder.recording));
        assert_eq!((all.ns, all.busy_ns, all.cpu_calls, all.cpu_ns), (200, 200, 1, 100));
        assert_eq!(all.processes.first.len(), 2);
        assert_eq!(all.processes.first[1].busy_ns, 100);
    }

    #[test]
    fn who_is_not_known_is_counted_all_the_same() {
        let mut builder = Builder::new();
        builder.recording.processes.clear();
        builder.region(0, 1, 5, 5, 77).process = 9;
        let all = Registration::of(&Ground::new(&builder.recording));
        assert_eq!((all.calls(), all.ns, all.share_of_wall, all.share_of_cpu), (1, 5, 0.0, None));
        assert_eq!(all.sites.first[0].place.at, "");
    }
}
