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
        let mut met = 0;
        for (slot, entry) in self.table.used() {
            let meta = entry.meta();
            if meta.state() != State::Valid
                || meta.kind() != KeyKind::Region
                || meta.has(flag::IMPLICIT)
            {
                continue;
            }
            let region = HostRange { start: HostAddr(entry.host()), len: entry.length() };
            let Some(range) = region.intersect(&range) else { continue };
            met += 1;
            if meta.has(flag::ON_DEMAND) {
                self.invalidate_pages(entry, range);
                continue;
            }
            self.record_detached(slot, Gone { range, cause, when });
            self.mark_detached(slot, entry);
        }
        met
    }

    fn record_detached(&self, slot: u32, gone: Gone) {
        let mut detached = lock(&self.detached);
        detached.entry(slot).or_default().push(gone);
        self.any_detached.store(1, Ordering::Release);
    }

    /// Marks a region whose record was made. One that is being changed is marked by whoever
    /// changes it; one that is being freed forgets.
    fn mark_detached(&self, slot: u32, entry: &Entry) {
        loop {
            let meta = entry.meta();
            match meta.state() {
                State::Changing => return,
                State::Empty | State::Free => return self.forget_detached(slot),
                State::Valid => {}
            }
            let marked = entry.meta.compare_exchange(
                meta.0,
                meta.0 | flag::DETACHED,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if marked.is_ok() {
                return;
            }
        }
    }

    #[inline]
    pub(super) fn has_detached(&self, slot: u32) -> bool {
        self.any_detached.load(Ordering::Acquire) != 0 && self.has_detached_now(slot)
    }

    #[cold]
    fn has_detached_now(&self, slot: u32) -> bool {
        lock(&self.detached).contains_key(&slot)
    }

    #[inline]
    pub(super) fn forget_detached(&self, slot: u32) {
        if self.any_detached.load(Ordering::Acquire) != 0 {
            self.forget_now(slot);
        }
    }

    #[cold]
    fn forget_now(&self, slot: u32) {
        let mut detached = lock(&self.detached);
        detached.remove(&slot);
        if detached.is_empty() {
            self.any_detached.store(0, Ordering::Release);
        }
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
