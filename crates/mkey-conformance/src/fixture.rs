//! Devices under test, and one end of a connection with all that it needs.

use crate::deviations::Deviation;
use crate::memory::Memory;
use crate::registry::fails;
use mkey_core::data_plane::{CompletionQueue, DataPlane, PostError, QueuePair, SharedReceive};
use mkey_core::device::{AhAttr, CqHandle, Device, PdHandle, QpHandle, QpInfo, SrqHandle};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpInit, QpKind, QpModify, QpState};
use mkey_core::rights::Rights;
use mkey_core::work::{Completion, Payload, RecvWr, SendOp, SendWr, Sge, UdDest};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Rights of a plain region in tests: everything but windows.
pub const ALL: Rights = Rights::LOCAL_WRITE
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::REMOTE_ATOMIC);
/// Rights of a region that only windows make remote.
pub const BIND: Rights = Rights::LOCAL_WRITE.union(Rights::MW_BIND);
/// The queue key of unreliable datagrams in tests.
pub const QKEY: u32 = 0x1111_1111;

/// How far time goes on between two looks.
const STEP: Duration = Duration::from_millis(1);
/// How long is waited in a test that is known to fail.
const SHORT: Duration = Duration::from_secs(1);
/// How long nothing may happen where nothing may happen, in the device's own time.
const QUIET: Duration = Duration::from_millis(50);

/// A kind of device under test.
pub trait Subject: Sync + Sized {
    /// The device.
    type Device: DataPlane + 'static;

    /// Opens the devices of the two sides of a test: two that reach each other, or one twice.
    fn open(&self) -> (Arc<Self::Device>, Arc<Self::Device>);

    /// Opens a device whose registrations may pin at most `memlock` bytes, by a process without
    /// the privilege to pin more.
    fn open_limited(&self, memlock: u64) -> Arc<Self::Device>;

    /// Lets time go on for the device's timers: moves its clock, or waits.
    fn pass(&self, device: &Self::Device, time: Duration);

    /// How long a completion or an event may take, in the device's own time.
    fn limit(&self) -> Duration {
        Duration::from_secs(20)
    }

    /// The 5-bit code of the time to wait for an answer, where a test wants `asked`.
    fn timeout(&self, asked: u8) -> u8 {
        asked
    }

    /// In what the device is known to deviate from the rules.
    fn deviations(&self) -> Vec<&'static Deviation> {
        Vec::new()
    }

    /// How to reach `device`.
    fn address(&self, device: &Self::Device) -> AhAttr {
        let port = device.port();
        let (gid, gid_index) = (port.gid, port.gid_index);
        AhAttr { gid, gid_index, port: 1, traffic_class: 0, hop_limit: 64 }
    }
}

/// How the queue pairs of a test are made.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are those of the attributes that they set")]
pub struct Config {
    pub kind: QpKind,
    /// What peers may do by the queue pairs.
    pub rights: Rights,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    /// 5-bit code; 8 = 1 ms.
    pub timeout: u8,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_sge: u32,
    pub max_inline: u32,
    pub cq_depth: u32,
    pub signal_all: bool,
    /// Both sides take receives from a shared queue of their own.
    pub srq: bool,
    /// The shared queues are of another protection domain than the queue pairs.
    pub srq_apart: bool,
}

impl Config {
    /// All rights, short timers, one retry.
    pub fn new(kind: QpKind) -> Self {
        Self {
            kind,
            rights: Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::REMOTE_ATOMIC,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            retry_cnt: 1,
            rnr_retry: 1,
            timeout: 8,
            max_send_wr: 64,
            max_recv_wr: 64,
            max_sge: 4,
            max_inline: 64,
            cq_depth: 256,
            signal_all: false,
            srq: false,
            srq_apart: false,
        }
    }
}

/// Locks; a test that failed while it held the lock has its say already.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device with its events and the memory that tests register on it.
pub struct Station<'s, S: Subject> {
    subject: &'s S,
    device: Arc<S::Device>,
    events: Mutex<Vec<AsyncEvent>>,
    /// Memory is kept until the device is gone, whatever a test forgets to deregister: fields are
    /// dropped in this order.
    kept: Mutex<Vec<Arc<Memory>>>,
}

impl<'s, S: Subject> Station<'s, S> {
    /// A device that was just opened.
    pub(crate) fn new(subject: &'s S, device: Arc<S::Device>) -> Self {
        Self { subject, device, events: Mutex::default(), kept: Mutex::default() }
    }

