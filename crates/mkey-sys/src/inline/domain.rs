//! Making domains.

use std::ffi::c_int;

use super::dispatch::{extended, verbs};
use crate::types::*;

verbs! {
    /// `ibv_alloc_td`: a thread domain.
    fn ibv_alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td
        = extended!(context, alloc_td);

    /// `ibv_dealloc_td`.
    fn ibv_dealloc_td(td: *mut ibv_td) -> c_int = extended!((*td).context, dealloc_td);

    /// `ibv_alloc_parent_domain`: a protection domain with a thread domain and allocators.
    fn ibv_alloc_parent_domain(
        context: *mut ibv_context,
        attr: *mut ibv_parent_domain_init_attr,
    ) -> *mut ibv_pd = extended!(context, alloc_parent_domain);

    /// `ibv_open_xrcd`: an XRC domain.
    fn ibv_open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd
        = extended!(context, open_xrcd);

    /// `ibv_close_xrcd`.
    fn ibv_close_xrcd(xrcd: *mut ibv_xrcd) -> c_int = extended!((*xrcd).context, close_xrcd);
}
