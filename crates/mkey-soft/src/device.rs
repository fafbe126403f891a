//! The device: the control plane.

use crate::capabilities::capabilities;
use crate::completion::Cq;
use crate::core::{Core, Objects, announce_qp, executors, forget_qp};
use crate::data_plane::{SoftCq, SoftQp, SoftSrq};
use crate::device_memory::DeviceMemory;
use crate::events::{Channel, EventQueue};
use crate::link::{Port, mtu};
use crate::object::{Ah, Pd, PdUse, Use, Used};
use crate::options::{PinMode, SoftOptions};
use crate::qp::{Qp, Ties};
use crate::receive::{Srq, XrcHome};
use crate::refusals::RefusalLog;
use crate::registration::Registrations;
use crate::slots::MOST;
use crate::sync::lock;
use crate::timers::Timers;
use mkey_core::data_plane::DataPlane;
use mkey_core::device::*;
use mkey_core::engine::{Engine, EngineConfig};
use mkey_core::error::{Error, Object, Reason, Result};
use mkey_core::event::AsyncEvent;
use mkey_core::key::MAX_KEYS;
use mkey_core::queue_pair::{QpAttr, QpInit, QpModify, Xrc};
use mkey_core::refusal::{PdId, QpId};
use mkey_core::rights::Rights;
use mkey_core::work::Sge;
use mkey_os::count_fd::CountFd;
use mkey_os::error::OsError;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

const QP_NUM_BITS: u32 = 24;

/// A software RNIC.
///
/// Its objects end with it, whatever handles to them are left. Queue pairs reach those of other
/// devices in this process by the identifier of their port.
pub struct SoftDevice {
    pub(crate) core: Arc<Core>,
}

impl fmt::Debug for SoftDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

const CREATE_SRQ: &str = "create_srq";

impl SoftDevice {
    /// Opens a device.
    ///
    /// # Errors
    /// `System` where the operating system refuses what the device can not do without, `Argument`
    /// for a key limit that is 0 or above 2^24 - 1.
    pub fn open(options: SoftOptions) -> Result<Arc<SoftDevice>> {
        let fail = |reason| Error::new("open_device", &options.name, reason);
        if options.max_keys == 0 || options.max_keys > MAX_KEYS {
            let (what, value) = ("max_keys", u64::from(options.max_keys));
            return Err(fail(Reason::Argument { what, value, allowed: "1 to 2^24 - 1" }));
        }
        if let Some(mtu) = options.mtu.filter(|mtu| !mtu::SIZES.contains(mtu)) {
            let (what, allowed) = ("mtu", "256, 512, 1024, 2048 or 4096");
            return Err(fail(Reason::Argument { what, value: u64::from(mtu), allowed }));
        }
        let tolerant = mkey_os::copy::install()
            .map_err(|error| fail(Reason::System { call: "sigaction", errno: errno_of(&error) }))?;
        let seed = options.seed.unwrap_or_else(random);
        let config = EngineConfig { max_keys: options.max_keys, seed };
        let core = Core {
            capabilities: capabilities(&options),
            engine: Engine::new(config, executors().clone()),
            tolerant,
            events: EventQueue::default(),
            refusals: RefusalLog::new(options.refusal_log, options.listener.clone()),
            timers: Arc::new(Timers::new(options.clock.clone())),
            port: Port::new(&options),
            mtu: mtu::of(&options),
            registrations: Registrations::new(&options)?,
            watch: OnceLock::new(),
            objects: Objects::default(),
            own_memory: DeviceMemory::default(),
            serial: AtomicU32::new(0),
            opened: options.clock.now(),
            next_qp_num: AtomicU32::new(seed as u32 >> 8),
            options,
        };
        let core = Arc::new(core);
        if let Some(port) = &core.port {
            port.open(&core);
        }
        Ok(Arc::new(SoftDevice { core }))
    }

    /// Moves a virtual clock to `now` and fires the timers that are due by then; on a real clock
    /// only the latter.
    pub fn advance(&self, now: Duration) {
        // What is on its way in a network in memory arrives before.
        self.core.pump();
        self.core.options.clock.advance_to(now);
        self.core.fire(now);
        self.core.pump();
    }

    /// When the next of its timers is due; `None` if no work waits for the time. What a program
    /// that moves a virtual clock moves it to, so that no step between is missed.
    pub fn next_timer(&self) -> Option<Duration> {
        self.core.next_timer()
    }

