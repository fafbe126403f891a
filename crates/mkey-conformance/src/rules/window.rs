//! R-MW: memory windows, allocation, the bind verb and keys.

use crate::expect::Expect;
use crate::fixture::{ALL, BIND, Subject};
use crate::memory::PAGE;
use crate::objects::Mw;
use crate::pair::Pair;
use crate::registry::rule_tests;
use mkey_core::address::IoAddr;
use mkey_core::device::{Device, MwHandle, MwKind};
use mkey_core::error::errno::{EINVAL, ENOENT, EOPNOTSUPP, EPERM};
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::queue_pair::QpState;
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::MwBindErr;
use mkey_core::work::SendOp::{BindMw, BindMw1, Read, Write};
use mkey_core::work::{BindMw as Bind, SendOp};

rule_tests! {
    r_mw_01_both_types_or_unsupported,
    r_mw_02_fresh_window_grants_nothing needs [Window1, Window2],
    r_mw_03_dealloc_of_a_stale_handle needs [Window1, Window2],
    r_mw_04_the_verb_does_not_bind_type_2 needs [Window2],
    r_mw_05_no_region_but_a_range needs [Window1],
    r_mw_06_window_and_region_of_different_domains needs [Window1],
    r_mw_07_zero_based_type_1 needs [Window1],
    r_mw_08_type_1_on_a_zero_based_region needs [Window1, ZeroBased],
    r_mw_09_type_1_bind_makes_the_next_key needs [Window1],
    r_mw_10_type_1_is_not_bound_by_a_type_2_request needs [Window1],
    r_mw_11_only_the_low_8_bits_are_asked_for needs [Window2],
    r_mw_12_the_bound_key_is_the_current_key needs [Window2],
}

const KINDS: [MwKind; 2] = [MwKind::Type1, MwKind::Type2];

fn r_mw_01_both_types_or_unsupported<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let caps = p.b.device().capabilities();
    for (kind, offered) in [(MwKind::Type1, caps.window1), (MwKind::Type2, caps.window2)] {
        let allocated = p.b.device().alloc_mw(p.b.pd, kind);
        match offered {
            true => drop(allocated.expect("alloc_mw")),
            false => assert_eq!(allocated.map_err(|e| e.errno()), Err(EOPNOTSUPP), "{kind:?}"),
        }
    }
}

fn r_mw_02_fresh_window_grants_nothing<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL | Rights::MW_BIND));
    for kind in KINDS {
        let mw = p.b.mw(kind);
        for op in [Read(mw.remote(&mr, 0)), Write(mw.remote(&mr, 0)), Read(mw.offset(0))] {
            p.refused_access(op, &[own.sge(0, 8)]);
            p.restate();
        }
    }
    own.untouched();
    mr.untouched();
}

fn r_mw_03_dealloc_of_a_stale_handle<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let dealloc = |handle| p.b.device().dealloc_mw(handle).map_err(|e| e.errno());
    for kind in KINDS {
        let mw = p.b.mw(kind);
        assert_eq!(dealloc(mw.info.handle), Ok(()));
        for handle in [mw.info.handle, MwHandle(0), MwHandle(u64::MAX), MwHandle(0xdead_beef)] {
            assert_eq!(dealloc(handle), Err(ENOENT), "{handle:?}");
        }
    }
}

/// The verb refuses the bind at once; nothing is posted.
#[track_caller]
fn refused_at_once<S: Subject>(p: &Pair<'_, S>, op: SendOp<'_>, errno: i32) {
    assert_eq!(p.b.post_errno(op, &[]), Err(errno), "{op:?}");
    p.b.quiet();
    assert_eq!(p.b.state(), QpState::Rts);
}

fn r_mw_04_the_verb_does_not_bind_type_2<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mut mw, mr) = (p.b.mw(MwKind::Type2), p.b.mr(PAGE, BIND));
    let BindMw(bind) = mw.bind_to(&mr, 0, 64, Rights::REMOTE_READ) else { unreachable!() };
    refused_at_once(&p, BindMw1(bind), EINVAL);
    p.b.bind(&mut mw, &mr, 0, 64, Rights::REMOTE_READ);
}

fn r_mw_05_no_region_but_a_range<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mw = p.b.mw(MwKind::Type1);
    for (address, length) in [(0, 64), (4096, 0), (4096, 64)] {
        let bind = Bind {
            mw: Rkey(mw.key),
            new_key: Rkey(mw.key.next()),
            mr: Lkey(Key(0)),
            address: IoAddr(address),
            length,
            rights: Rights::REMOTE_READ,
        };
        refused_at_once(&p, BindMw1(bind), EINVAL);
    }
}

