//! A bell between two sides: who goes to sleep hangs it up and looks once more whether something is
//! there; who has put something there rings it. One of the two sees the other, by a fence each.
//!
//! Where nobody is going to sleep for a while, because a program polls without end, who rings needs no
//! fence: who wants to sleep after all has everyone pass a [`barrier`] first.

use super::atomic::{AtomicU32, Ordering, fence};
use super::barrier;

/// It may be hung up at any time.
const DOWN: u32 = 0;
const UP: u32 = 1;
/// It will not be hung up without a barrier.
const AWAY: u32 = 2;

/// A bell in shared memory, in a cache line of its own, which is hardly ever written.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Bell(AtomicU32);

impl Bell {
    /// Hangs it up. What is put there before this is seen by whoever looks afterwards; what is put
    /// there later rings.
    pub(super) fn hang(&self) {
        let before = self.0.swap(UP, Ordering::Relaxed);
        match before {
            AWAY => barrier::pass(),
            _ => fence(Ordering::SeqCst),
        }
    }

    /// Takes it down: nobody sleeps now. One that is away stays so, until all have passed a barrier.
    pub(super) fn take_down(&self) {
        if self.0.load(Ordering::Relaxed) == UP {
            self.0.store(DOWN, Ordering::Relaxed);
        }
    }

    /// Takes it away: nobody sleeps for a while.
    pub(super) fn take_away(&self) {
        if !barrier::is_there() {
            return self.take_down();
        }
        if !self.is_away() {
            self.0.store(AWAY, Ordering::Relaxed);
        }
    }

    /// Whether nobody sleeps for a while.
    #[inline]
    pub(super) fn is_away(&self) -> bool {
        self.0.load(Ordering::Relaxed) == AWAY
    }

    /// Something is there: whether somebody sleeps who is to be woken. Of many who ring, one wakes.
    /// `passes`: this process passes the barriers of others ([`barrier::is_there`]).
    #[inline]
    pub(super) fn ring(&self, passes: bool) -> bool {
        // The compiler, too, is to look at the bell only when the thing is there.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        !(passes && self.is_away()) && self.ring_now()
    }

    fn ring_now(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) == UP && self.0.swap(DOWN, Ordering::Relaxed) == UP
    }

    /// The same, of who looks again later: one that is hung up just now may not be seen.
    #[inline]
    pub(super) fn ring_if_seen(&self) -> bool {
        self.0.load(Ordering::Relaxed) == UP && self.0.swap(DOWN, Ordering::Relaxed) == UP
    }
}
