//! Many programs over two devices.

use super::deviations::Deviation;
use super::generate::program;
use super::interpret::Machine;
use super::judge::{Verdict, judge};
use super::offer::Offer;
use super::program::{Kind, Program};
use super::shrink::shrink;
use super::trace::{Difference, Outcome, Trace};
use crate::fixture::{Subject, locked};
use mkey_core::device::Device;
use mkey_core::status::WcStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::AddAssign;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How long what does not come is waited for, when a difference is looked at again.
const PATIENT: u32 = 4;

/// Two devices that are compared, and in what they may differ.
pub struct Comparison<'s, O: Subject, T: Subject> {
    /// The software RNIC.
    pub ours: Machine<'s, O>,
    /// The other device.
    pub theirs: Machine<'s, T>,
    /// What is known to differ.
    pub table: &'s [Deviation],
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

/// What a campaign is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Campaign {
    /// The number of the first program.
    pub first: u64,
    /// How many programs.
    pub programs: u64,
    /// How many run at the same time, each on queue pairs of its own: most of a program's time it
    /// waits.
    pub threads: usize,
    /// It ends with so many differences that are not known.
    pub most: usize,
}

impl Campaign {
    /// What the tests run over each of two kernels: the guests have ten minutes for all they do.
    pub const USUAL: Self = Self { first: 0, programs: 1000, threads: 4, most: 5 };
}

/// What a campaign met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Programs run.
    pub programs: u64,
    /// Steps compared.
    pub steps: u64,
    /// Programs compared to their end.
    pub whole: u64,
    /// Programs that showed a difference which was not there when they were run again with more
    /// patience.
    pub unsteady: u64,
    /// What the software RNIC answered: errnos by kind; of a chain that was posted, by the kind of
    /// its first work request.
    pub answers: BTreeMap<(Kind, i32), u64>,
    /// What work requests ended with on the software RNIC, by kind.
    pub completions: BTreeMap<(Kind, u32), u64>,
    /// In how many programs each deviation was met, by its index in the table.
    pub deviations: BTreeMap<usize, u64>,
}

/// What is told of a campaign while it runs.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// The program with this number is run now.
    Begins(u64),
    /// A difference that is not known, with the smallest program that was found to show it.
    Found(&'a str),
}

/// Why a program does not count as the same.
enum Unknown {
    /// It could not be run.
    Failed(String),
    /// What differs is not known.
    Shown(Box<(Program, Compared)>),
}

impl Campaign {
    /// Runs the programs over pairs of devices that `pair` makes, one for each thread, and compares
    /// what they show but for `table`. `tell` hears of it meanwhile.
    ///
    /// # Errors
    /// The differences that are not known, each once, with the smallest program that was found to
    /// show it.
    pub fn run<O: Subject, T: Subject>(
        &self,
        table: &[Deviation],
        pair: impl Fn() -> (O, T) + Sync,
        tell: impl Fn(Told<'_>) + Sync,
    ) -> Result<Tally, Vec<String>> {
        let next = AtomicU64::new(self.first);
        let shared = Mutex::new((Tally::default(), Found::default()));
        let work = || {
            let (ours, theirs) = pair();
            let comparison = Comparison::new(&ours, &theirs, table);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number - self.first >= self.programs || locked(&shared).1.ends(self.most) {
                    return;
                }
                tell(Told::Begins(number));
                let mut tally = Tally::default();
                let result = comparison.one(number, &mut tally);
                locked(&shared).0 += &tally;
                match result {
                    Ok(()) => {}
                    Err(Unknown::Failed(error)) => {
                        tell(Told::Found(&error));
                        locked(&shared).1.reports.push(error);
                    }
                    Err(Unknown::Shown(shown)) => {
                        let (program, compared) = *shown;
                        // What is seen a second time is not made small a second time.
                        if locked(&shared).1.seen.insert(compared.words()) {
                            let report = comparison.smallest(number, &program, &compared);
                            tell(Told::Found(&report));
                            locked(&shared).1.reports.push(report);
                        }
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(work);
            }
        });
        let (tally, found) = shared.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        if found.reports.is_empty() { Ok(tally) } else { Err(found.reports) }
    }
}

/// Differences that are not known.
#[derive(Default)]
struct Found {
    seen: BTreeSet<Vec<String>>,
    reports: Vec<String>,
}

impl Found {
    fn ends(&self, most: usize) -> bool {
        self.seen.len().max(self.reports.len()) >= most.max(1)
    }
}

impl<'s, O: Subject, T: Subject> Comparison<'s, O, T> {
    /// Opens both devices.
    pub fn new(ours: &'s O, theirs: &'s T, table: &'s [Deviation]) -> Self {
        let (mut ours, mut theirs) = (Machine::new(ours), Machine::new(theirs));
        let offer = ours.offer & theirs.offer;
        (ours.offer, theirs.offer) = (offer, offer);
        Self { ours, theirs, table }
    }

