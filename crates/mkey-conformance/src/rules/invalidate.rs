//! R-INV: invalidation, local and by the peer.

use crate::expect::Expect;
use crate::fixture::{ALL, BIND, Config, Subject};
use crate::memory::PAGE;
use crate::pair::Pair;
use crate::region::Mr;
use crate::registry::rule_tests;
use mkey_core::address::IoAddr;
use mkey_core::device::MwKind;
use mkey_core::error::errno::EINVAL;
use mkey_core::key::{Key, Rkey};
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcOpcode;
use mkey_core::status::WcStatus::{
    LocProtErr, LocQpOpErr, MwBindErr, RetryExcErr, RnrRetryExcErr, Success, WrFlushErr,
};
use mkey_core::work::RemoteAddr;
use mkey_core::work::SendOp::{LocalInv, Read, Send, SendInv, Write};

rule_tests! {
    r_inv_01_reliable_and_unreliable_connected_only needs [Window2],
    r_inv_02_bound_type_2_window_on_its_queue_pair needs [Window2],
    r_inv_03_type_2_window_of_another_queue_pair needs [Window2],
    r_inv_04_wrong_variant_or_unknown_key needs [Window2],
    r_inv_05_type_1_window needs [Window1],
    r_inv_06_free_type_2_window needs [Window2],
    r_inv_07_plain_region,
    r_inv_08_fast_region needs [FastMr],
    r_inv_09_fast_region_with_a_bound_window needs [FastMr, Window1],
    r_inv_10_object_of_another_domain needs [FastMr],
    r_inv_11_waits_for_all_earlier_work needs [FastMr],
    r_inv_12_peer_invalidates_a_window needs [Window2],
    r_inv_13_without_receive_nothing_is_invalidated needs [Window2],
    r_inv_14_bad_key_of_the_peer needs [Window1, Window2],
    r_inv_15_unreliable_transports_have_no_opcode_for_it needs [Window2],
    r_inv_16_data_of_several_packets_is_placed_first needs [Window2],
}

const RW: Rights = Rights::REMOTE_WRITE.union(Rights::REMOTE_READ);

/// A peer can read `mr` by `key`.
#[track_caller]
fn readable<S: Subject>(p: &Pair<'_, S>, mr: &Mr, key: Key) {
    let own = p.a.mr(PAGE, ALL);
    p.a.run(Read(mr.remote_by(key, 0)), &[own.sge(0, 32)]).ok();
    own.holds(0, &mr.bytes(0, 32));
}

/// A peer can neither read nor write `mr` by `key`.
#[track_caller]
fn dead<S: Subject>(p: &Pair<'_, S>, mr: &Mr, key: Key) {
    let own = p.a.mr(PAGE, ALL);
    for op in [Read(mr.remote_by(key, 0)), Write(mr.remote_by(key, 0))] {
        p.refused_access(op, &[own.sge(0, 32)]);
        own.untouched();
        mr.untouched();
        p.restate();
    }
}

fn r_inv_01_reliable_and_unreliable_connected_only<S: Subject>(s: &S) {
    for p in [Pair::rc(s), Pair::uc(s)] {
        let mr = p.b.mr(PAGE, BIND);
        let mw = p.b.bound(MwKind::Type2, &mr, 0, 64, RW);
        assert_eq!(p.b.invalidate(mw.key).ok().opcode, WcOpcode::LocalInv);
    }
    let p = Pair::ud(s);
    let key = p.b.mw(MwKind::Type2).key;
    assert_eq!(p.b.post_errno(LocalInv(key), &[]), Err(EINVAL));
    p.works();
}

fn r_inv_02_bound_type_2_window_on_its_queue_pair<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let mut mw = p.b.bound(MwKind::Type2, &mr, 0, 64, RW);
    readable(&p, &mr, mw.key);
    assert_eq!(p.b.invalidate(mw.key).ok().opcode, WcOpcode::LocalInv);
    dead(&p, &mr, mw.key);
    let before = mw.key;
    p.b.bind(&mut mw, &mr, 0, 64, RW);
    readable(&p, &mr, mw.key);
    dead(&p, &mr, before);
}

fn r_inv_03_type_2_window_of_another_queue_pair<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let other = p.beside();
    let mr = p.b.mr(PAGE, BIND);
    let mw = p.b.bound(MwKind::Type2, &mr, 0, 64, RW);
    let failed = other.b.invalidate(mw.key);
    failed.one_of(&[MwBindErr, LocQpOpErr]);
    other.are(QpState::Rts, QpState::Err);
    readable(&p, &mr, mw.key);
}

