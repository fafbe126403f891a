//! The cache itself: what is registered, who registers, who may have it.

use super::error::CacheError;
use super::failures::Failures;
use super::fences::Fences;
use super::gate::Gate;
use super::held::{Entry, Held};
use super::local::Local;
use super::registrar::Registrar;
use super::slab::Slab;
use super::span::Span;
use super::state::{Flight, Meta, Phase, State, Trash};
use super::stats::CacheStats;
use mkey_core::error::{Error, Object, Reason, errno};
use mkey_core::rights::Rights;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time since some moment.
pub(super) type Clock = Box<dyn Fn() -> Duration + Send + Sync>;

/// How a cache is built.
pub(super) struct Config {
    /// Whether registrations stay for later requests.
    pub(super) keeps: bool,
    pub(super) max_count: u64,
    pub(super) max_bytes: u64,
    /// What ranges are rounded to: bytes, a power of two.
    pub(super) page: usize,
    /// How long a failure is remembered.
    pub(super) failure_life: Duration,
    pub(super) clock: Clock,
    pub(super) fences: Fences,
}

/// A cache, shared by its handle and, after that, by what is in use.
pub(super) struct Core<R: Registrar> {
    /// Never used twice.
    pub(super) id: u64,
    config: Config,
    pub(super) gate: Arc<Gate>,
    pub(super) registrar: R,
    entries: Slab<Entry<R>>,
    /// Where uses are counted for which a thread has no counts of its own.
    home: Arc<Local<R>>,
    state: Mutex<State<R>>,
    /// A registration was made or has failed, or one was ended.
    changed: Condvar,
}

