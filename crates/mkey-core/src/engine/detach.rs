//! Pages that the program took away under a live registration.
//!
//! A NIC would go on using the old pages; an engine that copies by virtual address would use
//! whatever is mapped there now. Neither may happen silently: the pages are marked as detached,
//! and an access that meets them is refused. Between the event and the marks, accesses are paused
//! ([`Executors::pause`](super::Executors::pause)).

use super::Engine;
use super::access::Denied;
use super::entry::{Entry, Meta, State, flag};
use super::sync::{Ordering, lock};
use crate::address::{HostAddr, HostRange};
use crate::key::Key;
use crate::refusal::{DetachCause, KeyKind, Refusal};
use core::time::Duration;
use std::collections::BTreeMap;

/// The pages of one region that are gone, each by the first event that took it: what comes to lie
/// at its place later, and goes again, is not the region's.
#[derive(Clone, Debug, Default)]
pub(super) struct Gone {
    /// By first address; no two share a byte.
    pieces: BTreeMap<u64, Piece>,
    events: u64,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    range: HostRange,
    cause: DetachCause,
    when: Duration,
    /// Which event it was.
    order: u64,
}

impl Gone {
    fn add(&mut self, range: HostRange, cause: DetachCause, when: Duration) {
        let order = self.events;
        self.events += 1;
        let end = range.start.0.saturating_add(range.len);
        let mut at = range.start.0;
        while at < end {
            let known =
                self.meets(HostRange { start: HostAddr(at), len: end - at }).next().copied();
            let gap_end = known.map_or(end, |piece| piece.range.start.0);
            if at < gap_end {
                let range = HostRange { start: HostAddr(at), len: gap_end - at };
                self.pieces.insert(at, Piece { range, cause, when, order });
            }
            at = known.map_or(end, |piece| piece.range.start.0.saturating_add(piece.range.len));
        }
    }

    /// The pieces that share a byte with a range, ascending.
    fn meets(&self, range: HostRange) -> impl Iterator<Item = &Piece> {
        let end = range.start.0.saturating_add(range.len);
        let before = self.pieces.range(..range.start.0).next_back();
        let from = self.pieces.range(range.start.0..end.max(range.start.0));
        before
            .into_iter()
            .chain(from)
            .map(|(_, piece)| piece)
            .filter(move |piece| piece.range.intersect(&range).is_some())
    }
}

impl Engine {
    /// Marks what the program took away: pages of plain regions as detached, pages of explicit
    /// on-demand regions as absent. The number of regions that it meets. `when` is told in
    /// refusals: time since the device was opened.
    pub fn detach(&self, range: HostRange, cause: DetachCause, when: Duration) -> usize {
        self.detach_all(&[(range, cause)], when)
    }

    /// As [`Engine::detach`], of several events in order: one search for all.
    pub fn detach_all(&self, events: &[(HostRange, DetachCause)], when: Duration) -> usize {
        let mut taken = Gone::default();
        for &(range, cause) in events {
            taken.add(range, cause, when);
        }
        self.table
            .used()
            .filter(|&(slot, entry)| {
                may_lose_pages(entry.meta()) && self.detach_from(slot, entry, &taken)
            })
            .count()
    }

