//! Many programs over two devices.

use super::deviations::{Deviation, Verdict, WITHOUT_ON_DEMAND, judge};
use super::generate::{Offer, program};
use super::interpret::Machine;
use super::program::{Kind, Program, Step};
use super::shrink::shrink;
use super::trace::{Difference, Outcome, Trace};
use crate::fixture::Subject;
use mkey_core::device::Device;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Two devices that are compared, and in what they may differ.
pub struct Comparison<'s, O: Subject, T: Subject> {
    /// The software RNIC.
    pub ours: Machine<'s, O>,
    /// The other device.
    pub theirs: Machine<'s, T>,
    /// What is known to differ.
    pub table: &'static [Deviation],
}

/// How the comparison of a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Steps that were compared.
    pub steps: usize,
    /// The deviations that were met.
    pub deviations: Vec<usize>,
    /// What is not known, and in which step.
    pub unknown: Option<(usize, Vec<Difference>)>,
    /// Both traces.
    pub traces: [Trace; 2],
}

impl Compared {
    /// What is not known, in words, without what follows from it.
    fn words(&self) -> Vec<String> {
        let found = self.unknown.iter().flat_map(|(_, found)| found);
        let first = found.clone().filter(|difference| !difference.follows());
        let mut words: Vec<_> = first.map(ToString::to_string).collect();
        if words.is_empty() {
            words.extend(found.map(ToString::to_string));
        }
        words
    }
}

/// Why a program does not count as the same.
enum Unknown {
    /// It could not be run.
    Failed(String),
    /// What differs is not known.
    Shown(Box<(Program, Compared)>),
}

/// What a campaign met.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Programs run.
    pub programs: u64,
    /// Steps compared.
    pub steps: u64,
    /// Programs compared to their end.
    pub whole: u64,
    /// Verbs called and work requests posted, by kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Completions, by status.
    pub statuses: BTreeMap<u32, u64>,
    /// In how many programs each deviation was met, by its index in the table.
    pub deviations: BTreeMap<usize, u64>,
}

impl<'s, O: Subject, T: Subject> Comparison<'s, O, T> {
    /// Opens both devices.
    pub fn new(ours: &'s O, theirs: &'s T, table: &'static [Deviation]) -> Self {
        Self { ours: Machine::new(ours), theirs: Machine::new(theirs), table }
    }

    /// What both devices offer, and can be used.
    pub fn offer(&self) -> Offer {
        let offers = |device: &dyn Device| {
            let capabilities = device.capabilities();
            let driver = |(driver, _): &(&str, &str)| *driver == capabilities.driver;
            capabilities.odp.explicit && !WITHOUT_ON_DEMAND.iter().any(driver)
        };
        Offer { on_demand: offers(self.ours.device()) && offers(self.theirs.device()) }
    }

    /// Runs a program on both devices and compares.
    ///
    /// # Errors
    /// What could not be set up, in words.
    pub fn compare(&self, program: &Program) -> Result<Compared, String> {
        let run = |error: mkey_core::error::Error| format!("no program can be run: {error}");
        let ours = self.ours.run(program).map_err(run)?;
        let theirs = self.theirs.run(program).map_err(run)?;
        let (mut steps, mut deviations, mut unknown) = (0, Vec::new(), None);
        for (at, (one, other)) in ours.iter().zip(&theirs).enumerate() {
            steps += 1;
            match judge(self.table, one, other) {
                Verdict::Same => {}
                Verdict::Known { deviations: known, parted } => {
                    deviations.extend(known);
                    if parted {
                        break;
                    }
                }
                Verdict::Unknown(found) => {
                    unknown = Some((at, found));
                    break;
                }
            }
        }
        deviations.sort_unstable();
        deviations.dedup();
        Ok(Compared { steps, deviations, unknown, traces: [ours, theirs] })
    }

