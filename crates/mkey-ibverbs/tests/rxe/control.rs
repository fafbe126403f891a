//! The control plane: what is in use, stale, too much, or missing.

use crate::side::*;
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::*;
use mkey_core::error::{Object, Reason};
use mkey_core::queue_pair::{QpInit, QpKind, QpModify, QpState};
use mkey_core::work::*;
use mkey_ibverbs::{IbvDevice, Trial};
use std::time::Duration;

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn the_device_is_listed_and_its_capabilities_are_tried() {
    let (device, _stays) = open();
    let listed = mkey_ibverbs::list().unwrap();
    assert!(listed.iter().any(|listed| listed.name == NAME), "{listed:?}");
    let (caps, tried) = (device.capabilities(), device.tried());
    println!("{caps:#?}\n{tried:#?}\n{:?}\n{:?}", device.port(), device.notes());
    assert_eq!((caps.driver.as_str(), caps.software), ("rxe", true));
    assert!(caps.max_mr > 1000 && caps.max_mw > 1000 && caps.max_qp > 100 && caps.max_inline >= 64);
    assert!(caps.window1 && caps.window2 && caps.atomics && caps.srq && !caps.zero_based);
    assert!(tried.zero_based.works());
    for works in [&tried.mr, &tried.window1, &tried.window2, &tried.rc, &tried.uc, &tried.ud] {
        assert_eq!(*works, Trial::Works, "{tried:?}");
    }
    assert_eq!(caps.max_fast_mr_entries, 0);
    assert!(!caps.null_mr && !caps.dma_buf && !caps.odp.implicit);
    assert_eq!(caps.odp.explicit, tried.on_demand.works());
    assert_eq!(caps.odp.explicit, caps.odp.rc.contains(OdpOps::WRITE | OdpOps::READ));
    assert!(device.notes().iter().any(|note| note.contains("fast registration")));
    // Trying left nothing behind.
    let pd = device.alloc_pd().unwrap();
    device.dealloc_pd(pd).unwrap();
    let port = device.port();
    assert!(port.active && port.active_mtu >= 1024, "{port:?}");
    assert_eq!(port.gid.0[10..], [0xff, 0xff, 192, 0, 2, 1]);
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_device_that_was_given_other_words_is_still_known() {
    let (_device, _alone) = open_alone();
    let words = format!("/sys/class/infiniband/{NAME}/node_desc");
    let before = std::fs::read_to_string(&words).unwrap();
    std::fs::write(&words, "storage, left").unwrap();
    let renamed = std::fs::read_to_string(&words).unwrap();
    let device = IbvDevice::open(NAME);
    std::fs::write(&words, before.trim()).unwrap();
    assert_eq!(renamed.trim(), "storage, left");
    let device = device.unwrap_or_else(|error| panic!("{error}"));
    let caps = device.capabilities();
    assert_eq!((caps.driver.as_str(), caps.software), ("rxe", true));
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_device_that_is_not_there_is_named_with_those_that_are() {
    let (_device, _stays) = open();
    let error = IbvDevice::open("mlx5_9").unwrap_err();
    assert_eq!(error.errno(), libc::ENODEV);
    assert!(error.to_string().contains(NAME), "{error}");
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn r_reg_16_a_domain_with_anything_in_it_is_kept_and_says_what() {
    let (device, _stays) = open();
    let pd = device.alloc_pd().unwrap();
    let held = |what: &str| {
        let refused = device.dealloc_pd(pd).unwrap_err();
        assert!(matches!(refused.reason, Reason::InUse { object: Object::Pd, .. }), "{refused}");
        assert!(refused.to_string().contains(what), "{refused}");
    };
    let buffer = Buffer::new(&device, pd, ALL);
    held("memory regions: 1");
    drop(buffer);
    let window = device.alloc_mw(pd, MwKind::Type2).unwrap();
    held("memory windows: 1");
    device.dealloc_mw(window.handle).unwrap();
    let srq = device.create_srq(pd, 4, 1).unwrap();
    held("shared receive queues: 1");
    device.destroy_srq(srq).unwrap();
    let ah = device.create_ah(pd, &path(&device)).unwrap();
    held("address handles: 1");
    device.destroy_ah(ah).unwrap();
    let side = Side::new(&device, pd, QpKind::Rc, |_| ());
    held("queue pairs: 1");
    let refused = device.destroy_cq(side.cq_handle).unwrap_err();
    assert!(refused.to_string().contains("queue pairs use it: 1"), "{refused}");
    device.destroy_qp(side.info.handle).unwrap();
    device.destroy_cq(side.cq_handle).unwrap();
    device.dealloc_pd(pd).unwrap();
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn r_err_10_stale_handles_name_nothing() {
    let (device, _stays) = open();
    let pd = device.alloc_pd().unwrap();
    let side = Side::new(&device, pd, QpKind::Rc, |_| ());
    device.destroy_qp(side.info.handle).unwrap();
    device.destroy_cq(side.cq_handle).unwrap();
    device.dealloc_pd(pd).unwrap();
    let errno = |result: mkey_core::error::Result<()>| result.unwrap_err().errno();
    assert_eq!(errno(device.destroy_qp(side.info.handle)), libc::ENOENT);
    assert_eq!(errno(device.destroy_cq(side.cq_handle)), libc::ENOENT);
    assert_eq!(errno(device.dealloc_pd(pd)), libc::ENOENT);
    assert_eq!(errno(device.dereg_mr(MrHandle(99))), libc::ENOENT);
    assert_eq!(errno(device.destroy_ah(AhHandle(99))), libc::ENOENT);
    assert_eq!(errno(device.query_qp(side.info.handle).map(drop)), libc::ENOENT);
    assert_eq!(errno(device.alloc_mw(pd, MwKind::Type2).map(drop)), libc::ENOENT);
    // The data planes outlive what they were of, and say so.
    let refused = side.qp.post_send(&[SendWr::new(1, SendOp::Send, &[])]).unwrap_err();
    assert_eq!(refused.error.errno(), libc::ENOENT);
    assert_eq!(side.qp.post_recv(&[]).unwrap_err().error.errno(), libc::ENOENT);
    assert_eq!(side.cq.poll(&mut [Completion::BLANK]).unwrap_err().errno(), libc::ENOENT);
    assert_eq!(side.cq.request_notify(false).unwrap_err().errno(), libc::ENOENT);
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_transition_that_lacks_an_attribute_names_it() {
    let (device, _stays) = open();
    let pd = device.alloc_pd().unwrap();
    let side = Side::new(&device, pd, QpKind::Rc, |_| ());
    let modify = |change: QpModify| device.modify_qp(side.info.handle, &change);
    let refused =
        modify(QpModify { state: Some(QpState::Rts), ..QpModify::default() }).unwrap_err();
    let expected = Reason::QpTransition { from: QpState::Reset, to: QpState::Rts, missing: None };
    assert_eq!(refused.reason, expected);
    modify(QpModify::init(ALL & !mkey_core::rights::Rights::LOCAL_WRITE)).unwrap();
    let rtr = QpModify::rtr(path(&device), side.info.qp_num, 1024, 7);
    let refused = modify(QpModify { dest_qp_num: None, ..rtr.clone() }).unwrap_err();
    assert!(refused.to_string().contains("INIT to RTR without dest_qp_num"), "{refused}");
    modify(rtr).unwrap();
    let refused = modify(QpModify { max_rd_atomic: None, ..QpModify::rts(9) }).unwrap_err();
    assert!(refused.to_string().contains("RTR to RTS without max_rd_atomic"), "{refused}");
    modify(QpModify::rts(9)).unwrap();
    let attr = device.query_qp(side.info.handle).unwrap();
    assert_eq!((attr.state, attr.path_mtu, attr.rq_psn, attr.sq_psn), (QpState::Rts, 1024, 7, 9));
    assert_eq!(attr.dest_qp_num, side.info.qp_num);
    assert_eq!(attr.ah.map(|ah| ah.gid), Some(device.port().gid));
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn what_passes_a_limit_is_told_which() {
    let (device, _stays) = open();
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(4, None).unwrap());
    let caps = device.capabilities();
    let too_many = QpInit { max_send_sge: caps.max_sge + 1, ..QpInit::new(QpKind::Rc, cq) };
    let refused = device.create_qp(pd, &too_many).unwrap_err();
    assert!(matches!(refused.reason, Reason::Argument { what: "max_send_sge", .. }), "{refused}");
    for depth in [0, caps.max_cqe + 1, u32::MAX] {
        let refused = device.create_cq(depth, None).unwrap_err();
        assert!(matches!(refused.reason, Reason::Argument { what: "depth", .. }), "{refused}");
    }
    let refused = device.create_srq(pd, u32::MAX, 1).unwrap_err();
    assert!(matches!(refused.reason, Reason::Argument { what: "max_wr", .. }), "{refused}");
    let other_port = AhAttr { port: 2, ..path(&device) };
    assert!(matches!(
        device.create_ah(pd, &other_port).unwrap_err().reason,
        Reason::Argument { .. }
    ));
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn more_objects_than_the_device_has_room_for_are_a_full_table() {
    // All of one kind, so that no other test may need one meanwhile.
    let (device, _alone) = open_alone();
    let (pd, path) = (device.alloc_pd().unwrap(), path(&device));
    let most = device.capabilities().max_ah;
    let mut made = Vec::new();
    let refused = loop {
        match device.create_ah(pd, &path) {
            Ok(ah) => made.push(ah),
            Err(refused) => break refused,
        }
        assert!(made.len() <= most as usize);
    };
    println!("{refused}, after {} of {most}", made.len());
    let expected = Reason::TableFull { object: Object::Ah, most: u64::from(most) };
    assert_eq!(refused.reason, expected);
    for ah in made {
        device.destroy_ah(ah).unwrap();
    }
    device.dealloc_pd(pd).unwrap();
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn a_queue_pair_is_destroyed_under_those_who_post_to_it() {
    let (device, _stays) = open();
    for _ in 0..20 {
        let (pd, one, two) = pair(&device, QpKind::Rc);
        let buffer = Buffer::new(&device, pd, ALL);
        let sge = buffer.sge(0, 8);
        std::thread::scope(|scope| {
            let post = || {
                let mut posted = 0u64;
                loop {
                    let write = SendWr::new(posted, SendOp::Write(buffer.remote(64)), &sge);
                    match one.qp.post_send(&[write]) {
                        Ok(()) => posted += 1,
                        Err(refused) if refused.error.errno() == libc::ENOENT => return posted,
                        Err(refused) => {
                            assert_eq!(refused.error.errno(), libc::ENOMEM, "{}", refused.error);
                            let _ = one.cq.poll(&mut [Completion::BLANK; 8]).unwrap();
                        }
                    }
                }
            };
            let posting = [scope.spawn(post), scope.spawn(post)];
            let mut polled = [Completion::BLANK; 8];
            while one.cq.poll(&mut polled).unwrap() == 0 {
                std::thread::yield_now();
            }
            device.destroy_qp(one.info.handle).unwrap();
            assert!(posting.into_iter().map(|posts| posts.join().unwrap()).sum::<u64>() > 0);
        });
        device.destroy_qp(two.info.handle).unwrap();
    }
}

#[test]
#[ignore = "needs a kernel's RDMA device: cargo xtask test --only vm"]
fn objects_end_with_their_device() {
    let (device, _stays) = open();
    let (pd, one, _two) = pair(&device, QpKind::Rc);
    let Side { qp, cq, device: clone, .. } = one;
    drop((device, clone, _two));
    let _ = pd;
    assert_eq!(qp.post_recv(&[]).unwrap_err().error.errno(), libc::ENOENT);
    assert_eq!(cq.poll(&mut [Completion::BLANK]).unwrap_err().errno(), libc::ENOENT);
    let again = IbvDevice::open(NAME).unwrap();
    assert_eq!(again.get_async_event(Some(Duration::ZERO)).unwrap(), None);
    assert!(again.qp(QpHandle(1)).is_err());
}
