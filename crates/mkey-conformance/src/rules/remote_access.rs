//! R-RA: access by a peer, as the responder checks it.

use crate::expect::Expect;
use crate::fixture::{ALL, Config, Subject};
use crate::memory::{Memory, PAGE};
use crate::pair::Pair;
use crate::region::Mr;
use crate::registry::{device_offers, rule_tests};
use mkey_core::address::IoAddr;
use mkey_core::device::{Capability, Device};
use mkey_core::error::errno::EINVAL;
use mkey_core::key::{Key, Rkey};
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{
    LocAccessErr, LocProtErr, RemAccessErr, RemInvReqErr, RetryExcErr, RnrRetryExcErr, Success,
};
use mkey_core::work::SendOp::{CompareSwap, FetchAdd, Read, Write, WriteImm};
use mkey_core::work::{RemoteAddr, SendOp, Sge};

use std::time::Duration;

rule_tests! {
    r_ra_01_a_missing_receive_comes_before_the_key,
    r_ra_01_queue_pair_rights_come_before_the_key,
    r_ra_02_queue_pair_without_the_right,
    r_ra_02_uc_queue_pair_without_the_right_drops,
    r_ra_03_region_without_remote_write,
    r_ra_03_region_without_remote_read,
    r_ra_03_region_without_remote_atomic needs [Atomics],
    r_ra_04_unknown_key,
    r_ra_04_stale_key,
    r_ra_04_wrong_variant,
    r_ra_05_key_of_another_domain,
    r_ra_06_fast_region_that_is_not_valid needs [FastMr],
    r_ra_07_one_byte_before_the_start,
    r_ra_07_one_byte_past_the_end,
    r_ra_08_ending_exactly_at_the_end,
    r_ra_09_a_tail_out_of_range_places_nothing,
    r_ra_10_a_range_that_wraps,
    r_ra_11_zero_length_looks_at_no_key,
    r_ra_11_zero_length_still_needs_the_queue_pairs_right,
    r_ra_12_more_than_a_message_holds needs [NullMr],
    r_ra_15_write_with_immediate_and_a_bad_key,
    r_ra_16_write_with_immediate_without_receive,
    r_ra_17_uc_violation_is_dropped,
    r_ra_17_uc_violation_with_immediate_is_dropped,
    r_ra_18_read_data_is_there_at_the_completion,
    r_ra_19_peer_that_does_not_listen,
    r_ra_20_no_resources_for_reads,
    r_ra_22_another_queue_pair_of_the_domain,
}

/// Every operation on remote memory that the device offers, of 8 bytes.
fn operations<S: Subject>(p: &Pair<'_, S>, remote: RemoteAddr) -> Vec<SendOp<'static>> {
    let mut operations = vec![Write(remote), Read(remote)];
    if device_offers(p.b.device(), Capability::Atomics) {
        operations.push(FetchAdd { remote, add: 1 });
        operations.push(CompareSwap { remote, compare: 0, swap: 1 });
    }
    operations
}

/// All operations on `remote` are refused for the key, and nothing moves on either side.
#[track_caller]
fn all_refused<S: Subject>(p: &Pair<'_, S>, remote: RemoteAddr, target: &Mr) {
    let own = p.a.mr(PAGE, ALL);
    for op in operations(p, remote) {
        p.refused_access(op, &[own.sge(0, 8)]);
        target.untouched();
        own.untouched();
        p.restate();
    }
}

fn r_ra_01_a_missing_receive_comes_before_the_key<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let bad = target.remote_by(target.rkey().next(), 0);
    p.a.run(WriteImm(bad, 7), &[own.sge(0, 8)]).is(RnrRetryExcErr);
    p.are(QpState::Err, QpState::Rts);
    assert_eq!(p.b.events(), []);
    target.untouched();
}

fn r_ra_01_queue_pair_rights_come_before_the_key<S: Subject>(s: &S) {
    let p = Pair::rc_with(s, |c| c.rights = Rights::empty());
    let own = p.a.mr(PAGE, ALL);
    for op in operations(&p, RemoteAddr { address: IoAddr(0), rkey: Rkey(Key(0xdead_beef)) }) {
        p.refused_form(op, &[own.sge(0, 8)]);
        p.restate();
    }
}