impl<R: Registrar> Core<R> {
    pub(super) fn new(registrar: R, gate: Arc<Gate>, config: Config) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new_cyclic(|core| Self {
            id,
            gate,
            registrar,
            entries: Slab::new(),
            home: Local::new(id, core.clone(), config.fences),
            state: Mutex::new(State::new(Failures::new(config.failure_life))),
            changed: Condvar::new(),
            config,
        })
    }

    /// A use of a registration of `len` bytes from `address` with at least `rights`.
    ///
    /// # Safety
    /// As [`Registrar::register`], for the pages around.
    #[inline]
    pub(super) unsafe fn get(
        self: &Arc<Self>,
        address: usize,
        len: usize,
        rights: Rights,
    ) -> Result<Held<R>, CacheError> {
        if self.gate.is_quiet()
            && let Some(local) = Local::here(self)
            && let Some(used) = local.hit(address, len, rights.bits())
        {
            return Ok(Held::taken(used));
        }
        self.get_slow(address, len, rights)
    }

    #[cold]
    #[inline(never)]
    fn get_slow(
        self: &Arc<Self>,
        address: usize,
        len: usize,
        rights: Rights,
    ) -> Result<Held<R>, CacheError> {
        let wanted = match Span::around(address, len, rights, self.config.page) {
            Ok(wanted) => wanted,
            Err(error) => {
                self.lock().stats.refused += 1;
                return Err(error);
            }
        };
        self.registrar.hear_changes();
        self.gate.wait_in_hand();
        let local = Local::here(self);
        let attached = local.is_none().then(|| self.attach()).flatten();
        let local = local.or(attached.as_deref());
        let held = self.find_or_register(&wanted, local)?;
        if let Some(local) = local
            && held.used().uses.is_live()
        {
            local.note(address, held.used());
        }
        Ok(held)
    }

    /// Gives this thread counts of its own: those that a thread has left, or new ones. None if the
    /// thread is ending.
    fn attach(self: &Arc<Self>) -> Option<Arc<Local<R>>> {
        let mut state = self.lock();
        let local = state.locals.iter().find(|local| local.adopt()).cloned();
        let local = local.unwrap_or_else(|| {
            let local = Local::new(self.id, Arc::downgrade(self), self.config.fences);
            local.adopt();
            state.locals.push(Arc::clone(&local));
            local
        });
        drop(state);
        if local.attach() {
            return Some(local);
        }
        local.detach();
        None
    }

    fn find_or_register(
        &self,
        wanted: &Span,
        local: Option<&Local<R>>,
    ) -> Result<Held<R>, CacheError> {
        // A flight that lands and is invalidated at once sends its passengers off again; they do
        // not wait for ever.
        let mut waits = 0;
        let mut state = self.lock();
        loop {
            let trash = self.apply_events(&mut state);
            if !trash.is_empty() {
                state = self.discard_and_lock(state, trash);
                continue;
            }
            if self.config.keeps {
                if let Some(index) = state.index.find(wanted) {
                    state.stats.slow_hits += 1;
                    return self.hold(&mut state, index, wanted, local);
                }
                if !state.failures.is_empty()
                    && let Some(error) = state.failures.find(wanted, (self.config.clock)()).cloned()
                {
                    state.stats.negative_hits += 1;
                    return Err(error.into());
                }
                if waits < 4
                    && let Some(flight) = state.flights.iter().find(|flight| flight.joins(wanted))
                {
                    let flight = Arc::clone(flight);
                    state.stats.waits += u64::from(waits == 0);
                    waits += 1;
                    while !flight.is_over() {
                        state = wait(&self.changed, state);
                    }
                    match flight.error() {
                        Some(error) => {
                            state.stats.refused += 1;
                            return Err(error.into());
                        }
                        None => continue,
                    }
                }
            }
            if !state.fits(&self.config, wanted) {
                let never = State::<R>::never_fits(&self.config, wanted);
                let given_up = if never { None } else { self.evict(&mut state, wanted) };
                if let Some(trash) = given_up {
                    state = self.discard_and_lock(state, trash);
                } else if !never && state.ending > 0 {
                    state = wait(&self.changed, state);
                } else {
                    state.stats.refused += 1;
                    return Err(state.full(&self.config, wanted));
                }
                continue;
            }
            state.stats.misses += 1;
            return self.fly(state, wanted, local);
        }
    }

    /// Registers, for all who wait for it.
    fn fly(
        &self,
        mut state: MutexGuard<'_, State<R>>,
        wanted: &Span,
        local: Option<&Local<R>>,
    ) -> Result<Held<R>, CacheError> {
        let flight = Arc::new(Flight::new(*wanted));
        state.flights.push(Arc::clone(&flight));
        state.count += 1;
        state.bytes += wanted.len() as u64;
        drop(state);
        let landing = Landing { core: self, flight: &flight };
        let registered = self.register(wanted);
        std::mem::forget(landing);

        let mut state = self.lock();
        state.leave(&flight);
        let registration = match registered {
            Ok(registration) => registration,
            Err(error) => {
                state.count -= 1;
                state.bytes -= wanted.len() as u64;
                if flight.is_valid() && self.config.keeps {
                    state.failures.note(*wanted, &error, (self.config.clock)());
                }
                flight.land(Some(error.clone()));
                self.changed.notify_all();
                return Err(error.into());
            }
        };
        state.stats.registrations += 1;
        let may_stay = R::may_stay(&registration);
        state.stats.unwatched += u64::from(self.config.keeps && !may_stay);
        let stays = self.config.keeps && may_stay && flight.is_valid();
        let landed = self.land(&mut state, wanted, registration, stays);
        flight.land(None);
        self.changed.notify_all();
        let index = match landed {
            Ok(index) => index,
            Err(trash) => {
                drop(state);
                self.discard(trash);
                let reason = Reason::TableFull {
                    object: Object::Mr,
                    most: u64::from(Slab::<Entry<R>>::MOST),
                };
                return Err(Error::new("cache_get", wanted.host(), reason).into());
            }
        };
        let held = self.hold(&mut state, index, wanted, local);
        let trash = if stays { self.merge(&mut state, index, wanted) } else { Vec::new() };
        drop(state);
        self.discard(trash);
        held
    }

    /// Registers; where the device has no room, gives up idle registrations, more each time.
    fn register(&self, wanted: &Span) -> Result<R::Registration, Error> {
        const TRIES: u32 = 8;
        let mut give_up = 1usize;
        for _ in 0..TRIES {
            // SAFETY: promised by the caller of `get`.
            match unsafe { self.registrar.register(wanted) } {
                Err(error) if error.errno() == errno::ENOMEM => {
                    let mut state = self.lock();
                    state.stats.failures += 1;
                    let bytes = wanted.len() as u64;
                    let given_up = self.evict_at_least(&mut state, give_up, bytes);
                    drop(state);
                    let Some(trash) = given_up else { return Err(error) };
                    self.discard(trash);
                    give_up *= 2;
                }
                Err(error) => {
                    self.lock().stats.failures += 1;
                    return Err(error);
                }
                registered => return registered,
            }
        }
        // SAFETY: as above.
        let last = unsafe { self.registrar.register(wanted) };
        self.lock().stats.failures += u64::from(last.is_err());
        last
    }

    /// Puts a registration in its place.
    fn land(
        &self,
        state: &mut State<R>,
        span: &Span,
        registration: R::Registration,
        stays: bool,
    ) -> Result<u32, Trash<R>> {
        let Some((index, entry)) =
            state.place().and_then(|i| Some((i, self.entries.get_or_make(i, |_| Entry::new())?)))
        else {
            state.ending += 1;
            return Err(vec![(registration, span.len() as u64)]);
        };
        let keys = R::keys(&registration);
        // SAFETY: the place is free: nobody has a use of it, and the lock is held.
        unsafe { entry.replace(Some(registration)) };
        let phase = if stays { Phase::Live } else { Phase::Ended };
        if let Some(meta) = state.metas.get_mut(index as usize) {
            let lines = std::mem::take(&mut meta.lines);
            *meta = Meta { span: *span, phase, keys, seen: 0, lines };
        }
        if stays {
            state.index.insert(index, *span);
        } else {
            state.ended(span, 1);
        }
        Ok(index)
    }

    /// Takes a use of what is in a place, under the lock.
    fn hold(
        &self,
        state: &mut State<R>,
        index: u32,
        wanted: &Span,
        local: Option<&Local<R>>,
    ) -> Result<Held<R>, CacheError> {
        let home: &Local<R> = &self.home;
        let place = state.metas.get_mut(index as usize).zip(self.entries.get(index));
        let held = place.and_then(|(meta, entry)| {
            let lines = &mut meta.lines;
            let used = local.unwrap_or(home).used((index, entry), wanted.start, lines)?;
            Some((used, meta, entry))
        });
        let Some((used, meta, entry)) = held else {
            // What is indexed has a place, and there are numbers for more uses than memory holds.
            let reason = Reason::UnknownHandle { object: Object::Mr, handle: u64::from(index) };
            return Err(Error::new("cache_get", "", reason).into());
        };
        if !used.uses.is_live() {
            used.describe(&meta.span, meta.keys);
            if meta.phase == Phase::Live {
                used.uses.begin();
            }
        }
        if local.is_some() {
            used.uses.take_held();
        } else {
            entry.shared.take();
        }
        Ok(Held::taken(used))
    }

    /// Ends what the registration at `index` makes superfluous.
    fn merge(&self, state: &mut State<R>, index: u32, span: &Span) -> Trash<R> {
        let covered: Vec<u32> = state
            .index
            .overlapping(span.start..span.end)
            .filter(|(other, smaller)| *other != index && span.serves(smaller))
            .map(|(other, _)| other)
            .collect();
        state.stats.merged += covered.len() as u64;
        self.end(state, &covered)
    }

    /// Ends registrations: they serve no more requests. Those that nobody uses are returned, to be
    /// dropped without the lock.
    fn end(&self, state: &mut State<R>, indices: &[u32]) -> Trash<R> {
        if indices.is_empty() {
            return Vec::new();
        }
        for &index in indices {
            let Some(meta) = state.metas.get_mut(index as usize) else { continue };
            if meta.phase != Phase::Live {
                continue;
            }
            meta.phase = Phase::Ended;
            meta.lines.iter().for_each(|line| line.used().uses.end());
            let span = meta.span;
            state.index.remove(index, &span);
            state.ended(&span, 1);
        }
        state.unfenced = !self.config.fences.heavy();
        indices.iter().filter_map(|&index| self.collect(state, index)).collect()
    }

    /// Takes an ended registration out of its place if nobody uses it.
    fn collect(&self, state: &mut State<R>, index: u32) -> Option<(R::Registration, u64)> {
        // Without the fence nobody can tell what is in use: it is kept until the fence is to be had.
        if state.unfenced && !self.config.fences.heavy() {
            return None;
        }
        state.unfenced = false;
        let meta = state.metas.get(index as usize)?;
        let entry = self.entries.get(index)?;
        if meta.phase != Phase::Ended || !state.is_idle(index, &entry.shared) {
            return None;
        }
        let span = meta.span;
        // SAFETY: it has ended and the heavy fence was passed since, so nobody has a use, nor gets
        // one; and the lock is held.
        let registration = unsafe { entry.replace(None) }?;
        state.ended(&span, -1);
        state.vacate(index);
        state.ending += 1;
        Some((registration, span.len() as u64))
    }

    /// A use was given back of a registration that has ended: was it the last one?
    pub(super) fn settle(&self, index: u32) {
        let mut state = self.lock();
        let trash: Trash<R> = self.collect(&mut state, index).into_iter().collect();
        let keep = state.no_longer_kept();
        drop(state);
        self.discard(trash);
        drop(keep);
    }

    /// Deregisters. Without the lock.
    fn discard(&self, trash: Trash<R>) {
        if trash.is_empty() {
            return;
        }
        let (count, bytes) =
            trash.iter().fold((0u64, 0u64), |(n, bytes), (_, more)| (n + 1, bytes + more));
        drop(trash);
        let mut state = self.lock();
        state.count -= count;
        state.bytes -= bytes;
        state.ending -= count;
        state.stats.deregistrations += count;
        drop(state);
        self.changed.notify_all();
    }

    fn discard_and_lock<'a>(
        &'a self,
        state: MutexGuard<'a, State<R>>,
        trash: Trash<R>,
    ) -> MutexGuard<'a, State<R>> {
        drop(state);
        self.discard(trash);
        self.lock()
    }

    /// Gives up idle registrations until the limits leave room; None if there are none.
    fn evict(&self, state: &mut State<R>, wanted: &Span) -> Option<Trash<R>> {
        let count = (state.count + 1).saturating_sub(self.config.max_count);
        let bytes =
            (state.bytes.saturating_add(wanted.len() as u64)).saturating_sub(self.config.max_bytes);
        self.evict_at_least(state, usize::try_from(count).unwrap_or(usize::MAX), bytes)
    }

    /// Gives up idle registrations, those first that were not used since it was last looked for
    /// some, up to `count` and `bytes`. None if there are none; one that was taken into use at the
    /// last moment has ended as well, and is there until it is given back.
    fn evict_at_least(&self, state: &mut State<R>, count: usize, bytes: u64) -> Option<Trash<R>> {
        let entries = &self.entries;
        let victims = state.victims(count, bytes, |index| entries.get(index).map(|e| &e.shared));
        state.stats.evictions += victims.len() as u64;
        (!victims.is_empty()).then(|| self.end(state, &Vec::from_iter(victims)))
    }

    /// Applies the events that wait.
    fn apply_events(&self, state: &mut State<R>) -> Trash<R> {
        let mut trash = Vec::new();
        while self.gate.is_waiting() {
            let inbox = self.gate.take();
            let mut hit = BTreeSet::new();
            for range in inbox.iter() {
                state.stats.events += 1;
                hit.extend(state.hit_by(&range));
            }
            state.stats.invalidated_by_events += hit.len() as u64;
            trash.extend(self.end(state, &Vec::from_iter(hit)));
            if self.gate.lower() {
                break;
            }
        }
        trash
    }

    /// Ends all registrations that overlap a range.
    pub(super) fn invalidate(&self, range: Range<usize>) {
        self.gate.wait_in_hand();
        let mut state = self.lock();
        let mut trash = self.apply_events(&mut state);
        let hit = state.hit_by(&range);
        state.stats.invalidated_explicitly += hit.len() as u64;
        trash.extend(self.end(&mut state, &hit));
        drop(state);
        self.discard(trash);
    }

    /// Applies what waits.
    pub(super) fn maintain(&self) {
        self.gate.wait_in_hand();
        let mut state = self.lock();
        let mut trash = self.apply_events(&mut state);
        if state.unfenced {
            let ended = state.all_ended();
            trash.extend(ended.into_iter().filter_map(|index| self.collect(&mut state, index)));
        }
        drop(state);
        self.discard(trash);
    }

    /// Nothing more is asked of the cache: ends all registrations. What is in use keeps it.
    pub(super) fn close(self: &Arc<Self>) {
        let mut state = self.lock();
        let mut trash = self.apply_events(&mut state);
        let all = state.hit_by(&(0..usize::MAX));
        trash.extend(self.end(&mut state, &all));
        state.keep_while_used(self);
        drop(state);
        self.discard(trash);
    }

    pub(super) fn stats(&self) -> CacheStats {
        let state = self.lock();
        let (queued, queued_bytes, queue_widened_bytes) = self.gate.gauges();
        let mut stats = CacheStats { queued, queued_bytes, queue_widened_bytes, ..state.stats };
        stats.fast_hits = state.locals.iter().map(|local| local.hits()).sum();
        stats.registered = state.count;
        stats.registered_bytes = state.bytes;
        (stats.invalid_in_use, stats.invalid_in_use_bytes) = state.ended_in_use();
        stats.gets =
            stats.fast_hits + stats.slow_hits + stats.misses + stats.negative_hits + stats.refused;
        stats
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<R>> {
        // A panic while it is held can only come from running out of memory.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Sends off those who wait for a flight whose registration panics.
struct Landing<'a, R: Registrar> {
    core: &'a Core<R>,
    flight: &'a Arc<Flight>,
}

impl<R: Registrar> Drop for Landing<'_, R> {
    fn drop(&mut self) {
        let mut state = self.core.lock();
        state.leave(self.flight);
        state.count -= 1;
        state.bytes -= self.flight.span().len() as u64;
        self.flight.land(None);
        drop(state);
        self.core.changed.notify_all();
    }
}
