//! What a device tells of itself.

use crate::context::Context;
use mkey_sys::inline;
use mkey_sys::types::*;
use std::ffi::c_int;

/// The attributes of the device; the errno if they can not be had.
pub(crate) fn query(context: &Context) -> Result<ibv_device_attr_ex, i32> {
    let mut attr: ibv_device_attr_ex = bytemuck::Zeroable::zeroed();
    let input = std::ptr::null();
    // SAFETY: the device is open, and the attributes are ours to be written.
    let answer =
        unsafe { inline::ibv_query_device_ex(context.verbs, context.raw(), input, &raw mut attr) };
    if answer == 0 { Ok(attr) } else { Err(crate::failure::errno_of(answer)) }
}

/// A limit, which libibverbs gives with a sign.
pub(crate) fn limit(value: c_int) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// The most objects that a device declares, as its driver says now. Some drivers take off what is in
/// use (irdma's regions); others declare more than the firmware gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Protection domains.
    pub pd: u32,
    /// Completion queues.
    pub cq: u32,
    /// Queue pairs.
    pub qp: u32,
    /// Memory regions.
    pub mr: u32,
    /// Memory windows; 0 where there are none.
    pub mw: u32,
}

impl Limits {
    /// The limits that a device's attributes hold.
    pub(crate) fn of(attr: &ibv_device_attr_ex) -> Self {
        let attr = &attr.orig_attr;
        Self {
            pd: limit(attr.max_pd),
            cq: limit(attr.max_cq),
            qp: limit(attr.max_qp),
            mr: limit(attr.max_mr),
            mw: limit(attr.max_mw),
        }
    }
}
