//! What the engine does on the data path, and a registration.
//!
//! What cannot fail here is asserted all the same: a count of refusals would say nothing.

use std::hint::black_box;

use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::device::MwKind;
use mkey_core::engine::{
    Access, Backing, Change, Engine, EngineConfig, Executor, Executors, Progress, QpScope,
    Registered, Registration,
};
use mkey_core::key::{Key, Rkey};
use mkey_core::refusal::{PdId, QpId};
use mkey_core::rights::{Rights, Want};
use mkey_core::work::{BindMw, RegMr, Sge};

type Iteration = Box<dyn FnMut()>;

const PD: PdId = PdId(1);
const QP: QpScope = QpScope { pd: PD, qp: QpId(7) };
const START: u64 = 0x1_0000;
const LENGTH: u64 = 1 << 20;
const RIGHTS: Rights = Rights::LOCAL_WRITE
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::MW_BIND);

/// Check, guard and translation of a peer's 64-byte write into a region.
pub fn access_check_hot() -> Iteration {
    let (engine, executor) = engine();
    let region = register(&engine);
    access(engine, executor, region.rkey.0)
}

/// The same through a fast registration of 64 entries, in the middle of them.
pub fn access_check_fast_mr() -> Iteration {
    let (engine, executor) = engine();
    let entries = list(register(&engine), 64);
    let key = allocated(engine.allocate_fast_mr(PD, 64)).rkey.0.next();
    let what = RegMr { key, iova: IoAddr(START), rights: RIGHTS, entries: &entries };
    finish(&engine, engine.fast_register(QP, &what).expect("the list is well formed"));
    access(engine, executor, key)
}

/// A type 2 window bound to a part of a region, and invalidated.
pub fn window_bind_invalidate() -> Iteration {
    let (engine, executor) = engine();
    let region = register(&engine);
    let mut mw = allocated(engine.allocate_window(PD, MwKind::Type2)).rkey;
    Box::new(move || {
        let _ = &executor;
        let bind = BindMw {
            mw,
            new_key: Rkey(mw.0.next()),
            mr: region.lkey,
            address: IoAddr(START + 256),
            length: 4096,
            rights: Rights::REMOTE_READ,
        };
        let bound = engine.bind(QP, black_box(&bind), MwKind::Type2);
        mw = bind.new_key;
        finish(&engine, bound.expect("the window is free"));
        finish(&engine, engine.invalidate(QP, mw.0).expect("the window is bound"));
    })
}

/// A fast registration of `entries` pieces under one lkey, and its invalidation.
pub fn fast_mr_invalidate(entries: u32) -> Iteration {
    let (engine, executor) = engine();
    let list = list(register(&engine), entries);
    let mut key = allocated(engine.allocate_fast_mr(PD, entries)).rkey.0;
    Box::new(move || {
        let _ = &executor;
        key = key.next();
        let what = RegMr { key, iova: IoAddr(START), rights: RIGHTS, entries: &list };
        let registered = engine.fast_register(QP, black_box(&what));
        finish(&engine, registered.expect("the list is well formed"));
        finish(&engine, engine.invalidate(QP, key).expect("the region is in force"));
    })
}

/// A region's entry made and taken out again: the table's share of a registration.
pub fn region_register_deregister() -> Iteration {
    let (engine, executor) = engine();
    Box::new(move || {
        let _ = &executor;
        let region = register(&engine);
        finish(&engine, engine.deregister(region.id).expect("nothing holds the region"));
    })
}

/// An engine, and the slot of the one thread that works here.
fn engine() -> (Engine, Executor) {
    let executors = Executors::new();
    let executor = executors.enter().expect("a slot is free");
    (Engine::new(EngineConfig { max_keys: 1 << 16, seed: 3 }, executors), executor)
}

fn register(engine: &Engine) -> Registered {
    let backing = Backing::Plain { host: HostAddr(START) };
    let what = Registration { iova: IoAddr(START), length: LENGTH, rights: RIGHTS, backing };
    allocated(engine.register(PD, black_box(&what)))
}

fn allocated<E: std::fmt::Debug>(object: Result<Registered, E>) -> Registered {
    object.expect("the table has room")
}

/// `entries` pieces of a region, 64 bytes each, apart from each other.
fn list(region: Registered, entries: u32) -> Vec<Sge> {
    let piece = |at| IoAddr(START + 4096 * u64::from(at));
    (0..entries).map(|at| Sge { address: piece(at), length: 64, lkey: region.lkey }).collect()
}

/// A write of 64 bytes in one place, 2048 bytes past the start, through `key`.
fn access(engine: Engine, mut executor: Executor, key: Key) -> Iteration {
    let (address, length, want) = (IoAddr(START + 2048), 64, Want::RemoteWrite);
    let access = Access { key, pd: PD, qp: QP.qp, address, length, want };
    Box::new(move || {
        let guard = engine.open(&mut executor.target, black_box(&access));
        let guard = guard.expect("the access is allowed");
        assert!(black_box(guard.single()).is_some());
    })
}

fn finish(engine: &Engine, mut change: Change) {
    assert_eq!(engine.finish(&mut change), Progress::Quiet);
}
