//! Pinned spans: pages held in place for as long as somebody has them registered.
//!
//! A [`Pinner`] keeps a map of *spans*, ranges of pages that are held as a whole and counted. A
//! registration pins only what no live span holds yet, rounded out to the pages of the mapping
//! (a huge page is pinned once, however many small regions lie in it); what is held already costs
//! a lock and a search. A span is let go when its last user is: until then all of it stays, also
//! the parts that only an earlier user needed.
//!
//! # Modes
//! Named `kernel`, `mlock`, `none` ([`PinMode`]). A pinner starts with the mode it is given; a
//! span that this mode refuses (io_uring denied by a seccomp profile, its budget used up, the
//! limit on mappings reached) falls to the next, counted in [`PinStats`] with the reason and the
//! command that mends it. A pin *fails* only where the verbs fail: memory that is not mapped, or
//! not writable where that is wanted. Whether the pages may be pinned at all is decided before,
//! by [`crate::accounting`].
//!
//! The kernel's pin always asks for writable pages. Read-only memory registered for reading
//! therefore falls to `mlock`. Whether memory is writable is checked when it is pinned: a pin that
//! finds its pages in a live span does not notice a later `mprotect`.
//!
//! # Mappings that go away
//! A pinned page outlives its mapping. Whoever watches mappings ([`crate::events`]) tells the
//! pinner by [`Pinner::detach`]: the spans concerned serve their users to the end, and memory
//! mapped there anew is pinned anew. Without being told, the pinner takes the new memory for the
//! old. A registration waits for the event in hand ([`crate::events::InHand::wait`]) before it pins.
//! [`PinGuard::read_pinned`] and [`PinGuard::write_pinned`] reach the pinned pages themselves,
//! as a NIC does, whatever the addresses map now.
//!
//! # Fork
//! Pins belong to the process that made them. In a forked child a pinner refuses, and dropping its
//! guards does nothing.

mod hold;
mod report;
mod ring;

pub use report::{Live, PinError, PinMode, PinStats, Refusal, UnknownPinMode};

use crate::error::OsError;
use crate::events::WatchGuard;
use crate::fork::Birthplace;
use crate::gone::Gone;
use crate::limits;
use crate::proc::Maps;
use crate::spans::{Ids, Probe, Span, SpanId};
use hold::{Access, Hold, State, hold, let_go, lock};
use ring::{Class, Transfer};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Holds the pages of a process (of a device) in place. Cloning shares the spans.
#[derive(Clone, Debug)]
pub struct Pinner {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    strongest: PinMode,
    base: usize,
    birthplace: Birthplace,
    state: Mutex<State>,
    gone: Gone,
    /// Told when a span that was being held is, or could not be.
    settled: Condvar,
}

/// What to pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinRequest {
    /// First address.
    pub addr: usize,
    /// Bytes; 0 pins nothing and succeeds.
    pub len: usize,
    /// Whether devices shall write: the pages must then be writable.
    pub write: bool,
    /// The size of the mapping's pages in bytes, if the caller knows it (it saves asking): a
    /// power of two from the base page to 1 GiB. For transparent huge pages only the caller can
    /// know; a wrong size costs time.
    pub page: Option<usize>,
}

/// Keeps the pages of one request in place; dropping lets go of what nobody else uses.
#[derive(Debug)]
pub struct PinGuard {
    inner: Arc<Inner>,
    spans: Ids,
    watched: bool,
}

/// Access through pinned pages was not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinnedAccessError {
    /// Part of the range is not in this guard's spans.
    #[error("{addr:#x} is not pinned by this guard")]
    Outside {
        /// The first address outside.
        addr: usize,
    },
    /// The pages are not pinned by the kernel.
    #[error("{addr:#x} is held by mode {mode}, only kernel keeps pages that were unmapped")]
    NotKernel {
        /// The address.
        addr: usize,
        /// How it is held.
        mode: PinMode,
    },
    /// The guard was made by the parent process.
    #[error("the guard was made before fork, by the parent process")]
    Forked,
    /// The kernel refused.
    #[error("{0}")]
    Os(#[from] OsError),
}

/// Spans up to this size are pinned under the lock: shorter than releasing and taking it again.
const INLINE: usize = 256 << 10;
/// As [`INLINE`], for spans in huge pages, which take the kernel less.
const INLINE_HUGE: usize = 4 << 20;