fn r_ra_02_queue_pair_without_the_right<S: Subject>(s: &S) {
    let all = Config::new(QpKind::Rc).rights;
    for (right, index) in [
        (Rights::REMOTE_WRITE, vec![0]),
        (Rights::REMOTE_READ, vec![1]),
        (Rights::REMOTE_ATOMIC, vec![2, 3]),
    ] {
        let p = Pair::rc_with(s, |c| c.rights = all - right);
        let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
        for (i, op) in operations(&p, target.remote(0)).into_iter().enumerate() {
            if index.contains(&i) {
                p.refused_form(op, &[own.sge(0, 8)]);
                target.untouched();
                own.untouched();
                p.restate();
            }
        }
        // The others pass.
        for (i, op) in operations(&p, target.remote(0)).into_iter().enumerate() {
            if !index.contains(&i) {
                p.a.run(op, &[own.sge(0, 8)]).ok();
            }
        }
    }
}

fn r_ra_02_uc_queue_pair_without_the_right_drops<S: Subject>(s: &S) {
    let p = Pair::new(s, &Config { rights: Rights::empty(), ..Config::new(QpKind::Uc) });
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    p.a.run(Write(target.remote(0)), &[own.sge(0, 64)]).ok();
    p.b.quiet();
    target.untouched();
    p.are(QpState::Rts, QpState::Rts);
    p.works();
}

#[track_caller]
fn missing_right<S: Subject>(s: &S, right: Rights, index: &[usize]) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL - right));
    for (i, op) in operations(&p, target.remote(0)).into_iter().enumerate() {
        if index.contains(&i) {
            p.refused_access(op, &[own.sge(0, 8)]);
            target.untouched();
            own.untouched();
            p.restate();
        }
    }
    // The region's other rights are what they were.
    for (i, op) in operations(&p, target.remote(0)).into_iter().enumerate() {
        if !index.contains(&i) {
            p.a.run(op, &[own.sge(0, 8)]).ok();
        }
    }
}

fn r_ra_03_region_without_remote_write<S: Subject>(s: &S) {
    missing_right(s, Rights::REMOTE_WRITE, &[0]);
}

fn r_ra_03_region_without_remote_read<S: Subject>(s: &S) {
    missing_right(s, Rights::REMOTE_READ, &[1]);
}

fn r_ra_03_region_without_remote_atomic<S: Subject>(s: &S) {
    missing_right(s, Rights::REMOTE_ATOMIC, &[2, 3]);
}

fn r_ra_04_unknown_key<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let target = p.b.mr(PAGE, ALL);
    for key in [0, 1, u32::MAX, target.rkey().0 ^ 0x8000_0000] {
        all_refused(&p, target.remote_by(Key(key), 0), &target);
    }
}

fn r_ra_04_stale_key<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let target = p.b.mr(PAGE, ALL);
    p.b.device().dereg_mr(target.info.handle).expect("dereg_mr");
    all_refused(&p, target.remote(0), &target);
}

fn r_ra_04_wrong_variant<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let target = p.b.mr(PAGE, ALL);
    all_refused(&p, target.remote_by(target.rkey().next(), 0), &target);
    let below = target.rkey().with_variant(target.rkey().variant().wrapping_sub(1));
    all_refused(&p, target.remote_by(below, 0), &target);
}

fn r_ra_05_key_of_another_domain<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let target = p.b.mr_in(p.b.new_pd(), PAGE, ALL, None);
    all_refused(&p, target.remote(0), &target);
}

fn r_ra_06_fast_region_that_is_not_valid<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let target = p.b.mr(PAGE, ALL);
    let mut fast = p.b.fast_mr(1);
    let by = |key| RemoteAddr { address: target.at(0), rkey: Rkey(key) };
    for key in [fast.info.rkey.0, fast.info.lkey.0, fast.key] {
        all_refused(&p, by(key), &target);
    }
    p.b.reg_fast(&mut fast, target.base, ALL, &[target.sge(0, PAGE as u32)]);
    let own = p.a.mr(PAGE, ALL);
    p.a.run(Write(by(fast.key)), &[own.sge(0, 8)]).ok();
    target.holds(0, &own.bytes(0, 8));
    p.b.invalidate(fast.key).ok();
    all_refused(&p, by(fast.key), &target);
}

fn r_ra_07_one_byte_before_the_start<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(1000, ALL));
    for op in [Write(target.remote(-1)), Read(target.remote(-1))] {
        for length in [1, 2, 64] {
            p.refused_access(op, &[own.sge(0, length)]);
            target.untouched();
            own.untouched();
            p.restate();
        }
    }
}

fn r_ra_07_one_byte_past_the_end<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(1000, ALL));
    for (offset, length) in [(1000, 1), (937, 64), (0, 1001)] {
        for op in [Write(target.remote(offset)), Read(target.remote(offset))] {
            p.refused_access(op, &[own.sge(0, length)]);
            target.untouched();
            own.untouched();
            p.restate();
        }
    }
}

