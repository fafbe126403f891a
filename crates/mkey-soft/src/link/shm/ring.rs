//! A ring of records in memory that two processes share: one writes, one reads.
//!
//! The writer's counter and the reader's counter go on without end; what lies between them was
//! written and not read. A record begins at a multiple of [`ALIGN`] with a word that says its
//! length; one that would not fit in front of the end of the ring leaves a gap there and begins at
//! the start. Neither side trusts what the other writes: counters and lengths are checked against
//! the ring before they are used, each is read once, and what does not fit is [`Broken`]. Records
//! are handed out as [`Bytes`] and [`Room`], which nobody takes for unchanging.
#![allow(unsafe_code)]

use super::bell::Bell;
use crate::payload::{Bytes, Room};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Records begin at multiples of this: a cache line.
const ALIGN: u64 = 64;
/// Bytes of the word at the start of a record.
const WORD: usize = 8;
/// What the word of a gap says.
const GAP: u32 = u32::MAX;

/// Bytes of memory that a ring of this capacity takes.
pub(super) const fn footprint(capacity: usize) -> usize {
    size_of::<Control>() + capacity
}

/// The counters; each side writes its own cache lines, but for the bells.
#[derive(Debug)]
#[repr(C, align(4096))]
struct Control {
    writer: Writer,
    reader: Reader,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Writer {
    /// Bytes written, on and on.
    written: AtomicU64,
    /// Rings when the reader has made room.
    room: Bell,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Reader {
    /// Bytes read, on and on.
    read: AtomicU64,
    /// Rings when something was written.
    arrival: Bell,
}

/// The other side has written what no ring holds. It is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// A ring in shared memory, as either side sees it.
#[derive(Debug)]
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
            && capacity > 0
            && capacity.is_multiple_of(ALIGN);
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
        let offset = at % self.capacity;
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
    /// What the reader knows of: a gap may lie behind it.
    told: u64,
    /// Bytes that were read when last looked at.
    read: u64,
    /// Bytes of the record that is being written. The word in the ring says the same, but the other
    /// side may change that.
    length: usize,
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
        Some(Self { ring, written: 0, told: 0, read: 0, length: 0 })
    }

    /// The longest record that the ring holds.
    pub(super) fn longest(&self) -> usize {
        (self.ring.capacity / 2) as usize - WORD
    }

    /// Room for the next record, of `length` bytes, if there is any now. The record is written when
    /// it is [committed](Writing::commit); before that, room may be asked for anew.
    pub(super) fn room(&mut self, length: usize) -> Result<Option<Room<'_>>, Broken> {
        Ok(if self.begin(length)? { Some(self.begun()) } else { None })
    }

    /// The same; if there is none, whoever makes room after this rings.
    pub(super) fn room_or_ring(&mut self, length: usize) -> Result<Option<Room<'_>>, Broken> {
        if !self.begin(length)? {
            self.room_bell().hang();
            // It may have been made just before.
            return self.room(length);
        }
        Ok(Some(self.begun()))
    }

    /// Whether there is room for a record of `length` bytes: begins it then.
    fn begin(&mut self, length: usize) -> Result<bool, Broken> {
        if length > self.longest() {
            return Ok(false);
        }
        let (_, before_end) = self.ring.place(self.written);
        let span = span(length);
        let gap = if span > before_end { before_end } else { 0 };
        if !self.has_room(gap + span)? {
            return Ok(false);
        }
        if gap > 0 {
            self.ring.word(self.written).store(GAP, Ordering::Relaxed);
            self.written += gap;
        }
        self.ring.word(self.written).store(length as u32, Ordering::Relaxed);
        self.length = length;
        Ok(true)
    }

    /// The room of the record that has begun just now.
    fn begun(&mut self) -> Room<'_> {
        let (start, _) = self.ring.place(self.written);
        // SAFETY: `begin` has found the record's bytes from there to lie within the ring and behind what
        // the reader has to read, and nobody else in this process writes.
        unsafe { Room::shared(start.add(WORD), self.length) }
    }

    fn has_room(&mut self, bytes: u64) -> Result<bool, Broken> {
        if self.written + bytes - self.read <= self.ring.capacity {
            return Ok(true);
        }
        // Acquire: what was read there was read before it is written over.
        let read = self.ring.control().reader.read.load(Ordering::Acquire);
        if read < self.read || read > self.written {
            return Err(Broken);
        }
        self.read = read;
        Ok(self.written + bytes - self.read <= self.ring.capacity)
    }

    /// The record in the room that was asked for last is complete. Whether the reader is to be woken.
    #[must_use]
    pub(super) fn commit(&mut self) -> bool {
        self.written += span(self.length);
        self.told = self.written;
        let control = self.ring.control();
        control.writer.written.store(self.written, Ordering::Release);
        control.reader.arrival.ring()
    }

    /// How far the reader says that it has read, if that is not all.
    pub(super) fn unread(&self) -> Option<u64> {
        let read = self.ring.control().reader.read.load(Ordering::Acquire);
        (read != self.told).then_some(read)
    }

    /// How far it is written that the reader knows of.
    pub(super) fn told(&self) -> u64 {
        self.told
    }

    /// The bell that rings when there is room.
    pub(super) fn room_bell(&self) -> &Bell {
        &self.ring.control().writer.room
    }
}

