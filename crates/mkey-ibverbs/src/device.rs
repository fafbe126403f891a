//! The device: the control plane.

use crate::attributes::{self, limit};
use crate::capabilities::capabilities;
use crate::context::{Context, Fork};
use crate::data_plane::{IbvCq, IbvQp, IbvSrq};
use crate::events::{self, Deadline, system};
use crate::failure::{Refused, call, create};
use crate::fast_mr::Umr;
use crate::live::Live;
use crate::objects::{Ah, Channel, Cq, Objects, Pd, Qp, Srq};
use crate::port;
use crate::transition;
use crate::trial::{Tried, try_all};
use mkey_core::data_plane::DataPlane;
use mkey_core::device::*;
use mkey_core::error::{Error, Object, Reason, Result};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpAttr, QpInit, QpKind, QpModify};
use mkey_core::work::Sge;
use mkey_sys::types::*;
use mkey_sys::{Mlx5, Verbs};
use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// A real device, by libibverbs.
///
/// Its objects end with it, whatever handles to them are left.
#[derive(Debug)]
pub struct IbvDevice {
    core: Arc<Core>,
}

/// What a device and the data planes of its objects share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) objects: Objects,
    /// What the device said of itself when it was opened.
    pub(crate) attr: ibv_device_attr_ex,
    /// The flags of a completion that say that a key was invalidated.
    pub(crate) invalidated: u32,
    /// The numbers of the queue pairs for datagrams.
    pub(crate) datagrams: RwLock<HashSet<u32>>,
    tried: OnceLock<Tried>,
    capabilities: OnceLock<Capabilities>,
    /// After the objects, which are of it.
    pub(crate) context: Context,
}

/// A handle as libibverbs keeps it for us.
fn context_of(handle: u64) -> *mut c_void {
    ptr::without_provenance_mut(handle as usize)
}

impl IbvDevice {
    /// Opens the device `name` (as in `mlx5_0`), loading libibverbs if this is the first.
    ///
    /// # Errors
    /// `NoDevice`: libibverbs can not be loaded, the kernel has no such device, this process may
    /// not open it; it says which, and what mends it.
    pub fn open(name: &str) -> Result<Arc<Self>> {
        let verbs = Verbs::load().map_err(|error| {
            Error::new("open_device", name, Reason::NoDevice { why: error.to_string().into() })
        })?;
        // Without it the device is used by libibverbs alone.
        let mlx5 = Mlx5::load(verbs).ok();
        Self::open_by(verbs, mlx5, name)
    }

    /// Opens a device of libraries that are loaded already.
    pub(crate) fn open_by(
        verbs: &'static Verbs,
        mlx5: Option<&'static Mlx5>,
        name: &str,
    ) -> Result<Arc<Self>> {
        let context = Context::open(verbs, mlx5, name)?;
        let attr = attributes::query(&context).map_err(|errno| {
            let verb = "query_device";
            Refused { context: &context, verb, errno, lacks: None }.error(name)
        })?;
        // rxe passes on the kernel's own flag, whose number is another for programs.
        let own = if context.driver.as_deref() == Some("rxe") { IBV_WC_IP_CSUM_OK } else { 0 };
        let core = Core {
            objects: Objects::default(),
            attr,
            invalidated: IBV_WC_WITH_INV | own,
            datagrams: RwLock::default(),
            tried: OnceLock::new(),
            capabilities: OnceLock::new(),
            context,
        };
        Ok(Arc::new(Self { core: Arc::new(core) }))
    }

    /// What the device can do, tried: by the first call, which makes and ends an object of each
    /// kind.
    pub fn tried(&self) -> &Tried {
        self.core.tried()
    }

    fn pd(&self, verb: &'static str, pd: PdHandle) -> Result<Arc<Pd>> {
        self.core.objects.pds.get(verb, pd.0)
    }

