//! A registration for each I/O: of memory that nothing else pins, or, as a row of its own, of memory
//! that another registration pins all the time.

use super::{Shape, Strategy, access, no_buffer, stride};
use crate::bench::arena::Arena;
use crate::bench::error::{Result, RowError};
use crate::bench::storage::capsule::Op;
use crate::bench::storage::content::Words;
use crate::bench::storage::side::Side;
use mkey::{Access, Memory, Mr, PageKind, RemoteKey};
use std::sync::Arc;

/// The strategy.
#[derive(Debug)]
pub struct PerIo {
    buffers: Vec<Buffer>,
    pinned: bool,
}

#[derive(Debug)]
struct Buffer {
    /// Of this I/O.
    mr: Option<Mr>,
    /// What pins it all the time.
    _pinned: Option<Mr>,
    arena: Arc<Arena>,
    memory: Arc<dyn Memory>,
    bytes: usize,
}

impl PerIo {
    /// Maps all buffers, each on pages of its own, and registers none of them for I/O.
    ///
    /// # Errors
    /// As the memory or the device refuses.
    pub fn new(side: &Side, shape: Shape, pinned: bool) -> Result<Self> {
        let buffer = |_| {
            let arena = Arc::new(Arena::map(stride(shape) as u64, PageKind::Base)?);
            let memory: Arc<dyn Memory> = arena.clone();
            let register = || Mr::builder(&side.pd).register_shared(memory.clone());
            let pinned = pinned.then(register).transpose()?;
            Ok(Buffer { mr: None, _pinned: pinned, arena, memory, bytes: shape.block })
        };
        let buffers = (0..shape.depth).map(buffer).collect::<Result<Vec<_>>>()?;
        Ok(Self { buffers, pinned })
    }
}

impl Strategy for PerIo {
    fn open(&mut self, side: &Side, slot: usize, op: Op) -> Result<RemoteKey> {
        let buffer = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        let rights = access(op).rights() | Access::local().rights();
        let builder = Mr::builder(&side.pd).access(Access::from_rights(rights)?);
        let mr = builder.register_shared(buffer.memory.clone())?;
        let key = mr.remote_key(..buffer.bytes)?;
        buffer.mr = Some(mr);
        Ok(key)
    }

    fn close(&mut self, slot: usize, _: Op) -> Result<()> {
        let buffer = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        let mr = buffer.mr.take().ok_or_else(no_buffer)?;
        mr.close().map(drop).map_err(|(_, error)| RowError::Verb(error))
    }

    fn buffer(&mut self, slot: usize) -> Result<&mut dyn Words> {
        let buffer = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        Ok(&mut buffer.arena)
    }

    fn how(&self) -> String {
        match self.pinned {
            true => "reg_mr + dereg_mr of memory that another registration pins all the time",
            false => "reg_mr + dereg_mr of memory that nothing else pins",
        }
        .to_owned()
    }

    fn pages(&self) -> PageKind {
        PageKind::Base
    }
}
