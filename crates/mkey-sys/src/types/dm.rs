//! Device memory.

use std::ffi::{c_int, c_void};

use super::ibv_context;
use crate::abi::abi;

abi! {
    structs {
        #[derive(Clone, Copy, Debug)]
        ibv_alloc_dm_attr {
            length: usize,
            log_align_req: u32,
            comp_mask: u32,
        }
        #[derive(Debug)]
        ibv_dm {
            context: *mut ibv_context,
            memcpy_to_dm: Option<
                unsafe extern "C" fn(
                    dm: *mut ibv_dm,
                    dm_offset: u64,
                    host_addr: *const c_void,
                    length: usize,
                ) -> c_int,
            >,
            memcpy_from_dm: Option<
                unsafe extern "C" fn(
                    host_addr: *mut c_void,
                    dm: *mut ibv_dm,
                    dm_offset: u64,
                    length: usize,
                ) -> c_int,
            >,
            comp_mask: u32,
            handle: u32,
        }
    }
    constants {
        u32 {
            IBV_DM_MASK_HANDLE = 1 << 0,
        }
    }
}
