//! The slabs of a pool, and which of them serves.
//!
//! The first slab with room serves, so that the later ones fall empty and can be given back.

use super::runs::{RunId, Runs};
use super::source::{Obtained, SlabReport};
use crate::keep::Hold;
use crate::pd::PdTag;
use crate::slice::Slice;
use mkey_core::address::IoAddr;
use mkey_core::key::{Lkey, Rkey};
use mkey_core::rights::Rights;
use std::ptr::NonNull;

/// Registered memory and its runs.
pub(super) struct Slab {
    memory: Slice,
    report: SlabReport,
    runs: Runs,
    /// Bytes before the first whole granule.
    skipped: usize,
}

impl Slab {
    /// Bytes registered.
    pub(super) fn len(&self) -> usize {
        self.memory.len
    }

    fn is_empty(&self) -> bool {
        self.runs.free() == self.runs.granules()
    }
}

/// A piece of a slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) granules: u32,
    start: NonNull<u8>,
    iova: IoAddr,
    lkey: Lkey,
    rkey: Option<Rkey>,
    rights: Rights,
    pd: PdTag,
    private: bool,
    slab: usize,
    run: RunId,
}

impl Piece {
    /// Its first `len` bytes, kept by `hold`.
    #[inline]
    pub(super) fn slice(&self, len: usize, hold: Hold) -> Slice {
        let Self { start, iova, lkey, rkey, rights, pd, private, .. } = *self;
        Slice { start, len, iova, lkey, rkey, rights, pd, private, mapped: false, hold }
    }
}

/// What a request needs, in granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) granules: u32,
    /// A power of two.
    pub(super) align: u32,
}

/// All slabs.
pub(super) struct Arena {
    /// Bytes of a granule, as a power of two.
    shift: u32,
    slabs: Vec<Option<Slab>>,
    registered: usize,
    empty: usize,
}

impl Arena {
    /// No slabs yet, with granules of `1 << shift` bytes.
    pub(super) fn new(shift: u32) -> Self {
        Self { shift, slabs: Vec::new(), registered: 0, empty: 0 }
    }

    /// Adds registered memory; gives it back where it has not one whole granule, or more granules
    /// than 32 bits count.
    #[expect(clippy::result_large_err, reason = "it is the memory, given back")]
    pub(super) fn add(&mut self, obtained: Obtained) -> Result<(), Obtained> {
        let Slice { start, len, .. } = obtained.memory;
        let at = start.as_ptr().addr();
        let granule = 1usize << self.shift;
        let skipped = at.wrapping_neg() & (granule - 1);
        let granules = len.checked_sub(skipped).map_or(0, |whole| whole >> self.shift);
        let phase = (at.wrapping_add(skipped) >> self.shift) as u32;
        let Some(granules) = u32::try_from(granules).ok().filter(|granules| *granules > 0) else {
            return Err(obtained);
        };
        self.registered += len;
        self.empty += 1;
        let Obtained { memory, report } = obtained;
        let slab = Slab { memory, report, runs: Runs::new(granules, phase), skipped };
        match self.slabs.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(slab),
            None => self.slabs.push(Some(slab)),
        }
        Ok(())
    }

    /// Takes a piece from the first slab with room.
    pub(super) fn take(&mut self, room: Room) -> Option<Piece> {
        self.slabs.iter_mut().enumerate().find_map(|(at, slab)| {
            let slab = slab.as_mut()?;
            let was_empty = slab.is_empty();
            let (run, offset) = slab.runs.take(room.granules, room.align)?;
            self.empty -= usize::from(was_empty);
            let offset = ((offset as usize) << self.shift) + slab.skipped;
            Some(Piece {
                // SAFETY: the run lies within the slab's whole granules, and those lie within its
                // `len` bytes from `start`.
                start: unsafe { slab.memory.start.add(offset) },
                granules: room.granules,
                rkey: slab.memory.rkey,
                rights: slab.memory.rights,
                pd: slab.memory.pd,
                private: slab.memory.private,
                iova: IoAddr(slab.memory.iova.0.wrapping_add(offset as u64)),
                lkey: slab.memory.lkey,
                slab: at,
                run,
            })
        })
    }

    /// Gives a piece back. Whether its slab is empty now.
    pub(super) fn give(&mut self, piece: &Piece) -> bool {
        let Some(Some(slab)) = self.slabs.get_mut(piece.slab) else { return false };
        slab.runs.give(piece.run);
        let empty = slab.is_empty();
        self.empty += usize::from(empty);
        empty
    }

    /// Takes out the empty slab of the highest place, if `registered` stays at or above `floor`
    /// without it and at least `keep` other slabs are empty.
    pub(super) fn remove_empty(&mut self, floor: usize, keep: usize) -> Option<Slab> {
        if self.empty <= keep {
            return None;
        }
        let spare = self.registered.checked_sub(floor)?;
        let place = self.slabs.iter_mut().rev().find(|place| {
            place.as_ref().is_some_and(|slab| slab.is_empty() && slab.len() <= spare)
        })?;
        let slab = place.take()?;
        self.registered -= slab.len();
        self.empty -= 1;
        while self.slabs.pop_if(|last| last.is_none()).is_some() {}
        Some(slab)
    }

    /// Whether [`take`](Self::take) would succeed.
    pub(super) fn fits(&self, room: Room) -> bool {
        self.each().any(|slab| slab.runs.fits(room.granules, room.align))
    }

    /// Bytes registered.
    pub(super) fn registered(&self) -> usize {
        self.registered
    }

    /// How many slabs there are.
    pub(super) fn slabs(&self) -> usize {
        self.each().count()
    }

    /// Bytes of the slabs that are empty and could go without passing below `floor`.
    pub(super) fn spare(&self, floor: usize) -> usize {
        let empty = self.each().filter(|slab| slab.is_empty()).map(Slab::len).sum::<usize>();
        empty.min(self.registered.saturating_sub(floor))
    }

    /// What the slabs lie on.
    pub(super) fn reports(&self) -> Vec<SlabReport> {
        self.each().map(|slab| slab.report.clone()).collect()
    }

    /// Bytes of all free runs, and of the largest.
    pub(super) fn free(&self) -> (usize, usize) {
        let free = self.each().map(|slab| slab.runs.free() as usize).sum::<usize>();
        let largest = self.each().map(|slab| slab.runs.largest_free()).max().unwrap_or(0);
        (free << self.shift, (largest as usize) << self.shift)
    }

    fn each(&self) -> impl Iterator<Item = &Slab> {
        self.slabs.iter().flatten()
    }
}
