//! The queue pair's states, timers and queues, on a virtual clock: nothing here waits.

mod common;

use common::*;
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair, SharedReceive};
use mkey_core::device::Device;
use mkey_core::error::Reason;
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpKind, QpModify, QpState};
use mkey_core::status::WcStatus::{
    LocLenErr, LocProtErr, RemAccessErr, RemInvReqErr, RetryExcErr, RnrRetryExcErr, Success,
    WrFlushErr,
};
use mkey_core::work::{Completion, RecvWr, SendOp, SendWr};
use mkey_soft::{SoftDevice, SoftOptions};
use std::time::Duration;

/// A hair less than a time.
fn short_of(time: Duration) -> Duration {
    time - Duration::from_nanos(1)
}

#[test]
fn r_ord_07_retries_end_after_their_time() {
    let (a, b) = pair(QpKind::Rc);
    b.go(QpState::Reset);
    a.post(1, SendOp::Send, &[]);
    a.post(2, SendOp::Send, &[]);
    // The first try and two more.
    a.pass(short_of(TIMEOUT * 3));
    assert_eq!(a.done(), []);
    a.pass(TIMEOUT);
    a.pass(TIMEOUT);
    assert_eq!(a.done(), [(1, RetryExcErr), (2, WrFlushErr)]);
    assert_eq!(a.state(), QpState::Err);
}

#[test]
fn a_retry_reaches_a_peer_that_comes_late() {
    let device = SoftDevice::open(options()).unwrap();
    let (a, b) = (Side::new(&device, |_| {}, QpKind::Rc), Side::new(&device, |_| {}, QpKind::Rc));
    a.to_init();
    a.to_rtr(&b);
    a.to_rts();
    a.post(1, SendOp::SendImm(5), &[]);
    b.to_init();
    b.receive(2, &[]);
    b.to_rtr(&a);
    assert_eq!((a.done(), b.done()), (vec![], vec![]), "only a retry brings it over");
    a.pass(TIMEOUT);
    assert_eq!(a.done(), [(1, Success)]);
    assert_eq!(b.poll()[0].imm, Some(5));
    assert_eq!(b.events(), [AsyncEvent::CommEst(b.handle())], "it came while RTR");
}

#[test]
fn r_ord_06_receiver_not_ready() {
    let (a, b) = pair(QpKind::Rc);
    let buffer = b.buffer(ALL);
    a.post(1, SendOp::Send, &[]);
    a.post(2, SendOp::Write(buffer.remote(0)), &[]);
    a.pass(short_of(RNR));
    b.receive(3, &[]);
    assert_eq!(a.done(), [], "the time of the NAK has not passed");
    a.pass(RNR);
    assert_eq!(a.done(), [(1, Success), (2, Success)]);
    assert_eq!(b.done(), [(3, Success)]);
    // No receive: two retries, then the end.
    a.post(4, SendOp::Send, &[]);
    a.pass(RNR);
    assert_eq!(a.done(), []);
    a.pass(RNR);
    assert_eq!(a.done(), [(4, RnrRetryExcErr)]);
    assert_eq!(b.state(), QpState::Rts, "it did nothing wrong");
}

#[test]
fn r_ord_06_seven_retries_are_without_end() {
    let device = SoftDevice::open(options()).unwrap();
    let (a, b) = (Side::new(&device, |_| {}, QpKind::Rc), Side::new(&device, |_| {}, QpKind::Rc));
    for side in [&a, &b] {
        side.to_init();
    }
    a.to_rtr(&b);
    b.to_rtr(&a);
    a.to_rts_with(0, 7);
    b.to_rts();
    a.post(1, SendOp::Send, &[]);
    for _ in 0..1000 {
        a.pass(RNR);
    }
    assert_eq!(a.done(), []);
    b.receive(2, &[]);
    a.pass(RNR);
    assert_eq!(a.done(), [(1, Success)]);
}

#[test]
fn r_ord_10_slots_come_back_by_polling() {
    let (a, b) = pair(QpKind::Rc);
    let target = b.buffer(ALL);
    let wr = |id| SendWr::new(id, SendOp::Write(target.remote(0)), &[]);
    let chain: Vec<_> = (0..129).map(|id| wr(id).unsignaled()).collect();
    let error = a.qp.post_send(&chain).unwrap_err();
    assert_eq!((error.posted, error.error.reason), (128, Reason::QueueFull { depth: 128 }));
    for side in [&a, &b] {
        side.go(QpState::Reset);
    }
    connect(&a, &b);
    a.qp.post_send(&chain[..127]).unwrap();
    a.qp.post_send(&[wr(9)]).unwrap();
    assert!(a.qp.post_send(&[wr(10)]).is_err(), "nothing was polled");
    assert_eq!(a.done(), [(9, Success)]);
    a.qp.post_send(&chain[..128]).unwrap();
}

