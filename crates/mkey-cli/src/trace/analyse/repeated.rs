//! The same memory, registered again and again; and memory that overlaps.

use super::ground::{Ground, has_address, names, rights};
use super::list::List;
use super::places::Place;
use super::tally::{SiteCost, Tally};
use mkey_trace::format::{Pages, Region};
use serde::Serialize;

/// Registrations of memory that had been registered before.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Repeated {
    /// Pieces of memory that were registered more than once with the same rights in the same domain.
    pub pieces: u64,
    /// Their registrations after the first of each.
    pub repeats: u64,
    /// What registering and deregistering them took, ns.
    pub ns: u64,
    /// What the first registration and deregistration of each took.
    pub first_ns: u64,
    /// Repeats that began while the same memory was registered already.
    pub at_once: u64,
    /// The pieces, the costliest first.
    pub largest: List<Piece>,
    /// Where the repeats were made.
    pub sites: List<SiteCost>,
    /// Ranges that overlap and are not the same.
    pub overlapping: Overlapping,
}

/// A piece of memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// Its process (as in the recording) and domain.
    pub process: u32,
    /// See `process`.
    pub pd: u32,
    /// Where, relative to the process' base, and how long.
    pub addr: u64,
    /// See `addr`.
    pub len: u64,
    /// The rights.
    pub rights: Vec<&'static str>,
    /// The pages.
    pub pages: Pages,
    /// How often it was registered.
    pub times: u64,
    /// What that took, deregistering with it, ns.
    pub ns: u64,
    /// Of that, the first time.
    pub first_ns: u64,
    /// Where it was registered last.
    pub place: Place,
}

/// Registrations whose ranges overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Overlapping {
    /// Stretches of memory in which different registered ranges overlap, each with the next.
    pub stretches: u64,
    /// Registrations of them, and of how many different ranges.
    pub registrations: u64,
    /// See `registrations`.
    pub ranges: u64,
    /// The bytes of the stretches.
    pub bytes: u64,
    /// What they took, ns.
    pub ns: u64,
    /// Of these, registrations that begin where another one with another length begins.
    pub same_start: u64,
}

impl Repeated {
    /// Of a recording.
    pub fn of(ground: &Ground<'_>) -> Self {
        let mut order: Vec<usize> = (0..ground.recording.regions.len()).collect();
        let region = |n: &usize| ground.recording.regions.get(*n);
        order.retain(|n| region(n).is_some_and(has_address));
        order.sort_by_key(|n| region(n).map(|region| (key(region), region.from)));
        let mut all = Self::default();
        let mut pieces: Vec<(Piece, u32)> = Vec::new();
        let mut tally = Tally::new(&ground.places);
        for group in order.chunk_by(|a, b| region(a).map(key) == region(b).map(key)) {
            let Some(first) = group.first().and_then(region) else { continue };
            if group.len() < 2 {
                continue;
            }
            let (mut ns, mut first_ns, mut reached, mut stack) = (0u64, None, 0, 0);
            for (region, cost) in
                group.iter().filter_map(|n| Some((region(n)?, ground.costs.get(*n)?.ns())))
            {
                ns = ns.saturating_add(cost);
                if first_ns.is_none() {
                    first_ns = Some(cost);
                } else {
                    tally.add(ground.places.number(region.reg_stack), cost, region.len);
                    all.at_once += u64::from(reached > region.from);
                }
                reached = reached.max(ground.end(region));
                stack = region.reg_stack;
            }
            let first_ns = first_ns.unwrap_or(0);
            all.pieces += 1;
            all.repeats += group.len() as u64 - 1;
            all.ns = all.ns.saturating_add(ns);
            all.first_ns = all.first_ns.saturating_add(first_ns);
            let piece = Piece {
                process: first.process,
                pd: first.pd,
                addr: first.addr,
                len: first.len,
                rights: names(rights(first.access)),
                pages: first.pages,
                times: group.len() as u64,
                ns,
                first_ns,
                place: Place::default(),
            };
            pieces.push((piece, stack));
        }
        pieces.sort_by(|(a, _), (b, _)| b.ns.cmp(&a.ns).then(b.times.cmp(&a.times)));
        all.largest = List::of(pieces)
            .map(|(piece, stack)| Piece { place: ground.places.of(stack), ..piece });
        all.sites = tally.costliest(&ground.places, ground.lived);
        all.overlapping = overlapping(ground, order);
        all
    }

