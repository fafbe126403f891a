//! Remote keys as they are seen on the wire, and the memory that each is used for.

use super::packet::Target;
use std::collections::BTreeMap;

/// Ranges that are kept of one key; where there are more, the two with the least between them become one.
pub const MOST_RANGES: usize = 16;

/// What a request does to the memory that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// RDMA WRITE, ATOMIC WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// Compare and swap, fetch and add.
    Atomic,
    /// FLUSH.
    Flush,
}

/// The keys of one direction: those that its requests name.
#[derive(Debug, Default)]
pub struct Keys(BTreeMap<u32, Key>);

/// One key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// RDMA WRITEs.
    pub writes: u64,
    /// RDMA READs.
    pub reads: u64,
    /// Atomics.
    pub atomics: u64,
    /// FLUSHes.
    pub flushes: u64,
    /// SENDs that invalidated it.
    pub invalidated: u64,
    /// The memory.
    pub ranges: Ranges,
}

impl Keys {
    /// A request names memory. Takes one of `budget` for a key that was not seen before; false if
    /// there is none left.
    pub fn used(&mut self, target: &Target, how: Use, budget: &mut usize) -> bool {
        let Some(key) = self.entry(target.rkey, budget) else { return false };
        match how {
            Use::Write => key.writes += 1,
            Use::Read => key.reads += 1,
            Use::Atomic => key.atomics += 1,
            Use::Flush => key.flushes += 1,
        }
        if let Some(more) = target.length.checked_sub(1) {
            key.ranges.add(target.address, target.address.saturating_add(u64::from(more)));
        }
        true
    }

    /// A SEND invalidates a key; as [`Keys::used`].
    pub fn invalidated(&mut self, rkey: u32, budget: &mut usize) -> bool {
        let Some(key) = self.entry(rkey, budget) else { return false };
        key.invalidated += 1;
        true
    }

    /// Key by key, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Key)> {
        self.0.iter().map(|(rkey, key)| (*rkey, key))
    }

    fn entry(&mut self, rkey: u32, budget: &mut usize) -> Option<&mut Key> {
        use std::collections::btree_map::Entry;
        match self.0.entry(rkey) {
            Entry::Occupied(entry) => Some(entry.into_mut()),
            Entry::Vacant(entry) => {
                *budget = budget.checked_sub(1)?;
                Some(entry.insert(Key::default()))
            }
        }
    }
}

/// Memory, as ranges that do not touch each other, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// First and last address of each.
    ranges: Vec<(u64, u64)>,
    joined: bool,
}

impl Ranges {
    /// First and last address of each range.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter().copied()
    }

    /// Whether ranges became one though there was memory between them.
    pub fn joined(&self) -> bool {
        self.joined
    }

    /// Adds the addresses from `first` to `last`, both included.
    pub fn add(&mut self, first: u64, last: u64) {
        // Those that end before, with at least one address between.
        let from = self.ranges.partition_point(|range| range.1.saturating_add(1) < first);
        let to = self.ranges.partition_point(|range| range.0 <= last.saturating_add(1));
        let (mut first, mut last) = (first, last);
        for range in self.ranges.drain(from..to.max(from)) {
            (first, last) = (first.min(range.0), last.max(range.1));
        }
        self.ranges.insert(from, (first, last));
        if self.ranges.len() > MOST_RANGES {
            self.join();
        }
    }

    /// Makes one range of the two with the least between them.
    fn join(&mut self) {
        let between = self.ranges.windows(2).map(|pair| match pair {
            [a, b] => b.0.saturating_sub(a.1),
            _ => u64::MAX,
        });
        let Some((at, _)) = between.enumerate().min_by_key(|(_, between)| *between) else { return };
        let after = self.ranges.remove(at + 1);
        if let Some(range) = self.ranges.get_mut(at) {
            range.1 = range.1.max(after.1);
        }
        self.joined = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn ranges_hold_what_was_added_and_no_more_unless_they_are_too_many(
            added in prop::collection::vec((0..400u64, 0..12u64), 1..60),
            from_the_end: bool,
        ) {
            let base = if from_the_end { u64::MAX - 420 } else { 0 };
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (first, more) in added {
                let (first, last) = (base + first, base + first + more);
                ranges.add(first, last);
                set.extend(first..=last);
                let shown: Vec<(u64, u64)> = ranges.iter().collect();
                prop_assert!(shown.len() <= MOST_RANGES);
                prop_assert!(shown.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{:?}", shown);
                let within = |at: &u64| shown.iter().any(|range| (range.0..=range.1).contains(at));
                prop_assert!(set.iter().all(within));
                let all: u64 = shown.iter().map(|range| range.1 - range.0 + 1).sum();
                prop_assert!(all == set.len() as u64 || ranges.joined());
            }
        }
    }

    #[test]
    fn the_end_of_all_addresses_is_no_wrap() {
        let mut ranges = Ranges::default();
        ranges.add(u64::MAX - 1, u64::MAX);
        ranges.add(0, 0);
        ranges.add(u64::MAX, u64::MAX);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(0, 0), (u64::MAX - 1, u64::MAX)]);
        let target = Target { rkey: 1, address: u64::MAX, length: u32::MAX };
        let (mut keys, mut budget) = (Keys::default(), 1);
        assert!(keys.used(&target, Use::Write, &mut budget));
        assert!(!keys.invalidated(2, &mut budget), "no budget for another key");
        assert!(keys.invalidated(1, &mut budget));
        let (_, key) = keys.iter().next().unwrap();
        assert_eq!((key.writes, key.invalidated), (1, 1));
        assert_eq!(key.ranges.iter().collect::<Vec<_>>(), [(u64::MAX, u64::MAX)]);
    }
}
