//! R-MW: memory windows, what a bind demands and does.

use crate::expect::Expect;
use crate::fixture::{ALL, BIND, Config, Subject};
use crate::memory::PAGE;
use crate::objects::Mw;
use crate::pair::Pair;
use crate::region::Mr;
use crate::registry::{keeps, rule_tests};
use mkey_core::device::{Device, MwKind};
use mkey_core::error::errno::{EINVAL, EPERM};
use mkey_core::key::{Key, Lkey};
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{MwBindErr, WrFlushErr};
use mkey_core::work::SendOp::{FetchAdd, Read, Write};
use mkey_core::work::{Payload, SendWr};

rule_tests! {
    r_mw_13_region_without_mw_bind needs [Window1, Window2],
    r_mw_14_writing_window_on_a_region_without_local_write needs [Window1, Window2],
    r_mw_15_reading_window_needs_only_mw_bind needs [Window1, Window2],
    r_mw_16_remote_rights_of_the_region_are_not_needed needs [Window1, Window2, Atomics],
    r_mw_17_no_rights needs [Window1, Window2],
    r_mw_18_local_write_is_accepted_and_grants_nothing needs [Window1, Window2],
    r_mw_19_rights_that_a_window_can_not_have needs [Window1, Window2],
    r_mw_20_range_not_within_the_region needs [Window1, Window2],
    r_mw_21_longer_than_2_gib needs [Window1, Window2, OnDemand],
    r_mw_22_window_of_another_domain_than_the_queue_pair needs [Window1, Window2],
    r_mw_22_region_of_another_domain_than_the_queue_pair needs [Window1, Window2],
    r_mw_22_both_of_another_domain_than_the_queue_pair needs [Window1, Window2],
    r_mw_23_wrong_current_key_or_lkey needs [Window1, Window2],
    r_mw_24_region_that_does_not_exist needs [Window1, Window2],
    r_mw_25_type_1_unbinds_by_length_zero needs [Window1],
    r_mw_26_type_1_rebinds needs [Window1],
    r_mw_27_type_2_does_not_rebind needs [Window2],
    r_mw_28_type_2_is_never_empty needs [Window2],
    r_mw_29_zero_based_type_2 needs [Window2],
    r_mw_30_bind_with_data_or_on_datagrams needs [Window1, Window2],
    r_mw_31_bind_in_the_error_state needs [Window1, Window2],
    r_mw_32_unsignaled_bind needs [Window1, Window2],
    r_mw_33_capabilities_are_what_works,
}

const KINDS: [MwKind; 2] = [MwKind::Type1, MwKind::Type2];

fn r_mw_13_region_without_mw_bind<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mr, good) = (p.b.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    for kind in KINDS {
        let mw = p.b.mw(kind);
        p.refused_bind(mw, mw.bind_to(&mr, 0, 64, Rights::REMOTE_READ), &good);
    }
    mr.untouched();
}

fn r_mw_14_writing_window_on_a_region_without_local_write<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mr, good) = (p.b.mr(PAGE, Rights::MW_BIND), p.b.mr(PAGE, BIND));
    for kind in KINDS {
        for right in [Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC] {
            let mw = p.b.mw(kind);
            let rights = right | Rights::REMOTE_READ;
            p.refused_bind(mw, mw.bind_to(&mr, 0, 64, rights), &good);
        }
    }
}

fn r_mw_15_reading_window_needs_only_mw_bind<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, Rights::MW_BIND));
    for kind in KINDS {
        let mw = p.b.bound(kind, &mr, 16, 64, Rights::REMOTE_READ);
        p.a.run(Read(mw.remote(&mr, 16)), &[own.sge(0, 64)]).ok();
        own.holds(0, &mr.bytes(16, 64));
        // The region's own key still reads nothing.
        p.refused_access(Read(mr.remote(16)), &[own.sge(100, 8)]);
        own.untouched();
        p.restate();
    }
}

fn r_mw_16_remote_rights_of_the_region_are_not_needed<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    for kind in KINDS {
        let mw = p.b.bound(kind, &mr, 0, 64, Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC);
        p.a.run(Write(mw.remote(&mr, 0)), &[own.sge(0, 32)]).ok();
        mr.holds(0, &own.bytes(0, 32));
        let before = mr.word(32);
        p.a.run(FetchAdd { remote: mw.remote(&mr, 32), add: 2 }, &[own.sge(64, 8)]).ok();
        mr.holds(32, &before.wrapping_add(2).to_ne_bytes());
        p.refused_access(Write(mr.remote(0)), &[own.sge(0, 32)]);
        p.restate();
    }
}

