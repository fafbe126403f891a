//! Verbs of the control path behind pointers of the context.

use crate::boundary::plain;
use crate::exports;
use crate::structs;
use crate::traced::contexts::{self, Opened};
use crate::traced::control::{call_of, is_made, pd_call, region};
use crate::traced::post::{CLOSED, bound_to, this_thread};
use crate::traced::queues::{self, PAIRS, Pair};
use crate::traced::{BLANK, build, poll, told};
use mkey_sys::types::*;
use mkey_trace::raw::{Op, Verb};
use mkey_trace::record::{Called, Recorder, Work};
use std::ffi::{c_int, c_uint};
use std::ptr;
use std::sync::atomic::Ordering;

/// What one that makes an object answers where the context is not known.
fn none<T>() -> *mut T {
    crate::traced::set_errno(CLOSED);
    ptr::null_mut()
}

/// What the pointer led to, and the context.
macro_rules! original {
    ($object:expr, $table:ident . $op:ident, else $failed:expr) => {{
        // SAFETY: an operation is called with an object of libibverbs.
        match unsafe { contexts::of($object) }.and_then(|opened: &Opened| opened.$table().$op) {
            // SAFETY: as above: objects begin with their context.
            Some(original) => (original, unsafe { *$object.cast::<*mut ibv_context>() }),
            None => return $failed,
        }
    }};
}

pub(super) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    let (original, context) = original!(pd, ops.alloc_mw, else none());
    // SAFETY: the caller's.
    let inner = || unsafe { original(pd, kind) };
    told(context, Verb::AllocMw, inner, |_, _, mw| {
        // SAFETY: null or what was made.
        let rkey = unsafe { mw.as_ref() }.map_or(0, |mw| mw.rkey);
        Called { rkey, detail: kind.0, ..call_of(mw, pd) }
    })
}

pub(super) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    let (original, context) = original!(mw, ops.dealloc_mw, else CLOSED);
    // SAFETY: a window, until the verb.
    let (rkey, pd) = unsafe { ((*mw).rkey, (*mw).pd) };
    // SAFETY: the caller's.
    let inner = || unsafe { original(mw) };
    told(context, Verb::DeallocMw, inner, |_, _, _| Called { rkey, ..call_of(mw, pd) })
}

/// Some drivers post by their own operation, which is seen; so what it posts is noted here alone.
pub(super) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    let (original, context) = original!(qp, ops.bind_mw, else CLOSED);
    // SAFETY: the operation of a queue pair is called with one.
    let place = PAIRS.get(context, unsafe { (*qp).qp_num }).filter(|place| place.is_own());
    // SAFETY: null or a structure of the program's.
    let given = unsafe { bind.as_ref() };
    let noted = plain(None, || note_bind(&place?.value, given?));
    // SAFETY: the caller's.
    let inner = || unsafe { original(qp, mw, bind) };
    let result = told(context, Verb::BindMw, inner, |_, _, _| {
        // SAFETY: null or live; the driver has changed the key.
        let rkey = unsafe { mw.as_ref() }.map_or(0, |mw| mw.rkey);
        let Some(info) = given.map(|given| given.bind_info) else { return BLANK };
        Called {
            addr: info.addr,
            len: info.length,
            access: info.mw_access_flags,
            // SAFETY: null or live.
            lkey: unsafe { info.mr.as_ref() }.map_or(0, |mr| mr.lkey),
            rkey,
            ..call_of(mw, info.mr)
        }
    });
    if let Some((recorder, pair)) = noted {
        pair.binding.store(0, Ordering::Relaxed);
        plain((), || match (result, given) {
            // SAFETY: the driver took the window and the region, which are live.
            (0, Some(given)) => unsafe {
                let device = pair.device.load(Ordering::Relaxed);
                bound_to(recorder, device, mw, (*mw).rkey, &given.bind_info);
            },
            _ => {
                if let Some(queue) = pair.queue() {
                    queue.not_posted(recorder, 1, false);
                }
            }
        });
    }
    result
}

fn note_bind<'a>(pair: &'a Pair, bind: &ibv_mw_bind) -> Option<(&'static Recorder, &'a Pair)> {
    let (recorder, queue) = (Recorder::current()?, pair.queue()?);
    let signaled = bind.send_flags & IBV_SEND_SIGNALED != 0;
    let work = Work {
        id: bind.wr_id,
        op: Op::Bind,
        signaled: signaled || pair.signal_all.load(Ordering::Relaxed),
        inlined: false,
        invalidates: false,
        entries: &[],
        remote: None,
    };
    queue.post(recorder, &work);
    pair.binding.store(this_thread(), Ordering::Relaxed);
    Some((recorder, pair))
}

pub(super) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: ibv_advise_mr_advice,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    let (original, context) = original!(pd, extended.advise_mr, else CLOSED);
    // SAFETY: a list of the program's, if it is not empty.
    let first = unsafe { list.as_ref() }.filter(|_| count > 0).copied();
    // SAFETY: the caller's.
    let inner = || unsafe { original(pd, advice, flags, list, count) };
    told(context, Verb::AdviseMr, inner, |_, _, _| {
        let first = first.unwrap_or(ibv_sge { addr: 0, length: 0, lkey: 0 });
        Called {
            addr: first.addr,
            len: u64::from(first.length),
            lkey: first.lkey,
            detail: advice.0,
            ..call_of(ptr::null_mut::<ibv_mr>(), pd)
        }
    })
}

pub(super) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    let (original, context) = original!(pd, extended.alloc_null_mr, else none());
    // SAFETY: the caller's.
    let inner = || unsafe { original(pd) };
    // SAFETY: null or what was made.
    told(context, Verb::NullMr, inner, |_, _, mr| unsafe { region(mr, pd, (0, u64::MAX), 0, 0) })
}