    /// A descriptor that is readable while there are events on a channel, for programs that poll.
    /// Whoever takes an event takes one off its count first.
    ///
    /// # Errors
    /// `UnknownHandle`, or `System` if there are no descriptors left.
    pub fn channel_fd(&self, channel: ChannelHandle) -> Result<Arc<CountFd>> {
        let (verb, object) = ("create_comp_channel", Object::CompChannel);
        let found = self.find(verb, object, channel.0, &self.core.objects.channels)?;
        found.events.shown().map_err(|error| no_descriptor(verb, &error))
    }

    /// The same for asynchronous events.
    ///
    /// # Errors
    /// `System` if there are no descriptors left.
    pub fn async_fd(&self) -> Result<Arc<CountFd>> {
        self.core.events.shown().map_err(|error| no_descriptor("open_device", &error))
    }

    /// Waits until the device knows of all pages that the program has taken away so far, and its
    /// listener, if it has one, was told.
    pub fn settle(&self) {
        crate::watch::settled(&self.core);
    }

    /// The device's time.
    pub fn now(&self) -> Duration {
        self.core.timers.now()
    }

    /// The pin mode that has held the most spans so far, those let go included; the one asked for
    /// before the first.
    pub fn pin_mode(&self) -> PinMode {
        let pinner = &self.core.registrations.pinner;
        pinner.stats().usual().unwrap_or_else(|| pinner.strongest())
    }

    fn find<T: Clone>(
        &self,
        verb: &'static str,
        object: Object,
        handle: u64,
        table: &std::sync::Mutex<crate::slots::Slots<T>>,
    ) -> Result<T> {
        lock(table).get(handle).cloned().ok_or_else(|| unknown(verb, object, handle))
    }

    fn find_qp(&self, verb: &'static str, qp: QpHandle) -> Result<Arc<Qp>> {
        self.find(verb, Object::Qp, qp.0, &self.core.objects.qps)
    }

    fn join(&self, verb: &'static str, pd: PdHandle) -> Result<PdUse> {
        self.core.join(pd).ok_or_else(|| unknown(verb, Object::Pd, pd.0))
    }

    /// An object that is used from now on.
    fn used<T: Used>(
        &self,
        verb: &'static str,
        object: Object,
        handle: u64,
        table: &std::sync::Mutex<crate::slots::Slots<Arc<T>>>,
    ) -> Result<Use<T>> {
        lock(table).get(handle).map(Use::new).ok_or_else(|| unknown(verb, object, handle))
    }

    /// A shared receive queue; `home` is where one of extended connections belongs.
    fn new_srq(
        &self,
        pd: PdHandle,
        max_wr: u32,
        max_sge: u32,
        home: impl FnOnce() -> Result<Option<XrcHome>>,
    ) -> Result<SrqHandle> {
        let (verb, caps) = (CREATE_SRQ, &self.core.capabilities);
        in_range(verb, "max_wr", max_wr, 1, caps.max_qp_wr, "1 to the device's max_qp_wr")?;
        in_range(verb, "max_sge", max_sge, 0, caps.max_sge, "at most the device's max_sge")?;
        let pd = self.join(verb, pd)?;
        let home = home()?;
        let make = |handle| {
            let handle = SrqHandle(handle);
            (Srq::new(handle, pd, max_wr, max_sge, home), handle)
        };
        let handle = lock(&self.core.objects.srqs).insert_with(make);
        handle.ok_or_else(|| table_full(verb, Object::Srq))
    }

    /// Takes an object out of its table unless others use it.
    fn remove_unused<T: Used>(
        &self,
        verb: &'static str,
        object: Object,
        handle: u64,
        table: &std::sync::Mutex<crate::slots::Slots<Arc<T>>>,
        by: &str,
    ) -> Result<Arc<T>> {
        let mut table = lock(table);
        let found = table.get(handle).ok_or_else(|| unknown(verb, object, handle))?;
        match found.users().load(Ordering::Acquire) {
            0 => table.remove(handle).ok_or_else(|| unknown(verb, object, handle)),
            users => {
                let by = format!("{by} ({users} uses)").into_boxed_str();
                let reason = Reason::InUse { object, by };
                Err(Error::new(verb, format_args!("handle {handle:#x}"), reason))
            }
        }
    }

