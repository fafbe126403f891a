//! The objects of the verbs, kept alive by what stands on them.

mod peers;

use mkey::{
    Completion, Device, Mr, QpState, Reason, Recv, Region, SharedMemory, WcOpcode, WcStatus, Work,
};
use peers::{Side, pair};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn a_peer_writes_and_reads_by_a_remote_key() {
    let (a, b) = pair();
    let source = Mr::new(&a.pd, Region::new(4096).expect("memory")).expect("mr");
    let target = Mr::builder(&b.pd).remote_write().remote_read();
    let target = target.register(Region::new(4096).expect("memory")).expect("mr");
    source.whole().write(0, b"hello").expect("within");
    let key = target.remote_key(8..64).expect("exposed");
    let from = [source.slice(0..5).expect("within")];
    a.qp.post(&[Work::write(&from, key).id(7)]).expect("posted");
    let done = a.one();
    assert_eq!((done.wr_id, done.status, done.opcode), (7, WcStatus::Success, WcOpcode::RdmaWrite));
    let mut bytes = [0; 5];
    target.whole().read(8, &mut bytes).expect("within");
    assert_eq!(&bytes, b"hello");

    let into = [source.slice(100..105).expect("within")];
    a.qp.post(&[Work::read(&into, key).id(8)]).expect("posted");
    assert_eq!(a.one().status, WcStatus::Success);
    assert_eq!(into[0].to_vec().expect("mapped"), b"hello");
}

#[test]
fn promise_4_posted_work_keeps_its_memory_until_the_completion_is_seen() {
    let (a, b) = pair();
    let device = a.pd.device().clone();
    let before = device.stats().registered_bytes;
    let mr = Mr::new(&b.pd, Region::new(8192).expect("memory")).expect("mr");
    b.qp.post_recv(&[Recv::new(&[mr.whole()]).id(3)]).expect("posted");
    drop(mr);
    assert_eq!(device.stats().registered_bytes, before + 8192, "a receive is posted with it");
    a.qp.post(&[Work::send_inline(b"ping").id(1)]).expect("posted");
    let got = b.one();
    assert_eq!((got.wr_id, got.byte_len, got.opcode), (3, 4, WcOpcode::Recv));
    assert_eq!(device.stats().registered_bytes, before);
}

#[test]
fn promise_4_a_queue_pair_that_ends_lets_go_of_what_its_work_used() {
    let (_a, b) = pair();
    let device = b.pd.device().clone();
    let mr = Mr::new(&b.pd, Region::new(4096).expect("memory")).expect("mr");
    let slice = mr.into_slice();
    b.qp.post_recv(&[Recv::new(std::slice::from_ref(&slice))]).expect("posted");
    let (slice, error) = slice.into_local().expect_err("a receive is posted with it");
    assert_eq!(error.reason, Reason::StillUsed { what: "memory" });
    drop(b);
    let local = slice.into_local().expect("nobody else has it");
    drop(local);
    assert_eq!(device.stats().registered_bytes, 0);
    assert_eq!(device.stats().failed_drops, 0);
}

#[test]
fn promise_1_objects_may_be_dropped_in_any_order() {
    let (a, b) = pair();
    let device = a.pd.device().clone();
    let mr = Mr::new(&a.pd, Region::new(4096).expect("memory")).expect("mr");
    let slice = mr.slice(..).expect("whole");
    let Side { qp, cq, pd } = a;
    drop((pd, mr, cq));
    qp.post(&[Work::send(&[slice]).unsignaled()]).expect("posted");
    drop(b);
    drop(qp);
    assert_eq!((device.stats().failed_drops, device.stats().registered_bytes), (0, 0));
}

#[test]
fn promise_2_memory_that_peers_or_processes_reach_is_never_lent() {
    let (a, _b) = pair();
    let exposed = Mr::builder(&a.pd).remote_read();
    let exposed = exposed.register(Region::new(4096).expect("memory")).expect("mr");
    let (_, error) = exposed.into_slice().into_local().expect_err("peers may read it");
    assert_eq!(error.reason, Reason::Exposed);
    let shared = SharedMemory::new("test", 4096).expect("memfd");
    let (_, error) =
        Mr::new(&a.pd, shared).expect("mr").into_slice().into_local().expect_err("processes may");
    assert_eq!(error.reason, Reason::Exposed);
    let mr = Mr::new(&a.pd, Region::new(4096).expect("memory")).expect("mr");
    let other = mr.clone();
    let (slice, error) = mr.into_slice().into_local().expect_err("another handle");
    assert_eq!(error.reason, Reason::StillUsed { what: "memory" });
    drop(other);
    let memory: Arc<dyn mkey::Memory> = Arc::new(Region::new(4096).expect("memory"));
    let weak = Arc::downgrade(&memory);
    let mr = Mr::builder(&a.pd).register_shared(memory).expect("mr");
    mr.into_slice().into_local().expect_err("it could be registered again");
    drop(weak);
    let mut local = slice.into_local().expect("the only one");
    local.view_mut::<u32>().expect("aligned")[1] = 5;
    assert_eq!(local.into_slice().load(0).expect("within"), 5 << 32);
}

#[test]
fn promise_6_close_names_what_is_in_the_way() {
    let (a, _b) = pair();
    let mr = Mr::new(&a.pd, Region::new(4096).expect("memory")).expect("mr");
    let slice = mr.slice(0..10).expect("within");
    let (mr, error) = mr.close().expect_err("a slice is out");
    assert_eq!(error.reason, Reason::StillUsed { what: "memory region" });
    drop(slice);
    let memory = mr.close().expect("nothing holds it");
    assert_eq!(memory.range().1, 4096);
    assert_eq!(a.pd.device().stats().deregistrations, 1);
}

