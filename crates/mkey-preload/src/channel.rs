//! Completion channels, and events of both sorts.

use crate::boundary::{EINVAL, Errno, OrMinusOne, Verb};
use crate::context::Open;
use crate::cq::Cq;
use crate::objects::{Found, Kind, Object, Spares};
use mkey_core::device::{ChannelHandle, Device};
use mkey_core::event::AsyncEvent;
use mkey_os::count_fd::CountFd;
use mkey_sys::types::*;
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A completion channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) handle: ChannelHandle,
    /// What the program polls; gone with the channel.
    fd: Mutex<Option<Arc<CountFd>>>,
}

static CHANNELS: Spares<Channel> = Spares::new();

// SAFETY: `ibv_comp_channel` begins with its context.
unsafe impl Kind for Channel {
    type Base = ibv_comp_channel;

    fn spares() -> &'static Spares<Self> {
        &CHANNELS
    }
}

impl Channel {
    fn fd(&self) -> Option<Arc<CountFd>> {
        self.fd.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets go of the descriptor.
    pub(crate) fn close(&self) {
        *self.fd.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// `ibv_create_comp_channel`.
pub(crate) fn create(open: &Arc<Open>) -> Verb<*mut ibv_comp_channel> {
    let handle = open.device.create_comp_channel()?;
    let fd = open.device.channel_fd(handle).inspect_err(|_| {
        // It is new, so nothing is on it.
        let _ = open.device.destroy_comp_channel(handle);
    })?;
    let base = ibv_comp_channel { context: open.base(), fd: fd.as_fd().as_raw_fd(), refcnt: 0 };
    let own = Channel { handle, fd: Mutex::new(Some(fd)) };
    let object = Object::new(open.number, base, own);
    open.queues().channels.insert(object.base() as usize, object);
    Ok(object.base())
}

/// `ibv_destroy_comp_channel`.
pub(crate) fn destroy(channel: &Found<Channel>) -> Verb<()> {
    channel.open.device.destroy_comp_channel(channel.handle)?;
    channel.open.queues().channels.remove(&(channel.object.base() as usize));
    channel.close();
    channel.object.end();
    Ok(())
}

/// `ibv_get_cq_event`.
///
/// # Safety
/// The places may be written.
pub(crate) unsafe fn get_cq_event(
    channel: &Found<Channel>,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> Verb<OrMinusOne> {
    let found = next(channel)?;
    let base = found.base();
    // SAFETY: the caller's; the object is live, or was when the event came and is not freed.
    unsafe {
        cq.write(base.cast());
        if !cq_context.is_null() {
            cq_context.write((*base).cq_context);
        }
    }
    Ok(OrMinusOne(0))
}

fn next(channel: &Found<Channel>) -> Verb<&'static Object<Cq>> {
    let fd = channel.fd().ok_or(EINVAL)?;
    loop {
        take(&fd)?;
        let event = channel.open.device.get_cq_event(channel.handle, Some(Duration::ZERO))?;
        // The queue may have been destroyed meanwhile, and its event forgotten.
        let Some(handle) = event else { continue };
        let queues = channel.open.queues();
        let Some(cq) = queues.cqs.get(&handle).copied() else { continue };
        if let Some(own) = cq.own() {
            own.completion_events.given();
        }
        return Ok(cq);
    }
}

/// Waits for an event as for a byte of a pipe: signals and O_NONBLOCK end it as they do there.
fn take(fd: &CountFd) -> Verb<()> {
    fd.take().map_err(|error| Errno(error.errno.raw_os_error()))
}

/// `ibv_get_async_event`.
///
/// # Safety
/// The place may be written.
pub(crate) unsafe fn get_async_event(
    open: &Arc<Open>,
    place: *mut ibv_async_event,
) -> Verb<OrMinusOne> {
    loop {
        take(&open.events)?;
        let Some(event) = open.device.get_async_event(Some(Duration::ZERO))? else { continue };
        let Some((event_type, element)) = shown(open, event) else { continue };
        // SAFETY: the caller's.
        unsafe { place.write(ibv_async_event { element, event_type }) };
        return Ok(OrMinusOne(0));
    }
}

/// The event as C has it, counted as not acknowledged yet; `None` if what it is about has gone.
fn shown(open: &Open, event: AsyncEvent) -> Option<(ibv_event_type, ibv_async_event_element)> {
    use mkey_core::event::AsyncEvent::*;
    let queues = open.queues();
    let port = |port| ibv_async_event_element { port_num: i32::from(port) };
    Some(match event {
        CqErr(cq) => {
            let cq = queues.cqs.get(&cq)?;
            cq.own()?.async_events.given();
            (IBV_EVENT_CQ_ERR, ibv_async_event_element { cq: cq.base().cast() })
        }
        SrqErr(srq) | SrqLimitReached(srq) => {
            let srq = queues.srqs.get(&srq)?;
            srq.own()?.events.given();
            let kind = match event {
                SrqErr(_) => IBV_EVENT_SRQ_ERR,
                _ => IBV_EVENT_SRQ_LIMIT_REACHED,
            };
            (kind, ibv_async_event_element { srq: srq.base() })
        }
        QpFatal(qp) | QpReqErr(qp) | QpAccessErr(qp) | CommEst(qp) | SqDrained(qp)
        | QpLastWqeReached(qp) => {
            let qp = queues.qps.get(&qp)?;
            qp.own()?.events.given();
            let kind = match event {
                QpFatal(_) => IBV_EVENT_QP_FATAL,
                QpReqErr(_) => IBV_EVENT_QP_REQ_ERR,
                QpAccessErr(_) => IBV_EVENT_QP_ACCESS_ERR,
                CommEst(_) => IBV_EVENT_COMM_EST,
                SqDrained(_) => IBV_EVENT_SQ_DRAINED,
                _ => IBV_EVENT_QP_LAST_WQE_REACHED,
            };
            (kind, ibv_async_event_element { qp: qp.base().cast() })
        }
        PortActive(number) => (IBV_EVENT_PORT_ACTIVE, port(number)),
        PortErr(number) => (IBV_EVENT_PORT_ERR, port(number)),
        DeviceFatal => (IBV_EVENT_DEVICE_FATAL, port(0)),
        _ => return None,
    })
}