#[test]
fn sqd_holds_work_back_and_tells_when_it_is_drained() {
    let (a, b) = pair(QpKind::Rc);
    a.post(1, SendOp::Send, &[]);
    a.go(QpState::Sqd);
    a.post(2, SendOp::Send, &[]);
    assert_eq!(a.events(), [], "the head is not done yet (R-ERR-09)");
    b.receive(3, &[]);
    b.receive(4, &[]);
    a.pass(RNR);
    assert_eq!(a.done(), [(1, Success)]);
    assert_eq!(a.events(), [AsyncEvent::SqDrained(a.handle())]);
    a.pass(TIMEOUT * 10);
    assert_eq!(a.done(), [], "held back");
    a.go(QpState::Rts);
    assert_eq!(a.done(), [(2, Success)]);
}

#[test]
fn sqe_stops_the_send_side_of_uc_only() {
    let (a, b) = pair(QpKind::Uc);
    let (own, target) = (a.buffer(ALL), b.buffer(ALL));
    let mut bad = own.sge(0, 8);
    bad.lkey.0 = bad.lkey.0.next();
    a.post(1, SendOp::Write(target.remote(0)), &[bad]);
    a.post(2, SendOp::Write(target.remote(0)), &[own.sge(0, 8)]);
    assert_eq!(a.done(), [(1, LocProtErr), (2, WrFlushErr)]);
    assert_eq!(a.state(), QpState::Sqe);
    a.receive(3, &[]);
    b.post(4, SendOp::Send, &[]);
    assert_eq!(a.done(), [(3, Success)], "the receive side goes on");
    a.go(QpState::Rts);
    a.post(5, SendOp::Write(target.remote(0)), &[own.sge(0, 8)]);
    assert_eq!(a.done(), [(5, Success)]);
}

#[test]
fn reset_drops_queues_without_completions() {
    let (a, b) = pair(QpKind::Rc);
    a.post(1, SendOp::Send, &[]);
    a.receive(2, &[]);
    a.go(QpState::Reset);
    b.receive(3, &[]);
    a.pass(TIMEOUT * 100);
    assert_eq!((a.done(), b.done()), (vec![], vec![]));
    let error = a.qp.post_send(&[SendWr::new(4, SendOp::Send, &[])]).unwrap_err();
    assert_eq!(error.error.reason, Reason::QpState { state: QpState::Reset });
}

#[test]
fn r_err_08_recovery_after_an_error() {
    let (a, b) = pair(QpKind::Rc);
    let (own, target) = (a.buffer(ALL), b.buffer(ALL));
    own.set(0, 42);
    b.post(7, SendOp::Send, &[]);
    let wrong = target.remote_by(mkey_core::key::Rkey(target.info.rkey.0.next()));
    a.post(1, SendOp::Write(wrong), &[own.sge(0, 8)]);
    let failed = a.poll();
    assert_eq!(failed[0].status, RemAccessErr);
    let report = a.device.refusals().unwrap();
    let report = report.iter().find(|report| report.number == failed[0].vendor_err).unwrap();
    assert_eq!(report.qp_num, b.info.qp_num);
    assert!(report.request.starts_with("RDMA WRITE of 8 bytes"), "{}", report.request);
    assert_eq!(b.done(), [(7, WrFlushErr)], "its own send was waiting for a receive");
    assert_eq!(b.events(), [AsyncEvent::QpAccessErr(b.handle())]);
    for side in [&a, &b] {
        assert_eq!(side.state(), QpState::Err);
        side.go(QpState::Reset);
    }
    connect(&a, &b);
    a.post(2, SendOp::Write(target.remote(0)), &[own.sge(0, 8)]);
    assert_eq!(a.done(), [(2, Success)]);
    assert_eq!(target.get(0), 42);
}

