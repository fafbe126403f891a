//! Memory windows.

use std::ffi::c_uint;

use super::{ibv_context, ibv_mr, ibv_pd};
use crate::abi::abi;

abi! {
    structs {
        #[derive(Debug)]
        ibv_mw {
            context: *mut ibv_context,
            pd: *mut ibv_pd,
            rkey: u32,
            handle: u32,
            r#type: ibv_mw_type,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_mw_bind_info {
            mr: *mut ibv_mr,
            addr: u64,
            length: u64,
            mw_access_flags: c_uint,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_mw_bind {
            wr_id: u64,
            send_flags: c_uint,
            bind_info: ibv_mw_bind_info,
        }
    }
    enums {
        ibv_mw_type: u32 {
            IBV_MW_TYPE_1 = 1,
            IBV_MW_TYPE_2 = 2,
        }
    }
}
