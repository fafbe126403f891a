//! R-ORD: ordering, fences, receiver not ready, posting.

use crate::expect::Expect;
use crate::fixture::{ALL, BIND, Config, Side, Subject};
use crate::memory::PAGE;
use crate::pair::Pair;
use crate::registry::{keeps, rule_tests};
use mkey_core::data_plane::PostError;
use mkey_core::device::{Device, MwKind};
use mkey_core::error::errno::{EINVAL, ENOMEM};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{LocProtErr, RetryExcErr, RnrRetryExcErr, WrFlushErr};
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::SendOp::{LocalInv, Read, Send, SendImm, Write, WriteImm};
use mkey_core::work::{RecvWr, SendFlags, SendWr, Sge};
use std::time::Duration;

rule_tests! {
    r_ord_01_fence_waits_for_reads,
    r_ord_02_bind_then_send_carries_the_key needs [Window1, Window2],
    r_ord_03_invalidation_waits_for_earlier_work needs [FastMr],
    r_ord_04_local_operations_run_in_order needs [FastMr],
    r_ord_05_completions_come_in_posting_order,
    r_ord_05_receives_complete_in_posting_order,
    r_ord_06_receiver_not_ready_exhausts,
    r_ord_06_receiver_not_ready_for_ever,
    r_ord_06_receiver_becomes_ready,
    r_ord_06_datagram_without_receive_is_dropped,
    r_ord_07_no_answer,
    r_ord_07_unconnected_transports_need_no_answer,
    r_ord_08_post_send_too_early,
    r_ord_09_post_recv_in_reset,
    r_ord_10_receive_queue_full,
    r_ord_10_send_queue_full,
    r_ord_10_a_bad_one_in_a_chain,
    r_ord_11_too_many_entries,
    r_ord_12_error_state_flushes_both_queues,
    r_ord_12_receive_posted_in_the_error_state,
    r_ord_12_shared_receives_stay_and_an_event_tells needs [Srq],
    r_ord_13_relaxed_ordering_completes_after_the_data,
}

fn r_ord_01_fence_waits_for_reads<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let length = 32 * PAGE;
    let (own, target) = (p.a.mr(length, ALL), p.b.mr(2 * length, ALL));
    let sges = [own.sge(0, length as u32)];
    let (first, second) = (p.a.wr_id(), p.a.wr_id());
    let fenced = p.a.wr(second, Write(target.remote(length as i64)), &sges);
    let fenced = SendWr { flags: fenced.flags | SendFlags::FENCE, ..fenced };
    p.a.chain(&[p.a.wr(first, Read(target.remote(0)), &sges), fenced]).expect("post_send");
    assert_eq!(p.a.sent().ok().wr_id, first);
    assert_eq!(p.a.sent().ok().wr_id, second);
    let data = target.bytes(0, length);
    own.holds(0, &data);
    target.holds(length, &data);
}

fn r_ord_02_bind_then_send_carries_the_key<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    for kind in [MwKind::Type1, MwKind::Type2] {
        let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, BIND));
        let mut mw = p.b.mw(kind);
        let bind = mw.bind_to(&target, 0, 64, Rights::REMOTE_WRITE);
        mw.key = mw.key.next();
        let carried = mw.key.0.to_ne_bytes();
        p.a.recv(&[own.sge(100, 4)]);
        let send = SendWr {
            payload: mkey_core::work::Payload::Inline(&carried),
            ..p.b.wr(p.b.wr_id(), Send, &[])
        };
        p.b.chain(&[p.b.wr(p.b.wr_id(), bind, &[]).unsignaled(), send.unsignaled()])
            .expect("post_send");
        p.a.received().ok();
        own.holds(100, &carried);
        p.a.run(Write(mw.remote(&target, 0)), &[own.sge(0, 64)]).ok();
        target.holds(0, &own.bytes(0, 64));
    }
}

fn r_ord_03_invalidation_waits_for_earlier_work<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let length = 64 * PAGE;
    let (own, target) = (p.a.mr(length, ALL), p.b.mr(length, ALL));
    let mut fast = p.a.fast_mr(1);
    p.a.reg_fast(&mut fast, 0, Rights::LOCAL_WRITE, &[own.sge(0, length as u32)]);
    let sges = [fast.sge(0, length as u32)];
    let ids = [p.a.wr_id(), p.a.wr_id(), p.a.wr_id()];
    p.a.chain(&[
        p.a.wr(ids[0], Read(target.remote(0)), &sges),
        p.a.wr(ids[1], Write(target.remote(0)), &sges),
        p.a.wr(ids[2], LocalInv(fast.key), &[]),
    ])
    .expect("post_send");
    for id in ids {
        assert_eq!(p.a.sent().ok().wr_id, id);
    }
    own.holds(0, &target.bytes(0, length));
    p.fails_locally(LocProtErr, Write(target.remote(0)), &[fast.sge(0, 8)]);
    target.untouched();
}

