//! Work requests and their completions.

use crate::side::*;
use mkey_core::data_plane::{DataPlane, QueuePair, SharedReceive};
use mkey_core::device::*;
use mkey_core::error::Reason;
use mkey_core::event::AsyncEvent;
use mkey_core::key::{Key, Rkey};
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::*;

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn every_operation_of_a_reliable_connection_moves_the_right_bytes() {
    let (device, _stays) = open();
    let (pd, one, two) = pair(&device, QpKind::Rc);
    let (from, to) = (Buffer::new(&device, pd, ALL), Buffer::new(&device, pd, ALL));
    from.set(0, b"written by a peer");
    one.done(SendOp::Write(to.remote(100)), &from.sge(0, 17));
    assert_eq!(to.get(100, 17), b"written by a peer");
    assert_eq!(to.get(117, 1), [0]);

    let read = one.done(SendOp::Read(to.remote(100)), &from.sge(200, 17));
    assert_eq!((read.opcode, read.byte_len), (WcOpcode::RdmaRead, 17));
    assert_eq!(from.get(200, 17), b"written by a peer");

    two.recv(5, &to.sge(1000, 64));
    one.done(SendOp::SendImm(0x0102_0304), &from.sge(0, 17));
    let taken = two.next();
    assert_eq!((taken.status, taken.wr_id, taken.byte_len), (WcStatus::Success, 5, 17));
    assert_eq!((taken.opcode, taken.imm), (WcOpcode::Recv, Some(0x0102_0304)));
    assert_eq!(to.get(1000, 17), b"written by a peer");

    two.recv(6, &[]);
    one.done(SendOp::WriteImm(to.remote(2000), 9), &from.sge(0, 7));
    let taken = two.next();
    assert_eq!((taken.opcode, taken.imm), (WcOpcode::RecvRdmaWithImm, Some(9)));
    assert_eq!(to.get(2000, 7), b"written");

    to.set(3000, &40u64.to_ne_bytes());
    one.done(SendOp::FetchAdd { remote: to.remote(3000), add: 2 }, &from.sge(800, 8));
    assert_eq!((to.word(3000), from.word(800)), (42, 40));
    let swap = SendOp::CompareSwap { remote: to.remote(3000), compare: 42, swap: 7 };
    one.done(swap, &from.sge(800, 8));
    assert_eq!((to.word(3000), from.word(800)), (7, 42));

    let inline = SendWr {
        payload: Payload::Inline(b"inline"),
        ..SendWr::new(8, SendOp::Write(to.remote(4000)), &[])
    };
    one.qp.post_send(&[inline]).unwrap();
    assert_eq!((one.next().status, to.get(4000, 6)), (WcStatus::Success, b"inline".to_vec()));
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_chain_gathers_and_completes_in_order() {
    let (device, _stays) = open();
    let (pd, one, _two) = pair(&device, QpKind::Rc);
    let (from, to) = (Buffer::new(&device, pd, ALL), Buffer::new(&device, pd, ALL));
    from.set(0, b"abcdef");
    let pieces = [from.sge(4, 2)[0], from.sge(0, 3)[0]];
    let last = from.sge(3, 1);
    let chain = [
        SendWr::new(1, SendOp::Write(to.remote(0)), &pieces).unsignaled(),
        SendWr::new(2, SendOp::Write(to.remote(5)), &last),
        SendWr::new(3, SendOp::Read(to.remote(0)), &[]),
    ];
    one.qp.post_send(&chain).unwrap();
    assert_eq!([one.next().wr_id, one.next().wr_id], [2, 3]);
    assert_eq!(to.get(0, 6), b"efabcd");
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn datagrams_and_unreliable_connections_carry_sends() {
    let (device, _stays) = open();
    for kind in [QpKind::Ud, QpKind::Uc] {
        let (pd, one, two) = pair(&device, kind);
        let (from, to) = (Buffer::new(&device, pd, ALL), Buffer::new(&device, pd, ALL));
        from.set(0, b"datagram");
        two.recv(5, &to.sge(0, 256));
        one.done(SendOp::Send, &from.sge(0, 8));
        let taken = two.next();
        assert_eq!(taken.status, WcStatus::Success, "{kind}: {taken:?}");
        let head = if kind == QpKind::Ud { 40 } else { 0 };
        assert_eq!((taken.byte_len, taken.has_grh), (head + 8, kind == QpKind::Ud), "{kind}");
        if kind == QpKind::Ud {
            assert_eq!(taken.src_qp, one.info.qp_num);
        }
        assert_eq!(to.get(head as usize, 8), b"datagram", "{kind}");
    }
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_shared_receive_queue_serves_its_queue_pairs_and_tells_its_limit() {
    let (device, _stays) = open();
    let pd = device.alloc_pd().unwrap();
    let handle = device.create_srq(pd, 16, 2).unwrap();
    let srq = device.srq(handle).unwrap();
    let mut one = Side::new(&device, pd, QpKind::Rc, |_| ());
    let mut two = Side::new(&device, pd, QpKind::Rc, |init| init.srq = Some(handle));
    one.connect(two.info);
    two.connect(one.info);
    let (from, to) = (Buffer::new(&device, pd, ALL), Buffer::new(&device, pd, ALL));
    let sges: Vec<_> = (0..4).map(|n| to.sge(n * 64, 64)).collect();
    let chain: Vec<_> = (0..4).map(|n| RecvWr { wr_id: n, sges: &sges[n as usize] }).collect();
    srq.post_recv(&chain).unwrap();
    device.modify_srq(handle, 3).unwrap();
    from.set(0, b"shared");
    for wr_id in 0..3 {
        one.done(SendOp::Send, &from.sge(0, 6));
        let taken = two.next();
        assert_eq!((taken.status, taken.wr_id), (WcStatus::Success, wr_id));
        assert_eq!(to.get(wr_id as usize * 64, 6), b"shared");
    }
    let event = device.get_async_event(Some(LIMIT)).unwrap();
    assert_eq!(event, Some(AsyncEvent::SrqLimitReached(handle)));
    let refused = device.destroy_srq(handle).unwrap_err();
    assert!(refused.to_string().contains("queue pairs take from it: 1"), "{refused}");
    device.destroy_qp(two.info.handle).unwrap();
    device.destroy_srq(handle).unwrap();
    assert_eq!(device.destroy_srq(handle).unwrap_err().errno(), libc::ENOENT);
    let refused = srq.post_recv(&chain).unwrap_err();
    assert_eq!((refused.posted, refused.error.errno()), (0, libc::ENOENT));
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn d_acc_a_refused_access_is_told_on_both_sides() {
    let (device, _stays) = open();
    let (pd, one, two) = pair(&device, QpKind::Rc);
    let from = Buffer::new(&device, pd, ALL);
    let to = Buffer::new(&device, pd, Rights::LOCAL_WRITE | Rights::REMOTE_READ);
    from.set(0, b"x");
    let refused = one.run(SendOp::Write(to.remote(0)), &from.sge(0, 1));
    assert_eq!(refused.status, WcStatus::RemAccessErr);
    assert_eq!(to.get(0, 1), [0]);
    assert_eq!((one.state(), two.state()), (QpState::Err, QpState::Err));
    // Work that is posted now is flushed, and nothing hangs.
    let flushed = one.run(SendOp::Write(to.remote(0)), &from.sge(0, 1));
    assert_eq!(flushed.status, WcStatus::WrFlushErr);
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn r_ord_08_to_11_what_can_not_be_posted_is_said_exactly() {
    let (device, _stays) = open();
    let (pd, one, _two) = pair(&device, QpKind::Rc);
    let buffer = Buffer::new(&device, pd, ALL);
    let fresh = Side::new(&device, pd, QpKind::Rc, |_| ());
    let sge = buffer.sge(0, 1);
    let refused = fresh.qp.post_send(&[SendWr::new(1, SendOp::Send, &sge)]).unwrap_err();
    assert_eq!(refused.error.reason, Reason::QpState { state: QpState::Reset });
    let many = [sge[0]; 40];
    let write = SendOp::Write(buffer.remote(64));
    let chain = [SendWr::new(1, write, &sge), SendWr::new(2, write, &many)];
    let refused = one.qp.post_send(&chain).unwrap_err();
    assert_eq!(refused.posted, 1);
    assert!(
        matches!(refused.error.reason, Reason::TooManySges { given: 40, .. }),
        "{}",
        refused.error
    );
    let completion = one.next();
    assert_eq!(
        (completion.wr_id, completion.status),
        (1, WcStatus::Success),
        "the first is posted"
    );
    let bytes = [0; 4096];
    let inline = SendWr { payload: Payload::Inline(&bytes), ..SendWr::new(3, write, &[]) };
    let refused = one.qp.post_send(&[inline]).unwrap_err();
    assert!(
        matches!(refused.error.reason, Reason::TooMuchInline { given: 4096, .. }),
        "{}",
        refused.error
    );
    // Receives stay until a message comes, so the queue fills for sure.
    let mut posted = 0;
    let refused = loop {
        match one.qp.post_recv(&[RecvWr { wr_id: 1, sges: &sge }]) {
            Ok(()) => posted += 1,
            Err(refused) => break refused,
        }
        assert!(posted < 100_000);
    };
    let Reason::QueueFull { depth } = refused.error.reason else { panic!("{}", refused.error) };
    assert!(posted >= 32 && depth >= 32, "{posted} of {depth}");
    let ud = SendWr { dest: None, ..SendWr::new(4, SendOp::Send, &sge) };
    let datagrams = pair(&device, QpKind::Ud).1;
    assert_eq!(datagrams.qp.post_send(&[ud]).unwrap_err().error.errno(), libc::ENOENT);
    let read =
        SendWr { dest: datagrams.dest, ..SendWr::new(5, SendOp::Read(buffer.remote(0)), &sge) };
    let refused = datagrams.qp.post_send(&[read]).unwrap_err();
    assert!(
        refused.error.to_string().contains("RDMA READ does not exist on a UD"),
        "{}",
        refused.error
    );
    let fast = RegMr { key: Key(5), iova: Default::default(), rights: ALL, entries: &sge };
    let refused = one.qp.post_send(&[SendWr::new(6, SendOp::RegMr(fast), &[])]).unwrap_err();
    let lacks = Reason::Unsupported { capability: Capability::FastMr };
    assert_eq!(refused.error.reason, lacks);
    let inv = one.run(SendOp::LocalInv(Rkey(Key(0x1234_5678)).0), &[]);
    assert_ne!(inv.status, WcStatus::Success);
}
