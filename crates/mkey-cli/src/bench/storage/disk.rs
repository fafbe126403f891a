//! A disk in memory: the target's, registered once, with what every block should hold.

use super::content::{Content, Words};
use super::order::Order;
use crate::bench::error::{Result, RowError};
use mkey::{Mr, Pd, Region, Slice};

/// A disk.
#[derive(Debug)]
pub struct Disk {
    memory: Slice,
    block: usize,
    versions: Vec<u64>,
    /// The order in which I/O goes over it.
    pub order: Order,
}

impl Disk {
    /// A disk of at most `bytes` in blocks of `block` bytes, a power of two of them, registered for
    /// this side's work requests only and filled.
    ///
    /// # Errors
    /// As the memory or the device refuses.
    pub fn new(pd: &Pd, bytes: u64, block: usize) -> Result<Self> {
        let order = Order::new(bytes / (block as u64).max(1));
        let blocks = usize::try_from(order.blocks()).unwrap_or(1);
        let region = Region::builder(blocks.saturating_mul(block)).map_prefaulted(1)?;
        let memory = Mr::new(pd, region)?.into_slice();
        let disk = Self { memory, block, versions: vec![0; blocks], order };
        let bytes = disk.content(0).to_bytes();
        for number in 0..order.blocks() {
            disk.memory.write(disk.at(number), &bytes)?;
            disk.stamp(number)?;
        }
        Ok(disk)
    }

    /// Blocks.
    pub fn blocks(&self) -> u64 {
        self.order.blocks()
    }

    /// Where a block begins.
    pub fn offset(&self, block: u64) -> u64 {
        block.saturating_mul(self.block as u64)
    }

    /// What a block should hold.
    pub fn content(&self, block: u64) -> Content {
        let version = usize::try_from(block).ok().and_then(|block| self.versions.get(block));
        Content { block, version: version.copied().unwrap_or(0), bytes: self.block }
    }

    /// A write of a block begins; what it should hold from now on.
    pub fn write(&mut self, block: u64) -> Content {
        let version = usize::try_from(block).ok().and_then(|block| self.versions.get_mut(block));
        if let Some(version) = version {
            *version = version.wrapping_add(1);
        }
        self.content(block)
    }

    /// The block's memory.
    ///
    /// # Errors
    /// `NotArrived` for an offset that is not the start of a block: no request asks for that.
    pub fn memory(&self, offset: u64) -> Result<Slice> {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = at.checked_add(self.block).filter(|_| at.is_multiple_of(self.block.max(1)));
        match end.map(|end| self.memory.part(at..end)) {
            Some(Ok(part)) => Ok(part),
            _ => Err(RowError::NotArrived { offset }),
        }
    }

    /// The block's words.
    pub fn words(&self, block: u64) -> impl Words {
        OnDisk { memory: &self.memory, at: self.at(block) }
    }

    fn at(&self, block: u64) -> usize {
        usize::try_from(self.offset(block)).unwrap_or(usize::MAX)
    }

    fn stamp(&self, block: u64) -> Result<()> {
        self.content(block).stamp(&mut self.words(block))
    }
}

struct OnDisk<'a> {
    memory: &'a Slice,
    at: usize,
}

impl Words for OnDisk<'_> {
    fn word(&self, at: usize) -> Result<u64> {
        Ok(self.memory.load(self.at.saturating_add(at))?)
    }

    fn set_word(&mut self, at: usize, value: u64) -> Result<()> {
        Ok(self.memory.store(self.at.saturating_add(at), value)?)
    }
}