/// Every operation by the window is refused.
#[track_caller]
fn grants_nothing<S: Subject>(p: &Pair<'_, S>, mw: &Mw, mr: &Mr) {
    let own = p.a.mr(PAGE, ALL);
    for op in [Write(mw.remote(mr, 0)), Read(mw.remote(mr, 0))] {
        p.refused_access(op, &[own.sge(0, 8)]);
        p.restate();
        own.untouched();
        mr.untouched();
    }
}

fn r_mw_17_no_rights<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL | Rights::MW_BIND);
    for kind in KINDS {
        let mw = p.b.bound(kind, &mr, 0, 64, Rights::empty());
        grants_nothing(&p, &mw, &mr);
    }
}

fn r_mw_18_local_write_is_accepted_and_grants_nothing<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL | Rights::MW_BIND);
    for kind in KINDS {
        let mw = p.b.bound(kind, &mr, 0, 64, Rights::LOCAL_WRITE);
        grants_nothing(&p, &mw, &mr);
    }
}

fn r_mw_19_rights_that_a_window_can_not_have<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    for kind in KINDS {
        let unsupported = [
            Rights::MW_BIND,
            Rights::ON_DEMAND,
            Rights::HUGETLB,
            Rights::from_bits_retain(1 << 15),
            Rights::from_bits_retain(1 << 31),
        ];
        for right in unsupported {
            let mw = p.b.mw(kind);
            let rights = right | Rights::REMOTE_READ;
            p.refused_bind(mw, mw.bind_to(&mr, 0, 64, rights), &mr);
        }
    }
}

fn r_mw_20_range_not_within_the_region<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(1000, BIND);
    for kind in KINDS {
        for (offset, length) in [(-1, 64), (-1, 1), (937, 64), (1000, 1), (0, 1001), (-64, 64)] {
            let mw = p.b.mw(kind);
            p.refused_bind(mw, mw.bind_to(&mr, offset, length, Rights::REMOTE_READ), &mr);
        }
        // Negative control: all of it.
        p.b.bound(kind, &mr, 0, 1000, Rights::REMOTE_READ);
    }
}

fn r_mw_21_longer_than_2_gib<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let length = (1u64 << 31) + (1 << 20);
    // On-demand memory of which no page is touched costs nothing.
    let memory = p.b.keep(crate::memory::Memory::sparse(length as usize / PAGE));
    let rights = BIND | Rights::ON_DEMAND;
    let mr = p.b.mr_over(p.b.pd, &memory, 0, length as usize, rights, None);
    let own = p.a.mr(PAGE, ALL);
    for kind in KINDS {
        let mw = p.b.bound(kind, &mr, 0, length, Rights::REMOTE_WRITE);
        p.a.run(Write(mw.remote(&mr, length as i64 - 8)), &[own.sge(0, 8)]).ok();
        if keeps("R-ODP-02") {
            assert_eq!(memory.bytes(length as usize - 8..length as usize), own.bytes(0, 8));
        }
        p.refused_access(Write(mw.remote(&mr, length as i64 - 7)), &[own.sge(0, 8)]);
        p.restate();
    }
}

/// By another pair of `b`'s device: the bind is refused, whatever of its objects is foreign.
#[track_caller]
fn refused_for_domain<S: Subject>(p: &Pair<'_, S>, mw: &Mw, mr: &Mr) {
    let op = mw.bind_to(mr, 0, 64, Rights::REMOTE_READ);
    match p.b.post_errno(op, &[]) {
        // Type 1 of two domains: by the verb, at once (R-MW-06).
        Err(errno) => assert_eq!((errno, mw.kind), (EPERM, MwKind::Type1)),
        Ok(()) => {
            p.b.sent().is(MwBindErr);
            p.are(QpState::Rts, QpState::Err);
            p.restate();
        }
    }
    let own = p.a.mr(PAGE, ALL);
    p.refused_access(Read(mr.remote_by(mw.key.next(), 0)), &[own.sge(0, 8)]);
    own.untouched();
    p.restate();
}

fn r_mw_22_window_of_another_domain_than_the_queue_pair<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (other, mr) = (p.b.new_pd(), p.b.mr(PAGE, BIND));
    for kind in KINDS {
        refused_for_domain(&p, &p.b.mw_in(other, kind), &mr);
    }
}

fn r_mw_22_region_of_another_domain_than_the_queue_pair<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr_in(p.b.new_pd(), PAGE, BIND, None);
    for kind in KINDS {
        refused_for_domain(&p, &p.b.mw(kind), &mr);
    }
}

fn r_mw_22_both_of_another_domain_than_the_queue_pair<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let other = p.apart();
    let mr = other.b.mr(PAGE, BIND);
    for kind in KINDS {
        let mut mw = other.b.mw(kind);
        p.fails_at_b(MwBindErr, mw.bind_to(&mr, 0, 64, Rights::REMOTE_READ));
        p.restate();
        // On a queue pair of their domain it is possible.
        other.b.bind(&mut mw, &mr, 0, 64, Rights::REMOTE_READ);
    }
}

