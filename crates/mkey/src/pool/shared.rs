//! What the handles of a pool, its blocks and its threads share: everything behind the fast path.

use super::arena::{Piece, Room, Slab};
use super::error::{Limit, PoolError, Shortage};
use super::local::{self, Own};
use super::magazine::{Class, Magazines, Recall};
use super::options::{HUGE_PAGE, Limits, PAGE};
use super::queue::Ticket;
use super::record::Idle;
use super::source::{SlabReport, Source};
use super::state::State;
use super::stats::PoolStats;
use crate::fences::Fences;
use crate::sync::lock;
use mkey_core::error::Error;
use mkey_os::mapping::PageKind;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Empty slabs that are kept above the floor: one, so that a load that goes up and down by a block
/// does not register and deregister each time.
const KEEP_EMPTY: usize = 1;

/// What the fast path reads. Written once, but for the recall.
#[repr(align(128))]
pub(super) struct Hot {
    /// The pool's number; no two pools of a process have the same.
    pub(super) id: u64,
    /// Bytes of a granule, as a power of two.
    pub(super) shift: u32,
    pub(super) recall: Recall,
}

/// See the module.
pub(super) struct Shared {
    hot: Hot,
    limits: Limits,
    fence: Fences,
    source: Box<dyn Source>,
    /// Held while the pool grows: one slab is registered at a time, and the others look again.
    growing: Mutex<()>,
    state: Mutex<State>,
    pub(super) waits: AtomicU64,
    failures: AtomicU64,
    me: Weak<Shared>,
}

/// A request, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    asked: usize,
    pub(super) room: Room,
    /// The class it is rounded up to, so that the block can rest.
    class: Option<Class>,
    /// Bytes of a slab that has room for it wherever it starts.
    slab: usize,
}

/// Why a request was not served, and whether it is no use to wait: nothing is out that could come
/// back.
pub(super) struct Refused {
    pub(super) error: PoolError,
    pub(super) hopeless: bool,
}

/// A slab that was added.
struct Grown {
    bytes: usize,
    page_kind: PageKind,
    /// Bytes of all slabs with it.
    registered: usize,
}

/// What became of a slab. If it was not added: the error, or `None` where the source gave more than
/// the ceiling allows.
type Added = Result<Grown, Option<Error>>;

/// Says what became of a slab of `len` bytes. Without any lock of the pool: whoever is told may use
/// it.
fn log(len: usize, added: &Added) {
    match added {
        Ok(Grown { bytes, page_kind, registered }) => {
            tracing::debug!(bytes, %page_kind, registered, "the pool has grown");
        }
        Err(Some(error)) => tracing::warn!(len, %error, "the pool could not grow"),
        Err(None) => {}
    }
}