    fn refused(&self, verb: &'static str, errno: i32) -> Refused<'_> {
        Refused { context: &self.core.context, verb, errno, lacks: None }
    }

    /// An error of `create_qp` or its like: the argument that passes a limit, if one does.
    fn oversized(
        &self,
        verb: &'static str,
        errno: i32,
        asked: &[(&'static str, u32, u32, &'static str)],
    ) -> Option<Error> {
        let over = asked.iter().find(|(_, value, most, _)| value > most);
        let (what, value, _, allowed) =
            *over.filter(|_| matches!(errno, libc::EINVAL | libc::ENOMEM))?;
        let reason = Reason::Argument { what, value: u64::from(value), allowed };
        Some(Error::new(verb, format_args!("{what} {value}"), reason))
    }
}

impl Core {
    pub(crate) fn tried(&self) -> &Tried {
        self.tried.get_or_init(|| try_all(&self.context, &self.attr))
    }

    fn capabilities(&self) -> &Capabilities {
        self.capabilities
            .get_or_init(|| capabilities(self.context.driver.as_deref(), &self.attr, self.tried()))
    }

    /// Destroys all objects, users first.
    fn close(&self) {
        let verbs = self.context.verbs;
        let objects = &self.objects;
        // What is refused here the kernel ends when the device is closed.
        // Before the queue pairs that they are bound on: soft-RoCE waits 50 s for a window that outlives
        // its own.
        for mw in objects.mws.table.drain() {
            let _ = self.end_mw(&mw);
        }
        for qp in objects.qps.drain() {
            // SAFETY: a live queue pair, in no use.
            let _ = qp.live.end(|qp| unsafe { verbs.ibv_destroy_qp(qp) });
        }
        for mr in objects.mrs.table.drain() {
            let _ = self.end_mr(&mr);
        }
        for ah in objects.ahs.drain() {
            // SAFETY: a live address handle, out of its table.
            let _ = unsafe { verbs.ibv_destroy_ah(ah.address.as_ptr()) };
        }
        for srq in objects.srqs.drain() {
            // SAFETY: a live queue, in no use.
            let _ = srq.live.end(|srq| unsafe { verbs.ibv_destroy_srq(srq) });
        }
        for cq in objects.cqs.drain() {
            // SAFETY: a live queue, in no use; all its events are acknowledged when taken.
            let _ = cq.live.end(|cq| unsafe { verbs.ibv_destroy_cq(cq) });
        }
        for channel in objects.channels.drain() {
            let _ = self.end_channel(&channel);
        }
        for pd in objects.pds.drain() {
            // SAFETY: a live domain, in no use.
            let _ = pd.live.end(|pd| unsafe { verbs.ibv_dealloc_pd(pd) });
        }
    }

    /// Ends a channel that no completion queue is on, and the waits on it.
    fn end_channel(&self, channel: &Channel) -> std::result::Result<(), i32> {
        // Those who wait hold the channel; they look again, and find the table without it.
        events::ring(&channel.wake);
        // SAFETY: a live channel, in no use.
        channel.live.end(|raw| unsafe { self.context.verbs.ibv_destroy_comp_channel(raw) })
    }
}

impl Drop for IbvDevice {
    fn drop(&mut self) {
        self.core.close();
    }
}

impl DataPlane for IbvDevice {
    type Qp = IbvQp;
    type Cq = IbvCq;
    type Srq = IbvSrq;

    fn qp(&self, qp: QpHandle) -> Result<IbvQp> {
        let qp = self.core.objects.qps.get("qp", qp.0)?;
        Ok(IbvQp { core: self.core.clone(), qp })
    }

    fn cq(&self, cq: CqHandle) -> Result<IbvCq> {
        let cq = self.core.objects.cqs.get("cq", cq.0)?;
        Ok(IbvCq { core: self.core.clone(), cq })
    }

    fn srq(&self, srq: SrqHandle) -> Result<IbvSrq> {
        let srq = self.core.objects.srqs.get("srq", srq.0)?;
        Ok(IbvSrq { core: self.core.clone(), srq })
    }
}

impl Device for IbvDevice {
    fn name(&self) -> &str {
        &self.core.context.name
    }

    fn capabilities(&self) -> &Capabilities {
        self.core.capabilities()
    }

    fn port(&self) -> PortInfo {
        port::info(&self.core.context)
    }

