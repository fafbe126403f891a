//! Small regions that lie together in one mapping: one region would do for them.

use super::ground::{Ground, names, rights};
use super::list::List;
use super::places::Place;
use super::thresholds::{ADJACENT, ADJACENT_THP, SMALL};
use mkey_trace::format::{Pages, Region};
use serde::Serialize;

/// Small regions that could be fewer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Small {
    /// Different ranges below 1 MiB that lie in one mapping of reserved huge pages, or adjacent in another
    /// one, of one domain and with the same rights.
    pub regions: u64,
    /// How many regions would do for them.
    pub could_be: u64,
    /// Registrations of them (a range may have been registered more than once).
    pub registrations: u64,
    /// What these took, deregistering with it, ns.
    pub ns: u64,
    /// The groups, the one with the most ranges first.
    pub groups: List<Group>,
}

/// Small regions, one for which would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Their process (as in the recording) and domain.
    pub process: u32,
    /// See `process`.
    pub pd: u32,
    /// The rights.
    pub rights: Vec<&'static str>,
    /// The pages.
    pub pages: Pages,
    /// The stretch that holds them all, relative.
    pub addr: u64,
    /// See `addr`.
    pub len: u64,
    /// How many ranges, and registrations.
    pub regions: u64,
    /// See `regions`.
    pub registrations: u64,
    /// What registering and deregistering took, ns.
    pub ns: u64,
    /// Where the first was registered.
    pub place: Place,
}

impl Small {
    /// Of a recording.
    pub fn of(ground: &Ground<'_>) -> Self {
        let region = |n: &usize| ground.recording.regions.get(*n);
        let mut order: Vec<usize> = (0..ground.recording.regions.len()).collect();
        order.retain(|n| {
            region(n).is_some_and(|region| {
                region.mapping.is_some() && region.len > 0 && region.len < SMALL
            })
        });
        order.sort_by_key(|n| region(n).map(|r| (shared(r), r.addr, r.len)));
        let mut all = Self::default();
        let mut groups = Vec::new();
        let mut reached = 0u64;
        let together = |a: &usize, b: &usize| {
            let (Some(a), Some(b)) = (region(a), region(b)) else { return false };
            reached = reached.max(a.addr.saturating_add(a.len));
            let near = |gap| b.addr <= reached.saturating_add(gap);
            let beside = match b.pages {
                Pages::Huge2M | Pages::Huge1G => true,
                Pages::Thp => near(ADJACENT_THP),
                _ => near(ADJACENT),
            };
            let same = shared(a) == shared(b) && beside;
            if !same {
                reached = 0;
            }
            same
        };
        for group in order.chunk_by(together) {
            let members: Vec<&Region> = group.iter().filter_map(region).collect();
            let range = |region: &Region| (region.addr, region.len);
            let ranges = members.chunk_by(|a, b| range(a) == range(b)).count() as u64;
            let Some(first) = members.first().filter(|_| ranges > 1) else { continue };
            let end = members.iter().map(|r| r.addr.saturating_add(r.len)).max().unwrap_or(0);
            let costs = group.iter().filter_map(|n| ground.costs.get(*n));
            let ns = costs.fold(0u64, |sum, cost| sum.saturating_add(cost.ns()));
            all.regions += ranges;
            all.could_be += 1;
            all.registrations += members.len() as u64;
            all.ns = all.ns.saturating_add(ns);
            groups.push((
                first.reg_stack,
                Group {
                    process: first.process,
                    pd: first.pd,
                    rights: names(rights(first.access)),
                    pages: first.pages,
                    addr: first.addr,
                    len: end.saturating_sub(first.addr),
                    regions: ranges,
                    registrations: members.len() as u64,
                    ns,
                    place: Place::default(),
                },
            ));
        }
        groups.sort_by(|(_, a), (_, b)| b.regions.cmp(&a.regions).then(b.ns.cmp(&a.ns)));
        all.groups = List::of(groups)
            .map(|(stack, group)| Group { place: ground.places.of(stack), ..group });
        all
    }
}

/// What regions must share to be one.
fn shared(region: &Region) -> (u32, u32, u32, Option<(u64, u64)>, Pages) {
    (region.process, region.pd, region.access, region.mapping, region.pages)
}

#[cfg(test)]
mod tests {
    use super::super::sample::Builder;
    use super::*;

    fn of(regions: &[(u64, u64, Pages)]) -> Small {
        let mut builder = Builder::new();
        for (addr, len, pages) in regions {
            let region = builder.region(*addr, *len, 0, 10, 0);
            (region.pages, region.mapping) = (*pages, Some((0, 1 << 30)));
        }
        Small::of(&Ground::new(&builder.recording))
    }

    #[test]
    fn on_huge_pages_all_of_a_mapping_go_together() {
        let huge = Pages::Huge2M;
        let small = of(&[
            (0, 4096, huge),
            (1 << 24, 4096, huge),
            (1 << 24, 4096, huge),
            (9, 1 << 20, huge),
        ]);
        assert_eq!((small.regions, small.could_be, small.registrations, small.ns), (2, 1, 3, 30));
        assert_eq!(small.groups.first[0].len, (1 << 24) + 4096);
    }

    #[test]
    fn on_transparent_huge_pages_those_within_a_page_do() {
        let thp = Pages::Thp;
        let far = (2 << 20) + 4096 + (2 << 20) + 1;
        let small = of(&[(0, 4096, thp), (2 << 20, 4096, thp), (far, 4096, thp)]);
        assert_eq!((small.regions, small.could_be), (2, 1));
    }

    #[test]
    fn on_small_pages_only_those_that_lie_side_by_side_do() {
        let page = Pages::Small;
        let small = of(&[
            (0, 4096, page),
            (8192, 4096, page),
            (16384, 100, page),
            (1 << 20, 100, page),
            (2 << 20, 9000, page),
            ((2 << 20) + 10, 10, page),
            ((2 << 20) + 9000 + 4096, 10, page),
        ]);
        assert_eq!((small.regions, small.could_be), (6, 2));
        assert_eq!(small.groups.first.iter().map(|g| g.regions).collect::<Vec<_>>(), [3, 3]);
    }

    #[test]
    fn what_is_alone_or_unknown_is_left() {
        assert_eq!(of(&[(0, 4096, Pages::Thp)]), Small::default());
        assert_eq!(of(&[(0, 4096, Pages::Thp), (0, 4096, Pages::Thp)]), Small::default());
        let mut builder = Builder::new();
        builder.region(0, 4096, 0, 1, 0);
        builder.region(4096, 4096, 0, 1, 0);
        assert_eq!(Small::of(&Ground::new(&builder.recording)), Small::default());
    }
}
