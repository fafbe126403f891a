//! Advice on on-demand memory, by libibverbs or by the kernel's own command.
//!
//! The provider of soft-RoCE in rdma-core has learned to advise later than the kernel's driver
//! (Linux 6.17). The command has nothing in it that is the provider's own, so that it can be given
//! without it (include/uapi/rdma/rdma_user_ioctl_cmds.h).

use crate::context::Context;
use crate::driver::RXE;
use crate::failure::{errno_of, last_errno, not_offered};
use mkey_sys::inline;
use mkey_sys::types::*;
use std::ffi::c_ulong;

/// `RDMA_VERBS_IOCTL`.
const RDMA_VERBS_IOCTL: c_ulong = 0xc018_1b01;
/// `UVERBS_OBJECT_MR`.
const OBJECT_MR: u16 = 7;
/// `UVERBS_METHOD_ADVISE_MR`.
const ADVISE_MR: u16 = 2;
/// `UVERBS_ATTR_F_MANDATORY`.
const MANDATORY: u16 = 1;

/// `struct ib_uverbs_attr`.
#[repr(C)]
struct Attribute {
    id: u16,
    length: u16,
    flags: u16,
    reserved: u16,
    data: u64,
}

/// `struct ib_uverbs_ioctl_hdr` with its attributes.
#[repr(C)]
struct Command {
    length: u16,
    object: u16,
    method: u16,
    attributes: u16,
    reserved_1: u64,
    driver: u32,
    reserved_2: u32,
    /// The domain's handle, the advice, its flags, the ranges.
    attribute: [Attribute; 4],
}

/// Advises on ranges of regions of a domain.
///
/// # Errors
/// The errno.
///
/// # Safety
/// The domain is live, and of this context.
pub(crate) unsafe fn advise(
    context: &Context,
    pd: *mut ibv_pd,
    advice: ibv_advise_mr_advice,
    flags: u32,
    ranges: &mut [ibv_sge],
) -> Result<(), i32> {
    let Ok(count) = u32::try_from(ranges.len()) else { return Err(libc::EINVAL) };
    // SAFETY: the domain is live, and there are so many ranges.
    let answer = unsafe { inline::ibv_advise_mr(pd, advice, flags, ranges.as_mut_ptr(), count) };
    if answer == 0 {
        return Ok(());
    }
    let errno = errno_of(answer);
    // The driver advises where its provider may not.
    let (name, driver) = RXE;
    if context.driver.as_deref() != Some(name) || !not_offered(errno) {
        return Err(errno);
    }
    // SAFETY: as this function.
    unsafe { by_the_kernel(context, driver, pd, advice, flags, ranges) }
}

/// The same by the kernel's command.
///
/// # Safety
/// As [`advise`].
unsafe fn by_the_kernel(
    context: &Context,
    driver: u32,
    pd: *mut ibv_pd,
    advice: ibv_advise_mr_advice,
    flags: u32,
    ranges: &[ibv_sge],
) -> Result<(), i32> {
    // The kernel's own entry of a range is laid out as this one.
    let Ok(length) = u16::try_from(size_of_val(ranges)) else { return Err(libc::EINVAL) };
    let attribute =
        |id, length, data| Attribute { id, length, flags: MANDATORY, reserved: 0, data };
    // SAFETY: a live domain, of a context that is open.
    let (domain, fd) = unsafe { ((*pd).handle, (*context.raw()).cmd_fd) };
    let mut command = Command {
        length: size_of::<Command>() as u16,
        object: OBJECT_MR,
        method: ADVISE_MR,
        attributes: 4,
        reserved_1: 0,
        driver,
        reserved_2: 0,
        attribute: [
            attribute(0, 0, u64::from(domain)),
            attribute(1, 8, u64::from(advice.0)),
            attribute(2, 4, u64::from(flags)),
            attribute(3, length, ranges.as_ptr().expose_provenance() as u64),
        ],
    };
    // SAFETY: the command is as long as it says, its one pointer is to so many bytes, and the
    // kernel only reads them.
    match unsafe { libc::ioctl(fd, RDMA_VERBS_IOCTL, &raw mut command) } {
        0 => Ok(()),
        _ => Err(match last_errno() {
            // The kernel or its driver has no such command.
            libc::EPROTONOSUPPORT | libc::ENOTTY => libc::EOPNOTSUPP,
            errno => errno,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_command_is_laid_out_as_the_kernel_has_it() {
        assert_eq!((size_of::<Attribute>(), offset_of!(Attribute, data)), (16, 8));
        assert_eq!((size_of::<Command>(), offset_of!(Command, attribute)), (24 + 4 * 16, 24));
        assert_eq!((offset_of!(Command, reserved_1), offset_of!(Command, driver)), (8, 16));
        // struct ib_uverbs_sge.
        assert_eq!(size_of::<ibv_sge>(), 16);
        assert_eq!((offset_of!(ibv_sge, length), offset_of!(ibv_sge, lkey)), (8, 12));
    }
}
