//! The kernel's own split of a registration, by probes on the functions of its call chain.

use super::chains::{self, Chain};
use super::report::{Probed, Probes, Stage, Stages};
use crate::bench::error::{Result, RowError};
use crate::bench::measure;
use crate::bench::report::Missing;
use mkey_os::tracefs::{Event, Refused, Session, TraceError};
use std::ops::Range;

/// Probes set on a call chain.
#[derive(Debug)]
pub struct Stager {
    chain: &'static Chain,
    session: Session,
    /// Of each probed function: its stage.
    stage_of: Vec<usize>,
}

/// Registrations of one size, probed.
#[derive(Debug, Default)]
struct Taken {
    verbs: Vec<f64>,
    outside: Vec<f64>,
    /// Of each stage: calls, total and own nanoseconds of each registration.
    stages: Vec<[Vec<f64>; 3]>,
}

impl Stager {
    /// Probes the call chain of a driver; what was probed and what not is told in any case.
    pub fn start(driver: &str, release: &str) -> (Option<Self>, Probes) {
        let chain = chains::of(driver);
        let version = mkey_os::kernel::version(release);
        let known = |f: &&chains::Function| version.is_none_or(|version| f.in_kernel(version));
        let mut functions = Vec::new();
        let mut stage_of = Vec::new();
        for (place, stage) in chain.stages.iter().enumerate() {
            for function in stage.functions.iter().filter(known) {
                functions.push(function.name);
                stage_of.push(place);
            }
        }
        let (session, refused) = match Session::start(&functions) {
            Ok(started) => started,
            Err(error) => return (None, unprobed(chain.name, missing(&error))),
        };
        let why = |function: usize| refused.iter().find(|refused| refused.function == function);
        let of_stage = |place: usize| {
            let mine = functions.iter().zip(&stage_of).enumerate();
            mine.filter(move |(_, (_, stage))| **stage == place).map(|(n, (name, _))| (n, *name))
        };
        let probed = chain.stages.iter().enumerate().map(|(place, stage)| Probed {
            stage: stage.name.to_owned(),
            term: stage.term,
            functions: of_stage(place)
                .filter(|(n, _)| why(*n).is_none())
                .map(|(_, name)| name.to_owned())
                .collect(),
            not_probed: not_probed(of_stage(place).map(|(n, name)| (name, why(n))).collect()),
            source: stage.source.to_owned(),
        });
        let probes = Probes { functions: probed.collect(), ..described(chain) };
        (Some(Self { chain, session, stage_of }), probes)
    }

    /// Runs `register` while it is probed and tells what it took; `register` answers when each verb
    /// was called and had returned, nanoseconds of the monotonic clock. `None` if there was none.
    ///
    /// # Errors
    /// As `register` fails, or `Missing` if the trace can not be had.
    pub fn record(
        &self,
        register: impl FnOnce() -> Result<Vec<Range<u64>>>,
    ) -> Result<Option<Stages>> {
        let recorded = self.session.record(register);
        let (verbs, events) = recorded.map_err(|error| RowError::Missing(missing(&error)))?;
        let mut taken = Taken::default();
        for verb in verbs? {
            let from = events.partition_point(|event| event.ns < verb.start);
            let until = events.partition_point(|event| event.ns <= verb.end);
            let events = events.get(from..until).unwrap_or_default();
            let ns = verb.end.saturating_sub(verb.start);
            taken.add(self.chain.stages.len(), &self.stage_of, ns, events);
        }
        Ok(taken.medians(self.chain))
    }
}

/// The monotonic clock, nanoseconds: that of traces.
pub fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

impl Taken {
    fn add(&mut self, stages: usize, stage_of: &[usize], verb_ns: u64, events: &[Event]) {
        self.stages.resize_with(stages, Default::default);
        let (spent, outermost) = mkey_os::tracefs::spent_by(events, stage_of, stages);
        self.verbs.push(verb_ns as f64);
        self.outside.push(verb_ns.saturating_sub(outermost) as f64);
        for (samples, spent) in self.stages.iter_mut().zip(spent) {
            let parts = [spent.calls, spent.total_ns, spent.own_ns];
            for (samples, part) in samples.iter_mut().zip(parts) {
                samples.push(part as f64);
            }
        }
    }

    fn medians(mut self, chain: &Chain) -> Option<Stages> {
        let samples = self.verbs.len() as u64;
        let stages = self.stages.iter_mut().zip(chain.stages).filter_map(|(samples, stage)| {
            let [calls, total, own] = samples;
            let calls = measure::median(calls).filter(|calls| *calls > 0.0)?;
            Some(Stage {
                stage: stage.name.to_owned(),
                term: stage.term,
                total_ns: measure::median(total)?,
                own_ns: measure::median(own)?,
                calls,
            })
        });
        let stages = stages.collect();
        Some(Stages {
            verb_ns: measure::median(&mut self.verbs)?,
            outside_ns: measure::median(&mut self.outside)?,
            samples,
            stages,
        })
    }
}

/// What is told of functions that were not probed: of a stage with several names for one step,
/// those of other kernels are no loss.
fn not_probed(functions: Vec<(&str, Option<&Refused>)>) -> Vec<String> {
    let some = functions.iter().any(|(_, refused)| refused.is_none());
    functions
        .into_iter()
        .filter_map(|(name, refused)| Some((name, refused?)))
        .filter(|(_, refused)| !(some && refused.absent))
        .map(|(name, refused)| format!("{name}: {}", refused.why))
        .collect()
}

