//! Queue pairs: made, and ended.

use crate::acks::Acks;
use crate::boundary::{EINVAL, EOPNOTSUPP, Verb};
use crate::context::{Context, Open};
use crate::cq::Cq;
use crate::objects::{Found, Kind, Object, Spares, of};
use crate::pd::Pd;
use crate::qp_ex::{self, Building};
use crate::srq::Srq;
use crate::structs;
use crate::xrcd::Xrcd;
use mkey_core::data_plane::{DataPlane, QueuePair};
use mkey_core::device::{Device, PdHandle, QpHandle};
use mkey_core::queue_pair::{QpInit, QpKind, Xrc};
use mkey_soft::{SoftQp, WeakQp};
use mkey_sys::types::*;
use std::ptr;
use std::sync::{Arc, Mutex};

/// A queue pair; all are extended ones.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) handle: QpHandle,
    /// Where it belongs: work requests name objects of no other.
    pub(crate) context: &'static Context,
    queue: WeakQp,
    pub(crate) kind: QpKind,
    pub(crate) xrc: Option<Xrc>,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) signal_all: bool,
    pub(crate) events: Acks,
    /// Addresses as they were given, for who asks.
    pub(crate) address: Mutex<Option<ibv_ah_attr>>,
    /// Work requests that are being built call by call.
    pub(crate) building: Building,
}

static QPS: Spares<Qp> = Spares::new();

// SAFETY: `ibv_qp_ex` begins with its context.
unsafe impl Kind for Qp {
    type Base = ibv_qp_ex;

    fn spares() -> &'static Spares<Self> {
        &QPS
    }
}

impl Qp {
    /// The queue pair, if it is still there.
    #[inline]
    pub(crate) fn queue(&self) -> Verb<SoftQp> {
        self.queue.upgrade().ok_or(EINVAL)
    }

    pub(crate) fn is_datagram(&self) -> bool {
        self.kind == QpKind::Ud
    }

    /// Whether its messages name a shared receive queue.
    pub(crate) fn names_srq(&self) -> bool {
        self.xrc == Some(Xrc::Send)
    }
}

/// `ibv_create_qp`: what was asked for is what it has.
///
/// # Safety
/// What `init` points to is null or an object of libibverbs' kind.
pub(crate) unsafe fn create(pd: &Found<Pd>, init: &ibv_qp_init_attr) -> Verb<*mut ibv_qp> {
    let ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all } = *init;
    let zero: ibv_qp_init_attr_ex = bytemuck::Zeroable::zeroed();
    let extended = ibv_qp_init_attr_ex {
        qp_context,
        send_cq,
        recv_cq,
        srq,
        cap,
        qp_type,
        sq_sig_all,
        comp_mask: IBV_QP_INIT_ATTR_PD,
        pd: pd.object.base(),
        ..zero
    };
    // SAFETY: the caller's.
    unsafe { create_as_known(&pd.open, &extended) }
}

/// `ibv_create_qp_ex`.
///
/// # Safety
/// As for [`create`].
pub(crate) unsafe fn create_ex(
    open: &Arc<Open>,
    init: *const ibv_qp_init_attr_ex,
) -> Verb<*mut ibv_qp> {
    // SAFETY: the caller's.
    unsafe { create_as_known(open, &structs::qp_init(init)?) }
}

