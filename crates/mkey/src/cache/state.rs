//! What a cache keeps under its lock.

use super::core::{Config, Core};
use super::error::CacheError;
use super::failures::Failures;
use super::index::Index;
use super::lines::Line;
use super::local::Local;
use super::registrar::Registrar;
use super::span::Span;
use super::stats::CacheStats;
use super::uses::{Shared, idle};
use mkey_core::error::Error;
use mkey_core::key::{Lkey, Rkey};
use mkey_core::rights::Rights;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Registrations to be dropped without the lock, with their bytes.
pub(super) type Trash<R> = Vec<(<R as Registrar>::Registration, u64)>;

/// Where in its life a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is there.
    Free,
    /// Requests are served from it.
    Live,
    /// No more requests; it is there until its last use is given back.
    Ended,
}

/// What is said of a place under the lock.
pub(super) struct Meta<R: Registrar> {
    pub(super) span: Span,
    pub(super) phase: Phase,
    pub(super) keys: (Lkey, Rkey),
    /// How many uses had been taken when victims were last looked for.
    pub(super) seen: u32,
    /// All threads' uses of the place.
    pub(super) lines: Vec<Line<R>>,
}

/// A registration being made, and who waits for it.
#[derive(Debug)]
pub(super) struct Flight {
    span: Span,
    /// Cleared when its memory changes meanwhile.
    valid: AtomicBool,
    /// The error, if it failed.
    landed: OnceLock<Option<Error>>,
}

impl Flight {
    pub(super) fn new(span: Span) -> Self {
        Self { span, valid: AtomicBool::new(true), landed: OnceLock::new() }
    }

    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Whether who wants this may wait for it.
    pub(super) fn joins(&self, wanted: &Span) -> bool {
        self.is_valid() && self.span.serves(wanted)
    }

    pub(super) fn is_valid(&self) -> bool {
        self.valid.load(Ordering::Relaxed)
    }

    pub(super) fn is_over(&self) -> bool {
        self.landed.get().is_some()
    }

    pub(super) fn error(&self) -> Option<Error> {
        self.landed.get().cloned().flatten()
    }

    pub(super) fn land(&self, error: Option<Error>) {
        // Landed once, by who flies.
        let _ = self.landed.set(error);
    }
}

pub(super) struct State<R: Registrar> {
    pub(super) metas: Vec<Meta<R>>,
    free: Vec<u32>,
    pub(super) index: Index,
    pub(super) flights: Vec<Arc<Flight>>,
    pub(super) failures: Failures,
    /// All that there ever were: those of ended threads wait for new ones.
    pub(super) locals: Vec<Arc<Local<R>>>,
    /// Registrations, being made and being ended included.
    pub(super) count: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Those being ended.
    pub(super) ending: u64,
    /// In phase [`Phase::Ended`], and their bytes.
    ended: (u64, u64),
    /// The heavy fence has been refused since something ended.
    pub(super) unfenced: bool,
    /// Where the search for victims goes on.
    hand: usize,
    pub(super) stats: CacheStats,
    /// The cache, when it has no other owner than its uses.
    keep: Option<Arc<Core<R>>>,
}

impl<R: Registrar> State<R> {
    pub(super) fn new(failures: Failures) -> Self {
        Self {
            metas: Vec::new(),
            free: Vec::new(),
            index: Index::default(),
            flights: Vec::new(),
            failures,
            locals: Vec::new(),
            count: 0,
            bytes: 0,
            ending: 0,
            ended: (0, 0),
            unfenced: false,
            hand: 0,
            stats: CacheStats::default(),
            keep: None,
        }
    }

    /// A free place.
    pub(super) fn place(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        let index = u32::try_from(self.metas.len()).ok()?;
        let span = Span { start: 0, end: 0, rights: Rights::empty() };
        let (phase, keys, lines) = (Phase::Free, Default::default(), Vec::new());
        self.metas.push(Meta { span, phase, keys, seen: 0, lines });
        Some(index)
    }

    pub(super) fn vacate(&mut self, index: u32) {
        if let Some(meta) = self.metas.get_mut(index as usize) {
            meta.phase = Phase::Free;
            self.free.push(index);
        }
    }

