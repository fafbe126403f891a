//! A ring of records in memory that two processes share: one writes, one reads.
//!
//! A record begins at a multiple of [`ALIGN`] with a word that says its length, written last; as long
//! as the word is 0 there is nothing. So a short record is seen with the cache line that it is in. The
//! writer clears the place behind a record before it writes the record's word: it is always empty. A
//! record that would not fit in front of the end of the ring leaves a gap there and begins at the start.
//!
//! What the writer has written and what the reader has read is counted without end; the reader tells
//! how far it is. Neither side trusts what the other writes: counters and lengths are checked against
//! the ring before they are used, each is read once, and what does not fit is [`Broken`]. Records
//! are handed out as [`Bytes`] and [`Room`], which nobody takes for unchanging.
#![allow(unsafe_code)]

use super::barrier;
use super::bell::Bell;
use crate::payload::{Bytes, Room};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Records begin at multiples of this: a cache line.
const ALIGN: u64 = 64;
/// Bytes of the word at the start of a record.
const WORD: usize = 8;
/// What the word says where nothing is yet, and that of a gap; that of a record says its length and 1.
const NOTHING: u32 = 0;
const GAP: u32 = u32::MAX;

/// Bytes of memory that a ring of this capacity takes.
pub(super) const fn footprint(capacity: usize) -> usize {
    size_of::<Control>() + capacity
}

/// What is said beside the records. Each has cache lines of its own.
#[derive(Debug)]
#[repr(C, align(4096))]
struct Control {
    read: Counter,
    /// Rings when something was written.
    arrival: Bell,
    /// Rings when the reader has made room.
    room: Bell,
}

/// Bytes that the reader has read, on and on.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Counter(AtomicU64);

/// The other side has written what no ring holds. It is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// A ring in shared memory, as either side sees it.
#[derive(Clone, Copy, Debug)]
struct Ring {
    control: *const Control,
    data: *mut u8,
    capacity: u64,
}

// SAFETY: the counters are atomics; the data is touched by who holds the one `Writing` and the one
// `Reading` of this process, each where its counters let it.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// # Safety
    /// The memory is mapped, shared or not, readable and writable, for as long as the ring is used,
    /// and touched by nobody in this process but through rings.
    unsafe fn new(memory: Range<usize>) -> Option<Self> {
        let capacity = memory.len().checked_sub(size_of::<Control>())? as u64;
        let fits = memory.start.is_multiple_of(align_of::<Control>())
            && capacity >= ALIGN
            && capacity.is_power_of_two();
        let data = memory.start.wrapping_add(size_of::<Control>());
        fits.then_some(Self {
            control: memory.start as *const Control,
            data: data as *mut u8,
            capacity,
        })
    }

    fn control(&self) -> &Control {
        // SAFETY: mapped and aligned, by the promise of `new`; it consists of atomics only, for
        // which any bits are a value and which others may change.
        unsafe { &*self.control }
    }

    /// The address of a counter's place, and the bytes from there to the end of the ring.
    fn place(&self, at: u64) -> (*mut u8, u64) {
        let offset = at & (self.capacity - 1);
        // SAFETY: less than the capacity.
        (unsafe { self.data.add(offset as usize) }, self.capacity - offset)
    }

    /// The word of the record there: its counters are multiples of `ALIGN`, so it is aligned.
    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: within the ring and aligned; any bits are a value.
        unsafe { &*self.place(at).0.cast::<AtomicU32>() }
    }
}

/// The writing side.
#[derive(Debug)]
pub(super) struct Writing {
    ring: Ring,
    written: u64,
    /// Bytes that were read when last looked at.
    read: u64,
    /// Bytes of the gap in front of the record that is being written, and of the record.
    gap: u64,
    length: usize,
    /// The least length for which there was no room.
    wanted: Option<usize>,
    /// Who asks for room in vain asks again soon, and needs no bell.
    pub(super) asks_again: bool,
    /// As [`Bell::ring`].
    passes: bool,
}