/// The same of fields that may all be read.
///
/// # Safety
/// As for [`create`].
unsafe fn create_as_known(open: &Arc<Open>, init: &ibv_qp_init_attr_ex) -> Verb<*mut ibv_qp> {
    let known = IBV_QP_INIT_ATTR_PD
        | IBV_QP_INIT_ATTR_XRCD
        | IBV_QP_INIT_ATTR_CREATE_FLAGS
        | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if init.comp_mask & !known != 0 {
        return Err(EOPNOTSUPP);
    }
    if init.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && init.create_flags != 0 {
        return Err(EOPNOTSUPP);
    }
    let kind = match init.qp_type {
        IBV_QPT_XRC_RECV => {
            // SAFETY: the caller's.
            return unsafe { create_receiving(open, init) };
        }
        IBV_QPT_RC | IBV_QPT_XRC_SEND => QpKind::Rc,
        IBV_QPT_UC => QpKind::Uc,
        IBV_QPT_UD => QpKind::Ud,
        _ => return Err(EOPNOTSUPP),
    };
    if init.comp_mask & IBV_QP_INIT_ATTR_PD == 0 {
        return Err(EINVAL);
    }
    // SAFETY: the caller's.
    let pd = unsafe { of::<Pd, _>(open, init.pd) }?;
    let extended = init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    if extended && init.send_ops_flags & !qp_ex::offered(kind) != 0 {
        return Err(EOPNOTSUPP);
    }
    // SAFETY: the caller's.
    let send_cq = unsafe { of::<Cq, _>(open, init.send_cq) }?.handle;
    let sends = init.qp_type == IBV_QPT_XRC_SEND;
    let recv_cq = match sends {
        true => send_cq,
        // SAFETY: the caller's.
        false => unsafe { of::<Cq, _>(open, init.recv_cq) }?.handle,
    };
    let srq = match sends || init.srq.is_null() {
        true => None,
        // SAFETY: the caller's.
        false => Some(unsafe { of::<Srq, _>(open, init.srq) }?),
    };
    let cap = init.cap;
    let what = QpInit {
        kind,
        xrc: sends.then_some(Xrc::Send),
        send_cq,
        recv_cq,
        srq: srq.map(|srq| srq.handle),
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline: cap.max_inline_data,
        signal_all: init.sq_sig_all != 0,
    };
    show(open, pd.handle, &what, init)
}

/// The receiving end of an extended connection: what it takes belongs to the queues of its domain.
///
/// # Safety
/// As for [`create`].
unsafe fn create_receiving(open: &Arc<Open>, init: &ibv_qp_init_attr_ex) -> Verb<*mut ibv_qp> {
    if init.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 {
        return Err(EINVAL);
    }
    // SAFETY: the caller's.
    let xrcd = unsafe { of::<Xrcd, _>(open, init.xrcd) }?;
    let (pd, cq) = open.nothing()?;
    let what = QpInit {
        xrc: Some(Xrc::Receive(xrcd.handle)),
        max_send_wr: 0,
        max_recv_wr: 0,
        max_send_sge: 0,
        max_recv_sge: 0,
        max_inline: 0,
        ..QpInit::new(QpKind::Rc, cq)
    };
    // What it does not have is not looked at, and not shown.
    let shown = ibv_qp_init_attr_ex {
        pd: ptr::null_mut(),
        send_cq: ptr::null_mut(),
        recv_cq: ptr::null_mut(),
        srq: ptr::null_mut(),
        cap: bytemuck::Zeroable::zeroed(),
        ..*init
    };
    show(open, pd, &what, &shown)
}

fn show(
    open: &Arc<Open>,
    pd: PdHandle,
    what: &QpInit,
    init: &ibv_qp_init_attr_ex,
) -> Verb<*mut ibv_qp> {
    let (device, cap) = (&open.device, init.cap);
    let extended = init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    let info = device.create_qp(pd, what)?;
    let queue = device.qp(info.handle)?;
    let mut base: ibv_qp_ex = bytemuck::Zeroable::zeroed();
    base.qp_base = ibv_qp {
        context: open.base(),
        qp_context: init.qp_context,
        pd: init.pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: info.handle.0 as u32,
        qp_num: queue.qp_num(),
        state: IBV_QPS_RESET,
        qp_type: init.qp_type,
        ..base.qp_base
    };
    qp_ex::fill(&mut base);
    let own = Qp {
        handle: info.handle,
        context: open.context,
        queue: queue.downgrade(),
        kind: what.kind,
        xrc: what.xrc,
        cap,
        signal_all: what.signal_all,
        events: Acks::default(),
        address: Mutex::default(),
        building: Building::new(if extended { init.send_ops_flags } else { 0 }),
    };
    let object = Object::new(open.number, base, own);
    open.queues().qps.insert(info.handle, object);
    Ok(object.base().cast())
}

/// `ibv_destroy_qp`: waits until all its events are acknowledged.
pub(crate) fn destroy(qp: &Found<Qp>) -> Verb<()> {
    qp.open.device.destroy_qp(qp.handle)?;
    qp.open.queues().qps.remove(&qp.handle);
    qp.events.wait();
    qp.object.end();
    Ok(())
}

/// `ibv_qp_to_qp_ex`: of a queue pair that was made with operations.
pub(crate) fn extended(qp: &Found<Qp>) -> Verb<*mut ibv_qp_ex> {
    match qp.building.operations {
        0 => Ok(ptr::null_mut()),
        _ => Ok(qp.object.base()),
    }
}
