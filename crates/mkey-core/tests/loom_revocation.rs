//! Revocation on the real engine, in every interleaving of two threads, and of three with at most
//! two preemptions.
//!
//! A loom cell stands for the memory: loom fails a model in which the cell is touched by two
//! threads at a time or without an order between them. Run it as
//! `RUSTFLAGS="--cfg loom" cargo test -p mkey-core --release --test loom_revocation`.
//! With `--cfg mkey_break_fence` or `--cfg mkey_break_scan` added it must fail.
#![cfg(loom)]
#![allow(missing_docs)]

use loom::cell::UnsafeCell;
use loom::thread;
use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::device::MwKind;
use mkey_core::engine::*;
use mkey_core::key::{Key, Rkey};
use mkey_core::refusal::{DetachCause, ManageRefusal, PdId, QpId, Refusal};
use mkey_core::rights::{Rights, Want};
use mkey_core::work::{BindMw, RegMr, Sge};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PD: PdId = PdId(1);
const BY: QpScope = QpScope { pd: PD, qp: QpId(7) };
const ALL: Rights = Rights::LOCAL_WRITE
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::MW_BIND);
const AT: u64 = 0x1000;

/// The memory behind [`AT`].
type Memory = loom::sync::Arc<UnsafeCell<u64>>;

/// Every interleaving: with two threads the whole file takes seconds.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_up_to(None, model);
}

fn explore_up_to(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

fn engine() -> (Arc<Engine>, Executor) {
    let executors = Executors::new();
    let executor = executors.enter().expect("a slot");
    let config = EngineConfig { max_keys: 4, seed: 1 };
    (Arc::new(Engine::new(config, executors)), executor)
}

fn region(engine: &Engine) -> Registered {
    let backing = Backing::Plain { host: HostAddr(AT) };
    let what = Registration { iova: IoAddr(AT), length: 64, rights: ALL, backing };
    engine.register(PD, &what).expect("room")
}

fn access(key: Key) -> Access {
    let (address, want) = (IoAddr(AT), Want::RemoteWrite);
    Access { key, pd: PD, qp: BY.qp, address, length: 8, want }
}

fn bind_to(mw: Key, mr: Registered, address: u64) -> BindMw {
    BindMw {
        mw: Rkey(mw),
        new_key: Rkey(mw),
        mr: mr.lkey,
        address: IoAddr(address),
        length: 8,
        rights: Rights::REMOTE_WRITE,
    }
}

/// The key of a window that is bound to the first bytes of `mr`.
fn bound(engine: &Engine, kind: MwKind, mr: Registered) -> Key {
    let mw = engine.allocate_window(PD, kind).expect("room");
    let bind = engine.bind(BY, &bind_to(mw.rkey.0, mr, AT), kind).expect("a good bind");
    finish(engine, bind).rkey().0
}

/// Registers the first bytes of `mr` through `fast`.
fn register(engine: &Engine, fast: Registered, mr: Registered) -> Result<Change, ManageRefusal> {
    let entries = [Sge { address: IoAddr(AT), length: 8, lkey: mr.lkey }];
    let key = fast.rkey.0;
    engine.fast_register(BY, &RegMr { key, iova: IoAddr(AT), rights: ALL, entries: &entries })
}

struct Finished(Change);

impl Finished {
    fn rkey(&self) -> Rkey {
        self.0.rkey()
    }
}

fn finish(engine: &Engine, mut change: Change) -> Finished {
    while engine.finish(&mut change) == Progress::Pending {
        thread::yield_now();
    }
    Finished(change)
}

/// Accesses through `key` touch the memory, if they are allowed.
fn touch(engine: &Engine, lane: &mut Lane, key: Key, memory: &UnsafeCell<u64>) -> bool {
    match engine.open(lane, &access(key)) {
        Ok(guard) => {
            assert_eq!(guard.single().map(|segment| segment.len), Some(8));
            memory.with_mut(|_| ());
            drop(guard);
            true
        }
        Err(_) => false,
    }
}

/// One thread accesses memory twice through a key, the other revokes the key, and uses the memory
/// for itself as soon as the revocation is quiet. Both orders must come up.
fn revoked<T: 'static>(
    set_up: fn(&Engine) -> (Key, T),
    revoke: fn(&Engine, Key, T) -> Result<Change, ManageRefusal>,
) {
    let seen: Arc<[AtomicBool; 2]> = Arc::default();
    let told = seen.clone();
    explore(move || {
        let (engine, mut executor) = engine();
        let (key, with) = set_up(&engine);
        let memory: Memory = Memory::new(UnsafeCell::new(0));
        let reader = {
            let (engine, memory, told) = (engine.clone(), memory.clone(), told.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let allowed = touch(&engine, &mut executor.target, key, &memory);
                    told[usize::from(allowed)].store(true, Ordering::Relaxed);
                }
            })
        };
        finish(&engine, revoke(&engine, key, with).expect("nothing stands against it"));
        memory.with_mut(|_| ());
        reader.join().expect("the reader ends");
    });
    assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed)), "allowed and refused");
}