    /// The device.
    pub fn device(&self) -> &S::Device {
        &self.device
    }

    /// Keeps memory until the device is closed.
    pub(crate) fn keep(&self, memory: Arc<Memory>) {
        locked(&self.kept).push(memory);
    }

    /// Forgets the events of a queue pair so far.
    #[track_caller]
    pub(crate) fn forget_events(&self, of: QpHandle) {
        self.events();
        locked(&self.events).retain(|event| !concerns(event, of));
    }

    /// Lets time go on.
    pub fn pass(&self, time: Duration) {
        self.subject.pass(&self.device, time);
    }

    /// Lets time go on until `found` finds something; fails after a while.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let mut waited = Duration::ZERO;
        loop {
            if let Some(found) = found() {
                return found;
            }
            let limit = if fails() { SHORT } else { self.subject.limit() };
            assert!(waited < limit, "{what} did not come within {limit:?}");
            self.pass(STEP);
            waited += STEP;
        }
    }

    /// The events seen so far.
    #[track_caller]
    pub fn events(&self) -> Vec<AsyncEvent> {
        let mut events = locked(&self.events);
        while let Some(event) =
            self.device.get_async_event(Some(Duration::ZERO)).expect("get_async_event")
        {
            events.push(event);
        }
        events.clone()
    }
}

/// Of a test that fails, the device's own words on what it refused last are worth having.
impl<S: Subject> Drop for Station<'_, S> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(refusals) = self.device.refusals()
        {
            for report in refusals.iter().rev().take(3) {
                eprintln!("refused by {}: {report:?}", self.device.name());
            }
        }
    }
}

/// Whether an event is about a queue pair.
fn concerns(event: &AsyncEvent, qp: QpHandle) -> bool {
    match *event {
        AsyncEvent::QpFatal(of)
        | AsyncEvent::QpReqErr(of)
        | AsyncEvent::QpAccessErr(of)
        | AsyncEvent::SqDrained(of)
        | AsyncEvent::QpLastWqeReached(of) => of == qp,
        _ => false,
    }
}

/// A completion queue of one side.
pub struct Queue<C> {
    /// Names it in verbs.
    pub handle: CqHandle,
    /// Its data plane.
    pub cq: C,
    taken: Mutex<VecDeque<Completion>>,
}

impl<C: CompletionQueue> Queue<C> {
    /// The next completion, if there is one by now.
    #[track_caller]
    pub fn next(&self) -> Option<Completion> {
        let mut taken = locked(&self.taken);
        if taken.is_empty() {
            let mut into = [Completion::BLANK; 16];
            let count = self.cq.poll(&mut into).expect("poll_cq");
            taken.extend(&into[..count]);
        }
        taken.pop_front()
    }
}

/// The shared receive queue of one side.
pub struct Shared<Q> {
    /// Names it in verbs.
    pub handle: SrqHandle,
    /// Its protection domain.
    pub pd: PdHandle,
    /// Its data plane.
    pub srq: Q,
}

/// One end of a pair: a queue pair with its completion queues and protection domain.
pub struct Side<'s, S: Subject> {
    /// The queue pair's data plane.
    pub data: <S::Device as DataPlane>::Qp,
    /// The queue pair.
    pub qp: QpInfo,
    /// Its protection domain.
    pub pd: PdHandle,
    /// Completions of sends.
    pub sends: Queue<<S::Device as DataPlane>::Cq>,
    /// Completions of receives.
    pub recvs: Queue<<S::Device as DataPlane>::Cq>,
    /// Its shared receive queue, if it takes receives from there.
    pub shared: Option<Shared<<S::Device as DataPlane>::Srq>>,
    /// How it was made.
    pub config: Config,
    dest: Mutex<Option<UdDest>>,
    /// The device; last, so that it is dropped after what stands on it.
    pub station: Arc<Station<'s, S>>,
}

