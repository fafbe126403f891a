//! The device over made-up libraries: what no machine of ours does on demand.

use super::FakeDevice;
use crate::device::IbvDevice;
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::*;
use mkey_core::error::{Object, Reason};
use mkey_core::event::AsyncEvent;
use mkey_core::key::{Key, Lkey};
use mkey_core::queue_pair::{QpInit, QpKind};
use mkey_core::refusal::ManageRefusal;
use mkey_core::rights::Rights;
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::*;
use mkey_sys::types::*;
use std::time::Duration;

fn register(device: &IbvDevice, pd: PdHandle) -> mkey_core::error::Result<MrInfo> {
    let spec = MrSpec {
        address: HostAddr(0x1000),
        length: 0x1000,
        iova: None,
        rights: Rights::LOCAL_WRITE,
    };
    // SAFETY: the library is made up and touches no memory.
    unsafe { device.reg_mr(pd, &spec) }
}

fn pair(device: &IbvDevice) -> (PdHandle, CqHandle, QpInfo) {
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(16, None).unwrap();
    let qp = device.create_qp(pd, &QpInit::new(QpKind::Rc, cq)).unwrap();
    (pd, cq, qp)
}

#[test]
fn a_device_that_fails_is_an_event_then_errors_and_no_hang() {
    let fake = FakeDevice::plug_in("fatal");
    let device = fake.open();
    let (pd, cq, qp) = pair(&device);
    let (plane, queue) = (device.qp(qp.handle).unwrap(), device.cq(cq).unwrap());
    assert_eq!(device.get_async_event(Some(Duration::ZERO)).unwrap(), None);
    fake.script().completes = false;
    plane
        .post_send(&[SendWr::new(1, SendOp::Send, &[]), SendWr::new(2, SendOp::Send, &[])])
        .unwrap();
    let mut into = [Completion::BLANK; 4];
    assert_eq!(queue.poll(&mut into).unwrap(), 0);
    fake.send(IBV_EVENT_DEVICE_FATAL);
    assert_eq!(device.get_async_event(None).unwrap(), Some(AsyncEvent::DeviceFatal));
    // What the driver still completes is shown, and then that nothing more comes.
    fake.complete(1, IBV_WC_WR_FLUSH_ERR);
    assert_eq!(queue.poll(&mut into).unwrap(), 1);
    assert_eq!((into[0].wr_id, into[0].status), (1, WcStatus::WrFlushErr));
    assert_eq!(queue.poll(&mut into).unwrap_err().reason, Reason::DeviceGone);
    let refused = plane.post_send(&[SendWr::new(3, SendOp::Send, &[])]).unwrap_err();
    assert_eq!((refused.posted, refused.error.reason), (0, Reason::DeviceGone));
    let refused = plane.post_recv(&[RecvWr { wr_id: 4, sges: &[] }]).unwrap_err();
    assert_eq!(refused.error.reason, Reason::DeviceGone);
    fake.fail("reg_mr", &[libc::EIO]);
    let refused = register(&device, pd).unwrap_err();
    assert_eq!((refused.errno(), &refused.reason), (libc::EIO, &Reason::DeviceGone));
    assert!(refused.to_string().contains("open it again"), "{refused}");
    device.destroy_qp(qp.handle).unwrap();
    drop((device, plane, queue));
    assert_eq!(fake.script().log.last().unwrap(), "closed, 0 objects left");
}

