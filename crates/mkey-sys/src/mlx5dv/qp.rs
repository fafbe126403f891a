//! Queue pairs that take UMR work requests.

use std::ffi::c_void;

use super::{mlx5dv_mkey, mlx5dv_mkey_conf_attr, mlx5dv_mr_interleaved};
use crate::abi::abi;
use crate::types::{ibv_ah, ibv_sge};

abi! {
    opaque {
        mlx5dv_crypto_attr;
        mlx5dv_sig_block_attr;
    }
    structs {
        #[derive(Clone, Copy, Debug)]
        mlx5dv_dci_streams {
            log_num_concurent: u8,
            log_num_errored: u8,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_dc_init_attr = "struct mlx5dv_dc_init_attr" {
            dc_type: mlx5dv_dc_type,
            dct_access_key: u64,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_qp_init_attr @grows {
            comp_mask: u64,
            create_flags: u32,
            dc_init_attr: mlx5dv_dc_init_attr,
            send_ops_flags: u64,
        }
        #[derive(Debug)]
        mlx5dv_qp_ex @grows {
            comp_mask: u64,
            wr_set_dc_addr: Option<
                unsafe extern "C" fn(
                    mqp: *mut mlx5dv_qp_ex,
                    ah: *mut ibv_ah,
                    remote_dctn: u32,
                    remote_dc_key: u64,
                ),
            >,
            wr_mr_interleaved: Option<
                unsafe extern "C" fn(
                    mqp: *mut mlx5dv_qp_ex,
                    mkey: *mut mlx5dv_mkey,
                    access_flags: u32,
                    repeat_count: u32,
                    num_interleaved: u16,
                    data: *mut mlx5dv_mr_interleaved,
                ),
            >,
            wr_mr_list: Option<
                unsafe extern "C" fn(
                    mqp: *mut mlx5dv_qp_ex,
                    mkey: *mut mlx5dv_mkey,
                    access_flags: u32,
                    num_sges: u16,
                    sge: *mut ibv_sge,
                ),
            >,
            wr_mkey_configure: Option<
                unsafe extern "C" fn(
                    mqp: *mut mlx5dv_qp_ex,
                    mkey: *mut mlx5dv_mkey,
                    num_setters: u8,
                    attr: *mut mlx5dv_mkey_conf_attr,
                ),
            >,
            wr_set_mkey_access_flags: Option<
                unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, access_flags: u32),
            >,
            wr_set_mkey_layout_list: Option<
                unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, num_sges: u16, sge: *const ibv_sge),
            >,
            wr_set_mkey_layout_interleaved: Option<
                unsafe extern "C" fn(
                    mqp: *mut mlx5dv_qp_ex,
                    repeat_count: u32,
                    num_interleaved: u16,
                    data: *const mlx5dv_mr_interleaved,
                ),
            >,
            wr_set_mkey_sig_block: Option<
                unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, attr: *const mlx5dv_sig_block_attr),
            >,
            wr_raw_wqe: Option<unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, wqe: *const c_void)>,
            wr_set_dc_addr_stream: Option<
                unsafe extern "C" fn(
                    mqp: *mut mlx5dv_qp_ex,
                    ah: *mut ibv_ah,
                    remote_dctn: u32,
                    remote_dc_key: u64,
                    stream_id: u16,
                ),
            >,
            wr_memcpy: Option<
                unsafe extern "C" fn(
                    mqp: *mut mlx5dv_qp_ex,
                    dest_lkey: u32,
                    dest_addr: u64,
                    src_lkey: u32,
                    src_addr: u64,
                    length: usize,
                ),
            >,
            wr_set_mkey_crypto: Option<
                unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, attr: *const mlx5dv_crypto_attr),
            >,
        }
    }
    enums {
        mlx5dv_dc_type: u32 {
            MLX5DV_DCTYPE_DCT = 1,
            MLX5DV_DCTYPE_DCI = 2,
        }
    }
    constants {
        u32 {
            MLX5DV_WC_UMR = 135,
            MLX5DV_WC_RAW_WQE = 136,
            MLX5DV_WC_MEMCPY = 137,
        }
        u64 {
            MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS = 1 << 0,
            MLX5DV_QP_INIT_ATTR_MASK_DC = 1 << 1,
            MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS = 1 << 2,
            MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS = 1 << 3,
        }
        u32 {
            MLX5DV_QP_CREATE_TUNNEL_OFFLOADS = 1 << 0,
            MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC = 1 << 1,
            MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC = 1 << 2,
            MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE = 1 << 3,
            MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE = 1 << 4,
            MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE = 1 << 5,
            MLX5DV_QP_CREATE_SIG_PIPELINING = 1 << 6,
        }
        u64 {
            MLX5DV_QP_EX_WITH_MR_INTERLEAVED = 1 << 0,
            MLX5DV_QP_EX_WITH_MR_LIST = 1 << 1,
            MLX5DV_QP_EX_WITH_MKEY_CONFIGURE = 1 << 2,
            MLX5DV_QP_EX_WITH_RAW_WQE = 1 << 3,
            MLX5DV_QP_EX_WITH_MEMCPY = 1 << 4,
        }
    }
}
