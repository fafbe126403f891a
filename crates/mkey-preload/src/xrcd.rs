//! XRC domains.

use crate::boundary::{EINVAL, Errno, Verb};
use crate::context::Open;
use crate::file::identity;
use crate::objects::{Found, Kind, Object, Spares};
use mkey_core::device::{Device, XrcdHandle};
use mkey_sys::types::*;
use std::ffi::c_int;

/// An XRC domain.
#[derive(Debug)]
pub(crate) struct Xrcd {
    pub(crate) handle: XrcdHandle,
}

/// A domain that a file stands for: all that open it by the same file on the same open device have the
/// same one.
#[derive(Debug)]
pub(crate) struct Shared {
    file: (libc::dev_t, libc::ino_t),
    handle: XrcdHandle,
    opened: u32,
}

static XRCDS: Spares<Xrcd> = Spares::new();

// SAFETY: `ibv_xrcd` begins with its context.
unsafe impl Kind for Xrcd {
    type Base = ibv_xrcd;

    fn spares() -> &'static Spares<Self> {
        &XRCDS
    }
}

/// `ibv_open_xrcd`.
pub(crate) fn open(open: &Open, init: &ibv_xrcd_init_attr) -> Verb<*mut ibv_xrcd> {
    // Both are asked for by the verbs.
    if init.comp_mask != IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS {
        return Err(EINVAL);
    }
    let handle = match init.fd {
        -1 if init.oflags & libc::O_CREAT == 0 => return Err(EINVAL),
        -1 => open.device.open_xrcd()?,
        fd => by_file(open, identity(fd).ok_or(Errno(libc::EBADF))?, init.oflags)?,
    };
    let base = ibv_xrcd { context: open.base() };
    Ok(Object::new(open.number, base, Xrcd { handle }).base())
}

/// The domain of a file, made if that is asked for.
fn by_file(open: &Open, file: (libc::dev_t, libc::ino_t), flags: c_int) -> Verb<XrcdHandle> {
    let mut queues = open.queues();
    if let Some(shared) = queues.domains.iter_mut().find(|shared| shared.file == file) {
        if flags & libc::O_EXCL != 0 {
            return Err(Errno(libc::EEXIST));
        }
        shared.opened += 1;
        return Ok(shared.handle);
    }
    if flags & libc::O_CREAT == 0 {
        return Err(Errno(libc::EAGAIN));
    }
    let handle = open.device.open_xrcd()?;
    queues.domains.push(Shared { file, handle, opened: 1 });
    Ok(handle)
}

/// `ibv_close_xrcd`.
pub(crate) fn close(xrcd: &Found<Xrcd>) -> Verb<()> {
    let mut queues = xrcd.open.queues();
    let shared = queues.domains.iter().position(|shared| shared.handle == xrcd.handle);
    match shared.and_then(|at| queues.domains.get_mut(at)) {
        Some(shared) if shared.opened > 1 => shared.opened -= 1,
        _ => {
            xrcd.open.device.close_xrcd(xrcd.handle)?;
            if let Some(at) = shared {
                queues.domains.remove(at);
            }
        }
    }
    drop(queues);
    xrcd.object.end();
    Ok(())
}