#[test]
fn an_errno_of_a_registration_is_told_in_what_it_stands_for() {
    let fake = FakeDevice::plug_in("errnos");
    let device = fake.open();
    let pd = device.alloc_pd().unwrap();
    let fail = |errno| {
        fake.fail("reg_mr", &[errno]);
        register(&device, pd).unwrap_err().reason
    };
    assert_eq!(fail(libc::EPROTO), Reason::System { call: "ibv_reg_mr", errno: libc::EPROTO });
    // Nothing is mapped at the address, and this process says so.
    assert!(matches!(fail(libc::EFAULT), Reason::NotMapped { .. }));
    fake.fail("reg_mr", &[libc::EAGAIN, libc::EAGAIN]);
    let info = register(&device, pd).unwrap();
    device.dereg_mr(info.handle).unwrap();
    fake.fail("alloc_pd", &[libc::ENOMEM]);
    assert_eq!(device.alloc_pd().unwrap_err().errno(), libc::ENOMEM);
    fake.fail("create_cq", &[libc::EINVAL]);
    let reason = device.create_cq(65, None).unwrap_err().reason;
    assert!(matches!(reason, Reason::Argument { what: "depth", value: 65, .. }));
    let lacks = |capability| Reason::Unsupported { capability };
    assert_eq!(device.alloc_null_mr(pd).unwrap_err().reason, lacks(Capability::NullMr));
    assert_eq!(device.create_srq(pd, 1, 1).unwrap_err().reason, lacks(Capability::Srq));
    assert_eq!(device.alloc_mw(pd, MwKind::Type1).unwrap_err().reason, lacks(Capability::Window1));
    assert_eq!(device.alloc_fast_mr(pd, 1).unwrap_err().reason, lacks(Capability::FastMr));
    assert_eq!(
        device.advise_mr(pd, Advice::Prefetch, true, &[Sge::default()]).unwrap_err().reason,
        lacks(Capability::Advise)
    );
}

#[test]
fn registrations_beyond_max_mr_are_a_full_table() {
    let fake = FakeDevice::plug_in("full");
    fake.script().attr.max_mr = 2;
    let device = fake.open();
    let pd = device.alloc_pd().unwrap();
    let one = register(&device, pd).unwrap();
    register(&device, pd).unwrap();
    for errno in [libc::ENOMEM, libc::EINVAL] {
        fake.fail("reg_mr", &[errno]);
        let reason = register(&device, pd).unwrap_err().reason;
        assert_eq!(reason, Reason::TableFull { object: Object::Mr, most: 2 });
        assert!(reason.to_string().contains("destroy some"), "{reason}");
    }
    device.dereg_mr(one.handle).unwrap();
    register(&device, pd).unwrap();
}

#[test]
fn r_mwu_10_a_region_that_is_held_stays_and_can_be_ended_later() {
    let fake = FakeDevice::plug_in("held");
    let device = fake.open();
    let pd = device.alloc_pd().unwrap();
    let info = register(&device, pd).unwrap();
    // Drivers differ in the errno.
    for errno in [libc::EBUSY, libc::EINVAL] {
        fake.fail("dereg_mr", &[errno]);
        let refused = device.dereg_mr(info.handle).unwrap_err();
        assert!(matches!(refused.reason, Reason::InUse { object: Object::Mr, .. }), "{refused}");
    }
    device.dereg_mr(info.handle).unwrap();
    assert_eq!(device.dereg_mr(info.handle).unwrap_err().errno(), libc::ENOENT);
}

#[test]
fn r_rrg_01_a_failed_reregistration_says_how_it_left_the_region() {
    let fake = FakeDevice::plug_in("rereg");
    let device = fake.open();
    let pd = device.alloc_pd().unwrap();
    let info = register(&device, pd).unwrap();
    let change = MrChange { rights: Some(Rights::REMOTE_READ), ..MrChange::default() };
    // SAFETY: the library is made up and touches no memory.
    let rereg = |change: &MrChange| unsafe { device.rereg_mr(info.handle, change) };
    assert_eq!(rereg(&change).unwrap().handle, info.handle);
    for (errno, state) in [
        (libc::EOPNOTSUPP, ReregState::Unchanged),
        (libc::EACCES, ReregState::Refused),
        (libc::ENOMEM, ReregState::Lost),
    ] {
        fake.fail("rereg_mr", &[errno]);
        assert_eq!(rereg(&change).unwrap_err().state, state, "{errno}");
    }
    let wrong = MrChange { rights: Some(Rights::REMOTE_WRITE), ..MrChange::default() };
    assert_eq!(rereg(&wrong).unwrap_err().state, ReregState::Refused);
    device.dereg_mr(info.handle).unwrap();
}

