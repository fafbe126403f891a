//! Where a pool gets registered memory from.

use mkey_core::address::IoAddr;
use mkey_core::error::Error;
use mkey_core::key::Lkey;
use std::ptr::NonNull;

/// Registers memory for a pool.
pub(crate) trait Source: Send + Sync {
    /// `len` bytes from the start of a page, registered once. It may give more (whole huge pages).
    ///
    /// # Errors
    /// Memory can not be had, or can not be registered.
    fn obtain(&self, len: usize) -> Result<Obtained, Error>;
}

/// Registered memory.
pub(crate) struct Obtained {
    /// The first byte.
    pub(crate) start: NonNull<u8>,
    /// Bytes.
    pub(crate) len: usize,
    /// The I/O address of the first byte.
    pub(crate) iova: IoAddr,
    /// The local key.
    pub(crate) lkey: Lkey,
    /// What keeps it: dropping this deregisters, then unmaps.
    pub(crate) owner: Box<dyn Send + Sync>,
}

// SAFETY: `start` is the place of plain memory that `owner`, itself `Send`, keeps for whoever has
// this value; it belongs to no thread.
unsafe impl Send for Obtained {}
