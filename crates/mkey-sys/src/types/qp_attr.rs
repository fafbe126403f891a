//! What of a queue pair is modified and queried.

use std::ffi::{c_int, c_uint};

use super::{ibv_ah_attr, ibv_mtu, ibv_qp_cap, ibv_qp_state};
use crate::abi::abi;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        ibv_qp_attr {
            qp_state: ibv_qp_state,
            cur_qp_state: ibv_qp_state,
            path_mtu: ibv_mtu,
            path_mig_state: ibv_mig_state,
            qkey: u32,
            rq_psn: u32,
            sq_psn: u32,
            dest_qp_num: u32,
            qp_access_flags: c_uint,
            cap: ibv_qp_cap,
            ah_attr: ibv_ah_attr,
            alt_ah_attr: ibv_ah_attr,
            pkey_index: u16,
            alt_pkey_index: u16,
            en_sqd_async_notify: u8,
            sq_draining: u8,
            max_rd_atomic: u8,
            max_dest_rd_atomic: u8,
            min_rnr_timer: u8,
            port_num: u8,
            timeout: u8,
            retry_cnt: u8,
            rnr_retry: u8,
            alt_port_num: u8,
            alt_timeout: u8,
            rate_limit: u32,
        }
    }
    enums {
        ibv_mig_state: u32 {
            IBV_MIG_MIGRATED = 0,
            IBV_MIG_REARM = 1,
            IBV_MIG_ARMED = 2,
        }
    }
    constants {
        c_int {
            IBV_QP_STATE = 1 << 0,
            IBV_QP_CUR_STATE = 1 << 1,
            IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
            IBV_QP_ACCESS_FLAGS = 1 << 3,
            IBV_QP_PKEY_INDEX = 1 << 4,
            IBV_QP_PORT = 1 << 5,
            IBV_QP_QKEY = 1 << 6,
            IBV_QP_AV = 1 << 7,
            IBV_QP_PATH_MTU = 1 << 8,
            IBV_QP_TIMEOUT = 1 << 9,
            IBV_QP_RETRY_CNT = 1 << 10,
            IBV_QP_RNR_RETRY = 1 << 11,
            IBV_QP_RQ_PSN = 1 << 12,
            IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
            IBV_QP_ALT_PATH = 1 << 14,
            IBV_QP_MIN_RNR_TIMER = 1 << 15,
            IBV_QP_SQ_PSN = 1 << 16,
            IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
            IBV_QP_PATH_MIG_STATE = 1 << 18,
            IBV_QP_CAP = 1 << 19,
            IBV_QP_DEST_QPN = 1 << 20,
            IBV_QP_RATE_LIMIT = 1 << 25,
        }
    }
}
