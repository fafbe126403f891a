//! The device over made-up libraries: what no machine of ours does on demand.

use super::{FakeDevice, sleeps};
use crate::device::IbvDevice;
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::*;
use mkey_core::error::{Object, Reason};
use mkey_core::event::AsyncEvent;
use mkey_core::key::{Key, Lkey, Rkey};
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

/// A bind that names neither window nor region.
const NO_BIND: BindMw = BindMw {
    mw: Rkey(Key(0)),
    new_key: Rkey(Key(0)),
    mr: Lkey(Key(0)),
    address: IoAddr(0),
    length: 1,
    rights: Rights::empty(),
};

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
fn all_who_wait_for_a_device_hear_that_it_failed() {
    let fake = FakeDevice::plug_in("waited");
    let device = fake.open();
    let channel = device.create_comp_channel().unwrap();
    let (told, tells) = std::sync::mpsc::channel();
    let wait = |what: fn(&IbvDevice, ChannelHandle) -> Option<Reason>| {
        let (device, told) = (device.clone(), told.clone());
        std::thread::spawn(move || told.send(what(&device, channel)).unwrap());
    };
    let event: fn(&IbvDevice, ChannelHandle) -> Option<Reason> = |device, _| {
        let event = device.get_async_event(None);
        event.map(|event| assert_eq!(event, Some(AsyncEvent::DeviceFatal))).err().map(|e| e.reason)
    };
    wait(event);
    wait(event);
    wait(|device, channel| device.get_cq_event(channel, None).err().map(|error| error.reason));
    fake.send(IBV_EVENT_DEVICE_FATAL);
    // One takes the event.
    let mut heard: Vec<_> = (0..3)
        .map(|_| tells.recv_timeout(Duration::from_secs(60)).expect("one waits for ever"))
        .collect();
    heard.sort_by_key(Option::is_some);
    assert_eq!(heard, [None, Some(Reason::DeviceGone), Some(Reason::DeviceGone)]);
    // Whoever comes later, too.
    assert_eq!(event(&device, channel), Some(Reason::DeviceGone));
    device.destroy_comp_channel(channel).unwrap();
}

#[test]
fn a_device_is_gone_if_it_errs_and_its_folder_is_gone_and_not_by_its_name() {
    let refusal = |fake: &FakeDevice, errno| {
        let device = fake.open();
        let (_, cq, qp) = pair(&device);
        fake.fail("post_send", &[errno]);
        let plane = device.qp(qp.handle).unwrap();
        let refused = plane.post_send(&[SendWr::new(1, SendOp::Send, &[])]).unwrap_err();
        (refused.error.reason, device.cq(cq).unwrap().poll(&mut [Completion::BLANK]).is_err())
    };
    let system = |errno| Reason::System { call: "ibv_post_send", errno };
    // The kernel has no device of this name: it may have been given another.
    let renamed = FakeDevice::plug_in("renamed");
    for errno in [libc::EINVAL, libc::EIO] {
        assert_eq!(refusal(renamed, errno), (system(errno), false));
    }
    let pulled = FakeDevice::plug_in("pulled");
    assert_eq!(refusal(pulled, libc::EINVAL), (system(libc::EINVAL), false));
    for errno in [libc::EIO, libc::ENODEV] {
        assert_eq!(refusal(pulled, errno), (Reason::DeviceGone, true));
    }
}

#[test]
fn a_negative_answer_of_polling_is_shown_and_is_no_errno() {
    let fake = FakeDevice::plug_in("negative");
    let device = fake.open();
    let (_, cq, _) = pair(&device);
    fake.fail("poll_cq", &[-2]);
    let refused = device.cq(cq).unwrap().poll(&mut [Completion::BLANK]).unwrap_err();
    assert_eq!(refused.reason, Reason::System { call: "ibv_poll_cq", errno: libc::EIO });
    assert!(refused.to_string().contains("answer -2"), "{refused}");
}

