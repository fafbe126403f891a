//! Who looks after packets: the program, by posting and polling without end, or the thread, woken by
//! peers. A peer also wakes the thread when the program leaves its packets lying, because it looks at
//! nothing but its memory ([`crate::link`]).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::sync::lock;

/// How often the thread looks whether the program polls still. As long may a packet wait when it
/// has stopped.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// So many posts and polls in so short a time, not counting the work that they found, make a program
/// that polls without end.
const POLLS: u32 = 64;
const SHORT: Duration = Duration::from_micros(200);
/// After so many polls in a row that find nothing others may have the processor for a moment: the peer
/// may be waiting for this very one.
const EMPTY: u32 = 128;

/// Whose business packets are.
#[derive(Debug, Default)]
pub(super) struct Attention {
    /// The program's.
    program: AtomicBool,
    /// It has polled since the last look.
    recent: AtomicBool,
    /// Posts and polls, and when the first of them was; it moves on with the time that others took which
    /// found something.
    polls: AtomicU32,
    since: Mutex<Option<Instant>>,
    /// Polls that found nothing, one after the other.
    empty: AtomicU32,
}

impl Attention {
    /// The program has polled, and found something or not; whether others are to have the processor
    /// for a moment.
    #[inline]
    pub(super) fn is_in_vain(&self, any: bool) -> bool {
        // Threads that poll at once may lose counts to each other: it takes a few more polls then.
        let empty = if any { 0 } else { self.empty.load(Ordering::Relaxed) + 1 };
        let enough = empty >= EMPTY;
        self.empty.store(if enough { 0 } else { empty }, Ordering::Relaxed);
        enough
    }

    /// The program posts or polls; when it has begun, if that is of interest.
    #[inline]
    pub(super) fn poll_begins(&self) -> Option<Instant> {
        (!self.is_programs()).then(Instant::now)
    }

    /// The program has posted or polled, and found something or not; whether that makes packets its
    /// business from now on.
    #[inline]
    pub(super) fn polled(&self, begun: Option<Instant>, any: bool) -> bool {
        if self.is_programs() {
            if !self.recent.load(Ordering::Relaxed) {
                self.recent.store(true, Ordering::Relaxed);
            }
            return false;
        }
        if any && let (Some(begun), Some(since)) = (begun, &mut *lock(&self.since)) {
            *since = (*since + begun.elapsed()).min(Instant::now());
        }
        let polls = self.polls.load(Ordering::Relaxed) + 1;
        self.polls.store(polls, Ordering::Relaxed);
        (polls == 1 || polls >= POLLS) && self.many(polls)
    }

    #[cold]
    fn many(&self, polls: u32) -> bool {
        let mut since = lock(&self.since);
        if polls == 1 {
            *since = Some(Instant::now());
            return false;
        }
        self.polls.store(0, Ordering::Relaxed);
        if since.take().is_none_or(|since| since.elapsed() > SHORT) {
            return false;
        }
        self.recent.store(true, Ordering::Relaxed);
        !self.program.swap(true, Ordering::AcqRel)
    }

    /// Makes packets the thread's business; whether they were the program's.
    pub(super) fn rest(&self) -> bool {
        self.polls.store(0, Ordering::Relaxed);
        self.program.load(Ordering::Relaxed) && self.program.swap(false, Ordering::AcqRel)
    }

    /// Whether packets are the program's business: they are no more if it has not polled since the
    /// last look.
    pub(super) fn tick(&self) -> bool {
        if self.program.load(Ordering::Relaxed) && !self.recent.swap(false, Ordering::Relaxed) {
            self.program.store(false, Ordering::Release);
        }
        self.is_programs()
    }

    /// Whether packets are the program's business.
    pub(super) fn is_programs(&self) -> bool {
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
        while !attention.polled(attention.poll_begins(), false) {
            polls += 1;
            assert!(polls < 100_000, "polls in a row are not noticed");
        }
        assert!(polls + 1 >= POLLS);
        assert!(attention.tick(), "it has polled");
        assert!(!attention.polled(attention.poll_begins(), false));
        assert!(attention.tick());
        assert!(!attention.tick(), "it has not polled since");
        assert!(!attention.rest());
    }

    #[test]
    fn who_polls_now_and_then_is_not_polling_without_end() {
        let attention = Attention::default();
        for poll in 0..3 * POLLS {
            if poll % (POLLS / 2) == 0 {
                std::thread::sleep(2 * SHORT);
            }
            assert!(!attention.polled(attention.poll_begins(), false));
        }
    }

    /// The work that packets make is none of the program's waiting.
    #[test]
    fn who_polls_without_end_may_find_much_to_do() {
        let attention = Attention::default();
        let mut polls = 0;
        loop {
            let begun = attention.poll_begins();
            std::thread::sleep(SHORT);
            if attention.polled(begun, true) {
                break;
            }
            polls += 1;
            assert!(polls < 100 * POLLS, "the work is counted");
        }
    }

    #[test]
    fn who_finds_nothing_lets_others_have_the_processor_now_and_then() {
        let attention = Attention::default();
        let in_vain = |polls: u32, found: u32| {
            (1..=polls).filter(|poll| attention.is_in_vain(poll % found == 0)).count()
        };
        assert_eq!(in_vain(10 * EMPTY, EMPTY / 2), 0);
        assert_eq!(in_vain(10 * EMPTY, u32::MAX), 10);
    }

    #[test]
    fn a_program_that_says_so_rests_at_once() {
        let attention = Attention::default();
        while !attention.polled(attention.poll_begins(), false) {}
        assert!(attention.rest());
        assert!(!attention.tick());
    }
}
