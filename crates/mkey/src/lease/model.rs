//! Grants against a naive model, with a device that fails on command.
//!
//! The model knows what the device did, since work of one process is done as it is posted, unless
//! a SEND without a receive stands before it. From that it says what the library must say: how each
//! grant ended, which slices are free, how many windows there are; and by reading through the keys
//! it is seen that the device agrees about what is open.

mod flaky;

use crate::device::Device;
use crate::plane::Plane;
use crate::{
    Completion, Cq, Ended, Ending, Grant, GrantOptions, Grants, Local, Mr, Pd, PeerAccess, Qp,
    Reason, Recv, Region, RemoteKey, Slice, WcStatus, Work,
};
use flaky::Flaky;
use mkey_core::error::Result;
use mkey_core::key::{Key, Lkey};
use mkey_soft::{SoftDevice, SoftOptions};
use proptest::prelude::*;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const CONNECTIONS: usize = 2;
const SLICES: usize = 3;
const MAX: usize = 3;
const STALLED: u64 = 7;
const THROUGH: u64 = 8;

#[derive(Clone, Copy, Debug)]
enum Op {
    Prepare { on: usize, slice: usize, sabotaged: bool },
    Bind { grant: usize },
    Revoke { grant: usize },
    AwaitPeer { grant: usize },
    Abandon { grant: usize },
    Drop { grant: usize },
    PeerEnds { grant: usize },
    Probe { grant: usize },
    Poll { on: usize },
    Stall { on: usize },
    Unstall { on: usize },
    Fail { on: usize },
    Replace { on: usize },
    FailAlloc,
    FailFree,
}

fn op() -> impl Strategy<Value = Op> {
    let (on, grant, slice) = (0..CONNECTIONS, 0..12usize, 0..SLICES);
    prop_oneof![
        6 => (on.clone(), slice, prop::bool::weighted(0.05)).prop_map(|(on, slice, sabotaged)| {
            Op::Prepare { on, slice, sabotaged }
        }),
        6 => grant.clone().prop_map(|grant| Op::Bind { grant }),
        4 => grant.clone().prop_map(|grant| Op::Revoke { grant }),
        2 => grant.clone().prop_map(|grant| Op::AwaitPeer { grant }),
        1 => grant.clone().prop_map(|grant| Op::Abandon { grant }),
        4 => grant.clone().prop_map(|grant| Op::Drop { grant }),
        3 => grant.clone().prop_map(|grant| Op::PeerEnds { grant }),
        3 => grant.prop_map(|grant| Op::Probe { grant }),
        5 => on.clone().prop_map(|on| Op::Poll { on }),
        1 => on.clone().prop_map(|on| Op::Stall { on }),
        1 => on.clone().prop_map(|on| Op::Unstall { on }),
        1 => on.clone().prop_map(|on| Op::Fail { on }),
        1 => on.prop_map(|on| Op::Replace { on }),
        1 => Just(Op::FailAlloc),
        1 => Just(Op::FailFree),
    ]
}

/// A work request of the client, as the model sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wr {
    Bind(usize),
    Inv(usize),
    Send,
}