#[test]
fn deregistration_waits_for_accesses() {
    revoked(
        |engine| {
            let mr = region(engine);
            (mr.rkey.0, mr.id)
        },
        |engine, _, id| Ok(engine.deregister(id).expect("nothing lies on it")),
    );
}

#[test]
fn reregistration_waits_for_accesses() {
    revoked(
        |engine| {
            let mr = region(engine);
            (mr.rkey.0, mr.id)
        },
        |engine, _, id| {
            let remap = Remap { rights: Some(Rights::LOCAL_WRITE), ..Remap::default() };
            Ok(engine.reregister(id, &remap).expect("nothing lies on it"))
        },
    );
}

#[test]
fn invalidating_a_window_waits_for_accesses() {
    revoked(
        |engine| (bound(engine, MwKind::Type2, region(engine)), ()),
        |engine, key, ()| engine.invalidate(BY, key),
    );
}

#[test]
fn deallocating_a_window_waits_for_accesses() {
    revoked(
        |engine| {
            let mr = region(engine);
            let mw = engine.allocate_window(PD, MwKind::Type1).expect("room");
            let bind = engine.bind(BY, &bind_to(mw.rkey.0, mr, AT), MwKind::Type1);
            (finish(engine, bind.expect("a good bind")).rkey().0, mw.id)
        },
        |engine, _, id| Ok(engine.deregister(id).expect("windows are free to go")),
    );
}

#[test]
fn invalidating_an_frmr_waits_for_accesses() {
    revoked(
        |engine| {
            let mr = region(engine);
            let fast = engine.allocate_fast_mr(PD, 1).expect("room");
            finish(engine, register(engine, fast, mr).expect("a good list"));
            (fast.rkey.0, ())
        },
        |engine, key, ()| engine.invalidate(BY, key),
    );
}

/// The memory that the window no longer grants is another thread's; the window goes on elsewhere.
#[test]
fn rebinding_a_type_1_window_waits_for_accesses() {
    revoked(
        |engine| {
            let mr = region(engine);
            (bound(engine, MwKind::Type1, mr), mr)
        },
        |engine, key, mr| engine.bind(BY, &bind_to(key, mr, AT + 32), MwKind::Type1),
    );
}

/// A thread that takes its executor slot while a key is revoked is not missed.
#[test]
fn deregistration_sees_threads_that_enter_meanwhile() {
    explore(|| {
        let (engine, _executor) = engine();
        let mr = region(&engine);
        let memory: Memory = Memory::new(UnsafeCell::new(0));
        let reader = {
            let (engine, memory) = (engine.clone(), memory.clone());
            thread::spawn(move || {
                let mut executor = engine.executors().enter().expect("a slot");
                touch(&engine, &mut executor.target, mr.rkey.0, &memory);
            })
        };
        finish(&engine, engine.deregister(mr.id).expect("nothing lies on it"));
        memory.with_mut(|_| ());
        reader.join().expect("the reader ends");
    });
}

