//! Completion channels and queues: the control plane.

use crate::attributes::limit;
use crate::device::Core;
use crate::events::{self, Deadline, system};
use crate::failure::create;
use crate::live::Live;
use crate::objects::{Channel, Cq, context_of};
use mkey_core::device::*;
use mkey_core::error::{Error, Object, Reason, Result};
use mkey_sys::Verbs;
use mkey_sys::types::*;
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

impl Core {
    pub(crate) fn create_comp_channel(&self) -> Result<ChannelHandle> {
        let verb = "create_comp_channel";
        let wake = events::bell().map_err(|errno| system(verb, "eventfd", errno))?;
        let verbs = self.context.verbs;
        // SAFETY: the device is open.
        let made = create(|| unsafe { verbs.ibv_create_comp_channel(self.context.raw()) });
        let channel = made.map_err(|errno| self.refused(verb, errno).error(""))?;
        // SAFETY: a live channel.
        let fd = unsafe { channel.as_ref().fd };
        if let Err(errno) = events::never_block(fd) {
            // SAFETY: made above, and ended once.
            let _ = unsafe { verbs.ibv_destroy_comp_channel(channel.as_ptr()) };
            return Err(system(verb, "fcntl", errno));
        }
        let handle = self.objects.channels.handle();
        self.objects.channels.put(handle, Arc::new(Channel { live: Live::new(channel), wake }));
        Ok(ChannelHandle(handle))
    }

    pub(crate) fn destroy_comp_channel(&self, channel: ChannelHandle) -> Result<()> {
        let (verb, objects) = ("destroy_comp_channel", &self.objects);
        let found = objects.channels.get(verb, channel.0)?;
        // No queue is put on it from here on: that asks this table under its lock.
        let mut channels = objects.channels.write();
        let on = |cq: &&Arc<Cq>| cq.channel.as_ref().is_some_and(|on| Arc::ptr_eq(on, &found));
        let queues = objects.cqs.read().values().filter(on).count();
        if queues > 0 {
            let by = format!("completion queues are on it: {queues}");
            let refused = self.refused(verb, libc::EBUSY);
            return Err(refused.destroying(Object::CompChannel, channel.0, &by));
        }
        if channels.remove(&channel.0).is_none() {
            drop(channels);
            return Err(objects.channels.unknown(verb, channel.0));
        }
        drop(channels);
        self.end_channel(&found).map_err(|errno| {
            self.refused(verb, errno).destroying(Object::CompChannel, channel.0, "the device")
        })
    }

    pub(crate) fn get_cq_event(
        &self,
        channel: ChannelHandle,
        timeout: Option<Duration>,
    ) -> Result<Option<CqHandle>> {
        let verb = "get_cq_event";
        let found = self.objects.channels.get(verb, channel.0)?;
        let deadline = Deadline::after(timeout);
        let (wake, gone) = (found.wake.as_raw_fd(), self.context.gone_bell());
        loop {
            let waited = found.live.with(|raw| {
                // SAFETY: a live channel.
                let ready = events::wait(unsafe { (*raw).fd }, [wake, gone], deadline)?;
                Ok(match ready {
                    // Whoever ends the channel waits for us to let go of it.
                    [_, true, _] => Waited::Ended,
                    [true, ..] => take_event(self.context.verbs, raw)?,
                    // What the driver still completes is found by polling.
                    [_, _, true] => return Err(libc::ENODEV),
                    _ => Waited::TimedOut,
                })
            });
            match waited {
                None | Some(Ok(Waited::Ended)) => {
                    return Err(self.objects.channels.unknown(verb, channel.0));
                }
                Some(Ok(Waited::Event(cq))) => return Ok(Some(cq)),
                Some(Ok(Waited::TimedOut)) => return Ok(None),
                // Another thread took it.
                Some(Err(libc::EAGAIN)) => {}
                Some(Err(libc::EIO | libc::ENODEV)) => {
                    self.context.set_gone();
                    return Err(Error::new(verb, "", Reason::DeviceGone));
                }
                Some(Err(errno)) => return Err(self.refused(verb, errno).error("")),
            }
        }
    }