impl<'s, S: Subject> Side<'s, S> {
    #[track_caller]
    pub(crate) fn new(station: &Arc<Station<'s, S>>, pd: PdHandle, config: &Config) -> Self {
        let device = &station.device;
        let queue = || {
            let handle = device.create_cq(config.cq_depth, None).expect("create_cq");
            let cq = device.cq(handle).expect("the queue's data plane");
            Queue { handle, cq, taken: Mutex::default() }
        };
        let (sends, recvs) = (queue(), queue());
        let shared = config.srq.then(|| {
            let pd = if config.srq_apart { device.alloc_pd().expect("alloc_pd") } else { pd };
            let handle =
                device.create_srq(pd, config.max_recv_wr, config.max_sge).expect("create_srq");
            Shared { handle, pd, srq: device.srq(handle).expect("the queue's data plane") }
        });
        let init = QpInit {
            kind: config.kind,
            xrc: None,
            send_cq: sends.handle,
            recv_cq: recvs.handle,
            srq: shared.as_ref().map(|shared| shared.handle),
            max_send_wr: config.max_send_wr,
            max_recv_wr: config.max_recv_wr,
            max_send_sge: config.max_sge,
            max_recv_sge: config.max_sge,
            max_inline: config.max_inline,
            signal_all: config.signal_all,
        };
        let qp = device.create_qp(pd, &init).expect("create_qp");
        let data = device.qp(qp.handle).expect("the queue pair's data plane");
        let (config, dest, station) = (config.clone(), Mutex::default(), Arc::clone(station));
        Self { data, qp, pd, sends, recvs, shared, config, dest, station }
    }

    /// The device.
    pub fn device(&self) -> &S::Device {
        &self.station.device
    }

    /// How to reach this side's device.
    pub fn address(&self) -> AhAttr {
        self.station.subject.address(self.device())
    }

    /// Allocates a protection domain besides the queue pair's own.
    #[track_caller]
    pub fn new_pd(&self) -> PdHandle {
        self.device().alloc_pd().expect("alloc_pd")
    }

    // Work.

    /// A signaled work request over registered memory.
    pub fn wr<'a>(&self, wr_id: u64, op: SendOp<'a>, sges: &'a [Sge]) -> SendWr<'a> {
        let dest = *locked(&self.dest);
        SendWr { dest, ..SendWr::new(wr_id, op, sges) }
    }

    /// Where this side's datagrams go.
    pub fn dest(&self) -> Option<UdDest> {
        *locked(&self.dest)
    }

