//! Who listens is told of refusals and of pages that were taken away, once each.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests' memory is the tests' own")]

mod common;

use common::*;
use mkey_core::address::{HostAddr, HostRange};
use mkey_core::data_plane::QueuePair;
use mkey_core::device::{Device, Gid, MrSpec, RefusalReport};
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::refusal::DetachCause;
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus;
use mkey_core::work::SendOp;
use mkey_os::mapping::{Mapping, PageKind};
use mkey_soft::{Listener, SoftDevice, SoftOptions};
use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
struct Heard {
    refused: Mutex<Vec<String>>,
    detached: Mutex<Vec<(HostRange, DetachCause)>>,
    unanswered: Mutex<Vec<(u32, u32, String)>>,
}

impl Listener for Heard {
    fn refused(&self, report: &RefusalReport) {
        self.refused.lock().unwrap().push(format!("{}: {}", report.request, report.refusal));
    }

    fn unanswered(&self, qp_num: u32, _: Gid, peer_qp: u32, why: &str) {
        self.unanswered.lock().unwrap().push((qp_num, peer_qp, why.to_owned()));
    }

    fn detached(&self, range: HostRange, cause: DetachCause) {
        self.detached.lock().unwrap().push((range, cause));
    }
}

fn listened() -> (Arc<Heard>, SoftOptions) {
    let heard = Arc::new(Heard::default());
    (heard.clone(), SoftOptions { listener: Some(heard), ..options() })
}

#[test]
fn a_refusal_is_told_by_the_device_that_refuses() {
    let (own, options) = listened();
    let (theirs, other) = listened();
    let a = Side::new(&SoftDevice::open(options).unwrap(), |_| {}, QpKind::Rc);
    let b = Side::new(&SoftDevice::open(other).unwrap(), |_| {}, QpKind::Rc);
    connect(&a, &b);
    let from = a.buffer(ALL);
    a.post(1, SendOp::Write(from.remote_by(Default::default())), &[from.sge(0, 8)]);
    assert_eq!(a.done().len(), 1);
    assert_eq!(*own.refused.lock().unwrap(), [""; 0], "it has not refused");
    let theirs = theirs.refused.lock().unwrap();
    assert_eq!(theirs.len(), 1, "{theirs:?}");
    assert!(theirs[0].starts_with("RDMA WRITE of 8 bytes at "), "{theirs:?}");
    // Both logs have it, as the completion names its entry.
    for side in [&a, &b] {
        assert_eq!(side.device.refusals().unwrap().len(), 1);
    }
}

#[test]
fn pages_that_were_taken_away_are_told_of_to_whom_they_matter() {
    if let Err(unavailable) = mkey_os::events::process() {
        panic!("no unmap events here: {unavailable}");
    }
    let (heard, options) = listened();
    let (unheard, other) = listened();
    let (device, other) = (SoftDevice::open(options).unwrap(), SoftDevice::open(other).unwrap());
    let (pd, page) = (device.alloc_pd().unwrap(), 4096);
    let mapping = Mapping::new(4 * page, PageKind::Base).unwrap();
    let address = HostAddr(mapping.addr() as u64);
    let spec = MrSpec { address, length: 8192, iova: None, rights: Rights::LOCAL_WRITE };
    let mr = unsafe { device.reg_mr(pd, &spec) }.unwrap();
    let elsewhere = Mapping::new(page, PageKind::Base).unwrap();
    let spec = MrSpec { address: HostAddr(elsewhere.addr() as u64), length: 64, ..spec };
    let other_pd = other.alloc_pd().unwrap();
    let _other_mr = unsafe { other.reg_mr(other_pd, &spec) }.unwrap();
    let gone = HostRange { start: address, len: page as u64 };
    assert_eq!(unsafe { libc::madvise(mapping.as_ptr().cast(), page, libc::MADV_DONTNEED) }, 0);
    for device in [&device, &other] {
        device.settle();
    }
    assert_eq!(*heard.detached.lock().unwrap(), [(gone, DetachCause::Discarded)]);
    assert_eq!(*unheard.detached.lock().unwrap(), []);
    device.dereg_mr(mr.handle).unwrap();
}

/// A completion can not say why; who listens hears of it once for each queue pair.
#[test]
fn a_peer_that_does_not_answer_is_told_of() {
    let (own, options) = listened();
    let a = Side::new(&SoftDevice::open(options).unwrap(), |_| {}, QpKind::Rc);
    let (_, other) = listened();
    let b = Side::new(&SoftDevice::open(other).unwrap(), |_| {}, QpKind::Rc);
    connect(&a, &b);
    b.go(QpState::Reset);
    a.post(1, SendOp::Send, &[]);
    a.post(2, SendOp::Send, &[]);
    for _ in 0..4 {
        a.pass(TIMEOUT);
    }
    assert_eq!(a.done(), [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)]);
    let told = own.unanswered.lock().unwrap();
    let [(qp_num, peer, why)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*qp_num, *peer), (a.qp.qp_num(), b.qp.qp_num()));
    assert!(why.contains("this process"), "{why}");
}