fn r_ra_08_ending_exactly_at_the_end<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(1000, ALL));
    for (offset, length) in [(999, 1), (936, 64), (0, 1000)] {
        p.a.run(Write(target.remote(offset)), &[own.sge(0, length)]).ok();
        target.holds(offset as usize, &own.bytes(0, length as usize));
        p.a.run(Read(target.remote(offset)), &[own.sge(2000, length)]).ok();
        own.holds(2000, &target.bytes(offset as usize, length as usize));
    }
}

fn r_ra_09_a_tail_out_of_range_places_nothing<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    // Several packets of 1024 bytes, several chunks of 64 KiB.
    for pages in [2, 40] {
        let (own, target) = (p.a.mr((pages + 1) * PAGE, ALL), p.b.mr(pages * PAGE, ALL));
        let length = (pages * PAGE + 1) as u32;
        p.refused_access(Write(target.remote(0)), &[own.sge(0, length)]);
        target.untouched();
        p.restate();
        p.refused_access(Read(target.remote(0)), &[own.sge(0, length)]);
        own.untouched();
        p.restate();
        p.a.run(Write(target.remote(0)), &[own.sge(0, length - 1)]).ok();
        target.holds(0, &own.bytes(0, pages * PAGE));
    }
}

fn r_ra_10_a_range_that_wraps<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let own = p.a.mr(PAGE, ALL);
    let high = p.b.mr_at(PAGE, ALL, u64::MAX - PAGE as u64 + 1);
    let usual = p.b.mr(PAGE, ALL);
    for (mr, address) in
        [(&high, u64::MAX - 3), (&high, u64::MAX), (&usual, u64::MAX - 3), (&usual, u64::MAX)]
    {
        let remote = RemoteAddr { address: IoAddr(address), rkey: mr.info.rkey };
        for op in [Write(remote), Read(remote)] {
            p.refused_access(op, &[own.sge(0, 8)]);
            p.restate();
            mr.untouched();
            own.untouched();
        }
    }
    p.a.run(Write(high.remote(PAGE as i64 - 8)), &[own.sge(0, 8)]).ok();
    high.holds(PAGE - 8, &own.bytes(0, 8));
}

fn r_ra_11_zero_length_looks_at_no_key<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, Rights::empty()));
    let dead = p.b.mr(PAGE, ALL);
    p.b.device().dereg_mr(dead.info.handle).expect("dereg_mr");
    let garbage = RemoteAddr { address: IoAddr(u64::MAX), rkey: Rkey(Key(0xffff_ffff)) };
    for remote in [garbage, target.remote(0), target.remote(-5000), dead.remote(0)] {
        for op in [Write(remote), Read(remote)] {
            p.a.run(op, &[]).ok();
            p.a.run(op, &[own.sge(0, 0)]).ok();
        }
    }
    assert_eq!(p.b.events(), []);
    p.works();
}

fn r_ra_11_zero_length_still_needs_the_queue_pairs_right<S: Subject>(s: &S) {
    let p = Pair::rc_with(s, |c| c.rights = Rights::empty());
    let target = p.b.mr(PAGE, ALL);
    for op in [Write(target.remote(0)), Read(target.remote(0))] {
        p.refused_form(op, &[]);
        p.restate();
    }
}

fn r_ra_12_more_than_a_message_holds<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    // The null region swallows any length, so that only the message's length is in the way.
    let null = p.a.device().alloc_null_mr(p.a.pd).expect("alloc_null_mr");
    let half = |length| Sge { address: IoAddr(0), length, lkey: null.lkey };
    let target = p.b.mr(PAGE, ALL);
    let sges = [half(1 << 30), half((1 << 30) + 1)];
    for op in [Read(target.remote(0)), Write(target.remote(0))] {
        match p.a.post_errno(op, &sges) {
            Err(errno) => assert_eq!(errno, EINVAL),
            Ok(()) => {
                p.a.sent().is(RemInvReqErr);
                p.are(QpState::Err, QpState::Err);
                p.restate();
            }
        }
    }
    target.untouched();
    p.works();
}

fn r_ra_15_write_with_immediate_and_a_bad_key<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let recv = p.b.recv(&[]);
    let bad = target.remote_by(target.rkey().next(), 0);
    p.a.run(WriteImm(bad, 7), &[own.sge(0, 8)]).is(RemAccessErr);
    let received = p.b.received();
    assert_eq!(received.wr_id, recv);
    received.one_of(&[LocAccessErr, LocProtErr]);
    p.are(QpState::Err, QpState::Err);
    p.b.quiet();
    assert_eq!(p.b.events(), [], "the receive tells it");
    target.untouched();
    p.restate();
    p.works();
}

