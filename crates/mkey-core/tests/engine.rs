//! The engine's life of an object, end to end.
#![cfg(not(loom))]
#![allow(missing_docs)]

use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::device::MwKind;
use mkey_core::engine::*;
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::refusal::{DetachCause, KeyKind, ManageRefusal, PdId, QpId, Refusal};
use mkey_core::rights::{Rights, Want};
use mkey_core::work::{BindMw, RegMr, Sge};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const PD: PdId = PdId(1);
const QP: QpScope = QpScope { pd: PD, qp: QpId(7) };
const ALL: Rights = Rights::LOCAL_WRITE
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::REMOTE_ATOMIC)
    .union(Rights::MW_BIND);

struct Bed {
    engine: Engine,
    executor: Executor,
}

impl Bed {
    fn new() -> Self {
        let executors = Executors::new();
        let executor = executors.enter().unwrap();
        Self {
            engine: Engine::new(EngineConfig { max_keys: 1 << 20, seed: 3 }, executors),
            executor,
        }
    }

    fn region(&self, host: u64, length: u64) -> Registered {
        let backing = Backing::Plain { host: HostAddr(host) };
        let what = Registration { iova: IoAddr(host), length, rights: ALL, backing };
        self.engine.register(PD, &what).unwrap()
    }

    fn segments(
        &mut self,
        key: Key,
        want: Want,
        at: u64,
        length: u64,
    ) -> Result<Vec<(u64, u64)>, Denied> {
        let access = Access { key, pd: PD, qp: QP.qp, address: IoAddr(at), length, want };
        let guard = self.engine.open(&mut self.executor.target, &access)?;
        Ok(guard
            .segments()
            .map(|segment| match segment.place {
                Place::Memory(host) => (host.0, segment.len),
                Place::Null => (0, segment.len),
            })
            .collect())
    }

    /// Drives a change that has nothing to wait for; the remote key after it.
    fn done(&self, mut change: Change) -> Key {
        assert_eq!(self.engine.finish(&mut change), Progress::Quiet);
        change.rkey().0
    }
}

/// A peer's read of 8 bytes.
fn read_of(mr: Registered, at: u64) -> Access {
    let (address, want) = (IoAddr(at), Want::RemoteRead);
    Access { key: mr.rkey.0, pd: PD, qp: QP.qp, address, length: 8, want }
}

#[test]
fn a_region_serves_and_ends() {
    let mut bed = Bed::new();
    let mr = bed.region(0x10000, 4096);
    assert_eq!(bed.segments(mr.rkey.0, Want::RemoteWrite, 0x10010, 16), Ok(vec![(0x10010, 16)]));
    assert_eq!(bed.segments(mr.lkey.0, Want::LocalRead, 0x10000, 4096), Ok(vec![(0x10000, 4096)]));
    let offered = Denied::Refused(Refusal::LkeyAsRkey { key: mr.lkey.0 });
    assert_eq!(bed.segments(mr.lkey.0, Want::RemoteRead, 0x10000, 1), Err(offered));
    let change = bed.engine.deregister(mr.id).unwrap();
    bed.done(change);
    let gone = Denied::Refused(Refusal::UnknownIndex { key: mr.rkey.0 });
    assert_eq!(bed.segments(mr.rkey.0, Want::RemoteRead, 0x10000, 1), Err(gone));
    assert_eq!(bed.engine.deregister(mr.id).unwrap_err(), ObjectError::Unknown);
    assert_eq!(bed.engine.live(), 0);
}

#[test]
fn a_running_access_keeps_revocation_pending() {
    let bed = Bed::new();
    let mr = bed.region(0x10000, 4096);
    let mut other = bed.engine.executors().enter().unwrap();
    let access = read_of(mr, 0x10000);
    let guard = bed.engine.open(&mut other.source, &access).unwrap();
    let mut change = bed.engine.deregister(mr.id).unwrap();
    assert_eq!(bed.engine.finish(&mut change), Progress::Pending);
    assert_eq!(bed.engine.live(), 1);
    drop(guard);
    assert_eq!(bed.engine.finish(&mut change), Progress::Quiet);
    assert_eq!(bed.engine.live(), 0);
}

