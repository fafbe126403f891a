//! Memory windows of both types.

use crate::side::*;
use mkey_core::address::IoAddr;
use mkey_core::data_plane::QueuePair;
use mkey_core::device::*;
use mkey_core::error::{Object, Reason};
use mkey_core::key::Rkey;
use mkey_core::queue_pair::QpKind;
use mkey_core::rights::Rights;
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::*;

const PARENT: Rights = Rights::LOCAL_WRITE.union(Rights::MW_BIND);

fn bind(mw: Rkey, new_key: Rkey, parent: &Buffer<'_>, length: u64) -> BindMw {
    let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
    BindMw { mw, new_key, mr: parent.info.lkey, address: parent.at(0), length, rights }
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_type_1_window_is_bound_by_the_verb_and_ended_by_an_empty_bind() {
    let (device, _stays) = open();
    let (pd, one, two) = pair(&device, QpKind::Rc);
    let (from, to) = (Buffer::new(&device, pd, ALL), Buffer::new(&device, pd, PARENT));
    from.set(0, b"window");
    let window = device.alloc_mw(pd, MwKind::Type1).unwrap();
    let bound = two.done(SendOp::BindMw1(bind(window.rkey, window.rkey, &to, 64)), &[]);
    assert_eq!(bound.opcode, WcOpcode::BindMw);
    // R-MW-09: the variant grows by one.
    let rkey = Rkey(window.rkey.0.next());
    let remote = RemoteAddr { address: to.at(8), rkey };
    one.done(SendOp::Write(remote), &from.sge(0, 6));
    assert_eq!(to.get(8, 6), b"window");
    let held = device.dereg_mr(to.info.handle).unwrap_err();
    assert!(matches!(held.reason, Reason::InUse { object: Object::Mr, .. }), "{held}");
    one.done(SendOp::Write(remote), &from.sge(0, 6));
    two.done(SendOp::BindMw1(bind(rkey, rkey, &to, 0)), &[]);
    // R-MW-25: an empty bind needs no region.
    let mut current = Rkey(rkey.0.next());
    two.done(SendOp::BindMw1(bind(current, current, &to, 64)), &[]);
    current = Rkey(current.0.next());
    let remote = RemoteAddr { address: to.at(8), rkey: current };
    one.done(SendOp::Write(remote), &from.sge(0, 6));
    let nowhere = bind(current, current, &to, 0);
    let nowhere = BindMw { mr: Default::default(), address: IoAddr(0), ..nowhere };
    two.done(SendOp::BindMw1(nowhere), &[]);
    let refused = one.run(SendOp::Write(remote), &from.sge(0, 6));
    assert_eq!(refused.status, WcStatus::RemAccessErr);
    device.dealloc_mw(window.handle).unwrap();
    assert_eq!(device.dealloc_mw(window.handle).unwrap_err().errno(), libc::ENOENT);
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_type_2_window_is_bound_invalidated_and_bound_again() {
    let (device, _stays) = open();
    let (pd, one, two) = pair(&device, QpKind::Rc);
    let (from, to) = (Buffer::new(&device, pd, ALL), Buffer::new(&device, pd, PARENT));
    from.set(0, b"window");
    let window = device.alloc_mw(pd, MwKind::Type2).unwrap();
    let mut current = window.rkey;
    for round in 0..3 {
        let wanted = Rkey(current.0.with_variant(current.0.variant().wrapping_add(3)));
        two.done(SendOp::BindMw(bind(current, wanted, &to, 64)), &[]);
        current = wanted;
        let remote = RemoteAddr { address: to.at(round), rkey: current };
        one.done(SendOp::Write(remote), &from.sge(0, 6));
        assert_eq!(to.get(round as usize, 6), b"window");
        let ended = two.done(SendOp::LocalInv(current.0), &[]);
        assert_eq!(ended.opcode, WcOpcode::LocalInv);
    }
    let refused =
        one.run(SendOp::Write(RemoteAddr { address: to.at(0), rkey: current }), &from.sge(0, 6));
    assert_eq!(refused.status, WcStatus::RemAccessErr);
    device.dealloc_mw(window.handle).unwrap();
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn r_inv_12_a_peer_ends_a_window_with_its_send() {
    let (device, _stays) = open();
    let (pd, one, two) = pair(&device, QpKind::Rc);
    let (from, to) = (Buffer::new(&device, pd, ALL), Buffer::new(&device, pd, PARENT));
    let window = device.alloc_mw(pd, MwKind::Type2).unwrap();
    let key = Rkey(window.rkey.0.next());
    // The bind and the send that carries the key to the peer, in one chain (R-ORD-02).
    one.recv(1, &from.sge(512, 8));
    let chain = [
        SendWr::new(1, SendOp::BindMw(bind(window.rkey, key, &to, 64)), &[]).unsignaled(),
        SendWr::new(2, SendOp::Send, &[]),
    ];
    two.qp.post_send(&chain).unwrap();
    assert_eq!(one.next().status, WcStatus::Success);
    assert_eq!(two.next().wr_id, 2);
    two.recv(3, &to.sge(1024, 64));
    let chain_sge = from.sge(0, 4);
    let chain = [
        SendWr::new(4, SendOp::Write(RemoteAddr { address: to.at(0), rkey: key }), &chain_sge)
            .unsignaled(),
        SendWr::new(5, SendOp::SendInv(key), &chain_sge),
    ];
    one.qp.post_send(&chain).unwrap();
    let (sent, taken) = (one.next(), two.next());
    assert_eq!((sent.wr_id, sent.status), (5, WcStatus::Success));
    assert_eq!((taken.status, taken.invalidated), (WcStatus::Success, Some(key)), "{taken:?}");
    let refused =
        one.run(SendOp::Write(RemoteAddr { address: to.at(0), rkey: key }), &from.sge(0, 4));
    assert_eq!(refused.status, WcStatus::RemAccessErr);
    device.dealloc_mw(window.handle).unwrap();
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn keys_that_name_nothing_are_refused_before_libibverbs_is_asked() {
    let (device, _stays) = open();
    let (pd, one, _two) = pair(&device, QpKind::Rc);
    let parent = Buffer::new(&device, pd, PARENT);
    let (window1, window2) =
        (device.alloc_mw(pd, MwKind::Type1).unwrap(), device.alloc_mw(pd, MwKind::Type2).unwrap());
    let post = |op| one.qp.post_send(&[SendWr::new(1, op, &[])]).unwrap_err().error;
    let nothing = bind(Rkey(mkey_core::key::Key(0xffff_ff00)), window2.rkey, &parent, 8);
    assert!(matches!(post(SendOp::BindMw(nothing)).reason, Reason::Refused(_)));
    let mut elsewhere = bind(window2.rkey, window2.rkey, &parent, 8);
    elsewhere.mr.0 = mkey_core::key::Key(0xffff_ff00);
    assert!(matches!(post(SendOp::BindMw(elsewhere)).reason, Reason::Refused(_)));
    let wrong = [
        SendOp::BindMw(bind(window1.rkey, window1.rkey, &parent, 8)),
        SendOp::BindMw1(bind(window2.rkey, window2.rkey, &parent, 8)),
    ];
    for op in wrong {
        assert!(matches!(post(op).reason, Reason::NotHere { .. }));
    }
    device.dealloc_mw(window1.handle).unwrap();
    device.dealloc_mw(window2.handle).unwrap();
}
