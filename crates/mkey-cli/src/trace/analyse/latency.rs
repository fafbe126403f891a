//! How long registering and deregistering took, by size and by the pages that the memory is on.

use super::ground::{Ground, Kind, has_bytes, took};
use super::times::Times;
use mkey_trace::format::{Pages, Recording};
use serde::Serialize;
use std::collections::BTreeMap;

/// The calls of one kind, size and kind of pages; those that failed are not among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// What they did.
    pub kind: Kind,
    /// The class of their sizes: more than a fourth of this many bytes, and no more than this many. A power
    /// of 4 from 4 KiB on; the first class has all that is smaller, too. 0: without a size.
    pub up_to_bytes: u64,
    /// The pages.
    pub pages: Pages,
    /// How long they took.
    pub times: Times,
    /// How many took so long.
    pub buckets: Vec<Bucket>,
}

/// How many calls took more than half of this time, and no more than it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// The time: a power of 2, ns.
    pub up_to_ns: u64,
    /// How many.
    pub calls: u64,
}

/// The class of a size.
fn class(len: u64) -> u64 {
    let mut class = 4096u64;
    while class < len {
        match class.checked_mul(4) {
            Some(next) => class = next,
            None => return u64::MAX,
        }
    }
    class
}

/// All cells that have calls, by kind, then size, then pages.
pub fn cells(ground: &Ground<'_>) -> Vec<Cell> {
    let mut cells: BTreeMap<(Kind, u64, Pages), Vec<u64>> = BTreeMap::new();
    for (call, kind) in ground.registration().filter(|(call, _)| call.errno == 0) {
        let region = call.region.and_then(|id| Recording::by_id(&ground.recording.regions, id));
        let (len, pages) = match region {
            Some(region) if has_bytes(region) => (class(region.len), region.pages),
            Some(region) => (0, region.pages),
            None if call.len > 0 => (class(call.len), Pages::Unknown),
            None => (0, Pages::Unknown),
        };
        cells.entry((kind, len, pages)).or_default().push(took(call));
    }
    let cell = |((kind, up_to_bytes, pages), mut times): ((Kind, u64, Pages), Vec<u64>)| {
        let buckets = buckets(&times);
        Cell { kind, up_to_bytes, pages, times: Times::of(&mut times), buckets }
    };
    cells.into_iter().map(cell).collect()
}

fn buckets(times: &[u64]) -> Vec<Bucket> {
    let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
    for ns in times {
        *buckets.entry(ns.checked_next_power_of_two().unwrap_or(u64::MAX)).or_default() += 1;
    }
    buckets.into_iter().map(|(up_to_ns, calls)| Bucket { up_to_ns, calls }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample::Builder;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn calls_are_told_apart_by_what_they_did_and_to_what() {
        let mut builder = Builder::new();
        builder.region(0, 4096, 0, 700, 0);
        builder.dereg(1000, 90, 0);
        builder.region(0, 4097, 2000, 1024, 0);
        builder.region(0, 9000, 4000, 1025, 0).pages = Pages::Huge2M;
        builder.region(0, u64::MAX, 6000, 5, 0).origin = mkey_trace::format::Origin::Implicit;
        builder.call("ibv_reg_mr", 7000, 1_000_000, 0).errno = 12;
        let told: Vec<_> = cells(&Ground::new(&builder.recording))
            .into_iter()
            .map(|c| (c.kind, c.up_to_bytes, c.pages, c.times.ns, c.buckets[0].up_to_ns))
            .collect();
        assert_eq!(
            told,
            [
                (Kind::Register, 0, Pages::Small, 5, 8),
                (Kind::Register, 4096, Pages::Small, 700, 1024),
                (Kind::Register, 16384, Pages::Small, 1024, 1024),
                (Kind::Register, 16384, Pages::Huge2M, 1025, 2048),
                (Kind::Deregister, 4096, Pages::Small, 90, 128),
            ]
        );
    }

    proptest! {
        #[test]
        fn every_size_is_in_its_class(len in any::<u64>()) {
            let class = class(len);
            prop_assert!(len <= class);
            prop_assert!(class == 4096 || class / 4 < len);
        }

        #[test]
        fn every_call_is_in_its_bucket(times in prop::collection::vec(0u64..100_000, 0..50)) {
            let buckets = buckets(&times);
            prop_assert_eq!(buckets.iter().map(|b| b.calls).sum::<u64>(), times.len() as u64);
            for Bucket { up_to_ns, calls } in buckets {
                let naive = times.iter().filter(|ns| {
                    **ns <= up_to_ns && (**ns > up_to_ns / 2 || up_to_ns == 1)
                });
                prop_assert_eq!(naive.count() as u64, calls);
            }
        }
    }
}