    /// One more (or less) is in phase [`Phase::Ended`].
    pub(super) fn ended(&mut self, span: &Span, by: i64) {
        self.ended.0 = self.ended.0.saturating_add_signed(by);
        let bytes = i64::try_from(span.len()).unwrap_or(i64::MAX);
        self.ended.1 = self.ended.1.saturating_add_signed(bytes.saturating_mul(by));
    }

    pub(super) fn all_ended(&self) -> Vec<u32> {
        let ended = self.metas.iter().enumerate().filter(|(_, meta)| meta.phase == Phase::Ended);
        ended.filter_map(|(index, _)| u32::try_from(index).ok()).collect()
    }

    pub(super) fn ended_in_use(&self) -> (u64, u64) {
        self.ended
    }

    pub(super) fn leave(&mut self, flight: &Arc<Flight>) {
        self.flights.retain(|other| !Arc::ptr_eq(other, flight));
    }

    pub(super) fn fits(&self, config: &Config, wanted: &Span) -> bool {
        self.count < config.max_count
            && self.bytes.checked_add(wanted.len() as u64).is_some_and(|b| b <= config.max_bytes)
    }

    /// Whether a request passes the limits by itself, whatever is given up.
    pub(super) fn never_fits(config: &Config, wanted: &Span) -> bool {
        config.max_count == 0 || wanted.len() as u64 > config.max_bytes
    }

    pub(super) fn full(&self, config: &Config, wanted: &Span) -> CacheError {
        if self.count >= config.max_count && wanted.len() as u64 <= config.max_bytes {
            CacheError::Count { most: config.max_count, in_use: self.count }
        } else {
            CacheError::Bytes {
                most: config.max_bytes,
                registered: self.bytes,
                wanted: wanted.len() as u64,
            }
        }
    }

    /// Whether nobody uses what is in a place: see [`idle`].
    pub(super) fn is_idle(&self, index: u32, shared: &Shared) -> bool {
        idle(shared, self.uses(index))
    }

    fn uses(&self, index: u32) -> impl Iterator<Item = &super::uses::Uses> + Clone {
        let lines = self.metas.get(index as usize).map_or(&[][..], |meta| &meta.lines);
        lines.iter().map(|line| &line.used().uses)
    }

    /// Idle registrations to give up, until they are `count` and have `bytes`. A hand goes round;
    /// it passes by what was used since it came last, at most once.
    pub(super) fn victims<'a>(
        &mut self,
        count: usize,
        bytes: u64,
        shared: impl Fn(u32) -> Option<&'a Shared>,
    ) -> BTreeSet<u32> {
        let mut victims = BTreeSet::new();
        let mut freed = 0u64;
        let places = self.metas.len();
        let mut steps = places.saturating_mul(2);
        while steps > 0 && (victims.len() < count || freed < bytes) {
            steps -= 1;
            self.hand = if self.hand + 1 < places { self.hand + 1 } else { 0 };
            let Ok(index) = u32::try_from(self.hand) else { break };
            let taken = self.uses(index).fold(0u32, |sum, uses| sum.wrapping_add(uses.taken()));
            let idle = shared(index).is_some_and(|shared| self.is_idle(index, shared));
            let Some(meta) = self.metas.get_mut(self.hand) else { break };
            if meta.phase != Phase::Live || !idle || victims.contains(&index) {
                continue;
            }
            if std::mem::replace(&mut meta.seen, taken) == taken {
                freed = freed.saturating_add(meta.span.len() as u64);
                victims.insert(index);
            }
        }
        victims
    }

    /// What an event in a range ends; what is being registered there is not kept, and what failed
    /// there may be tried again.
    pub(super) fn hit_by(&mut self, range: &Range<usize>) -> Vec<u32> {
        self.failures.forget(range);
        for flight in self.flights.iter().filter(|flight| flight.span.overlaps(range)) {
            flight.valid.store(false, Ordering::Relaxed);
        }
        self.index.overlapping(range.clone()).map(|(index, _)| index).collect()
    }

    /// Has the cache kept until the last use is given back.
    pub(super) fn keep_while_used(&mut self, core: &Arc<Core<R>>) {
        if self.ended.0 > 0 {
            self.keep = Some(Arc::clone(core));
        }
    }

    /// The cache, if it was kept and nothing of it is in use any more; to be dropped without the
    /// lock.
    pub(super) fn no_longer_kept(&mut self) -> Option<Arc<Core<R>>> {
        if self.ended.0 == 0 { self.keep.take() } else { None }
    }
}