impl Pinner {
    /// A pinner whose spans are held by `strongest`, or by a weaker mode where that is refused.
    pub fn new(strongest: PinMode) -> Self {
        Self {
            inner: Arc::new(Inner {
                strongest,
                base: limits::page_size(),
                birthplace: Birthplace::here(),
                state: Mutex::new(State::new()),
                gone: Gone::default(),
                settled: Condvar::new(),
            }),
        }
    }

    /// The mode spans are held by at best.
    pub fn strongest(&self) -> PinMode {
        self.inner.strongest
    }

    /// Holds the pages of a range in place until the guard is dropped.
    ///
    /// # Errors
    /// [`PinError`], where `ibv_reg_mr` fails for the same memory.
    pub fn pin(&self, request: &PinRequest) -> Result<PinGuard, PinError> {
        let inner = &self.inner;
        if !inner.birthplace.is_here() {
            return Err(PinError::Forked);
        }
        let PinRequest { addr, len, write, page } = *request;
        let exact = round_out(addr, len, inner.base).ok_or(PinError::Wraps { addr, len })?;
        if len == 0 {
            return Ok(self.guard(Ids::None));
        }
        if exact.len() > ring::MOST_BYTES && !mapped(&exact) {
            return Err(PinError::Fault { addr, len, write });
        }
        let mut state = inner.lock();
        let found = state.spans.probe(&exact);
        if let Probe::Covered(id) = found
            && let Some(span) = state.spans.get_mut(id)
            && span.hold.is_some_and(|held| held.writable() || !write)
        {
            span.users += 1;
            state.stats.shared += 1;
            let watched = state.is_watched(id);
            let mut guard = self.guard(Ids::One(id));
            guard.watched = watched;
            return Ok(guard);
        }
        let page = match page {
            Some(page) if page.is_power_of_two() && page <= 1 << 30 => page.max(inner.base),
            Some(_) => inner.base,
            None => state.page_sizes().at(exact.start),
        };
        let wide = match round_out(addr, len, page) {
            Some(wide) if page > inner.base => wide,
            _ => exact.clone(),
        };
        if wide == exact && found == Probe::Free && exact.len() <= INLINE {
            return inner.pin_at_once(state, exact, write, false).map(|ids| self.guard(ids));
        }
        let hugetlb = page > inner.base;
        match inner.acquire(state, &wide, write, hugetlb) {
            // Rounded too far: the page size was wrong.
            Err(PinError::Fault { .. }) if wide != exact => {
                let mut state = lock(&inner.state);
                state.page_sizes().forget(&exact);
                inner.acquire(state, &exact, write, false)
            }
            other => other,
        }
        .map(|ids| self.guard(ids))
        .map_err(|error| match error {
            PinError::Fault { .. } => PinError::Fault { addr, len, write },
            other => other,
        })
    }

    /// Tells that the mapping of a range has gone, been discarded or moved away. Guards keep what
    /// they hold; pins made after this call start anew there. Fit for the thread that reports
    /// events: allocates nothing and waits for no pin under way.
    pub fn detach(&self, range: Range<usize>) {
        if !range.is_empty() && self.inner.birthplace.is_here() {
            self.inner.gone.leave(&range);
        }
    }

    /// What is held, how, and why not better.
    pub fn stats(&self) -> PinStats {
        if !self.inner.birthplace.is_here() {
            return PinStats::default();
        }
        lock(&self.inner.state).stats.clone()
    }

    fn guard(&self, spans: Ids) -> PinGuard {
        PinGuard { inner: Arc::clone(&self.inner), spans, watched: false }
    }
}

