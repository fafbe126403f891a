//! Completion queues.

use crate::acks::Acks;
use crate::boundary::{EINVAL, EOPNOTSUPP, Verb, plain};
use crate::channel::Channel;
use crate::context::Open;
use crate::cq_ex::{self, Polling};
use crate::objects::{Found, Kind, Object, Spares, of};
use crate::pd::Pd;
use crate::structs;
use mkey_core::data_plane::{CompletionQueue, DataPlane};
use mkey_core::device::{CqHandle, Device};
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::Completion;
use mkey_soft::{SoftCq, WeakCq};
use mkey_sys::types::*;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// A completion queue; all are extended ones.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) handle: CqHandle,
    queue: WeakCq,
    pub(crate) completion_events: Acks,
    pub(crate) async_events: Acks,
    /// Polling entry by entry.
    pub(crate) polling: Polling,
}

static CQS: Spares<Cq> = Spares::new();

// SAFETY: `ibv_cq_ex` begins with its context.
unsafe impl Kind for Cq {
    type Base = ibv_cq_ex;

    fn spares() -> &'static Spares<Self> {
        &CQS
    }
}

impl Cq {
    /// The queue, if its device is still there.
    #[inline]
    pub(crate) fn queue(&self) -> Verb<SoftCq> {
        self.queue.upgrade().ok_or(EINVAL)
    }
}

/// What a queue is made with.
pub(crate) struct Init {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) comp_vector: i32,
    /// What an extended queue tells of a completion; of a plain one nothing.
    pub(crate) wc_flags: u64,
}

/// `ibv_create_cq`.
///
/// # Safety
/// The channel is null or an object of libibverbs' kind.
pub(crate) unsafe fn create(open: &Arc<Open>, init: &Init) -> Verb<*mut ibv_cq> {
    if !(0..open.vectors()).contains(&init.comp_vector) {
        return Err(EINVAL);
    }
    let channel = match init.channel.is_null() {
        true => None,
        // SAFETY: the caller's.
        false => Some(unsafe { of::<Channel, _>(open, init.channel) }?),
    };
    let device = &open.device;
    let handle = device.create_cq(init.cqe, channel.as_ref().map(|channel| channel.handle))?;
    let queue = device.cq(handle)?;
    if init.wc_flags & cq_ex::STAMPS != 0 {
        queue.stamp();
    }
    let mut base: ibv_cq_ex = bytemuck::Zeroable::zeroed();
    base.context = open.base();
    base.channel = init.channel;
    base.cq_context = init.cq_context;
    base.handle = handle.0 as u32;
    base.cqe = init.cqe as c_int;
    cq_ex::fill(&mut base);
    let own = Cq {
        handle,
        queue: queue.downgrade(),
        completion_events: Acks::default(),
        async_events: Acks::default(),
        polling: Polling::default(),
    };
    let object = Object::new(open.number, base, own);
    open.queues().cqs.insert(handle, object);
    if let Some(channel) = channel {
        // SAFETY: channels are never freed.
        unsafe { references(channel.object.base()) }.fetch_add(1, Ordering::Relaxed);
    }
    Ok(object.base().cast())
}

/// `ibv_create_cq_ex`.
///
/// # Safety
/// What `init` points to is null or an object of libibverbs' kind.
pub(crate) unsafe fn create_ex(
    open: &Arc<Open>,
    init: *const ibv_cq_init_attr_ex,
) -> Verb<*mut ibv_cq_ex> {
    // SAFETY: the caller's.
    let init = unsafe { structs::cq_init(init) }?;
    let known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    if init.comp_mask & !known != 0 || init.wc_flags & !cq_ex::OFFERED != 0 {
        return Err(EOPNOTSUPP);
    }
    if init.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0
        && init.flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0
    {
        return Err(EOPNOTSUPP);
    }
    if init.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
        // SAFETY: the caller's.
        unsafe { of::<Pd, _>(open, init.parent_domain) }?;
    }
    let init = Init {
        cqe: init.cqe,
        cq_context: init.cq_context,
        channel: init.channel,
        comp_vector: i32::try_from(init.comp_vector).map_err(|_| EINVAL)?,
        wc_flags: init.wc_flags,
    };
    // SAFETY: the caller's.
    unsafe { create(open, &init) }.map(|cq| cq.cast())
}

/// `ibv_resize_cq`.
pub(crate) fn resize(cq: &Found<Cq>, cqe: c_int) -> Verb<()> {
    let depth = u32::try_from(cqe).map_err(|_| EINVAL)?;
    cq.open.device.resize_cq(cq.handle, depth)?;
    // SAFETY: the object is live; the program has asked for it.
    unsafe { (*cq.object.base()).cqe = cqe };
    Ok(())
}

