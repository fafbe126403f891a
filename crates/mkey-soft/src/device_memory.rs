//! Memory of the device itself (`ibv_alloc_dm`): pages of no mapping that the program knows.

use crate::core::Core;
use crate::memory;
use crate::object::{Use, Used};
use crate::slots::Slots;
use crate::sync::lock;
use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::device::DmHandle;
use mkey_core::error::{Error, Object, Reason, Result};
use mkey_os::mapping::{Mapping, PageKind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes that all allocations of a device have together.
pub(crate) const MAX_DM_SIZE: u64 = 1 << 20;

/// The allocations of a device.
#[derive(Debug, Default)]
pub(crate) struct DeviceMemory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    parts: Slots<Arc<Dm>>,
    given: u64,
}

/// One allocation.
#[derive(Debug)]
pub(crate) struct Dm {
    mapping: Mapping,
    length: u64,
    /// Regions on it.
    users: AtomicU32,
}

impl Used for Dm {
    fn users(&self) -> &AtomicU32 {
        &self.users
    }
}

impl Dm {
    /// `length` bytes from `offset` on.
    fn range(&self, offset: u64, length: u64) -> std::result::Result<HostRange, Reason> {
        let outside = Reason::OutOfRange { address: IoAddr(offset), length };
        match offset.checked_add(length) {
            Some(end) if end <= self.length => {}
            _ => return Err(outside),
        }
        let start = HostAddr((self.mapping.addr() as u64).wrapping_add(offset));
        HostRange::new(start, length).ok_or(outside)
    }
}

impl DeviceMemory {
    pub(crate) fn allocate(&self, length: u64) -> Result<DmHandle> {
        let fail = |reason| Error::new("alloc_dm", format_args!("{length} bytes"), reason);
        let mut state = lock(&self.state);
        let free = MAX_DM_SIZE - state.given;
        if length == 0 {
            let (what, allowed) = ("the length of device memory", "at least 1");
            return Err(fail(Reason::Argument { what, value: length, allowed }));
        }
        if length > free {
            let (what, limit) = ("device's own memory", MAX_DM_SIZE);
            return Err(fail(Reason::Exhausted { what, asked: length, free, limit }));
        }
        let mapping = Mapping::new(length as usize, PageKind::Base).map_err(|error| {
            fail(Reason::System { call: error.call, errno: error.errno.raw_os_error() })
        })?;
        let dm = Arc::new(Dm { mapping, length, users: AtomicU32::new(0) });
        let full = Reason::TableFull { object: Object::Dm, most: u64::from(crate::slots::MOST) };
        let handle = state.parts.insert(dm).ok_or_else(|| fail(full))?;
        state.given += length;
        Ok(DmHandle(handle))
    }

    pub(crate) fn free(&self, dm: DmHandle) -> Result<()> {
        let mut state = lock(&self.state);
        let found = state.parts.get(dm.0).ok_or_else(|| unknown("free_dm", dm))?;
        let (users, length) = (found.users.load(Ordering::Acquire), found.length);
        if users > 0 {
            let by = format!("{users} memory regions lie on it").into_boxed_str();
            let reason = Reason::InUse { object: Object::Dm, by };
            return Err(Error::new("free_dm", format_args!("handle {:#x}", dm.0), reason));
        }
        state.parts.remove(dm.0);
        state.given -= length;
        Ok(())
    }

    /// Part of an allocation, held for as long as it is used.
    pub(crate) fn part(
        &self,
        verb: &'static str,
        dm: DmHandle,
        offset: u64,
        length: u64,
    ) -> Result<(HostRange, Use<Dm>)> {
        let state = lock(&self.state);
        let found = state.parts.get(dm.0).ok_or_else(|| unknown(verb, dm))?;
        let range = found.range(offset, length).map_err(|reason| {
            Error::new(verb, format_args!("offset {offset:#x}, {length} bytes"), reason)
        })?;
        Ok((range, Use::new(found)))
    }

    pub(crate) fn write(&self, core: &Core, dm: DmHandle, offset: u64, from: &[u8]) -> Result<()> {
        let length = from.len() as u64;
        let (range, _held) = self.words("memcpy_to_dm", dm, offset, length)?;
        memory::put(core.tolerant, range, from).map_err(|_| gone("memcpy_to_dm", offset, length))
    }

    pub(crate) fn read(
        &self,
        core: &Core,
        dm: DmHandle,
        offset: u64,
        into: &mut [u8],
    ) -> Result<()> {
        let length = into.len() as u64;
        let (range, _held) = self.words("memcpy_from_dm", dm, offset, length)?;
        memory::get(core.tolerant, range, into).map_err(|_| gone("memcpy_from_dm", offset, length))
    }

    /// Copies of the processor go by words of 4 bytes, as across a bus.
    fn words(
        &self,
        verb: &'static str,
        dm: DmHandle,
        offset: u64,
        length: u64,
    ) -> Result<(HostRange, Use<Dm>)> {
        let odd = [("the offset of a copy", offset), ("the length of a copy", length)];
        if let Some((what, value)) = odd.into_iter().find(|(_, value)| value % 4 != 0) {
            let reason = Reason::Argument { what, value, allowed: "multiples of 4" };
            return Err(Error::new(verb, format_args!("offset {offset:#x}"), reason));
        }
        self.part(verb, dm, offset, length)
    }
}

fn unknown(verb: &'static str, dm: DmHandle) -> Error {
    let reason = Reason::UnknownHandle { object: Object::Dm, handle: dm.0 };
    Error::new(verb, format_args!("handle {:#x}", dm.0), reason)
}

/// The memory is the device's own and does not go; the program's side of the copy may.
fn gone(verb: &'static str, offset: u64, length: u64) -> Error {
    let reason = Reason::OutOfRange { address: IoAddr(offset), length };
    Error::new(verb, format_args!("offset {offset:#x}, {length} bytes"), reason)
}
