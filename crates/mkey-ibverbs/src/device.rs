//! The device: the control plane.

use crate::attributes::{self, Limits, limit};
use crate::capabilities::capabilities;
use crate::context::{Context, Fork};
use crate::data_plane::{IbvCq, IbvQp, IbvSrq};
use crate::events;
use crate::failure::{Refused, call, create};
use crate::known::{Finding, Known};
use crate::live::Live;
use crate::objects::{Ah, Objects, Pd, Qp, Srq, context_of};
use crate::port;
use crate::transition;
use crate::trial::{Tried, try_all};
use mkey_core::data_plane::DataPlane;
use mkey_core::device::*;
use mkey_core::error::{Error, Object, Reason, Result};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpAttr, QpInit, QpModify};
use mkey_core::work::Sge;
use mkey_sys::types::*;
use mkey_sys::{Mlx5, Verbs};
use std::collections::HashSet;
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// A real device, by libibverbs.
///
/// Its objects end with it, whatever handles to them are left.
#[derive(Debug)]
pub struct IbvDevice {
    pub(crate) core: Arc<Core>,
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
    pub(crate) known: Known,
    /// After the objects, which are of it.
    pub(crate) context: Context,
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
        let mlx5 = Mlx5::load(verbs).map_err(|error| error.to_string());
        Self::open_by(verbs, mlx5, name)
    }

    /// Opens a device of libraries that are loaded already.
    pub(crate) fn open_by(
        verbs: &'static Verbs,
        mlx5: std::result::Result<&'static Mlx5, String>,
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
            known: Known::default(),
            context,
        };
        Ok(Arc::new(Self { core: Arc::new(core) }))
    }

    /// What the device can do, tried: by the first call, which makes and ends an object of each
    /// kind, and again by each as long as something was refused for want of room.
    pub fn tried(&self) -> &Tried {
        let core = &self.core;
        &core.known.now(|| core.try_all(), |tried| core.judge(tried)).tried
    }

    /// The most objects that it declared when it was opened. Nothing is tried.
    pub fn limits(&self) -> Limits {
        Limits::of(&self.core.attr)
    }
}

impl Core {
    pub(crate) fn pd(&self, verb: &'static str, pd: PdHandle) -> Result<Arc<Pd>> {
        self.objects.pds.get(verb, pd.0)
    }

    pub(crate) fn refused(&self, verb: &'static str, errno: i32) -> Refused<'_> {
        Refused { context: &self.context, verb, errno, lacks: None }
    }

    /// An error of `create_qp` or its like: the argument that passes a limit, if one does.
    pub(crate) fn oversized(
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

    /// What it can do, as far as that is known.
    pub(crate) fn known(&self) -> &Finding {
        self.known.get(|| self.try_all(), |tried| self.judge(tried))
    }

    fn try_all(&self) -> Tried {
        try_all(&self.context, &self.attr)
    }

    fn judge(&self, tried: &Tried) -> Capabilities {
        capabilities(&self.context, &self.attr, tried)
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
        &self.core.known().capabilities
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
            self.core.refused(verb, errno).creating(
                Object::Pd,
                core.objects.pds.read().len(),
                most,
                "",
            )
        })?;
        let handle = core.objects.pds.handle();
        core.objects.pds.put(handle, Arc::new(Pd { handle, live: Live::new(pd) }));
        Ok(PdHandle(handle))
    }

    fn dealloc_pd(&self, pd: PdHandle) -> Result<()> {
        let (verb, objects) = ("dealloc_pd", &self.core.objects);
        let found = self.core.pd(verb, pd)?;
        let mut by = String::new();
        let ended = found.live.end(|pd| {
            // Not all that belongs to it is known to the kernel. Nothing is made on it now.
            by = objects.members(&found);
            if !by.is_empty() {
                return libc::EBUSY;
            }
            // SAFETY: a live domain.
            unsafe { self.core.context.verbs.ibv_dealloc_pd(pd) }
        });
        ended.map_err(|errno| {
            if by.is_empty() {
                by.push_str(
                    "something of another process, or that is just being made, belongs to it",
                );
            }
            self.core.refused(verb, errno).destroying(Object::Pd, pd.0, &by)
        })?;
        objects.pds.take(verb, pd.0).map(drop)
    }

    unsafe fn reg_mr(&self, pd: PdHandle, spec: &MrSpec) -> Result<MrInfo> {
        self.core.reg_mr(self.core.pd("reg_mr", pd)?, spec)
    }

    unsafe fn reg_dmabuf_mr(&self, pd: PdHandle, spec: &DmaBufSpec<'_>) -> Result<MrInfo> {
        self.core.reg_dmabuf_mr(self.core.pd("reg_dmabuf_mr", pd)?, spec)
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
        self.core.alloc_null_mr(self.core.pd("alloc_null_mr", pd)?)
    }

