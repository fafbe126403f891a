//! How long memory is registered, and what keeps it.

use crate::memory::{Mapped, PAGE};
use mkey::testing::{DetachCause, Faults, LeakCheck, Pair, Refusal, When};
use mkey::{
    Completion, Cq, Device, HostAddr, IoAddr, Mr, Object, Pd, Qp, Reason, Region, SoftDevice,
    SoftOptions, WcOpcode, WcStatus, Work,
};
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::{AhAttr, Device as _, MwKind};
use mkey_core::key::Rkey;
use mkey_core::queue_pair::{QpInit, QpKind, QpModify};
use mkey_core::rights::Rights;
use mkey_core::work::{BindMw, SendOp, SendWr};
use std::sync::Arc;
use std::time::Duration;

fn region(len: usize) -> Region {
    Region::new(len).expect("memory")
}

#[test]
fn libfabric_4946_a_mapping_replaced_under_a_registration_is_not_accessed() {
    let pair = Pair::new().expect("connected");
    let memory = Arc::new(Mapped::anonymous(PAGE, libc::PROT_READ | libc::PROT_WRITE));
    let mr = Mr::builder(&pair.b.pd).remote_write().remote_read().register(memory.foreign());
    let mr = mr.expect("mr");
    let key = mr.remote_key(..).expect("exposed");
    pair.a.qp.post(&[Work::write_inline(b"old", key)]).expect("posted");
    assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
    memory.replace();
    let refused = pair.expect_refusal(|a, _| a.qp.post(&[Work::write_inline(b"lost", key)]));
    let Some(Refusal::Detached { range, cause, .. }) = refused.access() else {
        panic!("{refused}")
    };
    assert_eq!(range.start, HostAddr(memory.start().as_ptr().addr() as u64));
    assert_eq!(cause, DetachCause::Unmapped);
    assert!(refused.to_string().contains("were unmapped by the program"), "{refused}");
    assert_eq!(mr.whole().to_vec().expect("mapped")[..4], [0; 4], "the new memory is untouched");
}

#[test]
fn pegaflow_403_a_buffer_of_a_lost_request_is_in_use_until_the_queue_pair_has_drained() {
    let faults = Faults::new(0);
    faults.lose(WcOpcode::RdmaRead, When::Nth(1));
    let pair = Pair::builder().faults(&faults).connect().expect("connected");
    let leaks = LeakCheck::new(&pair.a.device);
    let target = Mr::builder(&pair.b.pd).remote_read().register(region(PAGE)).expect("mr");
    let buffer = Mr::new(&pair.a.pd, region(PAGE)).expect("mr").into_slice();
    let key = target.remote_key(..).expect("exposed");
    pair.a.qp.post(&[Work::read(std::slice::from_ref(&buffer), key).id(1)]).expect("posted");
    // The request times out: its answer may still come.
    pair.advance(Duration::from_secs(30));
    assert_eq!(pair.done(&pair.a), []);
    let (buffer, error) = buffer.into_local().expect_err("the read may still write it");
    assert_eq!(error.reason, Reason::StillUsed { what: "memory" });
    pair.a.qp.fail().expect("to ERR");
    let (buffer, _) = buffer.into_local().expect_err("nobody has seen that it has ended");
    assert_eq!(pair.next(&pair.a).status, WcStatus::WrFlushErr);
    drop(buffer.into_local().expect("it has ended"));
    drop(target);
    leaks.finish();
}

#[test]
fn async_rdma_47_a_buffer_dropped_in_flight_stays_registered() {
    let pair = Pair::new().expect("connected");
    let leaks = LeakCheck::new(&pair.a.device);
    let target = Mr::builder(&pair.b.pd).remote_write().register(region(PAGE)).expect("mr");
    let key = target.remote_key(..).expect("exposed");
    let source = Mr::new(&pair.a.pd, region(PAGE)).expect("mr").into_slice();
    source.write(0, b"whole").expect("within");
    // The send waits for a receive; the write behind it has not run yet.
    let works = [Work::send_inline(b"first"), Work::write(std::slice::from_ref(&source), key)];
    pair.a.qp.post(&works).expect("posted");
    drop(source);
    assert_eq!(pair.a.device.stats().registered_bytes, 2 * PAGE as u64);
    pair.b.qp.post_recv(&[mkey::Recv::new(&[target.whole()])]).expect("posted");
    for _ in 0..2 {
        assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
    }
    assert_eq!(pair.next(&pair.b).status, WcStatus::Success);
    assert_eq!(target.whole().to_vec().expect("mapped")[..5], *b"whole");
    drop(target);
    leaks.finish();
}