    /// A number that no queue pair has at this port, made known for `qp` by `announce`.
    fn number(&self, announce: impl Fn(u32) -> bool) -> Option<u32> {
        (0..1u32 << QP_NUM_BITS).find_map(|tries| {
            let next = self.core.next_qp_num.fetch_add(1, Ordering::Relaxed);
            let number = match &self.core.port {
                Some(port) => port.number(next, tries)?,
                None => next % (1 << QP_NUM_BITS),
            };
            // 0 and 1 are those of the management queue pairs.
            (number > 1 && announce(number)).then_some(number)
        })
    }

    fn serial(&self) -> u32 {
        // 0 stands for "none" in the engine.
        self.core.serial.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1)
    }
}

impl Drop for SoftDevice {
    fn drop(&mut self) {
        let core = &self.core;
        core.timers.close();
        for qp in lock(&core.objects.qps).drain() {
            qp.destroy();
        }
        core.registrations.close(core);
        for srq in lock(&core.objects.srqs).drain() {
            srq.retire();
        }
        for cq in lock(&core.objects.cqs).drain() {
            cq.retire();
        }
        for channel in lock(&core.objects.channels).drain() {
            channel.events.close();
        }
        core.objects.ahs.write().unwrap_or_else(PoisonError::into_inner).drain();
        core.events.close();
    }
}

/// The errno behind an error of the operating system; 0 if it tells none.
fn errno_of(error: &dyn std::error::Error) -> i32 {
    let cause = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    cause.and_then(std::io::Error::raw_os_error).unwrap_or(0)
}

fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cold]
fn unknown(verb: &'static str, object: Object, handle: u64) -> Error {
    let reason = Reason::UnknownHandle { object, handle };
    Error::new(verb, format_args!("handle {handle:#x}"), reason)
}

#[cold]
fn table_full(verb: &'static str, object: Object) -> Error {
    Error::new(verb, "", Reason::TableFull { object, most: u64::from(MOST) })
}

#[cold]
fn no_descriptor(verb: &'static str, error: &OsError) -> Error {
    let reason = Reason::System { call: error.call, errno: error.errno.raw_os_error() };
    Error::new(verb, "", reason)
}

fn in_range(
    verb: &'static str,
    what: &'static str,
    value: u32,
    least: u32,
    most: u32,
    allowed: &'static str,
) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let reason = Reason::Argument { what, value: u64::from(value), allowed };
    Err(Error::new(verb, format_args!("{what} {value}"), reason))
}

impl DataPlane for SoftDevice {
    type Qp = SoftQp;
    type Cq = SoftCq;
    type Srq = SoftSrq;

    fn qp(&self, qp: QpHandle) -> Result<SoftQp> {
        Ok(SoftQp::new(self.find_qp("qp", qp)?))
    }

    fn cq(&self, cq: CqHandle) -> Result<SoftCq> {
        let cq = self.find("cq", Object::Cq, cq.0, &self.core.objects.cqs)?;
        Ok(SoftCq::new(self.core.clone(), cq))
    }

    fn srq(&self, srq: SrqHandle) -> Result<SoftSrq> {
        let srq = self.find("srq", Object::Srq, srq.0, &self.core.objects.srqs)?;
        Ok(SoftSrq::new(self.core.clone(), srq))
    }
}

impl Device for SoftDevice {
    fn name(&self) -> &str {
        &self.core.options.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.core.capabilities
    }

    fn port(&self) -> PortInfo {
        PortInfo {
            active: true,
            active_mtu: self.core.mtu,
            gid: self.core.options.gid,
            gid_index: 0,
        }
    }

    fn alloc_pd(&self) -> Result<PdHandle> {
        let pd = Arc::new(Pd { id: PdId(self.serial()) });
        let handle = lock(&self.core.objects.pds).insert(pd);
        handle.map(PdHandle).ok_or_else(|| table_full("alloc_pd", Object::Pd))
    }

    fn dealloc_pd(&self, pd: PdHandle) -> Result<()> {
        let mut pds = lock(&self.core.objects.pds);
        let found = pds.get(pd.0).ok_or_else(|| unknown("dealloc_pd", Object::Pd, pd.0))?;
        if found.has_members() {
            let by = self.core.members(found.id).into();
            let reason = Reason::InUse { object: Object::Pd, by };
            return Err(Error::new("dealloc_pd", format_args!("handle {:#x}", pd.0), reason));
        }
        pds.remove(pd.0);
        Ok(())
    }

    #[allow(unsafe_code)] // The caller's promise is kept for as long as the region lives.
    unsafe fn reg_mr(&self, pd: PdHandle, spec: &MrSpec) -> Result<MrInfo> {
        let pd = self.join("reg_mr", pd)?;
        self.core.registrations.register(&self.core, pd, spec)
    }