/// Bytes that a record of this length takes up.
fn span(length: usize) -> u64 {
    ((length + WORD) as u64).next_multiple_of(ALIGN)
}

impl Writing {
    /// The writing side of a fresh ring; `None` if the memory does not fit one.
    ///
    /// # Safety
    /// As [`Ring::new`]; it is the only writing side.
    pub(super) unsafe fn new(memory: Range<usize>) -> Option<Self> {
        // SAFETY: by the caller's promise.
        let ring = unsafe { Ring::new(memory) }?;
        let passes = barrier::is_there();
        Some(Self {
            ring,
            written: 0,
            read: 0,
            gap: 0,
            length: 0,
            wanted: None,
            asks_again: false,
            passes,
        })
    }

    /// The longest record that the ring holds.
    pub(super) fn longest(&self) -> usize {
        (self.ring.capacity / 2) as usize - WORD
    }

    /// Room for the next record, of `length` bytes, if there is any now; else whoever makes room rings,
    /// unless it is [asked for again](Writing::asks_again) anyway. The record is written when it is
    /// [committed](Writing::commit); before that, room may be asked for anew.
    pub(super) fn room(&mut self, length: usize) -> Result<Option<Room<'_>>, Broken> {
        if length > self.longest() {
            return Ok(None);
        }
        if !self.begin(length)? {
            // Who wanted less is served by less.
            self.wanted = Some(self.wanted.map_or(length, |wanted| wanted.min(length)));
            if self.asks_again {
                return Ok(None);
            }
            self.ring.control().room.hang();
            if !self.begin(length)? {
                return Ok(None);
            }
        }
        if self.wanted.is_some_and(|wanted| wanted <= length) {
            self.stop_wanting();
        }
        let (start, _) = self.ring.place(self.written + self.gap);
        // SAFETY: the record's bytes from there were found to lie within the ring and behind what the
        // reader has to read, and nobody else in this process writes.
        Ok(Some(unsafe { Room::shared(start.add(WORD), length) }))
    }

    /// Whoever makes the room that was asked for in vain is to ring from now on; whether there is enough
    /// by now. That is told once: who still wants it asks again.
    pub(super) fn hang_room_bell(&mut self) -> Result<bool, Broken> {
        let Some(length) = self.wanted else { return Ok(false) };
        self.ring.control().room.hang();
        let fits = self.begin(length)?;
        if fits {
            self.stop_wanting();
        }
        Ok(fits)
    }

    fn stop_wanting(&mut self) {
        self.wanted = None;
        self.ring.control().room.take_down();
    }

    /// Whether there is room for a record of `length` bytes: begins it then.
    fn begin(&mut self, length: usize) -> Result<bool, Broken> {
        let (_, before_end) = self.ring.place(self.written);
        let span = span(length);
        self.gap = if span > before_end { before_end } else { 0 };
        self.length = length;
        // The place behind it is cleared.
        self.has_room(self.gap + span + ALIGN)
    }

    fn has_room(&mut self, bytes: u64) -> Result<bool, Broken> {
        if self.written + bytes - self.read <= self.ring.capacity {
            return Ok(true);
        }
        // Acquire: what was read there was read before it is written over.
        let read = self.ring.control().read.0.load(Ordering::Acquire);
        if read < self.read || read > self.written {
            return Err(Broken);
        }
        self.read = read;
        Ok(self.written + bytes - self.read <= self.ring.capacity)
    }

    /// The record in the room that was asked for last is complete. Whether the reader is to be woken.
    #[must_use]
    pub(super) fn commit(&mut self) -> bool {
        let (before, start) = (self.written, self.written + self.gap);
        let end = start + span(self.length);
        self.ring.word(end).store(NOTHING, Ordering::Relaxed);
        self.ring.word(start).store(self.length as u32 + 1, Ordering::Release);
        if self.gap > 0 {
            self.ring.word(before).store(GAP, Ordering::Release);
        }
        self.written = end;
        self.ring.control().arrival.ring(self.passes)
    }

    /// How far the reader says that it has read, if that is not all.
    pub(super) fn unread(&self) -> Option<u64> {
        let read = self.ring.control().read.0.load(Ordering::Acquire);
        (read != self.written).then_some(read)
    }

    /// How far it is written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }
}