#[test]
fn dingocache_88_a_registration_outlives_its_queue_pairs() {
    let pair = Pair::new().expect("connected");
    let target = Mr::builder(&pair.b.pd).remote_write().register(region(PAGE)).expect("mr");
    let source = Mr::new(&pair.a.pd, region(PAGE)).expect("mr");
    let (from, key) = ([source.whole()], target.remote_key(..).expect("exposed"));
    let before = pair.a.device.stats().registrations;
    for _ in 0..3 {
        let make = |pd: &Pd, cq: &Cq| Qp::builder(pd, cq).create().expect("qp");
        let (a, b) = (make(&pair.a.pd, &pair.a.cq), make(&pair.b.pd, &pair.b.cq));
        a.connect(&b.endpoint()).expect("connected");
        b.connect(&a.endpoint()).expect("connected");
        a.post(&[Work::write(&from, key)]).expect("posted");
        assert_eq!(pair.next(&pair.a).status, WcStatus::Success);
    }
    assert_eq!(pair.a.device.stats().registrations, before, "nothing was registered again");
}

/// Binds a window of type 2 to all of `mr`, by a queue pair of its own.
fn bind_window(soft: &Arc<SoftDevice>, pd: &Pd, mr: &Mr) -> impl FnOnce() + use<> {
    let cq = soft.create_cq(8, None).expect("cq");
    let qp = soft.create_qp(pd.handle(), &QpInit::new(QpKind::Rc, cq)).expect("qp");
    let ah = AhAttr { gid: soft.port().gid, port: 1, hop_limit: 1, ..AhAttr::default() };
    let steps = [
        QpModify::init(Rights::REMOTE_WRITE),
        QpModify::rtr(ah, qp.qp_num, 4096, 0),
        QpModify::rts(0),
    ];
    for step in steps {
        soft.modify_qp(qp.handle, &step).expect("connected to itself");
    }
    let window = soft.alloc_mw(pd.handle(), MwKind::Type2).expect("mw");
    let (whole, new_key) = (mr.whole(), Rkey(window.rkey.0.next()));
    let bind = BindMw {
        mw: window.rkey,
        new_key,
        mr: whole.lkey(),
        address: whole.iova(),
        length: whole.len() as u64,
        rights: Rights::REMOTE_WRITE,
    };
    let posted =
        soft.qp(qp.handle).expect("qp").post_send(&[SendWr::new(1, SendOp::BindMw(bind), &[])]);
    posted.expect("posted");
    let mut done = [Completion::BLANK];
    assert_eq!(soft.cq(cq).expect("cq").poll(&mut done), Ok(1));
    assert_eq!(done[0].status, WcStatus::Success);
    let soft = soft.clone();
    move || {
        soft.dealloc_mw(window.handle).expect("freed");
        soft.destroy_qp(qp.handle).expect("destroyed");
        soft.destroy_cq(cq).expect("destroyed");
    }
}

#[test]
fn networkdirect_20_a_region_in_use_names_its_holder_and_stays() {
    let soft = SoftDevice::open(SoftOptions::default()).expect("a software RNIC");
    // SAFETY: the window that is bound beside the library is to memory that is never lent.
    let device = unsafe { Device::from_soft(soft.clone()) };
    let pd = Pd::new(&device).expect("pd");
    let mr = Mr::builder(&pd).windows().register(region(PAGE)).expect("mr");
    let unbind = bind_window(&soft, &pd, &mr);
    let (mr, error) = mr.close().expect_err("a window is bound to it");
    let Reason::InUse { object: Object::Mr, by } = &error.reason else { panic!("{error}") };
    assert!(by.contains("window"), "{by}");
    assert_eq!(error.errno(), 16, "EBUSY");
    mr.whole().write(0, b"still mapped").expect("the region was given back");
    drop(mr);
    let stats = device.stats();
    assert_eq!((stats.kept, stats.kept_bytes, stats.failed_drops), (1, PAGE as u64, 1));
    assert!(device.kept()[0].contains("window"), "{:?}", device.kept());
    assert_eq!(device.retry_kept(), 0, "it is bound still");
    unbind();
    assert_eq!(device.retry_kept(), 1);
    assert_eq!((device.stats().kept, device.stats().registered_bytes), (0, 0));
}

#[test]
fn torchcomms_4209_a_domain_ends_after_all_that_is_in_it() {
    let device = Device::soft(SoftOptions::default()).expect("a software RNIC");
    let leaks = LeakCheck::new(&device);
    let pd = Pd::new(&device).expect("pd");
    let handle = pd.handle();
    let cq = Cq::new(&device, 8).expect("cq");
    let qp = Qp::builder(&pd, &cq).create().expect("qp");
    let slice = Mr::builder(&pd).iova(IoAddr(0)).register(region(PAGE)).expect("mr").into_slice();
    drop((pd, cq));
    let error =
        device.control().dealloc_pd(handle).expect_err("a region and a queue pair are in it");
    let Reason::InUse { object: Object::Pd, by } = &error.reason else { panic!("{error}") };
    assert!(by.contains("memory region") && by.contains("queue pair"), "{by}");
    drop(qp);
    device.control().dealloc_pd(handle).expect_err("a region is in it");
    drop(slice);
    let error = device.control().dealloc_pd(handle).expect_err("it is gone already");
    assert!(matches!(error.reason, Reason::UnknownHandle { object: Object::Pd, .. }), "{error}");
    leaks.finish();
}