#[derive(Clone, Copy, Debug)]
enum Seen {
    Done(Wr, WcStatus),
    /// A receive that says that the peer ended a grant.
    ByPeer(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Prepared,
    Live,
    Ending,
    Over(Ended),
    Kept,
}

enum Handle {
    Grant(Grant),
    Ending(Ending),
}

struct One {
    handle: Option<Handle>,
    key: RemoteKey,
    slice: usize,
    /// The connection's serial number.
    conn: usize,
    sabotaged: bool,
    phase: Phase,
    awaits: bool,
    /// What the device lets the peer do.
    open: bool,
}

struct Connection {
    serial: usize,
    client: Qp,
    cq: Cq,
    server: Qp,
    server_cq: Cq,
    failed: bool,
    stalled: bool,
    in_flight: Vec<Wr>,
    waiting: VecDeque<Wr>,
    seen: VecDeque<Seen>,
}

struct World {
    flaky: Arc<Flaky>,
    device: Device,
    pd: Pd,
    serving: Pd,
    grants: Grants,
    landing: Slice,
    inbox: Slice,
    slices: Vec<Option<Slice>>,
    conns: Vec<Connection>,
    serials: usize,
    all: Vec<One>,
    keys: HashSet<Key>,
    idle: usize,
    in_use: usize,
    kept: usize,
    fail_free: bool,
    fail_alloc: bool,
}

fn connection(pd: &Pd, serving: &Pd, serial: usize) -> Connection {
    let cq = Cq::new(pd.device(), 4096).expect("cq");
    let server_cq = Cq::new(pd.device(), 4096).expect("cq");
    let client = Qp::builder(pd, &cq).create().expect("qp");
    let server = Qp::builder(serving, &server_cq).create().expect("qp");
    client.connect(&server.endpoint()).expect("connect");
    server.connect(&client.endpoint()).expect("connect");
    let (in_flight, waiting, seen) = (Vec::new(), VecDeque::new(), VecDeque::new());
    let (failed, stalled) = (false, false);
    Connection { serial, client, cq, server, server_cq, failed, stalled, in_flight, waiting, seen }
}

impl World {
    fn new() -> Self {
        let soft = SoftDevice::open(SoftOptions::default()).expect("a software RNIC");
        let flaky = Arc::new(Flaky::new(soft.clone()));
        let device = Device::new(flaky.clone(), Plane::Soft(soft));
        let (pd, serving) = (Pd::new(&device).expect("pd"), Pd::new(&device).expect("pd"));
        let grants = pd.set_grants(GrantOptions::default().max(MAX as u32)).expect("pool");
        let memory = |pd: &Pd| {
            let mr = Mr::builder(pd).windows();
            mr.register(Region::new(4096).expect("memory")).expect("mr").into_slice()
        };
        let slices = (0..SLICES).map(|_| Some(memory(&pd))).collect();
        let conns = (0..CONNECTIONS).map(|serial| connection(&pd, &serving, serial)).collect();
        let (landing, inbox) = (memory(&serving), memory(&pd));
        Self {
            flaky,
            device,
            pd,
            serving,
            grants,
            landing,
            inbox,
            slices,
            conns,
            serials: CONNECTIONS,
            all: Vec::new(),
            keys: HashSet::new(),
            idle: 0,
            in_use: 0,
            kept: 0,
            fail_free: false,
            fail_alloc: false,
        }
    }

    fn conn_of(&mut self, grant: usize) -> Option<usize> {
        let serial = self.all[grant].conn;
        self.conns.iter().position(|conn| conn.serial == serial)
    }

    // What the device does.

    fn post(&mut self, on: usize, wr: Wr) {
        let conn = &mut self.conns[on];
        conn.in_flight.push(wr);
        if conn.failed {
            conn.seen.push_back(Seen::Done(wr, WcStatus::WrFlushErr));
        } else {
            conn.waiting.push_back(wr);
            self.run(on);
        }
    }

    fn run(&mut self, on: usize) {
        while !self.conns[on].stalled
            && let Some(wr) = self.conns[on].waiting.pop_front()
        {
            match wr {
                Wr::Bind(grant) if self.all[grant].sabotaged => self.refuse(on, wr),
                Wr::Bind(grant) => self.all[grant].open = true,
                Wr::Inv(grant) if self.all[grant].open => {
                    self.all[grant].open = false;
                    self.conns[on].seen.push_back(Seen::Done(wr, WcStatus::Success));
                }
                Wr::Inv(_) => self.refuse(on, wr),
                Wr::Send => self.conns[on].seen.push_back(Seen::Done(wr, WcStatus::Success)),
            }
        }
    }

    fn refuse(&mut self, on: usize, wr: Wr) {
        self.conns[on].seen.push_back(Seen::Done(wr, WcStatus::MwBindErr));
        self.fail(on);
    }

    fn fail(&mut self, on: usize) {
        let conn = &mut self.conns[on];
        (conn.failed, conn.stalled) = (true, false);
        for wr in std::mem::take(&mut conn.waiting) {
            conn.seen.push_back(Seen::Done(wr, WcStatus::WrFlushErr));
        }
    }

    // What the library is to make of it.

    fn polled(&mut self, on: usize) {
        while let Some(seen) = self.conns[on].seen.pop_front() {
            match seen {
                Seen::ByPeer(grant) if self.all[grant].phase == Phase::Live => {
                    self.over(grant, Ended::ByPeer);
                }
                Seen::ByPeer(_) => {}
                Seen::Done(wr, status) => {
                    let in_flight = &mut self.conns[on].in_flight;
                    let at = in_flight.iter().position(|other| *other == wr).expect("posted");
                    let ended: Vec<_> = in_flight.drain(..=at).collect();
                    for (place, wr) in ended.into_iter().enumerate() {
                        self.told(wr, if place < at { WcStatus::Success } else { status });
                    }
                }
            }
        }
    }

