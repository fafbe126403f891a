//! Completion queues.

use std::ffi::c_int;

use super::dispatch::{extended, verbs};
use crate::types::*;

verbs! {
    /// `ibv_create_cq_ex`: an extended completion queue.
    fn ibv_create_cq_ex(
        context: *mut ibv_context,
        attr: *mut ibv_cq_init_attr_ex,
    ) -> *mut ibv_cq_ex = extended!(context, create_cq_ex);

    /// `ibv_modify_cq`: how many completions, or how much time, one event stands for.
    fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int
        = extended!((*cq).context, modify_cq);

    /// `ibv_req_notify_cq`: asks for an event at the next completion.
    fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int
        = (*(*cq).context).ops.req_notify_cq;
}

/// `ibv_poll_cq`: takes up to `num_entries` completions. Answers how many, or a negative number.
///
/// # Safety
/// `cq` is live, `num_entries` completions may be written at `wc`.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the queue is live, by the caller.
    match unsafe { (*(*cq).context).ops.poll_cq } {
        // SAFETY: the provider's own function, with the arguments the caller vouches for.
        Some(op) => unsafe { op(cq, num_entries, wc) },
        // A positive answer is a number of completions.
        None => -libc::EOPNOTSUPP,
    }
}

/// `ibv_cq_ex_to_cq`: the plain queue that an extended one begins with.
pub fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}
