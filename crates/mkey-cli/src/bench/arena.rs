//! Memory to register: mapped on pages of a chosen kind, registered, copied into.
//!
//! Peers and this process write an [`Arena`] at the same time, so it lends no references: bytes
//! move by raw copies whose ranges are checked here.
#![allow(unsafe_code)] // Memory is touched by address, in this file only; each block says why it holds.

use super::error::{Result, RowError};
use mkey_core::address::HostAddr;
use mkey_core::device::{Device, MrInfo, MrSpec, PdHandle};
use mkey_core::rights::Rights;
use mkey_os::error::OsError;
use mkey_os::mapping::{Mapping, PageKind};
use std::borrow::Borrow;
use std::ptr::NonNull;
use std::sync::Arc;

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
    pub fn bytes(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// The address of the byte at `offset`.
    pub fn at(&self, offset: u64) -> HostAddr {
        HostAddr((self.mapping.addr() as u64).saturating_add(offset))
    }

    /// Registers `length` bytes from `offset`.
    ///
    /// # Errors
    /// As [`Registration::new`].
    #[inline]
    pub fn register<'a, D: Device + ?Sized>(
        &'a self,
        device: &'a D,
        pd: PdHandle,
        offset: u64,
        length: u64,
        rights: Rights,
    ) -> Result<Registration<'a, D, &'a Arena>> {
        Registration::new(self, device, pd, offset, length, rights)
    }

    /// Copies `length` bytes from `from` at `from_offset` to `self` at `offset`: the bare
    /// reference, and the copy out of a pool.
    ///
    /// # Errors
    /// `Outside` for a range that is not in its arena.
    #[inline]
    pub fn copy_from(
        &self,
        offset: u64,
        from: &Arena,
        from_offset: u64,
        length: u64,
    ) -> Result<()> {
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

    /// Sets the byte at `offset`.
    ///
    /// # Errors
    /// `Outside` for an offset that is not in the arena.
    pub fn set(&self, offset: u64, value: u8) -> Result<()> {
        self.check(offset, 1)?;
        // SAFETY: as `byte`; the mapping is writable.
        unsafe { self.mapping.as_ptr().add(offset as usize).write_volatile(value) };
        Ok(())
    }

    /// The word of 8 bytes at `offset`, in the CPU's byte order.
    ///
    /// # Errors
    /// `Outside` for an offset that is not in the arena or not a multiple of 8.
    #[inline]
    pub fn word(&self, offset: u64) -> Result<u64> {
        self.check_word(offset)?;
        // SAFETY: within the live mapping, which begins at a page, and aligned (checked above);
        // read as volatile because others write it too.
        Ok(unsafe { self.mapping.as_ptr().add(offset as usize).cast::<u64>().read_volatile() })
    }

    /// Sets the word of 8 bytes at `offset`.
    ///
    /// # Errors
    /// As [`Arena::word`].
    #[inline]
    pub fn set_word(&self, offset: u64, value: u64) -> Result<()> {
        self.check_word(offset)?;
        // SAFETY: as `word`; the mapping is writable.
        unsafe { self.mapping.as_ptr().add(offset as usize).cast::<u64>().write_volatile(value) };
        Ok(())
    }

    fn check_word(&self, offset: u64) -> Result<()> {
        if offset.is_multiple_of(8) {
            self.check(offset, 8)
        } else {
            Err(RowError::Outside { offset, length: 8, bytes: self.bytes() })
        }
    }

    /// A registration of `length` bytes from `offset` by the cache.
    ///
    /// # Errors
    /// As the device refuses; `Outside` for a range that is not in the arena.
    pub fn cached(
        self: &Arc<Self>,
        cache: &mkey::Cache,
        offset: u64,
        length: u64,
        access: mkey::Access,
    ) -> Result<Kept> {
        self.check(offset, length)?;
        let start = self.mapping.as_ptr().wrapping_add(offset as usize);
        // SAFETY: the bytes and the pages around them are in the mapping, which `Kept` and whoever
        // has the cache keep: no reference to its bytes is ever made, and the cache is told before
        // it is unmapped, or hears of it.
        let cached = unsafe { cache.get(start, length as usize, access) }?;
        Ok(Kept { cached, _arena: self.clone() })
    }

    /// Sets every byte.
    pub fn fill(&self, value: u8) {
        // SAFETY: the whole of the live mapping, which is writable.
        unsafe { self.mapping.as_ptr().write_bytes(value, self.mapping.len()) };
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        let bytes = self.bytes();
        if offset <= bytes && length <= bytes - offset {
            Ok(())
        } else {
            Err(RowError::Outside { offset, length, bytes })
        }
    }
}

// SAFETY: a mapping is unmapped when dropped only, anonymous memory is initialised, and no reference
// to its bytes is ever made.
unsafe impl mkey::Memory for Arena {
    fn range(&self) -> (NonNull<u8>, usize) {
        // A mapping is never at address 0.
        let start = NonNull::new(self.mapping.as_ptr()).unwrap_or(NonNull::dangling());
        (start, self.mapping.len())
    }
}

/// A registration by the cache, with the arena that it is of.
#[derive(Clone, Debug)]
pub struct Kept {
    cached: mkey::Cached,
    _arena: Arc<Arena>,
}

impl Kept {
    /// The bytes registered, as work requests name them.
    pub fn slice(&self) -> mkey::Slice {
        self.cached.slice()
    }
}

impl From<Mapping> for Arena {
    fn from(mapping: Mapping) -> Self {
        Self { mapping }
    }
}

/// Registered memory, which it borrows or owns; deregistered when dropped, before the memory goes.
#[derive(Debug)]
pub struct Registration<'a, D: Device + ?Sized, A: Borrow<Arena>> {
    device: &'a D,
    /// Its keys.
    pub info: MrInfo,
    arena: A,
    live: bool,
}

impl<'a, D: Device + ?Sized, A: Borrow<Arena>> Registration<'a, D, A> {
    /// Registers `length` bytes from `offset` of `arena`.
    ///
    /// # Errors
    /// As the device refuses; `Outside` for a range that is not in the arena.
    #[inline]
    pub fn new(
        arena: A,
        device: &'a D,
        pd: PdHandle,
        offset: u64,
        length: u64,
        rights: Rights,
    ) -> Result<Self> {
        let memory = arena.borrow();
        memory.check(offset, length)?;
        let spec = MrSpec { address: memory.at(offset), length, iova: None, rights };
        // SAFETY: the range lies in the mapping, which the registration borrows or owns and so
        // outlives; one that is leaked leaves accesses after unmapping to be refused by the
        // device. No reference to the bytes is ever made.
        let info = unsafe { device.reg_mr(pd, &spec) }?;
        Ok(Self { device, info, arena, live: true })
    }

    /// The memory.
    pub fn arena(&self) -> &Arena {
        self.arena.borrow()
    }

    /// Deregisters and says how that went.
    ///
    /// # Errors
    /// As the device refuses.
    #[inline]
    pub fn deregister(mut self) -> Result<()> {
        self.live = false;
        Ok(self.device.dereg_mr(self.info.handle)?)
    }
}

impl<D: Device + ?Sized, A: Borrow<Arena>> Drop for Registration<'_, D, A> {
    fn drop(&mut self) {
        if self.live {
            // On the way out of an error that is already told.
            let _ = self.device.dereg_mr(self.info.handle);
        }
    }
}
