//! R-MWU: memory windows in use, and their lifetime.

use crate::expect::Expect;
use crate::fixture::{ALL, BIND, Subject};
use crate::memory::PAGE;
use crate::objects::Mw;
use crate::pair::Pair;
use crate::region::Mr;
use crate::registry::{device_offers, keeps, rule_tests};
use mkey_core::device::{Capability, Device, MwKind};
use mkey_core::error::errno::EBUSY;
use mkey_core::key::Rkey;
use mkey_core::queue_pair::QpState;
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{MwBindErr, RemAccessErr, RetryExcErr, Success};
use mkey_core::work::SendOp;
use mkey_core::work::SendOp::{FetchAdd, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

rule_tests! {
    r_mwu_01_type_1_serves_every_queue_pair_of_its_domain needs [Window1],
    r_mwu_02_type_1_serves_no_other_domain needs [Window1],
    r_mwu_03_type_2_serves_the_queue_pair_of_its_bind needs [Window2],
    r_mwu_05_one_byte_outside_the_window needs [Window1, Window2],
    r_mwu_06_zero_length_outside_the_window needs [Window1, Window2],
    r_mwu_07_rights_of_the_window_replace_the_regions needs [Window1, Window2],
    r_mwu_08_region_behind_is_looked_at_on_access needs [Window1],
    r_mwu_09_stale_key_after_rebind needs [Window1],
    r_mwu_10_region_with_a_bound_window_stays needs [Window1, Window2],
    r_mwu_11_dealloc_unbinds needs [Window1, Window2],
    r_mwu_11_dealloc_under_load needs [Window1, Window2],
    r_mwu_12_type_1_outlives_its_queue_pair needs [Window1],
    r_mwu_13_type_2_ends_with_its_queue_pair needs [Window2],
    r_mwu_14_a_new_queue_pair_does_not_inherit_the_window needs [Window2],
    r_mwu_15_type_2_survives_reset needs [Window2],
    r_mwu_16_domain_with_a_window_can_not_be_freed needs [Window1, Window2],
    r_mwu_17_every_way_out_lets_the_region_go needs [Window1, Window2],
}

const KINDS: [MwKind; 2] = [MwKind::Type1, MwKind::Type2];
const RW: Rights = Rights::REMOTE_WRITE.union(Rights::REMOTE_READ);

/// The window works by `p` for writing and reading its first bytes.
#[track_caller]
fn grants<S: Subject>(p: &Pair<'_, S>, mw: &Mw, mr: &Mr) {
    let own = p.a.mr(PAGE, ALL);
    p.a.run(Write(mw.remote(mr, 0)), &[own.sge(0, 16)]).ok();
    mr.holds(0, &own.bytes(0, 16));
    p.a.run(Read(mw.remote(mr, 0)), &[own.sge(100, 16)]).ok();
    own.holds(100, &mr.bytes(0, 16));
}

/// The window does not work by `p`.
#[track_caller]
fn refuses<S: Subject>(p: &Pair<'_, S>, mw: &Mw, mr: &Mr) {
    let own = p.a.mr(PAGE, ALL);
    let mut ops = vec![Write(mw.remote(mr, 0)), Read(mw.remote(mr, 0))];
    if device_offers(p.b.device(), Capability::Atomics) {
        ops.push(FetchAdd { remote: mw.remote(mr, 0), add: 1 });
    }
    for op in ops {
        p.refused_access(op, &[own.sge(0, 8)]);
        own.untouched();
        mr.untouched();
        p.restate();
    }
}

fn r_mwu_01_type_1_serves_every_queue_pair_of_its_domain<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let mw = p.b.bound(MwKind::Type1, &mr, 0, 64, RW);
    grants(&p, &mw, &mr);
    for _ in 0..3 {
        grants(&p.beside(), &mw, &mr);
    }
}

fn r_mwu_02_type_1_serves_no_other_domain<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let rights = RW | Rights::REMOTE_ATOMIC;
    let mw = p.b.bound(MwKind::Type1, &mr, 0, 64, rights);
    refuses(&p.apart(), &mw, &mr);
    grants(&p, &mw, &mr);
}

fn r_mwu_03_type_2_serves_the_queue_pair_of_its_bind<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let rights = RW | Rights::REMOTE_ATOMIC;
    let mw = p.b.bound(MwKind::Type2, &mr, 0, 64, rights);
    refuses(&p.beside(), &mw, &mr);
    refuses(&p.apart(), &mw, &mr);
    grants(&p, &mw, &mr);
}

fn r_mwu_05_one_byte_outside_the_window<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL | Rights::MW_BIND));
    for kind in KINDS {
        let mw = p.b.bound(kind, &mr, 1000, 500, RW);
        for (offset, length) in
            [(999, 1), (999, 64), (999, 501), (1500, 1), (1437, 64), (1000, 501), (999, 502)]
        {
            for op in [Write(mw.remote(&mr, offset)), Read(mw.remote(&mr, offset))] {
                p.refused_access(op, &[own.sge(0, length)]);
                own.untouched();
                mr.untouched();
                p.restate();
            }
        }
        // All of it, to the last byte.
        p.a.run(Write(mw.remote(&mr, 1000)), &[own.sge(0, 500)]).ok();
        mr.holds(1000, &own.bytes(0, 500));
        p.a.run(Read(mw.remote(&mr, 1499)), &[own.sge(2000, 1)]).ok();
        own.holds(2000, &mr.bytes(1499, 1));
    }
}