#[test]
fn r_inv_14_a_bad_invalidation_is_never_answered() {
    let (a, b) = pair(QpKind::Rc);
    b.receive(1, &[]);
    let region = b.buffer(ALL);
    a.post(2, SendOp::SendInv(region.info.rkey), &[]);
    let received = b.poll();
    assert_ne!(received[0].status, Success);
    assert_eq!((b.state(), a.state()), (QpState::Err, QpState::Rts));
    a.pass(TIMEOUT);
    a.pass(TIMEOUT);
    assert_eq!(a.done(), []);
    a.pass(TIMEOUT);
    assert_eq!(a.done(), [(2, RetryExcErr)]);
}

#[test]
fn an_overrun_queue_takes_its_queue_pairs_along() {
    let device = SoftDevice::open(options()).unwrap();
    let cq = device.create_cq(4, None).unwrap();
    let a = Side::new(&device, |init| init.send_cq = cq, QpKind::Rc);
    let b = Side::new(&device, |_| {}, QpKind::Rc);
    connect(&a, &b);
    let target = b.buffer(ALL);
    for id in 0..4 {
        a.post(id, SendOp::Write(target.remote(0)), &[]);
    }
    assert_eq!((a.events(), a.state()), (vec![], QpState::Rts));
    a.post(4, SendOp::Write(target.remote(0)), &[]);
    assert_eq!(a.events(), [AsyncEvent::CqErr(cq)]);
    assert_eq!(a.state(), QpState::Err);
    let error = device.cq(cq).unwrap().poll(&mut [Completion::BLANK]).unwrap_err();
    assert_eq!(error.reason, Reason::CqOverrun { depth: 4 });
    assert_eq!(b.state(), QpState::Rts);
}

#[test]
fn a_shared_receive_queue_tells_its_limit_and_the_last_receive() {
    let device = SoftDevice::open(options()).unwrap();
    let pd = device.alloc_pd().unwrap();
    let srq = device.create_srq(pd, 8, 1).unwrap();
    let a = Side::new(&device, |_| {}, QpKind::Rc);
    let b = Side::new(&device, |init| init.srq = Some(srq), QpKind::Rc);
    connect(&a, &b);
    let plane = device.srq(srq).unwrap();
    for wr_id in 0..3 {
        plane.post_recv(&[RecvWr { wr_id, sges: &[] }]).unwrap();
    }
    device.modify_srq(srq, 2).unwrap();
    a.post(10, SendOp::Send, &[]);
    assert_eq!(b.events(), []);
    a.post(11, SendOp::Send, &[]);
    assert_eq!(b.events(), [AsyncEvent::SrqLimitReached(srq)]);
    a.post(12, SendOp::Send, &[]);
    assert_eq!(b.events(), [], "once");
    assert_eq!(b.done(), [(0, Success), (1, Success), (2, Success)]);
    assert_eq!(device.destroy_srq(srq).unwrap_err().errno(), 16);
    b.go(QpState::Err);
    assert_eq!(b.events(), [AsyncEvent::QpLastWqeReached(b.handle())]);
}

#[test]
fn channels_tell_armed_queues_once() {
    let device = SoftDevice::open(options()).unwrap();
    let channel = device.create_comp_channel().unwrap();
    let cq = device.create_cq(16, Some(channel)).unwrap();
    let a = Side::new(&device, |_| {}, QpKind::Rc);
    let b = Side::new(&device, |init| (init.send_cq, init.recv_cq) = (cq, cq), QpKind::Rc);
    connect(&a, &b);
    let event = || device.get_cq_event(channel, Some(Duration::ZERO)).unwrap();
    let plane = device.cq(cq).unwrap();
    for wr_id in 0..4 {
        b.receive(wr_id, &[]);
    }
    a.post(1, SendOp::Send, &[]);
    assert_eq!(event(), None, "not armed");
    plane.request_notify(true).unwrap();
    a.post(2, SendOp::Send, &[]);
    assert_eq!(event(), None, "not solicited");
    let mut solicited = SendWr::new(3, SendOp::Send, &[]);
    solicited.flags |= mkey_core::work::SendFlags::SOLICITED;
    a.qp.post_send(&[solicited]).unwrap();
    assert_eq!((event(), event()), (Some(cq), None));
    plane.request_notify(false).unwrap();
    a.post(4, SendOp::Send, &[]);
    assert_eq!((event(), event()), (Some(cq), None));
    assert_eq!(device.destroy_comp_channel(channel).unwrap_err().errno(), 16);
}