    fn alloc_pd(&self) -> Result<PdHandle> {
        let (verb, core) = ("alloc_pd", &self.core);
        // SAFETY: the device is open.
        let made = create(|| unsafe { core.context.verbs.ibv_alloc_pd(core.context.raw()) });
        let pd = made.map_err(|errno| {
            let most = limit(core.attr.orig_attr.max_pd);
            self.refused(verb, errno).creating(Object::Pd, core.objects.pds.read().len(), most, "")
        })?;
        let handle = core.objects.pds.handle();
        core.objects.pds.put(handle, Arc::new(Pd { handle, live: Live::new(pd) }));
        Ok(PdHandle(handle))
    }

    fn dealloc_pd(&self, pd: PdHandle) -> Result<()> {
        let (verb, objects) = ("dealloc_pd", &self.core.objects);
        let found = self.pd(verb, pd)?;
        let by = objects.members(&found);
        if !by.is_empty() {
            // Not all that belongs to it is known to the kernel.
            return Err(self.refused(verb, libc::EBUSY).destroying(Object::Pd, pd.0, &by));
        }
        // SAFETY: a live domain.
        let ended = found.live.end(|pd| unsafe { self.core.context.verbs.ibv_dealloc_pd(pd) });
        ended.map_err(|errno| {
            let by = "something of another process, or that is just being made, belongs to it";
            self.refused(verb, errno).destroying(Object::Pd, pd.0, by)
        })?;
        objects.pds.take(verb, pd.0).map(drop)
    }

    unsafe fn reg_mr(&self, pd: PdHandle, spec: &MrSpec) -> Result<MrInfo> {
        self.core.reg_mr(self.pd("reg_mr", pd)?, spec)
    }

    unsafe fn reg_dmabuf_mr(&self, pd: PdHandle, spec: &DmaBufSpec<'_>) -> Result<MrInfo> {
        self.core.reg_dmabuf_mr(self.pd("reg_dmabuf_mr", pd)?, spec)
    }

    unsafe fn rereg_mr(
        &self,
        mr: MrHandle,
        change: &MrChange,
    ) -> std::result::Result<MrInfo, ReregError> {
        self.core.rereg_mr(mr, change)
    }

    fn dereg_mr(&self, mr: MrHandle) -> Result<()> {
        self.core.dereg_mr(mr)
    }

    fn alloc_null_mr(&self, pd: PdHandle) -> Result<MrInfo> {
        self.core.alloc_null_mr(self.pd("alloc_null_mr", pd)?)
    }

    fn advise_mr(&self, pd: PdHandle, advice: Advice, flush: bool, sges: &[Sge]) -> Result<()> {
        self.core.advise_mr(&self.pd("advise_mr", pd)?, advice, flush, sges)
    }

    fn odp_stats(&self, mr: MrHandle) -> Result<OdpStats> {
        self.core.odp_stats(mr)
    }

    fn alloc_mw(&self, pd: PdHandle, kind: MwKind) -> Result<MwInfo> {
        self.core.alloc_mw(self.pd("alloc_mw", pd)?, kind)
    }

    fn dealloc_mw(&self, mw: MwHandle) -> Result<()> {
        self.core.dealloc_mw(mw)
    }

    fn alloc_fast_mr(&self, pd: PdHandle, max_entries: u32) -> Result<MrInfo> {
        self.core.alloc_fast_mr(self.pd("alloc_mr", pd)?, max_entries)
    }

    fn create_comp_channel(&self) -> Result<ChannelHandle> {
        let (verb, core) = ("create_comp_channel", &self.core);
        let wake = events::bell().map_err(|errno| system(verb, "eventfd", errno))?;
        let verbs = core.context.verbs;
        // SAFETY: the device is open.
        let made = create(|| unsafe { verbs.ibv_create_comp_channel(core.context.raw()) });
        let channel = made.map_err(|errno| self.refused(verb, errno).error(""))?;
        // SAFETY: a live channel.
        let fd = unsafe { channel.as_ref().fd };
        if let Err(errno) = events::never_block(fd) {
            // SAFETY: made above, and ended once.
            let _ = unsafe { verbs.ibv_destroy_comp_channel(channel.as_ptr()) };
            return Err(system(verb, "fcntl", errno));
        }
        let handle = core.objects.channels.handle();
        core.objects.channels.put(handle, Arc::new(Channel { live: Live::new(channel), wake }));
        Ok(ChannelHandle(handle))
    }

