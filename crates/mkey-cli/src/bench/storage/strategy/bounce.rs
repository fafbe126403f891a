//! Buffers of a pool that is registered once: the data is copied between them and memory of the
//! application, which is not registered. Peers never reach that, but do reach the pool, whose key
//! lives as long as it.

use super::{Shape, Strategy, no_buffer, stride};
use crate::bench::error::Result;
use crate::bench::storage::capsule::Op;
use crate::bench::storage::content::Words;
use crate::bench::storage::side::Side;
use mkey::{Access, PageKind, Pool, PoolOptions, RemoteKey, Slice};

/// The least that a pool registers.
const LEAST: usize = 2 << 20;

/// The strategy.
#[derive(Debug)]
pub struct Bounce {
    pool: Pool,
    buffers: Vec<Buffer>,
}

#[derive(Debug)]
struct Buffer {
    application: Vec<u8>,
    /// Of this I/O.
    block: Option<Slice>,
}

impl Bounce {
    /// Registers a pool for twice the I/Os in flight.
    ///
    /// # Errors
    /// As the pool can not be made.
    pub fn new(side: &Side, shape: Shape) -> Result<Self> {
        let in_flight = stride(shape).saturating_mul(shape.depth);
        let bytes = in_flight.saturating_mul(2).max(LEAST);
        let options = PoolOptions::default()
            .slab(bytes)
            .floor(bytes)
            .resting(in_flight)
            .access(Access::local().remote_read().remote_write());
        let pool = Pool::new(&side.pd, &options)?;
        let buffer = |_| Buffer { application: vec![0; shape.block], block: None };
        Ok(Self { pool, buffers: (0..shape.depth).map(buffer).collect() })
    }
}

impl Strategy for Bounce {
    fn open(&mut self, _: &Side, slot: usize, op: Op) -> Result<RemoteKey> {
        let buffer = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        let block = self.pool.alloc(buffer.application.len())?;
        if op == Op::Write {
            block.write(0, &buffer.application)?;
        }
        let key = block.remote_key()?;
        buffer.block = Some(block);
        Ok(key)
    }

    fn close(&mut self, slot: usize, op: Op) -> Result<()> {
        let buffer = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        let block = buffer.block.take().ok_or_else(no_buffer)?;
        if op == Op::Read {
            block.read(0, &mut buffer.application)?;
        }
        Ok(())
    }

    fn buffer(&mut self, slot: usize) -> Result<&mut dyn Words> {
        let buffer = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        Ok(&mut buffer.application)
    }

    fn how(&self) -> String {
        "take a buffer of the pool, copy into or out of it, give it back".to_owned()
    }

    fn pages(&self) -> PageKind {
        self.pool.slabs().first().map_or(PageKind::Base, |slab| slab.page_kind)
    }
}