fn r_mwu_06_zero_length_outside_the_window<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    for kind in KINDS {
        let mw = p.b.bound(kind, &mr, 1000, 500, Rights::REMOTE_READ);
        for offset in [0, 999, 1501, -10_000] {
            p.a.run(Read(mw.remote(&mr, offset)), &[]).ok();
            p.a.run(Write(mw.remote(&mr, offset)), &[own.sge(0, 0)]).ok();
        }
    }
    mr.untouched();
}

fn r_mwu_07_rights_of_the_window_replace_the_regions<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    // The region allows everything by its own key; the window only what it was bound with.
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL | Rights::MW_BIND));
    let sges = [own.sge(0, 8)];
    let atomics = device_offers(p.b.device(), Capability::Atomics);
    for kind in KINDS {
        for right in [Rights::REMOTE_WRITE, Rights::REMOTE_READ, Rights::REMOTE_ATOMIC] {
            let mw = p.b.bound(kind, &mr, 0, 64, right);
            let remote = mw.remote(&mr, 0);
            let ops: [(Rights, SendOp<'_>); 3] = [
                (Rights::REMOTE_WRITE, Write(remote)),
                (Rights::REMOTE_READ, Read(remote)),
                (Rights::REMOTE_ATOMIC, FetchAdd { remote, add: 1 }),
            ];
            for (needed, op) in ops {
                if needed == right {
                    continue;
                }
                if needed != Rights::REMOTE_ATOMIC || atomics {
                    p.refused_access(op, &sges);
                    p.restate();
                }
            }
        }
    }
    own.untouched();
    mr.untouched();
}

fn r_mwu_08_region_behind_is_looked_at_on_access<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    // A region that windows hold can neither be deregistered nor invalidated, so that no access
    // can meet a window without one: both ways are refused, and the window works on.
    let mw = p.b.bound(MwKind::Type1, &mr, 0, 64, RW);
    let held = p.b.device().dereg_mr(mr.info.handle);
    match held {
        Err(error) => {
            assert_eq!(error.errno(), EBUSY);
            grants(&p, &mw, &mr);
        }
        Ok(()) => refuses(&p, &mw, &mr),
    }
    own.untouched();
}

fn r_mwu_09_stale_key_after_rebind<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let mut mw = p.b.bound(MwKind::Type1, &mr, 0, 64, RW);
    let old = mw;
    p.b.bind(&mut mw, &mr, 0, 64, RW);
    refuses(&p, &old, &mr);
    grants(&p, &mw, &mr);
}

fn r_mwu_10_region_with_a_bound_window_stays<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for kind in KINDS {
        let mr = p.b.mr(PAGE, BIND);
        let mw = p.b.bound(kind, &mr, 0, 64, RW);
        for _ in 0..2 {
            let held = p.b.device().dereg_mr(mr.info.handle).map_err(|e| e.errno());
            assert_eq!(held, Err(EBUSY), "{kind:?}");
            grants(&p, &mw, &mr);
        }
        p.b.device().dealloc_mw(mw.info.handle).expect("dealloc_mw");
        p.b.device().dereg_mr(mr.info.handle).expect("dereg_mr");
    }
}

fn r_mwu_11_dealloc_unbinds<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for kind in KINDS {
        let mr = p.b.mr(PAGE, BIND);
        let mw = p.b.bound(kind, &mr, 0, 64, RW);
        grants(&p, &mw, &mr);
        p.b.device().dealloc_mw(mw.info.handle).expect("dealloc_mw while bound");
        refuses(&p, &mw, &mr);
        p.b.device().dereg_mr(mr.info.handle).expect("the window has let it go");
    }
}

fn r_mwu_11_dealloc_under_load<S: Subject>(s: &S) {
    for kind in KINDS {
        let p = Pair::rc(s);
        let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
        let mw = p.b.bound(kind, &mr, 0, PAGE as u64, RW);
        let (started, device) = (AtomicBool::new(false), p.b.device());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !started.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                device.dealloc_mw(mw.info.handle).expect("dealloc_mw under load");
                // From here on the memory is the owner's alone.
                mr.set(0, &[0x5a; PAGE]);
            });
            let mut succeeded = 0u64;
            let last = loop {
                let sges = [own.sge(0, PAGE as u32)];
                let status = p.a.run(Write(mw.remote(&mr, 0)), &sges).status;
                started.store(true, Ordering::Release);
                match status {
                    Success if succeeded < 1_000_000 => succeeded += 1,
                    other => break other,
                }
            };
            assert!(succeeded > 0);
            assert_eq!(last, RemAccessErr, "after {succeeded} successes");
        });
        if keeps("R-MWU-11") {
            mr.untouched();
        }
        p.are(QpState::Err, QpState::Err);
    }
}

