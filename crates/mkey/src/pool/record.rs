//! The record of a block: where it is, whom it belongs to, how often it is held.

use super::arena::Piece;
use super::local;
use super::magazine::{Class, Put};
use super::shared::Shared;
use crate::keep::{Counted, Hold};
use crate::slice::Slice;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Kept beside the pool, never in the registered memory. Made once, used for one block after the
/// other, freed with the pool. All of it is behind cells: who lets go the last hold does it
/// through a shared reference, and the record may be gone before that call returns.
#[repr(align(64))]
pub(super) struct Record {
    /// Holds. One while the block rests or is in the pool: that spares a write when the only hold
    /// goes and when the block is handed out again.
    holds: AtomicUsize,
    about: UnsafeCell<About>,
}

#[derive(Clone, Copy)]
struct About {
    piece: Piece,
    /// The class of its magazine, if it may rest.
    class: Option<Class>,
    shared: NonNull<Shared>,
}

/// The one way to a block that nobody holds: it is in one magazine, or with the pool, or about to
/// be handed out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Idle(NonNull<Record>);

// SAFETY: a record is shared between threads as its block goes around: by its count (atomic), by
// the pool's lock, or by a magazine's hand-over, each of which orders what is done to it.
unsafe impl Send for Idle {}

impl Idle {
    /// A new record for a block of `shared`. It is freed by [`free`](Self::free) only.
    pub(super) fn new(piece: Piece, class: Option<Class>, shared: NonNull<Shared>) -> Self {
        let about = UnsafeCell::new(About { piece, class, shared });
        let record = Box::new(Record { holds: AtomicUsize::new(1), about });
        Self(NonNull::from(Box::leak(record)))
    }

    /// From a magazine.
    ///
    /// # Safety
    /// The pointer came from [`pointer`](Self::pointer), the record is not freed, and this is the
    /// only way to its idle block now.
    #[inline]
    pub(super) unsafe fn from_pointer(pointer: NonNull<Record>) -> Self {
        Self(pointer)
    }

    /// For a magazine, and for the hold of who gets the block.
    #[inline]
    pub(super) fn pointer(self) -> NonNull<Record> {
        self.0
    }

    /// Uses the record for another block.
    pub(super) fn set(self, piece: Piece, class: Option<Class>) {
        // SAFETY: nobody holds the block, so nobody else looks at the record; it is not freed.
        unsafe {
            let about = self.0.as_ref().about.get();
            (*about).piece = piece;
            (*about).class = class;
        }
    }

    /// Its first `len` bytes, handed out.
    #[inline]
    pub(super) fn slice(self, len: usize) -> Slice {
        // SAFETY: a block that is handed out has one hold counted, this one, and its record stays
        // until that is let go.
        let hold = unsafe { Hold::from_counted(self.0) };
        // SAFETY: as in `set`; the reference ends here.
        unsafe { &(*self.0.as_ref().about.get()).piece }.slice(len, hold)
    }

    /// Where the block is.
    pub(super) fn piece(self) -> Piece {
        // SAFETY: as in `set`; this is a copy.
        unsafe { (*self.0.as_ref().about.get()).piece }
    }

    /// The class of its magazine.
    pub(super) fn class(self) -> Option<Class> {
        // SAFETY: as in `set`; this is a copy.
        unsafe { (*self.0.as_ref().about.get()).class }
    }

    /// Frees the record.
    ///
    /// # Safety
    /// The record is in no magazine and is used no more.
    pub(super) unsafe fn free(self) {
        // SAFETY: it came from `Box::leak` in `new`, and the caller frees it once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: `About` is written only while nobody holds the block (see `Idle`), the count is atomic.
unsafe impl Sync for Record {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Record {}

// SAFETY: a held block is not given back, so its piece stays taken, its slab stays registered and
// the pool's shared part stays (it goes with the last block that is out).
unsafe impl Counted for Record {
    #[inline]
    fn acquire(&self) {
        self.holds.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    unsafe fn release(&self) {
        if self.holds.load(Ordering::Acquire) != 1 {
            if self.holds.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            fence(Ordering::Acquire);
            self.holds.store(1, Ordering::Relaxed);
        }
        // From here on nobody holds the block.
        let idle = Idle(NonNull::from(self));
        // SAFETY: nobody else looks at the record now; this is a copy.
        let About { class, shared, .. } = unsafe { *self.about.get() };
        // SAFETY: the shared part stays until this block is back.
        let shared = unsafe { shared.as_ref() };
        if let Some(class) = class {
            let hot = shared.hot();
            let put = local::with(hot.id, |own| own.put(&hot.recall, class, idle.pointer()));
            if put == Some(Put::Rests) {
                return;
            }
        }
        give_back(shared.into(), idle);
    }

    #[inline]
    fn is_only(&self) -> bool {
        self.holds.load(Ordering::Acquire) == 1
    }
}

/// The way past the magazines.
#[cold]
fn give_back(shared: NonNull<Shared>, idle: Idle) {
    // SAFETY: the shared part stays until this block is back.
    let last = unsafe { shared.as_ref() }.give_back(idle);
    // It is the shared part itself where this was the last block of a pool that has been dropped:
    // it goes here, where nothing refers to it any more.
    drop(last);
}
