//! Holding one span in place by the strongest mode that can be had, and letting it go.

use super::report::{PinError, PinMode, PinStats};
use super::ring::{Class, Place, Rings};
use crate::error::{Errno, OsError};
use crate::events::WatchGuard;
use crate::proc::{self, Maps};
use crate::spans::{Span, SpanId, Spans};
use crate::{limits, prefault};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// How a span is held.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hold {
    /// In a slot of a ring; the kernel has checked that the pages can be written.
    Kernel(Place),
    /// `mlock`ed; `ours` unless it was locked before, then it is not ours to unlock.
    Mlock { ours: bool, writable: bool },
    /// Only checked.
    None { writable: bool },
}

impl Hold {
    pub(super) fn mode(self) -> PinMode {
        match self {
            Self::Kernel(_) => PinMode::Kernel,
            Self::Mlock { .. } => PinMode::Mlock,
            Self::None { .. } => PinMode::None,
        }
    }

    /// Whether the pages were checked for writing.
    pub(super) fn writable(self) -> bool {
        match self {
            Self::Kernel(_) => true,
            Self::Mlock { writable, .. } | Self::None { writable } => writable,
        }
    }
}

/// What the pinner's lock protects.
#[derive(Debug)]
pub(super) struct State {
    pub spans: Spans<Hold>,
    pub rings: Rings,
    pub stats: PinStats,
    /// What watches the mappings of a span, by the span's id.
    watches: Vec<Option<Arc<WatchGuard>>>,
    /// Bytes that are locked because of us.
    locked: u64,
    pages: PageSizes,
    room: MappingRoom,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            spans: Spans::new(),
            rings: Rings::default(),
            stats: PinStats::default(),
            watches: Vec::new(),
            locked: 0,
            pages: PageSizes::default(),
            room: MappingRoom::default(),
        }
    }

    pub(super) fn page_sizes(&mut self) -> &mut PageSizes {
        &mut self.pages
    }

    pub(super) fn is_watched(&self, id: SpanId) -> bool {
        self.watches.get(id as usize).is_some_and(Option::is_some)
    }

    /// Has a span keep a watch, unless it has one.
    pub(super) fn keep_watch(&mut self, id: SpanId, watch: &Arc<WatchGuard>) {
        let place = id as usize;
        if place >= self.watches.len() {
            self.watches.resize(place + 1, None);
        }
        if let Some(kept) = self.watches.get_mut(place).filter(|kept| kept.is_none()) {
            *kept = Some(Arc::clone(watch));
        }
    }

    /// Stops counting on a span; the span, if nobody else does, then without its watch.
    pub(super) fn release(&mut self, id: SpanId) -> Option<Span<Hold>> {
        let span = self.spans.release(id)?;
        if let Some(watch) = self.watches.get_mut(id as usize) {
            *watch = None;
        }
        Some(span)
    }

    pub(super) fn count(&mut self, mode: PinMode, bytes: usize) {
        self.stats.count(mode, bytes);
    }

    pub(super) fn uncount(&mut self, mode: PinMode, bytes: usize) {
        let live = self.stats.live_mut(mode);
        live.spans = live.spans.saturating_sub(1);
        live.bytes = live.bytes.saturating_sub(bytes as u64);
    }
}

/// The state, locked already (small spans) or to be locked for each look (large ones).
pub(super) enum Access<'a> {
    Held(&'a mut State),
    Free(&'a Mutex<State>),
}

impl Access<'_> {
    pub(super) fn with<T>(&mut self, use_it: impl FnOnce(&mut State) -> T) -> T {
        match self {
            Self::Held(state) => use_it(state),
            Self::Free(mutex) => use_it(&mut lock(mutex)),
        }
    }
}

pub(super) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Holds `range` by `strongest` or what comes after it; `class` is the table to use.
pub(super) fn hold(
    access: &mut Access<'_>,
    strongest: PinMode,
    range: &Range<usize>,
    write: bool,
    class: Class,
) -> Result<Hold, PinError> {
    let fault = PinError::Fault { addr: range.start, len: range.len(), write };
    if strongest == PinMode::Kernel {
        match by_kernel(access, range, class) {
            Ok(place) => return Ok(Hold::Kernel(place)),
            // The kernel's pin always wants to write; who only reads may still be served.
            Err(OsError { errno: Errno::FAULT, .. }) if write => return Err(fault),
            Err(OsError { errno, .. }) => {
                access.with(|state| state.stats.refuse(PinMode::Kernel, errno));
            }
        }
    }
    // Without the kernel's pin the pages are checked as it would have done: present, and
    // writable where that is wanted.
    let checked = if write {
        // SAFETY: the caller registers the memory for devices to write; populating changes no
        // contents.
        unsafe { prefault::populate_write(range.clone()) }
    } else {
        prefault::populate_read(range.clone())
    };
    checked.map_err(|_| fault)?;
    if strongest != PinMode::None {
        match by_mlock(access, range) {
            Ok(ours) => return Ok(Hold::Mlock { ours, writable: write }),
            Err(errno) => access.with(|state| state.stats.refuse(PinMode::Mlock, errno)),
        }
    }
    Ok(Hold::None { writable: write })
}

