//! What was sent and is not known to be read: whether it is left lying.

use crate::sync::{Turns, lock};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What lies unread for so long is left lying by a program that polls no more, or looks at nothing but
/// its memory: then the peer's thread is woken. After that it may have to wait for a processor.
const LYING: Duration = Duration::from_micros(5);
const LYING_STILL: Duration = Duration::from_micros(200);
/// It is looked for at one poll of so many: a peer that polls, too, is not to be disturbed at it.
const POLLS: u32 = 16;

#[derive(Debug, Default)]
pub(super) struct Unread {
    /// Something was written of which it is not known that it was read.
    any: AtomicBool,
    /// Polls since then.
    polls: Turns,
    /// How far it was read when last looked at, and when the peer is to be woken if it gets no
    /// further.
    due: Mutex<Option<(u64, Instant)>>,
}

impl Unread {
    /// Something was written. Called by who writes.
    pub(super) fn begins(&self) {
        if !self.any.load(Ordering::Relaxed) {
            self.polls.restart();
            self.any.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it is time to look for it again. Called at every poll.
    #[inline]
    pub(super) fn is_to_be_looked_for(&self) -> bool {
        self.any.load(Ordering::Relaxed) && self.polls.has_turn(POLLS)
    }

    /// All was read. Called while nobody writes.
    pub(super) fn ends(&self) {
        *lock(&self.due) = None;
        self.any.store(false, Ordering::Relaxed);
    }

    /// It is read up to here; whether the peer is to be woken.
    pub(super) fn is_left_lying(&self, read: u64) -> bool {
        let now = Instant::now();
        let mut due = lock(&self.due);
        match *due {
            Some((before, at)) if before == read && at <= now => {
                *due = Some((read, now + LYING_STILL));
                return true;
            }
            Some((before, _)) if before == read => {}
            _ => *due = Some((read, now + LYING)),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll_until_looked_for(unread: &Unread) -> u32 {
        (1..).find(|_| unread.is_to_be_looked_for()).unwrap()
    }

    #[test]
    fn who_gets_no_further_is_woken_and_who_does_is_not() {
        let unread = Unread::default();
        assert!((0..3 * POLLS).all(|_| !unread.is_to_be_looked_for()), "nothing is unread");
        unread.begins();
        assert_eq!(poll_until_looked_for(&unread), POLLS);
        let begun = Instant::now();
        assert!(!unread.is_left_lying(64));
        while !unread.is_left_lying(64) {}
        assert!(begun.elapsed() >= LYING);
        assert!(!unread.is_left_lying(128), "it has got further");
        unread.ends();
        assert!((0..3 * POLLS).all(|_| !unread.is_to_be_looked_for()));
    }
}
