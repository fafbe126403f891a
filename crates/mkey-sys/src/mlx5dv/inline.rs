//! What `infiniband/mlx5dv.h` does in inline functions: UMR work requests.
//!
//! They stand between `ibv_wr_start` and `ibv_wr_complete` of the same queue pair.
//! [`mlx5dv_wr_mkey_configure`] says how many setters follow it.

use std::ffi::{c_int, c_void};

use super::*;
use crate::error::Missing;
use crate::inline::offered;
use crate::mlx5::Mlx5;
use crate::types::{ibv_ah, ibv_sge};

offered! {
    /// `mlx5dv_wr_mkey_configure`: begins to write a key, with `num_setters` calls to follow.
    fn mlx5dv_wr_mkey_configure(
        qp: *mut mlx5dv_qp_ex,
        mkey: *mut mlx5dv_mkey,
        num_setters: u8,
        attr: *mut mlx5dv_mkey_conf_attr,
    ) -> () = wr_mkey_configure;

    /// `mlx5dv_wr_set_mkey_access_flags`: a setter: the rights of the key.
    fn mlx5dv_wr_set_mkey_access_flags(qp: *mut mlx5dv_qp_ex, access_flags: u32) -> ()
        = wr_set_mkey_access_flags;

    /// `mlx5dv_wr_set_mkey_layout_list`: a setter: the key is these pieces, one after the other.
    fn mlx5dv_wr_set_mkey_layout_list(
        qp: *mut mlx5dv_qp_ex,
        num_sges: u16,
        sge: *const ibv_sge,
    ) -> () = wr_set_mkey_layout_list;

    /// `mlx5dv_wr_set_mkey_layout_interleaved`: a setter: the key is these pieces by turns.
    fn mlx5dv_wr_set_mkey_layout_interleaved(
        qp: *mut mlx5dv_qp_ex,
        repeat_count: u32,
        num_interleaved: u16,
        data: *const mlx5dv_mr_interleaved,
    ) -> () = wr_set_mkey_layout_interleaved;

    /// `mlx5dv_wr_set_mkey_sig_block`: a setter: signatures.
    fn mlx5dv_wr_set_mkey_sig_block(
        qp: *mut mlx5dv_qp_ex,
        attr: *const mlx5dv_sig_block_attr,
    ) -> () = wr_set_mkey_sig_block;

    /// `mlx5dv_wr_set_mkey_crypto`: a setter: encryption.
    fn mlx5dv_wr_set_mkey_crypto(qp: *mut mlx5dv_qp_ex, attr: *const mlx5dv_crypto_attr) -> ()
        = wr_set_mkey_crypto;

    /// `mlx5dv_wr_mr_list`: writes rights and pieces of a key in one call.
    fn mlx5dv_wr_mr_list(
        qp: *mut mlx5dv_qp_ex,
        mkey: *mut mlx5dv_mkey,
        access_flags: u32,
        num_sges: u16,
        sge: *mut ibv_sge,
    ) -> () = wr_mr_list;

    /// `mlx5dv_wr_mr_interleaved`: writes rights and interleaved pieces of a key in one call.
    fn mlx5dv_wr_mr_interleaved(
        qp: *mut mlx5dv_qp_ex,
        mkey: *mut mlx5dv_mkey,
        access_flags: u32,
        repeat_count: u32,
        num_interleaved: u16,
        data: *mut mlx5dv_mr_interleaved,
    ) -> () = wr_mr_interleaved;

    /// `mlx5dv_wr_raw_wqe`: a work request in the device's own format.
    fn mlx5dv_wr_raw_wqe(qp: *mut mlx5dv_qp_ex, wqe: *const c_void) -> () = wr_raw_wqe;

    /// `mlx5dv_wr_memcpy`: the device copies between two registered places.
    fn mlx5dv_wr_memcpy(
        qp: *mut mlx5dv_qp_ex,
        dest_lkey: u32,
        dest_addr: u64,
        src_lkey: u32,
        src_addr: u64,
        length: usize,
    ) -> () = wr_memcpy;

    /// `mlx5dv_wr_set_dc_addr`: where a work request of a DC queue pair goes.
    fn mlx5dv_wr_set_dc_addr(
        qp: *mut mlx5dv_qp_ex,
        ah: *mut ibv_ah,
        remote_dctn: u32,
        remote_dc_key: u64,
    ) -> () = wr_set_dc_addr;

    /// `mlx5dv_wr_set_dc_addr_stream`.
    fn mlx5dv_wr_set_dc_addr_stream(
        qp: *mut mlx5dv_qp_ex,
        ah: *mut ibv_ah,
        remote_dctn: u32,
        remote_dc_key: u64,
        stream_id: u16,
    ) -> () = wr_set_dc_addr_stream;
}

/// `mlx5dv_mkey_check`: whether a signature of a key failed, and which.
///
/// # Safety
/// `mkey` is live and of `mlx5`, `error` may be written.
pub unsafe fn mlx5dv_mkey_check(
    mlx5: &Mlx5,
    mkey: *mut mlx5dv_mkey,
    error: *mut mlx5dv_mkey_err,
) -> Result<c_int, Missing> {
    let op = mlx5._mlx5dv_mkey_check()?;
    // SAFETY: the caller's, and the size is the structure's.
    Ok(unsafe { op(mkey, error, size_of::<mlx5dv_mkey_err>()) })
}