fn by_kernel(
    access: &mut Access<'_>,
    range: &Range<usize>,
    class: Class,
) -> Result<Place, OsError> {
    match access {
        Access::Held(state) => {
            let place = state.rings.take(class)?;
            let ring = state.rings.ring(place).ok_or(OsError::new("io_uring", Errno::INVAL))?;
            let pinned = ring.pin(place, range);
            if pinned.is_err() {
                state.rings.give_back(place);
            }
            pinned.map(|()| place)
        }
        Access::Free(mutex) => {
            let (place, ring) = {
                let mut state = lock(mutex);
                let place = state.rings.take(class)?;
                state.rings.set_busy(place, true);
                let ring = state.rings.ring(place).cloned();
                (place, ring.ok_or(OsError::new("io_uring", Errno::INVAL))?)
            };
            let pinned = ring.pin(place, range);
            let mut state = lock(mutex);
            state.rings.set_busy(place, false);
            if pinned.is_err() {
                state.rings.give_back(place);
            }
            pinned.map(|()| place)
        }
    }
}

/// Locks the range; tells whether it is ours to unlock.
fn by_mlock(access: &mut Access<'_>, range: &Range<usize>) -> Result<bool, Errno> {
    let (ours_before, page, room) =
        access.with(|state| (state.locked, state.pages.at(range.start), state.room.for_one_more()));
    if !room {
        return Err(Errno::NOMEM);
    }
    // Somebody else's lock must survive ours. Asking about the range is dear, so ask first
    // whether the process holds any lock but ours. Hugetlb pages are never counted as locked.
    let others = limits::held().map_or(0, |held| held.locked.saturating_sub(ours_before));
    let hugetlb = page > limits::page_size();
    let ours = !hugetlb && (others == 0 || !proc::any_locked(range));
    // SAFETY: locking changes no contents; an address that is not mapped is answered.
    unsafe { rustix::mm::mlock(range.start as *mut _, range.len()) }?;
    if ours {
        access.with(|state| state.locked = state.locked.saturating_add(range.len() as u64));
    }
    Ok(ours)
}

/// Lets go of a span that nobody uses any more, with the state locked.
pub(super) fn let_go(state: &mut State, span: &Span<Hold>) {
    let Some(held) = span.hold else { return };
    state.uncount(held.mode(), span.range.len());
    match held {
        Hold::Kernel(place) => {
            let unpinned = state.rings.ring(place).is_some_and(|ring| ring.unpin(place).is_ok());
            // A slot that could not be cleared is not used again.
            if unpinned {
                state.rings.give_back(place);
            }
        }
        Hold::Mlock { ours: true, .. } => {
            state.locked = state.locked.saturating_sub(span.range.len() as u64);
            for part in left_of(span) {
                // What has been registered anew since belongs to the new span.
                for gap in state.spans.gaps(&part) {
                    // SAFETY: unlocking changes no contents. Refused (nothing mapped there any
                    // more) there is nothing to unlock.
                    let _ = unsafe { rustix::mm::munlock(gap.start as *mut _, gap.len()) };
                }
            }
        }
        Hold::Mlock { .. } | Hold::None { .. } => {}
    }
}

/// The parts of the span whose mapping has not gone.
fn left_of(span: &Span<Hold>) -> impl Iterator<Item = Range<usize>> {
    let gone = span.gone.clone().unwrap_or(span.range.end..span.range.end);
    let parts = [span.range.start..gone.start, gone.end..span.range.end];
    parts.into_iter().filter(|part| !part.is_empty())
}

/// Keeps locked spans from using up the mappings a process may have: a locked island splits its
/// mapping in three, and at `vm.max_map_count` the program itself could map nothing more. Three
/// quarters may be used. Counting mappings is dear, so it is done as rarely as is safe.
#[derive(Debug, Default)]
struct MappingRoom {
    /// Spans that may be locked before counting again.
    left: u64,
    /// Spans to refuse before counting again.
    refuse: u64,
}

impl MappingRoom {
    /// How many refusals go by before it is worth counting again.
    const PATIENCE: u64 = 1024;

    fn for_one_more(&mut self) -> bool {
        if self.refuse > 0 {
            self.refuse -= 1;
            return false;
        }
        if self.left == 0 {
            let (Ok(most), Ok(now)) = (limits::max_map_count(), limits::map_count()) else {
                return true;
            };
            self.left = (most / 4 * 3).saturating_sub(now) / 2;
            if self.left == 0 {
                self.refuse = Self::PATIENCE;
                return false;
            }
        }
        self.left -= 1;
        true
    }
}

/// The page sizes of mappings seen so far. Wrong entries (a mapping replaced without an event)
/// cost time, not correctness: a range rounded too far is tried again unrounded.
#[derive(Debug, Default)]
pub(super) struct PageSizes {
    maps: Option<Maps>,
    known: BTreeMap<usize, (usize, usize)>,
}

impl PageSizes {
    const MOST: usize = 4096;

    /// The page size of the mapping that covers `addr`; the base page size if unknown.
    pub(super) fn at(&mut self, addr: usize) -> usize {
        if let Some((_, &(end, size))) = self.known.range(..=addr).next_back()
            && end > addr
        {
            return size;
        }
        self.ask(addr).unwrap_or_else(limits::page_size)
    }

    fn ask(&mut self, addr: usize) -> Option<usize> {
        if self.maps.is_none() {
            self.maps = Maps::open().ok();
        }
        let vma = self.maps.as_ref()?.vma_at(addr).ok()??;
        if self.known.len() >= Self::MOST {
            self.known.clear();
        }
        self.known.insert(vma.range.start, (vma.range.end, vma.page_size));
        Some(vma.page_size)
    }

    /// Forgets the mappings that share a byte with the range.
    pub(super) fn forget(&mut self, range: &Range<usize>) {
        self.known.retain(|&start, &mut (end, _)| end <= range.start || start >= range.end);
    }
}