    fn told(&mut self, wr: Wr, status: WcStatus) {
        let (Wr::Bind(grant) | Wr::Inv(grant)) = wr else { return };
        if !matches!(self.all[grant].phase, Phase::Live | Phase::Ending) {
            return;
        }
        match (wr, status) {
            (Wr::Bind(_), WcStatus::Success) => {}
            (Wr::Inv(_), WcStatus::Success) => self.over(grant, Ended::Revoked),
            (_, status) => self.lose(grant, Some(status)),
        }
    }

    fn over(&mut self, grant: usize, how: Ended) {
        assert!(!self.all[grant].open, "open, though its end was confirmed");
        self.all[grant].phase = Phase::Over(how);
        self.settle(grant);
    }

    fn settle(&mut self, grant: usize) {
        if self.all[grant].handle.is_none() {
            self.in_use -= 1;
            self.idle += 1;
        }
    }

    fn lose(&mut self, grant: usize, status: Option<WcStatus>) {
        self.in_use -= 1;
        if std::mem::take(&mut self.fail_free) {
            self.kept += 1;
            self.all[grant].phase = Phase::Kept;
        } else {
            self.all[grant].open = false;
            self.all[grant].phase = Phase::Over(Ended::Dropped { status });
        }
    }

    /// The end of a live one is wanted.
    fn end(&mut self, grant: usize) {
        match self.conn_of(grant) {
            Some(on) => {
                self.all[grant].phase = Phase::Ending;
                self.post(on, Wr::Inv(grant));
            }
            None => self.lose(grant, None),
        }
    }

    fn dropped(&mut self, grant: usize) {
        match self.all[grant].phase {
            Phase::Prepared => self.over(grant, Ended::Unused),
            Phase::Live if self.all[grant].awaits => self.lose(grant, None),
            Phase::Live => self.end(grant),
            Phase::Over(Ended::Dropped { .. }) | Phase::Ending | Phase::Kept => {}
            Phase::Over(_) => self.settle(grant),
        }
    }

    // Both.

    fn step(&mut self, op: Op) {
        match op {
            Op::Prepare { on, slice, sabotaged } => self.prepare(on, slice, sabotaged),
            Op::Poll { on } => {
                self.drain(on);
                self.polled(on);
            }
            Op::Stall { on } => {
                let conn = &self.conns[on];
                if !conn.failed && !conn.stalled {
                    conn.client.post(&[Work::send_inline(b"").id(STALLED)]).expect("posted");
                    // Everything behind it waits; it is done when there is a receive.
                    self.conns[on].in_flight.push(Wr::Send);
                    self.conns[on].waiting.push_back(Wr::Send);
                    self.conns[on].stalled = true;
                }
            }
            Op::Unstall { on } => {
                if self.conns[on].stalled {
                    self.receive(on);
                    self.conns[on].stalled = false;
                    self.run(on);
                    self.polled(on);
                }
            }
            Op::Fail { on } => {
                self.conns[on].client.fail().expect("to ERR");
                self.fail(on);
            }
            Op::Replace { on } => self.replace(on),
            Op::FailAlloc => {
                self.fail_alloc = true;
                self.flaky.fail_alloc.store(true, Ordering::Relaxed);
            }
            Op::FailFree => {
                self.fail_free = true;
                self.flaky.fail_free.store(true, Ordering::Relaxed);
            }
            Op::Bind { grant }
            | Op::Revoke { grant }
            | Op::AwaitPeer { grant }
            | Op::Abandon { grant }
            | Op::Drop { grant }
            | Op::PeerEnds { grant }
            | Op::Probe { grant } => {
                // One of the latest.
                if let Some(grant) = self.all.len().checked_sub(grant + 1) {
                    self.with(op, grant);
                }
            }
        }
    }

