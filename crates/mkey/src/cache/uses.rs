//! How many use a registration: each thread counts its own, with plain stores.
//!
//! The uses are the sum over all threads. Uses given back, or cloned, on another thread than the
//! one that took them are balanced in a [`Shared`] word beside the registration.
//!
//! Who ends a registration first clears `live` for every thread, passes the heavy fence, and then
//! looks whether nobody is left. Who takes counts first, passes the light fence, and then looks at
//! `live`; who gives back does the same. So either the one that takes sees that it came too late,
//! or the one that ends sees the use; and the last that gives back sees that it has to clean up,
//! or the one that ends sees that it has gone.

use super::fences::Fences;
use super::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// One thread's uses of one registration. Both counts only grow, modulo 2^32.
#[derive(Debug)]
pub(super) struct Uses {
    /// Whether uses may be taken. Written under the cache's lock.
    live: AtomicU32,
    taken: AtomicU32,
    given: AtomicU32,
}

impl Uses {
    pub(super) fn new() -> Self {
        Self { live: AtomicU32::new(0), taken: AtomicU32::new(0), given: AtomicU32::new(0) }
    }

    /// Whether uses may be taken now.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.live.load(Ordering::Acquire) != 0
    }

    /// Takes a use, on the thread that owns the counts. After `false` the use is to be given back
    /// at once.
    #[inline]
    #[must_use]
    pub(super) fn take(&self, fences: Fences) -> bool {
        self.take_held();
        fences.light();
        self.is_live()
    }

    /// Takes one more use while one is had, or while the cache's lock keeps the registration; on
    /// the thread that owns the counts.
    #[inline]
    pub(super) fn take_held(&self) {
        self.taken.store(self.taken.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Gives a use back, on the thread that owns the counts. After `false` the caller has to look
    /// whether it was the last one.
    #[inline]
    #[must_use]
    pub(super) fn give(&self, fences: Fences) -> bool {
        self.given.store(self.given.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        fences.light();
        self.is_live()
    }

    /// From now on uses may be taken. Under the cache's lock.
    pub(super) fn begin(&self) {
        self.live.store(1, Ordering::Release);
    }

    /// From the next heavy fence on no use is taken any more. Under the cache's lock.
    pub(super) fn end(&self) {
        self.live.store(0, Ordering::Relaxed);
    }

    /// Counts what others of this thread's have counted so far, which count nothing from now on.
    /// Under the cache's lock, on the thread that owns the counts, while no use of theirs is out:
    /// then nobody else writes them, and they are summed up under the lock.
    pub(super) fn take_over(&self, other: &Self) {
        for (own, others) in [(&self.taken, &other.taken), (&self.given, &other.given)] {
            let sum = own.load(Ordering::Relaxed).wrapping_add(others.load(Ordering::Relaxed));
            own.store(sum, Ordering::Release);
            others.store(0, Ordering::Relaxed);
        }
    }

    /// How many were taken, modulo 2^32.
    pub(super) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }
}

/// Uses taken and given by threads that do not own the counts: their balance modulo 2^32 in the
/// lower half, and in the upper one a number that every change changes.
#[derive(Debug)]
pub(super) struct Shared(AtomicU64);

impl Shared {
    /// Two, so that a carry or borrow of the lower half does not undo the step.
    const STEP: u64 = 2 << 32;

    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes one more use while one is had, or while the cache's lock keeps the registration.
    pub(super) fn take(&self) {
        self.0.fetch_add(Self::STEP + 1, Ordering::Relaxed);
    }

    /// Gives a use back. The caller looks at [`Uses::is_live`] next, as after [`Uses::give`].
    pub(super) fn give(&self) {
        self.0.fetch_add(Self::STEP - 1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }
}

/// Whether nobody has a use. Exact if all `uses` have ended and the heavy fence was passed since:
/// then the answer yes stays true, and all that was done with the uses has happened. Before that
/// it is a hint.
///
/// What was given is read before what was taken, so that the sum errs upwards only; a use that
/// goes from one thread to another changes the shared word, and then the answer is no.
pub(super) fn idle<'a>(shared: &Shared, uses: impl Iterator<Item = &'a Uses> + Clone) -> bool {
    let before = shared.0.load(Ordering::Acquire);
    let given =
        uses.clone().fold(0u32, |sum, uses| sum.wrapping_add(uses.given.load(Ordering::Acquire)));
    let taken = uses.fold(0u32, |sum, uses| sum.wrapping_add(uses.taken.load(Ordering::Acquire)));
    let after = shared.0.load(Ordering::Acquire);
    before == after && taken.wrapping_sub(given).wrapping_add(before as u32) == 0
}
