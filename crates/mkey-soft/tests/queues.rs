//! Completion queues that change their depth, that are stamped, and whose events a program polls for;
//! what is left of a queue pair's completions when its life ends.

mod common;

use common::*;
use mkey_core::data_plane::{CompletionQueue, DataPlane};
use mkey_core::device::Device;
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::status::WcStatus::Success;
use mkey_core::work::SendOp;
use mkey_soft::SoftDevice;
use std::time::Duration;

const NOW: Option<Duration> = Some(Duration::ZERO);

#[test]
fn another_depth_keeps_the_completions_and_holds_no_more() {
    let (a, b) = pair(QpKind::Rc);
    let (from, to) = (a.buffer(ALL), b.buffer(ALL));
    for wr_id in 1..=3 {
        a.post(wr_id, SendOp::Write(to.remote(0)), &[from.sge(0, 8)]);
    }
    assert_eq!(a.device.resize_cq(a.cq, 2).unwrap_err().errno(), 22, "it holds three");
    assert_eq!(a.device.resize_cq(a.cq, 0).unwrap_err().errno(), 22);
    let most = a.device.capabilities().max_cqe;
    assert_eq!(a.device.resize_cq(a.cq, most + 1).unwrap_err().errno(), 22);
    a.device.resize_cq(a.cq, 4).unwrap();
    a.post(4, SendOp::Write(to.remote(0)), &[from.sge(0, 8)]);
    assert_eq!(a.done(), [1, 2, 3, 4].map(|wr_id| (wr_id, Success)));
    // One more than it has room for.
    for wr_id in 5..=9 {
        a.post(wr_id, SendOp::Write(to.remote(0)), &[from.sge(0, 8)]);
    }
    assert_eq!(a.state(), QpState::Err);
}

#[test]
fn completions_go_with_the_life_of_their_queue_pair() {
    let (a, b) = pair(QpKind::Rc);
    let (from, to) = (a.buffer(ALL), b.buffer(ALL));
    let (other, peer) =
        (Side::new(&a.device, |init| (init.send_cq, init.recv_cq) = (a.cq, a.cq), QpKind::Rc), &b);
    b.receive(7, &[to.sge(0, 64)]);
    a.post(1, SendOp::Send, &[from.sge(0, 8)]);
    peer.receive(8, &[to.sge(0, 64)]);
    other.to_init();
    a.go(QpState::Reset);
    assert_eq!(a.done(), [], "RESET");
    assert_eq!(b.done(), [(7, Success)], "the peer keeps its own");
    connect(&a, &other);
    a.post(2, SendOp::Write(to.remote(0)), &[from.sge(0, 0)]);
    other.post(3, SendOp::Write(to.remote(0)), &[from.sge(0, 0)]);
    a.device.destroy_qp(a.handle()).unwrap();
    assert_eq!(a.done(), [(3, Success)], "another one's stay");
}

#[test]
fn stamps_are_of_the_moment_when_a_completion_came() {
    let (a, b) = pair(QpKind::Rc);
    let (from, to) = (a.buffer(ALL), b.buffer(ALL));
    let write = |wr_id| a.post(wr_id, SendOp::Write(to.remote(0)), &[from.sge(0, 8)]);
    write(1);
    a.cqs.stamp();
    a.pass(Duration::from_micros(5));
    write(2);
    a.pass(Duration::from_micros(7));
    let taken = || a.cqs.poll_stamped().unwrap().map(|(done, when)| (done.wr_id, when));
    assert_eq!(taken(), Some((1, Duration::ZERO)), "it came before");
    assert_eq!(taken(), Some((2, Duration::from_micros(5))));
    assert_eq!(taken(), None);
    // Some that are taken without a look at their stamps.
    write(3);
    a.pass(Duration::from_micros(1));
    write(4);
    assert_eq!(a.done(), [(3, Success), (4, Success)]);
    a.pass(Duration::from_micros(1));
    write(5);
    assert_eq!(taken(), Some((5, Duration::from_micros(14))));
}

#[test]
fn a_descriptor_counts_the_events_that_are_there() {
    let device = &SoftDevice::open(options()).unwrap();
    let b = Side::new(device, |_| {}, QpKind::Rc);
    let channel = device.create_comp_channel().unwrap();
    let before = device.create_cq(4, Some(channel)).unwrap();
    let on_channel =
        |cq| Side::new(device, |init| (init.send_cq, init.recv_cq) = (cq, cq), QpKind::Rc);
    let side = on_channel(before);
    connect(&side, &b);
    let (from, to) = (side.buffer(ALL), b.buffer(ALL));
    let event = || {
        device.cq(before).unwrap().request_notify(false).unwrap();
        side.post(1, SendOp::Write(to.remote(0)), &[from.sge(0, 8)]);
    };
    // One that is there when it is first asked for.
    event();
    let fd = device.channel_fd(channel).unwrap();
    assert!(fd.try_take() && !fd.try_take());
    assert_eq!(device.get_cq_event(channel, NOW).unwrap(), Some(before));
    event();
    assert!(fd.try_take());
    assert_eq!(device.get_cq_event(channel, NOW).unwrap(), Some(before));
    // One that is forgotten with its queue is not counted any more.
    event();
    device.destroy_qp(side.handle()).unwrap();
    device.destroy_cq(before).unwrap();
    assert!(!fd.try_take());
    assert_eq!(device.get_cq_event(channel, NOW).unwrap(), None);
}

#[test]
fn a_descriptor_counts_asynchronous_events() {
    let (a, b) = pair(QpKind::Rc);
    a.events();
    let fd = a.device.async_fd().unwrap();
    assert!(!fd.try_take());
    let from = a.buffer(ALL);
    // A key of nothing: the peer's queue pair fails.
    a.post(1, SendOp::Write(from.remote_by(Default::default())), &[from.sge(0, 8)]);
    assert!(fd.try_take());
    assert_eq!(a.events(), [mkey_core::event::AsyncEvent::QpAccessErr(b.handle())]);
    assert!(!fd.try_take());
}
