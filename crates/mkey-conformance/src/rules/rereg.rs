//! R-RRG: re-registration.

use crate::expect::Expect;
use crate::fixture::{ALL, BIND, Side, Subject};
use crate::memory::{Memory, PAGE};
use crate::pair::Pair;
use crate::region::Mr;
use crate::registry::rule_tests;
use mkey_core::address::HostAddr;
use mkey_core::device::{Device, MrChange, MrSpec, MwKind, PdHandle, ReregState};
use mkey_core::error::errno::{EACCES, EBUSY, EINVAL, EOPNOTSUPP};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::LocProtErr;
use mkey_core::work::SendOp::{FetchAdd, Read, Send, Write};

rule_tests! {
    r_rrg_01_a_failure_tells_how_the_region_was_left needs [Rereg],
    r_rrg_02_bad_translation_leaves_the_region needs [Rereg],
    r_rrg_02_only_plain_regions needs [Rereg, FastMr],
    r_rrg_03_illegal_rights needs [Rereg],
    r_rrg_04_nothing_to_change needs [Rereg],
    r_rrg_05_each_change_is_offered_or_none,
    r_rrg_06_pinned_for_reading_can_not_become_writable needs [Rereg],
    r_rrg_07_the_same_domain_again needs [Rereg],
    r_rrg_08_the_region_is_what_was_asked_for needs [Rereg],
    r_rrg_09_receive_posted_on_the_old_address needs [Rereg],
    r_rrg_10_atomic_right_removed_and_given_back needs [Rereg, Atomics],
    r_rrg_11_write_right_removed needs [Rereg],
    r_rrg_11_read_right_removed needs [Rereg],
    r_rrg_12_region_moved_to_another_domain_and_back needs [Rereg],
    r_rrg_13_a_bound_window_holds_the_region needs [Rereg, Window1],
    r_rrg_14_implicit_region_stays_on_demand needs [Rereg, OnDemandImplicit],
}

fn rights(rights: Rights) -> MrChange {
    MrChange { rights: Some(rights), ..MrChange::default() }
}

fn translation(address: u64, length: u64) -> MrChange {
    MrChange { translation: Some((HostAddr(address), length)), ..MrChange::default() }
}

fn domain(pd: PdHandle) -> MrChange {
    MrChange { pd: Some(pd), ..MrChange::default() }
}

/// Asks for a change that has to fail; errno and how the region was left.
#[track_caller]
fn refused<S: Subject>(side: &Side<'_, S>, mr: &mut Mr, change: &MrChange) -> (i32, ReregState) {
    let failed = side.rereg(mr, change).expect_err("the change has to be refused");
    (failed.error.errno(), failed.state)
}

/// A peer can write the region by its key.
#[track_caller]
fn writable<S: Subject>(p: &Pair<'_, S>, mr: &Mr) {
    let source = p.a.mr(PAGE, Rights::empty());
    p.a.run(Write(mr.remote(8)), &[source.sge(0, 64)]).ok();
    mr.holds(8, &source.bytes(0, 64));
}

fn r_rrg_01_a_failure_tells_how_the_region_was_left<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mut mr = p.b.mr(PAGE, ALL);
    let (_, left) = refused(&p.b, &mut mr, &MrChange::default());
    assert_eq!(left, ReregState::Unchanged, "input refused");
    writable(&p, &mr);
    let (_, left) = refused(&p.b, &mut mr, &rights(Rights::REMOTE_WRITE));
    assert_ne!(left, ReregState::Unchanged, "the command refused");
    if left == ReregState::Refused {
        writable(&p, &mr);
    } else {
        let own = p.a.mr(PAGE, ALL);
        p.refused_access(Write(mr.remote(0)), &[own.sge(0, 8)]);
        mr.untouched();
    }
    // Deregistered by its user in every case.
    p.b.device().dereg_mr(mr.info.handle).expect("dereg_mr after a failure");
}

fn r_rrg_02_bad_translation_leaves_the_region<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mut mr = p.b.mr(PAGE, ALL);
    let address = mr.memory.address();
    for change in [translation(0, PAGE as u64), translation(address, 0), translation(0, 0)] {
        assert_eq!(refused(&p.b, &mut mr, &change), (EINVAL, ReregState::Unchanged), "{change:?}");
    }
    writable(&p, &mr);
}

