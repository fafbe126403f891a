//! Completion events.

use crate::side::*;
use mkey_core::data_plane::{CompletionQueue, DataPlane};
use mkey_core::device::*;
use mkey_core::error::Object;
use mkey_core::queue_pair::{QpInit, QpKind};
use mkey_core::status::WcStatus;
use mkey_core::work::*;
use std::time::{Duration, Instant};

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn an_event_comes_for_the_next_completion_and_destroying_does_not_hang() {
    let (device, _stays) = open();
    let pd = device.alloc_pd().unwrap();
    let channel = device.create_comp_channel().unwrap();
    let cq = device.create_cq(16, Some(channel)).unwrap();
    let with = |init: &mut QpInit| (init.send_cq, init.recv_cq) = (cq, cq);
    let (mut one, mut two) =
        (Side::new(&device, pd, QpKind::Rc, with), Side::new(&device, pd, QpKind::Rc, with));
    one.connect(two.info);
    two.connect(one.info);
    let buffer = Buffer::new(&device, pd, ALL);
    let plane = device.cq(cq).unwrap();
    let none = device.get_cq_event(channel, Some(Duration::from_millis(20))).unwrap();
    assert_eq!(none, None);
    for _ in 0..5 {
        plane.request_notify(false).unwrap();
        one.send(1, SendOp::Write(buffer.remote(64)), &buffer.sge(0, 8));
        assert_eq!(device.get_cq_event(channel, Some(LIMIT)).unwrap(), Some(cq));
        let mut into = [Completion::BLANK; 4];
        assert_eq!(plane.poll(&mut into).unwrap(), 1);
        assert_eq!(into[0].status, WcStatus::Success);
    }
    // One that is not taken, and then all goes.
    plane.request_notify(false).unwrap();
    one.send(1, SendOp::Write(buffer.remote(64)), &buffer.sge(0, 8));
    let begun = Instant::now();
    while plane.poll(&mut [Completion::BLANK]).unwrap() == 0 {
        assert!(begun.elapsed() < LIMIT);
    }
    let refused = device.destroy_comp_channel(channel).unwrap_err();
    assert!(refused.to_string().contains("completion queues are on it: 1"), "{refused}");
    device.destroy_qp(one.info.handle).unwrap();
    device.destroy_qp(two.info.handle).unwrap();
    device.destroy_cq(cq).unwrap();
    device.destroy_comp_channel(channel).unwrap();
    let gone = device.get_cq_event(channel, None).unwrap_err();
    assert_eq!(gone.errno(), libc::ENOENT);
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn destroying_a_channel_ends_the_waits_on_it() {
    let (device, _stays) = open();
    for _ in 0..10 {
        let channel = device.create_comp_channel().unwrap();
        std::thread::scope(|scope| {
            let wait = || device.get_cq_event(channel, None);
            let waits = [scope.spawn(wait), scope.spawn(wait)];
            device.destroy_comp_channel(channel).unwrap();
            for waited in waits {
                let reason = waited.join().unwrap().unwrap_err().reason;
                let object = Object::CompChannel;
                let handle = channel.0;
                assert_eq!(reason, mkey_core::error::Reason::UnknownHandle { object, handle });
            }
        });
    }
}
