//! Memory keys whose scatter list is written by work requests (UMR).

use std::ffi::c_int;

use crate::abi::abi;
use crate::types::ibv_pd;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        mlx5dv_mkey_init_attr {
            pd: *mut ibv_pd,
            create_flags: u32,
            max_entries: u16,
        }
        #[derive(Debug)]
        mlx5dv_mkey {
            lkey: u32,
            rkey: u32,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_mr_interleaved {
            addr: u64,
            bytes_count: u32,
            bytes_skip: u32,
            lkey: u32,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_mkey_conf_attr {
            conf_flags: u32,
            comp_mask: u64,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_sig_err {
            actual_value: u64,
            expected_value: u64,
            offset: u64,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_mkey_err = "struct mlx5dv_mkey_err" {
            err_type: mlx5dv_mkey_err_type,
            err: mlx5dv_mkey_err_detail,
        }
    }
    unions {
        mlx5dv_mkey_err_detail = "__typeof__(((struct mlx5dv_mkey_err *)0)->err)" {
            sig: mlx5dv_sig_err,
        }
    }
    enums {
        mlx5dv_mkey_err_type: u32 {
            MLX5DV_MKEY_NO_ERR = 0,
            MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD = 1,
            MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG = 2,
            MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG = 3,
        }
    }
    constants {
        u32 {
            MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT = 1 << 0,
            MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE = 1 << 1,
            MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO = 1 << 2,
            MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG = 1 << 3,
            MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE = 1 << 4,
        }
        u32 {
            MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR = 1 << 0,
        }
    }
}

/// A dma-buf region that the NIC reaches by its own path to the other device, for
/// `mlx5dv_reg_dmabuf_mr`. It is in the headers since rdma-core 54.
pub const MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT: c_int = 1 << 0;
