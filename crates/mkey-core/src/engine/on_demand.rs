//! On-demand paging: present bits in the translation table. Rules R-ODP.
//!
//! Accesses go by virtual address, so they are coherent whatever the bits say; the bits are the
//! NIC's table, which faults. What the operating system does not tell (swap, migration,
//! copy-on-write) leaves them set.

use super::Engine;
use super::access::Denied;
use super::entry::{Entry, Link, Meta, State, flag};
use super::executor::{Lane, tag};
use super::range::{Fit, fit};
use super::region::{ObjectError, ObjectId};
use super::runs::Runs;
use super::sync::{AtomicU64, Ordering, fence};
use crate::address::{HostAddr, HostRange, IoAddr};
use crate::device::OdpStats;
use crate::error::Reason;
use crate::key::Lkey;
use crate::refusal::{KeyKind, PdId};
use crate::rights::Rights;

/// Words before the bits: which translation this is and the invalidations begun in it, then the
/// three counters.
const SEQUENCE: u64 = 0;
const FAULTS: u64 = 1;
const INVALIDATIONS: u64 = 2;
const PREFETCHES: u64 = 3;
const HEADER: u64 = 4;

/// An implicit region remembers so many pages, as a translation cache does; each page has one
/// place, from which another page drives it out.
const IMPLICIT_PAGES: u64 = if cfg!(loom) { 2 } else { 4096 };
const IMPLICIT_SHIFT: u32 = 12;

/// Pages of an on-demand region that an access needs and that are absent from the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    slot: u32,
    generation: u64,
    sequence: u64,
    page_shift: u32,
    range: HostRange,
}

impl Fault {
    /// The pages to touch, whole.
    pub const fn range(&self) -> HostRange {
        self.range
    }

    /// Bytes of a page.
    pub const fn page_size(&self) -> u64 {
        1 << self.page_shift
    }

    /// The part of it that lies in `range`, if any: whole pages.
    pub fn part(&self, range: HostRange) -> Option<Self> {
        let range = self.range.intersect(&range)?;
        Some(Self { range, ..*self })
    }
}

/// Who wanted the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultCause {
    /// An access, which met a fault.
    Access,
    /// Advice.
    Prefetch,
}

fn pages_of(host: u64, length: u64, shift: u32) -> u64 {
    match length {
        0 => 0,
        _ => (host.saturating_add(length - 1) >> shift) - (host >> shift) + 1,
    }
}

fn words(host: u64, length: u64, shift: u32) -> u64 {
    HEADER + pages_of(host, length, shift).div_ceil(64)
}

/// A table for pages of 2^`page_shift` bytes, all absent. `translation` is unlike that of every
/// other table, so that a fault is never taken for one of another translation of its region.
pub(super) fn allocate(
    runs: &Runs,
    host: u64,
    length: u64,
    page_shift: u8,
    translation: u32,
) -> Option<Link> {
    let shift = u32::from(page_shift.clamp(12, 40));
    Some(start(runs, runs.allocate(words(host, length, shift))?, shift, translation))
}

/// A table for an implicit region.
pub(super) fn allocate_implicit(runs: &Runs, translation: u32) -> Option<Link> {
    Some(start(runs, runs.allocate(HEADER + IMPLICIT_PAGES)?, 0, translation))
}

fn start(runs: &Runs, run: u32, detail: u32, translation: u32) -> Link {
    runs.word(run, SEQUENCE).store(u64::from(translation) << 32, Ordering::Relaxed);
    Link { run, detail }
}

pub(super) fn free(runs: &Runs, link: u64, length: u64, host: u64) {
    let link = Link::unpack(link);
    match link.detail {
        0 => runs.free(link.run, HEADER + IMPLICIT_PAGES),
        shift => runs.free(link.run, words(host, length, shift)),
    }
}

/// The table of one on-demand region.
#[derive(Clone, Copy)]
struct Present<'a> {
    runs: &'a Runs,
    run: u32,
    /// 0: implicit.
    shift: u32,
    first_page: u64,
}

