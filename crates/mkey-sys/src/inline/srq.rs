//! Shared receive queues.

use std::ffi::c_int;

use super::dispatch::{Unsupported, extended, verbs};
use crate::types::*;
use crate::verbs::Verbs;

/// `ibv_create_srq_ex`: a basic queue of a protection domain by `ibv_create_srq`, others by the
/// provider's extended function.
///
/// # Safety
/// `context` is an open device of `verbs`; `attr` may be read and written, and what it names is
/// live.
pub unsafe fn ibv_create_srq_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the caller's; the extended attributes begin with the plain ones.
    unsafe {
        let mask = (*attr).comp_mask;
        let beyond = mask & !(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE);
        let basic = mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || (*attr).srq_type == IBV_SRQT_BASIC;
        if beyond == 0 && mask & IBV_SRQ_INIT_ATTR_PD != 0 && basic {
            return verbs.ibv_create_srq((*attr).pd, attr.cast());
        }
        match extended!(context, create_srq_ex) {
            Some(op) => op(context, attr),
            None => Unsupported::unsupported(),
        }
    }
}

verbs! {
    /// `ibv_get_srq_num`: the number of an XRC queue.
    fn ibv_get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int
        = extended!((*srq).context, get_srq_num);

    /// `ibv_post_srq_recv`: posts receives.
    fn ibv_post_srq_recv(
        srq: *mut ibv_srq,
        recv_wr: *mut ibv_recv_wr,
        bad_recv_wr: *mut *mut ibv_recv_wr,
    ) -> c_int = (*(*srq).context).ops.post_srq_recv;
}
