//! Flow counters.

use std::ffi::c_int;

use super::dispatch::{extended, verbs};
use crate::types::*;

verbs! {
    /// `ibv_create_counters`.
    fn ibv_create_counters(
        context: *mut ibv_context,
        attr: *mut ibv_counters_init_attr,
    ) -> *mut ibv_counters = extended!(context, create_counters);

    /// `ibv_destroy_counters`.
    fn ibv_destroy_counters(counters: *mut ibv_counters) -> c_int
        = extended!((*counters).context, destroy_counters);

    /// `ibv_attach_counters_point_flow`.
    fn ibv_attach_counters_point_flow(
        counters: *mut ibv_counters,
        attr: *mut ibv_counter_attach_attr,
        flow: *mut ibv_flow,
    ) -> c_int = extended!((*counters).context, attach_counters_point_flow);

    /// `ibv_read_counters`.
    fn ibv_read_counters(
        counters: *mut ibv_counters,
        values: *mut u64,
        count: u32,
        flags: u32,
    ) -> c_int = extended!((*counters).context, read_counters);
}