/// `ibv_modify_cq`: what there is to modify is a hint.
pub(crate) fn modify(_: &Found<Cq>, attr: &ibv_modify_cq_attr) -> Verb<()> {
    match attr.attr_mask {
        IBV_CQ_ATTR_MODERATE => Ok(()),
        _ => Err(EINVAL),
    }
}

/// `ibv_destroy_cq`: waits until all its events are acknowledged.
pub(crate) fn destroy(cq: &Found<Cq>) -> Verb<()> {
    cq.open.device.destroy_cq(cq.handle)?;
    cq.open.queues().cqs.remove(&cq.handle);
    cq.completion_events.wait();
    cq.async_events.wait();
    // SAFETY: the object is live; what it was made with is a channel of ours, which are never freed.
    unsafe {
        let channel = (*cq.object.base()).channel;
        if !channel.is_null() {
            references(channel).fetch_sub(1, Ordering::Relaxed);
        }
    }
    cq.object.end();
    Ok(())
}

/// How many queues are on a channel: for programs to look at, and changed by all threads that make or
/// destroy one.
///
/// # Safety
/// The channel is one of ours.
unsafe fn references<'a>(channel: *mut ibv_comp_channel) -> &'a AtomicI32 {
    // SAFETY: the caller's; the field is aligned, lives as long as the channel, and is changed by
    // nobody but here.
    unsafe { AtomicI32::from_ptr(&raw mut (*channel).refcnt) }
}

/// `ibv_ack_cq_events`.
pub(crate) fn acknowledge(cq: &Found<Cq>, count: u32) {
    cq.completion_events.acknowledge(count);
    // SAFETY: objects are never freed; the field is aligned, and is changed by nobody but here.
    let completed =
        unsafe { AtomicU32::from_ptr(&raw mut (*cq.object.base()).comp_events_completed) };
    completed.fetch_add(count, Ordering::Relaxed);
}

/// `ibv_req_notify_cq`.
pub(crate) fn notify(cq: &Object<Cq>, solicited_only: bool) -> Verb<()> {
    Ok(cq.own().ok_or(EINVAL)?.queue()?.request_notify(solicited_only)?)
}

/// Completions that are taken at a time.
const BATCH: usize = 16;

/// `ibv_poll_cq`.
pub(crate) unsafe extern "C" fn poll(cq: *mut ibv_cq, most: c_int, wc: *mut ibv_wc) -> c_int {
    plain(-1, || {
        // SAFETY: the operation of a queue of ours is called with one of ours.
        let Some(own) = unsafe { Object::<Cq>::live(cq) }.and_then(Object::own) else { return -1 };
        let Ok(most) = usize::try_from(most) else { return -1 };
        let Ok(queue) = own.queue() else { return -1 };
        let mut batch = [Completion::BLANK; BATCH];
        let mut count = 0usize;
        while count < most {
            let ask = (most - count).min(BATCH);
            let Some(places) = batch.get_mut(..ask) else { break };
            let taken = match queue.poll(places) {
                Ok(taken) => taken,
                // What was taken before counts.
                Err(_) if count > 0 => break,
                Err(_) => return -1,
            };
            for completion in places.iter().take(taken) {
                // SAFETY: the program gives room for `most`.
                unsafe { ptr::write(wc.add(count), shown(completion)) };
                count += 1;
            }
            if taken < ask {
                break;
            }
        }
        count as c_int
    })
}

/// A completion as C has it.
fn shown(completion: &Completion) -> ibv_wc {
    let (imm_data, flags) = extra(completion);
    ibv_wc {
        wr_id: completion.wr_id,
        status: status(completion),
        opcode: opcode(completion),
        vendor_err: completion.vendor_err,
        byte_len: completion.byte_len,
        imm_data,
        qp_num: completion.qp_num,
        src_qp: completion.src_qp,
        wc_flags: flags,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

pub(crate) fn status(completion: &Completion) -> ibv_wc_status {
    ibv_wc_status(completion.status as u32)
}

pub(crate) fn opcode(completion: &Completion) -> ibv_wc_opcode {
    match completion.opcode {
        // No program can post one by the verbs.
        WcOpcode::RegMr => IBV_WC_DRIVER1,
        opcode => ibv_wc_opcode(opcode as u32),
    }
}

/// The immediate or the invalidated key, which share a place, and the flags.
pub(crate) fn extra(completion: &Completion) -> (u32, u32) {
    let grh = if completion.has_grh { IBV_WC_GRH } else { 0 };
    if completion.status != WcStatus::Success {
        return (0, 0);
    }
    match (completion.imm, completion.invalidated) {
        (Some(imm), _) => (imm.to_be(), grh | IBV_WC_WITH_IMM),
        (None, Some(key)) => (key.0.0, grh | IBV_WC_WITH_INV),
        (None, None) => (0, grh),
    }
}