    fn destroy_comp_channel(&self, channel: ChannelHandle) -> Result<()> {
        let (verb, objects) = ("destroy_comp_channel", &self.core.objects);
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
        self.core.end_channel(&found).map_err(|errno| {
            self.refused(verb, errno).destroying(Object::CompChannel, channel.0, "the device")
        })
    }

    fn get_cq_event(
        &self,
        channel: ChannelHandle,
        timeout: Option<Duration>,
    ) -> Result<Option<CqHandle>> {
        let (verb, core) = ("get_cq_event", &self.core);
        let found = core.objects.channels.get(verb, channel.0)?;
        let deadline = Deadline::after(timeout);
        let wake = found.wake.as_raw_fd();
        loop {
            let waited = found.live.with(|raw| {
                // SAFETY: a live channel.
                let ready = events::wait(unsafe { (*raw).fd }, wake, deadline)?;
                Ok(match ready {
                    // Whoever ends the channel waits for us to let go of it.
                    [_, true] => Waited::Ended,
                    [true, _] => take_event(core.context.verbs, raw)?,
                    _ => Waited::TimedOut,
                })
            });
            match waited {
                None | Some(Ok(Waited::Ended)) => {
                    return Err(core.objects.channels.unknown(verb, channel.0));
                }
                Some(Ok(Waited::Event(cq))) => return Ok(Some(cq)),
                Some(Ok(Waited::TimedOut)) => return Ok(None),
                // Another thread took it.
                Some(Err(libc::EAGAIN)) => {}
                Some(Err(libc::EIO | libc::ENODEV)) => {
                    core.context.set_gone();
                    return Err(Error::new(verb, "", Reason::DeviceGone));
                }
                Some(Err(errno)) => return Err(self.refused(verb, errno).error("")),
            }
        }
    }

    fn create_cq(&self, depth: u32, channel: Option<ChannelHandle>) -> Result<CqHandle> {
        let (verb, core) = ("create_cq", &self.core);
        let verbs = core.context.verbs;
        let most = limit(core.attr.orig_attr.max_cqe);
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
        let channels = core.objects.channels.read();
        let channel = match channel {
            None => None,
            Some(handle) => {
                let unknown = || core.objects.channels.unknown(verb, handle.0);
                Some(channels.get(&handle.0).cloned().ok_or_else(unknown)?)
            }
        };
        let handle = core.objects.cqs.handle();
        let make = |channel: *mut ibv_comp_channel| {
            // SAFETY: the device is open, and the channel live or none.
            create(|| unsafe {
                verbs.ibv_create_cq(core.context.raw(), entries, context_of(handle), channel, 0)
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
                    (core.objects.cqs.read().len(), limit(core.attr.orig_attr.max_cq));
                let arguments = format_args!("depth {depth}");
                self.refused(verb, errno).creating(Object::Cq, live, most, arguments)
            })
        })?;
        // SAFETY: a live queue.
        let depth = u32::try_from(unsafe { cq.as_ref().cqe }).unwrap_or(depth);
        let (live, overrun) = (Live::new(cq), AtomicBool::new(false));
        core.objects.cqs.put(handle, Arc::new(Cq { handle, live, depth, overrun, channel }));
        Ok(CqHandle(handle))
    }

    fn destroy_cq(&self, cq: CqHandle) -> Result<()> {
        let (verb, objects) = ("destroy_cq", &self.core.objects);
        let found = objects.cqs.get(verb, cq.0)?;
        // SAFETY: a live queue.
        let ended = found.live.end(|cq| unsafe { self.core.context.verbs.ibv_destroy_cq(cq) });
        ended.map_err(|errno| {
            let on = |of: &Arc<Cq>| Arc::ptr_eq(of, &found);
            let qps = objects.qps.read();
            let users = qps.values().filter(|qp| on(&qp.send_cq) || on(&qp.recv_cq)).count();
            let by = format!("queue pairs use it: {users}");
            self.refused(verb, errno).destroying(Object::Cq, cq.0, &by)
        })?;
        objects.cqs.take(verb, cq.0).map(drop)
    }