fn r_rrg_02_only_plain_regions<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let fast = p.b.fast_mr(4);
    // SAFETY: no memory is named.
    let failed = unsafe { p.b.device().rereg_mr(fast.info.handle, &rights(ALL)) }
        .expect_err("a fast-registration region can not be re-registered");
    assert_eq!((failed.error.errno(), failed.state), (EINVAL, ReregState::Unchanged));
    p.b.device().dereg_mr(fast.info.handle).expect("dereg_mr");
}

fn r_rrg_03_illegal_rights<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for illegal in [Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC | Rights::REMOTE_READ] {
        let mut mr = p.b.mr(PAGE, ALL);
        let (errno, left) = refused(&p.b, &mut mr, &rights(illegal));
        assert_eq!(errno, EINVAL);
        assert_ne!(left, ReregState::Unchanged, "this is -4, not -1");
        p.b.device().dereg_mr(mr.info.handle).expect("dereg_mr");
    }
}

fn r_rrg_04_nothing_to_change<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mut mr = p.b.mr(PAGE, ALL);
    assert_eq!(refused(&p.b, &mut mr, &MrChange::default()).0, EINVAL);
    writable(&p, &mr);
}

fn r_rrg_05_each_change_is_offered_or_none<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mut mr = p.b.mr(PAGE, ALL);
    let memory = p.b.keep(Memory::filled(2));
    let changes = [domain(p.b.pd), rights(ALL), translation(memory.address(), PAGE as u64)];
    for change in changes {
        if p.b.device().capabilities().rereg {
            p.b.rereg(&mut mr, &change).unwrap_or_else(|e| panic!("{change:?}: {e}"));
        } else {
            assert_eq!(refused(&p.b, &mut mr, &change), (EOPNOTSUPP, ReregState::Unchanged));
        }
    }
}

fn r_rrg_06_pinned_for_reading_can_not_become_writable<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mut mr = p.b.mr(PAGE, Rights::REMOTE_READ);
    let (errno, left) = refused(&p.b, &mut mr, &rights(ALL));
    assert_eq!(errno, EACCES);
    assert_ne!(left, ReregState::Unchanged, "this is -4, not -1");
    // With a new translation it can.
    let mut mr = p.b.mr(PAGE, Rights::REMOTE_READ);
    let address = mr.memory.address() + mr.offset as u64;
    let both = MrChange { rights: Some(ALL), ..translation(address, PAGE as u64) };
    let before = mr.offset;
    p.b.rereg(&mut mr, &both).expect("rereg_mr with a new translation");
    assert_eq!(mr.offset, before);
    writable(&p, &mr);
}

fn r_rrg_07_the_same_domain_again<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mut mr = p.b.mr(PAGE, ALL);
    p.b.rereg(&mut mr, &domain(p.b.pd)).expect("rereg_mr");
    writable(&p, &mr);
}

fn r_rrg_08_the_region_is_what_was_asked_for<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mut mr = p.b.mr(PAGE, ALL);
    let old = mr.clone();
    // Elsewhere, longer: the new range counts, its last byte too, and no more.
    let memory = p.b.keep(Memory::filled(5));
    mr.memory = memory.clone();
    p.b.rereg(&mut mr, &translation(memory.address() + 4096, 2 * PAGE as u64)).expect("rereg_mr");
    writable(&p, &mr);
    let source = p.a.mr(PAGE, Rights::empty());
    p.a.run(Write(mr.remote(2 * PAGE as i64 - 8)), &[source.sge(0, 8)]).ok();
    mr.holds(2 * PAGE - 8, &source.bytes(0, 8));
    p.refused_access(Write(mr.remote(2 * PAGE as i64 - 7)), &[source.sge(0, 8)]);
    p.restate();
    // The old memory is out of reach by the old key and the new one.
    p.refused_access(Write(old.remote_by(mr.rkey(), 0)), &[source.sge(0, 8)]);
    p.restate();
    p.refused_access(Write(old.remote(0)), &[source.sge(0, 8)]);
    p.restate();
    old.untouched();
    mr.untouched();
    // In another domain: out of reach for this queue pair, in reach for one of that domain.
    let other = p.apart();
    p.b.rereg(&mut mr, &domain(other.b.pd)).expect("rereg_mr");
    p.refused_access(Write(mr.remote(0)), &[source.sge(0, 8)]);
    writable(&other, &mr);
    assert_eq!(p.b.device().dealloc_pd(other.b.pd).map_err(|e| e.errno()), Err(EBUSY));
}