fn r_inv_04_wrong_variant_or_unknown_key<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let mw = p.b.bound(MwKind::Type2, &mr, 0, 64, RW);
    for key in [mw.key.next(), Key(mw.key.0 ^ 0x8000_0000), Key(0), Key(u32::MAX)] {
        // Unsignaled, and something behind it.
        let wr_id = p.b.post_unsignaled(LocalInv(key), &[]);
        let failed = p.b.sent();
        assert_eq!(failed.wr_id, wr_id);
        failed.one_of(&[MwBindErr, LocQpOpErr, LocProtErr]);
        p.b.run(Send, &[]).is(WrFlushErr);
        p.are(QpState::Rts, QpState::Err);
        p.restate();
        readable(&p, &mr, mw.key);
    }
}

fn r_inv_05_type_1_window<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let mw = p.b.bound(MwKind::Type1, &mr, 0, 64, RW);
    let failed = p.b.invalidate(mw.key);
    failed.one_of(&[MwBindErr, LocQpOpErr]);
    p.b.is_in(QpState::Err);
    p.restate();
    readable(&p, &mr, mw.key);
}

fn r_inv_06_free_type_2_window<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let mut mw = p.b.mw(MwKind::Type2);
    // An error or nothing at all, but not the end of the device or the window.
    let answer = p.b.invalidate(mw.key);
    answer.one_of(&[Success, MwBindErr, LocQpOpErr]);
    p.restate();
    p.b.bind(&mut mw, &mr, 0, 64, RW);
    readable(&p, &mr, mw.key);
    p.b.invalidate(mw.key).ok();
    let again = p.b.invalidate(mw.key);
    again.one_of(&[Success, MwBindErr, LocQpOpErr]);
    p.restate();
    p.works();
}

fn r_inv_07_plain_region<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL);
    for key in [mr.rkey(), mr.lkey()] {
        p.fails_at_b(LocQpOpErr, LocalInv(key));
        p.restate();
        readable(&p, &mr, mr.rkey());
    }
}

fn r_inv_08_fast_region<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL);
    let mut fast = p.b.fast_mr(1);
    p.b.reg_fast(&mut fast, mr.base, ALL, &[mr.sge(0, 64)]);
    readable(&p, &mr, fast.key);
    p.b.invalidate(fast.key).ok();
    dead(&p, &mr, fast.key);
    // Free already: nothing to do, and no error.
    p.b.invalidate(fast.key).ok();
    fast.key = fast.key.next();
    p.b.reg_fast(&mut fast, mr.base, ALL, &[mr.sge(0, 64)]);
    readable(&p, &mr, fast.key);
}

fn r_inv_09_fast_region_with_a_bound_window<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL | BIND);
    let mut fast = p.b.fast_mr(1);
    p.b.reg_fast(&mut fast, mr.base, ALL | BIND, &[mr.sge(0, 64)]);
    let mut behind = mr.clone();
    behind.info.lkey.0 = fast.key;
    let mut mw = p.b.mw(MwKind::Type1);
    let bind = mw.bind_to(&behind, 0, 64, RW);
    // A device may not let windows lie on fast regions at all.
    if p.b.run(bind, &[]).status == Success {
        mw.key = mw.key.next();
        p.fails_at_b(LocQpOpErr, LocalInv(fast.key));
        p.restate();
        readable(&p, &mr, mw.key);
    } else {
        p.restate();
        p.b.invalidate(fast.key).ok();
    }
    p.works();
}

fn r_inv_10_object_of_another_domain<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let other = p.apart();
    let mr = p.b.mr(PAGE, ALL);
    let mut fast = p.b.fast_mr(1);
    p.b.reg_fast(&mut fast, mr.base, ALL, &[mr.sge(0, 64)]);
    let failed = other.b.invalidate(fast.key);
    failed.one_of(&[MwBindErr, LocQpOpErr]);
    other.b.is_in(QpState::Err);
    readable(&p, &mr, fast.key);
}