    fn create_srq(&self, pd: PdHandle, max_wr: u32, max_sge: u32) -> Result<SrqHandle> {
        let (verb, core) = ("create_srq", &self.core);
        let pd = self.pd(verb, pd)?;
        let handle = core.objects.srqs.handle();
        let mut init: ibv_srq_init_attr = bytemuck::Zeroable::zeroed();
        init.srq_context = context_of(handle);
        (init.attr.max_wr, init.attr.max_sge) = (max_wr, max_sge);
        let made = pd.live.with(|raw| {
            // SAFETY: a live domain, and attributes of ours.
            create(|| unsafe { core.context.verbs.ibv_create_srq(raw, &raw mut init) })
        });
        let made = made.ok_or_else(|| core.objects.pds.unknown(verb, pd.handle))?;
        let srq = made.map_err(|errno| {
            let attr = &core.attr.orig_attr;
            let asked = [
                ("max_wr", max_wr, limit(attr.max_srq_wr), "at most the device's max_srq_wr"),
                ("max_sge", max_sge, limit(attr.max_srq_sge), "at most the device's max_srq_sge"),
            ];
            self.oversized(verb, errno, &asked).unwrap_or_else(|| {
                let refused = Refused { lacks: Some(Capability::Srq), ..self.refused(verb, errno) };
                let (live, most) = (core.objects.srqs.read().len(), limit(attr.max_srq));
                refused.creating(Object::Srq, live, most, format_args!("{max_wr} work requests"))
            })
        })?;
        // The kernel says what it made.
        let (max_wr, max_sge) = (init.attr.max_wr.max(max_wr), init.attr.max_sge.max(max_sge));
        let live = Live::new(srq);
        core.objects.srqs.put(handle, Arc::new(Srq { handle, live, pd, max_wr, max_sge }));
        Ok(SrqHandle(handle))
    }

    fn modify_srq(&self, srq: SrqHandle, limit: u32) -> Result<()> {
        let (verb, core) = ("modify_srq", &self.core);
        let found = core.objects.srqs.get(verb, srq.0)?;
        let answer = found.live.with(|raw| {
            call(|| {
                let mut attr: ibv_srq_attr = bytemuck::Zeroable::zeroed();
                attr.srq_limit = limit;
                // SAFETY: a live queue, and attributes of ours.
                unsafe { core.context.verbs.ibv_modify_srq(raw, &raw mut attr, IBV_SRQ_LIMIT) }
            })
        });
        let answer = answer.ok_or_else(|| core.objects.srqs.unknown(verb, srq.0))?;
        answer.map_err(|errno| {
            let too_high = ("limit", limit, found.max_wr, "at most the queue's max_wr");
            let arguments = format_args!("handle {:#x}, limit {limit}", srq.0);
            let refused = || self.refused(verb, errno).error(arguments);
            self.oversized(verb, errno, &[too_high]).unwrap_or_else(refused)
        })
    }

    fn destroy_srq(&self, srq: SrqHandle) -> Result<()> {
        let (verb, objects) = ("destroy_srq", &self.core.objects);
        let found = objects.srqs.get(verb, srq.0)?;
        // SAFETY: a live queue.
        let ended = found.live.end(|srq| unsafe { self.core.context.verbs.ibv_destroy_srq(srq) });
        ended.map_err(|errno| {
            let takes = |qp: &&Arc<Qp>| qp.srq.as_ref().is_some_and(|of| Arc::ptr_eq(of, &found));
            let by = format!(
                "queue pairs take from it: {}",
                objects.qps.read().values().filter(takes).count()
            );
            self.refused(verb, errno).destroying(Object::Srq, srq.0, &by)
        })?;
        objects.srqs.take(verb, srq.0).map(drop)
    }

