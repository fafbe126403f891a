//! A fast registration for each I/O, from a pool of them, over a buffer that is registered for good:
//! posted in one chain with the request, and ended by the target's response (SEND_WITH_INV).

use super::{Shape, Strategy, no_buffer, registered};
use crate::bench::error::{Result, RowError};
use crate::bench::storage::capsule::Op;
use crate::bench::storage::content::Words;
use crate::bench::storage::side::Side;
use mkey::{Access, Ended, FastMapping, FastMrPool, PageKind, RemoteKey, Slice, Work};

/// The strategy.
#[derive(Debug)]
pub struct Frmr {
    pool: FastMrPool,
    buffers: Vec<(Slice, Option<FastMapping>)>,
    pages: PageKind,
}

impl Frmr {
    /// Registers all buffers at once, open to nobody, and allocates a pool of fast registrations of
    /// one entry.
    ///
    /// # Errors
    /// As the memory or the device refuses.
    pub fn new(side: &Side, shape: Shape) -> Result<Self> {
        let (buffers, pages) = registered(side, shape, Access::local())?;
        let ready = u32::try_from(shape.depth).unwrap_or(u32::MAX);
        let pool = FastMrPool::builder(&side.pd).entries(1).max(ready).ready(ready).build()?;
        let buffers = buffers.into_iter().map(|buffer| (buffer, None)).collect();
        Ok(Self { pool, buffers, pages })
    }
}

impl Strategy for Frmr {
    fn open(&mut self, side: &Side, slot: usize, op: Op) -> Result<RemoteKey> {
        let (buffer, mapped) = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        let access = match op {
            Op::Read => Access::local().remote_write(),
            Op::Write => Access::local_read().remote_read(),
        };
        let mapping = self.pool.prepare(&side.qp, std::slice::from_ref(buffer), access)?;
        let key = mapping.remote_key()?;
        *mapped = Some(mapping);
        Ok(key)
    }

    fn opening(&self, slot: usize) -> Option<Work<'_>> {
        let (_, mapped) = self.buffers.get(slot)?;
        mapped.as_ref().map(FastMapping::register)
    }

    fn close(&mut self, slot: usize, _: Op) -> Result<()> {
        let (_, mapped) = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        match mapped.take().ok_or_else(no_buffer)?.ended()? {
            Some(Ended::ByPeer) => Ok(()),
            _ => Err(RowError::Protocol("a response that did not end its mapping")),
        }
    }

    fn is_invalidated_by_target(&self) -> bool {
        true
    }

    fn buffer(&mut self, slot: usize) -> Result<&mut dyn Words> {
        let (buffer, _) = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        Ok(buffer)
    }

    fn how(&self) -> String {
        "REG_MR of one entry, posted with the request; ended by the target's SEND_WITH_INV"
            .to_owned()
    }

    fn pages(&self) -> PageKind {
        self.pages
    }
}