/// Whether there is something to read, as everyone may see it.
#[derive(Debug)]
pub(super) struct Arrivals {
    ring: Ring,
    read: AtomicU64,
}

impl Arrivals {
    /// Whether there is a record, or something else to be found out by [`Reading::next`]; of what is
    /// just being read this may say so, too.
    #[inline]
    pub(super) fn any(&self) -> bool {
        let read = self.read.load(Ordering::Relaxed);
        self.ring.word(read).load(Ordering::Relaxed) != NOTHING
    }

    /// The other side is read this far.
    pub(super) fn are_read(&self, reading: &Reading) {
        self.read.store(reading.read, Ordering::Relaxed);
    }

    /// Whether the writer is to be woken, which waits for room: to be asked again and again, and last
    /// after the arrival bell was hung up.
    #[inline]
    #[must_use]
    pub(super) fn has_made_room(&self) -> bool {
        self.ring.control().room.ring_if_seen()
    }
}

/// The reading side.
#[derive(Debug)]
pub(super) struct Reading {
    ring: Ring,
    read: u64,
    /// Of what was read, what the writer knows of.
    told: u64,
}

impl Reading {
    /// The reading side of a fresh ring; `None` if the memory does not fit one.
    ///
    /// # Safety
    /// As [`Ring::new`]; it is the only reading side.
    pub(super) unsafe fn new(memory: Range<usize>) -> Option<Self> {
        // SAFETY: by the caller's promise.
        let ring = unsafe { Ring::new(memory) }?;
        Some(Self { ring, read: 0, told: 0 })
    }

    /// What others may see of it.
    pub(super) fn arrivals(&self) -> Arrivals {
        Arrivals { ring: self.ring, read: AtomicU64::new(self.read) }
    }

    /// The next record, if there is one, for `use_it`; it is read then.
    pub(super) fn next<T>(
        &mut self,
        use_it: impl FnOnce(Bytes<'_>) -> T,
    ) -> Result<Option<T>, Broken> {
        loop {
            let (start, before_end) = self.ring.place(self.read);
            // Acquire: what was written before the word is seen.
            let length = match self.ring.word(self.read).load(Ordering::Acquire) {
                NOTHING => return Ok(None),
                // None is as long as the ring.
                GAP if before_end == self.ring.capacity => return Err(Broken),
                GAP => {
                    self.read += before_end;
                    continue;
                }
                word => word as usize - 1,
            };
            let span = span(length);
            if span > before_end {
                return Err(Broken);
            }
            // SAFETY: `span` bytes from there lie within the ring.
            let used = use_it(unsafe { Bytes::shared(start.add(WORD), length) });
            self.read += span;
            return Ok(Some(used));
        }
    }

    /// Whether there is a record, or something else to be found out by [`Reading::next`].
    pub(super) fn is_ready(&self) -> bool {
        self.ring.word(self.read).load(Ordering::Acquire) != NOTHING
    }

    /// Gives the writer the room of what was read.
    pub(super) fn give_back(&mut self) {
        if self.told != self.read {
            self.told = self.read;
            self.ring.control().read.0.store(self.read, Ordering::Release);
        }
    }

    /// Bytes that were read and not given back.
    pub(super) fn kept(&self) -> u64 {
        self.read - self.told
    }

    /// The bell that rings when something is written.
    pub(super) fn arrival_bell(&self) -> &Bell {
        &self.ring.control().arrival
    }
}

#[cfg(test)]
mod tests;
