//! Memory that one thread owns, filled by it.

use crate::numbers::{misfit, owners, peers};
use mkey::Slice;

/// Bytes before and after what is granted: nobody but the owner writes there.
pub const MARGIN: usize = 64;
/// The largest block.
pub const MOST: usize = 8192;

/// Memory with what its owner wrote there.
pub struct Block {
    pub slice: Slice,
    serial: u64,
    /// Which of the thread's own mappings it is in, if it is not of the pool.
    pub mapping: Option<usize>,
}

/// What was granted of a block: from which word of the grant on, and by what serial it was filled.
#[derive(Clone, Copy)]
pub struct Opened {
    pub serial: u64,
    pub first: usize,
    pub writable: bool,
}

impl Block {
    /// Fills it.
    pub fn new(slice: Slice, serial: u64, mapping: Option<usize>) -> Result<Self, String> {
        let mut block = Self { slice, serial, mapping };
        block.fill(serial)?;
        Ok(block)
    }

    pub fn fill(&mut self, serial: u64) -> Result<(), String> {
        self.serial = serial;
        let bytes = crate::numbers::filled(0, self.slice.len() / 8, |index| owners(serial, index));
        self.slice.write(0, &bytes).map_err(|error| format!("filling a block: {error}"))
    }

    /// The part to be granted.
    pub fn inner(&self) -> mkey::Result<Slice> {
        self.slice.part(MARGIN..self.slice.len() - MARGIN)
    }

    /// Words of that.
    pub fn words(&self) -> usize {
        (self.slice.len() - 2 * MARGIN) / 8
    }

    /// Fills what is to be granted, as words of the grant.
    pub fn open(&self, opened: Opened) -> Result<(), String> {
        let Opened { serial, first, .. } = opened;
        let bytes = crate::numbers::filled(first, self.words(), |index| owners(serial, index));
        self.slice.write(MARGIN, &bytes).map_err(|error| format!("filling a block: {error}"))
    }

    /// Whether it is as its owner filled it.
    pub fn check(&self) -> Result<(), String> {
        let serial = self.serial;
        let wrong = misfit(&self.bytes()?, |index, word| word == owners(serial, index));
        self.fault(wrong, "a block that nobody was granted")
    }

    /// Whether it is as its owner and, within its grant, the peer filled it.
    pub fn check_opened(&self, opened: Opened) -> Result<(), String> {
        let (from, to) = (MARGIN / 8, MARGIN / 8 + self.words());
        let wrong = misfit(&self.bytes()?, |index, word| {
            if !(from..to).contains(&index) {
                return word == owners(self.serial, index);
            }
            let of_grant = opened.first + index - from;
            word == owners(opened.serial, of_grant)
                || opened.writable && word == peers(opened.serial, of_grant)
        });
        self.fault(wrong, "a block whose grant has ended")
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        self.slice.to_vec().map_err(|error| format!("reading a block: {error}"))
    }

    fn fault(&self, wrong: Option<String>, what: &str) -> Result<(), String> {
        let Some(wrong) = wrong else { return Ok(()) };
        let (serial, slice) = (self.serial, &self.slice);
        Err(format!("{what}, filled with {serial:#x}, was written to: {wrong} ({slice:?})"))
    }
}
