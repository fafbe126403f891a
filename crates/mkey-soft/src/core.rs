//! What all objects of one device share, and what all devices of the process share.

use crate::completion::Cq;
use crate::device_memory::DeviceMemory;
use crate::events::{Channel, EventQueue};
use crate::link::Port;
use crate::object::{Ah, Pd, PdUse};
use crate::options::SoftOptions;
use crate::qp::Qp;
use crate::receive::Srq;
use crate::refusals::RefusalLog;
use crate::registration::Registrations;
use crate::slots::Slots;
use crate::sync::lock;
use crate::timers::Timers;
use crate::watch::Watch;
use crate::xrc::Xrcd;
use mkey_core::device::{AhAttr, AhHandle, Capabilities, Gid, PdHandle, RefusedBy};
use mkey_core::engine::{Engine, Executor, Executors};
use mkey_core::error::Object;
use mkey_core::event::AsyncEvent;
use mkey_core::refusal::PdId;
use mkey_os::copy::Installed;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockWriteGuard, Weak};
use std::time::Duration;

/// The inside of a device.
pub(crate) struct Core {
    pub(crate) options: SoftOptions,
    pub(crate) capabilities: Capabilities,
    pub(crate) engine: Engine,
    pub(crate) tolerant: Installed,
    pub(crate) events: EventQueue<AsyncEvent>,
    pub(crate) refusals: RefusalLog,
    pub(crate) timers: Arc<Timers>,
    /// The way to queue pairs that are not in this process.
    pub(crate) port: Option<Port>,
    /// Bytes of payload of a packet at most, and of a datagram.
    pub(crate) mtu: u32,
    pub(crate) registrations: Registrations,
    /// Set when the first memory is registered that can be watched.
    pub(crate) watch: OnceLock<&'static Watch>,
    pub(crate) objects: Objects,
    pub(crate) own_memory: DeviceMemory,
    /// The last serial number given to a domain or queue pair.
    pub(crate) serial: AtomicU32,
    pub(crate) next_qp_num: AtomicU32,
    /// The clock when the device was opened.
    pub(crate) opened: Duration,
}

/// The objects by handle.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) pds: Mutex<Slots<Arc<Pd>>>,
    pub(crate) channels: Mutex<Slots<Arc<Channel>>>,
    pub(crate) cqs: Mutex<Slots<Arc<Cq>>>,
    pub(crate) srqs: Mutex<Slots<Arc<Srq>>>,
    pub(crate) xrcds: Mutex<Slots<Arc<Xrcd>>>,
    pub(crate) qps: Mutex<Slots<Arc<Qp>>>,
    pub(crate) ahs: RwLock<Slots<Ah>>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Core {
    /// Notes a refusal; its number for `Completion::vendor_err`.
    #[cold]
    pub(crate) fn refuse(&self, qp_num: u32, request: &dyn fmt::Display, why: RefusedBy) -> u32 {
        self.refusals.record(self.age(), qp_num, request, why, true)
    }

    /// The same of what another device has refused, which has told of it.
    #[cold]
    pub(crate) fn was_refused(
        &self,
        qp_num: u32,
        request: &dyn fmt::Display,
        why: RefusedBy,
    ) -> u32 {
        self.refusals.record(self.age(), qp_num, request, why, false)
    }

    /// Time since the device was opened.
    pub(crate) fn age(&self) -> Duration {
        self.timers.now().saturating_sub(self.opened)
    }

    /// Takes in packets and lets the device's timers go on, from a thread that polls.
    #[inline(always)]
    pub(crate) fn pump(&self) {
        if let Some(port) = &self.port
            && port.is_active()
        {
            port.drive(self);
        }
        self.timers.fire_now_and_then();
    }

    /// The same from one that posts: mostly it polls, too, so there is no hurry.
    #[inline(always)]
    pub(crate) fn pump_now_and_then(&self) {
        if let Some(port) = &self.port
            && port.is_active()
            && port.posted()
        {
            port.drive(self);
        }
        self.timers.fire_now_and_then();
    }

    /// When there is something to do that waits for the time.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        let port = self.port.as_ref().and_then(Port::next);
        self.timers.next().into_iter().chain(port).min()
    }

    /// Does what is due by `now`.
    pub(crate) fn fire(&self, now: Duration) {
        if let Some(port) = &self.port
            && port.release(now)
        {
            // There is room for who waits for it.
            port.turn();
        }
        self.timers.fire(now);
    }

    /// Takes in the packets that have arrived for the device's port; whether there were any.
    pub(crate) fn turn(&self) -> bool {
        let Some(port) = &self.port else { return false };
        let released = port.next().is_some_and(|_| port.release(self.timers.now()));
        port.turn() || released
    }

    /// Has peers ring when they have sent something; whether something is there already.
    pub(crate) fn hang_bells(&self) -> bool {
        self.port.as_ref().is_some_and(Port::hang_bells)
    }

    pub(crate) fn take_bells_down(&self, program_polls: bool) {
        if let Some(port) = &self.port {
            port.take_bells_down(program_polls);
        }
    }

    /// The queue pairs that use a completion queue.
    pub(crate) fn users_of(&self, cq: &Cq) -> Vec<Arc<Qp>> {
        let qps = lock(&self.objects.qps);
        let uses = |qp: &&Arc<Qp>| std::ptr::eq(&*qp.send_cq, cq) || std::ptr::eq(&*qp.recv_cq, cq);
        qps.iter().filter(uses).cloned().collect()
    }

    /// The address handle's domain and attributes.
    #[inline]
    pub(crate) fn ah(&self, handle: AhHandle) -> Option<(PdId, AhAttr)> {
        let ahs = self.objects.ahs.read().unwrap_or_else(PoisonError::into_inner);
        ahs.get(handle.0).map(|ah| (ah.pd.id(), ah.attr))
    }

    /// Makes something a member of a domain.
    #[inline]
    pub(crate) fn join(&self, pd: PdHandle) -> Option<PdUse> {
        lock(&self.objects.pds).get(pd.0).map(PdUse::new)
    }

    /// What belongs to a domain, in words.
    #[cold]
    pub(crate) fn members(&self, pd: PdId) -> String {
        let (regions, windows) = self.registrations.members(pd);
        let qps = lock(&self.objects.qps).iter().filter(|qp| qp.pd == pd).count();
        let srqs = lock(&self.objects.srqs).iter().filter(|srq| srq.pd == pd).count();
        let ahs = self.objects.ahs.read().unwrap_or_else(PoisonError::into_inner);
        let ahs = ahs.iter().filter(|ah| ah.pd.id() == pd).count();
        let counts = [
            (regions, Object::Mr),
            (windows, Object::Mw),
            (qps, Object::Qp),
            (srqs, Object::Srq),
            (ahs, Object::Ah),
        ];
        let words: Vec<_> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, kind)| format!("{count} {kind}{}", if *count > 1 { "s" } else { "" }))
            .collect();
        match words.is_empty() {
            true => "an object that another thread is creating or destroying".to_owned(),
            false => words.join(", "),
        }
    }

    /// Atomics on words that no CPU atomic can change take turns, over all devices.
    pub(crate) fn unaligned_atomics(&self) -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        lock(&TURN)
    }
}