    pub(crate) fn create_cq(&self, depth: u32, channel: Option<ChannelHandle>) -> Result<CqHandle> {
        let verb = "create_cq";
        let verbs = self.context.verbs;
        let most = limit(self.attr.orig_attr.max_cqe);
        let entries = c_int::try_from(depth).ok().filter(|&entries| entries > 0);
        let entries = entries.ok_or_else(|| {
            let (what, value, allowed) = ("depth", u64::from(depth), "1 to the device's max_cqe");
            Error::new(
                verb,
                format_args!("depth {depth}"),
                Reason::Argument { what, value, allowed },
            )
        })?;
        // Held until the queue is in its table: a channel with queues is not destroyed.
        let channels = self.objects.channels.read();
        let channel = match channel {
            None => None,
            Some(handle) => {
                let unknown = || self.objects.channels.unknown(verb, handle.0);
                Some(channels.get(&handle.0).cloned().ok_or_else(unknown)?)
            }
        };
        let handle = self.objects.cqs.handle();
        let make = |channel: *mut ibv_comp_channel| {
            // SAFETY: the device is open, and the channel live or none.
            create(|| unsafe {
                verbs.ibv_create_cq(self.context.raw(), entries, context_of(handle), channel, 0)
            })
        };
        let made = match &channel {
            None => make(ptr::null_mut()),
            Some(channel) => channel.live.with(make).unwrap_or(Err(libc::ENOENT)),
        };
        let cq = made.map_err(|errno| {
            let too_deep = ("depth", depth, most, "at most the device's max_cqe");
            self.oversized(verb, errno, &[too_deep]).unwrap_or_else(|| {
                let (live, most) =
                    (self.objects.cqs.read().len(), limit(self.attr.orig_attr.max_cq));
                let arguments = format_args!("depth {depth}");
                self.refused(verb, errno).creating(Object::Cq, live, most, arguments)
            })
        })?;
        // SAFETY: a live queue.
        let depth = u32::try_from(unsafe { cq.as_ref().cqe }).unwrap_or(depth);
        let (live, overrun) = (Live::new(cq), AtomicBool::new(false));
        self.objects.cqs.put(handle, Arc::new(Cq { handle, live, depth, overrun, channel }));
        Ok(CqHandle(handle))
    }

    pub(crate) fn destroy_cq(&self, cq: CqHandle) -> Result<()> {
        let (verb, objects) = ("destroy_cq", &self.objects);
        let found = objects.cqs.get(verb, cq.0)?;
        // SAFETY: a live queue.
        let ended = found.live.end(|cq| unsafe { self.context.verbs.ibv_destroy_cq(cq) });
        ended.map_err(|errno| {
            let on = |of: &Arc<Cq>| Arc::ptr_eq(of, &found);
            let qps = objects.qps.read();
            let users = qps.values().filter(|qp| on(&qp.send_cq) || on(&qp.recv_cq)).count();
            let by = format!("queue pairs use it: {users}");
            self.refused(verb, errno).destroying(Object::Cq, cq.0, &by)
        })?;
        objects.cqs.take(verb, cq.0).map(drop)
    }

    /// Ends a channel that no completion queue is on, and the waits on it.
    pub(crate) fn end_channel(&self, channel: &Channel) -> std::result::Result<(), i32> {
        // Those who wait hold the channel; they look again, and find the table without it.
        events::ring(&channel.wake);
        // SAFETY: a live channel, in no use.
        channel.live.end(|raw| unsafe { self.context.verbs.ibv_destroy_comp_channel(raw) })
    }
}

/// How a wait on a channel ended.
enum Waited {
    /// There is an event.
    Event(CqHandle),
    /// There was none in time.
    TimedOut,
    /// The channel goes away.
    Ended,
}

/// Takes an event off a channel and acknowledges it at once, so that the queue can be destroyed.
fn take_event(verbs: &Verbs, channel: *mut ibv_comp_channel) -> std::result::Result<Waited, i32> {
    let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: a live channel; both are ours to be written.
    if unsafe { verbs.ibv_get_cq_event(channel, &raw mut cq, &raw mut context) } != 0 {
        return Err(crate::failure::last_errno());
    }
    // SAFETY: the queue of an event lives until the event is acknowledged.
    unsafe { verbs.ibv_ack_cq_events(cq, 1) };
    Ok(Waited::Event(CqHandle(context.addr() as u64)))
}