#[test]
fn why_mlx5_has_no_fast_registration_is_told() {
    let told = |device: &IbvDevice, why: &str| {
        let notes = device.notes();
        assert_eq!(device.capabilities().max_fast_mr_entries, 0);
        let told = notes.iter().any(|note| note.contains("UMR") && note.contains(why));
        assert!(told, "{why} is not in {notes:?}");
        assert!(!notes.iter().any(|note| note.contains("user space")), "{notes:?}");
    };
    told(&FakeDevice::plug_in("mlx5").open_plain("no libmlx5.so.1"), "no libmlx5.so.1");
    let closed = FakeDevice::plug_in("mlx5");
    closed.fail("mlx5dv_open_device", &[libc::EPERM]);
    told(&closed.open(), "mlx5dv_open_device with DEVX: Operation not permitted");
    let old = FakeDevice::plug_in("mlx5");
    old.fail("create_mkey with tag", &[libc::EOPNOTSUPP, libc::EOPNOTSUPP]);
    told(&old.open(), "a memory key: tried, not offered");
    // Of other devices it is no matter whether there is a libmlx5.
    let other = FakeDevice::plug_in("other").open_plain("no libmlx5.so.1");
    assert!(other.notes().iter().all(|note| !note.contains("mlx5")), "{:?}", other.notes());
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
    let chain = [SendWr::new(7, SendOp::Send, &[]), SendWr::new(8, SendOp::BindMw(NO_BIND), &[])];
    let refused = plane.post_send(&chain).unwrap_err();
    assert_eq!(refused.posted, 1);
    assert!(matches!(refused.error.reason, Reason::Refused(_)), "{}", refused.error);
    assert_eq!(fake.script().log.iter().filter(|line| line.contains("entries")).count(), 3);
}

#[test]
fn a_refusal_that_names_no_request_is_one_of_the_call() {
    let fake = FakeDevice::plug_in("silent");
    let device = fake.open();
    let (_, _, qp) = pair(&device);
    let plane = device.qp(qp.handle).unwrap();
    fake.script().names_bad = false;
    fake.fail("post_send", &[libc::EINVAL]);
    let chain: Vec<_> = (0..5).map(|n| SendWr::new(n, SendOp::Send, &[])).collect();
    let refused = plane.post_send(&chain).unwrap_err();
    assert_eq!(refused.posted, 0);
    assert!(refused.to_string().contains("wr_id 0x0"), "{refused}");
}

#[test]
fn receives_before_one_that_is_no_receive_are_posted() {
    // More entries than a work request has a number for: nothing of them is looked at.
    const COUNT: usize = 1 << 31;
    let (length, none) = (COUNT * size_of::<Sge>(), std::ptr::null_mut());
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, which nothing needs.
    let many = unsafe { libc::mmap(none, length, libc::PROT_READ, flags, -1, 0) };
    assert_ne!(many, libc::MAP_FAILED);
    // SAFETY: as many entries, each of them zeroes, mapped until the end of this program.
    let many = unsafe { std::slice::from_raw_parts(many.cast::<Sge>(), COUNT) };
    let fake = FakeDevice::plug_in("receive");
    let device = fake.open();
    let (_, _, qp) = pair(&device);
    let plane = device.qp(qp.handle).unwrap();
    fake.script().log.clear();
    let chain = [(1, &[][..]), (2, &[]), (3, many), (4, &[])];
    let chain = chain.map(|(wr_id, sges)| RecvWr { wr_id, sges });
    let refused = plane.post_recv(&chain).unwrap_err();
    assert_eq!(refused.posted, 2);
    assert!(matches!(refused.error.reason, Reason::TooManySges { given: COUNT, .. }), "{refused}");
    assert_eq!(fake.script().log, ["receive 1", "receive 2"]);
}

#[test]
fn advice_blames_the_range_that_is_at_fault() {
    let fake = FakeDevice::plug_in("advice");
    let device = fake.open();
    let pd = device.alloc_pd().unwrap();
    assert!(!device.tried().advise.works());
    fake.script().unknown_lkey = Some(7);
    let range = |key| Sge { address: IoAddr(0x1000), length: 1, lkey: Lkey(Key(key)) };
    let advise = |ranges: &[Sge]| device.advise_mr(pd, Advice::Prefetch, true, ranges);
    advise(&[range(5), range(6)]).unwrap();
    for ranges in [&[range(7)][..], &[range(5), range(7), range(6)]] {
        let reason = advise(ranges).unwrap_err().reason;
        assert_eq!(reason, Reason::UnknownLkey { key: Key(7) });
    }
}