fn r_mw_23_wrong_current_key_or_lkey<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    for kind in KINDS {
        let mw = p.b.mw(kind);
        for key in [mw.key.next(), Key(mw.key.0 ^ 0x8000_0000), mr.rkey(), Key(0)] {
            let wrong = Mw { key, ..mw };
            p.refused_name(wrong.bind_to(&mr, 0, 64, Rights::REMOTE_READ));
        }
        let mut wrong = mr.clone();
        // A device may have one key for both.
        let others = [mr.lkey().next(), mr.rkey(), mw.key];
        for key in others.into_iter().filter(|&key| key != mr.lkey()) {
            wrong.info.lkey = Lkey(key);
            p.refused_name(mw.bind_to(&wrong, 0, 64, Rights::REMOTE_READ));
        }
        p.b.run(mw.bind_to(&mr, 0, 64, Rights::REMOTE_READ), &[]).ok();
    }
}

fn r_mw_24_region_that_does_not_exist<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mut dead, good) = (p.b.mr(PAGE, BIND), p.b.mr(PAGE, BIND));
    p.b.device().dereg_mr(dead.info.handle).expect("dereg_mr");
    for kind in KINDS {
        for key in [dead.lkey(), Key(u32::MAX), Key(0x1234)] {
            dead.info.lkey = Lkey(key);
            let mw = p.b.mw(kind);
            p.refused_name(mw.bind_to(&dead, 0, 64, Rights::REMOTE_READ));
            p.is_unbound(mw, &good);
        }
    }
}

fn r_mw_25_type_1_unbinds_by_length_zero<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    let mut mw = p.b.bound(MwKind::Type1, &mr, 0, 64, Rights::REMOTE_READ);
    let bound = mw.key;
    p.a.run(Read(mw.remote(&mr, 0)), &[own.sge(0, 8)]).ok();
    p.b.bind(&mut mw, &mr, 0, 0, Rights::REMOTE_READ);
    for key in [bound, mw.key] {
        p.refused_access(Read(mr.remote_by(key, 0)), &[own.sge(0, 8)]);
        p.restate();
    }
    p.b.device().dereg_mr(mr.info.handle).expect("no window holds it any more");
}

fn r_mw_26_type_1_rebinds<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let other = p.beside();
    let (own, first, second) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND), p.b.mr(PAGE, BIND));
    let mut mw = p.b.bound(MwKind::Type1, &first, 0, 64, Rights::REMOTE_READ);
    let old = mw.key;
    // By another queue pair, to another region, other bounds and rights.
    other.b.bind(&mut mw, &second, 100, 8, Rights::REMOTE_WRITE);
    p.a.run(Write(mw.remote(&second, 100)), &[own.sge(0, 8)]).ok();
    second.holds(100, &own.bytes(0, 8));
    for op in [
        Read(first.remote_by(old, 0)),
        Read(first.remote_by(mw.key, 0)),
        Read(mw.remote(&second, 100)),
    ] {
        p.refused_access(op, &[own.sge(0, 8)]);
        p.restate();
    }
    if keeps("R-MWU-05") {
        p.refused_access(Write(mw.remote(&second, 101)), &[own.sge(0, 8)]);
        p.restate();
    }
    first.untouched();
    second.untouched();
    p.b.device().dereg_mr(first.info.handle).expect("the window has left it");
}

fn r_mw_27_type_2_does_not_rebind<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let other = p.beside();
    let (own, mr, next) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND), p.b.mr(PAGE, BIND));
    let mw = p.b.bound(MwKind::Type2, &mr, 0, 64, Rights::REMOTE_READ);
    for target in [&mr, &next] {
        let again = mw.bind_to(target, 0, 64, Rights::REMOTE_READ);
        p.fails_at_b(MwBindErr, again);
        p.restate();
        other.fails_at_b(MwBindErr, again);
        other.restate();
    }
    // As it was: the old key works, the refused one does not.
    p.a.run(Read(mw.remote(&mr, 0)), &[own.sge(0, 8)]).ok();
    p.refused_access(Read(mr.remote_by(mw.key.next(), 0)), &[own.sge(0, 8)]);
}

fn r_mw_28_type_2_is_never_empty<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let mw = p.b.mw(MwKind::Type2);
    p.refused_bind(mw, mw.bind_to(&mr, 0, 0, Rights::REMOTE_READ), &mr);
    let mw = p.b.mw(MwKind::Type2);
    let mut none = mr.clone();
    none.info.lkey = Lkey(Key(0));
    p.refused_name(mw.bind_to(&none, 0, 64, Rights::REMOTE_READ));
    p.is_unbound(mw, &mr);
}

