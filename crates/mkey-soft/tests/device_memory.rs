//! Memory of the device itself.

mod common;

use common::*;
use mkey_core::address::IoAddr;
use mkey_core::device::{Device, MrChange};
use mkey_core::error::Reason;
use mkey_core::queue_pair::QpKind;
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{LocProtErr, RemAccessErr, Success};
use mkey_core::work::{RemoteAddr, SendOp, Sge};

const RIGHTS: Rights = Rights::ZERO_BASED
    .union(Rights::LOCAL_WRITE)
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::REMOTE_ATOMIC);

#[test]
fn peers_and_the_processor_see_the_same_bytes() {
    let (a, b) = pair(QpKind::Rc);
    let from = a.buffer(ALL);
    let device = &b.device;
    let dm = device.alloc_dm(8192).unwrap();
    // It counts from the part's own start, wherever in a page that is.
    let mr = device.reg_dm_mr(b.pd, dm, 100, 1000, RIGHTS).unwrap();
    let remote = |at| RemoteAddr { address: IoAddr(at), rkey: mr.rkey };
    let mut bytes = [1; 16];
    device.read_dm(dm, 100, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 16], "it begins with zeros");
    from.set(0, 0xa5);
    a.post(1, SendOp::Write(remote(4)), &[from.sge(0, 1)]);
    assert_eq!(a.done(), [(1, Success)]);
    device.read_dm(dm, 100, &mut bytes).unwrap();
    assert_eq!(bytes[..8], [0, 0, 0, 0, 0xa5, 0, 0, 0]);
    device.write_dm(dm, 104, &[1, 2, 3, 4]).unwrap();
    a.post(2, SendOp::Read(remote(4)), &[from.sge(8, 4)]);
    assert_eq!(a.done(), [(2, Success)]);
    assert_eq!([8, 9, 10, 11].map(|at| from.get(at)), [1, 2, 3, 4]);
    // The owner's own work reaches it by the lkey.
    let own = [Sge { address: IoAddr(4), length: 4, lkey: mr.lkey }];
    let target = a.buffer(ALL);
    b.post(3, SendOp::Write(target.remote(0)), &own);
    assert_eq!((b.done(), target.get(3)), (vec![(3, Success)], 4));
    let beyond = [Sge { address: IoAddr(997), length: 4, lkey: mr.lkey }];
    b.post(4, SendOp::Write(target.remote(0)), &beyond);
    assert_eq!(b.done(), [(4, LocProtErr)]);
}

#[test]
fn a_region_is_the_part_and_not_a_byte_more() {
    let (a, b) = pair(QpKind::Rc);
    let from = a.buffer(ALL);
    let dm = b.device.alloc_dm(4096).unwrap();
    let mr = b.device.reg_dm_mr(b.pd, dm, 0, 64, RIGHTS).unwrap();
    let last = RemoteAddr { address: IoAddr(57), rkey: mr.rkey };
    a.post(1, SendOp::Write(last), &[from.sge(0, 8)]);
    assert_eq!(a.done(), [(1, RemAccessErr)]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let (_a, b) = pair(QpKind::Rc);
    let device = &b.device;
    let most = device.capabilities().max_dm_size;
    assert_eq!(device.alloc_dm(0).unwrap_err().errno(), 22);
    assert_eq!(device.alloc_dm(most + 1).unwrap_err().errno(), 12);
    let dm = device.alloc_dm(most).unwrap();
    assert_eq!(device.alloc_dm(1).unwrap_err().errno(), 12, "nothing is left");
    assert_eq!(device.write_dm(dm, most, &[0; 4]).unwrap_err().errno(), 14);
    assert_eq!(device.write_dm(dm, u64::MAX - 3, &[0; 4]).unwrap_err().errno(), 14);
    assert_eq!(device.write_dm(dm, 1, &[0; 4]).unwrap_err().errno(), 22);
    assert_eq!(device.write_dm(dm, 0, &[0; 3]).unwrap_err().errno(), 22);
    let reg = |offset, length, rights| device.reg_dm_mr(b.pd, dm, offset, length, rights);
    assert_eq!(reg(1, most, RIGHTS).unwrap_err().errno(), 14);
    assert_eq!(reg(0, 8, RIGHTS.difference(Rights::ZERO_BASED)).unwrap_err().errno(), 22);
    assert_eq!(reg(0, 8, RIGHTS | Rights::ON_DEMAND).unwrap_err().errno(), 22);
    assert_eq!(reg(0, 8, RIGHTS | Rights::MW_BIND).unwrap_err().errno(), 22);
    let mr = reg(0, 8, RIGHTS).unwrap();
    let again = MrChange { rights: Some(RIGHTS), ..MrChange::default() };
    // SAFETY: it is refused.
    let refused = unsafe { device.rereg_mr(mr.handle, &again) }.unwrap_err();
    assert_eq!(refused.error.errno(), 22);
    assert!(matches!(device.free_dm(dm).unwrap_err().reason, Reason::InUse { .. }));
    device.dereg_mr(mr.handle).unwrap();
    device.free_dm(dm).unwrap();
    assert_eq!(device.free_dm(dm).unwrap_err().errno(), 2);
    device.alloc_dm(most).unwrap();
}
