//! One registration of all buffers that lives long, and whose key peers know for good: the fastest,
//! and unsafe. A peer may write into a buffer whose I/O is over.

use super::{Shape, Strategy, no_buffer, registered};
use crate::bench::error::Result;
use crate::bench::storage::capsule::Op;
use crate::bench::storage::content::Words;
use crate::bench::storage::side::Side;
use mkey::{Access, PageKind, RemoteKey, Slice};

/// The strategy.
#[derive(Debug)]
pub struct Static {
    buffers: Vec<(Slice, RemoteKey)>,
    pages: PageKind,
}

impl Static {
    /// Registers all buffers at once.
    ///
    /// # Errors
    /// As the memory or the device refuses.
    pub fn new(side: &Side, shape: Shape) -> Result<Self> {
        let access = Access::local().remote_read().remote_write();
        let (buffers, pages) = registered(side, shape, access)?;
        let with_key = |buffer: Slice| {
            let key = buffer.remote_key()?;
            Ok((buffer, key))
        };
        let buffers = buffers.into_iter().map(with_key).collect::<Result<Vec<_>>>()?;
        Ok(Self { buffers, pages })
    }
}

impl Strategy for Static {
    fn open(&mut self, _: &Side, slot: usize, _: Op) -> Result<RemoteKey> {
        self.buffers.get(slot).map(|(_, key)| *key).ok_or_else(no_buffer)
    }

    fn close(&mut self, _: usize, _: Op) -> Result<()> {
        Ok(())
    }

    fn buffer(&mut self, slot: usize) -> Result<&mut dyn Words> {
        let (slice, _) = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        Ok(slice)
    }

    fn how(&self) -> String {
        "nothing: one key for good, by which the peer can reach buffers whose I/O is over"
            .to_owned()
    }

    fn pages(&self) -> PageKind {
        self.pages
    }
}