fn r_mw_29_zero_based_type_2<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    let rights = Rights::REMOTE_READ | Rights::REMOTE_WRITE | Rights::ZERO_BASED;
    let mw = p.b.bound(MwKind::Type2, &mr, 129, 64, rights);
    p.a.run(Read(mw.offset(0)), &[own.sge(0, 64)]).ok();
    own.holds(0, &mr.bytes(129, 64));
    p.a.run(Write(mw.offset(56)), &[own.sge(200, 8)]).ok();
    mr.holds(129 + 56, &own.bytes(200, 8));
    for (remote, inside) in
        [(mw.offset(57), true), (mw.offset(u64::MAX), true), (mw.remote(&mr, 129), false)]
    {
        // Outside the window, and perhaps inside the region.
        if !inside || keeps("R-MWU-05") {
            p.refused_access(Write(remote), &[own.sge(0, 8)]);
            p.restate();
        }
    }
    mr.untouched();
}

fn r_mw_30_bind_with_data_or_on_datagrams<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    for kind in KINDS {
        let mw = p.b.mw(kind);
        let bind = mw.bind_to(&mr, 0, 64, Rights::REMOTE_READ);
        assert_eq!(p.b.post_errno(bind, &[mr.sge(0, 8)]), Err(EINVAL));
        let inline = SendWr { payload: Payload::Inline(b"data"), ..p.b.wr(1, bind, &[]) };
        let refused = p.b.chain(&[inline]).map_err(|e| (e.posted, e.error.errno()));
        assert_eq!(refused, Err((0, EINVAL)));
        p.b.run(bind, &[]).ok();
    }
    let ud = Pair::ud(s);
    let (mr, own) = (ud.b.mr(PAGE, BIND), ud.a.mr(PAGE, ALL));
    for kind in KINDS {
        let bind = ud.b.mw(kind).bind_to(&mr, 0, 64, Rights::REMOTE_READ);
        assert_eq!(ud.b.post_errno(bind, &[]), Err(EINVAL));
    }
    ud.works();
    own.untouched();
    // On unreliable connected queue pairs it is possible, and serves WRITEs.
    let uc = Pair::new(s, &Config::new(QpKind::Uc));
    let (own, mr) = (uc.a.mr(PAGE, ALL), uc.b.mr(PAGE, BIND));
    for kind in KINDS {
        let mw = uc.b.bound(kind, &mr, 0, 64, Rights::REMOTE_WRITE);
        uc.a.run(Write(mw.remote(&mr, 0)), &[own.sge(0, 64)]).ok();
        uc.b.lands(&mr, 0, &own.bytes(0, 64));
    }
}

fn r_mw_31_bind_in_the_error_state<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    for kind in KINDS {
        let mut mw = p.b.mw(kind);
        let bind = mw.bind_to(&mr, 0, 64, Rights::REMOTE_READ);
        p.b.go(QpState::Err);
        p.b.run(bind, &[]).is(WrFlushErr);
        p.restate();
        p.refused_access(Read(mr.remote_by(mw.key.next(), 0)), &[own.sge(0, 8)]);
        p.restate();
        // The key is what it was: the same bind is possible now.
        p.b.bind(&mut mw, &mr, 0, 64, Rights::REMOTE_READ);
        p.a.run(Read(mw.remote(&mr, 0)), &[own.sge(0, 8)]).ok();
    }
}

fn r_mw_32_unsignaled_bind<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    for kind in KINDS {
        let mut mw = p.b.mw(kind);
        p.b.post_unsignaled(mw.bind_to(&mr, 0, 64, Rights::REMOTE_READ), &[]);
        mw.key = mw.key.next();
        p.b.quiet();
        p.a.run(Read(mw.remote(&mr, 0)), &[own.sge(0, 8)]).ok();
        own.holds(0, &mr.bytes(0, 8));
    }
}

fn r_mw_33_capabilities_are_what_works<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let caps = p.b.device().capabilities().clone();
    if caps.window1 {
        p.b.bound(MwKind::Type1, &mr, 0, 64, Rights::REMOTE_READ);
    }
    if caps.window2 {
        // 2B, not 2A: by another queue pair of the domain there is no access.
        let mw = p.b.bound(MwKind::Type2, &mr, 0, 64, Rights::REMOTE_READ);
        let other = p.beside();
        let own = other.a.mr(PAGE, ALL);
        other.refused_access(Read(mw.remote(&mr, 0)), &[own.sge(0, 8)]);
    }
    assert_eq!(caps.max_mw > 0, caps.window1 || caps.window2);
}