fn r_ord_04_local_operations_run_in_order<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let fast = p.a.fast_mr(1);
    let entries = [own.sge(0, PAGE as u32)];
    let sges = [fast.sge(0, 64)];
    let ids: Vec<u64> = (0..5).map(|_| p.a.wr_id()).collect();
    let reg = fast.reg_as(fast.key, 0, Rights::LOCAL_WRITE, &entries);
    p.a.chain(&[
        p.a.wr(ids[0], reg, &[]),
        p.a.wr(ids[1], Write(target.remote(0)), &sges),
        p.a.wr(ids[2], LocalInv(fast.key), &[]),
        p.a.wr(ids[3], Write(target.remote(64)), &sges),
        p.a.wr(ids[4], Write(target.remote(128)), &[own.sge(0, 64)]),
    ])
    .expect("post_send");
    use WcStatus::Success;
    for (id, status) in ids.iter().zip([Success, Success, Success, LocProtErr, WrFlushErr]) {
        assert_eq!(p.a.sent().is(status).wr_id, *id);
    }
    target.holds(0, &own.bytes(0, 64));
}

fn r_ord_05_completions_come_in_posting_order<S: Subject>(s: &S) {
    for p in [Pair::rc(s), Pair::uc(s), Pair::ud(s)] {
        let (own, target) = (p.a.mr(8 * PAGE, ALL), p.b.mr(8 * PAGE, ALL));
        let (small, large) = ([own.sge(0, 8)], [own.sge(0, 800)]);
        let mut expected = Vec::new();
        for round in 0..5 {
            p.b.recv(&[target.sge(0, 4000)]);
            let kind = p.a.config.kind;
            let mut ops = vec![(Send, &large)];
            if kind != QpKind::Ud {
                ops.push((Write(target.remote(0)), &small));
            }
            if kind == QpKind::Rc {
                ops.insert(0, (Read(target.remote(0)), &large));
                ops.push((Read(target.remote(round)), &small));
            }
            for (op, sges) in ops {
                expected.push(p.a.post(op, sges));
            }
        }
        let came: Vec<u64> = expected.iter().map(|_| p.a.sent().ok().wr_id).collect();
        assert_eq!(came, expected, "on {}", p.a.config.kind);
    }
}

fn r_ord_05_receives_complete_in_posting_order<S: Subject>(s: &S) {
    for p in [Pair::rc(s), Pair::uc(s), Pair::ud(s)] {
        let sink = p.b.mr(PAGE, ALL);
        let posted: Vec<u64> = (0..20).map(|_| p.b.recv(&[sink.sge(0, 100)])).collect();
        for imm in 0..20u32 {
            p.a.post(SendImm(imm), &[]);
        }
        for (imm, wr_id) in posted.into_iter().enumerate() {
            let received = p.b.received().ok();
            assert_eq!((received.wr_id, received.imm), (wr_id, Some(imm as u32)));
        }
    }
}

fn r_ord_06_receiver_not_ready_exhausts<S: Subject>(s: &S) {
    for retries in [0, 1, 3] {
        let p = Pair::rc_with(s, |c| c.rnr_retry = retries);
        let own = p.a.mr(PAGE, ALL);
        for op in [Send, SendImm(1), WriteImm(p.b.mr(PAGE, ALL).remote(0), 1)] {
            p.a.post(op, &[own.sge(0, 8)]);
            let second = p.a.post(Send, &[own.sge(0, 8)]);
            p.a.sent().is(RnrRetryExcErr);
            assert_eq!(p.a.sent().is(WrFlushErr).wr_id, second);
            p.are(QpState::Err, QpState::Rts);
            assert_eq!((p.a.events(), p.b.events()), (vec![], vec![]));
            p.restate();
        }
        p.works();
    }
}