    fn prepare(&mut self, on: usize, slice: usize, sabotaged: bool) {
        let mut named = self.slices[slice].clone().expect("there");
        if sabotaged {
            named.lkey = Lkey(Key(!named.lkey.0.0));
        }
        let grant = named.prepare_grant(&self.conns[on].client, PeerAccess::READ);
        drop(named);
        let room = self.idle > 0 || self.in_use + self.kept < MAX;
        let grows = room && self.idle == 0;
        let fails = grows && std::mem::take(&mut self.fail_alloc);
        match grant {
            Ok(grant) => {
                assert!(room && !fails);
                if !grows {
                    self.idle -= 1;
                }
                self.in_use += 1;
                let key = grant.remote_key();
                assert!(self.keys.insert(key.key.0), "a key came round");
                let index = key.key.0.index();
                for other in self.all.iter().filter(|other| other.key.key.0.index() == index) {
                    let over = matches!(other.phase, Phase::Over(_)) && other.handle.is_none();
                    assert!(over && !other.open, "the window of one that has not ended");
                }
                let (handle, conn) = (Some(Handle::Grant(grant)), self.conns[on].serial);
                let (phase, awaits, open) = (Phase::Prepared, false, false);
                self.all.push(One { handle, key, slice, conn, sabotaged, phase, awaits, open });
            }
            Err(error) if fails => {
                assert!(matches!(error.reason, Reason::System { .. }), "{error}");
            }
            Err(error) => {
                assert!(matches!(error.reason, Reason::Exhausted { .. }), "{error}");
                assert!(!room);
            }
        }
    }

    fn with(&mut self, op: Op, grant: usize) {
        match (op, self.all[grant].handle.take()) {
            (Op::Bind { .. }, Some(Handle::Grant(handle))) => {
                if let Some(on) = self.conn_of(grant) {
                    let posted = self.conns[on].client.post(&[handle.bind()]);
                    let may = self.all[grant].phase == Phase::Prepared;
                    assert_eq!(posted.is_ok(), may, "{posted:?}");
                    if may {
                        self.all[grant].phase = Phase::Live;
                        self.post(on, Wr::Bind(grant));
                    }
                }
                self.all[grant].handle = Some(Handle::Grant(handle));
            }
            (Op::Revoke { .. }, Some(Handle::Grant(handle))) => {
                self.all[grant].handle = Some(Handle::Ending(handle.revoke()));
                match self.all[grant].phase {
                    Phase::Live => self.end(grant),
                    Phase::Prepared => self.all[grant].phase = Phase::Over(Ended::Unused),
                    _ => {}
                }
            }
            (Op::AwaitPeer { .. }, Some(Handle::Grant(handle))) => {
                self.all[grant].handle = Some(Handle::Ending(handle.await_peer()));
                self.all[grant].awaits = true;
            }
            (Op::Abandon { .. }, Some(Handle::Ending(handle))) => {
                let ended = handle.abandon();
                match self.all[grant].phase {
                    Phase::Live | Phase::Ending => self.lose(grant, None),
                    _ => self.dropped(grant),
                }
                self.agrees(grant, ended.map(Some));
            }
            (Op::Drop { .. }, Some(handle)) => {
                drop(handle);
                self.dropped(grant);
            }
            (Op::PeerEnds { .. }, handle) => {
                self.all[grant].handle = handle;
                self.peer_ends(grant);
            }
            (Op::Probe { .. }, handle) => {
                self.all[grant].handle = handle;
                self.probe(grant);
            }
            (_, handle) => self.all[grant].handle = handle,
        }
    }

    fn peer_ends(&mut self, grant: usize) {
        let Some(on) = self.conn_of(grant) else { return };
        if !self.all[grant].open || self.conns[on].failed {
            return;
        }
        let conn = &self.conns[on];
        let inbox = std::slice::from_ref(&self.inbox);
        conn.client.post_recv(&[Recv::new(inbox).id(1)]).expect("posted");
        let work = Work::send_inline(b"").invalidating(self.all[grant].key.key);
        conn.server.post(&[work]).expect("posted");
        self.answered(on, WcStatus::Success);
        self.all[grant].open = false;
        self.conns[on].seen.push_back(Seen::ByPeer(grant));
    }

    /// The device is asked whether the peer can read, and agrees with the model.
    fn probe(&mut self, grant: usize) {
        let Some(on) = self.conn_of(grant) else { return };
        if self.conns[on].failed {
            return;
        }
        let open = self.all[grant].open;
        let into = [self.landing.clone()];
        let work = Work::read(&into, self.all[grant].key);
        self.conns[on].server.post(&[work]).expect("posted");
        self.answered(on, if open { WcStatus::Success } else { WcStatus::RemAccessErr });
        if !open {
            self.conns[on].client.fail().expect("to ERR");
            self.fail(on);
        }
    }

    fn answered(&self, on: usize, status: WcStatus) {
        let mut into = [Completion::BLANK];
        let taken = self.conns[on].server_cq.wait(&mut into, Duration::from_secs(20));
        assert_eq!((taken, into[0].status), (Ok(1), status));
    }

