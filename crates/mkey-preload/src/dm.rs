//! Device memory.

use crate::boundary::{EINVAL, Errno, Verb, verb};
use crate::context::{Context, Open};
use crate::mr::{rights, show_dm};
use crate::objects::{Found, Kind, Object, Spares};
use crate::pd::Pd;
use mkey_core::device::{Device, DmHandle};
use mkey_soft::SoftDevice;
use mkey_sys::types::*;
use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::Arc;

/// Device memory.
#[derive(Debug)]
pub(crate) struct Dm {
    pub(crate) handle: DmHandle,
}

static DMS: Spares<Dm> = Spares::new();

// SAFETY: `ibv_dm` begins with its context.
unsafe impl Kind for Dm {
    type Base = ibv_dm;

    fn spares() -> &'static Spares<Self> {
        &DMS
    }
}

/// Allocations begin at a page.
const MOST_ALIGN: u32 = 12;

/// `ibv_alloc_dm`.
pub(crate) fn alloc(open: &Open, attr: &ibv_alloc_dm_attr) -> Verb<*mut ibv_dm> {
    if attr.comp_mask != 0 || attr.log_align_req > MOST_ALIGN {
        return Err(EINVAL);
    }
    let handle = open.device.alloc_dm(attr.length as u64)?;
    let base = ibv_dm {
        context: open.base(),
        memcpy_to_dm: Some(copy_to),
        memcpy_from_dm: Some(copy_from),
        comp_mask: IBV_DM_MASK_HANDLE,
        handle: handle.0 as u32,
    };
    Ok(Object::new(open.number, base, Dm { handle }).base())
}

/// `ibv_free_dm`.
pub(crate) fn free(dm: &Found<Dm>) -> Verb<()> {
    dm.open.device.free_dm(dm.handle)?;
    dm.object.end();
    Ok(())
}

/// `ibv_reg_dm_mr`.
pub(crate) fn reg(
    pd: &Found<Pd>,
    dm: &Found<Dm>,
    offset: u64,
    length: usize,
    access: u32,
) -> Verb<*mut ibv_mr> {
    if !Arc::ptr_eq(&pd.open, &dm.open) {
        return Err(EINVAL);
    }
    let rights = rights(access)?;
    let info = pd.open.device.reg_dm_mr(pd.handle, dm.handle, offset, length as u64, rights)?;
    Ok(show_dm(pd, &info, length))
}

unsafe extern "C" fn copy_to(
    dm: *mut ibv_dm,
    offset: u64,
    host: *const c_void,
    length: usize,
) -> c_int {
    verb(|| -> Verb<()> {
        // SAFETY: the operation of a dm of ours is called with one of ours.
        let (device, handle) = unsafe { find(dm) }?;
        if host.is_null() && length > 0 {
            return Err(EINVAL);
        }
        let bytes = match length {
            0 => &[],
            // SAFETY: the program says that so many bytes can be read there.
            _ => unsafe { slice::from_raw_parts(host.cast::<u8>(), length) },
        };
        Ok(device.write_dm(handle, offset, bytes)?)
    })
}

unsafe extern "C" fn copy_from(
    host: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    verb(|| -> Verb<()> {
        // SAFETY: as above.
        let (device, handle) = unsafe { find(dm) }?;
        if host.is_null() && length > 0 {
            return Err(EINVAL);
        }
        let into = match length {
            0 => &mut [],
            // SAFETY: the program says that so many bytes can be written there.
            _ => unsafe { slice::from_raw_parts_mut(host.cast::<u8>(), length) },
        };
        Ok(device.read_dm(handle, offset, into)?)
    })
}

unsafe fn find(dm: *mut ibv_dm) -> Verb<(Arc<SoftDevice>, DmHandle)> {
    // SAFETY: the caller's.
    let object = unsafe { Object::<Dm>::live(dm) }.ok_or(EINVAL)?;
    let own = object.own().ok_or(EINVAL)?;
    // SAFETY: objects are never freed.
    let open = Context::of(unsafe { (*object.base()).context }).open();
    let open = open.ok_or(Errno(libc::ENODEV))?;
    Ok((open.device.clone(), own.handle))
}
