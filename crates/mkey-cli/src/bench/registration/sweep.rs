//! Measuring a sweep: all sizes of a kind of page in rounds, so that drift meets them alike.
//!
//! Each registration takes another part of the memory. Registering the same part again and again
//! would find all that the kernel keeps of its pages in the processor's caches, for small sizes and
//! not for large ones; a program that registers memory once does not find it there.

use super::args::SweepArgs;
use super::iommu::{MapSet, Mapper};
use super::report::{Dma, Figures, Iommu, Probes, Row, Stages, Terms};
use super::stages::{self, Stager};
use crate::bench::arena::Arena;
use crate::bench::error::{Result, RowError};
use crate::bench::measure::{Samples, nanoseconds};
use crate::bench::memory::{self, Bounds, Fit};
use crate::bench::progress::Progress;
use crate::bench::report::Missing;
use crate::bench::report::Outcome;
use crate::bench::rows::region::WRITABLE;
use crate::bench::stop::Stop;
use crate::bench::units::size;
use crate::bench::{plan, populate};
use mkey_core::device::{Device, PdHandle, RegistrationTerms};
use mkey_os::hugepages::Reservation;
use mkey_os::mapping::PageKind;
use mkey_os::usage;
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Rounds over the sizes.
const ROUNDS: u64 = 5;
/// Rounds where the time is too short for more.
const LEAST_ROUNDS: u64 = 3;
/// Registrations of a size in one round, at most.
const MOST: u64 = 2_000;
/// Registrations of a size that are probed, at most.
const PROBED: u64 = 15;
/// So many, unless a size takes several times its share of the time.
pub const ENOUGH_PROBED: u64 = 7;
/// So many in any case.
const LEAST_PROBED: u64 = 3;
/// Mappings of a size behind an IOMMU in one round, at most.
const MAPPED: u64 = 20;

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// For so long, all kinds of pages together.
    Time(Duration),
    /// So many registrations of each size.
    Samples(u64),
}

/// What all kinds of pages share.
#[derive(Debug)]
pub struct Context<'a, D: Device> {
    /// The device measured.
    pub device: &'a D,
    /// What is asked.
    pub args: &'a SweepArgs,
    /// How much of it.
    pub effort: Effort,
    /// Asked at safe points.
    pub stop: &'a Stop,
    /// Told how far the run is.
    pub progress: &'a Progress,
}

/// What is measured beside the verbs.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// The kernel's functions.
    pub stager: Option<&'a Stager>,
    /// Memory behind an IOMMU.
    pub mapper: Option<&'a Mapper>,
}

/// Why what is measured beside the verbs was given up.
#[derive(Default)]
struct Failed {
    stages: Option<Missing>,
    dma: Option<Missing>,
}

/// Memory with the reservation that it lies in, which goes after it.
struct Memory {
    arena: Arena,
    _reserved: Option<Reservation>,
}

/// A size in the making.
struct Size {
    bytes: u64,
    /// Which part of the memory is next.
    part: u64,
    /// All registrations.
    all: Set,
    /// Those during which nothing else ran in this thread's place.
    undisturbed: Set,
    stages: Option<Stages>,
    dma: Option<Dma>,
    failed: Option<Missing>,
}

/// What registrations took.
struct Set {
    taken: u64,
    register: Samples,
    deregister: Samples,
    pin: Samples,
    unpin: Samples,
    table: Samples,
    command: Samples,
    /// Whether the device counts what it does.
    told: bool,
}

/// One registration, nanoseconds.
struct Taking {
    register: u64,
    deregister: u64,
    before: RegistrationTerms,
    between: RegistrationTerms,
    after: RegistrationTerms,
}

