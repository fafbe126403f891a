//! What other strategies would have cost for the same run.
//!
//! The recorded sequence of requests is put to the library's own cache and pool ([`dry`]); what a
//! registration costs is what it took in the recorded program ([`recorded`]), and where that can not
//! be known, what this machine takes ([`host`]). [`predict`] adds up, [`words`] says what to change,
//! [`text`] prints.

pub mod dry;
pub mod host;
pub mod predict;
pub mod recorded;
#[cfg(test)]
mod tests;
pub mod text;
pub mod words;

use super::analyse::ground::{Kind, life, took};
use super::analyse::places;
use super::analyse::spans::union;
use crate::bench::report::Outcome;
use crate::replay::left::Left;
use crate::replay::script::Script;
use crate::replay::strategy::Strategy;
use host::Host;
use mkey_trace::format::Recording;
use predict::Known;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// A saving below this share of the run and of its CPU time is not worth a change.
pub const LEAST_SHARE: f64 = 0.01;
/// Nor is one of less nanoseconds.
pub const LEAST_NS: f64 = 1e6;

/// What would mend it, the greatest saving first. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Advice {
    /// Registrations that were played.
    pub registrations: u64,
    /// What registering and deregistering took in the run; `None`: not recorded.
    pub spent: Option<Predicted>,
    /// Registration in the run, against which shares are told.
    pub run: Run,
    /// The CPU time of its processes; `None`: not known.
    pub cpu_ns: Option<u64>,
    /// Where most of the time in registration was spent, and how much of it.
    pub site: Option<Site>,
    /// One a strategy.
    pub proposals: Vec<Proposal>,
    /// What of the recording could not be played.
    pub left: Left,
    /// What the figures stand on, a sentence each.
    pub assumptions: Vec<String>,
}

/// How much of a run was registration: what its calls took is of all threads and processes, which wait at the
/// same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Run {
    /// Calls that register and deregister, of all threads.
    pub ns: u64,
    /// The time in which at least one thread of a process was in one, of all processes.
    pub busy_ns: u64,
    /// How long the processes lived, all together.
    pub lived_ns: u64,
    /// The time of those calls of which the CPU time was measured, and that.
    pub measured_ns: u64,
    /// See `measured_ns`.
    pub cpu_ns: u64,
}

impl Run {
    fn new(recording: &Recording) -> Self {
        let mut run = Self::default();
        let mut spans: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
        for call in recording.calls.iter().filter(|call| Kind::of(&call.verb).is_some()) {
            run.ns = run.ns.saturating_add(took(call));
            if let Some(cpu) = call.cpu {
                run.measured_ns = run.measured_ns.saturating_add(took(call));
                run.cpu_ns = run.cpu_ns.saturating_add(cpu);
            }
            spans.entry(call.process).or_default().push((call.begin, call.end));
        }
        let busy = spans.values_mut().map(|spans| union(spans));
        run.busy_ns = busy.fold(0, u64::saturating_add);
        let lives = recording.processes.iter().map(|process| life(recording, process));
        run.lived_ns = lives.fold(0, u64::saturating_add);
        run
    }

    /// What of the calls' time is how much of the time that the processes lived: where calls overlapped, the
    /// time that their process was busy counts, once.
    pub fn of_wall(&self, ns: f64) -> f64 {
        ns * self.busy_ns as f64 / self.ns.max(1) as f64 / self.lived_ns.max(1) as f64
    }

    /// What of the calls' time is how much of the CPU time of the processes: where calls waited, they took none.
    /// `None`: that of no call was measured.
    pub fn of_cpu(&self, ns: f64, cpu_ns: u64) -> Option<f64> {
        let on_cpu = self.cpu_ns as f64 / self.measured_ns as f64;
        (self.measured_ns > 0).then(|| ns * on_cpu / cpu_ns.max(1) as f64)
    }
}

/// A place in the program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Site {
    /// Its function, file and line, as far as they are known.
    pub place: String,
    /// Registering and deregistering there.
    pub ns: u64,
}

/// What a strategy would have cost, and what it takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposal {
    /// The strategy.
    pub strategy: Strategy,
    /// Whether it is worth a change.
    pub is_advised: bool,
    /// What it would have cost, or why that is not known.
    pub outcome: Outcome<Weighed>,
    /// What can go wrong with it.
    pub risk: String,
    /// The change to make.
    pub change: String,
}

/// A cost beside that of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Weighed {
    /// The cost.
    pub predicted: Predicted,
    /// What it saves; negative: it costs more.
    pub saving_ns: f64,
    /// The saving as a share of the time that the processes lived, see [`Run::of_wall`].
    pub share_of_wall: f64,
    /// The saving as a share of their CPU time, if that is known, see [`Run::of_cpu`].
    pub share_of_cpu: Option<f64>,
}

/// What the registrations of a run cost by a strategy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Predicted {
    /// All of it.
    pub ns: f64,
    /// What it consists of.
    pub parts: Vec<Part>,
    /// Memory regions made.
    pub made: u64,
    /// The most bytes registered at a time.
    pub most_bytes: u64,
}