pub(super) unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    let (original, context) = original!(pd, extended.reg_dm_mr, else none());
    // SAFETY: the caller's.
    let inner = || unsafe { original(pd, dm, offset, length, access) };
    told(context, Verb::RegDmMr, inner, |_, _, mr| {
        // SAFETY: null or what was made. The device's memory has no address.
        unsafe { region(mr, pd, (0, length as u64), 0, access) }
    })
}

pub(super) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    let Some(original) = opened(context).and_then(|opened| opened.extended().alloc_parent_domain)
    else {
        return none();
    };
    // SAFETY: the caller's.
    let inner = || unsafe { original(context, attr) };
    told(context, Verb::AllocPd, inner, |_, _, pd| pd_call(pd, context))
}

fn opened(context: *mut ibv_context) -> Option<&'static Opened> {
    Some(&contexts::CONTEXTS.get(context, 0)?.value)
}

pub(super) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let Some(original) = opened(context).and_then(|opened| opened.extended().create_cq_ex) else {
        return none();
    };
    let inner = || {
        // What a completion is of is read by the number of its queue pair: it is asked for as well, as
        // long as nothing is asked for that is not known here.
        // SAFETY: null or as much of a structure as its mask names.
        if let Ok(mut more) = unsafe { structs::cq_init(attr) }
            && more.comp_mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) == 0
            && more.wc_flags & IBV_WC_EX_WITH_QP_NUM == 0
            && Recorder::current().is_some()
        {
            more.wc_flags |= IBV_WC_EX_WITH_QP_NUM;
            // SAFETY: a whole structure.
            let cq = unsafe { original(context, &mut more) };
            if !cq.is_null() {
                return cq;
            }
        }
        // SAFETY: the caller's.
        unsafe { original(context, attr) }
    };
    told(context, Verb::CreateCq, inner, |_, device, cq| {
        // SAFETY: null or what was made.
        let Some(made) = (unsafe { cq.as_ref() }) else { return call_of(cq, context) };
        let polled = queues::polled_made(device, cq.cast(), cq, None);
        let call = Called { detail: made.cqe as u32, ..call_of(cq, context) };
        // SAFETY: nobody else knows it yet.
        unsafe { poll::take_over(cq, polled) };
        call
    })
}

pub(super) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let Some(original) = opened(context).and_then(|opened| opened.extended().create_qp_ex) else {
        return none();
    };
    // SAFETY: the caller's.
    let inner = || unsafe { original(context, attr) };
    told(context, Verb::CreateQp, inner, |recorder, device, qp| {
        // SAFETY: null or as much of a structure as its mask names.
        let Ok(init) = (unsafe { structs::qp_init(attr) }) else { return call_of(qp, context) };
        let pd = if init.comp_mask & IBV_QP_INIT_ATTR_PD != 0 { init.pd } else { ptr::null_mut() };
        if is_made(qp) {
            // SAFETY: nobody else knows it yet.
            let extended = unsafe {
                queues::pair_made(recorder, device, qp, &init.cap, init.sq_sig_all != 0);
                exports::ibv_qp_to_qp_ex(qp)
            };
            if init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0
                && ptr::eq(extended.cast(), qp)
                // SAFETY: what was made.
                && let Some(pair) = PAIRS.get(context, unsafe { (*qp).qp_num })
            {
                // SAFETY: nobody else knows it yet.
                unsafe { build::take_over(extended, &pair.value) };
            }
        }
        Called { detail: init.qp_type.0, ..call_of(qp, pd) }
    })
}

/// Queue pairs of XRC that another process made: nothing is posted to them, but completions name them.
pub(super) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    let Some(original) = opened(context).and_then(|opened| opened.extended().open_qp) else {
        return none();
    };
    // SAFETY: the caller's.
    let inner = || unsafe { original(context, attr) };
    told(context, Verb::CreateQp, inner, |recorder, device, qp| {
        // One that this process made itself, or has opened, is followed as that.
        // SAFETY: live.
        let known = is_made(qp)
            && PAIRS.get(context, unsafe { (*qp).qp_num }).is_some_and(|pair| pair.is_own());
        if is_made(qp) && !known {
            let cap = bytemuck::Zeroable::zeroed();
            // SAFETY: nobody else in this process knows it yet.
            unsafe { queues::pair_made(recorder, device, qp, &cap, false) };
        }
        Called { detail: IBV_QPT_XRC_RECV.0, ..call_of(qp, context) }
    })
}

pub(super) unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    let Some(original) = opened(context).and_then(|opened| opened.extended().create_srq_ex) else {
        return none();
    };
    // SAFETY: the caller's.
    let inner = || unsafe { original(context, attr) };
    told(context, Verb::CreateSrq, inner, |recorder, device, srq| {
        // SAFETY: null or as much of a structure as its mask names.
        let Ok(init) = (unsafe { structs::srq_init(attr) }) else { return call_of(srq, context) };
        let pd = if init.comp_mask & IBV_SRQ_INIT_ATTR_PD != 0 { init.pd } else { ptr::null_mut() };
        let xrc = init.comp_mask & IBV_SRQ_INIT_ATTR_CQ != 0 && init.srq_type == IBV_SRQT_XRC;
        let cq = if xrc { init.cq } else { ptr::null_mut() };
        if is_made(srq) {
            // SAFETY: nobody else knows it yet.
            unsafe { queues::shared_made(recorder, device, srq, &init.attr, cq) };
        }
        Called { detail: init.attr.max_wr, ..call_of(srq, pd) }
    })
}