fn r_ra_16_write_with_immediate_without_receive<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    p.a.run(WriteImm(target.remote(0), 7), &[own.sge(0, 8)]).is(RnrRetryExcErr);
    p.are(QpState::Err, QpState::Rts);
    p.restate();
    p.b.recv(&[]);
    p.a.run(WriteImm(target.remote(0), 0x1234_5678), &[own.sge(0, 8)]).ok();
    let received = p.b.received().ok();
    assert_eq!((received.imm, received.byte_len), (Some(0x1234_5678), 8));
    target.holds(0, &own.bytes(0, 8));
}

fn r_ra_17_uc_violation_is_dropped<S: Subject>(s: &S) {
    let p = Pair::uc(s);
    let (own, target) = (p.a.mr(2 * PAGE, ALL), p.b.mr(PAGE, ALL));
    for remote in [target.remote_by(target.rkey().next(), 0), target.remote(-1)] {
        p.a.run(Write(remote), &[own.sge(0, 64)]).ok();
        p.a.run(Write(remote), &[own.sge(0, PAGE as u32 + 1)]).ok();
    }
    p.b.quiet();
    target.untouched();
    assert_eq!(p.a.state(), QpState::Rts, "the requester never hears of it");
    assert_eq!(p.b.state(), QpState::Rts);
    p.works();
    p.a.run(Write(target.remote(0)), &[own.sge(0, PAGE as u32)]).ok();
    p.b.lands(&target, 0, &own.bytes(0, PAGE));
}

fn r_ra_17_uc_violation_with_immediate_is_dropped<S: Subject>(s: &S) {
    let p = Pair::uc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let bad = target.remote_by(target.rkey().next(), 0);
    p.b.recv(&[]);
    p.a.run(WriteImm(bad, 7), &[own.sge(0, 64)]).ok();
    target.untouched();
    assert_eq!(p.a.state(), QpState::Rts, "the requester never hears of it");
    // The receive may be used up in error, but never as if a message had come.
    p.b.station.pass(Duration::from_millis(10));
    while let Some(received) = p.b.recvs.next() {
        assert_ne!(received.status, Success, "{received:?}");
    }
    p.restate();
    p.works();
    p.b.recv(&[]);
    p.a.run(WriteImm(target.remote(0), 7), &[own.sge(0, 64)]).ok();
    assert_eq!(p.b.received().ok().imm, Some(7));
    target.holds(0, &own.bytes(0, 64));
}

fn r_ra_18_read_data_is_there_at_the_completion<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(64 * PAGE, ALL), p.b.mr(64 * PAGE, ALL));
    p.a.run(Read(target.remote(0)), &[own.sge(0, 64 * PAGE as u32)]).ok();
    own.holds(0, &target.bytes(0, 64 * PAGE));
}

fn r_ra_19_peer_that_does_not_listen<S: Subject>(s: &S) {
    for state in [QpState::Reset, QpState::Init, QpState::Err] {
        let p = Pair::rc(s);
        let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
        match state {
            QpState::Init => {
                p.b.go(QpState::Reset);
                p.b.to_init();
            }
            _ => p.b.go(state),
        }
        let failed = p.a.run(Write(target.remote(0)), &[own.sge(0, 64)]);
        assert_eq!(failed.status, RetryExcErr, "peer in {state}");
        p.are(QpState::Err, state);
        target.untouched();
        p.restate();
        p.works();
    }
}

fn r_ra_20_no_resources_for_reads<S: Subject>(s: &S) {
    let p = Pair::rc_with(s, |c| c.max_dest_rd_atomic = 0);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    for op in operations(&p, target.remote(0)).into_iter().skip(1) {
        p.refused_form(op, &[own.sge(0, 8)]);
        target.untouched();
        own.untouched();
        p.restate();
    }
    p.a.run(Write(target.remote(0)), &[own.sge(0, 8)]).ok();
}

fn r_ra_22_another_queue_pair_of_the_domain<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let memory = p.b.keep(Memory::filled(2));
    let target = p.b.mr_over(p.b.pd, &memory, 0, PAGE, ALL, None);
    for pair in [p.beside(), p.beside()] {
        let own = pair.a.mr(PAGE, ALL);
        pair.a.run(Write(target.remote(0)), &[own.sge(0, 64)]).ok();
        target.holds(0, &own.bytes(0, 64));
    }
    // Negative control: not by a queue pair of another domain.
    let other = p.apart();
    let own = other.a.mr(PAGE, ALL);
    other.refused_access(Write(target.remote(0)), &[own.sge(0, 64)]);
    target.untouched();
}