#[test]
fn a_window_narrows_its_region_and_holds_it() {
    let mut bed = Bed::new();
    let mr = bed.region(0x10000, 4096);
    let mw = bed.engine.allocate_window(PD, MwKind::Type2).unwrap();
    let bind = BindMw {
        mw: mw.rkey,
        new_key: Rkey(mw.rkey.0.next()),
        mr: mr.lkey,
        address: IoAddr(0x10100),
        length: 256,
        rights: Rights::REMOTE_READ,
    };
    let change = bed.engine.bind(QP, &bind, MwKind::Type2).unwrap();
    let key = bed.done(change);
    assert_eq!(key, mw.rkey.0.next());
    assert_eq!(bed.segments(key, Want::RemoteRead, 0x10100, 256), Ok(vec![(0x10100, 256)]));
    assert!(bed.segments(key, Want::RemoteRead, 0x100ff, 1).is_err());
    assert!(bed.segments(key, Want::RemoteRead, 0x10200, 1).is_err());
    assert!(bed.segments(key, Want::RemoteWrite, 0x10100, 1).is_err());
    assert_eq!(bed.engine.deregister(mr.id).unwrap_err(), ObjectError::Held { by: 1 });
    let again = bed.engine.bind(QP, &BindMw { mw: Rkey(key), ..bind }, MwKind::Type2);
    assert_eq!(again.unwrap_err(), ManageRefusal::NotFree { key });
    let change = bed.engine.invalidate(QP, key).unwrap();
    bed.done(change);
    let dead = Denied::Refused(Refusal::NotValid { key, kind: KeyKind::Window2 });
    assert_eq!(bed.segments(key, Want::RemoteRead, 0x10100, 1), Err(dead));
    let change = bed.engine.deregister(mr.id).unwrap();
    bed.done(change);
}

#[test]
fn an_frmr_walks_its_scatter_list() {
    let mut bed = Bed::new();
    let (a, b) = (bed.region(0x10000, 4096), bed.region(0x40000, 4096));
    let fast = bed.engine.allocate_fast_mr(PD, 4).unwrap();
    let sge =
        |mr: Registered, address, length| Sge { address: IoAddr(address), length, lkey: mr.lkey };
    let entries = [sge(a, 0x10010, 100), sge(a, 0x10200, 50), sge(b, 0x40001, 1000)];
    let key = fast.rkey.0.next();
    let reg = RegMr { key, iova: IoAddr(0x9000), rights: ALL, entries: &entries };
    let change = bed.engine.fast_register(QP, &reg).unwrap();
    bed.done(change);
    let all = bed.segments(key, Want::RemoteWrite, 0x9000, 1150);
    assert_eq!(all, Ok(vec![(0x10010, 100), (0x10200, 50), (0x40001, 1000)]));
    assert_eq!(
        bed.segments(key, Want::RemoteRead, 0x9000 + 99, 2),
        Ok(vec![(0x10073, 1), (0x10200, 1)])
    );
    assert_eq!(bed.segments(key, Want::LocalRead, 0x9000 + 150, 1000), Ok(vec![(0x40001, 1000)]));
    assert!(bed.segments(key, Want::RemoteRead, 0x9000, 1151).is_err());
    assert_eq!(bed.engine.deregister(a.id).unwrap_err(), ObjectError::Held { by: 1 });
    let change = bed.engine.invalidate(QP, key).unwrap();
    bed.done(change);
    let change = bed.engine.invalidate(QP, key).unwrap();
    bed.done(change);
    for id in [a.id, b.id, fast.id] {
        let change = bed.engine.deregister(id).unwrap();
        bed.done(change);
    }
    let dead = [Sge { address: IoAddr(0x10000), length: 1, lkey: a.lkey }];
    let fast = bed.engine.allocate_fast_mr(PD, 4).unwrap();
    let reg = RegMr { key: fast.rkey.0, iova: IoAddr(0), rights: ALL, entries: &dead };
    assert!(matches!(bed.engine.fast_register(QP, &reg), Err(ManageRefusal::Key(_))));
}

