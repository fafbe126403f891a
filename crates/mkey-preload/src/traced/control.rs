//! The exported verbs that make, change and end objects: as `exports` has them, and told of.

use crate::boundary::plain;
use crate::traced::contexts;
use crate::traced::queues::{self, COMPLETIONS, PAIRS, SHARED};
use crate::traced::{BLANK, begin, build, errno, poll, set_errno, told, told_by};
use crate::{exports, newer};
use mkey_sys::types::*;
use mkey_trace::raw::Verb;
use mkey_trace::record::{Called, Recorder};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

/// A call that made or ended an object, of another.
pub(super) fn call_of<T, U>(object: *mut T, parent: *mut U) -> Called {
    Called { object: object.addr() as u64, parent: parent.addr() as u64, ..BLANK }
}

/// The same of a domain.
pub(super) fn pd_call(pd: *mut ibv_pd, context: *mut ibv_context) -> Called {
    call_of(pd, context)
}

pub(super) fn is_made<T>(object: *mut T) -> bool {
    !object.is_null()
}

/// A call that made a region, or not.
///
/// # Safety
/// `mr` is null or live.
pub(super) unsafe fn region(
    mr: *mut ibv_mr,
    pd: *mut ibv_pd,
    (addr, len): (u64, u64),
    iova: u64,
    access: u32,
) -> Called {
    // SAFETY: the caller's.
    let (lkey, rkey) = unsafe { mr.as_ref() }.map_or((0, 0), |mr| (mr.lkey, mr.rkey));
    Called { addr, len, iova, access, lkey, rkey, ..call_of(mr, pd) }
}

/// The context of an object; null of none.
///
/// # Safety
/// The pointer is null or points to an object of libibverbs', all of which begin with their context.
unsafe fn context_of<T>(object: *mut T) -> *mut ibv_context {
    // SAFETY: the caller's.
    unsafe { object.cast::<*mut ibv_context>().as_ref() }.copied().unwrap_or(ptr::null_mut())
}

/// Opens a device, and takes its pointers.
fn opens(inner: impl Fn() -> *mut ibv_context) -> *mut ibv_context {
    let Some(recorder) = plain(None, begin) else { return inner() };
    told_by(recorder, Verb::OpenDevice, inner, |context| {
        let mut call = call_of(context, ptr::null_mut::<c_void>());
        if is_made(context) {
            // SAFETY: it was just opened.
            call.device = unsafe { contexts::opened(recorder, context) };
        }
        call
    })
}

pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the caller's.
    opens(|| unsafe { exports::ibv_open_device(device) })
}

pub(crate) unsafe extern "C" fn ibv_import_device(fd: c_int) -> *mut ibv_context {
    // SAFETY: the caller's.
    opens(|| unsafe { exports::ibv_import_device(fd) })
}

pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: the caller's.
    let close = || unsafe { exports::ibv_close_device(context) };
    // Told of by who knows the context still.
    let before = Recorder::current().zip(contexts::CONTEXTS.get(context, 0));
    let before = before.filter(|(_, place)| place.is_own());
    // SAFETY: the caller's.
    let closing = plain(None, || unsafe { contexts::closing(context) });
    let result = match before {
        None => close(),
        Some((recorder, place)) => told_by(recorder, Verb::CloseDevice, close, |_| {
            let device = place.value.device();
            Called { device, ..call_of(context, ptr::null_mut::<c_void>()) }
        }),
    };
    let after = errno();
    plain((), || match (closing, result) {
        (None, _) => {}
        (Some(closing), 0) => contexts::closed(&closing),
        // SAFETY: it is open still.
        (Some(closing), _) => unsafe { contexts::open_still(&closing) },
    });
    set_errno(after);
    result
}

pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_alloc_pd(context) };
    told(context, Verb::AllocPd, inner, |_, _, pd| pd_call(pd, context))
}

pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller's.
    let context = unsafe { context_of(pd) };
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_dealloc_pd(pd) };
    told(context, Verb::DeallocPd, inner, |_, _, _| pd_call(pd, context))
}

/// Where a region begins for who names its key.
fn begins(iova: u64, access: u32) -> u64 {
    if access & IBV_ACCESS_ZERO_BASED != 0 { 0 } else { iova }
}

pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_reg_mr(pd, addr, length, access) };
    let (memory, access) = ((addr.addr() as u64, length as u64), access as u32);
    // SAFETY: the caller's; null or what was made.
    told(unsafe { context_of(pd) }, Verb::RegMr, inner, |_, _, mr| unsafe {
        region(mr, pd, memory, begins(memory.0, access), access)
    })
}

/// The verb of a region with an address of its own; the inline function calls it for others, too.
fn reg_iova(addr: u64, iova: u64) -> Verb {
    if addr == iova { Verb::RegMr } else { Verb::RegMrIova }
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_reg_mr_iova(pd, addr, length, iova, access) };
    let (memory, access) = ((addr.addr() as u64, length as u64), access as u32);
    // SAFETY: the caller's; null or what was made.
    told(unsafe { context_of(pd) }, reg_iova(memory.0, iova), inner, |_, _, mr| unsafe {
        region(mr, pd, memory, begins(iova, access), access)
    })
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_reg_mr_iova2(pd, addr, length, iova, access) };
    let memory = (addr.addr() as u64, length as u64);
    // SAFETY: the caller's; null or what was made.
    told(unsafe { context_of(pd) }, reg_iova(memory.0, iova), inner, |_, _, mr| unsafe {
        region(mr, pd, memory, begins(iova, access), access)
    })
}

pub(crate) unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access) };
    let (memory, access) = ((0, length as u64), access as u32);
    // SAFETY: the caller's; null or what was made. It has no address of the process's.
    told(unsafe { context_of(pd) }, Verb::RegDmabufMr, inner, |_, _, mr| unsafe {
        region(mr, pd, memory, begins(iova, access), access)
    })
}

/// The attributes of a region in its newest headers, as far as they are looked at.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attributes {
    length: usize,
    access: c_int,
    mask: u64,
    iova: u64,
    addr: *mut c_void,
}

/// Bits of [`Attributes::mask`].
const WITH_IOVA: u64 = 1 << 0;
const WITH_ADDR: u64 = 1 << 1;

pub(crate) unsafe extern "C" fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *mut c_void) -> *mut ibv_mr {
    // SAFETY: the caller's.
    let inner = || unsafe { newer::ibv_reg_mr_ex(pd, attr) };
    // SAFETY: the caller's; null or what was made, of attributes that begin so in all headers.
    told(unsafe { context_of(pd) }, Verb::RegMr, inner, |_, _, mr| unsafe {
        let Some(attr) = attr.cast::<Attributes>().as_ref() else { return call_of(mr, pd) };
        let addr = if attr.mask & WITH_ADDR != 0 { attr.addr.addr() as u64 } else { 0 };
        let iova = if attr.mask & WITH_IOVA != 0 { attr.iova } else { addr };
        let verb =
            if attr.mask & WITH_ADDR != 0 { reg_iova(addr, iova) } else { Verb::RegDmabufMr };
        let access = attr.access as u32;
        let call = region(mr, pd, (addr, attr.length as u64), begins(iova, access), access);
        Called { verb, ..call }
    })
}

pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_rereg_mr(mr, flags, pd, addr, length, access) };
    // SAFETY: the caller's.
    told(unsafe { context_of(mr) }, Verb::ReregMr, inner, |_, _, _| {
        // SAFETY: live, as its context is known; its fields are those that it has now.
        let now = unsafe { &*mr };
        let memory = match flags & IBV_REREG_MR_CHANGE_TRANSLATION {
            0 => (now.addr.addr() as u64, now.length as u64),
            _ => (addr.addr() as u64, length as u64),
        };
        // SAFETY: as above.
        let call = unsafe { region(mr, now.pd, memory, memory.0, access as u32) };
        Called { detail: flags as u32, ..call }
    })
}

pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: null or live until the verb, or one of ours, which are never given back.
    let call = unsafe { mr.as_ref() }.map_or(BLANK, |now| {
        let memory = (now.addr.addr() as u64, now.length as u64);
        // SAFETY: as above.
        unsafe { region(mr, now.pd, memory, 0, 0) }
    });
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_dereg_mr(mr) };
    // SAFETY: the caller's.
    told(unsafe { context_of(mr) }, Verb::DeregMr, inner, |_, _, _| call)
}

pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_create_cq(context, cqe, cq_context, channel, vector) };
    told(context, Verb::CreateCq, inner, |_, _, cq| {
        // SAFETY: null or what was made.
        let cqe = unsafe { cq.as_ref() }.map_or(cqe, |made| made.cqe);
        Called { detail: cqe as u32, ..call_of(cq, context) }
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's.
    let context = unsafe { context_of(cq) };
    let ending = COMPLETIONS.get(cq, 0).map(|place| (place, place.mark()));
    if let Some((place, _)) = ending {
        // SAFETY: it is live still.
        unsafe { poll::give_back(&place.value) };
    }
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_destroy_cq(cq) };
    let result = told(context, Verb::DestroyCq, inner, |_, _, _| call_of(cq, context));
    match (ending, result) {
        (None, _) => {}
        (Some((place, mark)), 0) => place.remove(mark),
        // SAFETY: it is live still.
        (Some((place, _)), _) => unsafe { poll::take_back(&place.value) },
    }
    result
}

pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_create_srq(pd, init) };
    // SAFETY: the caller's.
    told(unsafe { context_of(pd) }, Verb::CreateSrq, inner, |recorder, device, srq| {
        // SAFETY: null or the program's.
        let Some(init) = (unsafe { init.as_ref() }) else { return call_of(srq, pd) };
        if is_made(srq) {
            // SAFETY: nobody else knows it yet.
            unsafe {
                queues::shared_made(recorder, device, srq, &init.attr, ptr::null_mut());
            }
        }
        Called { detail: init.attr.max_wr, ..call_of(srq, pd) }
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the caller's.
    let context = unsafe { context_of(srq) };
    let ending = SHARED.get(srq, 0).map(|place| (place, place.mark(), place.value.queue()));
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_destroy_srq(srq) };
    let result = told(context, Verb::DestroySrq, inner, |_, _, _| call_of(srq, context));
    if let Some((place, mark, queue)) = ending.filter(|_| result == 0) {
        queues::end(place.is_own(), queue);
        place.remove(mark);
    }
    result
}

pub(crate) unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_create_qp(pd, init) };
    // SAFETY: the caller's.
    told(unsafe { context_of(pd) }, Verb::CreateQp, inner, |recorder, device, qp| {
        // SAFETY: null or the program's.
        let Some(init) = (unsafe { init.as_ref() }) else { return call_of(qp, pd) };
        if is_made(qp) {
            // SAFETY: nobody else knows it yet.
            unsafe {
                queues::pair_made(recorder, device, qp, &init.cap, init.sq_sig_all != 0);
            }
        }
        Called { detail: init.qp_type.0, ..call_of(qp, pd) }
    })
}

pub(crate) unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller's.
    let context = unsafe { context_of(qp) };
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_modify_qp(qp, attr, mask) };
    told(context, Verb::ModifyQp, inner, |recorder, _, result| {
        // SAFETY: null or the program's; the queue pair is live, as its context is known.
        let (state, number) = unsafe {
            let named = attr.as_ref().filter(|_| mask & IBV_QP_STATE != 0);
            (named.map(|attr| attr.qp_state), (*qp).qp_num)
        };
        if result == 0 && state == Some(IBV_QPS_RESET) {
            let pair = PAIRS.get(context, number).filter(|pair| pair.is_own());
            if let Some(queue) = pair.and_then(|pair| pair.value.queue()) {
                queue.reset(recorder);
            }
        }
        Called { detail: state.map_or(u32::MAX, |state| state.0), ..call_of(qp, context) }
    })
}

pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller's.
    let context = unsafe { context_of(qp) };
    // SAFETY: null or live until the verb, or one of ours, which are never given back.
    let number = unsafe { qp.as_ref() }.map_or(u32::MAX, |qp| qp.qp_num);
    let place = PAIRS.get(context, number).filter(|pair| pair.value.is_it(qp));
    let queues_of = |pair: &queues::Pair| (pair.queue(), pair.shared());
    let ending = place.map(|place| (place, place.mark(), queues_of(&place.value)));
    if let Some(place) = place {
        // SAFETY: it is live still.
        unsafe { build::give_back(&place.value) };
    }
    // SAFETY: the caller's.
    let inner = || unsafe { exports::ibv_destroy_qp(qp) };
    let result = told(context, Verb::DestroyQp, inner, |_, _, _| call_of(qp, context));
    match (ending, result) {
        (None, _) => {}
        (Some((place, mark, followed)), 0) => {
            queues::pair_ended(place.is_own(), followed);
            place.remove(mark);
        }
        // SAFETY: it is live still.
        (Some((place, ..)), _) => unsafe { build::take_back(&place.value) },
    }
    result
}
