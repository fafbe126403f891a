//! A grant for each I/O: a type 2 window over exactly the buffer, for this queue pair only, bound in
//! one post with the request, and ended by the target's response (SEND_WITH_INV).

use super::{Shape, Strategy, access, no_buffer, registered};
use crate::bench::error::{Result, RowError};
use crate::bench::storage::capsule::Op;
use crate::bench::storage::content::Words;
use crate::bench::storage::side::Side;
use mkey::{Access, Ended, Grant, PageKind, RemoteKey, Slice, Work};

/// The strategy.
#[derive(Debug)]
pub struct Granted {
    buffers: Vec<(Slice, Option<Grant>)>,
    pages: PageKind,
}

impl Granted {
    /// Registers all buffers at once, open to nobody.
    ///
    /// # Errors
    /// As the memory or the device refuses.
    pub fn new(side: &Side, shape: Shape) -> Result<Self> {
        let (buffers, pages) = registered(side, shape, Access::local().windows())?;
        Ok(Self { buffers: buffers.into_iter().map(|buffer| (buffer, None)).collect(), pages })
    }
}

impl Strategy for Granted {
    fn open(&mut self, side: &Side, slot: usize, op: Op) -> Result<RemoteKey> {
        let (buffer, granted) = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        let grant = buffer.prepare_grant(&side.qp, access(op))?;
        let key = grant.remote_key();
        *granted = Some(grant);
        Ok(key)
    }

    fn opening(&self, slot: usize) -> Option<Work<'_>> {
        let (_, granted) = self.buffers.get(slot)?;
        granted.as_ref().map(Grant::bind)
    }

    fn close(&mut self, slot: usize, _: Op) -> Result<()> {
        let (_, granted) = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        match granted.take().ok_or_else(no_buffer)?.ended()? {
            Some(Ended::ByPeer) => Ok(()),
            _ => Err(RowError::Protocol("a response that did not end its grant")),
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
        "BIND_MW, posted with the request; ended by the target's SEND_WITH_INV".to_owned()
    }

    fn pages(&self) -> PageKind {
        self.pages
    }
}