/// The executor slots of the process: one set for all devices, so that one copy may touch the
/// memory of two.
pub(crate) fn executors() -> &'static Arc<Executors> {
    EXECUTORS.get_or_init(|| {
        // A child may be forked while an event is in hand, and no thread there would ever end it.
        // Without memory to note this, such a child waits for ever: no worse than what else fails.
        mkey_os::fork::in_children(in_child);
        Executors::new()
    })
}

extern "C" fn in_child() {
    if let Some(executors) = EXECUTORS.get() {
        executors.forget_other_threads();
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    crate::not_inherited::give_up();
}

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Which process this is, counted from the first that had a device by forks. What a process has made
/// that only it may use remembers it.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

static EXECUTORS: OnceLock<Arc<Executors>> = OnceLock::new();

thread_local! {
    static EXECUTOR: RefCell<Option<Executor>> = const { RefCell::new(None) };
}

/// Runs `work` with the calling thread's executor slot. It returns nothing, so that no result is
/// moved about on the way.
#[inline]
pub(crate) fn with_executor(work: impl FnOnce(&mut Executor)) {
    let mut work = Some(work);
    // Fails if the thread is ending and its slot is gone.
    let _ = EXECUTOR.try_with(|own| {
        // Fails in a call from within a call.
        let Ok(mut own) = own.try_borrow_mut() else { return };
        let executor = match &mut *own {
            Some(executor) => executor,
            none => none.insert(enter()),
        };
        if let Some(work) = work.take() {
            work(executor);
        }
    });
    if let Some(work) = work {
        work(&mut enter());
    }
}

/// Takes a slot; waits while 65,536 other threads hold one each.
#[cold]
fn enter() -> Executor {
    loop {
        if let Some(executor) = executors().enter() {
            return executor;
        }
        std::thread::yield_now();
    }
}

/// The queue pairs of the process by port and number: how a requester finds its responder. `None`:
/// the number is taken, the queue pair is not there yet.
type Registry = RwLock<Known>;
type Known = HashMap<(Gid, u32), Option<Weak<Qp>>, foldhash::fast::RandomState>;

fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        // A child has devices of its own, and nobody there would ever unlock it.
        mkey_os::fork::around(hold_registry, let_go_of_registry);
        Registry::default()
    })
}

thread_local! {
    /// Of a thread that forks.
    static HELD: RefCell<Option<RwLockWriteGuard<'static, Known>>> = const { RefCell::new(None) };
}

extern "C" fn hold_registry() {
    let held = registry().write().unwrap_or_else(PoisonError::into_inner);
    // Fails if the thread is ending: a child of that is not so safe.
    let _ = HELD.try_with(|place| place.replace(Some(held)));
}

extern "C" fn let_go_of_registry() {
    let _ = HELD.try_with(|place| place.take());
}

/// The queue pair with this number at this port.
pub(crate) fn find_qp(gid: Gid, number: u32) -> Option<Arc<Qp>> {
    let known = registry().read().unwrap_or_else(PoisonError::into_inner);
    known.get(&(gid, number))?.as_ref()?.upgrade()
}

/// Takes a number at a port (`None`), or makes known who has taken it; false if it is taken
/// already.
pub(crate) fn announce_qp(gid: Gid, number: u32, qp: Option<Weak<Qp>>) -> bool {
    let mut known = registry().write().unwrap_or_else(PoisonError::into_inner);
    if qp.is_none() && known.contains_key(&(gid, number)) {
        return false;
    }
    known.insert((gid, number), qp);
    true
}

/// Gives a number back.
pub(crate) fn forget_qp(gid: Gid, number: u32) {
    registry().write().unwrap_or_else(PoisonError::into_inner).remove(&(gid, number));
}
