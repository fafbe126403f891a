//! The memory windows that there are.

use super::log::Placed;
use super::table::Table;
use super::{Called, Recorder, key};
use crate::raw::{Head, Mr, Slot, USES, Use, Window};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

/// Windows at a time, at most.
const MOST: usize = 1 << 18;

/// All of them.
pub struct Windows {
    by_object: Table,
    by_key: Table,
}

impl Windows {
    /// None yet.
    pub const fn new() -> Self {
        Self { by_object: Table::new(MOST), by_key: Table::new(MOST) }
    }
}

impl Recorder {
    /// The device's local key was invalidated, or the peer's, by work (for windows and fast registration).
    pub fn invalidated(&self, device: Slot, rkey: u32) {
        let window = self.windows.by_key.get(key(device, rkey));
        if let Some(window) = window.and_then(|slot| self.log.placed::<Window>(slot as Slot)) {
            window.word::<{ offset_of!(Window, invalidations) }>().fetch_add(1, Relaxed);
        }
    }

    /// A window was bound, by the verb or by work: its address, its key from now on, the region's lkey.
    pub fn bound(&self, device: Slot, window: u64, rkey: u32, lkey: u32, len: u64) {
        let mr = self.regions.find(&self.log, key(device, lkey)).filter(|_| len != 0);
        if let Some(mr) = mr
            && let Some(binds) =
                mr.words::<{ offset_of!(Mr, uses) }, USES>().get(Use::Bind as usize)
        {
            binds.fetch_add(1, Relaxed);
        }
        let window = self.windows.by_object.get(window);
        let Some(window) = window.and_then(|slot| self.log.placed::<Window>(slot as Slot)) else {
            return;
        };
        window.word::<{ offset_of!(Window, binds) }>().fetch_add(1, Relaxed);
        if len == 0 {
            window.word::<{ offset_of!(Window, unbinds) }>().fetch_add(1, Relaxed);
        }
        if let Some(mr) = mr {
            window.half::<{ offset_of!(Window, mr) }>().store(mr.slot, Relaxed);
        }
        let before = window.half::<{ offset_of!(Window, rkey) }>().swap(rkey, Relaxed);
        if before != rkey {
            self.forget_key(device, before, window);
            self.name_window(device, rkey, window);
        }
    }

    /// A window was allocated, by the call of this name.
    pub(super) fn allocated(&self, call: &Called, by: Slot) {
        let written = self.log.write(
            Window {
                head: Head { len: 0, kind: 0, zero: 0 },
                object: call.object,
                kind: call.detail,
                device: call.device,
                binds: 0,
                unbinds: 0,
                invalidations: 0,
                alloc: by,
                dealloc: 0,
                mr: 0,
                rkey: call.rkey,
            },
            &[],
        );
        let Some(window) = written else { return };
        if self.windows.by_object.insert(call.object, window.slot.into()).is_err() {
            self.unfollowed();
        }
        self.name_window(call.device, call.rkey, window);
    }

    /// A window was freed.
    pub(super) fn deallocated(&self, call: &Called, by: Slot) {
        let window = self.windows.by_object.remove(call.object);
        if let Some(window) = window.and_then(|slot| self.log.placed::<Window>(slot as Slot)) {
            window.half::<{ offset_of!(Window, dealloc) }>().store(by, Relaxed);
            let rkey = window.half::<{ offset_of!(Window, rkey) }>().load(Relaxed);
            self.forget_key(call.device, rkey, window);
        }
    }

    fn name_window(&self, device: Slot, rkey: u32, window: Placed<Window>) {
        if self.windows.by_key.insert(key(device, rkey), window.slot.into()).is_err() {
            self.unfollowed();
        }
    }

    fn forget_key(&self, device: Slot, rkey: u32, window: Placed<Window>) {
        let its = u64::from(window.slot);
        self.windows.by_key.remove_if(key(device, rkey), |value| value == its);
    }
}