fn described(chain: &Chain) -> Probes {
    Probes {
        chain: chain.name.to_owned(),
        note: chain.note.map(str::to_owned),
        functions: Vec::new(),
        absent: chain.absent.iter().map(|(term, why)| (*term, (*why).to_owned())).collect(),
        missing: None,
    }
}

fn unprobed(chain: &str, missing: Missing) -> Probes {
    let known = chains::CHAINS.iter().find(|known| known.name == chain);
    let described = known.map(described);
    let (note, absent) = described.map(|d| (d.note, d.absent)).unwrap_or_default();
    Probes { chain: chain.to_owned(), note, functions: Vec::new(), absent, missing: Some(missing) }
}

/// As the output tells it.
pub fn missing(error: &TraceError) -> Missing {
    let command = match error {
        TraceError::Denied { .. } => Some("sudo mkey bench registration --stages".to_owned()),
        other => other.mend(),
    };
    Missing::new(format!("no kernel stages: {error}"), command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::registration::report::Term;

    fn event(function: usize, returned: bool, ns: u64) -> Event {
        Event { function, returned, ns }
    }

    /// A registration by rxe as it was recorded in a guest, times rounded: one function a stage.
    #[test]
    fn a_recorded_registration_is_split() {
        let chain = chains::of("rxe");
        let stage_of: Vec<usize> = (0..chain.stages.len()).collect();
        // uverbs(0) > verb(1) > region(2) > umem(3) > pin(4) twice, list(5), map(6); table(7).
        let events = [
            event(0, false, 1_000),
            event(1, false, 1_500),
            event(2, false, 1_700),
            event(3, false, 2_000),
            event(4, false, 2_100),
            event(4, true, 3_100),
            event(5, false, 3_200),
            event(5, true, 3_400),
            event(4, false, 3_500),
            event(4, true, 4_500),
            event(6, false, 4_600),
            event(6, true, 4_700),
            event(3, true, 5_000),
            event(7, false, 5_100),
            event(7, true, 9_100),
            event(2, true, 9_200),
            event(1, true, 9_300),
            event(0, true, 9_500),
        ];
        let mut taken = Taken::default();
        taken.add(chain.stages.len(), &stage_of, 10_000, &events);
        let split = taken.medians(chain).unwrap();
        assert_eq!((split.verb_ns, split.outside_ns, split.samples), (10_000.0, 1_500.0, 1));
        let own: Vec<(&str, f64, f64)> =
            split.stages.iter().map(|s| (s.stage.as_str(), s.own_ns, s.calls)).collect();
        assert_eq!(
            own,
            [
                ("uverbs entry", 700.0, 1.0),
                ("driver's verb", 300.0, 1.0),
                ("driver's region", 500.0, 1.0),
                ("ib_umem_get", 700.0, 1.0),
                ("pin pages", 2_000.0, 2.0),
                ("scatter list", 200.0, 1.0),
                ("DMA map", 100.0, 1.0),
                ("driver's table", 4_000.0, 1.0),
            ]
        );
        let sum: f64 = split.stages.iter().map(|s| s.own_ns).sum::<f64>() + split.outside_ns;
        assert_eq!(sum, split.verb_ns);
    }

    /// Linux 7.3 has two functions of ib_umem_get, one within the other.
    #[test]
    fn two_functions_of_a_stage_are_one_call() {
        let chain = chains::of("rxe");
        let umem = chain.stages.iter().position(|stage| stage.name == "ib_umem_get").unwrap();
        let events = [
            event(0, false, 100),
            event(1, false, 200),
            event(2, false, 300),
            event(2, true, 500),
            event(1, true, 700),
            event(0, true, 1_000),
        ];
        let mut taken = Taken::default();
        taken.add(chain.stages.len(), &[0, umem, umem], 1_200, &events);
        let split = taken.medians(chain).unwrap();
        let inner = split.stages.iter().find(|stage| stage.stage == "ib_umem_get").unwrap();
        assert_eq!((inner.total_ns, inner.own_ns, inner.calls), (500.0, 500.0, 1.0));
        let outer = &split.stages[0];
        assert_eq!((outer.total_ns, outer.own_ns), (900.0, 400.0));
    }

    #[test]
    fn names_of_other_kernels_are_no_loss() {
        let absent = Refused { function: 1, absent: true, why: "absent".to_owned() };
        let refused = Refused { function: 2, absent: false, why: "refused".to_owned() };
        let told = not_probed(vec![("a", None), ("b", Some(&absent)), ("c", Some(&refused))]);
        assert_eq!(told, ["c: refused"]);
        assert_eq!(not_probed(vec![("b", Some(&absent))]), ["b: absent"]);
    }

    #[test]
    fn a_driver_without_firmware_says_so() {
        let probes = described(chains::of("rxe"));
        assert_eq!(probes.absent, [(Term::Command, "soft-RoCE has no firmware".to_owned())]);
    }

    #[test]
    fn why_nothing_is_probed_is_told_with_its_mend() {
        let told = missing(&TraceError::NotMounted);
        assert!(told.what.contains("tracefs is not mounted"));
        assert!(told.command.unwrap().contains("mount -t tracefs"));
        let denied = TraceError::Denied { path: "/x".into(), errno: mkey_os::error::Errno::ACCESS };
        assert!(missing(&denied).command.unwrap().starts_with("sudo mkey"));
    }
}
