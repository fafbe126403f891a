//! mlx5 devices: how they are opened and what they tell of themselves.

use std::ffi::c_void;

use crate::abi::abi;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        mlx5dv_context_attr @grows {
            flags: u32,
            comp_mask: u64,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_cqe_comp_caps {
            max_num: u32,
            supported_format: u32,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_sw_parsing_caps {
            sw_parsing_offloads: u32,
            supported_qpts: u32,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_striding_rq_caps {
            min_single_stride_log_num_of_bytes: u32,
            max_single_stride_log_num_of_bytes: u32,
            min_single_wqe_log_num_of_strides: u32,
            max_single_wqe_log_num_of_strides: u32,
            supported_qpts: u32,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_sig_caps {
            block_size: u64,
            block_prot: u32,
            t10dif_bg: u16,
            crc_type: u16,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_dci_streams_caps {
            max_log_num_concurent: u8,
            max_log_num_errored: u8,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_crypto_caps {
            failed_selftests: u16,
            crypto_engines: u8,
            wrapped_import_method: u8,
            log_max_num_deks: u8,
            flags: u32,
        }
        #[derive(Clone, Copy, Debug)]
        mlx5dv_context @grows {
            version: u8,
            flags: u64,
            comp_mask: u64,
            cqe_comp_caps: mlx5dv_cqe_comp_caps,
            sw_parsing_caps: mlx5dv_sw_parsing_caps,
            striding_rq_caps: mlx5dv_striding_rq_caps,
            tunnel_offloads_caps: u32,
            max_dynamic_bfregs: u32,
            max_clock_info_update_nsec: u64,
            flow_action_flags: u32,
            dc_odp_caps: u32,
            hca_core_clock: *mut c_void,
            num_lag_ports: u8,
            sig_caps: mlx5dv_sig_caps,
            dci_streams_caps: mlx5dv_dci_streams_caps,
            max_wr_memcpy_length: usize,
            crypto_caps: mlx5dv_crypto_caps,
        }
    }
    constants {
        u32 {
            MLX5DV_CONTEXT_FLAGS_DEVX = 1 << 0,
        }
        u64 {
            MLX5DV_CONTEXT_MASK_CQE_COMPRESION = 1 << 0,
            MLX5DV_CONTEXT_MASK_SWP = 1 << 1,
            MLX5DV_CONTEXT_MASK_STRIDING_RQ = 1 << 2,
            MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS = 1 << 3,
            MLX5DV_CONTEXT_MASK_DYN_BFREGS = 1 << 4,
            MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE = 1 << 5,
            MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS = 1 << 6,
            MLX5DV_CONTEXT_MASK_DC_ODP_CAPS = 1 << 7,
            MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK = 1 << 8,
            MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS = 1 << 9,
            MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD = 1 << 10,
            MLX5DV_CONTEXT_MASK_DCI_STREAMS = 1 << 11,
            MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH = 1 << 12,
            MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD = 1 << 13,
        }
        u64 {
            MLX5DV_CONTEXT_FLAGS_CQE_V1 = 1 << 0,
            MLX5DV_CONTEXT_FLAGS_OBSOLETE = 1 << 1,
            MLX5DV_CONTEXT_FLAGS_MPW_ALLOWED = 1 << 2,
            MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW = 1 << 3,
            MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP = 1 << 4,
            MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD = 1 << 5,
            MLX5DV_CONTEXT_FLAGS_PACKET_BASED_CREDIT_MODE = 1 << 6,
            MLX5DV_CONTEXT_FLAGS_REAL_TIME_TS = 1 << 7,
        }
    }
}