impl Inner {
    /// Locks the state and takes over what has gone meanwhile.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        if let Some(gone) = self.gone.take() {
            for range in gone.iter() {
                state.page_sizes().forget(&range);
                state.spans.detach(&range);
            }
        }
        state
    }

    /// Counts on the spans in `range` and holds what lies between them.
    fn acquire(
        &self,
        state: MutexGuard<'_, State>,
        range: &Range<usize>,
        write: bool,
        hugetlb: bool,
    ) -> Result<Ids, PinError> {
        let inline = if hugetlb { INLINE_HUGE } else { INLINE };
        if range.len() <= inline && state.spans.probe(range) == Probe::Free {
            return self.pin_at_once(state, range.clone(), write, hugetlb);
        }
        let class = class_of(range, hugetlb);
        let (mut ids, pending) = self.claim(state, range, write)?;
        let mut failure = None;
        for (piece, id) in pending {
            let held = match failure {
                Some(_) => None,
                None => {
                    let mut access = Access::Free(&self.state);
                    hold(&mut access, self.strongest, &piece, write, class)
                        .map_err(|error| failure = Some(error))
                        .ok()
                }
            };
            let mut state = lock(&self.state);
            if let Some(held) = held {
                state.count(held.mode(), piece.len());
                if let Some(span) = state.spans.get_mut(id) {
                    span.hold = Some(held);
                }
            } else {
                // Those who wait for the span look again and find a gap.
                state.release(id);
                ids.retain(|&other| other != id);
            }
        }
        self.settled.notify_all();
        match failure {
            None => Ok(ids.into()),
            Some(error) => {
                self.release(&ids);
                Err(error)
            }
        }
    }

    /// Holds a small range in which there is no span, without letting go of the lock.
    fn pin_at_once(
        &self,
        mut state: MutexGuard<'_, State>,
        range: Range<usize>,
        write: bool,
        hugetlb: bool,
    ) -> Result<Ids, PinError> {
        let class = class_of(&range, hugetlb);
        let mut access = Access::Held(&mut state);
        let held = hold(&mut access, self.strongest, &range, write, class)?;
        state.count(held.mode(), range.len());
        Ok(Ids::One(state.spans.insert(range, Some(held))))
    }

    /// Counts on the live spans in `range` and claims the gaps, so that nobody else pins them;
    /// waits while others are at it. Returns all spans, and the gaps among them with their ids.
    #[expect(clippy::type_complexity, reason = "two lists, named above")]
    fn claim(
        &self,
        mut state: MutexGuard<'_, State>,
        range: &Range<usize>,
        write: bool,
    ) -> Result<(Vec<SpanId>, Vec<(Range<usize>, SpanId)>), PinError> {
        let fault = PinError::Fault { addr: range.start, len: range.len(), write };
        let mut ids = Vec::new();
        loop {
            ids.clear();
            let mut unchecked = Vec::new();
            let mut unsettled = false;
            for (span_range, id) in state.spans.overlapping(range) {
                match state.spans.get(id).and_then(|span| span.hold) {
                    None => unsettled = true,
                    Some(held) if write && !held.writable() => {
                        let start = span_range.start.max(range.start);
                        unchecked.push(start..span_range.end.min(range.end));
                    }
                    Some(_) => {}
                }
                ids.push(id);
            }
            if unsettled {
                state = self.settled.wait(state).unwrap_or_else(|poison| poison.into_inner());
                continue;
            }
            for part in unchecked {
                // SAFETY: the caller registers the memory for devices to write; populating
                // changes no contents.
                unsafe { crate::prefault::populate_write(part) }.map_err(|_| fault)?;
            }
            break;
        }
        for &id in &ids {
            if let Some(span) = state.spans.get_mut(id) {
                span.users += 1;
            }
        }
        let mut pending = Vec::new();
        for gap in state.spans.gaps(range) {
            let mut start = gap.start;
            while start < gap.end {
                let piece = start..gap.end.min(start.saturating_add(ring::MOST_BYTES));
                start = piece.end;
                let id = state.spans.insert(piece.clone(), None);
                ids.push(id);
                pending.push((piece, id));
            }
        }
        Ok((ids, pending))
    }

    fn release(&self, ids: &[SpanId]) {
        if ids.is_empty() || !self.birthplace.is_here() {
            return;
        }
        let mut large: Vec<Span<Hold>> = Vec::new();
        let mut state = self.lock();
        for &id in ids {
            if let Some(span) = state.release(id) {
                match span.hold {
                    Some(Hold::Kernel(_)) if span.range.len() > INLINE => large.push(span),
                    _ => let_go(&mut state, &span),
                }
            }
        }
        for span in large {
            let Some(Hold::Kernel(place)) = span.hold else { continue };
            state.uncount(PinMode::Kernel, span.range.len());
            let Some(ring) = state.rings.ring(place).cloned() else { continue };
            // Unpinning many pages takes long; others need not wait for it.
            drop(state);
            let unpinned = ring.unpin(place).is_ok();
            state = lock(&self.state);
            if unpinned {
                state.rings.give_back(place);
            }
        }
    }
}

