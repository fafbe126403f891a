//! What a descriptor is open on.

use std::ffi::c_int;
use std::mem::MaybeUninit;

/// What the system says of it; `None` if it is not open.
pub(crate) fn status(fd: c_int) -> Option<libc::stat> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: it writes the structure, or fails.
    unsafe { (libc::fstat(fd, status.as_mut_ptr()) == 0).then(|| status.assume_init()) }
}

/// Which file it is.
pub(crate) fn identity(fd: c_int) -> Option<(libc::dev_t, libc::ino_t)> {
    status(fd).map(|status| (status.st_dev, status.st_ino))
}