impl Shared {
    /// A pool that has registered its floor.
    pub(super) fn new(source: Box<dyn Source>, limits: Limits) -> Result<Arc<Self>, PoolError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let shift = limits.granule.trailing_zeros();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let new = Arc::new_cyclic(|me| Self {
            hot: Hot { id, shift, recall: Recall::default() },
            limits,
            fence: Fences::choose(),
            source,
            growing: Mutex::new(()),
            state: Mutex::new(State::new(shift)),
            waits: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            me: Weak::clone(me),
        });
        let first = new.need(limits.granule, 1)?;
        loop {
            let missing = limits.floor.saturating_sub(new.lock().arena.registered());
            if missing == 0 {
                return Ok(new);
            }
            let len = missing.checked_next_multiple_of(PAGE).unwrap_or(missing);
            let len = len.max(first.slab).min(limits.slab);
            let (state, added) = new.add_slab(len);
            let refused = added.as_ref().err().map(|e| new.refused(&state, &first, e.clone()));
            drop(state);
            log(len, &added);
            if let Some(refused) = refused {
                return Err(refused.error);
            }
        }
    }

    #[inline]
    pub(super) fn hot(&self) -> &Hot {
        &self.hot
    }

    /// Checks a request: `len` bytes at a multiple of `align`.
    pub(super) fn need(&self, len: usize, align: usize) -> Result<Need, PoolError> {
        let Limits { granule, ceiling, region, .. } = self.limits;
        if len == 0 {
            return Err(PoolError::Empty);
        }
        if !align.is_power_of_two() || align > HUGE_PAGE {
            return Err(PoolError::Alignment { align, most: HUGE_PAGE });
        }
        let too_large = |limit, most| PoolError::TooLarge { asked: len, align, limit, most };
        let (limit, most) = match ceiling <= region {
            true => (Limit::Ceiling, ceiling),
            false => (Limit::Device, region),
        };
        let whole = len.checked_next_multiple_of(granule).filter(|whole| *whole <= most);
        let whole = whole.ok_or(too_large(limit, most))?;
        let granules = whole >> self.hot.shift;
        let class = self.class_for(granules);
        let granules = u32::try_from(granules).map_err(|_| too_large(limit, most))?;
        // At most 2 MiB of granules.
        let align_granules = (align >> self.hot.shift).max(1) as u32;
        let slack = align.max(granule).saturating_sub(PAGE);
        let slab = whole.saturating_add(slack).checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
        let room = Room { granules, align: align_granules };
        Ok(Need { asked: len, room, class, slab })
    }

    fn class_for(&self, granules: usize) -> Option<Class> {
        let class = Class::holding(granules.checked_sub(1)?)?;
        let bytes = (class.granules() as usize) << self.hot.shift;
        (bytes <= self.limits.resting).then_some(class)
    }

    /// Allocates, or says why not.
    pub(super) fn allocate(&self, need: &Need) -> Result<Idle, PoolError> {
        self.acquire(need, None).map_err(|refused| self.failed(refused.error))
    }

    /// Takes, recalls what rests, grows, in this order; for who has the first ticket, or none if
    /// nobody waits.
    pub(super) fn acquire(&self, need: &Need, ticket: Option<Ticket>) -> Result<Idle, Refused> {
        if let Some(idle) = self.take_or_recall(&mut self.lock(), need, ticket)? {
            return Ok(idle);
        }
        let growing = lock(&self.growing);
        let mut state = self.lock();
        // Somebody may have grown it, or given something back.
        if let Some(idle) = self.take_or_recall(&mut state, need, ticket)? {
            return Ok(idle);
        }
        let mut dropped = Vec::new();
        let len = self.plan(&mut state, need, &mut dropped);
        let Some(len) = len else {
            let refused = self.refused(&state, need, None);
            drop(state);
            return Err(refused);
        };
        drop(state);
        drop(dropped);
        let (mut state, added) = self.add_slab(len);
        // Where nothing was added, what was given back meanwhile may do.
        let taken = self.take(&mut state, need);
        let answer = taken.ok_or_else(|| {
            let failed = added.as_ref().err().cloned().flatten();
            self.refused(&state, need, failed)
        });
        // There may be room for the first in the queue, too; who is that has just looked, and
        // telling itself would have it try for ever.
        let itself = ticket.is_some() && state.queue.admits(ticket);
        let first = state.queue.first().filter(|_| !itself);
        drop(state);
        drop(growing);
        log(len, &added);
        if let Some((_, event)) = first {
            event.notify(1);
        }
        answer
    }

    fn take_or_recall(
        &self,
        state: &mut State,
        need: &Need,
        ticket: Option<Ticket>,
    ) -> Result<Option<Idle>, Refused> {
        if !state.queue.admits(ticket) {
            let error = PoolError::Full(self.shortage(state, need));
            return Err(Refused { error, hopeless: false });
        }
        if let Some(idle) = self.take(state, need) {
            return Ok(Some(idle));
        }
        if state.own.iter().all(|own| own.count().1 == 0) {
            return Ok(None);
        }
        self.recall(state);
        Ok(self.take(state, need))
    }

    /// How long a new slab may be for this; empties are taken out where that makes room for one of
    /// its own.
    fn plan(&self, state: &mut State, need: &Need, dropped: &mut Vec<Slab>) -> Option<usize> {
        let Limits { ceiling, floor, slab, region, .. } = self.limits;
        if need.slab > region {
            return None;
        }
        let room = |state: &State| ceiling.saturating_sub(state.arena.registered());
        if room(state) < need.slab {
            if room(state).saturating_add(state.arena.spare(floor)) < need.slab {
                return None;
            }
            while room(state) < need.slab {
                dropped.push(state.arena.remove_empty(floor, 0)?);
                state.shrinks += 1;
            }
        }
        if need.slab >= slab {
            return Some(need.slab);
        }
        let room = room(state);
        if room >= slab {
            return Some(slab);
        }
        // Whole huge pages, as far as they go: the source would round up, past the ceiling.
        let unit = if room >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        Some(need.slab.max(room - room % unit))
    }

    /// Registers a slab of `len` bytes and adds it; to be [`log`]ged.
    fn add_slab(&self, len: usize) -> (MutexGuard<'_, State>, Added) {
        let Limits { ceiling, region, .. } = self.limits;
        let most = region.min(ceiling.saturating_sub(self.lock().arena.registered()));
        let obtained = self.source.obtain(len, most);
        let mut state = self.lock();
        let slab = match obtained {
            Ok(slab) => slab,
            Err(error) => return (state, Err(Some(error))),
        };
        let SlabReport { bytes, page_kind, .. } = slab.report;
        let registered = state.arena.registered().saturating_add(bytes);
        let rejected = match registered <= ceiling {
            true => state.arena.add(slab).err(),
            false => Some(slab),
        };
        if rejected.is_some() {
            drop(state);
            drop(rejected);
            return (self.lock(), Err(None));
        }
        state.grows += 1;
        (state, Ok(Grown { bytes, page_kind, registered }))
    }

    /// Takes a block, and some more of its class for the thread's magazine.
    fn take(&self, state: &mut State, need: &Need) -> Option<Idle> {
        let Room { granules, align } = need.room;
        let rounded = need.class.map_or(granules, Class::granules);
        let piece = state.arena.take(Room { granules: rounded, align });
        let piece = piece.or_else(|| state.arena.take(need.room))?;
        let class = self.class_of(piece);
        let idle = self.hand_out(state, piece, class);
        state.slow += 1;
        if let Some(class) = class {
            self.refill(state, class);
        }
        Some(idle)
    }

    /// The class of a piece of exactly its size, if that may rest.
    fn class_of(&self, piece: Piece) -> Option<Class> {
        let class = Class::exactly(piece.granules)?;
        (self.class_for(piece.granules as usize) == Some(class)).then_some(class)
    }

    fn refill(&self, state: &mut State, class: Class) {
        if self.hot.recall.is_up() {
            return;
        }
        self.enrol(state);
        let room = Room { granules: class.granules(), align: 1 };
        local::with(self.hot.id, |own| {
            for _ in 1..own.half(class) {
                let Some(piece) = state.arena.take(room) else { return };
                let idle = self.hand_out(state, piece, Some(class));
                if !own.put_locked(class, idle.pointer()) {
                    state.put_back(idle);
                    return;
                }
            }
        });
    }

    /// Gives the calling thread magazines, if it has none.
    fn enrol(&self, state: &mut State) {
        if state.closed || local::with(self.hot.id, |_| ()).is_some() {
            return;
        }
        let own = Arc::new(Magazines::new(self.fence, self.limits.resting, self.limits.granule));
        if local::enrol(self.hot.id, Weak::clone(&self.me), &own) {
            state.own.push(own);
        }
    }

    fn hand_out(&self, state: &mut State, piece: Piece, class: Option<Class>) -> Idle {
        let idle = match state.spare.pop() {
            Some(idle) => {
                idle.set(piece, class);
                idle
            }
            None => {
                let idle = Idle::new(piece, class, NonNull::from(self));
                state.records.push(idle);
                idle
            }
        };
        state.out += 1;
        state.out_granules += u64::from(piece.granules);
        state.high_granules = state.high_granules.max(state.out_granules);
        idle
    }

    /// A block comes back that does not rest. If it was the last of a pool that has gone, the
    /// shared part comes with it, to be dropped.
    pub(super) fn give_back(&self, idle: Idle) -> Option<Arc<Self>> {
        let mut state = self.lock();
        let mut emptied = false;
        if let Some(class) = idle.class()
            && !self.hot.recall.is_up()
        {
            self.enrol(&mut state);
            local::with(self.hot.id, |own| {
                for _ in 0..own.half(class) {
                    let Some(pointer) = own.take_locked(class) else { return };
                    // SAFETY: it was put there by `Idle::pointer`, and is out of there now.
                    emptied |= state.put_back(unsafe { Idle::from_pointer(pointer) });
                }
            });
        }
        emptied |= state.put_back(idle);
        self.settle(state, emptied)
    }

    /// After blocks came back: wakes who may take now, gives back what is too much.
    fn settle(&self, mut state: MutexGuard<'_, State>, emptied: bool) -> Option<Arc<Self>> {
        let first = state
            .queue
            .first()
            .filter(|(room, _)| emptied || state.out == 0 || state.arena.fits(*room));
        let mut dropped = Vec::new();
        if emptied && state.queue.is_empty() {
            state.shrink(&self.limits, KEEP_EMPTY, &mut dropped);
        }
        let last = if state.out == 0 { state.last.take() } else { None };
        drop(state);
        drop(dropped);
        if let Some((_, event)) = first {
            event.notify(1);
        }
        last
    }

    /// Moves all that rests in magazines back. Afterwards nothing rests as long as somebody waits.
    pub(super) fn recall(&self, state: &mut State) -> bool {
        let recall = &self.hot.recall;
        recall.raise();
        let mut emptied = false;
        if self.fence.heavy() {
            let all = std::mem::take(&mut state.own);
            for own in &all {
                own.wait_until_out();
                emptied |= state.empty(own);
            }
            state.own = all;
        }
        if state.queue.is_empty() && !state.closed {
            recall.lower();
        }
        emptied
    }

    /// The thread of these magazines ends.
    pub(super) fn retire(&self, own: &Arc<Own>) {
        let mut state = self.lock();
        let emptied = state.empty(own);
        state.fast += own.count().0;
        state.own.retain(|other| !Arc::ptr_eq(other, own));
        drop(self.settle(state, emptied));
    }

    /// Deregisters all empty slabs above the floor; how many bytes that were.
    pub(super) fn trim(&self) -> usize {
        let mut state = self.lock();
        self.recall(&mut state);
        let mut dropped = Vec::new();
        state.shrink(&self.limits, 0, &mut dropped);
        // A slab that went leaves room to grow for the first in the queue.
        let first = state.queue.first();
        drop(state);
        let bytes = dropped.iter().map(Slab::len).sum();
        drop(dropped);
        if let Some((_, event)) = first {
            event.notify(1);
        }
        bytes
    }

    /// The pool goes: what is out stays until it comes back.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.recall(&mut state);
        let mut dropped = Vec::new();
        state.shrink(&self.limits, 0, &mut dropped);
        if state.out > 0 {
            state.last = self.me.upgrade();
        }
        drop(state);
    }

    pub(super) fn reports(&self) -> Vec<SlabReport> {
        self.lock().arena.reports()
    }

    pub(super) fn stats(&self) -> PoolStats {
        let state = self.lock();
        let bytes = |granules: u64| granules << self.hot.shift;
        let counts = state.own.iter().map(|own| own.count());
        let (fast, resting) =
            counts.fold((state.fast, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
        let (free, largest) = state.arena.free();
        let scattered = if free == 0 { 0.0 } else { 1.0 - largest as f64 / free as f64 };
        PoolStats {
            registered_bytes: state.arena.registered() as u64,
            in_use_bytes: bytes(state.out_granules.saturating_sub(resting)),
            resting_bytes: bytes(resting),
            high_water_bytes: bytes(state.high_granules),
            slabs: state.arena.slabs() as u64,
            allocations: state.slow + fast,
            fast_allocations: fast,
            waits: self.waits.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            waiting: state.queue.len() as u64,
            largest_free_bytes: largest as u64,
            fragmentation: scattered,
            grows: state.grows,
            shrinks: state.shrinks,
        }
    }

    pub(super) fn shortage(&self, state: &State, need: &Need) -> Shortage {
        let (free, largest_free) = state.arena.free();
        Shortage {
            asked: need.asked,
            free,
            largest_free,
            registered: state.arena.registered(),
            ceiling: self.limits.ceiling,
            waiting: state.queue.len(),
        }
    }

    fn refused(&self, state: &State, need: &Need, failed: Option<Error>) -> Refused {
        let shortage = self.shortage(state, need);
        let error = match failed {
            Some(error) => PoolError::Source { error: Box::new(error), shortage },
            None => PoolError::Full(shortage),
        };
        Refused { error, hopeless: state.out == 0 }
    }

    pub(super) fn failed(&self, error: PoolError) -> PoolError {
        self.failures.fetch_add(1, Ordering::Relaxed);
        error
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for record in state.records.drain(..) {
            // SAFETY: the shared part goes when no block is out or resting, so no record is in
            // use; each is in this list once.
            unsafe { record.free() };
        }
    }
}
