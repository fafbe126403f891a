//! Two connected queue pairs with all that they need, and what a test does with them.

use crate::memory::{Memory, PAGE};
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::data_plane::{CompletionQueue, DataPlane, PostError, QueuePair, SharedReceive};
use mkey_core::device::{
    AhAttr, CqHandle, Device, MrInfo, MrSpec, PdHandle, QpHandle, QpInfo, SrqHandle,
};
use mkey_core::error::Result;
use mkey_core::event::AsyncEvent;
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::queue_pair::{QpInit, QpKind, QpModify, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::{Completion, Payload, RecvWr, RemoteAddr, SendOp, SendWr, Sge, UdDest};
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

/// How long a completion or an event may take, in the device's own time.
const LIMIT: Duration = Duration::from_secs(20);
/// How far time goes on between two looks.
const STEP: Duration = Duration::from_millis(1);
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

    /// How to reach `device`.
    fn address(&self, device: &Self::Device) -> AhAttr {
        AhAttr { gid: device.port().gid, gid_index: 0, port: 1, traffic_class: 0, hop_limit: 64 }
    }
}

/// How the queue pairs of a test are made.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
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
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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

impl<S: Subject> Station<'_, S> {
    /// Lets time go on until `found` finds something; fails after a while.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let mut waited = Duration::ZERO;
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(waited < LIMIT, "{what} did not come within {LIMIT:?}");
            self.subject.pass(&self.device, STEP);
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

/// A completion queue of one side.
pub struct Queue<C> {
    /// Names it in verbs.
    pub handle: CqHandle,
    /// Its data plane.
    pub cq: C,
    taken: Mutex<VecDeque<Completion>>,
}

impl<C: CompletionQueue> Queue<C> {
    fn next(&self) -> Option<Completion> {
        let mut taken = locked(&self.taken);
        if taken.is_empty() {
            let mut into = [NOTHING; 16];
            let count = self.cq.poll(&mut into).expect("poll_cq");
            taken.extend(&into[..count]);
        }
        taken.pop_front()
    }
}

/// A completion to be overwritten by polling.
pub const NOTHING: Completion = Completion {
    wr_id: u64::MAX,
    status: WcStatus::GeneralErr,
    opcode: WcOpcode::Send,
    byte_len: 0,
    imm: None,
    invalidated: None,
    qp_num: 0,
    src_qp: 0,
    has_grh: false,
    vendor_err: 0,
};

/// The shared receive queue of one side.
pub struct Shared<Q> {
    /// Names it in verbs.
    pub handle: SrqHandle,
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
    fn new(station: &Arc<Station<'s, S>>, pd: PdHandle, config: &Config) -> Self {
        let device = &station.device;
        let queue = || {
            let handle = device.create_cq(config.cq_depth, None).expect("create_cq");
            let cq = device.cq(handle).expect("the queue's data plane");
            Queue { handle, cq, taken: Mutex::default() }
        };
        let (sends, recvs) = (queue(), queue());
        let shared = config.srq.then(|| {
            let handle =
                device.create_srq(pd, config.max_recv_wr, config.max_sge).expect("create_srq");
            Shared { handle, srq: device.srq(handle).expect("the queue's data plane") }
        });
        let init = QpInit {
            kind: config.kind,
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

    // Memory.

    /// Keeps memory until the device is closed.
    pub fn keep(&self, memory: Memory) -> Arc<Memory> {
        let memory = Arc::new(memory);
        locked(&self.station.kept).push(Arc::clone(&memory));
        memory
    }

    /// Registers what `spec` says.
    pub fn try_reg(&self, pd: PdHandle, spec: &MrSpec) -> Result<MrInfo> {
        // SAFETY: specs name memory of `keep`, which outlives the device and is only accessed
        // volatile, or addresses where nothing is mapped, which a device has to refuse.
        unsafe { self.device().reg_mr(pd, spec) }
    }

    /// A region of `length` bytes with a page of margin on both sides, in the queue pair's domain.
    #[track_caller]
    pub fn mr(&self, length: usize, rights: Rights) -> Mr {
        self.mr_in(self.pd, length, rights, None)
    }

    /// The same with an I/O address of its own.
    #[track_caller]
    pub fn mr_at(&self, length: usize, rights: Rights, iova: u64) -> Mr {
        self.mr_in(self.pd, length, rights, Some(iova))
    }

    /// The same in any protection domain.
    #[track_caller]
    pub fn mr_in(&self, pd: PdHandle, length: usize, rights: Rights, iova: Option<u64>) -> Mr {
        let memory = self.keep(Memory::filled(length.div_ceil(PAGE) + 2));
        self.mr_over(pd, &memory, PAGE, length, rights, iova)
    }

    /// A region over `length` bytes of `memory` from `offset`.
    #[track_caller]
    pub fn mr_over(
        &self,
        pd: PdHandle,
        memory: &Arc<Memory>,
        offset: usize,
        length: usize,
        rights: Rights,
        iova: Option<u64>,
    ) -> Mr {
        let address = memory.address() + offset as u64;
        let spec = MrSpec {
            address: HostAddr(address),
            length: length as u64,
            iova: iova.map(IoAddr),
            rights,
        };
        let info = self.try_reg(pd, &spec).expect("reg_mr");
        let zero_based = rights.contains(Rights::ZERO_BASED);
        let base = iova.unwrap_or(if zero_based { 0 } else { address });
        Mr { memory: Arc::clone(memory), offset, length, base, info, pd }
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
        self.station.subject.pass(self.device(), QUIET);
        assert_eq!(self.sends.next(), None, "a send completed");
        assert_eq!(self.recvs.next(), None, "a receive completed");
    }

    // State and events.

    /// The queue pair's state.
    #[track_caller]
    pub fn state(&self) -> QpState {
        self.device().query_qp(self.qp.handle).expect("query_qp").state
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
        self.station.events().into_iter().filter(|event| self.concerns(event)).collect()
    }

    fn concerns(&self, event: &AsyncEvent) -> bool {
        match *event {
            AsyncEvent::QpFatal(qp)
            | AsyncEvent::QpReqErr(qp)
            | AsyncEvent::QpAccessErr(qp)
            | AsyncEvent::SqDrained(qp)
            | AsyncEvent::QpLastWqeReached(qp) => qp == self.qp.handle,
            _ => false,
        }
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
            timeout: rc.then_some(self.config.timeout),
            retry_cnt: rc.then_some(self.config.retry_cnt),
            rnr_retry: rc.then_some(self.config.rnr_retry),
            max_rd_atomic: rc.then_some(self.config.max_rd_atomic),
            ..QpModify::default()
        });
    }
}