#[test]
fn what_is_refused_for_want_of_room_is_tried_again() {
    let fake = FakeDevice::plug_in("mlx5");
    fake.fail("create_mkey with tag", &[libc::ENOMEM]);
    let device = fake.open();
    let before = device.capabilities();
    assert_eq!(before.max_fast_mr_entries, 0);
    assert!(device.tried().fast_mr.works());
    assert_eq!(device.capabilities().max_fast_mr_entries, 16);
    assert_eq!(before.max_fast_mr_entries, 0, "what was said stays as it was");
    // All is known now, and stays so.
    fake.script().log.clear();
    assert!(device.tried().fast_mr.works());
    assert_eq!(fake.script().log, [""; 0]);
}

#[test]
fn a_refused_queue_pair_tries_nothing_else() {
    let fake = FakeDevice::plug_in("refused");
    let device = fake.open();
    let (pd, cq, _) = pair(&device);
    fake.script().log.clear();
    let refusal = |init: QpInit| {
        fake.fail("create_qp", &[libc::EINVAL]);
        device.create_qp(pd, &init).unwrap_err().reason
    };
    let (max_send_wr, max_recv_wr, max_send_sge, max_recv_sge) = (16, 16, 4, 4);
    let init = QpInit::new(QpKind::Rc, cq);
    let init = QpInit { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, ..init };
    let deep = refusal(QpInit { max_send_wr: 17, ..init });
    assert!(matches!(deep, Reason::Argument { what: "max_send_wr", value: 17, .. }), "{deep:?}");
    // How much goes inline is not known yet.
    let wide = refusal(QpInit { max_inline: 9000, ..init });
    assert!(matches!(wide, Reason::System { errno: libc::EINVAL, .. }), "{wide:?}");
    assert_eq!(fake.script().log, ["create_qp"; 2]);
    assert_eq!(device.capabilities().max_inline, 8192);
    let wide = refusal(QpInit { max_inline: 9000, ..init });
    assert!(matches!(wide, Reason::Argument { what: "max_inline", .. }), "{wide:?}");
}

#[test]
fn r_reg_03_the_flag_of_zero_based_regions_is_kept_from_drivers() {
    let fake = FakeDevice::plug_in("zero");
    let device = fake.open();
    let pd = device.alloc_pd().unwrap();
    let info = register(&device, pd).unwrap();
    let rights = Some(Rights::LOCAL_WRITE | Rights::ZERO_BASED);
    // SAFETY: the library is made up and touches no memory.
    unsafe { device.rereg_mr(info.handle, &MrChange { rights, ..MrChange::default() }) }.unwrap();
    assert_eq!(fake.script().log.last().unwrap(), "access 0x1");
}

#[test]
fn a_domain_does_not_end_under_a_key_that_is_being_made() {
    let fake = FakeDevice::plug_in("mlx5");
    let device = fake.open();
    let pd = device.alloc_pd().unwrap();
    let (say, said) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // The key is made, and can not be kept yet.
        let handles = device.core.objects.mrs.handles.write();
        let makes = scope.spawn(|| {
            // SAFETY: takes nothing.
            say.send(unsafe { libc::gettid() }).unwrap();
            device.alloc_fast_mr(pd, 1)
        });
        let maker = said.recv().unwrap();
        let made = || fake.script().log.iter().any(|line| line == "create_mkey with tag");
        while !made() || !sleeps(maker) {
            std::thread::yield_now();
        }
        let ends = scope.spawn(|| {
            // SAFETY: takes nothing.
            say.send(unsafe { libc::gettid() }).unwrap();
            device.dealloc_pd(pd)
        });
        let ender = said.recv().unwrap();
        while !ends.is_finished() && !sleeps(ender) {
            std::thread::yield_now();
        }
        drop(handles);
        makes.join().unwrap().unwrap();
        let refused = ends.join().unwrap().unwrap_err();
        assert!(matches!(refused.reason, Reason::InUse { object: Object::Pd, .. }), "{refused}");
    });
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
    let complete = Reason::System { call: "ibv_wr_complete", errno: libc::EINVAL };
    assert_eq!(post(reg), complete);
    assert!(matches!(device.alloc_fast_mr(pd, 17).unwrap_err().reason, Reason::Argument { .. }));
    device.dereg_mr(fast.handle).unwrap();
    drop((device, plane, queue));
    assert_eq!(fake.script().log.last().unwrap(), "closed, 0 objects left");
}

