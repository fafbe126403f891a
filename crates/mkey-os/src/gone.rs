//! Ranges whose mapping has gone, on their way from the event thread to a map of spans.
//!
//! The thread that reports events must neither wait for the map's lock nor allocate: a thread
//! that holds the lock may be inside an allocator call that unmaps watched memory, and the kernel
//! keeps it there until the event thread reads on. So ranges are left here, in a place of fixed
//! size, and whoever uses the spans next takes them over first.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const PLACES: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Gone {
    any: AtomicBool,
    list: Mutex<List>,
}

#[derive(Clone, Debug)]
pub(crate) struct List {
    ranges: [(usize, usize); PLACES],
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        Self { ranges: [(0, 0); PLACES], len: 0 }
    }
}

impl List {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<usize>> {
        self.ranges.iter().take(self.len).map(|&(start, end)| start..end)
    }

    /// Adds a range; without a free place, widens the last one to include it (spans between are
    /// then pinned anew without need).
    fn push(&mut self, range: &Range<usize>) {
        if let Some(place) = self.ranges.get_mut(self.len) {
            *place = (range.start, range.end);
            self.len += 1;
        } else if let Some((start, end)) = self.ranges.last_mut() {
            *start = range.start.min(*start);
            *end = range.end.max(*end);
        }
    }
}

impl Gone {
    /// Leaves a range. Allocates nothing and waits for no system call.
    pub(crate) fn leave(&self, range: &Range<usize>) {
        let mut list = self.list.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        list.push(range);
        self.any.store(true, Ordering::Release);
    }

    /// Takes all ranges left so far; `None` if there are none.
    #[inline]
    pub(crate) fn take(&self) -> Option<List> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut list = self.list.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.any.store(false, Ordering::Release);
        let taken = list.clone();
        list.len = 0;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_full() {
        let gone = Gone::default();
        assert!(gone.take().is_none());
        for i in 0..PLACES + 10 {
            gone.leave(&(i * 10..i * 10 + 5));
        }
        let taken = gone.take().unwrap();
        for i in 0..PLACES + 10 {
            assert!(taken.iter().any(|r| r.start <= i * 10 && r.end >= i * 10 + 5), "{i}");
        }
        assert!(gone.take().is_none());
    }
}