fn r_rrg_09_receive_posted_on_the_old_address<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (source, mut sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let old = sink.clone();
    let recv = p.b.recv(&[sink.sge(0, 128)]);
    sink.memory = p.b.keep(Memory::filled(3));
    let address = sink.memory.address() + PAGE as u64;
    p.b.rereg(&mut sink, &translation(address, PAGE as u64)).expect("rereg_mr");
    p.refused_receive(recv, LocProtErr, Send, &[source.sge(0, 128)]);
    old.untouched();
    sink.untouched();
    p.restate();
    p.b.recv(&[sink.sge(0, 128)]);
    p.a.run(Send, &[source.sge(0, 128)]).ok();
    p.b.received().ok();
    sink.holds(0, &source.bytes(0, 128));
    old.untouched();
}

fn r_rrg_10_atomic_right_removed_and_given_back<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (landing, mut mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let before = mr.word(0);
    p.b.rereg(&mut mr, &rights(ALL - Rights::REMOTE_ATOMIC)).expect("rereg_mr");
    p.refused_access(FetchAdd { remote: mr.remote(0), add: 3 }, &[landing.sge(0, 8)]);
    mr.untouched();
    landing.untouched();
    p.restate();
    p.b.rereg(&mut mr, &rights(ALL)).expect("rereg_mr");
    p.a.run(FetchAdd { remote: mr.remote(0), add: 3 }, &[landing.sge(0, 8)]).ok();
    mr.holds(0, &before.wrapping_add(3).to_ne_bytes());
    landing.holds(0, &before.to_ne_bytes());
}

fn r_rrg_11_write_right_removed<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mut mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    p.b.rereg(&mut mr, &rights(ALL - Rights::REMOTE_WRITE)).expect("rereg_mr");
    p.a.run(Read(mr.remote(0)), &[own.sge(0, 8)]).ok();
    p.refused_access(Write(mr.remote(0)), &[own.sge(8, 8)]);
    mr.untouched();
    p.restate();
    p.b.rereg(&mut mr, &rights(ALL)).expect("rereg_mr");
    writable(&p, &mr);
}

fn r_rrg_11_read_right_removed<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mut mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    p.b.rereg(&mut mr, &rights(ALL - Rights::REMOTE_READ)).expect("rereg_mr");
    writable(&p, &mr);
    p.refused_access(Read(mr.remote(0)), &[own.sge(0, 8)]);
    own.untouched();
}

fn r_rrg_12_region_moved_to_another_domain_and_back<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (source, mut sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    p.b.rereg(&mut sink, &domain(p.b.new_pd())).expect("rereg_mr");
    let recv = p.b.recv(&[sink.sge(0, 128)]);
    p.refused_receive(recv, LocProtErr, Send, &[source.sge(0, 128)]);
    sink.untouched();
    p.restate();
    p.b.rereg(&mut sink, &domain(p.b.pd)).expect("rereg_mr back");
    p.b.recv(&[sink.sge(0, 128)]);
    p.a.run(Send, &[source.sge(0, 128)]).ok();
    p.b.received().ok();
    sink.holds(0, &source.bytes(0, 128));
}

fn r_rrg_13_a_bound_window_holds_the_region<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mut mr) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
    let mw = p.b.bound(MwKind::Type1, &mr, 0, 64, Rights::REMOTE_WRITE);
    let address = p.b.keep(Memory::filled(1)).address();
    for change in [rights(BIND), domain(p.b.new_pd()), translation(address, PAGE as u64)] {
        let (errno, left) = refused(&p.b, &mut mr, &change);
        assert_eq!(errno, EBUSY, "{change:?}");
        assert_ne!(left, ReregState::Lost, "{change:?}");
    }
    p.a.run(Write(mw.remote(&mr, 0)), &[own.sge(0, 64)]).ok();
    mr.holds(0, &own.bytes(0, 64));
    p.b.device().dealloc_mw(mw.info.handle).expect("dealloc_mw");
    p.b.rereg(&mut mr, &rights(ALL)).expect("rereg_mr after the window is gone");
    writable(&p, &mr);
}

fn r_rrg_14_implicit_region_stays_on_demand<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let rights_now = ALL | Rights::ON_DEMAND;
    let spec = MrSpec { address: HostAddr(0), length: u64::MAX, iova: None, rights: rights_now };
    let info = p.b.try_reg(p.b.pd, &spec).expect("reg_mr of the whole address space");
    // SAFETY: no memory is named, and no access is made by the key.
    let failed = unsafe { p.b.device().rereg_mr(info.handle, &rights(ALL)) }
        .expect_err("dropping on-demand");
    assert_eq!(failed.error.errno(), EOPNOTSUPP);
    p.b.device().dereg_mr(info.handle).expect("dereg_mr");
}