#[test]
fn mlx5_keys_that_can_not_be_retagged_are_no_fast_registration() {
    let fake = FakeDevice::plug_in("mlx5");
    let device = fake.open();
    let pd = device.alloc_pd().unwrap();
    let lacks = Reason::Unsupported { capability: Capability::FastMr };
    // Ending by the peer is given up where it is not offered, and only then.
    fake.fail("create_mkey with tag", &[libc::EOPNOTSUPP]);
    device.alloc_fast_mr(pd, 2).unwrap();
    fake.fail("create_mkey with tag", &[libc::EOPNOTSUPP, libc::EOPNOTSUPP]);
    assert_eq!(device.alloc_fast_mr(pd, 2).unwrap_err().reason, lacks);
    fake.script().log.clear();
    fake.fail("create_mkey with tag", &[libc::ENOMEM]);
    let refused = device.alloc_fast_mr(pd, 2).unwrap_err();
    assert!(matches!(refused.reason, Reason::System { errno: libc::ENOMEM, .. }), "{refused}");
    assert_eq!(fake.script().log, ["create_mkey with tag"]);
    // A device of which no key can be retagged does not offer it.
    let fake = FakeDevice::plug_in("mlx5");
    fake.fail("create_mkey with tag", &[libc::EOPNOTSUPP, libc::EOPNOTSUPP]);
    let device = fake.open();
    assert_eq!(device.capabilities().max_fast_mr_entries, 0);
    assert!(!device.tried().fast_mr.works());
}

/// Fast registration to be tried with: a device, its region and the queue pair's data plane.
fn fast(fake: &FakeDevice) -> (std::sync::Arc<IbvDevice>, MrInfo, crate::IbvQp) {
    let device = fake.open();
    let (pd, _, qp) = pair(&device);
    let (fast, plane) = (device.alloc_fast_mr(pd, 2).unwrap(), device.qp(qp.handle).unwrap());
    (device, fast, plane)
}

fn registration<'a>(fast: &MrInfo, rights: Rights) -> SendWr<'a> {
    let key = fast.rkey.0.next();
    const ENTRIES: &[Sge] = &[Sge { address: IoAddr(0x5000), length: 10, lkey: Lkey(Key(0x300)) }];
    SendWr::new(9, SendOp::RegMr(RegMr { key, iova: IoAddr(0), rights, entries: ENTRIES }), &[])
}

#[test]
fn a_full_queue_is_told_of_fast_registration_as_of_other_work() {
    let fake = FakeDevice::plug_in("mlx5");
    let (_device, fast, plane) = fast(fake);
    fake.fail("complete", &[libc::ENOMEM]);
    let refused = plane.post_send(&[registration(&fast, Rights::empty())]).unwrap_err();
    assert!(matches!(refused.error.reason, Reason::QueueFull { .. }), "{refused}");
    assert_eq!(refused.posted, 0);
}

#[test]
fn a_fast_registration_that_can_not_be_built_lets_go_of_the_queue() {
    let fake = FakeDevice::plug_in("mlx5");
    fake.fail("mr_list", &[libc::EOPNOTSUPP]);
    let (_device, fast, plane) = fast(fake);
    fake.script().log.clear();
    let refused = plane.post_send(&[registration(&fast, Rights::empty())]).unwrap_err();
    let lacks = Reason::Unsupported { capability: Capability::FastMr };
    assert_eq!(refused.error.reason, lacks);
    assert_eq!(fake.script().log, ["start", "abort"]);
}

#[test]
fn fast_registration_drops_optional_rights_and_names_those_that_mlx5_does_not_take() {
    let fake = FakeDevice::plug_in("mlx5");
    let (_device, fast, plane) = fast(fake);
    let ordered = Rights::LOCAL_WRITE | Rights::RELAXED_ORDERING;
    plane.post_send(&[registration(&fast, ordered)]).unwrap();
    assert!(fake.script().log.iter().any(|line| line.contains("rights 1,")));
    let rights = Rights::MW_BIND | Rights::FLUSH_GLOBAL;
    let refused = plane.post_send(&[registration(&fast, ordered | rights)]).unwrap_err();
    assert_eq!(refused.error.reason, Reason::UnfitRights { rights });
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
