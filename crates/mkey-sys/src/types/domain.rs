//! Domains: protection domains, thread domains, parent domains, XRC domains.

use std::ffi::{c_int, c_void};

use super::ibv_context;
use crate::abi::abi;

abi! {
    structs {
        #[derive(Debug)]
        ibv_pd {
            context: *mut ibv_context,
            handle: u32,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_td_init_attr {
            comp_mask: u32,
        }
        #[derive(Debug)]
        ibv_td {
            context: *mut ibv_context,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_parent_domain_init_attr {
            pd: *mut ibv_pd,
            td: *mut ibv_td,
            comp_mask: u32,
            alloc: Option<
                unsafe extern "C" fn(
                    pd: *mut ibv_pd,
                    pd_context: *mut c_void,
                    size: usize,
                    alignment: usize,
                    resource_type: u64,
                ) -> *mut c_void,
            >,
            free: Option<
                unsafe extern "C" fn(
                    pd: *mut ibv_pd,
                    pd_context: *mut c_void,
                    ptr: *mut c_void,
                    resource_type: u64,
                ),
            >,
            pd_context: *mut c_void,
        }
        #[derive(Clone, Copy, Debug)]
        ibv_xrcd_init_attr {
            comp_mask: u32,
            fd: c_int,
            oflags: c_int,
        }
        #[derive(Debug)]
        ibv_xrcd {
            context: *mut ibv_context,
        }
    }
    constants {
        u32 {
            IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1 << 0,
            IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 1 << 1,
        }
        u32 {
            IBV_XRCD_INIT_ATTR_FD = 1 << 0,
            IBV_XRCD_INIT_ATTR_OFLAGS = 1 << 1,
            IBV_XRCD_INIT_ATTR_RESERVED = 1 << 2,
        }
    }
}