/// A part of a cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// What.
    pub what: String,
    /// How often.
    pub times: u64,
    /// All of them.
    pub ns: f64,
    /// Where the cost of one comes from.
    pub source: Source,
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The recording.
    Recorded,
    /// Measured on this machine just now.
    Measured,
    /// A line through what was measured on this machine just now.
    Model,
}

impl Source {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Measured => "measured now",
            Self::Model => "model",
        }
    }
}

impl Predicted {
    /// The sum of parts.
    pub fn of(parts: Vec<Part>, made: u64, most_bytes: u64) -> Self {
        Self { ns: parts.iter().map(|part| part.ns).sum(), parts, made, most_bytes }
    }
}

impl Proposal {
    /// What it would have cost, if that is known.
    pub fn weighed(&self) -> Option<&Weighed> {
        self.outcome.figures()
    }
}

impl Advice {
    /// For a recording. Measures this machine, about a second long, if anything was registered.
    pub fn of(recording: &Recording) -> Self {
        let scripts = Script::all(recording);
        if scripts.iter().all(|script| script.ranges.is_empty()) {
            return Self::by(recording, &Host::default());
        }
        let (device, is_software) = most_used(recording);
        Self::by(recording, &Host::measure(&device, is_software))
    }

    /// For a recording, with what this machine costs.
    pub fn by(recording: &Recording, host: &Host) -> Self {
        let scripts = Script::all(recording);
        let mut left = Left::default();
        scripts.iter().for_each(|script| left.merge(&script.left));
        let registrations = scripts.iter().map(|script| script.ranges.len() as u64).sum();
        let cpu = recording.processes.iter().map(|process| process.cpu).sum::<Option<u64>>();
        let mut advice = Self {
            registrations,
            run: Run::new(recording),
            cpu_ns: cpu.filter(|ns| *ns > 0),
            site: site(recording),
            left,
            ..Self::default()
        };
        if registrations == 0 {
            return advice;
        }
        let known = Known::new(&scripts, host);
        let spent = match known.predict(Strategy::AsRecorded) {
            Outcome::Measured(spent) if !spent.parts.is_empty() => *spent,
            _ => return advice,
        };
        let others = Strategy::ALL.into_iter().filter(|other| *other != Strategy::AsRecorded);
        advice.proposals = others
            .map(|strategy| advice.proposal(strategy, known.predict(strategy), spent.ns, &scripts))
            .collect();
        let saving = |proposal: &Proposal| {
            proposal.weighed().map_or(f64::NEG_INFINITY, |weighed| weighed.saving_ns)
        };
        advice.proposals.sort_by(|a, b| saving(b).total_cmp(&saving(a)));
        advice.spent = Some(spent);
        advice.assumptions = words::assumptions(&scripts, host);
        advice
    }

    fn proposal(
        &self,
        strategy: Strategy,
        predicted: Outcome<Predicted>,
        spent_ns: f64,
        scripts: &[Script],
    ) -> Proposal {
        let outcome = match predicted {
            Outcome::NotMeasured(missing) => Outcome::NotMeasured(missing),
            Outcome::Measured(predicted) => {
                let saving_ns = spent_ns - predicted.ns;
                Outcome::Measured(Box::new(Weighed {
                    predicted: *predicted,
                    saving_ns,
                    share_of_wall: self.run.of_wall(saving_ns),
                    share_of_cpu: self.cpu_ns.and_then(|cpu| self.run.of_cpu(saving_ns, cpu)),
                }))
            }
        };
        let is_advised = outcome.figures().is_some_and(|weighed| {
            let share = weighed.share_of_wall.max(weighed.share_of_cpu.unwrap_or(0.0));
            weighed.saving_ns >= LEAST_NS && share >= LEAST_SHARE
        });
        let (risk, change) = words::of(strategy, scripts, outcome.figures());
        Proposal { strategy, is_advised, outcome, risk, change }
    }
}

/// The device that most was registered on.
fn most_used(recording: &Recording) -> (String, bool) {
    let mut counts: HashMap<&str, (u64, bool)> = HashMap::new();
    for region in &recording.regions {
        if let Some(device) = Recording::by_id(&recording.devices, region.device) {
            let count = counts.entry(&device.name).or_insert((0, device.soft));
            count.0 += 1;
        }
    }
    let most = counts.into_iter().max_by_key(|(name, (count, _))| (*count, *name));
    most.map_or((String::new(), true), |(name, (_, soft))| (name.to_owned(), soft))
}

/// Where most of the time in registration was spent.
fn site(recording: &Recording) -> Option<Site> {
    let mut by_stack: HashMap<u32, u64> = HashMap::new();
    for call in recording.calls.iter().filter(|call| call.verb.contains("reg_")) {
        let spent = by_stack.entry(call.stack).or_default();
        *spent = spent.saturating_add(call.end.saturating_sub(call.begin));
    }
    let mut by_place: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, ns) in by_stack {
        let frame = Recording::by_id(&recording.stacks, stack)
            .and_then(|stack| stack.frames.get(places::own(stack)?));
        if let Some(frame) = frame {
            let spent = by_place.entry(places::words(frame)).or_default();
            *spent = spent.saturating_add(ns);
        }
    }
    let known = by_place.into_iter().map(|(place, ns)| (ns, place));
    known.max().map(|(ns, place)| Site { place, ns })
}