#[test]
fn handles_outlive_their_objects_and_say_so() {
    let (a, b) = pair(QpKind::Rc);
    a.device.destroy_qp(a.handle()).unwrap();
    let wr = SendWr::new(1, SendOp::Send, &[]);
    assert_eq!(a.qp.post_send(&[wr]).unwrap_err().error.errno(), 2);
    assert_eq!(a.qp.post_recv(&[RecvWr { wr_id: 1, sges: &[] }]).unwrap_err().error.errno(), 2);
    a.device.destroy_cq(a.cq).unwrap();
    assert_eq!(a.cqs.poll(&mut [Completion::BLANK]).unwrap_err().errno(), 2);
    a.device.dealloc_pd(a.pd).unwrap();
    b.post(2, SendOp::Send, &[]);
    b.pass(TIMEOUT);
    b.pass(TIMEOUT);
    b.pass(TIMEOUT);
    assert_eq!(b.done(), [(2, RetryExcErr)]);
}

#[test]
fn transitions_need_their_attributes() {
    let device = SoftDevice::open(options()).unwrap();
    let a = Side::new(&device, |_| {}, QpKind::Rc);
    let go = |state| QpModify { state: Some(state), ..QpModify::default() };
    let error = device.modify_qp(a.handle(), &go(QpState::Rts)).unwrap_err();
    let (from, to, missing) = (QpState::Reset, QpState::Rts, None);
    assert_eq!(error.reason, Reason::QpTransition { from, to, missing });
    let error = device.modify_qp(a.handle(), &go(QpState::Init)).unwrap_err();
    assert!(matches!(error.reason, Reason::QpTransition { missing: Some("pkey_index"), .. }));
    let bad = QpModify { retry_cnt: Some(8), ..QpModify::default() };
    assert_eq!(device.modify_qp(a.handle(), &bad).unwrap_err().errno(), 22);
    assert_eq!(a.state(), QpState::Reset);
}

#[test]
fn devices_reach_each_other_and_numbers_repeat_with_the_seed() {
    let clock = virtual_clock();
    let open = |address: [u8; 4]| {
        let options = SoftOptions::new("x", address.into());
        SoftDevice::open(SoftOptions { clock: clock.clone(), seed: Some(3), ..options }).unwrap()
    };
    let (first, second) = (open([10, 0, 0, 1]), open([10, 0, 0, 2]));
    let (a, b) = (Side::new(&first, |_| {}, QpKind::Rc), Side::new(&second, |_| {}, QpKind::Rc));
    assert_eq!(a.info.qp_num, b.info.qp_num);
    connect(&a, &b);
    let (own, target) = (a.buffer(ALL), b.buffer(ALL));
    assert_eq!(own.info.rkey, target.info.rkey);
    own.set(5, 9);
    a.post(1, SendOp::Write(target.remote(0)), &[own.sge(0, 16)]);
    assert_eq!(a.done(), [(1, Success)]);
    assert_eq!(target.get(5), 9);
    // A refusal is in both logs.
    target.set(0, 1);
    let gone = target.remote_by(mkey_core::key::Rkey(target.info.rkey.0.next()));
    a.post(2, SendOp::Write(gone), &[own.sge(0, 16)]);
    assert_eq!(a.done(), [(2, RemAccessErr)]);
    assert_eq!((first.refusals().unwrap().len(), second.refusals().unwrap().len()), (1, 1));
}

#[test]
fn an_atomic_write_is_8_aligned_bytes_of_a_reliable_connection() {
    let write = |kind, at, length| {
        let (a, b) = pair(kind);
        let (from, to) = (a.buffer(ALL), b.buffer(ALL));
        from.set(7, 0xa5);
        let sges = [from.sge(0, length)];
        let wr = SendWr::new(1, SendOp::AtomicWrite(to.remote(at)), &sges);
        let posted = a.qp.post_send(&[wr]).map_err(|refused| refused.error.errno());
        (posted, a.poll().first().map(|done| (done.status, done.opcode)), to.get(at as usize + 7))
    };
    let opcode = mkey_core::status::WcOpcode::AtomicWrite;
    assert_eq!(write(QpKind::Rc, 16, 8), (Ok(()), Some((Success, opcode)), 0xa5));
    assert_eq!(write(QpKind::Rc, 12, 8), (Ok(()), Some((RemInvReqErr, opcode)), 0));
    assert_eq!(write(QpKind::Rc, 16, 7), (Ok(()), Some((LocLenErr, opcode)), 0));
    assert_eq!(write(QpKind::Uc, 16, 8), (Err(22), None, 0));
}