fn r_mwu_12_type_1_outlives_its_queue_pair<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let other = p.beside();
    let mw = other.b.bound(MwKind::Type1, &mr, 0, 64, RW);
    p.b.device().destroy_qp(other.b.qp.handle).expect("destroy_qp");
    grants(&p, &mw, &mr);
    p.b.device().dealloc_mw(mw.info.handle).expect("dealloc_mw");
}

fn r_mwu_13_type_2_ends_with_its_queue_pair<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let other = p.beside();
    let mw = other.b.bound(MwKind::Type2, &mr, 0, 64, RW);
    p.b.device().destroy_qp(other.b.qp.handle).expect("destroy_qp at once");
    let own = other.a.mr(PAGE, ALL);
    other.a.run(Read(mw.remote(&mr, 0)), &[own.sge(0, 8)]).is(RetryExcErr);
    own.untouched();
    refuses(&p, &mw, &mr);
    p.b.device().dealloc_mw(mw.info.handle).expect("what may still be done with it");
    p.b.device().dereg_mr(mr.info.handle).expect("nothing holds the region");
}

fn r_mwu_14_a_new_queue_pair_does_not_inherit_the_window<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let other = p.beside();
    let mw = other.b.bound(MwKind::Type2, &mr, 0, 64, RW);
    let number = other.b.qp.qp_num;
    p.b.device().destroy_qp(other.b.qp.handle).expect("destroy_qp");
    // Queue pairs are made and destroyed until the number comes again, or for a while.
    for round in 0..300 {
        let next = p.beside();
        if next.b.qp.qp_num == number || round < 3 {
            refuses(&next, &mw, &mr);
        }
        if next.b.qp.qp_num == number {
            break;
        }
        for side in [&next.a, &next.b] {
            side.device().destroy_qp(side.qp.handle).expect("destroy_qp");
            side.device().destroy_cq(side.sends.handle).expect("destroy_cq");
            side.device().destroy_cq(side.recvs.handle).expect("destroy_cq");
        }
    }
}

fn r_mwu_15_type_2_survives_reset<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let mw = p.b.bound(MwKind::Type2, &mr, 0, 64, RW);
    p.restate();
    grants(&p, &mw, &mr);
    // Still bound: it can not be bound again, but invalidated.
    p.fails_at_b(MwBindErr, mw.bind_to(&mr, 0, 64, RW));
    p.restate();
    p.b.invalidate(mw.key).ok();
    refuses(&p, &mw, &mr);
}

fn r_mwu_16_domain_with_a_window_can_not_be_freed<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for kind in KINDS {
        let pd = p.b.new_pd();
        let mw = p.b.mw_in(pd, kind);
        let dealloc = || p.b.device().dealloc_pd(pd).map_err(|e| e.errno());
        assert_eq!(dealloc(), Err(EBUSY));
        p.b.device().dealloc_mw(mw.info.handle).expect("dealloc_mw");
        assert_eq!(dealloc(), Ok(()));
    }
}

fn r_mwu_17_every_way_out_lets_the_region_go<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let d = p.b.device();
    let dereg = |mr: &Mr| d.dereg_mr(mr.info.handle).map_err(|e| e.errno());
    let mr = || p.b.mr(PAGE, BIND);
    // Several windows on one region: the last one counts.
    let held = mr();
    let windows: Vec<Mw> = [MwKind::Type1, MwKind::Type2, MwKind::Type1]
        .map(|kind| p.b.bound(kind, &held, 0, 64, RW))
        .to_vec();
    for mw in windows {
        assert_eq!(dereg(&held), Err(EBUSY));
        d.dealloc_mw(mw.info.handle).expect("dealloc_mw");
    }
    assert_eq!(dereg(&held), Ok(()));
    // Unbind.
    let held = mr();
    let mut mw = p.b.bound(MwKind::Type1, &held, 0, 64, RW);
    p.b.bind(&mut mw, &held, 0, 0, RW);
    assert_eq!(dereg(&held), Ok(()));
    // Rebind elsewhere.
    let (held, next) = (mr(), mr());
    p.b.bind(&mut mw, &held, 0, 64, RW);
    p.b.bind(&mut mw, &next, 0, 64, RW);
    assert_eq!((dereg(&held), dereg(&next)), (Ok(()), Err(EBUSY)));
    // A bind that failed holds nothing.
    let held = mr();
    p.fails_at_b(MwBindErr, p.b.mw(MwKind::Type2).bind_to(&held, 1, PAGE as u64, RW));
    p.restate();
    assert_eq!(dereg(&held), Ok(()));
    // Local invalidation, and the peer's.
    let held = mr();
    let mut mw = p.b.bound(MwKind::Type2, &held, 0, 64, RW);
    p.b.invalidate(mw.key).ok();
    p.b.bind(&mut mw, &held, 0, 64, RW);
    p.b.recv(&[]);
    p.a.run(SendOp::SendInv(Rkey(mw.key)), &[]).ok();
    p.b.received().ok();
    assert_eq!(dereg(&held), Ok(()));
}
