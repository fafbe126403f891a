//! A map of ranges with users: pinned spans, watched mappings. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

/// Names a span while somebody counts on it.
pub(crate) type SpanId = u32;

/// The spans one guard counts on; one, as a rule, which then costs no allocation.
#[derive(Debug)]
pub(crate) enum Ids {
    None,
    One(SpanId),
    Many(Box<[SpanId]>),
}

impl Ids {
    pub(crate) fn as_slice(&self) -> &[SpanId] {
        match self {
            Self::None => &[],
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}

impl From<Vec<SpanId>> for Ids {
    fn from(ids: Vec<SpanId>) -> Self {
        match *ids.as_slice() {
            [] => Self::None,
            [id] => Self::One(id),
            _ => Self::Many(ids.into()),
        }
    }
}

/// A range that is kept as a whole, by `H`.
#[derive(Debug)]
pub(crate) struct Span<H> {
    pub range: Range<usize>,
    /// Users; at least one.
    pub users: u32,
    /// How it is held; `None` while that is being done.
    pub hold: Option<H>,
    /// The part of the range whose mapping has gone: such a span serves its users to the end and
    /// is found no more.
    pub gone: Option<Range<usize>>,
}

/// What [`Spans::probe`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// One span covers all of the range.
    Covered(SpanId),
    /// No span shares a byte with it.
    Free,
    /// Anything else.
    Mixed,
}

/// The spans of a process. Those that are found do not overlap.
#[derive(Debug)]
pub(crate) struct Spans<H> {
    found: BTreeMap<usize, (usize, SpanId)>,
    slab: Vec<Option<Span<H>>>,
    free: Vec<SpanId>,
    /// Those that are found no more and have users still.
    gone: Vec<SpanId>,
}

impl<H> Spans<H> {
    pub(crate) fn new() -> Self {
        Self { found: BTreeMap::new(), slab: Vec::new(), free: Vec::new(), gone: Vec::new() }
    }

    /// What is found in the range, by one search.
    #[inline]
    pub(crate) fn probe(&self, range: &Range<usize>) -> Probe {
        // Spans do not overlap: the last one that starts before the range's end also ends last.
        match self.found.range(..range.end).next_back() {
            Some((&start, &(end, id))) if start <= range.start && end >= range.end => {
                Probe::Covered(id)
            }
            Some((_, &(end, _))) if end > range.start => Probe::Mixed,
            _ => Probe::Free,
        }
    }

    /// The spans that share a byte with the range, ascending.
    pub(crate) fn overlapping(
        &self,
        range: &Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, SpanId)> {
        let first = match self.found.range(..=range.start).next_back() {
            Some((&start, &(end, _))) if end > range.start => start,
            _ => range.start,
        };
        self.found.range(first..range.end.max(first)).map(|(&start, &(end, id))| (start..end, id))
    }