#[test]
fn a_chain_that_is_refused_half_way_keeps_only_what_was_posted() {
    let (a, b) = pair();
    let source = Mr::new(&a.pd, Region::new(4096).expect("memory")).expect("mr");
    let target = Mr::builder(&b.pd).remote_write();
    let target = target.register(Region::new(4096).expect("memory")).expect("mr");
    let key = target.remote_key(0..16).expect("exposed");
    let (fits, long) = (source.slice(0..16).expect("within"), source.slice(0..17).expect("within"));
    let (fits, long) = ([fits], [long]);
    let chain = [Work::write(&fits, key).id(1), Work::write(&long, key).id(2)];
    let error = a.qp.post(&chain).expect_err("the second is too long");
    assert_eq!(error.posted, 1);
    assert!(matches!(error.error.reason, Reason::OutOfRange { length: 17, .. }), "{error:?}");
    assert_eq!(a.one().wr_id, 1);
    let mut none = [Completion::BLANK];
    assert_eq!(a.cq.poll(&mut none), Ok(0));
}

#[test]
fn flushed_work_comes_back_under_its_own_ids() {
    let (a, _b) = pair();
    let mr = Mr::new(&a.pd, Region::new(4096).expect("memory")).expect("mr");
    for id in 10..13 {
        a.qp.post_recv(&[Recv::new(&[mr.whole()]).id(id)]).expect("posted");
    }
    a.qp.fail().expect("to ERR");
    assert_eq!(a.qp.query().expect("query").state, QpState::Err);
    for id in 10..13 {
        let flushed = a.one();
        assert_eq!((flushed.wr_id, flushed.status), (id, WcStatus::WrFlushErr));
    }
}

#[test]
fn promise_3_only_an_exposed_slice_has_a_remote_key() {
    let (a, b) = pair();
    let local = Mr::new(&b.pd, Region::new(4096).expect("memory")).expect("mr");
    let refused = local.whole().remote_key().expect_err("local-only");
    assert!(matches!(refused.reason, Reason::RightMissing { .. }), "{refused:?}");
    let exposed = Mr::builder(&b.pd).remote_write();
    let exposed = exposed.register(Region::new(4096).expect("memory")).expect("mr");
    let slice = exposed.slice(64..96).expect("within");
    let key = slice.remote_key().expect("exposed");
    assert_eq!(Ok(key), exposed.remote_key(64..96));
    a.qp.post(&[Work::write_inline(b"here", key).id(1)]).expect("posted");
    assert_eq!(a.one().status, WcStatus::Success);
    assert_eq!(slice.to_vec().expect("mapped").get(..4), Some(&b"here"[..]));
}

#[test]
fn a_pair_that_failed_is_connected_again() {
    let (a, b) = pair();
    a.qp.post(&[Work::send_inline(b"lost").id(1)]).expect("posted");
    a.qp.fail().expect("to ERR");
    b.qp.fail().expect("to ERR");
    a.qp.connect(&b.qp.endpoint()).expect("connect");
    b.qp.connect(&a.qp.endpoint()).expect("connect");
    let mr = Mr::new(&b.pd, Region::new(4096).expect("memory")).expect("mr");
    b.qp.post_recv(&[Recv::new(&[mr.whole()]).id(2)]).expect("posted");
    a.qp.post(&[Work::send_inline(b"again").id(3)]).expect("posted");
    assert_eq!((b.one().byte_len, a.one().wr_id), (5, 3));
}

/// Memory that looks, when it goes, whether it is registered.
#[derive(Debug)]
struct Watched {
    region: Region,
    device: Device,
    registered: Arc<AtomicU64>,
}

// SAFETY: the region's own promise; it is given away to nobody.
unsafe impl mkey::Memory for Watched {
    fn range(&self) -> (NonNull<u8>, usize) {
        mkey::Memory::range(&self.region)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.registered.store(self.device.stats().registered_bytes, Ordering::SeqCst);
    }
}

#[test]
fn promise_1_deregistration_comes_before_unmapping() {
    let (a, b) = pair();
    let (device, registered) = (a.pd.device().clone(), Arc::new(AtomicU64::new(u64::MAX)));
    let region = Region::new(4096).expect("memory");
    let watched = Watched { region, device: device.clone(), registered: registered.clone() };
    let mr = Mr::new(&a.pd, watched).expect("mr");
    b.expects(1);
    let others = device.stats().registered_bytes - 4096;
    let slice = mr.slice(..8).expect("within");
    a.qp.post(&[Work::send(&slice)]).expect("posted");
    drop((mr, slice));
    assert_eq!(registered.load(Ordering::SeqCst), u64::MAX, "posted work keeps it");
    assert_eq!(a.one().status, WcStatus::Success);
    assert_eq!(registered.load(Ordering::SeqCst), others, "gone, and deregistered by then");
}

#[test]
fn promise_1_a_forgotten_handle_leaks_registration_and_memory_together() {
    let (a, _b) = pair();
    let device = a.pd.device().clone();
    let memory: Arc<dyn mkey::Memory> = Arc::new(Region::new(4096).expect("memory"));
    let weak = Arc::downgrade(&memory);
    let forgotten = ManuallyDrop::new(Mr::builder(&a.pd).register_shared(memory).expect("mr"));
    drop(a);
    assert_eq!(device.stats().registered_bytes, 4096);
    assert!(weak.upgrade().is_some(), "still registered, so still mapped");
    drop(ManuallyDrop::into_inner(forgotten));
    assert_eq!(device.stats().registered_bytes, 0);
    assert!(weak.upgrade().is_none());
}