    #[allow(unsafe_code)] // As above.
    unsafe fn reg_dmabuf_mr(&self, pd: PdHandle, spec: &DmaBufSpec<'_>) -> Result<MrInfo> {
        let pd = self.join("reg_dmabuf_mr", pd)?;
        self.core.registrations.register_file(&self.core, pd, spec)
    }

    #[allow(unsafe_code)] // As above.
    unsafe fn rereg_mr(
        &self,
        mr: MrHandle,
        change: &MrChange,
    ) -> std::result::Result<MrInfo, ReregError> {
        let pd = match change.pd {
            None => None,
            Some(pd) => Some(
                self.join("rereg_mr", pd)
                    .map_err(|error| ReregError { error, state: ReregState::Unchanged })?,
            ),
        };
        self.core.registrations.reregister(&self.core, mr, change, pd)
    }

    fn dereg_mr(&self, mr: MrHandle) -> Result<()> {
        self.core.registrations.deregister(&self.core, mr)
    }

    fn alloc_null_mr(&self, pd: PdHandle) -> Result<MrInfo> {
        let pd = self.join("alloc_null_mr", pd)?;
        self.core.registrations.allocate_null(&self.core, pd)
    }

    fn alloc_dm(&self, length: u64) -> Result<DmHandle> {
        self.core.own_memory.allocate(length)
    }

    fn free_dm(&self, dm: DmHandle) -> Result<()> {
        self.core.own_memory.free(dm)
    }

    fn reg_dm_mr(
        &self,
        pd: PdHandle,
        dm: DmHandle,
        offset: u64,
        length: u64,
        rights: Rights,
    ) -> Result<MrInfo> {
        let pd = self.join("reg_dm_mr", pd)?;
        let part = self.core.own_memory.part("reg_dm_mr", dm, offset, length)?;
        self.core.registrations.register_dm(&self.core, pd, part, rights)
    }

    fn write_dm(&self, dm: DmHandle, offset: u64, bytes: &[u8]) -> Result<()> {
        self.core.own_memory.write(&self.core, dm, offset, bytes)
    }

    fn read_dm(&self, dm: DmHandle, offset: u64, into: &mut [u8]) -> Result<()> {
        self.core.own_memory.read(&self.core, dm, offset, into)
    }

    fn advise_mr(&self, pd: PdHandle, advice: Advice, flush: bool, sges: &[Sge]) -> Result<()> {
        let pd = self.join("advise_mr", pd)?;
        self.core.registrations.advise(&self.core, pd.id(), advice, flush, sges)
    }

    fn odp_stats(&self, mr: MrHandle) -> Result<OdpStats> {
        self.core.registrations.odp_stats(&self.core, mr)
    }

    fn alloc_mw(&self, pd: PdHandle, kind: MwKind) -> Result<MwInfo> {
        let pd = self.join("alloc_mw", pd)?;
        self.core.registrations.allocate_window(&self.core, pd, kind)
    }

    fn dealloc_mw(&self, mw: MwHandle) -> Result<()> {
        self.core.registrations.free_window(&self.core, mw)
    }

    fn alloc_fast_mr(&self, pd: PdHandle, max_entries: u32) -> Result<MrInfo> {
        let pd = self.join("alloc_mr", pd)?;
        self.core.registrations.allocate_fast(&self.core, pd, max_entries)
    }

    fn create_comp_channel(&self) -> Result<ChannelHandle> {
        let make = |handle| {
            let handle = ChannelHandle(handle);
            (Arc::new(Channel::default()), handle)
        };
        let handle = lock(&self.core.objects.channels).insert_with(make);
        handle.ok_or_else(|| table_full("create_comp_channel", Object::CompChannel))
    }

    fn destroy_comp_channel(&self, channel: ChannelHandle) -> Result<()> {
        let (verb, object) = ("destroy_comp_channel", Object::CompChannel);
        let channels = &self.core.objects.channels;
        let by = "completion queues are on it";
        let channel = self.remove_unused(verb, object, channel.0, channels, by)?;
        channel.events.close();
        Ok(())
    }

    fn get_cq_event(
        &self,
        channel: ChannelHandle,
        timeout: Option<Duration>,
    ) -> Result<Option<CqHandle>> {
        let (verb, object) = ("get_cq_event", Object::CompChannel);
        let found = self.find(verb, object, channel.0, &self.core.objects.channels)?;
        self.core.pump();
        found.events.wait(timeout).map_err(|_| unknown(verb, object, channel.0))
    }

