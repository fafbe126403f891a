//! Shared receive queues.

use crate::acks::Acks;
use crate::boundary::{EINVAL, EOPNOTSUPP, Errno, Verb, plain};
use crate::context::Open;
use crate::cq::Cq;
use crate::objects::{Found, Kind, Object, Spares, of};
use crate::pd::Pd;
use crate::post;
use crate::structs;
use crate::xrcd::Xrcd;
use mkey_core::data_plane::{DataPlane, SharedReceive};
use mkey_core::device::{Device, SrqHandle};
use mkey_soft::WeakSrq;
use mkey_sys::types::*;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) handle: SrqHandle,
    queue: WeakSrq,
    max_wr: u32,
    max_sge: u32,
    pub(crate) events: Acks,
}

static SRQS: Spares<Srq> = Spares::new();

// SAFETY: `ibv_srq` begins with its context.
unsafe impl Kind for Srq {
    type Base = ibv_srq;

    fn spares() -> &'static Spares<Self> {
        &SRQS
    }
}

/// `ibv_create_srq`.
pub(crate) fn create(
    pd: &Found<Pd>,
    srq_context: *mut c_void,
    attr: &ibv_srq_attr,
) -> Verb<*mut ibv_srq> {
    let handle = pd.open.device.create_srq(pd.handle, attr.max_wr, attr.max_sge)?;
    show(pd, handle, srq_context, attr)
}

fn show(
    pd: &Found<Pd>,
    handle: SrqHandle,
    srq_context: *mut c_void,
    attr: &ibv_srq_attr,
) -> Verb<*mut ibv_srq> {
    let device = &pd.open.device;
    let queue = device.srq(handle)?;
    let mut base: ibv_srq = bytemuck::Zeroable::zeroed();
    base.context = pd.open.base();
    base.srq_context = srq_context;
    base.pd = pd.object.base();
    base.handle = handle.0 as u32;
    let (max_wr, max_sge) = (attr.max_wr, attr.max_sge);
    let own = Srq { handle, queue: queue.downgrade(), max_wr, max_sge, events: Acks::default() };
    let object = Object::new(pd.open.number, base, own);
    pd.open.queues().srqs.insert(handle, object);
    if attr.srq_limit > 0 {
        // A limit at creation is not looked at by most drivers; one that does not fit is not by us.
        let _ = device.modify_srq(handle, attr.srq_limit);
    }
    Ok(object.base())
}

/// `ibv_create_srq_ex`.
///
/// # Safety
/// `attr` is null or as the verbs have it; what it points to is null or an object of libibverbs' kind.
pub(crate) unsafe fn create_ex(
    open: &Arc<Open>,
    attr: *const ibv_srq_init_attr_ex,
) -> Verb<*mut ibv_srq> {
    // SAFETY: the caller's.
    let attr = unsafe { structs::srq_init(attr) }?;
    const XRC: u32 = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    if attr.comp_mask & !(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | XRC) != 0 {
        return Err(EOPNOTSUPP);
    }
    let kind = match attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE {
        0 => IBV_SRQT_BASIC,
        _ => attr.srq_type,
    };
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 {
        return Err(EINVAL);
    }
    // SAFETY: the caller's.
    let pd = unsafe { of::<Pd, _>(open, attr.pd) }?;
    match kind {
        IBV_SRQT_BASIC => create(&pd, attr.srq_context, &attr.attr),
        IBV_SRQT_XRC if attr.comp_mask & XRC == XRC => {
            // SAFETY: the caller's.
            let (xrcd, cq) =
                unsafe { (of::<Xrcd, _>(open, attr.xrcd)?, of::<Cq, _>(open, attr.cq)?) };
            let (max_wr, max_sge) = (attr.attr.max_wr, attr.attr.max_sge);
            let device = &pd.open.device;
            let handle =
                device.create_xrc_srq(pd.handle, xrcd.handle, cq.handle, max_wr, max_sge)?;
            show(&pd, handle, attr.srq_context, &attr.attr)
        }
        IBV_SRQT_XRC => Err(EINVAL),
        _ => Err(EOPNOTSUPP),
    }
}

/// `ibv_modify_srq`.
pub(crate) fn modify(srq: &Found<Srq>, attr: &ibv_srq_attr, mask: c_int) -> Verb<()> {
    if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
        return Err(EINVAL);
    }
    // The device does not say that it can (`IBV_DEVICE_SRQ_RESIZE`).
    if mask & IBV_SRQ_MAX_WR != 0 {
        return Err(EOPNOTSUPP);
    }
    if mask & IBV_SRQ_LIMIT != 0 {
        srq.open.device.modify_srq(srq.handle, attr.srq_limit)?;
    }
    Ok(())
}

/// `ibv_query_srq`.
pub(crate) fn query(srq: &Found<Srq>) -> Verb<ibv_srq_attr> {
    let srq_limit = srq.open.device.query_srq(srq.handle)?;
    Ok(ibv_srq_attr { max_wr: srq.max_wr, max_sge: srq.max_sge, srq_limit })
}

/// `ibv_destroy_srq`: waits until all its events are acknowledged.
pub(crate) fn destroy(srq: &Found<Srq>) -> Verb<()> {
    srq.open.device.destroy_srq(srq.handle)?;
    srq.open.queues().srqs.remove(&srq.handle);
    srq.events.wait();
    srq.object.end();
    Ok(())
}

/// `ibv_post_srq_recv`.
pub(crate) unsafe extern "C" fn post_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    plain(libc::EIO, || {
        // SAFETY: the operation of a queue of ours is called with one of ours.
        let own = unsafe { Object::<Srq>::live(srq) }.and_then(Object::own);
        let queue = own.and_then(|own| own.queue.upgrade());
        // SAFETY: the program's list, as the verbs have it.
        unsafe {
            post::receives(wr, bad, |chain| match &queue {
                Some(queue) => queue.post_recv(chain),
                None => Err(post::nobodys()),
            })
        }
        .map_or_else(|Errno(errno)| errno, |()| 0)
    })
}