/// The reading side.
#[derive(Debug)]
pub(super) struct Reading {
    ring: Ring,
    read: u64,
    /// Bytes that were written when last looked at.
    written: u64,
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
        Some(Self { ring, read: 0, written: 0, told: 0 })
    }

    /// The next record, if there is one, for `use_it`; it is read then.
    pub(super) fn next<T>(
        &mut self,
        use_it: impl FnOnce(Bytes<'_>) -> T,
    ) -> Result<Option<T>, Broken> {
        loop {
            if self.written == self.read && !self.look()? {
                return Ok(None);
            }
            let there = self.written - self.read;
            let (start, before_end) = self.ring.place(self.read);
            let length = self.ring.word(self.read).load(Ordering::Relaxed);
            if length == GAP {
                // A gap is never all that was written.
                if before_end >= there {
                    return Err(Broken);
                }
                self.read += before_end;
                continue;
            }
            let span = span(length as usize);
            if span > there.min(before_end) {
                return Err(Broken);
            }
            // SAFETY: `span` bytes from there lie within the ring.
            let used = use_it(unsafe { Bytes::shared(start.add(WORD), length as usize) });
            self.read += span;
            return Ok(Some(used));
        }
    }

    fn look(&mut self) -> Result<bool, Broken> {
        // Acquire: what was written there is seen.
        let written = self.ring.control().writer.written.load(Ordering::Acquire);
        let more = written.checked_sub(self.read).ok_or(Broken)?;
        if more > self.ring.capacity || !more.is_multiple_of(ALIGN) {
            return Err(Broken);
        }
        self.written = written;
        Ok(more > 0)
    }

    /// Whether there is a record, or something else to be found out by [`Reading::next`].
    pub(super) fn is_ready(&self) -> bool {
        self.ring.control().writer.written.load(Ordering::Acquire) != self.read
    }

    /// Gives the writer the room of what was read. Whether the writer is to be woken.
    #[must_use]
    pub(super) fn give_back(&mut self) -> bool {
        if self.told == self.read {
            return false;
        }
        self.told = self.read;
        let control = self.ring.control();
        control.reader.read.store(self.read, Ordering::Release);
        control.writer.room.ring()
    }

    /// Bytes that were read and not given back.
    pub(super) fn kept(&self) -> u64 {
        self.read - self.told
    }

    /// The bell that rings when something is written.
    pub(super) fn arrival_bell(&self) -> &Bell {
        &self.ring.control().reader.arrival
    }
}

#[cfg(test)]
mod tests;
