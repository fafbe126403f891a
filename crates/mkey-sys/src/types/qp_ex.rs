//! Extended queue pairs: work requests built call by call.

use std::ffi::{c_int, c_uint, c_void};

use super::{be32, ibv_ah, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_sge};
use crate::abi::abi;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        ibv_data_buf {
            addr: *mut c_void,
            length: usize,
        }
        #[derive(Debug)]
        ibv_qp_ex @grows {
            qp_base: ibv_qp,
            comp_mask: u64,
            wr_id: u64,
            wr_flags: c_uint,
            wr_atomic_cmp_swp: Option<
                unsafe extern "C" fn(
                    qp: *mut ibv_qp_ex,
                    rkey: u32,
                    remote_addr: u64,
                    compare: u64,
                    swap: u64,
                ),
            >,
            wr_atomic_fetch_add: Option<
                unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64),
            >,
            wr_bind_mw: Option<
                unsafe extern "C" fn(
                    qp: *mut ibv_qp_ex,
                    mw: *mut ibv_mw,
                    rkey: u32,
                    bind_info: *const ibv_mw_bind_info,
                ),
            >,
            wr_local_inv: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, invalidate_rkey: u32)>,
            wr_rdma_read: Option<
                unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64),
            >,
            wr_rdma_write: Option<
                unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64),
            >,
            wr_rdma_write_imm: Option<
                unsafe extern "C" fn(
                    qp: *mut ibv_qp_ex,
                    rkey: u32,
                    remote_addr: u64,
                    imm_data: be32,
                ),
            >,
            wr_send: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex)>,
            wr_send_imm: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, imm_data: be32)>,
            wr_send_inv: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, invalidate_rkey: u32)>,
            wr_send_tso: Option<
                unsafe extern "C" fn(qp: *mut ibv_qp_ex, hdr: *mut c_void, hdr_sz: u16, mss: u16),
            >,
            wr_set_ud_addr: Option<
                unsafe extern "C" fn(
                    qp: *mut ibv_qp_ex,
                    ah: *mut ibv_ah,
                    remote_qpn: u32,
                    remote_qkey: u32,
                ),
            >,
            wr_set_xrc_srqn: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, remote_srqn: u32)>,
            wr_set_inline_data: Option<
                unsafe extern "C" fn(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize),
            >,
            wr_set_inline_data_list: Option<
                unsafe extern "C" fn(
                    qp: *mut ibv_qp_ex,
                    num_buf: usize,
                    buf_list: *const ibv_data_buf,
                ),
            >,
            wr_set_sge: Option<
                unsafe extern "C" fn(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32),
            >,
            wr_set_sge_list: Option<
                unsafe extern "C" fn(qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge),
            >,
            wr_start: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex)>,
            wr_complete: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex) -> c_int>,
            wr_abort: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex)>,
            wr_atomic_write: Option<
                unsafe extern "C" fn(
                    qp: *mut ibv_qp_ex,
                    rkey: u32,
                    remote_addr: u64,
                    atomic_wr: *const c_void,
                ),
            >,
        }
    }
}