#[test]
fn detached_pages_are_refused_and_the_rest_serves() {
    let mut bed = Bed::new();
    let mr = bed.region(0x10000, 0x4000);
    let gone = HostRange { start: HostAddr(0x11000), len: 0x1000 };
    assert_eq!(bed.engine.detach(gone, DetachCause::Unmapped, Duration::from_secs(1)), 1);
    assert!(bed.segments(mr.rkey.0, Want::RemoteRead, 0x10000, 0x1000).is_ok());
    let refused = bed.segments(mr.rkey.0, Want::RemoteRead, 0x10fff, 2).unwrap_err();
    let Denied::Refused(Refusal::Detached { range, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(range, HostRange { start: HostAddr(0x11000), len: 1 });
    let change =
        bed.engine.reregister(mr.id, &Remap { rights: Some(ALL), ..Remap::default() }).unwrap();
    bed.done(change);
    assert!(bed.segments(mr.rkey.0, Want::RemoteRead, 0x10fff, 2).is_err());
    let translation = Some((IoAddr(0x10000), 0x4000, Backing::Plain { host: HostAddr(0x10000) }));
    let change = bed.engine.reregister(mr.id, &Remap { translation, ..Remap::default() }).unwrap();
    bed.done(change);
    assert!(bed.segments(mr.rkey.0, Want::RemoteRead, 0x10fff, 2).is_ok());
}

#[test]
fn on_demand_pages_fault_once_and_again_after_invalidation() {
    let mut bed = Bed::new();
    let backing = Backing::OnDemand { host: HostAddr(0x10000), page_shift: 12 };
    let what = Registration { iova: IoAddr(0x10000), length: 0x8000, rights: ALL, backing };
    let mr = bed.engine.register(PD, &what).unwrap();
    let denied = bed.segments(mr.rkey.0, Want::RemoteRead, 0x10ffc, 8).unwrap_err();
    let Denied::Fault(fault) = denied else { panic!("{denied:?}") };
    assert_eq!(fault.range(), HostRange { start: HostAddr(0x10000), len: 0x2000 });
    assert!(bed.engine.fault_in(&mut bed.executor.source, &fault, FaultCause::Access));
    assert!(bed.segments(mr.rkey.0, Want::RemoteRead, 0x10ffc, 8).is_ok());
    let page = HostRange { start: HostAddr(0x11000), len: 0x1000 };
    bed.engine.detach(page, DetachCause::Discarded, Duration::ZERO);
    assert!(!bed.engine.fault_in(&mut bed.executor.source, &fault, FaultCause::Access));
    let again = bed.segments(mr.rkey.0, Want::RemoteRead, 0x10ffc, 8).unwrap_err();
    assert!(matches!(again, Denied::Fault(fault) if fault.range() == page));
    let advice = bed
        .engine
        .advise(&mut bed.executor.source, PD, mr.lkey, IoAddr(0x14000), 0x2000, true)
        .unwrap();
    assert!(bed.engine.fault_in(&mut bed.executor.source, &advice, FaultCause::Prefetch));
    let stats = bed.engine.odp_stats(mr.id).unwrap();
    assert_eq!((stats.faults, stats.invalidations, stats.prefetches), (2, 1, 2));
}

#[test]
fn a_pause_stops_new_accesses_and_a_drain_waits_for_running_ones() {
    let mut bed = Bed::new();
    let mr = bed.region(0x10000, 4096);
    let executors = bed.engine.executors().clone();
    let mut other = executors.enter().unwrap();
    let access = read_of(mr, 0x10000);
    let mut running = bed.engine.open(&mut other.target, &access).ok();
    executors.pause();
    let mut waited = 0;
    executors.drain(|| {
        waited += 1;
        running = None;
    });
    drop(running);
    assert_eq!(waited, 1);
    assert_eq!(bed.segments(mr.rkey.0, Want::RemoteRead, 0x10000, 1), Err(Denied::Paused));
    executors.drain(|| panic!("nothing runs"));
    executors.resume();
    assert!(bed.segments(mr.rkey.0, Want::RemoteRead, 0x10000, 1).is_ok());
}

#[test]
fn a_stale_key_never_names_the_next_object() {
    let bed = Bed::new();
    let mut last: Option<(Lkey, Rkey)> = None;
    let mut reused = 0;
    for _ in 0..20_000 {
        let mr = bed.region(0x10000, 64);
        if let Some((lkey, rkey)) = last {
            reused += u32::from(lkey.0.index() == mr.lkey.0.index());
            for old in [lkey.0, rkey.0] {
                assert!(old != mr.lkey.0 && old != mr.rkey.0);
            }
        }
        last = Some((mr.lkey, mr.rkey));
        let change = bed.engine.deregister(mr.id).unwrap();
        bed.done(change);
    }
    assert_eq!(reused, 0, "a freed index rests before it is used again");
}

#[test]
fn work_requests_tell_a_key_of_the_wrong_role() {
    let bed = Bed::new();
    let mr = bed.region(0x10000, 4096);
    let mw = bed.engine.allocate_window(PD, MwKind::Type2).unwrap();
    let bind = BindMw {
        mw: mw.rkey,
        new_key: mw.rkey,
        mr: Lkey(mr.rkey.0),
        address: IoAddr(0x10000),
        length: 16,
        rights: Rights::REMOTE_READ,
    };
    let refused = bed.engine.bind(QP, &bind, MwKind::Type2).unwrap_err();
    assert_eq!(refused, Refusal::RkeyAsLkey { key: mr.rkey.0 }.into());
    let refused = bed.engine.invalidate(QP, mr.lkey.0).unwrap_err();
    assert_eq!(refused, Refusal::LkeyAsRkey { key: mr.lkey.0 }.into());
    let fast = bed.engine.allocate_fast_mr(PD, 1).unwrap();
    let entries = [Sge { address: IoAddr(0x10000), length: 1, lkey: Lkey(mr.rkey.0) }];
    let reg = RegMr { key: fast.rkey.0, iova: IoAddr(0), rights: ALL, entries: &entries };
    let refused = bed.engine.fast_register(QP, &reg).unwrap_err();
    assert_eq!(refused, Refusal::RkeyAsLkey { key: mr.rkey.0 }.into());
}

#[test]
fn r_mw_07_a_type_1_window_is_never_zero_based_not_even_unbound() {
    let bed = Bed::new();
    let mr = bed.region(0x10000, 4096);
    let mw = bed.engine.allocate_window(PD, MwKind::Type1).unwrap();
    for length in [0, 16] {
        let rights = Rights::REMOTE_READ | Rights::ZERO_BASED;
        let address = IoAddr(0x10000);
        let bind = BindMw { mw: mw.rkey, new_key: mw.rkey, mr: mr.lkey, address, length, rights };
        let refused = bed.engine.bind(QP, &bind, MwKind::Type1).unwrap_err();
        assert_eq!(refused, ManageRefusal::Rights { rights });
    }
}

#[test]
fn a_fault_of_an_earlier_translation_marks_no_page() {
    let mut bed = Bed::new();
    let backing = Backing::OnDemand { host: HostAddr(0x10000), page_shift: 12 };
    let what = Registration { iova: IoAddr(0x10000), length: 0x1000, rights: ALL, backing };
    let mr = bed.engine.register(PD, &what).unwrap();
    let Err(Denied::Fault(fault)) = bed.segments(mr.rkey.0, Want::RemoteRead, 0x10000, 8) else {
        panic!("an absent page");
    };
    let page = HostRange { start: HostAddr(0x10000), len: 0x1000 };
    bed.engine.detach(page, DetachCause::Discarded, Duration::ZERO);
    let translation = Some((what.iova, what.length, backing));
    let change = bed.engine.reregister(mr.id, &Remap { translation, ..Remap::default() }).unwrap();
    bed.done(change);
    assert!(!bed.engine.fault_in(&mut bed.executor.source, &fault, FaultCause::Access));
    let again = bed.segments(mr.rkey.0, Want::RemoteRead, 0x10000, 8);
    assert!(matches!(again, Err(Denied::Fault(_))), "{again:?}");
}

/// A region whose re-registration is pending, while its first page is taken away.
fn detached_while_pending(bed: &mut Bed, backing: Backing, at: u64) -> (Registered, Change) {
    let what = Registration { iova: IoAddr(at), length: 0x2000, rights: ALL, backing };
    let mr = bed.engine.register(PD, &what).unwrap();
    if let Err(Denied::Fault(fault)) = bed.segments(mr.rkey.0, Want::RemoteRead, at, 0x2000) {
        assert!(bed.engine.fault_in(&mut bed.executor.source, &fault, FaultCause::Access));
    }
    let access = Access {
        key: mr.rkey.0,
        pd: PD,
        qp: QP.qp,
        address: IoAddr(at),
        length: 8,
        want: Want::RemoteRead,
    };
    let guard = bed.engine.open(&mut bed.executor.source, &access).unwrap();
    let remap = Remap { rights: Some(Rights::REMOTE_READ), ..Remap::default() };
    let mut change = bed.engine.reregister(mr.id, &remap).unwrap();
    assert_eq!(bed.engine.finish(&mut change), Progress::Pending);
    let page = HostRange { start: HostAddr(at), len: 0x1000 };
    assert_eq!(bed.engine.detach(page, DetachCause::Unmapped, Duration::ZERO), 1);
    drop(guard);
    (mr, change)
}

#[test]
fn pages_taken_away_while_a_region_is_changed_are_missed_after() {
    let mut bed = Bed::new();
    let plain = Backing::Plain { host: HostAddr(0x10000) };
    let (mr, change) = detached_while_pending(&mut bed, plain, 0x10000);
    bed.done(change);
    let refused = bed.segments(mr.rkey.0, Want::RemoteRead, 0x10000, 8).unwrap_err();
    assert!(matches!(refused, Denied::Refused(Refusal::Detached { .. })), "{refused:?}");
    assert!(bed.segments(mr.rkey.0, Want::RemoteRead, 0x11000, 8).is_ok());

    let on_demand = Backing::OnDemand { host: HostAddr(0x40000), page_shift: 12 };
    let (mr, change) = detached_while_pending(&mut bed, on_demand, 0x40000);
    bed.done(change);
    let refused = bed.segments(mr.rkey.0, Want::RemoteRead, 0x40000, 8).unwrap_err();
    assert!(matches!(refused, Denied::Fault(_)), "{refused:?}");
    assert!(bed.segments(mr.rkey.0, Want::RemoteRead, 0x41000, 8).is_ok());
}

#[test]
fn scatter_lists_of_any_room_do_not_meet() {
    let mut bed = Bed::new();
    let regions = [bed.region(0x10000, 4096), bed.region(0x40000, 4096)];
    for room in 1..=24u32 {
        // Parents in turn, so that each entry holds one.
        let entries: Vec<_> = (0..room)
            .map(|at| {
                let region = regions[at as usize % 2];
                let base = [0x10000, 0x40000][at as usize % 2];
                Sge { address: IoAddr(base + u64::from(at)), length: 1, lkey: region.lkey }
            })
            .collect();
        let lists: Vec<_> =
            (0..6).map(|_| bed.engine.allocate_fast_mr(PD, room).unwrap()).collect();
        for fast in lists.iter().rev().chain(&lists) {
            let key = fast.rkey.0;
            if bed.segments(key, Want::RemoteRead, 0, 1).is_ok() {
                let change = bed.engine.invalidate(QP, key).unwrap();
                bed.done(change);
            }
            let reg = RegMr { key, iova: IoAddr(0), rights: ALL, entries: &entries };
            let change = bed.engine.fast_register(QP, &reg).unwrap();
            bed.done(change);
        }
        let expected: Vec<_> = entries.iter().map(|sge| (sge.address.0, 1)).collect();
        for fast in &lists {
            let got = bed.segments(fast.rkey.0, Want::RemoteRead, 0, u64::from(room));
            assert_eq!(got.as_ref(), Ok(&expected), "room {room}");
        }
        let held = ObjectError::Held { by: 6 * room.div_ceil(2) };
        assert_eq!(bed.engine.deregister(regions[0].id).unwrap_err(), held);
        for fast in &lists {
            let change = bed.engine.deregister(fast.id).unwrap();
            bed.done(change);
        }
    }
    for region in regions {
        let change = bed.engine.deregister(region.id).unwrap();
        bed.done(change);
    }
}

#[test]
fn of_two_binds_of_a_window_at_a_time_one_holds_the_region() {
    let bed = Bed::new();
    let mr = bed.region(0x10000, 4096);
    let mw = bed.engine.allocate_window(PD, MwKind::Type1).unwrap();
    let key = AtomicU32::new(mw.rkey.0.0);
    let binds = || {
        for round in 0..100_000u64 {
            let mw = Rkey(Key(key.load(Ordering::Relaxed)));
            let (address, rights) = (IoAddr(0x10000), Rights::REMOTE_READ);
            // Every eighth unbinds.
            let length = round % 8;
            let bind = BindMw { mw, new_key: mw, mr: mr.lkey, address, length, rights };
            if let Ok(change) = bed.engine.bind(QP, &bind, MwKind::Type1) {
                key.store(bed.done(change).0, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(binds);
        scope.spawn(binds);
    });
    let change = bed.engine.deregister(mw.id).unwrap();
    bed.done(change);
    let change = bed.engine.deregister(mr.id).expect("no hold is left");
    bed.done(change);
}

#[test]
fn running_accesses_are_those_that_are_open_in_this_engine() {
    let executors = Executors::new();
    let config = EngineConfig { max_keys: 16, seed: 3 };
    let (engine, other) =
        (Engine::new(config, executors.clone()), Engine::new(config, executors.clone()));
    let backing = Backing::Plain { host: HostAddr(0x1000) };
    let what = Registration { iova: IoAddr(0x1000), length: 64, rights: ALL, backing };
    let access = read_of(engine.register(PD, &what).unwrap(), 0x1000);
    let mut executor = executors.enter().unwrap();
    assert!(engine.running().ended());
    let guard = engine.open(&mut executor.source, &access).unwrap();
    let (mut here, mut there) = (engine.running(), other.running());
    assert!(!here.ended() && there.ended());
    drop(guard);
    // The next access is not the one that was running.
    let _guard = engine.open(&mut executor.source, &access).unwrap();
    assert!(here.ended());
    assert!(!engine.running().ended());
}