    fn create_qp(&self, pd: PdHandle, init: &QpInit) -> Result<QpInfo> {
        let (verb, core) = ("create_qp", &self.core);
        let (objects, pd) = (&core.objects, self.pd(verb, pd)?);
        let kind = transition::kind_of(init.kind).ok_or_else(|| {
            let reason = Reason::Unsupported { capability: Capability::Transport };
            Error::new(verb, init.kind, reason)
        })?;
        let send_cq = objects.cqs.get(verb, init.send_cq.0)?;
        let recv_cq = objects.cqs.get(verb, init.recv_cq.0)?;
        let srq = init.srq.map(|srq| objects.srqs.get(verb, srq.0)).transpose()?;
        let handle = objects.qps.handle();
        let mut attr: ibv_qp_init_attr = bytemuck::Zeroable::zeroed();
        attr.qp_context = context_of(handle);
        (attr.qp_type, attr.sq_sig_all) = (kind, c_int::from(init.signal_all));
        attr.cap = ibv_qp_cap {
            max_send_wr: init.max_send_wr,
            max_recv_wr: init.max_recv_wr,
            max_send_sge: init.max_send_sge,
            max_recv_sge: init.max_recv_sge,
            max_inline_data: init.max_inline,
        };
        let asked = attr.cap;
        let made = pd.live.with(|raw| {
            send_cq.live.with(|send| {
                recv_cq.live.with(|recv| {
                    (attr.send_cq, attr.recv_cq) = (send, recv);
                    match &srq {
                        None => self.make_qp(raw, init.kind, &mut attr),
                        Some(srq) => srq
                            .live
                            .with(|srq| {
                                attr.srq = srq;
                                self.make_qp(raw, init.kind, &mut attr)
                            })
                            .unwrap_or(Err(libc::ENOENT)),
                    }
                })
            })
        });
        let made = made.flatten().flatten().unwrap_or(Err(libc::ENOENT));
        let (qp, umr) = made.map_err(|errno| self.why_no_qp(verb, errno, init))?;
        // SAFETY: a live queue pair.
        let num = unsafe { qp.as_ref().qp_num };
        let cap = ibv_qp_cap {
            max_send_wr: attr.cap.max_send_wr.max(asked.max_send_wr),
            max_recv_wr: attr.cap.max_recv_wr.max(asked.max_recv_wr),
            max_send_sge: attr.cap.max_send_sge.max(asked.max_send_sge),
            max_recv_sge: attr.cap.max_recv_sge.max(asked.max_recv_sge),
            max_inline_data: attr.cap.max_inline_data.max(asked.max_inline_data),
        };
        let (live, kind) = (Live::new(qp), init.kind);
        let mut datagrams = core.datagrams.write().unwrap_or_else(PoisonError::into_inner);
        // Completions of a queue pair that was destroyed may still come, so it stays until its
        // number is given to another.
        if kind == QpKind::Ud {
            datagrams.insert(num)
        } else {
            datagrams.remove(&num)
        };
        drop(datagrams);
        let qp = Qp { handle, live, num, kind, cap, umr, pd, send_cq, recv_cq, srq };
        objects.qps.put(handle, Arc::new(qp));
        Ok(QpInfo { handle: QpHandle(handle), qp_num: num })
    }

    fn modify_qp(&self, qp: QpHandle, change: &QpModify) -> Result<()> {
        let found = self.core.objects.qps.get("modify_qp", qp.0)?;
        transition::modify(&self.core.context, &found, change)
    }

    fn query_qp(&self, qp: QpHandle) -> Result<QpAttr> {
        let found = self.core.objects.qps.get("query_qp", qp.0)?;
        transition::query(&self.core.context, &found)
    }

    fn destroy_qp(&self, qp: QpHandle) -> Result<()> {
        let (verb, objects) = ("destroy_qp", &self.core.objects);
        let found = objects.qps.get(verb, qp.0)?;
        // SAFETY: a live queue pair. It waits for the acknowledgement of its events, which are
        // acknowledged as they are taken.
        let ended = found.live.end(|qp| unsafe { self.core.context.verbs.ibv_destroy_qp(qp) });
        ended.map_err(|errno| {
            self.refused(verb, errno).destroying(Object::Qp, qp.0, "a multicast group has it")
        })?;
        objects.qps.take(verb, qp.0).map(drop)
    }

