//! Queue pairs and what they are made with.

use std::ffi::{c_int, c_void};

use super::*;
use crate::abi::abi;

abi! {
    structs {
        #[derive(Debug)]
        ibv_qp {
            context: *mut ibv_context,
            qp_context: *mut c_void,
            pd: *mut ibv_pd,
            send_cq: *mut ibv_cq,
            recv_cq: *mut ibv_cq,
            srq: *mut ibv_srq,
            handle: u32,
            qp_num: u32,
            state: ibv_qp_state,
            qp_type: ibv_qp_type,
            mutex: pthread_mutex_t,
            cond: pthread_cond_t,
            events_completed: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_qp_cap {
            max_send_wr: u32,
            max_recv_wr: u32,
            max_send_sge: u32,
            max_recv_sge: u32,
            max_inline_data: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_qp_init_attr {
            qp_context: *mut c_void,
            send_cq: *mut ibv_cq,
            recv_cq: *mut ibv_cq,
            srq: *mut ibv_srq,
            cap: ibv_qp_cap,
            qp_type: ibv_qp_type,
            sq_sig_all: c_int,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_rx_hash_conf {
            rx_hash_function: u8,
            rx_hash_key_len: u8,
            rx_hash_key: *mut u8,
            rx_hash_fields_mask: u64,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_qp_init_attr_ex @grows {
            qp_context: *mut c_void,
            send_cq: *mut ibv_cq,
            recv_cq: *mut ibv_cq,
            srq: *mut ibv_srq,
            cap: ibv_qp_cap,
            qp_type: ibv_qp_type,
            sq_sig_all: c_int,
            comp_mask: u32,
            pd: *mut ibv_pd,
            xrcd: *mut ibv_xrcd,
            create_flags: u32,
            max_tso_header: u16,
            rwq_ind_tbl: *mut ibv_rwq_ind_table,
            rx_hash_conf: ibv_rx_hash_conf,
            source_qpn: u32,
            send_ops_flags: u64,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_qp_open_attr {
            comp_mask: u32,
            qp_num: u32,
            xrcd: *mut ibv_xrcd,
            qp_context: *mut c_void,
            qp_type: ibv_qp_type,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_qp_rate_limit_attr {
            rate_limit: u32,
            max_burst_sz: u32,
            typical_pkt_sz: u16,
            comp_mask: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_ece {
            vendor_id: u32,
            options: u32,
            comp_mask: u32,
        }
    }
    enums {
        ibv_qp_type: u32 {
            IBV_QPT_RC = 2,
            IBV_QPT_UC = 3,
            IBV_QPT_UD = 4,
            IBV_QPT_RAW_PACKET = 8,
            IBV_QPT_XRC_SEND = 9,
            IBV_QPT_XRC_RECV = 10,
            IBV_QPT_DRIVER = 255,
        }
        ibv_qp_state: u32 {
            IBV_QPS_RESET = 0,
            IBV_QPS_INIT = 1,
            IBV_QPS_RTR = 2,
            IBV_QPS_RTS = 3,
            IBV_QPS_SQD = 4,
            IBV_QPS_SQE = 5,
            IBV_QPS_ERR = 6,
            IBV_QPS_UNKNOWN = 7,
        }
    }
    constants {
        u32 {
            IBV_QP_INIT_ATTR_PD = 1 << 0,
            IBV_QP_INIT_ATTR_XRCD = 1 << 1,
            IBV_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2,
            IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 1 << 3,
            IBV_QP_INIT_ATTR_IND_TABLE = 1 << 4,
            IBV_QP_INIT_ATTR_RX_HASH = 1 << 5,
            IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6,
        }
        u32 {
            IBV_QP_CREATE_BLOCK_SELF_MCAST_LB = 1 << 1,
            IBV_QP_CREATE_SCATTER_FCS = 1 << 8,
            IBV_QP_CREATE_CVLAN_STRIPPING = 1 << 9,
            IBV_QP_CREATE_SOURCE_QPN = 1 << 10,
            IBV_QP_CREATE_PCI_WRITE_END_PADDING = 1 << 11,
        }
        u64 {
            IBV_QP_EX_WITH_RDMA_WRITE = 1 << 0,
            IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1,
            IBV_QP_EX_WITH_SEND = 1 << 2,
            IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3,
            IBV_QP_EX_WITH_RDMA_READ = 1 << 4,
            IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5,
            IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6,
            IBV_QP_EX_WITH_LOCAL_INV = 1 << 7,
            IBV_QP_EX_WITH_BIND_MW = 1 << 8,
            IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9,
            IBV_QP_EX_WITH_TSO = 1 << 10,
            IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12,
        }
        u32 {
            IBV_QP_OPEN_ATTR_NUM = 1 << 0,
            IBV_QP_OPEN_ATTR_XRCD = 1 << 1,
            IBV_QP_OPEN_ATTR_CONTEXT = 1 << 2,
            IBV_QP_OPEN_ATTR_TYPE = 1 << 3,
            IBV_QP_OPEN_ATTR_RESERVED = 1 << 4,
        }
    }
}
