//! Scenarios of the protection engine: the access check and the operations of the data path.

use std::hint::black_box;

use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::device::MwKind;
use mkey_core::engine::{
    Access, Backing, Change, Engine, EngineConfig, Executor, Executors, Place, Progress, QpScope,
    Registered, Registration, Segment,
};
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::refusal::{PdId, QpId};
use mkey_core::rights::{Rights, Want};
use mkey_core::work::{BindMw, RegMr, Sge};

type Iteration = Box<dyn FnMut()>;

const PD: PdId = PdId(1);
const BY: QpScope = QpScope { pd: PD, qp: QpId(7) };
const HOST: u64 = 0x10_0000;
const PAGE: u64 = 4096;
/// Accesses of one iteration, so that what the call of an iteration costs is small beside them.
const ACCESSES: usize = 16;
/// Threads that have a slot: what a revocation looks through.
const THREADS: usize = 64;

const ALL: Rights = Rights::LOCAL_WRITE
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::REMOTE_ATOMIC)
    .union(Rights::MW_BIND);

/// An engine with one region of 1 MiB and `THREADS` executor slots.
struct Bed {
    engine: Engine,
    executors: Vec<Executor>,
    mr: Registered,
}

impl Bed {
    fn new() -> Self {
        let set = Executors::new();
        let executors: Vec<Executor> = (0..THREADS).filter_map(|_| set.enter()).collect();
        assert_eq!(executors.len(), THREADS);
        let engine = Engine::new(EngineConfig { max_keys: 1 << 20, seed: 3 }, set);
        let mr = engine.register(PD, &region(HOST, 256 * PAGE)).expect("the first key");
        Self { engine, executors, mr }
    }

    fn window(&self) -> Rkey {
        self.engine.allocate_window(PD, MwKind::Type2).expect("there is room").rkey
    }

    fn fast_mr(&self, entries: u32) -> Key {
        self.engine.allocate_fast_mr(PD, entries).expect("there is room").rkey.0
    }

    /// `entries` pages of the region, with a page between each and the next.
    fn scatter(&self, entries: u64) -> Vec<Sge> {
        let page = |n| IoAddr(HOST + n * 2 * PAGE);
        let lkey = self.mr.lkey;
        (0..entries).map(|n| Sge { address: page(n), length: PAGE as u32, lkey }).collect()
    }

    /// `ACCESSES` times the access check of 8 bytes at `address`, guarded and translated.
    fn access(mut self, key: Key, address: u64) -> Iteration {
        let address = IoAddr(address);
        let want = Want::RemoteWrite;
        let access = Access { key, pd: PD, qp: BY.qp, address, length: 8, want };
        let mut executor = self.executors.swap_remove(0);
        let engine = self.engine;
        let opens = engine.open(&mut executor.target, &access).map(|guard| guard.single());
        assert!(matches!(opens, Ok(Some(_))), "{opens:?}");
        Box::new(move || {
            for _ in 0..ACCESSES {
                let opened = engine.open(&mut executor.target, black_box(&access));
                if let Some(Segment { place: Place::Memory(host), .. }) =
                    opened.ok().and_then(|guard| guard.single())
                {
                    black_box(host.0);
                }
            }
        })
    }
}

/// An access through a region's rkey.
pub fn access_check_hot() -> Iteration {
    let bed = Bed::new();
    let key = bed.mr.rkey.0;
    bed.access(key, HOST + 64)
}

/// An access through a type 2 window.
pub fn access_check_window() -> Iteration {
    let bed = Bed::new();
    let key = bind(&bed.engine, &bind_of(bed.window(), bed.mr.lkey)).0;
    bed.access(key, HOST + PAGE + 64)
}

/// An access through a fast registration of 64 entries, to its 33rd.
pub fn access_check_fast_mr() -> Iteration {
    let bed = Bed::new();
    let (key, entries) = (bed.fast_mr(64), bed.scatter(64));
    fast_register(&bed.engine, key, &entries);
    bed.access(key, 32 * PAGE + 64)
}

/// A bind of a type 2 window and its invalidation.
pub fn window_bind_invalidate() -> Iteration {
    let bed = Bed::new();
    let mut what = bind_of(bed.window(), bed.mr.lkey);
    Box::new(move || {
        what.new_key = Rkey(what.mw.0.next());
        what.mw = bind(&bed.engine, black_box(&what));
        invalidate(&bed.engine, black_box(what.mw.0));
        black_box(bed.executors.len());
    })
}

/// A fast registration of `entries` pages under one lkey and its invalidation.
pub fn fast_mr_invalidate(entries: u64) -> Iteration {
    let bed = Bed::new();
    let (mut key, entries) = (bed.fast_mr(64), bed.scatter(entries));
    Box::new(move || {
        key = key.next();
        fast_register(&bed.engine, black_box(key), black_box(&entries));
        invalidate(&bed.engine, black_box(key));
        black_box(bed.executors.len());
    })
}

/// The engine's part of registering 4 KiB and deregistering them.
pub fn region_register_deregister() -> Iteration {
    let bed = Bed::new();
    let what = region(HOST, PAGE);
    let pair = move || {
        let mr = bed.engine.register(PD, black_box(&what)).expect("there is room");
        done(&bed.engine, bed.engine.deregister(black_box(mr.id)).expect("it lives"));
        black_box(bed.executors.len());
    };
    // The first keys are fresh; after them, freed ones come round.
    (0..2048).for_each(|_| pair());
    Box::new(pair)
}

fn region(host: u64, length: u64) -> Registration {
    let backing = Backing::Plain { host: HostAddr(host) };
    Registration { iova: IoAddr(host), length, rights: ALL, backing }
}

fn bind_of(mw: Rkey, mr: Lkey) -> BindMw {
    BindMw {
        mw,
        new_key: Rkey(mw.0.next()),
        mr,
        address: IoAddr(HOST + PAGE),
        length: PAGE,
        rights: Rights::REMOTE_READ | Rights::REMOTE_WRITE,
    }
}

fn bind(engine: &Engine, what: &BindMw) -> Rkey {
    done(engine, engine.bind(BY, what, MwKind::Type2).expect("the window is free"))
}

fn invalidate(engine: &Engine, key: Key) -> Rkey {
    done(engine, engine.invalidate(BY, key).expect("it is in force"))
}

fn fast_register(engine: &Engine, key: Key, entries: &[Sge]) -> Rkey {
    let what = RegMr { key, iova: IoAddr(0), rights: ALL, entries };
    done(engine, engine.fast_register(BY, &what).expect("it is free"))
}

/// No access runs, so that no change waits.
fn done(engine: &Engine, mut change: Change) -> Rkey {
    assert_eq!(engine.finish(&mut change), Progress::Quiet);
    black_box(change.rkey())
}
