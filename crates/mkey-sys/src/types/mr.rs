//! Memory regions.

use std::ffi::{c_int, c_uint, c_void};

use super::{ibv_context, ibv_pd};
use crate::abi::abi;

abi! {
    structs {
        #[derive(Debug)]
        ibv_mr {
            context: *mut ibv_context,
            pd: *mut ibv_pd,
            addr: *mut c_void,
            length: usize,
            handle: u32,
            lkey: u32,
            rkey: u32,
        }
    }
    enums {
        ibv_rereg_mr_err_code: i32 {
            IBV_REREG_MR_ERR_INPUT = -1,
            IBV_REREG_MR_ERR_DONT_FORK_NEW = -2,
            IBV_REREG_MR_ERR_DO_FORK_OLD = -3,
            IBV_REREG_MR_ERR_CMD = -4,
            IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5,
        }
        ibv_advise_mr_advice: u32 {
            IBV_ADVISE_MR_ADVICE_PREFETCH = 0,
            IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1,
            IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2,
        }
    }
    constants {
        c_uint {
            IBV_ACCESS_LOCAL_WRITE = 1 << 0,
            IBV_ACCESS_REMOTE_WRITE = 1 << 1,
            IBV_ACCESS_REMOTE_READ = 1 << 2,
            IBV_ACCESS_REMOTE_ATOMIC = 1 << 3,
            IBV_ACCESS_MW_BIND = 1 << 4,
            IBV_ACCESS_ZERO_BASED = 1 << 5,
            IBV_ACCESS_ON_DEMAND = 1 << 6,
            IBV_ACCESS_HUGETLB = 1 << 7,
            IBV_ACCESS_RELAXED_ORDERING = 1 << 20,
        }
        c_uint {
            IBV_ACCESS_OPTIONAL_RANGE = 0x3ff0_0000,
            IBV_ACCESS_OPTIONAL_FIRST = 1 << 20,
        }
        c_int {
            IBV_REREG_MR_CHANGE_TRANSLATION = 1 << 0,
            IBV_REREG_MR_CHANGE_PD = 1 << 1,
            IBV_REREG_MR_CHANGE_ACCESS = 1 << 2,
            IBV_REREG_MR_FLAGS_SUPPORTED = 7,
        }
        u32 {
            IBV_ADVISE_MR_FLAG_FLUSH = 1 << 0,
        }
    }
}