fn r_inv_11_waits_for_all_earlier_work<S: Subject>(s: &S) {
    // SENDs that wait for a receive read their source through the region: the invalidation behind
    // them may not take effect before.
    let p = Pair::rc_with(s, |c| c.rnr_retry = 7);
    let (own, sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let mut fast = p.a.fast_mr(1);
    p.a.reg_fast(&mut fast, 0, Rights::LOCAL_WRITE, &[own.sge(0, 64)]);
    let first = p.a.post(Send, &[fast.sge(0, 64)]);
    let second = p.a.post(LocalInv(fast.key), &[]);
    p.a.quiet();
    p.b.recv(&[sink.sge(0, 64)]);
    assert_eq!(p.a.sent().ok().wr_id, first);
    assert_eq!(p.a.sent().ok().wr_id, second);
    sink.holds(0, &own.bytes(0, 64));
}

fn r_inv_12_peer_invalidates_a_window<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, mr, sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND), p.b.mr(PAGE, ALL));
    let mut mw = p.b.mw(MwKind::Type2);
    for length in [0, 64] {
        p.b.bind(&mut mw, &mr, 0, 64, RW);
        readable(&p, &mr, mw.key);
        let recv = p.b.recv(&[sink.sge(0, 64)]);
        let sges = [own.sge(0, length)];
        assert_eq!(p.a.run(SendInv(Rkey(mw.key)), &sges).ok().opcode, WcOpcode::Send);
        let received = p.b.received().ok();
        assert_eq!((received.wr_id, received.opcode), (recv, WcOpcode::Recv));
        assert_eq!((received.invalidated, received.imm), (Some(Rkey(mw.key)), None));
        assert_eq!(received.byte_len, length);
        sink.holds(0, &own.bytes(0, length as usize));
        dead(&p, &mr, mw.key);
    }
}

fn r_inv_13_without_receive_nothing_is_invalidated<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, BIND);
    let mw = p.b.bound(MwKind::Type2, &mr, 0, 64, RW);
    p.a.run(SendInv(Rkey(mw.key)), &[]).is(RnrRetryExcErr);
    p.are(QpState::Err, QpState::Rts);
    p.restate();
    readable(&p, &mr, mw.key);
}

fn r_inv_14_bad_key_of_the_peer<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let mr = p.b.mr(PAGE, ALL | BIND);
    let own_window = p.b.bound(MwKind::Type2, &mr, 0, 64, RW);
    let type_1 = p.b.bound(MwKind::Type1, &mr, 0, 64, RW);
    let of_another = p.beside().b.bound(MwKind::Type2, &mr, 0, 64, RW);
    let other_domain = p.apart();
    let foreign = other_domain.b.mr(PAGE, BIND);
    let of_domain = other_domain.b.bound(MwKind::Type2, &foreign, 0, 64, RW);
    for key in [
        own_window.key.next(),
        Key(0),
        Key(u32::MAX),
        type_1.key,
        of_another.key,
        of_domain.key,
        mr.rkey(),
    ] {
        let recv = p.b.recv(&[]);
        // Neither acknowledged nor refused: the requester runs out of patience.
        p.a.run(SendInv(Rkey(key)), &[]).is(RetryExcErr);
        let received = p.b.received();
        assert_eq!(received.wr_id, recv);
        assert_ne!(received.status, Success);
        p.are(QpState::Err, QpState::Err);
        p.restate();
        readable(&p, &mr, own_window.key);
        readable(&p, &mr, type_1.key);
        readable(&p, &mr, mr.rkey());
    }
}

fn r_inv_15_unreliable_transports_have_no_opcode_for_it<S: Subject>(s: &S) {
    for kind in [QpKind::Uc, QpKind::Ud] {
        let p = Pair::new(s, &Config::new(kind));
        let key = p.b.mw(MwKind::Type2).key;
        p.b.recv(&[p.b.mr(PAGE, ALL).sge(0, 64)]);
        match p.a.post_errno(SendInv(Rkey(key)), &[]) {
            Err(errno) => assert_eq!(errno, EINVAL),
            Ok(()) => {
                p.a.sent().is(LocQpOpErr);
                p.restate();
            }
        }
        p.b.quiet();
    }
}

fn r_inv_16_data_of_several_packets_is_placed_first<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let length = 9 * PAGE;
    let (own, sink, mr) = (p.a.mr(length, ALL), p.b.mr(length, ALL), p.b.mr(PAGE, BIND));
    let mw = p.b.bound(MwKind::Type2, &mr, 0, 64, RW);
    p.b.recv(&[sink.sge(0, length as u32)]);
    p.a.run(SendInv(Rkey(mw.key)), &[own.sge(0, length as u32)]).ok();
    let received = p.b.received().ok();
    assert_eq!((received.byte_len as usize, received.invalidated), (length, Some(Rkey(mw.key))));
    sink.holds(0, &own.bytes(0, length));
    let remote = RemoteAddr { address: IoAddr(mr.base), rkey: Rkey(mw.key) };
    p.refused_access(Read(remote), &[own.sge(0, 8)]);
}
