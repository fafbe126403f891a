//! Registered regions of test memory.

use crate::fixture::{Side, Subject};
use crate::memory::{Memory, PAGE};
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::device::{Device, MrInfo, MrSpec, PdHandle};
use mkey_core::error::Result;
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::rights::Rights;
use mkey_core::work::{RemoteAddr, Sge};
use std::sync::Arc;

/// A registered region of test memory.
#[derive(Clone, Debug)]
pub struct Mr {
    /// Where its bytes are.
    pub memory: Arc<Memory>,
    /// Where in `memory` it begins.
    pub offset: usize,
    /// Its length in bytes.
    pub length: usize,
    /// The I/O address of its first byte.
    pub base: u64,
    /// Its keys and handle.
    pub info: MrInfo,
    /// Its protection domain.
    pub pd: PdHandle,
}

impl Mr {
    /// The address of the byte at `offset`, before and past the region as well.
    pub fn at(&self, offset: i64) -> IoAddr {
        IoAddr(self.base.wrapping_add_signed(offset))
    }

    /// A local entry of `length` bytes from `offset`.
    pub fn sge(&self, offset: i64, length: u32) -> Sge {
        Sge { address: self.at(offset), length, lkey: self.info.lkey }
    }

    /// The same under another key.
    pub fn sge_by(&self, key: Key, offset: i64, length: u32) -> Sge {
        Sge { address: self.at(offset), length, lkey: Lkey(key) }
    }

    /// The remote address of the byte at `offset`.
    pub fn remote(&self, offset: i64) -> RemoteAddr {
        RemoteAddr { address: self.at(offset), rkey: self.info.rkey }
    }

    /// The same under another key.
    pub fn remote_by(&self, key: Key, offset: i64) -> RemoteAddr {
        RemoteAddr { address: self.at(offset), rkey: Rkey(key) }
    }

    /// Its local key.
    pub fn lkey(&self) -> Key {
        self.info.lkey.0
    }

    /// Its remote key.
    pub fn rkey(&self) -> Key {
        self.info.rkey.0
    }

    /// `length` bytes from `offset` as they are now.
    #[track_caller]
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let start = self.offset + offset;
        self.memory.bytes(start..start + length)
    }

    /// Writes bytes at `offset`.
    #[track_caller]
    pub fn set(&self, offset: usize, bytes: &[u8]) {
        self.memory.set(self.offset + offset, bytes);
    }

    /// The 8 bytes at `offset` as the processor reads them.
    #[track_caller]
    pub fn word(&self, offset: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes(offset, 8));
        u64::from_ne_bytes(word)
    }

    /// Checks that `bytes` came to be at `offset` and that no other byte of the memory, margins
    /// included, has changed.
    #[track_caller]
    pub fn holds(&self, offset: usize, bytes: &[u8]) {
        self.memory.expect(self.offset + offset, bytes);
        self.memory.check();
    }

    /// Checks that no byte of the memory, margins included, has changed.
    #[track_caller]
    pub fn untouched(&self) {
        self.memory.check();
    }
}

impl<S: Subject> Side<'_, S> {
    /// Keeps memory until the device is closed.
    pub fn keep(&self, memory: Memory) -> Arc<Memory> {
        let memory = Arc::new(memory);
        self.station.keep(Arc::clone(&memory));
        memory
    }

    /// Registers what `spec` says.
    pub fn try_reg(&self, pd: PdHandle, spec: &MrSpec) -> Result<MrInfo> {
        // SAFETY: specs name memory of `keep`, which outlives the device and is only accessed
        // volatile, or addresses where nothing is mapped, which a device has to refuse.
        unsafe { self.device().reg_mr(pd, spec) }
    }

    /// Waits until `bytes` are at `offset` of `mr`, which on an unreliable transport may be after
    /// the completion, and checks that no other byte has changed.
    #[track_caller]
    pub fn lands(&self, mr: &Mr, offset: usize, bytes: &[u8]) {
        self.station
            .wait_for("the data", || (mr.bytes(offset, bytes.len()) == bytes).then_some(()));
        mr.holds(offset, bytes);
    }

    /// A region of `length` bytes with a page of margin on both sides, in the queue pair's domain.
    #[track_caller]
    pub fn mr(&self, length: usize, rights: Rights) -> Mr {
        self.mr_in(self.pd, length, rights, None)
    }

    /// The same with an I/O address of its own.
    #[track_caller]
    pub fn mr_at(&self, length: usize, rights: Rights, iova: u64) -> Mr {
        self.mr_in(self.pd, length, rights, Some(iova))
    }

    /// The same in any protection domain.
    #[track_caller]
    pub fn mr_in(&self, pd: PdHandle, length: usize, rights: Rights, iova: Option<u64>) -> Mr {
        let memory = self.keep(Memory::filled(length.div_ceil(PAGE) + 2));
        self.mr_over(pd, &memory, PAGE, length, rights, iova)
    }

    /// A region over `length` bytes of `memory` from `offset`.
    #[track_caller]
    pub fn mr_over(
        &self,
        pd: PdHandle,
        memory: &Arc<Memory>,
        offset: usize,
        length: usize,
        rights: Rights,
        iova: Option<u64>,
    ) -> Mr {
        let address = memory.address() + offset as u64;
        let spec = MrSpec {
            address: HostAddr(address),
            length: length as u64,
            iova: iova.map(IoAddr),
            rights,
        };
        let info = self.try_reg(pd, &spec).expect("reg_mr");
        let zero_based = rights.contains(Rights::ZERO_BASED);
        let base = iova.unwrap_or(if zero_based { 0 } else { address });
        Mr { memory: Arc::clone(memory), offset, length, base, info, pd }
    }
}