    fn create_cq(&self, depth: u32, channel: Option<ChannelHandle>) -> Result<CqHandle> {
        let verb = "create_cq";
        let most = self.core.capabilities.max_cqe;
        in_range(verb, "depth", depth, 1, most, "1 to the device's max_cqe")?;
        let channels = &self.core.objects.channels;
        let channel = channel.map(|c| self.used(verb, Object::CompChannel, c.0, channels));
        let channel = channel.transpose()?;
        let make = |handle| {
            let handle = CqHandle(handle);
            (Arc::new(Cq::new(handle, depth, channel)), handle)
        };
        let handle = lock(&self.core.objects.cqs).insert_with(make);
        handle.ok_or_else(|| table_full(verb, Object::Cq))
    }

    fn resize_cq(&self, cq: CqHandle, depth: u32) -> Result<()> {
        let verb = "resize_cq";
        let most = self.core.capabilities.max_cqe;
        in_range(verb, "depth", depth, 1, most, "1 to the device's max_cqe")?;
        let found = self.find(verb, Object::Cq, cq.0, &self.core.objects.cqs)?;
        found.resize(depth).map_err(|r| Error::new(verb, format_args!("depth {depth}"), r))
    }

    fn destroy_cq(&self, cq: CqHandle) -> Result<()> {
        let cqs = &self.core.objects.cqs;
        let cq = self.remove_unused("destroy_cq", Object::Cq, cq.0, cqs, "queue pairs use it")?;
        cq.retire();
        self.core.events.forget(|event| *event == AsyncEvent::CqErr(cq.handle));
        Ok(())
    }

    fn create_srq(&self, pd: PdHandle, max_wr: u32, max_sge: u32) -> Result<SrqHandle> {
        self.new_srq(pd, max_wr, max_sge, || Ok(None))
    }

    fn open_xrcd(&self) -> Result<XrcdHandle> {
        let handle = lock(&self.core.objects.xrcds).insert(Arc::default());
        handle.map(XrcdHandle).ok_or_else(|| table_full("open_xrcd", Object::Xrcd))
    }

    fn close_xrcd(&self, xrcd: XrcdHandle) -> Result<()> {
        let by = "queue pairs or shared receive queues belong to it";
        let xrcds = &self.core.objects.xrcds;
        self.remove_unused("close_xrcd", Object::Xrcd, xrcd.0, xrcds, by).map(drop)
    }

