//! Completion queues and their channels.

use std::ffi::{c_int, c_void};

use super::{ibv_context, ibv_pd, pthread_cond_t, pthread_mutex_t};
use crate::abi::abi;

abi! {
    structs {
        #[derive(Debug)]
        ibv_comp_channel {
            context: *mut ibv_context,
            fd: c_int,
            refcnt: c_int,
        }
        #[derive(Debug)]
        ibv_cq {
            context: *mut ibv_context,
            channel: *mut ibv_comp_channel,
            cq_context: *mut c_void,
            handle: u32,
            cqe: c_int,
            mutex: pthread_mutex_t,
            cond: pthread_cond_t,
            comp_events_completed: u32,
            async_events_completed: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_cq_init_attr_ex @grows {
            cqe: u32,
            cq_context: *mut c_void,
            channel: *mut ibv_comp_channel,
            comp_vector: u32,
            wc_flags: u64,
            comp_mask: u32,
            flags: u32,
            parent_domain: *mut ibv_pd,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_moderate_cq {
            cq_count: u16,
            cq_period: u16,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_modify_cq_attr {
            attr_mask: u32,
            moderate: ibv_moderate_cq,
        }
    }
    constants {
        u64 {
            IBV_WC_EX_WITH_BYTE_LEN = 1 << 0,
            IBV_WC_EX_WITH_IMM = 1 << 1,
            IBV_WC_EX_WITH_QP_NUM = 1 << 2,
            IBV_WC_EX_WITH_SRC_QP = 1 << 3,
            IBV_WC_EX_WITH_SLID = 1 << 4,
            IBV_WC_EX_WITH_SL = 1 << 5,
            IBV_WC_EX_WITH_DLID_PATH_BITS = 1 << 6,
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 1 << 7,
            IBV_WC_EX_WITH_CVLAN = 1 << 8,
            IBV_WC_EX_WITH_FLOW_TAG = 1 << 9,
            IBV_WC_EX_WITH_TM_INFO = 1 << 10,
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11,
        }
        u64 {
            IBV_WC_STANDARD_FLAGS = 127,
            IBV_CREATE_CQ_SUP_WC_FLAGS = 4095,
        }
        u32 {
            IBV_CQ_INIT_ATTR_MASK_FLAGS = 1 << 0,
            IBV_CQ_INIT_ATTR_MASK_PD = 1 << 1,
        }
        u32 {
            IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1 << 0,
            IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 1 << 1,
        }
        u32 {
            IBV_CQ_ATTR_MODERATE = 1 << 0,
            IBV_CQ_ATTR_RESERVED = 1 << 1,
        }
    }
}
