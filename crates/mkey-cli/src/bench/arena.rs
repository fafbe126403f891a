//! Memory to register: mapped on pages of a chosen kind, registered, copied into.
//!
//! Peers and this process write an [`Arena`] at the same time, so it lends no references: bytes
//! move by raw copies whose ranges are checked here.
#![allow(unsafe_code)] // The one file of this crate that does; each block says why it holds.

use super::error::{Result, RowError};
use mkey_core::address::HostAddr;
use mkey_core::device::{Device, MrInfo, MrSpec, PdHandle};
use mkey_core::rights::Rights;
use mkey_os::error::OsError;
use mkey_os::mapping::{Mapping, PageKind};

/// Mapped memory.
#[derive(Debug)]
pub struct Arena {
    mapping: Mapping,
}

impl Arena {
    /// Maps `bytes` (rounded up to whole pages), touching none.
    ///
    /// # Errors
    /// As the kernel refuses.
    pub fn map(bytes: u64, kind: PageKind) -> std::result::Result<Self, OsError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(Self { mapping: Mapping::new(bytes, kind)? })
    }

    /// The mapping.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Bytes mapped.
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// The address of the byte at `offset`.
    pub fn at(&self, offset: u64) -> HostAddr {
        HostAddr((self.mapping.addr() as u64).saturating_add(offset))
    }

    /// Registers `length` bytes from `offset`.
    ///
    /// # Errors
    /// As the device refuses; `Outside` for a range that is not in the arena.
    pub fn register<'a, D: Device>(
        &'a self,
        device: &'a D,
        pd: PdHandle,
        offset: u64,
        length: u64,
        rights: Rights,
    ) -> Result<Registration<'a, D>> {
        self.check(offset, length)?;
        let spec = MrSpec { address: self.at(offset), length, iova: None, rights };
        // SAFETY: the range lies in the mapping, which the registration borrows and so outlives;
        // a registration that is leaked leaves accesses after unmapping to be refused by the
        // device. No reference to the bytes is ever made.
        let info = unsafe { device.reg_mr(pd, &spec) }?;
        Ok(Registration { device, info, _arena: self, live: true })
    }

    /// Copies `length` bytes from `from` at `from_offset` to `self` at `offset`: the bare
    /// reference, and the copy out of a pool.
    ///
    /// # Errors
    /// `Outside` for a range that is not in its arena.
    #[inline]
    pub fn copy_from(&self, offset: u64, from: &Arena, from_offset: u64, length: u64) -> Result<()> {
        self.check(offset, length)?;
        from.check(from_offset, length)?;
        // SAFETY: both ranges lie in live mappings that are readable and writable (checked above),
        // and callers copy between two arenas or disjoint parts (`copy` allows overlap anyway). A
        // peer that writes at the same time is this same thread, which is not writing now.
        unsafe {
            std::ptr::copy(
                from.mapping.as_ptr().add(from_offset as usize),
                self.mapping.as_ptr().add(offset as usize),
                length as usize,
            );
        }
        Ok(())
    }

    /// The first byte at `offset`, for checks of what arrived.
    ///
    /// # Errors
    /// `Outside` for an offset that is not in the arena.
    pub fn byte(&self, offset: u64) -> Result<u8> {
        self.check(offset, 1)?;
        // SAFETY: within the live mapping; read as volatile because others write it too.
        Ok(unsafe { self.mapping.as_ptr().add(offset as usize).read_volatile() })
    }

    /// Sets every byte.
    pub fn fill(&self, value: u8) {
        // SAFETY: the whole of the live mapping, which is writable.
        unsafe { self.mapping.as_ptr().write_bytes(value, self.mapping.len()) };
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        let bytes = self.len();
        if offset <= bytes && length <= bytes - offset {
            Ok(())
        } else {
            Err(RowError::Outside { offset, length, bytes })
        }
    }
}

/// Registered memory; deregistered when dropped.
#[derive(Debug)]
pub struct Registration<'a, D: Device> {
    device: &'a D,
    /// Its keys.
    pub info: MrInfo,
    _arena: &'a Arena,
    live: bool,
}

impl<D: Device> Registration<'_, D> {
    /// Deregisters and says how that went.
    ///
    /// # Errors
    /// As the device refuses.
    pub fn deregister(mut self) -> Result<()> {
        self.live = false;
        Ok(self.device.dereg_mr(self.info.handle)?)
    }
}

impl<D: Device> Drop for Registration<'_, D> {
    fn drop(&mut self) {
        if self.live {
            // On the way out of an error that is already told.
            let _ = self.device.dereg_mr(self.info.handle);
        }
    }
}