/// Two connected queue pairs. By custom `a` asks and `b` answers.
pub struct Pair<'s, S: Subject> {
    /// The requester.
    pub a: Side<'s, S>,
    /// The responder.
    pub b: Side<'s, S>,
}

impl<'s, S: Subject> Pair<'s, S> {
    /// Reliable connected.
    #[track_caller]
    pub fn rc(subject: &'s S) -> Self {
        Self::new(subject, &Config::new(QpKind::Rc))
    }

    /// Unreliable connected.
    #[track_caller]
    pub fn uc(subject: &'s S) -> Self {
        Self::new(subject, &Config::new(QpKind::Uc))
    }

    /// Unreliable datagram, each the other's destination.
    #[track_caller]
    pub fn ud(subject: &'s S) -> Self {
        Self::new(subject, &Config::new(QpKind::Ud))
    }

    /// Reliable connected, with a change to the usual configuration.
    #[track_caller]
    pub fn rc_with(subject: &'s S, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(QpKind::Rc);
        change(&mut config);
        Self::new(subject, &config)
    }

    /// Opens devices and connects a pair on them.
    #[track_caller]
    pub fn new(subject: &'s S, config: &Config) -> Self {
        let (a, b) = subject.open();
        let same = Arc::ptr_eq(&a, &b);
        let station = |device| {
            Arc::new(Station { subject, device, events: Mutex::default(), kept: Mutex::default() })
        };
        let at_a = station(a);
        let at_b = if same { Arc::clone(&at_a) } else { station(b) };
        let pd_a = at_a.device.alloc_pd().expect("alloc_pd");
        let pd_b = at_b.device.alloc_pd().expect("alloc_pd");
        Self::connected(Side::new(&at_a, pd_a, config), Side::new(&at_b, pd_b, config))
    }

    /// Another pair on the same devices and in the same protection domains.
    #[track_caller]
    pub fn beside(&self) -> Self {
        self.in_domains(self.a.pd, self.b.pd)
    }

    /// Another pair on the same devices, in protection domains of its own.
    #[track_caller]
    pub fn apart(&self) -> Self {
        self.in_domains(self.a.new_pd(), self.b.new_pd())
    }

    #[track_caller]
    fn in_domains(&self, pd_a: PdHandle, pd_b: PdHandle) -> Self {
        Self::connected(
            Side::new(&self.a.station, pd_a, &self.a.config),
            Side::new(&self.b.station, pd_b, &self.b.config),
        )
    }

