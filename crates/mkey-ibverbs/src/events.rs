//! Waiting for events: without a thread of one's own, on the descriptors that libibverbs has for
//! them.

use crate::context::Context;
use crate::failure::Refused;
use crate::objects::Objects;
use mkey_core::device::{CqHandle, QpHandle, SrqHandle};
use mkey_core::error::{Error, Reason, Result};
use mkey_core::event::AsyncEvent;
use mkey_sys::types::*;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A time to wait until.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// So much from now; for ever without a limit, or with one too long to be told from for ever.
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// Whole milliseconds that are left, a begun one counted; negative for ever.
    fn left(self) -> c_int {
        let Some(end) = self.0 else { return -1 };
        let left = end.saturating_duration_since(Instant::now());
        c_int::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
    }
}

/// Waits until a descriptor or a bell is readable, or says that it never will be; whether each is.
///
/// # Errors
/// The errno.
pub(crate) fn wait(
    event: RawFd,
    bells: [RawFd; 2],
    deadline: Deadline,
) -> std::result::Result<[bool; 3], i32> {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut fds = [event, bells[0], bells[1]].map(entry);
    loop {
        // SAFETY: three entries, as said; negative descriptors are left out by the kernel.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 3, deadline.left()) };
        if ready >= 0 {
            return Ok(fds.map(|entry| entry.revents != 0));
        }
        let errno = crate::failure::last_errno();
        if errno != libc::EINTR {
            return Err(errno);
        }
    }
}

/// Makes reads of a descriptor answer EAGAIN instead of waiting: of several threads that wait for
/// one event, all but one would wait on.
///
/// # Errors
/// The errno.
pub(crate) fn never_block(fd: RawFd) -> std::result::Result<(), i32> {
    // SAFETY: plain values.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(crate::failure::last_errno());
    }
    Ok(())
}

/// A descriptor that becomes readable by [`ring`].
///
/// # Errors
/// The errno.
pub(crate) fn bell() -> std::result::Result<OwnedFd, i32> {
    // SAFETY: plain values.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(crate::failure::last_errno());
    }
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a bell readable, for good.
pub(crate) fn ring(bell: &OwnedFd) {
    let one = 1u64;
    // SAFETY: eight bytes, as an eventfd takes them. It can only fail where it is readable anyway.
    let _ = unsafe { libc::write(bell.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}

/// The next asynchronous event of a device.
pub(crate) fn next(
    context: &Context,
    objects: &Objects,
    timeout: Option<Duration>,
) -> Result<Option<AsyncEvent>> {
    let deadline = Deadline::after(timeout);
    let refused = |errno| Refused { context, verb: "get_async_event", errno, lacks: None };
    // SAFETY: the device is open.
    let fd = unsafe { (*context.raw()).async_fd };
    loop {
        let waited = wait(fd, [-1, context.gone_bell()], deadline);
        match waited.map_err(|errno| refused(errno).error(""))? {
            [true, ..] => {}
            // What it said before was taken.
            [_, _, true] => return Err(Error::new("get_async_event", "", Reason::DeviceGone)),
            _ => return Ok(None),
        }
        let mut event: ibv_async_event = bytemuck::Zeroable::zeroed();
        // SAFETY: the device is open and the event is ours to be written.
        if unsafe { context.verbs.ibv_get_async_event(context.raw(), &raw mut event) } != 0 {
            match crate::failure::last_errno() {
                // Another thread took it.
                libc::EAGAIN => continue,
                // Closed by the kernel: the device is gone, and nothing else comes.
                libc::EIO | libc::ENODEV => {
                    context.set_gone();
                    return Err(Error::new("get_async_event", "", Reason::DeviceGone));
                }
                errno => return Err(refused(errno).error("")),
            }
        }
        // SAFETY: an event that was just taken: its object lives until it is acknowledged.
        let told = unsafe { translate(&event) };
        // SAFETY: acknowledged once.
        unsafe { context.verbs.ibv_ack_async_event(&raw mut event) };
        match told {
            Some(AsyncEvent::DeviceFatal) => context.set_gone(),
            Some(AsyncEvent::CqErr(cq)) => {
                if let Some(cq) = objects.cqs.read().get(&cq.0) {
                    cq.overrun.store(true, Ordering::Release);
                }
            }
            _ => {}
        }
        if told.is_some() {
            return Ok(told);
        }
    }
}

/// An event in our words; `None` for those of subnets, which no program of ours waits for.
///
/// # Safety
/// The event has not been acknowledged.
unsafe fn translate(event: &ibv_async_event) -> Option<AsyncEvent> {
    // SAFETY: an object of an event has its handle as its context, and lives until the
    // acknowledgement; the type of the event says which object it is.
    unsafe {
        let cq = || CqHandle((*event.element.cq).cq_context.addr() as u64);
        let qp = || QpHandle((*event.element.qp).qp_context.addr() as u64);
        let srq = || SrqHandle((*event.element.srq).srq_context.addr() as u64);
        let port = || u8::try_from(event.element.port_num).unwrap_or(u8::MAX);
        Some(match event.event_type {
            IBV_EVENT_CQ_ERR => AsyncEvent::CqErr(cq()),
            IBV_EVENT_QP_FATAL => AsyncEvent::QpFatal(qp()),
            IBV_EVENT_QP_REQ_ERR => AsyncEvent::QpReqErr(qp()),
            IBV_EVENT_QP_ACCESS_ERR => AsyncEvent::QpAccessErr(qp()),
            IBV_EVENT_COMM_EST => AsyncEvent::CommEst(qp()),
            IBV_EVENT_SQ_DRAINED => AsyncEvent::SqDrained(qp()),
            IBV_EVENT_QP_LAST_WQE_REACHED => AsyncEvent::QpLastWqeReached(qp()),
            IBV_EVENT_SRQ_ERR => AsyncEvent::SrqErr(srq()),
            IBV_EVENT_SRQ_LIMIT_REACHED => AsyncEvent::SrqLimitReached(srq()),
            IBV_EVENT_PORT_ACTIVE => AsyncEvent::PortActive(port()),
            IBV_EVENT_PORT_ERR => AsyncEvent::PortErr(port()),
            IBV_EVENT_DEVICE_FATAL => AsyncEvent::DeviceFatal,
            _ => return None,
        })
    }
}

/// The error of a bell that could not be made, or of a descriptor.
pub(crate) fn system(verb: &'static str, call: &'static str, errno: i32) -> Error {
    Error::new(verb, io::Error::from_raw_os_error(errno), Reason::System { call, errno })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_ends_a_wait_and_stays_rung() {
        let bell = bell().unwrap();
        let fd = bell.as_raw_fd();
        let now = Deadline::after(Some(Duration::ZERO));
        assert_eq!(wait(-1, [fd, -1], now), Ok([false; 3]));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wait(-1, [-1, fd], Deadline::after(None)));
            ring(&bell);
            assert_eq!(waits.join().unwrap(), Ok([false, false, true]));
        });
        assert_eq!(wait(-1, [fd, -1], now), Ok([false, true, false]));
    }

    #[test]
    fn a_begun_millisecond_is_waited_for() {
        assert_eq!(Deadline::after(Some(Duration::from_nanos(1))).left().max(0), 0);
        assert!(Deadline::after(Some(Duration::from_micros(5_500))).left() > 3);
        assert_eq!(Deadline::after(None).left(), -1);
        assert_eq!(Deadline::after(Some(Duration::MAX)).left(), -1);
    }
}
