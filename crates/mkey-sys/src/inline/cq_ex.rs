//! Reading an extended completion queue entry by entry.

use std::ffi::{c_int, c_uint};

use super::dispatch::{offered, verbs};
use crate::error::NotOffered;
use crate::types::*;

verbs! {
    /// `ibv_start_poll`: the first entry. 0, `ENOENT` if there is none, or another errno; only
    /// after 0 must [`ibv_end_poll`] follow.
    fn ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int = (*cq).start_poll;

    /// `ibv_next_poll`: the next entry. 0, `ENOENT` if there is none, or another errno.
    fn ibv_next_poll(cq: *mut ibv_cq_ex) -> c_int = (*cq).next_poll;
}

offered! {
    /// `ibv_end_poll`: gives the entries back.
    fn ibv_end_poll(cq: *mut ibv_cq_ex) -> () = end_poll;

    /// `ibv_wc_read_opcode`.
    fn ibv_wc_read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode = read_opcode;

    /// `ibv_wc_read_vendor_err`.
    fn ibv_wc_read_vendor_err(cq: *mut ibv_cq_ex) -> u32 = read_vendor_err;

    /// `ibv_wc_read_byte_len`.
    fn ibv_wc_read_byte_len(cq: *mut ibv_cq_ex) -> u32 = read_byte_len;

    /// `ibv_wc_read_imm_data`: in network order, or the key that was invalidated as it is
    /// ([`ibv_wc_read_invalidated_rkey`]).
    fn ibv_wc_read_imm_data(cq: *mut ibv_cq_ex) -> be32 = read_imm_data;

    /// `ibv_wc_read_qp_num`.
    fn ibv_wc_read_qp_num(cq: *mut ibv_cq_ex) -> u32 = read_qp_num;

    /// `ibv_wc_read_src_qp`.
    fn ibv_wc_read_src_qp(cq: *mut ibv_cq_ex) -> u32 = read_src_qp;

    /// `ibv_wc_read_wc_flags`.
    fn ibv_wc_read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint = read_wc_flags;

    /// `ibv_wc_read_slid`.
    fn ibv_wc_read_slid(cq: *mut ibv_cq_ex) -> u32 = read_slid;

    /// `ibv_wc_read_sl`.
    fn ibv_wc_read_sl(cq: *mut ibv_cq_ex) -> u8 = read_sl;

    /// `ibv_wc_read_dlid_path_bits`.
    fn ibv_wc_read_dlid_path_bits(cq: *mut ibv_cq_ex) -> u8 = read_dlid_path_bits;

    /// `ibv_wc_read_completion_ts`: in ticks of the device.
    fn ibv_wc_read_completion_ts(cq: *mut ibv_cq_ex) -> u64 = read_completion_ts;

    /// `ibv_wc_read_completion_wallclock_ns`.
    fn ibv_wc_read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64
        = read_completion_wallclock_ns;

    /// `ibv_wc_read_cvlan`.
    fn ibv_wc_read_cvlan(cq: *mut ibv_cq_ex) -> u16 = read_cvlan;

    /// `ibv_wc_read_flow_tag`.
    fn ibv_wc_read_flow_tag(cq: *mut ibv_cq_ex) -> u32 = read_flow_tag;

    /// `ibv_wc_read_tm_info`.
    fn ibv_wc_read_tm_info(cq: *mut ibv_cq_ex, tm_info: *mut ibv_wc_tm_info) -> () = read_tm_info;
}

/// `ibv_wc_read_invalidated_rkey`: the key that the peer's SEND_WITH_INV ended, in host order.
///
/// # Safety
/// As for [`ibv_wc_read_imm_data`].
#[inline]
pub unsafe fn ibv_wc_read_invalidated_rkey(cq: *mut ibv_cq_ex) -> Result<u32, NotOffered> {
    // SAFETY: the caller's.
    unsafe { ibv_wc_read_imm_data(cq) }
}