#[test]
fn a_chain_that_is_refused_in_the_middle_says_how_far_it_came() {
    let fake = FakeDevice::plug_in("chain");
    let device = fake.open();
    let (_, _, qp) = pair(&device);
    let plane = device.qp(qp.handle).unwrap();
    fake.fail("post_send", &[0, 0, libc::ENOMEM]);
    let chain: Vec<_> = (0..5).map(|n| SendWr::new(n, SendOp::Send, &[])).collect();
    let refused = plane.post_send(&chain).unwrap_err();
    assert_eq!(refused.posted, 2);
    assert!(matches!(refused.error.reason, Reason::QueueFull { .. }), "{}", refused.error);
    // A work request that libibverbs never sees: those before it are posted.
    let missing = BindMw {
        mw: Default::default(),
        new_key: Default::default(),
        mr: Lkey::default(),
        address: IoAddr(0),
        length: 1,
        rights: Rights::empty(),
    };
    let chain = [SendWr::new(7, SendOp::Send, &[]), SendWr::new(8, SendOp::BindMw(missing), &[])];
    let refused = plane.post_send(&chain).unwrap_err();
    assert_eq!(refused.posted, 1);
    assert!(matches!(refused.error.reason, Reason::Refused(_)), "{}", refused.error);
    assert_eq!(fake.script().log.iter().filter(|line| line.contains("entries")).count(), 3);
}

#[test]
fn r_fr_06_mlx5_keys_are_written_by_work_requests_in_order_with_the_others() {
    let fake = FakeDevice::plug_in("mlx5");
    let device = fake.open();
    assert!(device.tried().fast_mr.works() && device.capabilities().max_fast_mr_entries == 16);
    assert!(device.notes().iter().any(|note| note.contains("not run on hardware")));
    let (pd, cq, qp) = pair(&device);
    let (plane, queue) = (device.qp(qp.handle).unwrap(), device.cq(cq).unwrap());
    let fast = device.alloc_fast_mr(pd, 2).unwrap();
    let new = fast.rkey.0.next();
    let entries = [
        Sge { address: IoAddr(0x5000), length: 10, lkey: Lkey(Key(0x300)) },
        Sge { address: IoAddr(0x9000), length: 20, lkey: Lkey(Key(0x300)) },
    ];
    let rights = Rights::LOCAL_WRITE | Rights::REMOTE_WRITE;
    let reg = RegMr { key: new, iova: IoAddr(0), rights, entries: &entries };
    fake.script().log.clear();
    let chain = [
        SendWr::new(1, SendOp::Send, &[]),
        SendWr::new(2, SendOp::RegMr(reg), &[]),
        SendWr::new(3, SendOp::Send, &[]),
        SendWr::new(4, SendOp::LocalInv(new), &[]),
    ];
    plane.post_send(&chain).unwrap();
    let list = format!("key {:#x}, rights 3, [(20480, 10), (36864, 20)]", new.0);
    let expected = [
        "post_send",
        "IBV_WR_SEND, 0 entries",
        "start",
        &list,
        "complete",
        "post_send",
        "IBV_WR_SEND, 0 entries",
        "post_send",
        "IBV_WR_LOCAL_INV, 0 entries",
    ];
    assert_eq!(fake.script().log, expected);
    let mut into = [Completion::BLANK; 8];
    assert_eq!(queue.poll(&mut into).unwrap(), 4);
    assert_eq!(into.map(|c| c.wr_id)[..4], [1, 2, 3, 4]);
    assert_eq!((into[1].opcode, into[1].status), (WcOpcode::RegMr, WcStatus::Success));

    let post = |reg: RegMr<'_>| {
        plane.post_send(&[SendWr::new(9, SendOp::RegMr(reg), &[])]).unwrap_err().error.reason
    };
    let many = [entries[0]; 3];
    let most = Reason::Refused(ManageRefusal::Entries { given: 3, most: 2 });
    assert_eq!(post(RegMr { entries: &many, ..reg }), most);
    assert!(matches!(post(RegMr { entries: &[], ..reg }), Reason::Refused(_)));
    assert!(matches!(
        post(RegMr { iova: IoAddr(8), ..reg }),
        Reason::Argument { what: "iova", .. }
    ));
    assert!(matches!(
        post(RegMr { rights: Rights::REMOTE_WRITE, ..reg }),
        Reason::InvalidRights { .. }
    ));
    assert!(matches!(post(RegMr { key: Key(0xffff_0000), ..reg }), Reason::Refused(_)));
    fake.fail("complete", &[libc::EINVAL]);
    assert!(matches!(post(reg), Reason::System { call: "ibv_wr_complete", .. }));
    assert!(matches!(device.alloc_fast_mr(pd, 17).unwrap_err().reason, Reason::Argument { .. }));
    device.dereg_mr(fast.handle).unwrap();
    drop((device, plane, queue));
    assert_eq!(fake.script().log.last().unwrap(), "closed, 0 objects left");
}