    /// What programs do on both.
    pub fn offer(&self) -> Offer {
        self.ours.offer
    }

    /// Runs a program on both devices and compares.
    ///
    /// # Errors
    /// What could not be set up, in words.
    pub fn compare(&self, program: &Program, patience: u32) -> Result<Compared, String> {
        let run = |error: mkey_core::error::Error| format!("no program can be run: {error}");
        let ours = self.ours.run(program, patience).map_err(run)?;
        let theirs = self.theirs.run(program, patience).map_err(run)?;
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

    /// Compares the program with this number and counts.
    ///
    /// # Errors
    /// A difference that is not known.
    fn one(&self, number: u64, tally: &mut Tally) -> Result<(), Unknown> {
        let program = program(number, self.offer());
        let mut compared = self.compare(&program, 1).map_err(Unknown::Failed)?;
        if compared.unknown.is_some() {
            // A device in real time on a machine that has other work may not have had enough of it.
            compared = self.compare(&program, PATIENT).map_err(Unknown::Failed)?;
            tally.unsteady += u64::from(compared.unknown.is_none());
        }
        tally.programs += 1;
        tally.steps += compared.steps as u64;
        tally.whole += u64::from(compared.steps > program.steps.len());
        for deviation in &compared.deviations {
            *tally.deviations.entry(*deviation).or_default() += 1;
        }
        compared.traces[0].iter().for_each(|outcome| tally.outcome(outcome));
        if compared.unknown.is_none() {
            Ok(())
        } else {
            Err(Unknown::Shown(Box::new((program, compared))))
        }
    }

    /// The smallest program that was found to show a difference, with both traces.
    fn smallest(&self, number: u64, program: &Program, compared: &Compared) -> String {
        // The same difference: a smaller program may well show another one.
        let wanted = compared.words();
        let differs = |program: &Program| {
            self.compare(program, 1).is_ok_and(|compared| compared.words() == wanted)
        };
        // What does not show again is not to be made smaller.
        let small = if differs(program) { shrink(program, differs) } else { program.clone() };
        match self.compare(&small, 1) {
            Ok(shown) if shown.unknown.is_some() => self.report(number, &small, &shown),
            _ => self.report(number, program, compared),
        }
    }

    /// A program with what both devices showed, as text that can be replayed.
    pub fn report(&self, number: u64, program: &Program, compared: &Compared) -> String {
        let mut text = format!(
            "# program {number}: {} and {} differ\n",
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
    /// How often work ended with this on the software RNIC.
    pub fn ended(&self, status: WcStatus) -> u64 {
        let of = self.completions.iter().filter(|((_, other), _)| *other == status as u32);
        of.map(|(_, count)| count).sum()
    }

    fn outcome(&mut self, outcome: &Outcome) {
        let answer = (outcome.answer.kind, outcome.answer.errno);
        *self.answers.entry(answer).or_default() += 1;
        for done in outcome.completions.iter().flatten() {
            *self.completions.entry((done.kind, done.status as u32)).or_default() += 1;
        }
    }
}

impl AddAssign<&Self> for Tally {
    fn add_assign(&mut self, other: &Self) {
        fn add<K: Ord + Copy>(to: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
            for (key, count) in from {
                *to.entry(*key).or_default() += count;
            }
        }
        self.programs += other.programs;
        self.steps += other.steps;
        self.whole += other.whole;
        self.unsteady += other.unsteady;
        add(&mut self.answers, &other.answers);
        add(&mut self.completions, &other.completions);
        add(&mut self.deviations, &other.deviations);
    }
}
