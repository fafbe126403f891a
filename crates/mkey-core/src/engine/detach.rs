//! Pages that the program took away under a live registration.
//!
//! A NIC would go on using the old pages; an engine that copies by virtual address would use
//! whatever is mapped there now. Neither may happen silently: the pages are marked as detached,
//! and an access that meets them is refused.

use super::Engine;
use super::access::Denied;
use super::change::Progress;
use super::entry::{Entry, Meta, State, flag};
use super::executor::Waits;
use super::sync::{Ordering, lock};
use crate::address::{HostAddr, HostRange};
use crate::key::Key;
use crate::refusal::{DetachCause, KeyKind, Refusal};
use core::time::Duration;

/// Pages of one region that are gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    range: HostRange,
    cause: DetachCause,
    when: Duration,
}

/// Accesses that were running when the engine was paused.
#[derive(Debug)]
pub struct Drain(Waits);

impl Engine {
    /// Stops new accesses, until [`Engine::resume`]: called before the event that takes pages away
    /// is read, since the program goes on once it has been read. Pauses nest.
    pub fn pause(&self) -> Drain {
        self.paused.fetch_add(1, Ordering::AcqRel);
        Drain(self.executors.users_of_engine(self.tag))
    }

    /// Whether the accesses that were running when the engine was paused have ended.
    pub fn drained(&self, drain: &mut Drain) -> Progress {
        if drain.0.quiet() { Progress::Quiet } else { Progress::Pending }
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.paused.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether accesses answer [`Denied::Paused`].
    pub fn paused(&self) -> bool {
        self.paused.load(Ordering::Acquire) != 0
    }

    /// Marks what the program took away: pages of plain regions as detached, pages of explicit
    /// on-demand regions as absent. The number of regions that it meets. `when` is told in
    /// refusals: time since the device was opened.
    pub fn detach(&self, range: HostRange, cause: DetachCause, when: Duration) -> usize {
        self.table
            .used()
            .filter(|&(slot, entry)| {
                may_lose_pages(entry.meta()) && self.detach_from(slot, entry, range, cause, when)
            })
            .count()
    }

    fn detach_from(
        &self,
        slot: u32,
        entry: &Entry,
        range: HostRange,
        cause: DetachCause,
        when: Duration,
    ) -> bool {
        // While it is held, the region keeps its translation: no field of it is being written,
        // and its page list is not freed.
        let mut detached = lock(&self.detached);
        let mut meta = entry.meta();
        if !may_lose_pages(meta) {
            return false;
        }
        let region = HostRange { start: HostAddr(entry.host()), len: entry.length() };
        let Some(range) = region.intersect(&range) else { return false };
        if meta.has(flag::ON_DEMAND) {
            self.invalidate_pages(entry, range);
            return true;
        }
        detached.entry(slot).or_default().push(Gone { range, cause, when });
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
        for gone in detached.get(&slot).into_iter().flatten() {
            if let Some(range) = gone.range.intersect(&wanted) {
                let (cause, when) = (gone.cause, gone.when);
                return Err(Refusal::Detached { key, range, cause, when }.into());
            }
        }
        Ok(())
    }
}

/// Whether an entry is a region whose pages can be missed: one that is in force, or is being
/// changed and may be in force again with the same pages.
fn may_lose_pages(meta: Meta) -> bool {
    matches!(meta.state(), State::Valid | State::Changing)
        && meta.kind() == KeyKind::Region
        && !meta.has(flag::IMPLICIT)
}