/// As [`revoked`], with the memory only read, by two threads at once; at most two preemptions.
#[test]
fn deregistration_waits_for_every_reader() {
    explore_up_to(Some(2), || {
        let (engine, first) = engine();
        let second = engine.executors().enter().expect("a slot");
        let mr = region(&engine);
        let memory: Memory = Memory::new(UnsafeCell::new(0));
        let readers = [first, second].map(|mut executor| {
            let (engine, memory) = (engine.clone(), memory.clone());
            thread::spawn(move || {
                if let Ok(guard) = engine.open(&mut executor.target, &access(mr.rkey.0)) {
                    memory.with(|_| ());
                    drop(guard);
                }
            })
        });
        finish(&engine, engine.deregister(mr.id).expect("nothing lies on it"));
        memory.with_mut(|_| ());
        readers.into_iter().for_each(|reader| reader.join().expect("a reader ends"));
    });
}

/// A reader that holds both the old and the new key of a window that moves: under either it sees
/// that key's place or nothing.
#[test]
fn both_keys_of_a_rebound_window_see_their_own_place() {
    explore(|| {
        let (engine, mut executor) = engine();
        let mr = region(&engine);
        let old = bound(&engine, MwKind::Type1, mr);
        let reader = {
            let engine = engine.clone();
            thread::spawn(move || {
                for (key, address) in [(old, AT), (old.next(), AT + 32)] {
                    let access = Access { address: IoAddr(address), ..access(key) };
                    if let Ok(guard) = engine.open(&mut executor.target, &access) {
                        let place = guard.single().map(|segment| segment.place);
                        assert_eq!(place, Some(Place::Memory(HostAddr(address))));
                    }
                }
            })
        };
        let rebind = engine.bind(BY, &bind_to(old, mr, AT + 32), MwKind::Type1).expect("good");
        assert_eq!(finish(&engine, rebind).rkey().0, old.next());
        reader.join().expect("the reader ends");
    });
}

/// Either the list is written and holds its region, or the region ends and the list is refused.
#[test]
fn a_list_is_never_written_over_a_region_that_ends() {
    explore(|| {
        let (engine, mut executor) = engine();
        let mr = region(&engine);
        let fast = engine.allocate_fast_mr(PD, 1).expect("room");
        let memory: Memory = Memory::new(UnsafeCell::new(0));
        let user = {
            let (engine, memory) = (engine.clone(), memory.clone());
            thread::spawn(move || {
                let Ok(change) = register(&engine, fast, mr) else { return false };
                finish(&engine, change);
                touch(&engine, &mut executor.target, fast.rkey.0, &memory)
            })
        };
        let ended = engine.deregister(mr.id).map(|change| finish(&engine, change)).is_ok();
        if ended {
            memory.with_mut(|_| ());
        }
        let used = user.join().expect("the user ends");
        assert!(!(used && ended), "a list over memory that is not registered");
    });
}

#[test]
fn a_window_is_never_bound_to_a_region_that_ends() {
    explore(|| {
        let (engine, mut executor) = engine();
        let mr = region(&engine);
        let mw = engine.allocate_window(PD, MwKind::Type2).expect("room");
        let memory: Memory = Memory::new(UnsafeCell::new(0));
        let user = {
            let (engine, memory) = (engine.clone(), memory.clone());
            thread::spawn(move || {
                let bind = bind_to(mw.rkey.0, mr, AT);
                let Ok(change) = engine.bind(BY, &bind, MwKind::Type2) else { return false };
                let key = finish(&engine, change).rkey().0;
                touch(&engine, &mut executor.target, key, &memory)
            })
        };
        let ended = engine.deregister(mr.id).map(|change| finish(&engine, change)).is_ok();
        if ended {
            memory.with_mut(|_| ());
        }
        let used = user.join().expect("the user ends");
        assert!(!(used && ended), "a window over memory that is not registered");
    });
}