    fn create_xrc_srq(
        &self,
        pd: PdHandle,
        xrcd: XrcdHandle,
        cq: CqHandle,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SrqHandle> {
        self.new_srq(pd, max_wr, max_sge, || {
            let objects = &self.core.objects;
            let cq = self.used(CREATE_SRQ, Object::Cq, cq.0, &objects.cqs)?;
            let domain = self.used(CREATE_SRQ, Object::Xrcd, xrcd.0, &objects.xrcds)?;
            Ok(Some(XrcHome::new(cq, domain)))
        })
    }

    fn srq_num(&self, srq: SrqHandle) -> Result<u32> {
        let found = self.find("get_srq_num", Object::Srq, srq.0, &self.core.objects.srqs)?;
        Ok(found.number())
    }

    fn modify_srq(&self, srq: SrqHandle, limit: u32) -> Result<()> {
        let verb = "modify_srq";
        let found = self.find(verb, Object::Srq, srq.0, &self.core.objects.srqs)?;
        let below = found
            .arm(limit)
            .map_err(|reason| Error::new(verb, format_args!("limit {limit}"), reason))?;
        if below {
            self.core.events.push(AsyncEvent::SrqLimitReached(srq));
        }
        Ok(())
    }

    fn query_srq(&self, srq: SrqHandle) -> Result<u32> {
        let found = self.find("query_srq", Object::Srq, srq.0, &self.core.objects.srqs)?;
        Ok(found.limit())
    }

    fn destroy_srq(&self, srq: SrqHandle) -> Result<()> {
        let srqs = &self.core.objects.srqs;
        let by = "queue pairs take from it";
        let srq = self.remove_unused("destroy_srq", Object::Srq, srq.0, srqs, by)?;
        srq.retire();
        self.core.events.forget(|event| {
            matches!(event, AsyncEvent::SrqLimitReached(s) | AsyncEvent::SrqErr(s) if *s == srq.handle)
        });
        Ok(())
    }

    fn create_qp(&self, pd: PdHandle, init: &QpInit) -> Result<QpInfo> {
        let verb = "create_qp";
        let caps = &self.core.capabilities;
        let (wr, sge) = ("at most the device's max_qp_wr", "at most the device's max_sge");
        in_range(verb, "max_send_wr", init.max_send_wr, 0, caps.max_qp_wr, wr)?;
        in_range(verb, "max_recv_wr", init.max_recv_wr, 0, caps.max_qp_wr, wr)?;
        in_range(verb, "max_send_sge", init.max_send_sge, 0, caps.max_sge, sge)?;
        in_range(verb, "max_recv_sge", init.max_recv_sge, 0, caps.max_sge, sge)?;
        let inline = "at most the device's max_inline";
        in_range(verb, "max_inline", init.max_inline, 0, caps.max_inline, inline)?;
        let pd = self.join(verb, pd)?;
        let objects = &self.core.objects;
        let cq = |cq: CqHandle| self.used(verb, Object::Cq, cq.0, &objects.cqs);
        let (send_cq, recv_cq) = (cq(init.send_cq)?, cq(init.recv_cq)?);
        let srq = init.srq.map(|srq| self.used(verb, Object::Srq, srq.0, &objects.srqs));
        let srq = srq.transpose()?;
        let xrcd = match init.xrc {
            Some(Xrc::Receive(xrcd)) => {
                Some(self.used(verb, Object::Xrcd, xrcd.0, &objects.xrcds)?)
            }
            _ => None,
        };
        let id = QpId(self.serial());
        let gid = self.core.options.gid;
        // The number is taken by a place holder until the queue pair is there.
        let number = self.number(|number| announce_qp(gid, number, None));
        let number = number.ok_or_else(|| table_full(verb, Object::Qp))?;
        let ties = Ties { pd, send_cq, recv_cq, srq, xrcd };
        let make = |handle| {
            let handle = QpHandle(handle);
            let qp = Qp::new(handle, id, number, init, self.core.clone(), ties);
            announce_qp(gid, number, Some(qp.weak()));
            (qp, QpInfo { handle, qp_num: number })
        };
        let info = lock(&objects.qps).insert_with(make);
        info.ok_or_else(|| {
            forget_qp(gid, number);
            table_full(verb, Object::Qp)
        })
    }

    fn modify_qp(&self, qp: QpHandle, change: &QpModify) -> Result<()> {
        let verb = "modify_qp";
        let found = self.find_qp(verb, qp)?;
        found
            .modify(change)
            .map_err(|reason| Error::new(verb, format_args!("qp {:#08x}", found.num), reason))
    }

    fn query_qp(&self, qp: QpHandle) -> Result<QpAttr> {
        let found = self.find_qp("query_qp", qp)?;
        self.core.pump();
        Ok(found.query())
    }

    fn destroy_qp(&self, qp: QpHandle) -> Result<()> {
        let found = lock(&self.core.objects.qps).remove(qp.0);
        found.ok_or_else(|| unknown("destroy_qp", Object::Qp, qp.0))?.destroy();
        Ok(())
    }

    fn create_ah(&self, pd: PdHandle, attr: &AhAttr) -> Result<AhHandle> {
        let verb = "create_ah";
        in_range(verb, "port", u32::from(attr.port), 1, 1, "1, the only one")?;
        let pd = self.join(verb, pd)?;
        let mut ahs = self.core.objects.ahs.write().unwrap_or_else(PoisonError::into_inner);
        let handle = ahs.insert(Ah { pd, attr: *attr });
        handle.map(AhHandle).ok_or_else(|| table_full(verb, Object::Ah))
    }

    fn destroy_ah(&self, ah: AhHandle) -> Result<()> {
        let mut ahs = self.core.objects.ahs.write().unwrap_or_else(PoisonError::into_inner);
        ahs.remove(ah.0).map(drop).ok_or_else(|| unknown("destroy_ah", Object::Ah, ah.0))
    }

    fn get_async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        self.core.pump();
        // Closed means that the device is gone, and then nobody can ask.
        Ok(self.core.events.wait(timeout).unwrap_or(None))
    }

    fn refusals(&self) -> Result<Vec<RefusalReport>> {
        Ok(self.core.refusals.reports())
    }

    fn registration_terms(&self) -> RegistrationTerms {
        self.core.registrations.terms()
    }

    fn notes(&self) -> Vec<String> {
        crate::notes::notes(&self.core)
    }
}
