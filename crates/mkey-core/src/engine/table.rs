//! The protection table (MPT): entries in chunks that are made when first needed, so that
//! registering does not slow down as it fills and 2^24 - 1 keys cost memory only when used.

use super::entry::Entry;
use super::permutation::Permutation;
use super::sync::{Mutex, lock};
use crate::key::{Key, MAX_KEYS};
use std::collections::VecDeque;
use std::sync::OnceLock;

/// 2 MiB of entries: one huge page where the kernel gives them.
const CHUNK_BITS: u32 = if cfg!(loom) { 1 } else { 15 };
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNKS: usize = if cfg!(loom) { 2 } else { 1 << (24 - CHUNK_BITS) };

/// A freed slot rests until so many others were freed after it, unless the table is full.
const REST: usize = 1024;

/// Arrays, so that the places of a slot need no check: every look-up goes through here.
type Chunk = [Entry; CHUNK];

#[derive(Debug)]
pub(super) struct Table {
    chunks: Box<[OnceLock<Box<Chunk>>; CHUNKS]>,
    permutation: Permutation,
    slots: Mutex<Slots>,
    most: u32,
}

#[derive(Debug)]
struct Slots {
    /// Slots from here on were never used.
    fresh: u32,
    live: u32,
    resting: VecDeque<u32>,
}

impl Table {
    pub(super) fn new(most: u32, seed: u64) -> Self {
        Self {
            chunks: boxed(OnceLock::new),
            permutation: Permutation::new(seed),
            // Room for those that rest at least: freeing allocates only where very many are freed.
            slots: Mutex::new(Slots {
                fresh: 0,
                live: 0,
                resting: VecDeque::with_capacity(REST + 1),
            }),
            most: most.min(MAX_KEYS),
        }
    }

    /// The slot of a key's index.
    #[inline(always)]
    pub(super) fn slot(&self, key: Key) -> u32 {
        self.permutation.slot(key)
    }

    /// The slot of a key's index, and its entry if its chunk was ever used.
    #[inline(always)]
    pub(super) fn find(&self, key: Key) -> (u32, Option<&Entry>) {
        let slot = self.slot(key);
        (slot, self.entry(slot))
    }

    #[inline(always)]
    pub(super) fn entry(&self, slot: u32) -> Option<&Entry> {
        self.chunks.get(slot as usize >> CHUNK_BITS)?.get()?.get(slot as usize % CHUNK)
    }

    pub(super) fn index(&self, slot: u32) -> u32 {
        self.permutation.index(slot)
    }

    /// A slot whose entry is empty, or `None` when `most` are in use.
    pub(super) fn allocate(&self) -> Option<(u32, &Entry)> {
        let slot = self.allocate_slot()?;
        let chunk =
            self.chunks.get(slot as usize >> CHUNK_BITS)?.get_or_init(|| boxed(Entry::default));
        Some((slot, chunk.get(slot as usize % CHUNK)?))
    }

    fn allocate_slot(&self) -> Option<u32> {
        let mut slots = lock(&self.slots);
        if slots.live >= self.most {
            return None;
        }
        let reuse = slots.resting.len() > REST || slots.fresh as usize >= CHUNK * CHUNKS;
        let slot = match reuse.then(|| slots.resting.pop_front()).flatten() {
            Some(slot) => slot,
            None => {
                // Index 0 is never handed out (R-KEY-03).
                if self.permutation.index(slots.fresh) == 0 {
                    slots.fresh += 1;
                }
                if slots.fresh as usize >= CHUNK * CHUNKS {
                    slots.resting.pop_front()?
                } else {
                    slots.fresh += 1;
                    slots.fresh - 1
                }
            }
        };
        slots.live += 1;
        Some(slot)
    }

    /// Gives back a slot whose entry is empty.
    pub(super) fn free(&self, slot: u32) {
        let mut slots = lock(&self.slots);
        slots.live -= 1;
        slots.resting.push_back(slot);
    }

    pub(super) fn live(&self) -> u32 {
        lock(&self.slots).live
    }

    pub(super) const fn most(&self) -> u32 {
        self.most
    }

    /// Every slot that was ever used.
    pub(super) fn used(&self) -> impl Iterator<Item = (u32, &Entry)> {
        let fresh = lock(&self.slots).fresh;
        (0..fresh).filter_map(|slot| self.entry(slot).map(|entry| (slot, entry)))
    }

    /// Bytes that the entries and the list of freed slots take.
    pub(super) fn bytes(&self) -> u64 {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        let resting = lock(&self.slots).resting.capacity() * size_of::<u32>();
        (chunks * CHUNK * size_of::<Entry>() + resting) as u64
    }
}

/// An array made in the place where it stays; a large one would not fit on the stack.
fn boxed<T, const N: usize>(make: impl Fn() -> T) -> Box<[T; N]> {
    let made: Box<[T]> = (0..N).map(|_| make()).collect();
    match made.try_into() {
        Ok(array) => array,
        Err(_) => unreachable!("as many were made as the array has"),
    }
}