    /// A number for a work request, used once.
    pub fn wr_id(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// Posts a chain of sends.
    pub fn chain(&self, chain: &[SendWr<'_>]) -> std::result::Result<(), PostError> {
        self.data.post_send(chain)
    }

    /// Posts one signaled work request; its number.
    #[track_caller]
    pub fn post(&self, op: SendOp<'_>, sges: &[Sge]) -> u64 {
        let wr_id = self.wr_id();
        self.chain(&[self.wr(wr_id, op, sges)]).expect("post_send");
        wr_id
    }

    /// Posts one work request that makes no completion when it succeeds; its number.
    #[track_caller]
    pub fn post_unsignaled(&self, op: SendOp<'_>, sges: &[Sge]) -> u64 {
        let wr_id = self.wr_id();
        self.chain(&[self.wr(wr_id, op, sges).unsignaled()]).expect("post_send");
        wr_id
    }

    /// Tries to post one signaled work request; the errno if it is refused.
    pub fn post_errno(&self, op: SendOp<'_>, sges: &[Sge]) -> std::result::Result<(), i32> {
        self.chain(&[self.wr(self.wr_id(), op, sges)]).map_err(|refused| refused.error.errno())
    }

    /// Posts one signaled work request and takes its completion.
    #[track_caller]
    pub fn run(&self, op: SendOp<'_>, sges: &[Sge]) -> Completion {
        let wr_id = self.post(op, sges);
        let completion = self.sent();
        assert_eq!(completion.wr_id, wr_id, "another work request completed: {completion:?}");
        completion
    }

    /// Posts inline bytes and takes the completion.
    #[track_caller]
    pub fn run_inline(&self, op: SendOp<'_>, bytes: &[u8]) -> Completion {
        let wr = SendWr { payload: Payload::Inline(bytes), ..self.wr(self.wr_id(), op, &[]) };
        self.chain(&[wr]).expect("post_send");
        self.sent()
    }

    /// Posts a receive, to the shared queue if there is one.
    pub fn try_recv(&self, chain: &[RecvWr<'_>]) -> std::result::Result<(), PostError> {
        match &self.shared {
            Some(shared) => shared.srq.post_recv(chain),
            None => self.data.post_recv(chain),
        }
    }

    /// Posts one receive; its number.
    #[track_caller]
    pub fn recv(&self, sges: &[Sge]) -> u64 {
        let wr_id = self.wr_id();
        self.try_recv(&[RecvWr { wr_id, sges }]).expect("post_recv");
        wr_id
    }

    /// The next completion of the send queue.
    #[track_caller]
    pub fn sent(&self) -> Completion {
        self.station.wait_for("a send completion", || self.sends.next())
    }

    /// The next completion of the receive queue.
    #[track_caller]
    pub fn received(&self) -> Completion {
        self.station.wait_for("a receive completion", || self.recvs.next())
    }

    /// Lets time go on and looks that nothing completes on either queue.
    #[track_caller]
    pub fn quiet(&self) {
        self.station.pass(QUIET);
        assert_eq!(self.sends.next(), None, "a send completed");
        assert_eq!(self.recvs.next(), None, "a receive completed");
    }

    // State and events.

    /// The queue pair's state.
    #[track_caller]
    pub fn state(&self) -> QpState {
        self.device().query_qp(self.qp.handle).expect("query_qp").state
    }

    /// Waits until the queue pair is in a state: a completion that tells of an error may come before
    /// ERR does.
    #[track_caller]
    pub fn is_in(&self, state: QpState) {
        self.station.wait_for(&format!("{state}"), || (self.state() == state).then_some(()));
    }

    /// Changes the queue pair; fails if the device refuses.
    #[track_caller]
    pub fn modify(&self, change: &QpModify) {
        self.device().modify_qp(self.qp.handle, change).expect("modify_qp");
    }

    /// Puts the queue pair into a state that needs no attributes.
    #[track_caller]
    pub fn go(&self, state: QpState) {
        self.modify(&QpModify { state: Some(state), ..QpModify::default() });
    }

    /// The events about this queue pair so far.
    #[track_caller]
    pub fn events(&self) -> Vec<AsyncEvent> {
        self.station.events().into_iter().filter(|event| concerns(event, self.qp.handle)).collect()
    }

    /// Waits for an event of this side's device.
    #[track_caller]
    pub fn event(&self, event: impl FnOnce(QpHandle) -> AsyncEvent) {
        let event = event(self.qp.handle);
        self.station.wait_for(&format!("{event:?}"), || {
            self.station.events().contains(&event).then_some(())
        });
    }

    /// To INIT, from RESET.
    #[track_caller]
    pub fn to_init(&self) {
        let ud = self.config.kind == QpKind::Ud;
        self.modify(&QpModify {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            rights: (!ud).then_some(self.config.rights),
            qkey: ud.then_some(QKEY),
            ..QpModify::default()
        });
    }

    /// To RTR, from INIT, connected to `peer`.
    #[track_caller]
    pub fn to_rtr(&self, peer: &Self) {
        let (rc, ud) = (self.config.kind == QpKind::Rc, self.config.kind == QpKind::Ud);
        self.modify(&QpModify {
            state: Some(QpState::Rtr),
            path_mtu: (!ud).then_some(1024),
            dest_qp_num: (!ud).then_some(peer.qp.qp_num),
            rq_psn: (!ud).then_some(0x00ab_cdef),
            ah: (!ud).then(|| peer.address()),
            max_dest_rd_atomic: rc.then_some(self.config.max_dest_rd_atomic),
            min_rnr_timer: rc.then_some(1),
            ..QpModify::default()
        });
        if ud {
            let mut dest = locked(&self.dest);
            let ah = match *dest {
                Some(dest) => dest.ah,
                None => self.device().create_ah(self.pd, &peer.address()).expect("create_ah"),
            };
            *dest = Some(UdDest { ah, qp_num: peer.qp.qp_num, qkey: QKEY });
        }
    }

    /// To RTS, from RTR.
    #[track_caller]
    pub fn to_rts(&self) {
        let rc = self.config.kind == QpKind::Rc;
        self.modify(&QpModify {
            state: Some(QpState::Rts),
            sq_psn: Some(0x00ab_cdef),
            timeout: rc.then(|| self.station.subject.timeout(self.config.timeout)),
            retry_cnt: rc.then_some(self.config.retry_cnt),
            rnr_retry: rc.then_some(self.config.rnr_retry),
            max_rd_atomic: rc.then_some(self.config.max_rd_atomic),
            ..QpModify::default()
        });
    }
}