impl<'a> Present<'a> {
    fn of(runs: &'a Runs, entry: &Entry) -> Self {
        let link = Link::unpack(entry.link());
        let first_page = if link.detail == 0 { 0 } else { entry.host() >> link.detail };
        Self { runs, run: link.run, shift: link.detail, first_page }
    }

    fn counter(&self, which: u64) -> &'a AtomicU64 {
        self.runs.word(self.run, which)
    }

    const fn page_shift(&self) -> u32 {
        if self.shift == 0 { IMPLICIT_SHIFT } else { self.shift }
    }

    fn pages(&self, range: HostRange) -> core::ops::Range<u64> {
        let shift = self.page_shift();
        let first = range.start.0 >> shift;
        first..first + pages_of(range.start.0, range.len, shift)
    }

    fn word(&self, page: u64) -> (&'a AtomicU64, u64) {
        if self.shift == 0 {
            (self.runs.word(self.run, HEADER + page % IMPLICIT_PAGES), page + 1)
        } else {
            let bit = page.saturating_sub(self.first_page);
            (self.runs.word(self.run, HEADER + bit / 64), 1 << (bit % 64))
        }
    }

    fn is_present(&self, page: u64) -> bool {
        let (word, mark) = self.word(page);
        let word = word.load(Ordering::Relaxed);
        if self.shift == 0 { word == mark } else { word & mark != 0 }
    }

    /// Whether the page was absent before.
    fn set(&self, page: u64) -> bool {
        let (word, mark) = self.word(page);
        if self.shift == 0 {
            word.swap(mark, Ordering::Relaxed) != mark
        } else {
            word.fetch_or(mark, Ordering::Relaxed) & mark == 0
        }
    }

    /// Whether the page was present before.
    fn clear(&self, page: u64) -> bool {
        let (word, mark) = self.word(page);
        if self.shift == 0 {
            word.compare_exchange(mark, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        } else {
            word.fetch_and(!mark, Ordering::Relaxed) & mark != 0
        }
    }

    /// The absent pages between the first and the last of them.
    fn absent(&self, range: HostRange) -> Option<HostRange> {
        let mut pages = self.pages(range);
        let first = pages.find(|&page| !self.is_present(page))?;
        let last = pages.rev().find(|&page| !self.is_present(page)).unwrap_or(first);
        let shift = self.page_shift();
        Some(HostRange { start: HostAddr(first << shift), len: (last - first + 1) << shift })
    }
}

impl Engine {
    /// Refuses a translation whose pages are not all present.
    pub(super) fn need_present(
        &self,
        slot: u32,
        entry: &Entry,
        meta: Meta,
        host: u64,
        length: u64,
    ) -> Result<(), Denied> {
        if !meta.has(flag::ON_DEMAND | flag::IMPLICIT) {
            return Ok(());
        }
        let present = Present::of(&self.runs, entry);
        let sequence = present.counter(SEQUENCE).load(Ordering::Acquire);
        let wanted = HostRange { start: HostAddr(host), len: length };
        match present.absent(wanted) {
            None => Ok(()),
            Some(range) => Err(Denied::Fault(Fault {
                slot,
                generation: entry.generation.load(Ordering::Relaxed),
                sequence,
                page_shift: present.page_shift(),
                range,
            })),
        }
    }

    /// Marks pages as present that were touched since `fault` was answered. False if the region
    /// ended, has another translation, or lost pages meanwhile: then ask again.
    pub fn fault_in(&self, lane: &mut Lane, fault: &Fault, cause: FaultCause) -> bool {
        let _published = lane.publish(tag(self.tag, fault.slot));
        let Some(entry) = self.table.entry(fault.slot) else { return false };
        let meta = entry.meta();
        if meta.state() != State::Valid
            || !meta.has(flag::ON_DEMAND | flag::IMPLICIT)
            || entry.generation.load(Ordering::Relaxed) != fault.generation
        {
            return false;
        }
        let present = Present::of(&self.runs, entry);
        let current = || present.counter(SEQUENCE).load(Ordering::Acquire) == fault.sequence;
        if !current() {
            return false;
        }
        // The bits of one region only, whatever engine the fault comes from.
        let region = HostRange { start: HostAddr(entry.host()), len: entry.length() };
        let Some(range) = fault.range.intersect(&whole_pages(region, present.page_shift())) else {
            return false;
        };
        let fresh = present.pages(range).filter(|&page| present.set(page)).count() as u64;
        fence(Ordering::SeqCst);
        if !current() {
            present.pages(range).for_each(|page| {
                present.clear(page);
            });
            return false;
        }
        let counter = match cause {
            FaultCause::Access => FAULTS,
            FaultCause::Prefetch => PREFETCHES,
        };
        present.counter(counter).fetch_add(fresh, Ordering::Relaxed);
        true
    }