fn r_ord_06_receiver_not_ready_for_ever<S: Subject>(s: &S) {
    // Refusals are answers: not one retry for want of an answer is needed.
    let p = Pair::rc_with(s, |c| (c.rnr_retry, c.retry_cnt) = (7, 0));
    let (own, sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let wr_id = p.a.post(Send, &[own.sge(0, 64)]);
    for _ in 0..20 {
        p.a.station.pass(Duration::from_millis(50));
        if let Some(ended) = p.a.sends.next() {
            assert!(!keeps("R-ORD-06"), "it ended: {ended:?}");
            ended.is(RetryExcErr);
            return;
        }
    }
    p.are(QpState::Rts, QpState::Rts);
    p.b.recv(&[sink.sge(0, 64)]);
    assert_eq!(p.a.sent().ok().wr_id, wr_id);
    p.b.received().ok();
    sink.holds(0, &own.bytes(0, 64));
}

fn r_ord_06_receiver_becomes_ready<S: Subject>(s: &S) {
    // Retries enough for the receive to come in time; work behind the waiting SEND waits too.
    let p = Pair::rc_with(s, |c| c.rnr_retry = 6);
    let (own, sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let first = p.a.post(Send, &[own.sge(0, 64)]);
    let second = p.a.post(Write(sink.remote(100)), &[own.sge(100, 64)]);
    p.b.recv(&[sink.sge(0, 64)]);
    assert_eq!(p.a.sent().ok().wr_id, first);
    assert_eq!(p.a.sent().ok().wr_id, second);
    sink.memory.expect(sink.offset, &own.bytes(0, 64));
    sink.holds(100, &own.bytes(100, 64));
}

fn r_ord_06_datagram_without_receive_is_dropped<S: Subject>(s: &S) {
    for p in [Pair::ud(s), Pair::uc(s)] {
        let own = p.a.mr(PAGE, ALL);
        p.a.run(Send, &[own.sge(0, 64)]).ok();
        p.b.quiet();
        // It does not wait for a receive either.
        let sink = p.b.mr(PAGE, ALL);
        p.b.recv(&[sink.sge(0, 200)]);
        p.b.quiet();
        p.a.run(Send, &[own.sge(0, 32)]).ok();
        let grh = if p.a.config.kind == QpKind::Ud { 40 } else { 0 };
        assert_eq!(p.b.received().ok().byte_len, 32 + grh);
        p.works();
    }
}

fn r_ord_07_no_answer<S: Subject>(s: &S) {
    for retries in [0, 2] {
        let p = Pair::rc_with(s, |c| c.retry_cnt = retries);
        let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
        p.b.device().destroy_qp(p.b.qp.handle).expect("destroy_qp");
        let first = p.a.post(Read(target.remote(0)), &[own.sge(0, 64)]);
        let second = p.a.post(Send, &[]);
        assert_eq!(p.a.sent().is(RetryExcErr).wr_id, first);
        assert_eq!(p.a.sent().is(WrFlushErr).wr_id, second);
        p.a.is_in(QpState::Err);
        own.untouched();
    }
}

fn r_ord_07_unconnected_transports_need_no_answer<S: Subject>(s: &S) {
    for p in [Pair::uc(s), Pair::ud(s)] {
        let own = p.a.mr(PAGE, ALL);
        p.b.device().destroy_qp(p.b.qp.handle).expect("destroy_qp");
        p.a.run(Send, &[own.sge(0, 64)]).ok();
        assert_eq!(p.a.state(), QpState::Rts);
    }
}

fn r_ord_08_post_send_too_early<S: Subject>(s: &S) {
    for p in [Pair::rc(s), Pair::uc(s), Pair::ud(s)] {
        let own = p.a.mr(PAGE, ALL);
        let early = || p.a.post_errno(Send, &[own.sge(0, 8)]);
        p.a.go(QpState::Reset);
        assert_eq!(early(), Err(EINVAL), "in RESET");
        p.a.to_init();
        assert_eq!(early(), Err(EINVAL), "in INIT");
        p.a.to_rtr(&p.b);
        assert_eq!(early(), Err(EINVAL), "in RTR");
        p.a.to_rts();
        p.a.quiet();
        // Nor is any of it done with what is posted in time.
        p.works();
        p.a.quiet();
        p.restate();
        p.works();
    }
}

fn r_ord_09_post_recv_in_reset<S: Subject>(s: &S) {
    for p in [Pair::rc(s), Pair::uc(s), Pair::ud(s)] {
        let sink = p.b.mr(PAGE, ALL);
        let sges = [sink.sge(0, 64)];
        p.b.go(QpState::Reset);
        let early = [1, 2, 3].map(|wr_id| RecvWr { wr_id, sges: &sges });
        let early = p.b.try_recv(&early);
        assert_eq!(early.map_err(|e| (e.posted, e.error.errno())), Err((0, EINVAL)));
        p.b.to_init();
        let in_init = p.b.recv(&sges);
        p.b.quiet();
        p.b.go(QpState::Err);
        assert_eq!(p.b.received().is(WrFlushErr).wr_id, in_init);
    }
}

fn r_ord_10_receive_queue_full<S: Subject>(s: &S) {
    let p = Pair::rc_with(s, |c| c.max_recv_wr = 8);
    let sink = p.b.mr(PAGE, ALL);
    let sges = [sink.sge(0, 64)];
    // A device may have made the queue longer than asked for.
    let ids: Vec<u64> = (0..100_000).map(|i| i + 1).collect();
    let chain: Vec<RecvWr<'_>> = ids.iter().map(|&wr_id| RecvWr { wr_id, sges: &sges }).collect();
    let refused = p.b.try_recv(&chain).expect_err("no queue holds so many");
    assert_eq!(refused.error.errno(), ENOMEM);
    assert!(refused.posted >= 8, "{refused:?}");
    // Those before it stay posted and work.
    for &id in &ids[..refused.posted.min(8)] {
        p.a.run(Send, &[]).ok();
        assert_eq!(p.b.received().ok().wr_id, id);
    }
    p.b.recv(&sges);
    p.b.go(QpState::Err);
    for &id in &ids[8..refused.posted] {
        assert_eq!(p.b.received().is(WrFlushErr).wr_id, id);
    }
    p.b.received().is(WrFlushErr);
    p.b.quiet();
}

fn r_ord_10_send_queue_full<S: Subject>(s: &S) {
    let p = Pair::rc_with(s, |c| {
        c.max_send_wr = 8;
        c.rnr_retry = 7;
        c.cq_depth = 4096;
    });
    let own = p.a.mr(PAGE, ALL);
    // Nobody receives: everything stays in the queue.
    let (mut posted, refused) = (Vec::new(), loop_until_full(&p.a, &[own.sge(0, 8)]));
    posted.extend(refused.0);
    assert_eq!((refused.1.posted, refused.1.error.errno()), (0, ENOMEM));
    assert!(posted.len() >= 8, "{}", posted.len());
    p.a.quiet();
    let sink = p.b.mr(PAGE, ALL);
    for wr_id in posted {
        p.b.recv(&[sink.sge(0, 8)]);
        assert_eq!(p.a.sent().ok().wr_id, wr_id);
    }
    p.restate();
    p.works();
}

/// Posts SENDs one by one until one is refused; those posted, and the refusal.
#[track_caller]
fn loop_until_full<S: Subject>(side: &Side<'_, S>, sges: &[Sge]) -> (Vec<u64>, PostError) {
    let mut posted = Vec::new();
    for _ in 0..4096 {
        let wr_id = side.wr_id();
        match side.chain(&[side.wr(wr_id, Send, sges)]) {
            Ok(()) => posted.push(wr_id),
            Err(refused) => return (posted, refused),
        }
    }
    panic!("4096 work requests fit a queue of 8")
}

fn r_ord_10_a_bad_one_in_a_chain<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let (own, target) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let many = vec![own.sge(0, 8); p.a.device().capabilities().max_sge as usize + 1];
    let good = [own.sge(0, 8)];
    let ids = [p.a.wr_id(), p.a.wr_id(), p.a.wr_id(), p.a.wr_id()];
    let refused =
        p.a.chain(&[
            p.a.wr(ids[0], Write(target.remote(0)), &good),
            p.a.wr(ids[1], Write(target.remote(8)), &good),
            p.a.wr(ids[2], Write(target.remote(16)), &many),
            p.a.wr(ids[3], Write(target.remote(24)), &good),
        ])
        .expect_err("the third is not possible");
    assert_eq!((refused.posted, refused.error.errno()), (2, EINVAL));
    assert_eq!(p.a.sent().ok().wr_id, ids[0]);
    assert_eq!(p.a.sent().ok().wr_id, ids[1]);
    p.a.quiet();
    target.holds(0, &[own.bytes(0, 8), own.bytes(0, 8)].concat());
    p.works();
}

fn r_ord_11_too_many_entries<S: Subject>(s: &S) {
    for p in [Pair::rc(s), Pair::uc(s), Pair::ud(s)] {
        let (own, sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
        let most = p.a.device().capabilities().max_sge as usize;
        let many = vec![own.sge(0, 1); most + 1];
        assert_eq!(p.a.post_errno(Send, &many), Err(EINVAL));
        let many = vec![sink.sge(0, 1); most + 1];
        let refused = p.b.try_recv(&[RecvWr { wr_id: 1, sges: &many }]);
        assert_eq!(refused.map_err(|e| (e.posted, e.error.errno())), Err((0, EINVAL)));
        // As many as were asked for do work.
        let given: Vec<Sge> = (0..4).map(|i| own.sge(i * 10, 10)).collect();
        p.b.recv(&[sink.sge(0, 40), sink.sge(100, 9), sink.sge(200, 9), sink.sge(300, 50)]);
        p.a.run(Send, &given).ok();
        p.b.received().ok();
        p.works();
    }
}

fn r_ord_12_error_state_flushes_both_queues<S: Subject>(s: &S) {
    for kind in [QpKind::Rc, QpKind::Uc, QpKind::Ud] {
        let p = Pair::new(s, &Config { rnr_retry: 7, ..Config::new(kind) });
        let (own, sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
        let recvs: Vec<u64> = (0..3).map(|_| p.a.recv(&[own.sge(0, 64)])).collect();
        // On RC these wait for a receive; elsewhere there is nothing to wait for.
        let waiting = kind == QpKind::Rc;
        let sends: Vec<u64> =
            (0..3).filter(|_| waiting).map(|_| p.a.post(Send, &[own.sge(0, 8)])).collect();
        p.a.go(QpState::Err);
        for id in sends {
            assert_eq!(p.a.sent().is(WrFlushErr).wr_id, id);
        }
        for id in recvs {
            assert_eq!(p.a.received().is(WrFlushErr).wr_id, id);
        }
        // A send posted afterwards: flushed too.
        p.a.run(Send, &[own.sge(0, 8)]).is(WrFlushErr);
        own.untouched();
        sink.untouched();
        assert_eq!(p.b.state(), QpState::Rts);
    }
}

fn r_ord_12_receive_posted_in_the_error_state<S: Subject>(s: &S) {
    for p in [Pair::rc(s), Pair::uc(s), Pair::ud(s)] {
        let own = p.a.mr(PAGE, ALL);
        let early = p.a.recv(&[own.sge(0, 64)]);
        p.a.go(QpState::Err);
        assert_eq!(p.a.received().is(WrFlushErr).wr_id, early);
        p.a.quiet();
        let late = p.a.recv(&[own.sge(0, 64)]);
        assert_eq!(p.a.received().is(WrFlushErr).wr_id, late);
        own.untouched();
    }
}

fn r_ord_12_shared_receives_stay_and_an_event_tells<S: Subject>(s: &S) {
    let p = Pair::rc_with(s, |c| c.srq = true);
    let (own, sink) = (p.a.mr(PAGE, ALL), p.b.mr(PAGE, ALL));
    let recv = p.b.recv(&[sink.sge(0, 64)]);
    p.b.go(QpState::Err);
    p.b.event(AsyncEvent::QpLastWqeReached);
    // The receive belongs to the shared queue: it is not flushed and serves others.
    p.b.quiet();
    p.restate();
    p.a.run(Send, &[own.sge(0, 64)]).ok();
    assert_eq!(p.b.received().ok().wr_id, recv);
    sink.holds(0, &own.bytes(0, 64));
}

fn r_ord_13_relaxed_ordering_completes_after_the_data<S: Subject>(s: &S) {
    let p = Pair::rc(s);
    let length = 64 * PAGE;
    let relaxed = ALL | Rights::RELAXED_ORDERING;
    let (own, target) = (p.a.mr(length, relaxed), p.b.mr(length, relaxed));
    p.b.recv(&[target.sge(0, 8)]);
    p.a.post_unsignaled(Write(target.remote(0)), &[own.sge(0, length as u32)]);
    p.a.run(WriteImm(target.remote(0), 1), &[]).ok();
    assert_eq!(p.b.received().ok().opcode, WcOpcode::RecvRdmaWithImm);
    target.holds(0, &own.bytes(0, length));
    let other = p.b.mr(length, relaxed);
    p.a.run(Read(other.remote(0)), &[own.sge(0, length as u32)]).ok();
    own.holds(0, &other.bytes(0, length));
}