    fn detach_from(&self, slot: u32, entry: &Entry, taken: &Gone) -> bool {
        // While it is held, the region keeps its translation: no field of it is being written,
        // and its page list is not freed.
        let mut detached = lock(&self.detached);
        let mut meta = entry.meta();
        if !may_lose_pages(meta) {
            return false;
        }
        let region = HostRange { start: HostAddr(entry.host()), len: entry.length() };
        let mut met: Vec<_> = taken.meets(region).collect();
        if met.is_empty() {
            return false;
        }
        met.sort_by_key(|piece| piece.order);
        let met = met
            .into_iter()
            .filter_map(|piece| Some((piece.range.intersect(&region)?, piece.cause, piece.when)));
        if meta.has(flag::ON_DEMAND) {
            met.for_each(|(range, ..)| self.invalidate_pages(entry, range));
            return true;
        }
        let gone = detached.entry(slot).or_default();
        met.for_each(|(range, cause, when)| gone.add(range, cause, when));
        // One that is being changed is marked by whoever changes it.
        while meta.state() == State::Valid {
            let marked = entry.meta.compare_exchange(
                meta.0,
                meta.0 | flag::DETACHED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match marked {
                Ok(_) => break,
                Err(_) => meta = entry.meta(),
            }
        }
        true
    }

    /// Refuses a translation that meets detached pages.
    pub(super) fn refuse_detached(
        &self,
        slot: u32,
        meta: Meta,
        host: u64,
        length: u64,
        key: Key,
    ) -> Result<(), Denied> {
        if !meta.has(flag::DETACHED) {
            return Ok(());
        }
        let wanted = HostRange { start: HostAddr(host), len: length };
        let detached = lock(&self.detached);
        let met = detached.get(&slot).and_then(|gone| {
            let first = gone.meets(wanted).min_by_key(|piece| piece.order)?;
            Some((first.range.intersect(&wanted)?, first.cause, first.when))
        });
        match met {
            None => Ok(()),
            Some((range, cause, when)) => Err(Refusal::Detached { key, range, cause, when }.into()),
        }
    }
}

/// Whether an entry is a region whose pages can be missed: one that is in force, or is being
/// changed and may be in force again with the same pages.
fn may_lose_pages(meta: Meta) -> bool {
    matches!(meta.state(), State::Valid | State::Changing)
        && meta.kind() == KeyKind::Region
        && !meta.has(flag::IMPLICIT)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Backing, EngineConfig, Executors, Registration};
    use super::*;
    use crate::address::IoAddr;
    use crate::refusal::PdId;
    use crate::rights::Rights;

    const BASE: u64 = 1 << 20;
    const PAGE: u64 = 4096;

    fn pages(first: u64, count: u64) -> HostRange {
        HostRange { start: HostAddr(BASE + first * PAGE), len: count * PAGE }
    }

    fn with_region(pages: u64) -> Engine {
        let engine = Engine::new(EngineConfig { max_keys: 8, seed: 1 }, Executors::new());
        let backing = Backing::Plain { host: HostAddr(BASE) };
        let (iova, length, rights) = (IoAddr(BASE), pages * PAGE, Rights::LOCAL_WRITE);
        engine.register(PdId(1), &Registration { iova, length, rights, backing }).unwrap();
        engine
    }

    fn records(engine: &Engine) -> usize {
        lock(&engine.detached).values().map(|gone| gone.pieces.len()).sum()
    }

    #[test]
    fn a_page_that_goes_again_and_again_is_recorded_once() {
        let engine = with_region(64);
        for cause in [DetachCause::Discarded, DetachCause::Unmapped, DetachCause::Discarded] {
            for page in 0..64 {
                engine.detach(pages(page, 1), cause, Duration::ZERO);
                engine.detach(pages(page, 1), cause, Duration::ZERO);
            }
        }
        assert_eq!(records(&engine), 64);
        engine.detach(pages(0, 64), DetachCause::Moved, Duration::ZERO);
        assert_eq!(records(&engine), 64);
    }

    #[test]
    fn a_page_keeps_the_first_event_that_took_it() {
        let mut gone = Gone::default();
        let secs = Duration::from_secs;
        gone.add(pages(4, 2), DetachCause::Moved, secs(1));
        gone.add(pages(1, 8), DetachCause::Unmapped, secs(2));
        gone.add(pages(0, 12), DetachCause::Discarded, secs(3));
        let all: Vec<_> = gone.meets(pages(0, 12)).map(|p| (p.range, p.when.as_secs())).collect();
        let expected = [(0, 1, 3), (1, 3, 2), (4, 2, 1), (6, 3, 2), (9, 3, 3)];
        assert_eq!(all, expected.map(|(first, count, when)| (pages(first, count), when)));
        assert_eq!(gone.meets(pages(12, 4)).count(), 0);
        let first = gone.meets(pages(3, 2)).min_by_key(|piece| piece.order).unwrap();
        assert_eq!(first.cause, DetachCause::Moved);
    }
}
