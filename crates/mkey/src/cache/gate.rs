//! What the event thread leaves for the cache, and the word that every `get` looks at first.
//!
//! Nothing here allocates, and the lock is held for moving a few words only: whoever holds it does
//! not wait for anything, so that the event thread may take it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ranges that are kept apart; what is more is merged with its nearest neighbour.
pub(super) const RANGES: usize = 64;

/// One cache's inbox of events.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Gate {
    /// Bit 0: ranges wait to be applied. Above: counts the beginnings and ends of readings, so
    /// that bit 1 is set while events are in hand.
    word: AtomicU64,
    inbox: Mutex<Inbox>,
}

const WAITING: u64 = 1;
const READING: u64 = 2;

/// Ranges to be applied: sorted, apart from each other.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    ranges: [(usize, usize); RANGES],
    len: usize,
    /// Bytes that were added to the ranges because there was no room to keep them apart.
    widened: u64,
}

impl Default for Gate {
    fn default() -> Self {
        let inbox = Inbox { ranges: [(0, 0); RANGES], len: 0, widened: 0 };
        Self { word: AtomicU64::new(0), inbox: Mutex::new(inbox) }
    }
}

impl Gate {
    /// Whether nothing waits and nothing is in hand: one load.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.word.load(Ordering::Acquire) & (WAITING | READING) == 0
    }

    /// Events are about to be read. On the event thread.
    pub(super) fn before_read(&self) {
        self.word.fetch_add(READING, Ordering::SeqCst);
    }

    /// Leaves a range. On the event thread.
    pub(super) fn leave(&self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let mut inbox = self.inbox();
        inbox.put(range.start, range.end);
        // Under the lock, so that it is not lowered by who saw the inbox empty before.
        self.word.fetch_or(WAITING, Ordering::SeqCst);
    }

    /// All events that were read are left here. On the event thread; nothing if the beginning of
    /// the reading was not heard of.
    pub(super) fn after_read(&self) {
        if self.word.load(Ordering::Relaxed) & READING != 0 {
            self.word.fetch_add(READING, Ordering::SeqCst);
        }
    }

    /// Waits until the events in hand, if any, are left here. Those read later are for callers
    /// that come later. Not with a lock of the cache, nor inside what the event thread waits for.
    pub(super) fn wait_in_hand(&self) {
        let reading = |word: u64| word & !WAITING;
        let first = reading(self.word.load(Ordering::Acquire));
        let mut spins = 0u32;
        while first & READING != 0 && reading(self.word.load(Ordering::Acquire)) == first {
            spins = spins.saturating_add(1);
            if spins < 200 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }

    /// Whether ranges wait.
    pub(super) fn is_waiting(&self) -> bool {
        self.word.load(Ordering::Acquire) & WAITING != 0
    }

    /// Takes what is there. The word stays up until [`Gate::lower`].
    pub(super) fn take(&self) -> Inbox {
        let mut inbox = self.inbox();
        let taken = inbox.clone();
        inbox.len = 0;
        taken
    }

    /// What was taken has been applied: lowers the word, unless more has come.
    pub(super) fn lower(&self) -> bool {
        let inbox = self.inbox();
        let empty = inbox.len == 0;
        if empty {
            self.word.fetch_and(!WAITING, Ordering::Release);
        }
        empty
    }

    /// Ranges that wait, their bytes, and the bytes that were added for want of room so far.
    pub(super) fn gauges(&self) -> (u64, u64, u64) {
        let inbox = self.inbox();
        let bytes = inbox.iter().map(|range| range.len() as u64).sum();
        (inbox.len as u64, bytes, inbox.widened)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // No critical section leaves the ranges half changed.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.ranges.iter().take(self.len).map(|&(start, end)| start..end)
    }

    /// Adds a range, merging it with those that it touches.
    fn put(&mut self, mut start: usize, mut end: usize) {
        let mut kept = 0;
        for i in 0..self.len.min(RANGES) {
            let (s, e) = self.ranges[i];
            if s <= end && start <= e {
                (start, end) = (start.min(s), end.max(e));
            } else {
                self.ranges[kept] = (s, e);
                kept += 1;
            }
        }
        self.len = kept;
        if self.len == RANGES {
            self.widen(start, end);
            return;
        }
        let at = self.ranges.iter().take(self.len).take_while(|(s, _)| *s < start).count();
        self.ranges.copy_within(at..self.len, at + 1);
        self.ranges[at] = (start, end);
        self.len += 1;
    }

    /// There is no room: the range that lies nearest grows to take it in, and with it whatever
    /// there was in between. Too much invalidated costs a registration; too little, memory.
    fn widen(&mut self, start: usize, end: usize) {
        let gap = |&(s, e): &(usize, usize)| if e < start { start - e } else { s - end };
        let nearest = (0..RANGES).min_by_key(|&i| gap(&self.ranges[i])).unwrap_or(0);
        let (s, e) = self.ranges[nearest];
        self.widened = self.widened.saturating_add(gap(&(s, e)) as u64);
        self.ranges[nearest] = (s.min(start), e.max(end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Nothing that was left is lost, whatever comes; and no more than a few ranges are kept.
        #[test]
        fn the_inbox_covers_all_that_was_left(
            left in prop::collection::vec((0usize..4000, 1usize..40), 0..400),
        ) {
            let gate = Gate::default();
            for &(start, len) in &left {
                gate.leave(start..start + len);
            }
            let taken: Vec<_> = gate.take().iter().collect();
            prop_assert!(taken.len() <= RANGES);
            for (start, len) in left {
                prop_assert!(
                    taken.iter().any(|r| r.start <= start && start + len <= r.end),
                    "{start}+{len} not in {taken:?}"
                );
            }
            for pair in taken.windows(2) {
                prop_assert!(pair[0].end < pair[1].start, "{taken:?}");
            }
            prop_assert!(gate.lower());
            prop_assert!(gate.is_quiet());
        }
    }

    #[test]
    fn the_word_is_up_from_before_the_reading_until_all_is_applied() {
        let gate = Gate::default();
        assert!(gate.is_quiet());
        gate.before_read();
        assert!(!gate.is_quiet());
        gate.leave(0..10);
        gate.after_read();
        assert!(!gate.is_quiet() && gate.is_waiting());
        gate.wait_in_hand();
        assert!(gate.take().iter().eq(std::iter::once(0..10)));
        gate.leave(20..30);
        assert!(!gate.lower(), "more has come");
        assert!(gate.take().iter().eq(std::iter::once(20..30)));
        assert!(gate.lower() && gate.is_quiet());
    }
}
