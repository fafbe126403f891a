//! Building work requests call by call: [`ibv_wr_start`], then for each the operation and what it
//! moves, then [`ibv_wr_complete`] or [`ibv_wr_abort`].
//!
//! `wr_id` and `wr_flags` of the queue pair are set before each operation. A queue pair offers what
//! `send_ops_flags` asked for when it was made.

use std::ffi::{c_int, c_void};

use super::dispatch::{offered, verbs};
use crate::types::*;

offered! {
    /// `ibv_wr_start`: begins; locks the queue.
    fn ibv_wr_start(qp: *mut ibv_qp_ex) -> () = wr_start;

    /// `ibv_wr_abort`: ends, without posting anything.
    fn ibv_wr_abort(qp: *mut ibv_qp_ex) -> () = wr_abort;

    /// `ibv_wr_rdma_write`.
    fn ibv_wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) -> () = wr_rdma_write;

    /// `ibv_wr_rdma_write_imm`: the immediate in network order.
    fn ibv_wr_rdma_write_imm(
        qp: *mut ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        imm_data: be32,
    ) -> () = wr_rdma_write_imm;

    /// `ibv_wr_rdma_read`.
    fn ibv_wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) -> () = wr_rdma_read;

    /// `ibv_wr_atomic_cmp_swp`.
    fn ibv_wr_atomic_cmp_swp(
        qp: *mut ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        compare: u64,
        swap: u64,
    ) -> () = wr_atomic_cmp_swp;

    /// `ibv_wr_atomic_fetch_add`.
    fn ibv_wr_atomic_fetch_add(
        qp: *mut ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        add: u64,
    ) -> () = wr_atomic_fetch_add;

    /// `ibv_wr_atomic_write`: 8 bytes from `atomic_wr`.
    fn ibv_wr_atomic_write(
        qp: *mut ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        atomic_wr: *const c_void,
    ) -> () = wr_atomic_write;

    /// `ibv_wr_bind_mw`: binds a type 2 window under `rkey`.
    fn ibv_wr_bind_mw(
        qp: *mut ibv_qp_ex,
        mw: *mut ibv_mw,
        rkey: u32,
        bind_info: *const ibv_mw_bind_info,
    ) -> () = wr_bind_mw;

    /// `ibv_wr_local_inv`: ends a key.
    fn ibv_wr_local_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32) -> () = wr_local_inv;

    /// `ibv_wr_send`.
    fn ibv_wr_send(qp: *mut ibv_qp_ex) -> () = wr_send;

    /// `ibv_wr_send_imm`: the immediate in network order.
    fn ibv_wr_send_imm(qp: *mut ibv_qp_ex, imm_data: be32) -> () = wr_send_imm;

    /// `ibv_wr_send_inv`: ends a key of the peer's.
    fn ibv_wr_send_inv(qp: *mut ibv_qp_ex, invalidate_rkey: u32) -> () = wr_send_inv;

    /// `ibv_wr_send_tso`: the device cuts the data into segments behind copies of the header.
    fn ibv_wr_send_tso(qp: *mut ibv_qp_ex, hdr: *mut c_void, hdr_sz: u16, mss: u16) -> ()
        = wr_send_tso;

    /// `ibv_wr_set_ud_addr`: where a datagram goes.
    fn ibv_wr_set_ud_addr(
        qp: *mut ibv_qp_ex,
        ah: *mut ibv_ah,
        remote_qpn: u32,
        remote_qkey: u32,
    ) -> () = wr_set_ud_addr;

    /// `ibv_wr_set_xrc_srqn`.
    fn ibv_wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) -> () = wr_set_xrc_srqn;

    /// `ibv_wr_set_inline_data`: the data itself, copied before the call returns.
    fn ibv_wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) -> ()
        = wr_set_inline_data;

    /// `ibv_wr_set_inline_data_list`.
    fn ibv_wr_set_inline_data_list(
        qp: *mut ibv_qp_ex,
        num_buf: usize,
        buf_list: *const ibv_data_buf,
    ) -> () = wr_set_inline_data_list;

    /// `ibv_wr_set_sge`: registered memory to move from or to.
    fn ibv_wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) -> () = wr_set_sge;

    /// `ibv_wr_set_sge_list`.
    fn ibv_wr_set_sge_list(qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge) -> ()
        = wr_set_sge_list;
}

verbs! {
    /// `ibv_wr_complete`: ends, and posts what was built. 0, or the errno of the first mistake, and
    /// then nothing is posted.
    fn ibv_wr_complete(qp: *mut ibv_qp_ex) -> c_int = (*qp).wr_complete;
}