    /// Compares the program with the number `seed` and counts.
    ///
    /// # Errors
    /// A difference that is not known.
    fn one(&self, seed: u64, offer: Offer, tally: &mut Tally) -> Result<(), Unknown> {
        let program = program(seed, offer);
        let compared = self.compare(&program).map_err(Unknown::Failed)?;
        tally.programs += 1;
        tally.steps += compared.steps as u64;
        tally.whole += u64::from(compared.steps > program.steps.len());
        for deviation in &compared.deviations {
            *tally.deviations.entry(*deviation).or_default() += 1;
        }
        for step in program.steps.iter().take(compared.steps) {
            tally.count(step);
        }
        for outcome in compared.traces[0].iter().take(compared.steps) {
            for done in outcome.completions.iter().flatten() {
                *tally.statuses.entry(done.status as u32).or_default() += 1;
            }
        }
        if compared.unknown.is_none() {
            Ok(())
        } else {
            Err(Unknown::Shown(Box::new((program, compared))))
        }
    }

    /// The smallest program that was found to show a difference, with both traces.
    fn smallest(&self, seed: u64, program: &Program, compared: &Compared) -> String {
        // The same difference: a smaller program may well show another one.
        let wanted = compared.words();
        let differs = |program: &Program| {
            self.compare(program).is_ok_and(|compared| compared.words() == wanted)
        };
        // What does not show again is not to be made smaller.
        let small = if differs(program) { shrink(program, differs) } else { program.clone() };
        match self.compare(&small) {
            Ok(shown) if shown.unknown.is_some() => self.report(seed, &small, &shown),
            _ => self.report(seed, program, compared),
        }
    }

    /// Compares `programs` programs, from number `seed` on.
    ///
    /// # Errors
    /// The differences that are not known, at most `most`, each once, with the smallest program that
    /// was found to show it. `tell` hears of each as it is found, and of the tally before each
    /// program.
    pub fn many(
        &self,
        seed: u64,
        programs: u64,
        most: usize,
        mut tell: impl FnMut(&Tally, Option<&str>),
    ) -> Result<Tally, Vec<String>> {
        let (mut tally, mut found) = (Tally::default(), Vec::new());
        let mut seen = BTreeSet::new();
        let offer = self.offer();
        for seed in seed..seed.saturating_add(programs) {
            tell(&tally, None);
            match self.one(seed, offer, &mut tally) {
                Ok(()) => {}
                Err(Unknown::Failed(error)) => return Err(vec![error]),
                Err(Unknown::Shown(shown)) => {
                    let (program, compared) = *shown;
                    if seen.insert(compared.words()) {
                        let report = self.smallest(seed, &program, &compared);
                        tell(&tally, Some(&report));
                        found.push(report);
                    }
                    if found.len() >= most {
                        break;
                    }
                }
            }
        }
        if found.is_empty() { Ok(tally) } else { Err(found) }
    }

    /// A program with what both devices showed, as text that can be replayed.
    pub fn report(&self, seed: u64, program: &Program, compared: &Compared) -> String {
        let mut text = format!(
            "# program {seed}: {} and {} differ\n",
            self.ours.device().name(),
            self.theirs.device().name()
        );
        let last = compared.unknown.as_ref().map_or(program.steps.len(), |(at, _)| *at);
        for (at, step) in program.steps.iter().enumerate().take(last + 1) {
            let line = Program { steps: vec![step.clone()] };
            let _ = write!(text, "{line}");
            if at == last || compared.unknown.is_none() {
                for trace in &compared.traces {
                    if let Some(outcome) = trace.get(at) {
                        let _ = writeln!(text, "#   {}", shown(outcome));
                    }
                }
            }
        }
        for difference in compared.unknown.iter().flat_map(|(_, found)| found) {
            let _ = writeln!(text, "# {difference}");
        }
        text
    }
}

fn shown(outcome: &Outcome) -> String {
    let Outcome { answer, completions, states, memory } = outcome;
    let mut text = format!("{answer:?} {states:?} memory {memory:016x}");
    for (queue, list) in ["A sends", "B sends", "A receives", "B receives"].iter().zip(completions)
    {
        for done in list {
            let _ = write!(text, "; {queue}: {} {:?} {}", done.wr, done.kind, done.status);
            if let Some(detail) = done.detail {
                let _ = write!(text, " {detail:?}");
            }
        }
    }
    text
}

impl Tally {
    fn count(&mut self, step: &Step) {
        let mut count = |kind| *self.kinds.entry(kind).or_default() += 1;
        match (step, step.kind()) {
            (_, Some(kind)) => count(kind),
            (Step::Post { chain, .. }, None) => {
                chain.iter().for_each(|request| count(request.op.kind(true)));
            }
            _ => {}
        }
    }
}
