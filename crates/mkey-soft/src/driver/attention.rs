//! Who looks after packets: the program, by polling without end, or the thread, woken by peers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::sync::lock;

/// How often the thread looks whether the program polls still. As long may a packet wait when it
/// has stopped.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// So many polls that find nothing, in so short a time, make a program that polls without end.
const POLLS: u32 = 64;
const SHORT: Duration = Duration::from_micros(200);

/// Whose business packets are.
#[derive(Debug, Default)]
pub(super) struct Attention {
    /// The program's.
    program: AtomicBool,
    /// It has polled since the last look.
    recent: AtomicBool,
    /// Polls that found nothing, one after the other.
    empty: AtomicU32,
    /// When they began.
    since: Mutex<Option<Instant>>,
}

impl Attention {
    /// The program has polled; whether that makes packets its business from now on.
    #[inline]
    pub(super) fn polled(&self, any: bool) -> bool {
        if self.program.load(Ordering::Relaxed) {
            if !self.recent.load(Ordering::Relaxed) {
                self.recent.store(true, Ordering::Relaxed);
            }
            return false;
        }
        // Threads that poll at once may lose counts to each other: it takes a few more polls then.
        let empty = if any { 0 } else { self.empty.load(Ordering::Relaxed) + 1 };
        self.empty.store(empty, Ordering::Relaxed);
        (empty == 1 || empty >= POLLS) && self.many(empty)
    }

    #[cold]
    fn many(&self, empty: u32) -> bool {
        let mut since = lock(&self.since);
        if empty == 1 {
            *since = Some(Instant::now());
            return false;
        }
        self.empty.store(0, Ordering::Relaxed);
        if since.take().is_none_or(|since| since.elapsed() > SHORT) {
            return false;
        }
        self.recent.store(true, Ordering::Relaxed);
        !self.program.swap(true, Ordering::AcqRel)
    }

    /// Makes packets the thread's business; whether they were the program's.
    pub(super) fn rest(&self) -> bool {
        self.program.load(Ordering::Relaxed) && self.program.swap(false, Ordering::AcqRel)
    }

    /// Whether packets are the program's business: they are no more if it has not polled since the
    /// last look.
    pub(super) fn tick(&self) -> bool {
        if self.program.load(Ordering::Relaxed) && !self.recent.swap(false, Ordering::Relaxed) {
            self.program.store(false, Ordering::Release);
        }
        self.program.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_polls_without_end_is_left_alone_until_it_stops() {
        let attention = Attention::default();
        assert!(!attention.tick());
        let mut polls = 0;
        while !attention.polled(false) {
            polls += 1;
            assert!(polls < 100_000, "polls in a row are not noticed");
        }
        assert!(polls + 1 >= POLLS);
        assert!(attention.tick(), "it has polled");
        assert!(!attention.polled(false));
        assert!(attention.tick());
        assert!(!attention.tick(), "it has not polled since");
        assert!(!attention.rest());
    }

    #[test]
    fn who_finds_something_now_and_then_is_not_polling_without_end() {
        let attention = Attention::default();
        for poll in 0..10 * POLLS {
            assert!(!attention.polled(poll % (POLLS / 2) == 0));
        }
    }

    #[test]
    fn a_program_that_says_so_rests_at_once() {
        let attention = Attention::default();
        while !attention.polled(false) {}
        assert!(attention.rest());
        assert!(!attention.tick());
    }
}