/// Of two binds of one window one wins; the other holds nothing.
#[test]
fn a_bind_that_lost_leaves_no_hold() {
    explore(|| {
        let (engine, _executor) = engine();
        let mr = region(&engine);
        let mw = engine.allocate_window(PD, MwKind::Type2).expect("room");
        let bind = bind_to(mw.rkey.0, mr, AT);
        let other = {
            let engine = engine.clone();
            thread::spawn(move || {
                engine.bind(BY, &bind, MwKind::Type2).map(|change| finish(&engine, change)).is_ok()
            })
        };
        let one = engine.bind(BY, &bind, MwKind::Type2).map(|change| finish(&engine, change));
        let other = other.join().expect("the other ends");
        assert!(one.is_ok() != other, "bound once");
        finish(&engine, engine.deregister(mw.id).expect("windows are free to go"));
        finish(&engine, engine.deregister(mr.id).expect("no hold is left"));
    });
}

/// An FRMR that ends while it is registered and a window bound to it: the window must not stay.
#[test]
fn an_frmr_does_not_end_under_a_window_bound_meanwhile() {
    explore(|| {
        let (engine, _executor) = engine();
        let mr = region(&engine);
        let fast = engine.allocate_fast_mr(PD, 1).expect("room");
        let mw = engine.allocate_window(PD, MwKind::Type2).expect("room");
        let user = {
            let engine = engine.clone();
            thread::spawn(move || {
                let Ok(change) = register(&engine, fast, mr) else { return false };
                finish(&engine, change);
                let bind = bind_to(mw.rkey.0, Registered { lkey: fast.lkey, ..mr }, AT);
                engine.bind(BY, &bind, MwKind::Type2).map(|change| finish(&engine, change)).is_ok()
            })
        };
        let ended = engine.deregister(fast.id).map(|change| finish(&engine, change)).is_ok();
        let bound = user.join().expect("the user ends");
        assert!(!(bound && ended), "a window over an FRMR that is gone");
    });
}

/// Once a pause has drained, no access touches memory until it ends.
#[test]
fn a_drained_pause_keeps_accesses_out() {
    explore(|| {
        let (engine, mut executor) = engine();
        let key = region(&engine).rkey.0;
        let memory: Memory = Memory::new(UnsafeCell::new(0));
        let reader = {
            let (engine, memory) = (engine.clone(), memory.clone());
            thread::spawn(move || {
                touch(&engine, &mut executor.target, key, &memory);
                touch(&engine, &mut executor.source, key, &memory);
            })
        };
        engine.executors().pause();
        engine.executors().drain(thread::yield_now);
        memory.with_mut(|_| ());
        engine.executors().resume();
        reader.join().expect("the reader ends");
    });
}

/// A fault answered before pages are taken away never marks them as present after.
#[test]
fn a_page_that_was_taken_away_stays_absent() {
    explore(|| {
        let (engine, mut executor) = engine();
        let backing = Backing::OnDemand { host: HostAddr(AT), page_shift: 12 };
        let what = Registration { iova: IoAddr(AT), length: 64, rights: ALL, backing };
        let key = engine.register(PD, &what).expect("room").rkey.0;
        let Err(Denied::Fault(fault)) = engine.open(&mut executor.target, &access(key)) else {
            panic!("the page is absent at first");
        };
        let event = {
            let engine = engine.clone();
            thread::spawn(move || {
                let page = HostRange { start: HostAddr(AT), len: 4096 };
                assert_eq!(engine.detach(page, DetachCause::Discarded, Duration::ZERO), 1);
            })
        };
        engine.fault_in(&mut executor.source, &fault, FaultCause::Access);
        event.join().expect("the event ends");
        let after = engine.open(&mut executor.target, &access(key));
        assert!(matches!(after, Err(Denied::Fault(_))), "present after it was taken away");
    });
}

