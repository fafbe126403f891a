//! Work completions.

use std::ffi::c_uint;

use super::be32;
use crate::abi::abi;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        ibv_wc = "struct ibv_wc" {
            wr_id: u64,
            status: ibv_wc_status,
            opcode: ibv_wc_opcode,
            vendor_err: u32,
            byte_len: u32,
            imm_data: be32,
            qp_num: u32,
            src_qp: u32,
            wc_flags: c_uint,
            pkey_index: u16,
            slid: u16,
            sl: u8,
            dlid_path_bits: u8,
        }
    }
    enums {
        ibv_wc_status: u32 {
            IBV_WC_SUCCESS = 0,
            IBV_WC_LOC_LEN_ERR = 1,
            IBV_WC_LOC_QP_OP_ERR = 2,
            IBV_WC_LOC_EEC_OP_ERR = 3,
            IBV_WC_LOC_PROT_ERR = 4,
            IBV_WC_WR_FLUSH_ERR = 5,
            IBV_WC_MW_BIND_ERR = 6,
            IBV_WC_BAD_RESP_ERR = 7,
            IBV_WC_LOC_ACCESS_ERR = 8,
            IBV_WC_REM_INV_REQ_ERR = 9,
            IBV_WC_REM_ACCESS_ERR = 10,
            IBV_WC_REM_OP_ERR = 11,
            IBV_WC_RETRY_EXC_ERR = 12,
            IBV_WC_RNR_RETRY_EXC_ERR = 13,
            IBV_WC_LOC_RDD_VIOL_ERR = 14,
            IBV_WC_REM_INV_RD_REQ_ERR = 15,
            IBV_WC_REM_ABORT_ERR = 16,
            IBV_WC_INV_EECN_ERR = 17,
            IBV_WC_INV_EEC_STATE_ERR = 18,
            IBV_WC_FATAL_ERR = 19,
            IBV_WC_RESP_TIMEOUT_ERR = 20,
            IBV_WC_GENERAL_ERR = 21,
            IBV_WC_TM_ERR = 22,
            IBV_WC_TM_RNDV_INCOMPLETE = 23,
        }
        ibv_wc_opcode: u32 {
            IBV_WC_SEND = 0,
            IBV_WC_RDMA_WRITE = 1,
            IBV_WC_RDMA_READ = 2,
            IBV_WC_COMP_SWAP = 3,
            IBV_WC_FETCH_ADD = 4,
            IBV_WC_BIND_MW = 5,
            IBV_WC_LOCAL_INV = 6,
            IBV_WC_TSO = 7,
            IBV_WC_ATOMIC_WRITE = 9,
            IBV_WC_RECV = 128,
            IBV_WC_RECV_RDMA_WITH_IMM = 129,
            IBV_WC_TM_ADD = 130,
            IBV_WC_TM_DEL = 131,
            IBV_WC_TM_SYNC = 132,
            IBV_WC_TM_RECV = 133,
            IBV_WC_TM_NO_TAG = 134,
            IBV_WC_DRIVER1 = 135,
            IBV_WC_DRIVER2 = 136,
            IBV_WC_DRIVER3 = 137,
        }
    }
    constants {
        c_uint {
            IBV_WC_GRH = 1 << 0,
            IBV_WC_WITH_IMM = 1 << 1,
            IBV_WC_IP_CSUM_OK = 1 << 2,
            IBV_WC_WITH_INV = 1 << 3,
            IBV_WC_TM_SYNC_REQ = 1 << 4,
            IBV_WC_TM_MATCH = 1 << 5,
            IBV_WC_TM_DATA_VALID = 1 << 6,
        }
    }
}
