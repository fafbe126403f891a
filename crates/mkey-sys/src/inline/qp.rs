//! Queue pairs.

use std::ffi::c_int;

use super::dispatch::{Unsupported, extended, verbs};
use crate::types::*;
use crate::verbs::Verbs;

/// `ibv_create_qp_ex`: with nothing but a protection domain by `ibv_create_qp`, else by the
/// provider's extended function.
///
/// # Safety
/// `context` is an open device of `verbs`; `attr` may be read and written, and what it names is
/// live.
pub unsafe fn ibv_create_qp_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller's; the extended attributes begin with the plain ones.
    unsafe {
        if (*attr).comp_mask == IBV_QP_INIT_ATTR_PD {
            return verbs.ibv_create_qp((*attr).pd, attr.cast());
        }
        match extended!(context, create_qp_ex) {
            Some(op) => op(context, attr),
            None => Unsupported::unsupported(),
        }
    }
}

verbs! {
    /// `ibv_open_qp`: opens a shareable queue pair.
    fn ibv_open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp
        = extended!(context, open_qp);

    /// `ibv_modify_qp_rate_limit`.
    fn ibv_modify_qp_rate_limit(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int
        = extended!((*qp).context, modify_qp_rate_limit);

    /// `ibv_post_send`: posts work requests.
    fn ibv_post_send(
        qp: *mut ibv_qp,
        wr: *mut ibv_send_wr,
        bad_wr: *mut *mut ibv_send_wr,
    ) -> c_int = (*(*qp).context).ops.post_send;

    /// `ibv_post_recv`: posts receives.
    fn ibv_post_recv(
        qp: *mut ibv_qp,
        wr: *mut ibv_recv_wr,
        bad_wr: *mut *mut ibv_recv_wr,
    ) -> c_int = (*(*qp).context).ops.post_recv;
}
