//! Registering memory, and advice about it; device memory.

use std::ffi::{c_int, c_uint, c_void};

use super::dispatch::{extended, verbs};
use crate::error::Missing;
use crate::types::*;
use crate::verbs::Verbs;

/// `ibv_reg_mr` as C programs mean it: with an optional right (relaxed ordering) by
/// `ibv_reg_mr_iova2`, which leaves out what the kernel does not know; a library without that
/// function does not know the rights either, so they are left out here.
///
/// # Safety
/// `pd` is live and of `verbs`. The memory must outlive the region.
pub unsafe fn ibv_reg_mr(
    verbs: &Verbs,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    let required = access & !IBV_ACCESS_OPTIONAL_RANGE;
    match verbs.ibv_reg_mr_iova2() {
        // SAFETY: the caller's.
        Ok(op) if required != access => unsafe { op(pd, addr, length, addr.addr() as u64, access) },
        // SAFETY: the caller's.
        _ => unsafe { verbs.ibv_reg_mr(pd, addr, length, required.cast_signed()) },
    }
}

/// `ibv_reg_mr_iova` as C programs mean it: like [`ibv_reg_mr`], with peers seeing the memory at
/// `iova`.
///
/// # Safety
/// As for [`ibv_reg_mr`].
pub unsafe fn ibv_reg_mr_iova(
    verbs: &Verbs,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr, Missing> {
    let required = access & !IBV_ACCESS_OPTIONAL_RANGE;
    match verbs.ibv_reg_mr_iova2() {
        // SAFETY: the caller's.
        Ok(op) if required != access => Ok(unsafe { op(pd, addr, length, iova, access) }),
        _ => {
            let op = verbs.ibv_reg_mr_iova()?;
            // SAFETY: the caller's.
            Ok(unsafe { op(pd, addr, length, iova, required.cast_signed()) })
        }
    }
}

verbs! {
    /// `ibv_advise_mr`: brings pages of on-demand regions in ahead of use.
    fn ibv_advise_mr(
        pd: *mut ibv_pd,
        advice: ibv_advise_mr_advice,
        flags: u32,
        sg_list: *mut ibv_sge,
        num_sge: u32,
    ) -> c_int = extended!((*pd).context, advise_mr);

    /// `ibv_alloc_null_mr`: a region that discards what is written and reads as zeros.
    fn ibv_alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr
        = extended!((*pd).context, alloc_null_mr);

    /// `ibv_alloc_dm`: memory of the device.
    fn ibv_alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm
        = extended!(context, alloc_dm);

    /// `ibv_free_dm`.
    fn ibv_free_dm(dm: *mut ibv_dm) -> c_int = extended!((*dm).context, free_dm);

    /// `ibv_reg_dm_mr`: a region over memory of the device.
    fn ibv_reg_dm_mr(
        pd: *mut ibv_pd,
        dm: *mut ibv_dm,
        dm_offset: u64,
        length: usize,
        access: c_uint,
    ) -> *mut ibv_mr = extended!((*pd).context, reg_dm_mr);

    /// `ibv_memcpy_to_dm`.
    fn ibv_memcpy_to_dm(
        dm: *mut ibv_dm,
        dm_offset: u64,
        host_addr: *const c_void,
        length: usize,
    ) -> c_int = (*dm).memcpy_to_dm;

    /// `ibv_memcpy_from_dm`.
    fn ibv_memcpy_from_dm(
        host_addr: *mut c_void,
        dm: *mut ibv_dm,
        dm_offset: u64,
        length: usize,
    ) -> c_int = (*dm).memcpy_from_dm;
}