#[test]
fn a_kernel_that_does_not_retag_mlx5_keys_gets_them_as_they_were_made() {
    let fake = FakeDevice::plug_in("mlx5");
    let device = fake.open();
    let (pd, _, qp) = pair(&device);
    let plane = device.qp(qp.handle).unwrap();
    fake.fail("create_mkey with tag", &[libc::EOPNOTSUPP, libc::EOPNOTSUPP]);
    let fast = device.alloc_fast_mr(pd, 2).unwrap();
    let entries = [Sge::default()];
    let reg = |key| RegMr { key, iova: IoAddr(0), rights: Rights::empty(), entries: &entries };
    let post = |key| plane.post_send(&[SendWr::new(9, SendOp::RegMr(reg(key)), &[])]);
    let refused = post(fast.rkey.0.next()).unwrap_err().error;
    assert!(matches!(refused.reason, Reason::Argument { what: "key", .. }), "{refused}");
    post(fast.rkey.0).unwrap();
    fake.fail("create_mkey with tag", &[libc::EOPNOTSUPP, libc::EOPNOTSUPP]);
    fake.fail("create_mkey", &[libc::EOPNOTSUPP]);
    let lacks = Reason::Unsupported { capability: Capability::FastMr };
    assert_eq!(device.alloc_fast_mr(pd, 2).unwrap_err().reason, lacks);
}

#[test]
fn queue_pairs_of_mlx5_hold_the_longest_list_and_promise_only_what_was_asked() {
    let fake = FakeDevice::plug_in("mlx5");
    let device = fake.open();
    let (_, cq, _) = pair(&device);
    assert!(fake.script().log.iter().any(|line| line == "inline 368"));
    // Without such queue pairs a plain one is made, which refuses fast registration.
    fake.fail("mlx5dv_create_qp", &[libc::EOPNOTSUPP]);
    let pd = device.alloc_pd().unwrap();
    let qp = device.create_qp(pd, &QpInit::new(QpKind::Rc, cq)).unwrap();
    let fast = device.alloc_fast_mr(pd, 1).unwrap();
    let entries = [Sge::default()];
    let reg =
        RegMr { key: fast.rkey.0, iova: IoAddr(0), rights: Rights::empty(), entries: &entries };
    let plane = device.qp(qp.handle).unwrap();
    let refused = plane.post_send(&[SendWr::new(1, SendOp::RegMr(reg), &[])]).unwrap_err();
    let lacks = Reason::Unsupported { capability: Capability::FastMr };
    assert_eq!(refused.error.reason, lacks);
}

#[test]
fn all_that_is_left_ends_with_the_device_users_first() {
    let fake = FakeDevice::plug_in("mlx5");
    let device = fake.open();
    let (pd, ..) = pair(&device);
    register(&device, pd).unwrap();
    device.alloc_fast_mr(pd, 1).unwrap();
    fake.script().log.clear();
    drop(device);
    let log = fake.script().log.clone();
    let place = |verb: &str| log.iter().position(|line| line == verb).unwrap();
    assert!(place("destroy_qp") < place("destroy_cq"));
    assert!(place("dereg_mr").max(place("destroy_mkey")) < place("dealloc_pd"));
    assert_eq!(log.last().unwrap(), "closed, 0 objects left");
}