    /// What would not have been spent, had each piece been registered once.
    pub fn saving_ns(&self) -> u64 {
        self.ns.saturating_sub(self.first_ns)
    }
}

/// What is the same memory.
fn key(region: &Region) -> (u32, u32, u64, u64, u32) {
    (region.process, region.pd, region.addr, region.len, region.access)
}

fn overlapping(ground: &Ground<'_>, mut order: Vec<usize>) -> Overlapping {
    let region = |n: &usize| ground.recording.regions.get(*n);
    order.sort_by_key(|n| region(n).map(|r| (r.process, r.pd, r.addr, r.len)));
    let mut all = Overlapping::default();
    let mut from = 0;
    let mut reached = 0u64;
    for n in 0..order.len() {
        let (here, next) = (order.get(n).and_then(region), order.get(n + 1).and_then(region));
        let Some(here) = here else { continue };
        reached = reached.max(here.addr.saturating_add(here.len));
        let goes_on = next.is_some_and(|next| {
            (next.process, next.pd) == (here.process, here.pd) && next.addr < reached
        });
        if !goes_on {
            stretch(ground, order.get(from..=n).unwrap_or_default(), reached, &mut all);
            (from, reached) = (n + 1, 0);
        }
    }
    all
}

fn stretch(ground: &Ground<'_>, stretch: &[usize], reached: u64, all: &mut Overlapping) {
    let region = |n: &usize| ground.recording.regions.get(*n);
    let range = |n: &usize| region(n).map(|region| (region.addr, region.len));
    // They stand in order of their ranges.
    let ranges: Vec<&[usize]> = stretch.chunk_by(|a, b| range(a) == range(b)).collect();
    let Some(first) = stretch.first().and_then(region).filter(|_| ranges.len() > 1) else { return };
    all.stretches += 1;
    all.registrations += stretch.len() as u64;
    all.ranges += ranges.len() as u64;
    all.bytes = all.bytes.saturating_add(reached.saturating_sub(first.addr));
    for cost in stretch.iter().filter_map(|n| ground.costs.get(*n)) {
        all.ns = all.ns.saturating_add(cost.ns());
    }
    let start = |n: &usize| region(n).map(|region| region.addr);
    for same in stretch.chunk_by(|a, b| start(a) == start(b)) {
        if same.first().map(range) != same.last().map(range) {
            all.same_start += same.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Builder, REMOTE_WRITE};
    use super::*;
    use mkey_trace::format::Origin;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn the_same_memory_is_counted_and_its_first_time_set_apart() {
        let mut builder = Builder::new();
        let place = builder.place("send", 7);
        for n in 0..4 {
            builder.region(0x1000, 4096, n * 100, 20 - n, place);
            if n != 1 {
                builder.dereg(n * 100 + 50, 5, place);
            }
        }
        // Other rights, and another domain: not the same.
        builder.region(0x1000, 4096, 900, 10, place).access = REMOTE_WRITE;
        builder.region(0x1000, 4096, 950, 10, place).pd = 2;
        // Memory of a device, which has offsets.
        for _ in 0..2 {
            builder.region(0x1000, 4096, 950, 10, place).origin = Origin::DeviceMemory;
        }
        let all = Repeated::of(&Ground::new(&builder.recording));
        assert_eq!((all.pieces, all.repeats, all.at_once), (1, 3, 2));
        assert_eq!((all.ns, all.first_ns, all.saving_ns()), (20 + 19 + 18 + 17 + 15, 25, 64));
        let piece = &all.largest.first[0];
        assert_eq!(
            (piece.times, piece.addr, piece.place.at.as_str()),
            (4, 0x1000, "send main.c:7")
        );
        assert_eq!(piece.rights, ["LOCAL_WRITE"]);
        assert_eq!((all.sites.first[0].calls, all.sites.first[0].ns), (3, 64));
        assert_eq!(all.overlapping, Overlapping::default());
    }

    #[test]
    fn overlaps_are_stretches() {
        let mut builder = Builder::new();
        for (addr, len) in [(0, 10), (0, 20), (15, 10), (25, 5), (100, 1), (100, 1)] {
            builder.region(addr, len, 0, 2, 0);
        }
        let found = Repeated::of(&Ground::new(&builder.recording)).overlapping;
        let expected = Overlapping {
            stretches: 1,
            registrations: 3,
            ranges: 3,
            bytes: 25,
            ns: 6,
            same_start: 2,
        };
        assert_eq!(found, expected);
    }

    proptest! {
        #[test]
        fn repeats_are_what_naive_counting_gives(
            regions in prop::collection::vec((0u64..4, 1u64..3, 0u64..50, 1u64..50, 0u64..9), 0..24),
        ) {
            let mut builder = Builder::new();
            for (addr, len, begin, long, ns) in &regions {
                builder.region(*addr, *len, *begin, *ns, 0);
                builder.dereg(begin + ns + long, 1, 0);
            }
            let mut groups: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
            for region in &builder.recording.regions {
                let cost = regions[region.id as usize - 1].4 + 1;
                groups.entry((region.addr, region.len)).or_default().push(cost);
            }
            let all = Repeated::of(&Ground::new(&builder.recording));
            let many = || groups.values().filter(|g| g.len() > 1);
            prop_assert_eq!(all.pieces, many().count() as u64);
            prop_assert_eq!(all.repeats, many().map(|g| g.len() as u64 - 1).sum::<u64>());
            prop_assert_eq!(all.ns, many().flatten().sum::<u64>());
            let starts: BTreeSet<u64> = regions.iter().map(|r| r.0).collect();
            prop_assert!(all.overlapping.stretches <= starts.len() as u64);
        }

        #[test]
        fn stretches_are_the_connected_ranges(
            ranges in prop::collection::vec((0u64..60, 1u64..8), 0..16),
        ) {
            let mut builder = Builder::new();
            for (addr, len) in &ranges {
                builder.region(*addr, *len, 0, 1, 0);
            }
            let found = Repeated::of(&Ground::new(&builder.recording)).overlapping;
            // Each byte belongs to a range; ranges that share a byte belong together.
            let mut group: Vec<usize> = (0..ranges.len()).collect();
            for _ in 0..ranges.len() {
                for a in 0..ranges.len() {
                    for b in 0..ranges.len() {
                        if ranges[a].0 < ranges[b].0 + ranges[b].1 && ranges[b].0 < ranges[a].0 + ranges[a].1 {
                            let least = group[a].min(group[b]);
                            (group[a], group[b]) = (least, least);
                        }
                    }
                }
            }
            let mut by_group: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
            for (range, group) in ranges.iter().zip(&group) {
                by_group.entry(*group).or_default().push(*range);
            }
            let distinct = |g: &Vec<(u64, u64)>| g.iter().collect::<BTreeSet<_>>().len() as u64;
            let many: Vec<_> = by_group.values().filter(|g| distinct(g) > 1).collect();
            prop_assert_eq!(found.stretches, many.len() as u64);
            prop_assert_eq!(found.registrations, many.iter().map(|g| g.len() as u64).sum::<u64>());
            prop_assert_eq!(found.ranges, many.iter().map(|g| distinct(g)).sum::<u64>());
            let bytes = |g: &&Vec<(u64, u64)>| {
                g.iter().map(|r| r.0 + r.1).max().unwrap() - g.iter().map(|r| r.0).min().unwrap()
            };
            prop_assert_eq!(found.bytes, many.iter().map(bytes).sum::<u64>());
        }
    }
}