/// An on-demand region ends while a fault of it is resolved: its table is not touched any more.
#[test]
fn deregistration_waits_for_faults() {
    explore(|| {
        let (engine, mut executor) = engine();
        let backing = Backing::OnDemand { host: HostAddr(AT), page_shift: 12 };
        let what = Registration { iova: IoAddr(AT), length: 64, rights: ALL, backing };
        let mr = engine.register(PD, &what).expect("room");
        let Err(Denied::Fault(fault)) = engine.open(&mut executor.target, &access(mr.rkey.0))
        else {
            panic!("the page is absent at first");
        };
        let user = {
            let engine = engine.clone();
            thread::spawn(move || {
                engine.fault_in(&mut executor.source, &fault, FaultCause::Access);
            })
        };
        finish(&engine, engine.deregister(mr.id).expect("nothing lies on it"));
        // The freed run of the table becomes this list; a late mark would change it.
        let plain = region(&engine);
        let fast = engine.allocate_fast_mr(PD, 2).expect("room");
        let key = fast.rkey.0;
        finish(&engine, register(&engine, fast, plain).expect("a good list"));
        user.join().expect("the user ends");
        let mut executor = engine.executors().enter().expect("a slot");
        let guard = engine.open(&mut executor.target, &access(key)).expect("allowed");
        let place = guard.single().map(|segment| segment.place);
        assert_eq!(place, Some(Place::Memory(HostAddr(AT))));
    });
}

/// An on-demand region ends while its pages are taken away: the run of its table, by then another
/// object's list, is not touched.
#[test]
fn taking_pages_away_never_meets_a_freed_table() {
    explore(|| {
        let (engine, mut executor) = engine();
        let backing = Backing::OnDemand { host: HostAddr(AT), page_shift: 12 };
        let what = Registration { iova: IoAddr(AT), length: 64, rights: ALL, backing };
        let mr = engine.register(PD, &what).expect("room");
        let plain = engine
            .register(PD, &Registration { backing: Backing::Plain { host: HostAddr(0) }, ..what })
            .expect("room");
        let event = {
            let engine = engine.clone();
            thread::spawn(move || {
                let page = HostRange { start: HostAddr(AT), len: 4096 };
                engine.detach(page, DetachCause::Discarded, Duration::ZERO);
            })
        };
        finish(&engine, engine.deregister(mr.id).expect("nothing lies on it"));
        let fast = engine.allocate_fast_mr(PD, 2).expect("room");
        finish(&engine, register(&engine, fast, plain).expect("a good list"));
        event.join().expect("the event ends");
        // Of the 8 bytes of its list no more may be reached.
        let fits = |length, lane: &mut Lane| {
            engine.open(lane, &Access { length, ..access(fast.rkey.0) }).is_ok()
        };
        assert!(fits(8, &mut executor.target));
        assert!(!fits(9, &mut executor.target));
    });
}

/// Pages that are taken away while a region is re-registered are missed once it has been.
#[test]
fn pages_taken_away_during_a_reregistration_are_missed() {
    missed_after(|engine, id| {
        let remap = Remap { rights: Some(ALL), ..Remap::default() };
        finish(engine, engine.reregister(id, &remap).expect("nothing lies on it"));
    });
}

/// So are they if the region stays as it was, because the table has no room for the new pages.
#[test]
fn pages_taken_away_during_a_refused_reregistration_are_missed() {
    missed_after(|engine, id| {
        let pages = Backing::OnDemand { host: HostAddr(AT), page_shift: 12 };
        let translation = Some((IoAddr(AT), 1 << 40, pages));
        let refused = engine.reregister(id, &Remap { translation, ..Remap::default() });
        assert_eq!(refused.err(), Some(ObjectError::Full));
    });
}

/// One thread takes the pages of a region away while another calls `reregister`.
fn missed_after(reregister: fn(&Engine, ObjectId)) {
    explore(move || {
        let (engine, mut executor) = engine();
        let mr = region(&engine);
        let event = {
            let engine = engine.clone();
            thread::spawn(move || {
                let page = HostRange { start: HostAddr(AT), len: 4096 };
                assert_eq!(engine.detach(page, DetachCause::Unmapped, Duration::ZERO), 1);
            })
        };
        reregister(&engine, mr.id);
        event.join().expect("the event ends");
        let after = engine.open(&mut executor.target, &access(mr.rkey.0));
        assert!(matches!(after, Err(Denied::Refused(Refusal::Detached { .. }))), "{after:?}");
    });
}