    /// The server posts a receive for what is stalled. The device goes on by itself then; one more
    /// message behind the rest tells when it is through.
    fn receive(&mut self, on: usize) {
        let conn = &mut self.conns[on];
        let inbox = [self.landing.part(..0).expect("empty")];
        conn.server.post_recv(&[Recv::new(&inbox), Recv::new(&inbox)]).expect("posted");
        conn.client.post(&[Work::send_inline(b"").id(THROUGH)]).expect("posted");
        conn.in_flight.push(Wr::Send);
        conn.waiting.push_back(Wr::Send);
        let mut into = [Completion::BLANK];
        while into[0].wr_id != THROUGH {
            assert_eq!(conn.cq.wait(&mut into, Duration::from_secs(20)), Ok(1));
        }
        let messages = if into[0].status == WcStatus::Success { 2 } else { 1 };
        for _ in 0..messages {
            self.answered(on, WcStatus::Success);
        }
        self.drain(on);
    }

    fn drain(&self, on: usize) {
        let mut into = [Completion::BLANK; 8];
        while self.conns[on].cq.poll(&mut into).expect("polled") > 0 {}
    }

    /// The queue pair is destroyed, and another takes its place.
    fn replace(&mut self, on: usize) {
        let fresh = connection(&self.pd, &self.serving, self.serials);
        self.serials += 1;
        let old = std::mem::replace(&mut self.conns[on], fresh);
        let (serial, in_flight) = (old.serial, old.in_flight);
        drop((old.client, old.server));
        // Windows end with their queue pair (R-MWU-13).
        for one in self.all.iter_mut().filter(|one| one.conn == serial) {
            one.open = false;
        }
        for wr in in_flight {
            self.told(wr, WcStatus::WrFlushErr);
        }
    }

    fn agrees(&self, grant: usize, ended: Result<Option<Ended>>) {
        match (self.all[grant].phase, ended) {
            (Phase::Over(how), ended) => assert_eq!(ended, Ok(Some(how))),
            (Phase::Kept, ended) => assert!(ended.is_err()),
            (_, ended) => assert_eq!(ended, Ok(None)),
        }
    }

    fn check(&mut self) {
        for grant in 0..self.all.len() {
            if self.all[grant].phase == Phase::Live
                && self.all[grant].handle.is_some()
                && self.conn_of(grant).is_none()
            {
                // Asking finds out that the queue pair is gone.
                self.lose(grant, None);
            }
            match &self.all[grant].handle {
                Some(Handle::Grant(handle)) => self.agrees(grant, handle.ended()),
                Some(Handle::Ending(handle)) => self.agrees(grant, handle.ended()),
                None => {}
            }
        }
        for slice in 0..SLICES {
            let over = |one: &&One| !matches!(one.phase, Phase::Over(_));
            let used = self.all.iter().filter(|one| one.slice == slice).any(|one| over(&one));
            let taken = self.slices[slice].take().expect("there");
            let (taken, free) = match taken.into_local() {
                Ok(local) => (Local::into_slice(local), true),
                Err((taken, _)) => (taken, false),
            };
            assert!(free != used, "{slice}: free {free}, used {used}");
            self.slices[slice] = Some(taken);
        }
        let stats = self.grants.stats();
        let counts = (stats.in_use as usize, stats.allocated as usize, stats.kept as usize);
        assert_eq!(counts, (self.in_use, self.idle + self.in_use + self.kept, self.kept));
        let windows = self.flaky.windows.load(Ordering::Relaxed);
        assert_eq!(windows, stats.allocated as i64, "windows at the device");
    }

    fn finish(self) {
        self.flaky.fail_alloc.store(false, Ordering::Relaxed);
        self.flaky.fail_free.store(false, Ordering::Relaxed);
        let Self { flaky, device, kept, .. } = self;
        drop((self.all, self.conns, self.slices, self.landing, self.inbox));
        drop((self.grants, self.pd, self.serving));
        assert_eq!(flaky.windows.load(Ordering::Relaxed), kept as i64);
        if kept == 0 {
            let stats = device.stats();
            assert_eq!((stats.failed_drops, stats.registered_bytes), (0, 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn grants_do_as_the_model(ops in prop::collection::vec(op(), 1..120)) {
        let mut world = World::new();
        for op in ops {
            world.step(op);
            world.check();
        }
        world.finish();
    }
}