    /// The parts of the range in no span, ascending.
    pub(crate) fn gaps(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (span, _) in self.overlapping(range) {
            if span.start > at {
                gaps.push(at..span.start);
            }
            at = span.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    pub(crate) fn get(&self, id: SpanId) -> Option<&Span<H>> {
        self.slab.get(id as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: SpanId) -> Option<&mut Span<H>> {
        self.slab.get_mut(id as usize)?.as_mut()
    }

    /// Adds a span with one user; the range must lie in a gap.
    pub(crate) fn insert(&mut self, range: Range<usize>, hold: Option<H>) -> SpanId {
        let (start, end) = (range.start, range.end);
        let span = Span { range, users: 1, hold, gone: None };
        let id = match self.free.pop() {
            Some(id) => {
                if let Some(place) = self.slab.get_mut(id as usize) {
                    *place = Some(span);
                }
                id
            }
            None => {
                self.slab.push(Some(span));
                (self.slab.len() - 1) as SpanId
            }
        };
        self.found.insert(start, (end, id));
        id
    }

    /// Takes one user off; returns the span if it was the last.
    #[inline]
    pub(crate) fn release(&mut self, id: SpanId) -> Option<Span<H>> {
        let place = self.slab.get_mut(id as usize)?;
        let span = place.as_mut()?;
        span.users = span.users.saturating_sub(1);
        if span.users > 0 {
            return None;
        }
        let span = place.take()?;
        self.free.push(id);
        if span.gone.is_none() {
            self.found.remove(&span.range.start);
        } else {
            self.gone.retain(|&gone| gone != id);
        }
        Some(span)
    }

    /// Whether a span that is found no more, but has users still, shares a byte with the range.
    pub(crate) fn any_gone_in(&self, range: &Range<usize>) -> bool {
        let gone = self.gone.iter().filter_map(|&id| self.get(id));
        gone.map(|span| &span.range).any(|r| r.start < range.end && r.end > range.start)
    }

    /// Marks the spans that share a byte with the range as gone.
    pub(crate) fn detach(&mut self, range: &Range<usize>) {
        let hit: Vec<_> = self.overlapping(range).collect();
        for (span_range, id) in &hit {
            self.found.remove(&span_range.start);
            if let Some(span) = self.get_mut(*id) {
                let start = range.start.max(span_range.start);
                span.gone = Some(start..range.end.min(span_range.end));
                self.gone.push(*id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_gaps_and_cover() {
        let mut spans = Spans::new();
        let a = spans.insert(10..20, Some(()));
        let b = spans.insert(30..40, Some(()));
        assert_eq!(spans.probe(&(12..20)), Probe::Covered(a));
        assert_eq!(spans.probe(&(12..21)), Probe::Mixed);
        assert_eq!(spans.probe(&(0..50)), Probe::Mixed);
        assert_eq!(spans.probe(&(20..30)), Probe::Free);
        assert_eq!(spans.probe(&(0..10)), Probe::Free);
        assert_eq!(spans.probe(&(9..12)), Probe::Mixed);
        assert_eq!(spans.gaps(&(0..50)), [0..10, 20..30, 40..50]);
        assert_eq!(spans.gaps(&(15..41)), [20..30, 40..41]);
        assert_eq!(spans.gaps(&(10..20)), []);
        assert_eq!(spans.gaps(&(20..31)).first(), Some(&(20..30)));
        let ids: Vec<_> = spans.overlapping(&(19..31)).map(|(_, id)| id).collect();
        assert_eq!(ids, [a, b]);
        assert_eq!(spans.overlapping(&(20..30)).count(), 0);
        assert_eq!(spans.overlapping(&(20..20)).count(), 0);
    }

    #[test]
    fn a_gone_span_serves_its_users_and_is_not_found() {
        let mut spans = Spans::new();
        let old = spans.insert(10..20, Some('o'));
        spans.detach(&(15..30));
        spans.detach(&(0..12));
        assert_eq!(spans.probe(&(10..20)), Probe::Free);
        let new = spans.insert(10..20, Some('n'));
        assert!(spans.any_gone_in(&(19..30)) && !spans.any_gone_in(&(20..30)));
        let gone = spans.release(old).unwrap();
        assert!(!spans.any_gone_in(&(0..30)));
        assert_eq!((gone.hold, gone.gone), (Some('o'), Some(15..20)));
        assert_eq!(spans.probe(&(10..20)), Probe::Covered(new), "the new one must stay");
        assert!(spans.release(new).is_some());
        assert!(spans.release(new).is_none());
    }

    /// Against a count per unit: after any sequence of operations every unit in use is in exactly
    /// one span, and a unit that nobody uses any more lies in no span without users.
    #[test]
    fn agrees_with_a_count_per_unit() {
        const UNITS: usize = 64;
        let mut seed = 1u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((seed >> 33) as usize) % below
        };
        let mut spans = Spans::new();
        let mut users: Vec<(Range<usize>, Vec<SpanId>)> = Vec::new();
        for _ in 0..20_000 {
            if users.len() < 12 && random(2) == 0 {
                let start = random(UNITS);
                let range = start..start + 1 + random(UNITS - start);
                let gaps = spans.gaps(&range);
                let mut ids: Vec<_> = spans.overlapping(&range).map(|(_, id)| id).collect();
                for &id in &ids {
                    spans.get_mut(id).unwrap().users += 1;
                }
                ids.extend(gaps.into_iter().map(|gap| spans.insert(gap, Some(()))));
                users.push((range, ids));
            } else if !users.is_empty() {
                let (_, ids) = users.swap_remove(random(users.len()));
                for id in ids {
                    spans.release(id);
                }
            }
            for unit in 0..UNITS {
                let holders = users.iter().filter(|(range, _)| range.contains(&unit)).count();
                let found: Vec<_> = spans.overlapping(&(unit..unit + 1)).collect();
                assert!(found.len() <= 1);
                if holders > 0 {
                    assert_eq!(found.len(), 1, "unit {unit} has users and no span");
                }
                for (_, id) in found {
                    assert!(users.iter().any(|(_, ids)| ids.contains(&id)));
                }
            }
        }
        for (_, ids) in users {
            for id in ids {
                spans.release(id);
            }
        }
        assert_eq!(spans.overlapping(&(0..UNITS)).count(), 0);
        assert!(spans.slab.iter().all(Option::is_none));
    }
}
