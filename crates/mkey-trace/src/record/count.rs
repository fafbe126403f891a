//! Counting what work does with regions and with keys of peers.
//!
//! Most are named by one queue alone. The side of a queue that names one first has counters there for itself,
//! which it writes under its own lock: an atomic addition takes as long as all else that is done for an entry.
//! The others share theirs.

use super::log::Placed;
use super::thread::bump;
use crate::raw::{Mr, Op, Remote, Slot, USES, Use};
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A side of a queue, which is locked while it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By(u64);

impl By {
    /// Of the queue with this record, which no other ever has.
    pub fn side(record: Slot, recv: bool) -> Self {
        Self(u64::from(record) << 1 | u64::from(recv))
    }

    /// Which half of what sides have for themselves is its.
    #[inline]
    fn half(self) -> usize {
        (self.0 & 1) as usize
    }

    /// Whether it counts by itself at this region: it does for as long as there is one.
    #[inline]
    fn owns_of(self, mr: Placed<Mr>) -> bool {
        let owners = mr.words::<{ offset_of!(Mr, owners) }, 2>();
        owners.get(self.half()).is_some_and(|owner| self.owns(owner))
    }

    #[inline]
    fn owns(self, owner: &AtomicU64) -> bool {
        let has = owner.load(Relaxed);
        has == self.0 || has == 0 && owner.compare_exchange(0, self.0, Relaxed, Relaxed).is_ok()
    }
}

/// Entries name a region; `by` wraps, to take back.
#[inline]
pub fn used(mr: Placed<Mr>, by: By, used: Use, count: u64) {
    let own = mr.words::<{ offset_of!(Mr, own_uses) }, { USES - 1 }>();
    match own.get(used as usize) {
        Some(own) if by.owns_of(mr) => bump(own, count),
        _ => {
            if let Some(shared) = mr.words::<{ offset_of!(Mr, uses) }, USES>().get(used as usize) {
                shared.fetch_add(count, Relaxed);
            }
        }
    }
}

/// So many of them are done.
#[inline]
pub fn done(mr: Placed<Mr>, by: By, count: u64) {
    let own = mr.words::<{ offset_of!(Mr, own_done) }, 2>();
    match own.get(by.half()) {
        Some(own) if by.owns_of(mr) => bump(own, count),
        _ => _ = mr.word::<{ offset_of!(Mr, done) }>().fetch_add(count, Relaxed),
    }
}

/// Entries of work in flight that name a region.
pub fn in_flight(mr: Placed<Mr>) -> u64 {
    let sum = |counters: &[AtomicU64]| {
        counters.iter().map(|c| c.load(Relaxed)).fold(0, u64::wrapping_add)
    };
    // First what is done, so that what is posted and completed meanwhile counts as in flight, not as less
    // than nothing.
    let done = mr.word::<{ offset_of!(Mr, done) }>().load(Relaxed);
    let done = done.wrapping_add(sum(mr.words::<{ offset_of!(Mr, own_done) }, 2>()));
    let shared = mr.words::<{ offset_of!(Mr, uses) }, USES>();
    let shared = sum(shared.get(..Use::Bind as usize).unwrap_or_default());
    let own = sum(mr.words::<{ offset_of!(Mr, own_uses) }, { USES - 1 }>());
    shared.wrapping_add(own).saturating_sub(done)
}

/// A request names a key of a peer.
#[inline]
pub fn named(remote: Placed<Remote>, by: By, op: Op) {
    let own = by.owns(remote.word::<{ offset_of!(Remote, owner) }>());
    let counter = match (op, own) {
        (Op::Write, true) => remote.word::<{ offset_of!(Remote, own_writes) }>(),
        (Op::Write, false) => remote.word::<{ offset_of!(Remote, writes) }>(),
        (Op::Read, true) => remote.word::<{ offset_of!(Remote, own_reads) }>(),
        (Op::Read, false) => remote.word::<{ offset_of!(Remote, reads) }>(),
        (Op::Atomic, true) => remote.word::<{ offset_of!(Remote, own_atomics) }>(),
        (Op::Atomic, false) => remote.word::<{ offset_of!(Remote, atomics) }>(),
        _ => return,
    };
    if own {
        bump(counter, 1);
    } else {
        counter.fetch_add(1, Relaxed);
    }
}