impl<D: Device> Context<'_, D> {
    /// Measures all kinds of pages; `probes` and `iommu` are what is told of `beside`.
    ///
    /// # Errors
    /// `Stopped`; whatever else keeps a size from being measured stands in its row.
    pub fn measure(
        &self,
        beside: Beside<'_>,
        probes: Option<&mut Probes>,
        iommu: Option<&mut Iommu>,
    ) -> Result<(Vec<Row>, Vec<Missing>)> {
        let kinds = self.args.kinds();
        // The largest first: memory is least fragmented then. One reservation stands at a time.
        let mut order = kinds.clone();
        order.sort_unstable_by(|a, b| b.cmp(a));
        let largest = self.args.sizes.0.last().copied().unwrap_or(0);
        // What may be locked shows at each size.
        let bounds = Bounds { lockable: None, ..memory::bounds() };
        let told = |bytes| format!("sizes above {} are not measured", size(bytes));
        let fit = memory::fit_told(largest, &bounds, told);
        let pd = self.device.alloc_pd()?;
        let mut measured = Vec::new();
        let mut failed = Failed::default();
        let mut outcome = Ok(());
        for (done, kind) in order.into_iter().enumerate() {
            self.progress.row(done, &format!("{kind} pages"));
            let share = u32::try_from(kinds.len().max(1)).unwrap_or(1);
            match self.kind(pd, kind, share, &fit, beside, &mut failed) {
                Ok(rows) => measured.push((kind, rows)),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        // The device goes with the process: a domain that it will not free has no user left.
        let _ = self.device.dealloc_pd(pd);
        outcome?;
        if let (Some(probes), Some(missing)) = (probes, failed.stages) {
            probes.missing = Some(missing);
        }
        if let (Some(iommu), Some(missing)) = (iommu, failed.dma) {
            iommu.missing = Some(missing);
        }
        let place = |kind: &PageKind| kinds.iter().position(|asked| asked == kind);
        measured.sort_by_key(|(kind, _)| place(kind));
        let limits = fit.limits.iter().map(|limit| beyond(limit, largest, fit.bytes)).collect();
        Ok((measured.into_iter().flat_map(|(_, rows)| rows).collect(), limits))
    }

    fn kind(
        &self,
        pd: PdHandle,
        kind: PageKind,
        share: u32,
        fit: &Fit,
        beside: Beside<'_>,
        failed: &mut Failed,
    ) -> Result<Vec<Row>> {
        let page = kind.size() as u64;
        let mut sizes: Vec<Size> = self
            .args
            .sizes
            .0
            .iter()
            .filter(|bytes| **bytes >= page)
            .map(|b| Size::new(*b))
            .collect();
        if sizes.is_empty() {
            let (name, least) = (kind.to_string().replace(' ', ""), size(page).replace(' ', ""));
            let mut none = Size::new(page);
            none.failed = Some(Missing::with(
                format!("no size asked for holds a page of {kind}"),
                format!("mkey bench registration --pages {name} --sizes {least}..{}", more(page)),
            ));
            return Ok(vec![self.row(kind, none)]);
        }
        for of_size in &mut sizes {
            if !of_size.bytes.is_multiple_of(page) {
                let what = format!("{} are no whole pages of {kind}", size(of_size.bytes));
                of_size.failed = Some(Missing::plain(what));
            } else if of_size.bytes > fit.bytes {
                of_size.failed =
                    fit.limits.last().map(|limit| beyond(limit, of_size.bytes, fit.bytes));
            }
        }
        if let Some(memory) = self.memory(kind, &mut sizes)? {
            let time = match self.effort {
                Effort::Time(time) => time / share,
                Effort::Samples(_) => Duration::MAX,
            };
            let Beside { stager, mapper } = beside;
            let tenths = u32::from(stager.is_some()) * 3 + u32::from(mapper.is_some()) * 3;
            self.rounds(pd, &memory.arena, &mut sizes, time / 10 * (10 - tenths))?;
            if let Some(stager) = stager.filter(|_| failed.stages.is_none()) {
                match self.probe(pd, &memory.arena, &mut sizes, stager, time / 10 * 3) {
                    Err(RowError::Missing(missing)) => failed.stages = Some(missing),
                    other => other?,
                }
            }
            if let Some(mapper) = mapper.filter(|_| failed.dma.is_none()) {
                match self.map(&memory.arena, kind, &mut sizes, mapper, time / 10 * 3) {
                    Err(RowError::Missing(missing)) => failed.dma = Some(missing),
                    other => other?,
                }
            }
        }
        Ok(sizes.into_iter().map(|size| self.row(kind, size)).collect())
    }

    /// Memory for the largest size that can be had; those above it are marked.
    fn memory(&self, kind: PageKind, sizes: &mut [Size]) -> Result<Option<Memory>> {
        let threads = available_parallelism().map_or(1, NonZero::get);
        for of_size in sizes.iter_mut().rev().filter(|size| size.failed.is_none()) {
            self.stop.check()?;
            self.progress.step("prefault");
            match self.obtain(kind, of_size.bytes, threads) {
                Ok(memory) => return Ok(Some(memory)),
                Err(RowError::Stopped(signal)) => return Err(RowError::Stopped(signal)),
                Err(error) => of_size.failed = Some(error.missing()),
            }
        }
        Ok(None)
    }

    fn obtain(&self, kind: PageKind, bytes: u64, threads: usize) -> Result<Memory> {
        let reserved = if kind.is_hugetlb() && !self.args.no_reserve {
            plan::reserve(bytes, kind).map_err(RowError::Missing)?
        } else {
            None
        };
        let memory = Memory { arena: populate::map(bytes, kind)?, _reserved: reserved };
        populate::prefault(&memory.arena, threads, self.stop, self.progress)?;
        Ok(memory)
    }

    fn rounds(
        &self,
        pd: PdHandle,
        arena: &Arena,
        sizes: &mut [Size],
        time: Duration,
    ) -> Result<()> {
        let start = Instant::now();
        let live = sizes.iter().filter(|size| size.failed.is_none()).count().max(1);
        let slices = u32::try_from(live).unwrap_or(u32::MAX).saturating_mul(ROUNDS as u32);
        for round in 0..ROUNDS {
            // Up and down in turns.
            let mut order: Vec<&mut Size> = sizes.iter_mut().collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for of_size in order {
                if of_size.failed.is_some() {
                    continue;
                }
                self.stop.check()?;
                self.progress.step(&size(of_size.bytes));
                let outcome = self.slice(pd, arena, of_size, round, time / slices);
                of_size.mark(outcome)?;
            }
            if matches!(self.effort, Effort::Time(_))
                && round + 1 >= LEAST_ROUNDS
                && start.elapsed() > time
            {
                break;
            }
        }
        Ok(())
    }

    /// One size's turn in a round.
    fn slice(
        &self,
        pd: PdHandle,
        arena: &Arena,
        of_size: &mut Size,
        round: u64,
        time: Duration,
    ) -> Result<()> {
        if round == 0 {
            // Warms up: tables grow, pages of the kernel's own come in.
            let offset = of_size.next_part(arena);
            let warm = arena.register(self.device, pd, offset, of_size.bytes, WRITABLE)?;
            warm.deregister()?;
        }
        let target = match self.effort {
            Effort::Samples(all) => all.saturating_mul(round + 1).div_ceil(ROUNDS),
            Effort::Time(_) => of_size.all.taken.saturating_add(MOST),
        };
        let start = Instant::now();
        while of_size.all.taken < target {
            self.stop.check()?;
            of_size.time(self.device, pd, arena)?;
            if matches!(self.effort, Effort::Time(_)) && start.elapsed() >= time {
                break;
            }
        }
        Ok(())
    }

    /// Registers each size again while the kernel's functions are probed.
    fn probe(
        &self,
        pd: PdHandle,
        arena: &Arena,
        sizes: &mut [Size],
        stager: &Stager,
        time: Duration,
    ) -> Result<()> {
        let mut registering = Duration::ZERO;
        let live: Vec<&mut Size> = sizes.iter_mut().filter(|s| s.failed.is_none()).collect();
        let all = live.len();
        for (done, of_size) in live.into_iter().enumerate() {
            self.progress.step(&format!("{}, probed", size(of_size.bytes)));
            // What short sizes leave over is for the long ones, which come last.
            let left = u32::try_from(all.saturating_sub(done)).unwrap_or(u32::MAX).max(1);
            let share = time.saturating_sub(registering) / left;
            let bytes = of_size.bytes;
            of_size.stages = stager.record(|| {
                // Emptying the kernel's buffer before this takes longer than many registrations, and
                // is not counted: nothing would be left for these.
                let start = Instant::now();
                let mut verbs = Vec::with_capacity(PROBED as usize);
                // The first warms up.
                for done in 0..=PROBED {
                    self.stop.check()?;
                    if is_probed(done.saturating_sub(1), start.elapsed(), share) {
                        break;
                    }
                    let offset = of_size.next_part(arena);
                    let from = stages::now();
                    let made = arena.register(self.device, pd, offset, bytes, WRITABLE)?;
                    let until = stages::now();
                    made.deregister()?;
                    if done > 0 {
                        verbs.push(from..until);
                    }
                }
                registering = registering.saturating_add(start.elapsed());
                Ok(verbs)
            })?;
        }
        Ok(())
    }

    /// Maps each size through the IOMMU, in rounds.
    fn map(
        &self,
        arena: &Arena,
        kind: PageKind,
        sizes: &mut [Size],
        mapper: &Mapper,
        time: Duration,
    ) -> Result<()> {
        let mut live: Vec<_> = sizes.iter_mut().filter(|size| size.failed.is_none()).collect();
        let slices = u32::try_from(live.len()).unwrap_or(u32::MAX).max(1);
        let slice = time / slices.saturating_mul(ROUNDS as u32);
        let mut sets: Vec<_> = live.iter().map(|_| MapSet::new()).collect();
        for _ in 0..ROUNDS {
            for (of_size, set) in live.iter_mut().zip(&mut sets) {
                self.progress.step(&format!("{}, mapped", size(of_size.bytes)));
                let start = Instant::now();
                for done in 0..MAPPED {
                    self.stop.check()?;
                    if done > 0 && start.elapsed() > slice {
                        break;
                    }
                    let address = arena.at(of_size.next_part(arena));
                    mapper.map(address, of_size.bytes, kind, set)?;
                }
            }
        }
        for (of_size, set) in live.iter_mut().zip(sets) {
            of_size.dma = set.summary();
        }
        Ok(())
    }

    fn row(&self, kind: PageKind, of_size: Size) -> Row {
        let bytes = of_size.bytes;
        let outcome = of_size.outcome();
        Row {
            page: kind.to_string(),
            page_bytes: kind.size() as u64,
            bytes,
            simulated: !self.args.command_cost.is_zero() && matches!(outcome, Outcome::Measured(_)),
            outcome,
        }
    }
}

/// Whether a size is probed often enough for its share of the time.
fn is_probed(done: u64, taken: Duration, share: Duration) -> bool {
    match done {
        PROBED.. => true,
        ENOUGH_PROBED.. => taken > share,
        LEAST_PROBED.. => taken > share.saturating_mul(4),
        _ => false,
    }
}

/// Why a size was not measured, of a bound that says how much is registered in its place.
fn beyond(limit: &Missing, bytes: u64, fits: u64) -> Missing {
    let why = limit.what.rsplit_once(": ").map_or(limit.what.as_str(), |(why, _)| why);
    let what = format!("{why}: {} do not fit, sizes to {} do", size(bytes), size(fits));
    Missing::new(what, limit.command.clone())
}

/// Sizes up to which a page of so many bytes would be measured.
fn more(page: u64) -> String {
    size(page.saturating_mul(4)).replace(' ', "")
}

impl Size {
    fn new(bytes: u64) -> Self {
        let (all, undisturbed) = (Set::new(), Set::new());
        Self { bytes, part: 0, all, undisturbed, stages: None, dma: None, failed: None }
    }

    /// The offset of the next part of the memory, far from the last one.
    fn next_part(&mut self, arena: &Arena) -> u64 {
        let parts = (arena.bytes() / self.bytes.max(1)).max(1);
        // About the golden section, and odd: parts are mostly powers of two, so all take turns.
        let step = (parts.saturating_mul(5) / 8) | 1;
        self.part = self.part.saturating_add(step) % parts;
        self.part.saturating_mul(self.bytes)
    }

    /// Keeps why it failed; a signal goes on.
    fn mark(&mut self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(RowError::Stopped(signal)) => Err(RowError::Stopped(signal)),
            Err(error) => {
                self.failed = Some(error.missing());
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn time<D: Device>(&mut self, device: &D, pd: PdHandle, arena: &Arena) -> Result<()> {
        let offset = self.next_part(arena);
        let (preempted, before) = (usage::preemptions(), device.registration_terms());
        let start = Instant::now();
        let registration = arena.register(device, pd, offset, self.bytes, WRITABLE)?;
        let register = nanoseconds(start.elapsed());
        let between = device.registration_terms();
        let start = Instant::now();
        registration.deregister()?;
        let deregister = nanoseconds(start.elapsed());
        let after = device.registration_terms();
        let taking = Taking { register, deregister, before, between, after };
        self.all.add(&taking);
        if usage::preemptions() == preempted {
            self.undisturbed.add(&taking);
        }
        Ok(())
    }

    fn outcome(self) -> Outcome<Figures> {
        let disturbed = self.undisturbed.taken < LEAST_ROUNDS.min(self.all.taken);
        let preempted = self.all.taken - self.undisturbed.taken.min(self.all.taken);
        let set = if disturbed { self.all } else { self.undisturbed };
        let summaries = (set.register.summary(), set.deregister.summary(), &self.failed);
        let (Some(register), Some(deregister), None) = summaries else {
            let nothing = || Missing::plain("nothing was registered");
            return Outcome::NotMeasured(self.failed.unwrap_or_else(nothing));
        };
        Outcome::Measured(Box::new(Figures {
            register,
            deregister,
            preempted,
            disturbed,
            terms: set.terms(),
            stages: self.stages,
            dma: self.dma,
        }))
    }
}

impl Set {
    fn new() -> Self {
        let one = || Samples::new(1);
        Self {
            taken: 0,
            register: one(),
            deregister: one(),
            pin: one(),
            unpin: one(),
            table: one(),
            command: one(),
            told: false,
        }
    }

    fn add(&mut self, taking: &Taking) {
        let Taking { before, between, after, .. } = taking;
        self.taken += 1;
        self.register.record_ns(taking.register);
        self.deregister.record_ns(taking.deregister);
        self.told |= after.registrations > before.registrations;
        self.pin.record_ns(between.pin.saturating_sub(before.pin));
        self.table.record_ns(between.table.saturating_sub(before.table));
        self.command.record_ns(between.command.saturating_sub(before.command));
        self.unpin.record_ns(after.unpin.saturating_sub(between.unpin));
    }

    fn terms(&self) -> Option<Terms> {
        let above_zero = |samples: &Samples| samples.summary().filter(|s| s.p99_ns > 0.0);
        let table = self.table.summary().filter(|_| self.told)?;
        Some(Terms {
            pin: above_zero(&self.pin),
            unpin: above_zero(&self.unpin),
            table,
            command: above_zero(&self.command),
        })
    }
}

/// A declared device command in nanoseconds.
pub fn command_ns(args: &SweepArgs) -> u64 {
    nanoseconds(args.command_cost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn sizes_are_probed_often_enough_where_the_time_allows() {
        let share = Duration::from_millis(100);
        let stops = |each: Duration| {
            let taken = |done: u64| each * u32::try_from(done).unwrap();
            (0..).find(|done| is_probed(*done, taken(*done), share)).unwrap()
        };
        assert_eq!(stops(Duration::from_millis(1)), PROBED);
        assert_eq!(stops(Duration::from_millis(20)), ENOUGH_PROBED);
        assert_eq!(stops(Duration::from_millis(50)), ENOUGH_PROBED);
        assert_eq!(stops(Duration::from_millis(90)), 5);
        assert_eq!(stops(Duration::from_secs(9)), LEAST_PROBED);
        // A number of registrations was asked for, not a time.
        assert!(!is_probed(14, Duration::from_secs(9), Duration::MAX / 10));
    }

    #[test]
    fn parts_take_turns_within_the_memory() {
        let arena = Arena::map(16 << 12, PageKind::Base).unwrap();
        for bytes in [4096, 8192, 12288, 16 << 12] {
            let mut of_size = Size::new(bytes);
            let parts = (16 << 12) / bytes;
            let seen: BTreeSet<u64> = (0..parts).map(|_| of_size.next_part(&arena)).collect();
            assert!(seen.iter().all(|at| at % bytes == 0 && at + bytes <= 16 << 12), "{seen:?}");
            if parts.is_power_of_two() {
                assert_eq!(seen.len() as u64, parts, "{seen:?}");
            }
        }
    }
}