    /// What advice on `[address, address + length)` of an on-demand region has to touch; the
    /// errors are those of `ibv_advise_mr` (R-ODP-09 to 13, 17).
    pub fn advise(
        &self,
        lane: &mut Lane,
        pd: PdId,
        lkey: Lkey,
        address: IoAddr,
        length: u64,
        writes: bool,
    ) -> Result<Fault, Reason> {
        let key = lkey.0;
        let unknown = Reason::UnknownLkey { key };
        let (slot, entry) = self.table.find(key);
        // While it is published the region keeps its memory, or is refused here.
        let _published = lane.publish(tag(self.tag, slot));
        let Some(entry) = entry else { return Err(unknown) };
        let meta = entry.meta();
        if meta.state() != State::Valid && meta.state() != State::Free {
            return Err(unknown);
        }
        if meta.kind() != KeyKind::Region {
            let allowed = "the lkey of a memory region";
            return Err(Reason::Argument { what: "lkey", value: key.0.into(), allowed });
        }
        if !meta.is_lkey(key) || !meta.has(flag::ON_DEMAND | flag::IMPLICIT) {
            return Err(unknown);
        }
        if entry.owner().pd() != pd {
            return Err(Reason::OtherPd);
        }
        if writes && !meta.rights().contains(Rights::LOCAL_WRITE) {
            return Err(Reason::RightMissing { missing: Rights::LOCAL_WRITE });
        }
        let Fit::Within(offset) = fit(entry.base(), entry.length(), address.0, length) else {
            return Err(Reason::OutOfRange { address, length });
        };
        let present = Present::of(&self.runs, entry);
        let host = HostAddr(entry.host().wrapping_add(offset));
        Ok(Fault {
            slot,
            generation: entry.generation.load(Ordering::Relaxed),
            sequence: present.counter(SEQUENCE).load(Ordering::Acquire),
            page_shift: present.page_shift(),
            range: whole_pages(HostRange { start: host, len: length }, present.page_shift()),
        })
    }

    /// The counters of an on-demand region.
    pub fn odp_stats(&self, id: ObjectId) -> Result<OdpStats, ObjectError> {
        let (entry, meta) = self.object(id)?;
        if !meta.has(flag::ON_DEMAND | flag::IMPLICIT) {
            return Err(ObjectError::Unknown);
        }
        let present = Present::of(&self.runs, entry);
        let read = |which| present.counter(which).load(Ordering::Relaxed);
        Ok(OdpStats {
            faults: read(FAULTS),
            invalidations: read(INVALIDATIONS),
            prefetches: read(PREFETCHES),
        })
    }

    /// Marks the pages of an on-demand region that lie in `range` as absent.
    pub(super) fn invalidate_pages(&self, entry: &Entry, range: HostRange) {
        let present = Present::of(&self.runs, entry);
        present.counter(SEQUENCE).fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let gone = present.pages(range).filter(|&page| present.clear(page)).count() as u64;
        present.counter(INVALIDATIONS).fetch_add(gone, Ordering::Relaxed);
    }
}

fn whole_pages(range: HostRange, shift: u32) -> HostRange {
    let first = range.start.0 >> shift << shift;
    let len = pages_of(range.start.0, range.len, shift).saturating_mul(1 << shift);
    HostRange { start: HostAddr(first), len }
}