    fn advise_mr(&self, pd: PdHandle, advice: Advice, flush: bool, sges: &[Sge]) -> Result<()> {
        self.core.advise_mr(&self.core.pd("advise_mr", pd)?, advice, flush, sges)
    }

    fn odp_stats(&self, mr: MrHandle) -> Result<OdpStats> {
        self.core.odp_stats(mr)
    }

    fn alloc_mw(&self, pd: PdHandle, kind: MwKind) -> Result<MwInfo> {
        self.core.alloc_mw(self.core.pd("alloc_mw", pd)?, kind)
    }

    fn dealloc_mw(&self, mw: MwHandle) -> Result<()> {
        self.core.dealloc_mw(mw)
    }

    fn alloc_fast_mr(&self, pd: PdHandle, max_entries: u32) -> Result<MrInfo> {
        self.core.alloc_fast_mr(self.core.pd("alloc_mr", pd)?, max_entries)
    }

    fn create_comp_channel(&self) -> Result<ChannelHandle> {
        self.core.create_comp_channel()
    }

    fn destroy_comp_channel(&self, channel: ChannelHandle) -> Result<()> {
        self.core.destroy_comp_channel(channel)
    }

    fn get_cq_event(
        &self,
        channel: ChannelHandle,
        timeout: Option<Duration>,
    ) -> Result<Option<CqHandle>> {
        self.core.get_cq_event(channel, timeout)
    }

    fn create_cq(&self, depth: u32, channel: Option<ChannelHandle>) -> Result<CqHandle> {
        self.core.create_cq(depth, channel)
    }

    fn destroy_cq(&self, cq: CqHandle) -> Result<()> {
        self.core.destroy_cq(cq)
    }

    fn create_srq(&self, pd: PdHandle, max_wr: u32, max_sge: u32) -> Result<SrqHandle> {
        let (verb, core) = ("create_srq", &self.core);
        let pd = self.core.pd(verb, pd)?;
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
            self.core.oversized(verb, errno, &asked).unwrap_or_else(|| {
                let refused =
                    Refused { lacks: Some(Capability::Srq), ..self.core.refused(verb, errno) };
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
            let refused = || self.core.refused(verb, errno).error(arguments);
            self.core.oversized(verb, errno, &[too_high]).unwrap_or_else(refused)
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
            self.core.refused(verb, errno).destroying(Object::Srq, srq.0, &by)
        })?;
        objects.srqs.take(verb, srq.0).map(drop)
    }

    fn create_qp(&self, pd: PdHandle, init: &QpInit) -> Result<QpInfo> {
        self.core.create_qp(pd, init)
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
        self.core.destroy_qp(qp)
    }

    fn create_ah(&self, pd: PdHandle, attr: &AhAttr) -> Result<AhHandle> {
        let (verb, core) = ("create_ah", &self.core);
        let pd = self.core.pd(verb, pd)?;
        let fail = |reason| Error::new(verb, format_args!("port {}", attr.port), reason);
        if attr.port != port::PORT {
            let (what, value) = ("port", u64::from(attr.port));
            return Err(fail(Reason::Argument { what, value, allowed: "1, the only one" }));
        }
        let mut path = port::path(&core.context, attr).map_err(fail)?;
        let made = pd.live.with(|raw| {
            // SAFETY: a live domain, and attributes of ours.
            let made = create(|| unsafe { core.context.verbs.ibv_create_ah(raw, &raw mut path) });
            // Before the domain may end: not all drivers tell the kernel of a handle.
            made.map(|address| {
                let handle = core.objects.ahs.handle();
                core.objects.ahs.put(handle, Ah { address, pd: pd.clone() });
                AhHandle(handle)
            })
        });
        let made = made.ok_or_else(|| core.objects.pds.unknown(verb, pd.handle))?;
        made.map_err(|errno| {
            let (live, most) = (core.objects.ahs.read().len(), limit(core.attr.orig_attr.max_ah));
            self.core.refused(verb, errno).creating(
                Object::Ah,
                live,
                most,
                format_args!("{attr:?}"),
            )
        })
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
                let refused = self.core.refused(verb, crate::failure::errno_of(errno));
                Err(refused.destroying(Object::Ah, ah.0, "the device keeps it"))
            }
        }
    }

    fn get_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        events::next(&self.core.context, &self.core.objects, timeout)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let Finding { tried, capabilities: caps, .. } = self.core.known();
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
        let context = &self.core.context;
        let mlx5 = context.name.starts_with("mlx5")
            || context.driver.as_deref().is_some_and(|driver| driver.starts_with("mlx5"));
        if caps.max_fast_mr_entries == 0 && mlx5 {
            let no_key = || format!("a memory key: {}", tried.fast_mr);
            let why = context.no_mlx5.clone().unwrap_or_else(no_key);
            notes.push(format!(
                "fast registration by mlx5 UMR work requests is not to be had here: {why}"
            ));
        } else if caps.max_fast_mr_entries == 0 {
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
