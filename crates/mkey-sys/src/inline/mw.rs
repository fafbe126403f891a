//! Memory windows.

use std::ffi::c_int;

use super::dispatch::{Unsupported, verbs};
use crate::types::*;

verbs! {
    /// `ibv_alloc_mw`: a memory window.
    fn ibv_alloc_mw(pd: *mut ibv_pd, mw_type: ibv_mw_type) -> *mut ibv_mw
        = (*(*pd).context).ops.alloc_mw;

    /// `ibv_dealloc_mw`.
    fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int = (*(*mw).context).ops.dealloc_mw;
}

/// `ibv_inc_rkey`: the next key of the same window, its low 8 bits one up and wrapping.
pub fn ibv_inc_rkey(rkey: u32) -> u32 {
    rkey & !0xff | rkey.wrapping_add(1) & 0xff
}

/// `ibv_bind_mw`: binds a type 1 window. `EINVAL` for a window of type 2 or a range without a
/// region, `EPERM` for a region of another protection domain.
///
/// # Safety
/// The queue pair, the window and, if it is not null, the region of `mw_bind` are live and of one
/// library.
#[inline]
pub unsafe fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let info = (*mw_bind).bind_info;
        if (*mw).r#type != IBV_MW_TYPE_1 {
            return libc::EINVAL;
        }
        if info.mr.is_null() {
            if info.addr != 0 || info.length != 0 {
                return libc::EINVAL;
            }
        } else if (*mw).pd != (*info.mr).pd {
            return libc::EPERM;
        }
        match (*(*mw).context).ops.bind_mw {
            Some(op) => op(qp, mw, mw_bind),
            None => Unsupported::unsupported(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_key_wraps_within_its_low_byte() {
        assert_eq!(ibv_inc_rkey(0x1234_5600), 0x1234_5601);
        assert_eq!(ibv_inc_rkey(0x1234_56ff), 0x1234_5600);
        assert_eq!(ibv_inc_rkey(u32::MAX), 0xffff_ff00);
    }
}