fn r_mw_06_window_and_region_of_different_domains<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let other = p.b.new_pd();
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    let mw = p.b.mw_in(other, MwKind::Type1);
    refused_at_once(&p, mw.bind_to(&mr, 0, 64, Rights::REMOTE_READ), EPERM);
    let mut mw = p.b.mw(MwKind::Type1);
    let foreign = p.b.mr_in(other, PAGE, BIND, None);
    refused_at_once(&p, mw.bind_to(&foreign, 0, 64, Rights::REMOTE_READ), EPERM);
    p.b.bind(&mut mw, &mr, 0, 64, Rights::REMOTE_READ);
    p.a.run(Read(mw.remote(&mr, 0)), &[own.sge(0, 8)]).ok();
}

fn r_mw_07_zero_based_type_1<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mut mw, mr) = (p.b.mw(MwKind::Type1), p.b.mr(PAGE, BIND));
    let rights = Rights::REMOTE_READ | Rights::ZERO_BASED;
    refused_at_once(&p, mw.bind_to(&mr, 0, 64, rights), EINVAL);
    p.b.bind(&mut mw, &mr, 0, 64, Rights::REMOTE_READ);
}

fn r_mw_08_type_1_on_a_zero_based_region<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mw, good) = (p.b.mw(MwKind::Type1), p.b.mr(PAGE, BIND));
    let mr = p.b.mr(PAGE, BIND | Rights::ZERO_BASED);
    let bind = mw.bind_to(&mr, 0, 64, Rights::REMOTE_READ);
    match p.b.post_errno(bind, &[]) {
        Err(errno) => assert_eq!(errno, EINVAL),
        Ok(()) => {
            p.b.sent().is(MwBindErr);
            p.restate();
            p.refused_bind(mw, bind, &good);
        }
    }
}

fn r_mw_09_type_1_bind_makes_the_next_key<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    let mw = p.b.mw(MwKind::Type1);
    // What the caller asks for is not looked at; the variant grows by one, through all 256.
    let mut key = mw.key;
    for round in 0..260 {
        let current = Mw { key, ..mw };
        let asked = key.with_variant(key.variant().wrapping_add(77));
        p.b.run(current.bind_as(asked, &mr, 0, 64, Rights::REMOTE_READ), &[]).ok();
        let before = key;
        key = key.next();
        p.a.run(Read(mr.remote_by(key, 0)), &[own.sge(0, 8)]).ok();
        if round < 3 {
            for dead in [before, asked] {
                p.refused_access(Read(mr.remote_by(dead, 0)), &[own.sge(0, 8)]);
                p.restate();
            }
        }
    }
    // A bind that failed leaves the key: the caller takes back the one that it counted up.
    let current = Mw { key, ..mw };
    p.fails_at_b(MwBindErr, current.bind_to(&mr, 1, PAGE as u64, Rights::REMOTE_READ));
    p.restate();
    p.a.run(Read(mr.remote_by(key, 0)), &[own.sge(0, 8)]).ok();
}

fn r_mw_10_type_1_is_not_bound_by_a_type_2_request<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (mw, mr) = (p.b.mw(MwKind::Type1), p.b.mr(PAGE, BIND));
    let BindMw1(bind) = mw.bind_to(&mr, 0, 64, Rights::REMOTE_READ) else { unreachable!() };
    match p.b.post_errno(BindMw(bind), &[]) {
        Err(errno) => assert_eq!(errno, EINVAL),
        Ok(()) => {
            p.b.sent().is(MwBindErr);
            p.restate();
            p.refused_bind(mw, BindMw(bind), &mr);
        }
    }
}

fn r_mw_11_only_the_low_8_bits_are_asked_for<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    for asked in [Key(0xffff_ff42), Key(0x0000_0000), Key(0x1234_56ff)] {
        let mw = p.b.mw(MwKind::Type2);
        p.b.run(mw.bind_as(asked, &mr, 0, 64, Rights::REMOTE_READ), &[]).ok();
        let key = mw.key.with_variant(asked.variant());
        p.a.run(Read(mr.remote_by(key, 0)), &[own.sge(0, 8)]).ok();
        own.holds(0, &mr.bytes(0, 8));
        p.refused_access(Read(mr.remote_by(asked, 0)), &[own.sge(0, 8)]);
        p.restate();
    }
}

fn r_mw_12_the_bound_key_is_the_current_key<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    let mut mw = p.b.mw(MwKind::Type2);
    // Round after round the key bound last names the window in the next bind.
    for _ in 0..4 {
        let before = mw.key;
        p.b.bind(&mut mw, &mr, 0, 64, Rights::REMOTE_READ);
        p.a.run(Read(mw.remote(&mr, 0)), &[own.sge(0, 8)]).ok();
        p.b.invalidate(mw.key).ok();
        p.refused_access(Read(mr.remote_by(before, 0)), &[own.sge(0, 8)]);
        p.restate();
    }
}