impl PinGuard {
    /// Whether all of the pages were held already, as one span that keeps a watch over its
    /// mappings: then this guard need not be watched for itself.
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// Has the spans keep a watch over their mappings for as long as anybody counts on them.
    pub fn keep(&self, watch: WatchGuard) {
        let watch = Arc::new(watch);
        let mut state = lock(&self.inner.state);
        self.spans.as_slice().iter().for_each(|&id| state.keep_watch(id, &watch));
    }

    /// The weakest mode among the spans of this guard; [`PinMode::Kernel`] for an empty range.
    pub fn mode(&self) -> PinMode {
        let spans = self.spans.as_slice();
        if spans.is_empty() || !self.inner.birthplace.is_here() {
            return PinMode::Kernel;
        }
        let state = lock(&self.inner.state);
        let holds = spans.iter().filter_map(|&id| state.spans.get(id)?.hold);
        holds.map(Hold::mode).max().unwrap_or(PinMode::Kernel)
    }

    /// Reads the pinned pages that were at `addr` when they were pinned, whatever is mapped there
    /// now: what a NIC reads.
    ///
    /// # Errors
    /// [`PinnedAccessError`]; part of `into` may have been read.
    pub fn read_pinned(&self, addr: usize, into: &mut [u8]) -> Result<(), PinnedAccessError> {
        let mut done = 0;
        while done < into.len() {
            let (place, ring, len) = self.locate(addr.wrapping_add(done), into.len() - done)?;
            let Some(part) = into.get_mut(done..done + len) else { break };
            ring.transfer(place, addr.wrapping_add(done), Transfer::Read(part))?;
            done += len;
        }
        Ok(())
    }

    /// Writes the pinned pages that were at `addr` when they were pinned, whatever is mapped
    /// there now: what a NIC writes. The memory must be one a device may write.
    ///
    /// # Errors
    /// [`PinnedAccessError`]; part of `from` may have been written.
    pub fn write_pinned(&self, addr: usize, from: &[u8]) -> Result<(), PinnedAccessError> {
        let mut done = 0;
        while done < from.len() {
            let (place, ring, len) = self.locate(addr.wrapping_add(done), from.len() - done)?;
            let Some(part) = from.get(done..done + len) else { break };
            ring.transfer(place, addr.wrapping_add(done), Transfer::Write(part))?;
            done += len;
        }
        Ok(())
    }

    /// The slot that holds `addr`, and how many of `len` bytes from there it holds.
    fn locate(
        &self,
        addr: usize,
        len: usize,
    ) -> Result<(ring::Place, Arc<ring::Ring>, usize), PinnedAccessError> {
        if !self.inner.birthplace.is_here() {
            return Err(PinnedAccessError::Forked);
        }
        let state = lock(&self.inner.state);
        for &id in self.spans.as_slice() {
            let Some(span) = state.spans.get(id) else { continue };
            if !span.range.contains(&addr) {
                continue;
            }
            return match span.hold {
                Some(Hold::Kernel(place)) => {
                    let ring = state.rings.ring(place).cloned();
                    let ring = ring.ok_or(PinnedAccessError::Outside { addr })?;
                    Ok((place, ring, len.min(span.range.end - addr)))
                }
                other => Err(PinnedAccessError::NotKernel {
                    addr,
                    mode: other.map_or(PinMode::None, Hold::mode),
                }),
            };
        }
        Err(PinnedAccessError::Outside { addr })
    }
}

impl Drop for PinGuard {
    fn drop(&mut self) {
        self.inner.release(self.spans.as_slice());
    }
}

fn class_of(range: &Range<usize>, hugetlb: bool) -> Class {
    if hugetlb || range.len() > INLINE { Class::Wide } else { Class::Small }
}

/// The pages of `page` bytes that `addr..addr + len` touches; `None` if that wraps.
fn round_out(addr: usize, len: usize, page: usize) -> Option<Range<usize>> {
    let end = addr.checked_add(len)?.checked_next_multiple_of(page)?;
    Some(addr / page * page..end)
}

/// Whether all of a large range is mapped: asked before it is cut into pieces, as a wrong length
/// may be anything. True if the kernel does not tell.
fn mapped(range: &Range<usize>) -> bool {
    let Ok(maps) = Maps::open() else { return true };
    let mut at = range.start;
    while at < range.end {
        match maps.vma_at(at) {
            Ok(Some(vma)) if vma.range.end > at => at = vma.range.end,
            Ok(_) => return false,
            Err(_) => return true,
        }
    }
    true
}