    fn create_ah(&self, pd: PdHandle, attr: &AhAttr) -> Result<AhHandle> {
        let (verb, core) = ("create_ah", &self.core);
        let pd = self.pd(verb, pd)?;
        let fail = |reason| Error::new(verb, format_args!("port {}", attr.port), reason);
        if attr.port != port::PORT {
            let (what, value) = ("port", u64::from(attr.port));
            return Err(fail(Reason::Argument { what, value, allowed: "1, the only one" }));
        }
        let mut path = port::path(&core.context, attr).map_err(fail)?;
        let made = pd.live.with(|raw| {
            // SAFETY: a live domain, and attributes of ours.
            create(|| unsafe { core.context.verbs.ibv_create_ah(raw, &raw mut path) })
        });
        let made = made.ok_or_else(|| core.objects.pds.unknown(verb, pd.handle))?;
        let address = made.map_err(|errno| {
            let (live, most) = (core.objects.ahs.read().len(), limit(core.attr.orig_attr.max_ah));
            self.refused(verb, errno).creating(Object::Ah, live, most, format_args!("{attr:?}"))
        })?;
        let handle = core.objects.ahs.handle();
        core.objects.ahs.put(handle, Ah { address, pd });
        Ok(AhHandle(handle))
    }

    fn destroy_ah(&self, ah: AhHandle) -> Result<()> {
        let (verb, ahs) = ("destroy_ah", &self.core.objects.ahs);
        // Posts hold the table while they use one.
        let taken = ahs.take(verb, ah.0)?;
        // SAFETY: a live address handle, out of its table.
        match unsafe { self.core.context.verbs.ibv_destroy_ah(taken.address.as_ptr()) } {
            0 => Ok(()),
            errno => {
                ahs.put(ah.0, taken);
                let refused = self.refused(verb, crate::failure::errno_of(errno));
                Err(refused.destroying(Object::Ah, ah.0, "the device keeps it"))
            }
        }
    }

    fn get_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        events::next(&self.core.context, &self.core.objects, timeout)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let caps = self.core.capabilities();
        match self.core.context.fork {
            Fork::Kernel => {}
            Fork::Library => notes.push(
                "this kernel does not copy pinned pages as a process forks: libibverbs takes \
                 registered pages out of forked children, which splits mappings (watch \
                 vm.max_map_count)"
                    .to_owned(),
            ),
            Fork::Nobody => notes.push(
                "this kernel does not copy pinned pages as a process forks, and libibverbs could \
                 not be asked any more to protect them: do not fork while memory is registered"
                    .to_owned(),
            ),
        }
        if caps.max_fast_mr_entries == 0 {
            let instead = if caps.window2 {
                "type 2 memory windows over one region take its place"
            } else {
                "pooled registrations take its place"
            };
            notes.push(format!(
                "fast registration by work requests is not to be had from user space on this \
                 device: {instead}"
            ));
        } else {
            notes.push(
                "fast registration by mlx5 UMR work requests: keys count from 0; this path was \
                 not run on hardware"
                    .to_owned(),
            );
        }
        notes
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

impl IbvDevice {
    fn make_qp(
        &self,
        pd: *mut ibv_pd,
        kind: QpKind,
        attr: &mut ibv_qp_init_attr,
    ) -> std::result::Result<(ptr::NonNull<ibv_qp>, Option<Umr>), i32> {
        let context = &self.core.context;
        if kind == QpKind::Rc
            && let Some((qp, umr)) = Umr::create_qp(context, pd, attr)
        {
            return Ok((qp, Some(umr)));
        }
        // SAFETY: a live domain, and attributes of ours that name live queues.
        create(|| unsafe { context.verbs.ibv_create_qp(pd, &raw mut *attr) }).map(|qp| (qp, None))
    }

    #[cold]
    fn why_no_qp(&self, verb: &'static str, errno: i32, init: &QpInit) -> Error {
        let caps = self.core.capabilities();
        let (wr, sge) = ("at most the device's max_qp_wr", "at most the device's max_sge");
        let inline = "at most the device's max_inline";
        let asked = [
            ("max_send_wr", init.max_send_wr, caps.max_qp_wr, wr),
            ("max_recv_wr", init.max_recv_wr, caps.max_qp_wr, wr),
            ("max_send_sge", init.max_send_sge, caps.max_sge, sge),
            ("max_recv_sge", init.max_recv_sge, caps.max_sge, sge),
            ("max_inline", init.max_inline, caps.max_inline, inline),
        ];
        self.oversized(verb, errno, &asked).unwrap_or_else(|| {
            let live = self.core.objects.qps.read().len();
            let lacks = Some(Capability::Transport);
            let refused = Refused { lacks, ..self.refused(verb, errno) };
            refused.creating(Object::Qp, live, caps.max_qp, init.kind)
        })
    }
}