    #[track_caller]
    fn connected(a: Side<'s, S>, b: Side<'s, S>) -> Self {
        let pair = Self { a, b };
        pair.connect();
        pair
    }

    /// Both from RESET to RTS.
    #[track_caller]
    fn connect(&self) {
        for (side, peer) in [(&self.a, &self.b), (&self.b, &self.a)] {
            side.to_init();
            side.to_rtr(peer);
        }
        for side in [&self.a, &self.b] {
            side.to_rts();
        }
    }

    /// Both through ERR and RESET back to RTS (R-ERR-08); completions not yet taken are dropped, and
    /// the events so far forgotten.
    #[track_caller]
    pub fn restate(&self) {
        for side in [&self.a, &self.b] {
            side.go(QpState::Err);
        }
        for side in [&self.a, &self.b] {
            side.go(QpState::Reset);
            while side.sends.next().is_some() {}
            while side.recvs.next().is_some() {}
            side.station.events();
            locked(&side.station.events).retain(|event| !side.concerns(event));
        }
        self.connect();
    }

    /// A message each way arrives whole: the pair works.
    #[track_caller]
    pub fn works(&self) {
        let grh = if self.a.config.kind == QpKind::Ud { 40 } else { 0 };
        for (from, to) in [(&self.a, &self.b), (&self.b, &self.a)] {
            let source = from.mr(PAGE, Rights::empty());
            let sink = to.mr(PAGE, Rights::LOCAL_WRITE);
            let recv = to.recv(&[sink.sge(0, 100 + grh)]);
            let sent = from.run(SendOp::Send, &[source.sge(7, 100)]);
            assert_eq!(sent.status, WcStatus::Success, "a plain SEND failed");
            let received = to.received();
            assert_eq!((received.wr_id, received.status), (recv, WcStatus::Success));
            assert_eq!(sink.bytes(grh as usize, 100), source.bytes(7, 100));
        }
    }
}

/// A registered region of test memory.
#[derive(Clone, Debug)]
pub struct Mr {
    /// Where its bytes are.
    pub memory: Arc<Memory>,
    /// Where in `memory` it begins.
    pub offset: usize,
    /// Its length in bytes.
    pub length: usize,
    /// The I/O address of its first byte.
    pub base: u64,
    /// Its keys and handle.
    pub info: MrInfo,
    /// Its protection domain.
    pub pd: PdHandle,
}

impl Mr {
    /// The address of the byte at `offset`, before and past the region as well.
    pub fn at(&self, offset: i64) -> IoAddr {
        IoAddr(self.base.wrapping_add_signed(offset))
    }

    /// A local entry of `length` bytes from `offset`.
    pub fn sge(&self, offset: i64, length: u32) -> Sge {
        Sge { address: self.at(offset), length, lkey: self.info.lkey }
    }

    /// The same under another key.
    pub fn sge_by(&self, key: Key, offset: i64, length: u32) -> Sge {
        Sge { address: self.at(offset), length, lkey: Lkey(key) }
    }

    /// The remote address of the byte at `offset`.
    pub fn remote(&self, offset: i64) -> RemoteAddr {
        RemoteAddr { address: self.at(offset), rkey: self.info.rkey }
    }

    /// The same under another key.
    pub fn remote_by(&self, key: Key, offset: i64) -> RemoteAddr {
        RemoteAddr { address: self.at(offset), rkey: Rkey(key) }
    }

    /// Its local key.
    pub fn lkey(&self) -> Key {
        self.info.lkey.0
    }

    /// Its remote key.
    pub fn rkey(&self) -> Key {
        self.info.rkey.0
    }

    /// `length` bytes from `offset` as they are now.
    #[track_caller]
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let start = self.offset + offset;
        self.memory.bytes(start..start + length)
    }

    /// Writes bytes at `offset`.
    #[track_caller]
    pub fn set(&self, offset: usize, bytes: &[u8]) {
        self.memory.set(self.offset + offset, bytes);
    }

    /// The 8 bytes at `offset` as the processor reads them.
    #[track_caller]
    pub fn word(&self, offset: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes(offset, 8));
        u64::from_ne_bytes(word)
    }

    /// Checks that `bytes` came to be at `offset` and that no other byte of the memory, margins
    /// included, has changed.
    #[track_caller]
    pub fn holds(&self, offset: usize, bytes: &[u8]) {
        self.memory.expect(self.offset + offset, bytes);
        self.memory.check();
    }

    /// Checks that no byte of the memory, margins included, has changed.
    #[track_caller]
    pub fn untouched(&self) {
        self.memory.check();
    }
}
