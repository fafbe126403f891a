//! A bell between two sides: who goes to sleep hangs it up and looks once more whether something is
//! there; who has put something there rings it. One of the two sees the other, by a fence each.

use super::atomic::{AtomicU32, Ordering, fence};

const DOWN: u32 = 0;
const UP: u32 = 1;

/// A bell in shared memory.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(super) struct Bell(AtomicU32);

impl Bell {
    /// Hangs it up. What is put there before this is seen by whoever looks afterwards; what is put
    /// there later rings.
    pub(super) fn hang(&self) {
        self.0.store(UP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes it down: nobody sleeps.
    pub(super) fn take_down(&self) {
        if self.0.load(Ordering::Relaxed) != DOWN {
            self.0.store(DOWN, Ordering::Relaxed);
        }
    }

    /// Something is there: whether somebody sleeps who is to be woken. Of many who ring, one wakes.
    pub(super) fn ring(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) == UP && self.0.swap(DOWN, Ordering::Relaxed) == UP
    }
}
