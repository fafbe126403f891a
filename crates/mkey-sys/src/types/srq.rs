//! Shared receive queues.

use std::ffi::{c_int, c_void};

use super::{ibv_context, ibv_cq, ibv_pd, ibv_xrcd, pthread_cond_t, pthread_mutex_t};
use crate::abi::abi;

abi! {
    structs {
        #[derive(Debug)]
        ibv_srq {
            context: *mut ibv_context,
            srq_context: *mut c_void,
            pd: *mut ibv_pd,
            handle: u32,
            mutex: pthread_mutex_t,
            cond: pthread_cond_t,
            events_completed: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_srq_attr {
            max_wr: u32,
            max_sge: u32,
            srq_limit: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_srq_init_attr {
            srq_context: *mut c_void,
            attr: ibv_srq_attr,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_tm_cap {
            max_num_tags: u32,
            max_ops: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_srq_init_attr_ex @grows {
            srq_context: *mut c_void,
            attr: ibv_srq_attr,
            comp_mask: u32,
            srq_type: ibv_srq_type,
            pd: *mut ibv_pd,
            xrcd: *mut ibv_xrcd,
            cq: *mut ibv_cq,
            tm_cap: ibv_tm_cap,
        }
    }
    enums {
        ibv_srq_type: u32 {
            IBV_SRQT_BASIC = 0,
            IBV_SRQT_XRC = 1,
            IBV_SRQT_TM = 2,
        }
    }
    constants {
        c_int {
            IBV_SRQ_MAX_WR = 1 << 0,
            IBV_SRQ_LIMIT = 1 << 1,
        }
        u32 {
            IBV_SRQ_INIT_ATTR_TYPE = 1 << 0,
            IBV_SRQ_INIT_ATTR_PD = 1 << 1,
            IBV_SRQ_INIT_ATTR_XRCD = 1 << 2,
            IBV_SRQ_INIT_ATTR_CQ = 1 << 3,
            IBV_SRQ_INIT_ATTR_TM = 1 << 4,
            IBV_SRQ_INIT_ATTR_RESERVED = 1 << 5,
        }
    }
}
