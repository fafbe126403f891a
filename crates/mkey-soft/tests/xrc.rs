//! Extended reliable connections: messages name a shared receive queue of the other side's domain.

mod common;

use common::*;
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair, SharedReceive};
use mkey_core::device::{CqHandle, Device, PdHandle, SrqHandle, XrcdHandle};
use mkey_core::error::Reason;
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpInit, QpKind, QpModify, QpState, Xrc};
use mkey_core::status::WcStatus::{self, RemAccessErr, RemInvReqErr, Success};
use mkey_core::work::{Completion, RecvWr, SendOp, SendWr, Sge};
use mkey_soft::{Link, SoftDevice, SoftOptions, VirtualClock, VirtualNetwork};
use std::sync::Arc;
use std::time::Duration;

/// A shared receive queue with a domain and a completion queue of its own.
struct Queue {
    device: Arc<SoftDevice>,
    pd: PdHandle,
    cq: CqHandle,
    srq: SrqHandle,
}

impl Queue {
    fn new(device: &Arc<SoftDevice>, xrcd: XrcdHandle) -> Self {
        let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(16, None).unwrap());
        let srq = device.create_xrc_srq(pd, xrcd, cq, 16, 2).unwrap();
        Self { device: device.clone(), pd, cq, srq }
    }

    fn number(&self) -> u32 {
        self.device.srq_num(self.srq).unwrap()
    }

    fn receive(&self, wr_id: u64, sges: &[Sge]) {
        self.device.srq(self.srq).unwrap().post_recv(&[RecvWr { wr_id, sges }]).unwrap();
    }

    fn done(&self) -> Vec<(u64, WcStatus, u32)> {
        let mut into = [Completion::BLANK; 16];
        let taken = self.device.cq(self.cq).unwrap().poll(&mut into).unwrap();
        into[..taken].iter().map(|done| (done.wr_id, done.status, done.qp_num)).collect()
    }
}

/// The sending end, the receiving end, and its domain.
fn connection() -> (Side, Side, XrcdHandle) {
    let device = SoftDevice::open(options()).unwrap();
    connection_between(&device, &device)
}

fn connection_between(from: &Arc<SoftDevice>, to: &Arc<SoftDevice>) -> (Side, Side, XrcdHandle) {
    let xrcd = to.open_xrcd().unwrap();
    let a = Side::new(from, |init| init.xrc = Some(Xrc::Send), QpKind::Rc);
    let b = Side::new(to, |init| init.xrc = Some(Xrc::Receive(xrcd)), QpKind::Rc);
    a.to_init();
    b.to_init();
    // The sending end answers nothing, so it has no attributes for that; nor the other for asking.
    let answers = QpModify::rtr(a.ah(), a.info.qp_num, 1024, 7);
    let asks = QpModify { max_dest_rd_atomic: None, min_rnr_timer: None, ..answers.clone() };
    assert!(a.device.modify_qp(a.handle(), &QpModify { ..answers.clone() }).is_err());
    a.modify(QpModify { ah: Some(b.ah()), dest_qp_num: Some(b.info.qp_num), ..asks });
    b.modify(answers);
    a.to_rts();
    b.modify(QpModify {
        state: Some(QpState::Rts),
        sq_psn: Some(7),
        timeout: Some(8),
        ..QpModify::default()
    });
    (a, b, xrcd)
}

fn post(side: &Side, wr_id: u64, op: SendOp<'_>, sges: &[Sge], srq: u32) {
    let wr = SendWr { srq: Some(srq), ..SendWr::new(wr_id, op, sges) };
    side.qp.post_send(&[wr]).unwrap();
}

#[test]
fn a_message_goes_to_the_queue_that_it_names() {
    let (a, b, xrcd) = connection();
    let queues = [Queue::new(&b.device, xrcd), Queue::new(&b.device, xrcd)];
    let from = a.buffer(ALL);
    let to = queues.each_ref().map(|queue| Buffer::new(&b.device, queue.pd, 4096, ALL));
    for (at, queue) in queues.iter().enumerate() {
        queue.receive(10 + at as u64, &[to[at].sge(0, 64)]);
    }
    from.set(0, 0xa5);
    post(&a, 1, SendOp::Send, &[from.sge(0, 8)], queues[1].number());
    assert_eq!(a.done(), [(1, Success)]);
    assert_eq!(queues[0].done(), []);
    assert_eq!(queues[1].done(), [(11, Success, b.info.qp_num)]);
    assert_eq!((to[0].get(0), to[1].get(0)), (0, 0xa5));
    post(&a, 2, SendOp::WriteImm(to[0].remote(100), 7), &[from.sge(0, 8)], queues[0].number());
    assert_eq!(a.done(), [(2, Success)]);
    assert_eq!(queues[0].done(), [(10, Success, b.info.qp_num)]);
    assert_eq!(to[0].get(100), 0xa5);
    assert_eq!(b.done(), [], "nothing comes to the queue pair's own");
}

/// Memory is that of the queue's domain, whichever the queue pair was made in.
#[test]
fn memory_is_reached_in_the_domain_of_the_queue_that_is_named() {
    let (a, b, xrcd) = connection();
    let queue = Queue::new(&b.device, xrcd);
    let from = a.buffer(ALL);
    let to = Buffer::new(&b.device, queue.pd, 4096, ALL);
    let number = queue.number();
    from.set(0, 9);
    post(&a, 1, SendOp::Write(to.remote(0)), &[from.sge(0, 1)], number);
    post(&a, 2, SendOp::Read(to.remote(0)), &[from.sge(8, 1)], number);
    let add = SendOp::FetchAdd { remote: to.remote(64), add: 3 };
    post(&a, 3, add, &[from.sge(16, 8)], number);
    assert_eq!(a.done(), [(1, Success), (2, Success), (3, Success)]);
    assert_eq!((to.get(0), from.get(8), to.get(64)), (9, 9, 3));
    let elsewhere = b.buffer(ALL);
    post(&a, 4, SendOp::Write(elsewhere.remote(0)), &[from.sge(0, 1)], number);
    assert_eq!((a.done(), elsewhere.get(0)), (vec![(4, RemAccessErr)], 0));
}

/// A long READ is answered in turns, and what comes meanwhile names another queue.
#[test]
fn a_read_is_answered_in_the_domain_of_the_queue_that_it_names() {
    const LONG: u32 = 300_000;
    let (network, clock) = (VirtualNetwork::new(), Arc::new(VirtualClock::new()));
    let device = |host| {
        let options = SoftOptions::new("soft0", std::net::Ipv4Addr::new(10, 0, 0, host).into());
        let link = Link::Virtual(network.clone());
        SoftDevice::open(SoftOptions { clock: clock.clone(), link, ..options }).unwrap()
    };
    let (a, b, xrcd) = connection_between(&device(1), &device(2));
    let queues = [Queue::new(&b.device, xrcd), Queue::new(&b.device, xrcd)];
    let own = Buffer::new(&a.device, a.pd, LONG as usize, ALL);
    let far = queues.each_ref().map(|queue| Buffer::new(&b.device, queue.pd, LONG as usize, ALL));
    far[0].set(LONG as usize - 1, 5);
    let sges = [own.sge(0, LONG)];
    let chain = [
        SendWr {
            srq: Some(queues[0].number()),
            ..SendWr::new(1, SendOp::Read(far[0].remote(0)), &sges)
        },
        SendWr {
            srq: Some(queues[1].number()),
            ..SendWr::new(2, SendOp::Write(far[1].remote(0)), &[])
        },
    ];
    a.qp.post_send(&chain).unwrap();
    a.pass(Duration::ZERO);
    assert_eq!(a.done(), [(1, Success), (2, Success)]);
    assert_eq!(own.get(LONG as usize - 1), 5);
}

#[test]
fn a_queue_that_is_not_of_the_domain_is_refused() {
    let (a, b, _) = connection();
    let other = b.device.open_xrcd().unwrap();
    let queue = Queue::new(&b.device, other);
    let from = a.buffer(ALL);
    b.events();
    post(&a, 1, SendOp::Send, &[from.sge(0, 8)], queue.number());
    assert_eq!(a.done(), [(1, RemInvReqErr)]);
    assert_eq!(b.events(), [AsyncEvent::QpReqErr(b.handle())]);
}

#[test]
fn a_message_that_names_no_queue_is_refused() {
    let (a, b, _) = connection();
    b.events();
    a.post(1, SendOp::Send, &[]);
    assert_eq!(a.done(), [(1, RemInvReqErr)]);
    assert_eq!(b.events(), [AsyncEvent::QpReqErr(b.handle())]);
}

#[test]
fn each_end_does_its_own_part_only() {
    let (a, b, xrcd) = connection();
    let from = a.buffer(ALL);
    let wr = SendWr { srq: Some(1), ..SendWr::new(1, SendOp::Send, &[]) };
    let full = b.qp.post_send(&[wr]).unwrap_err().error;
    assert!(matches!(full.reason, Reason::QueueFull { depth: 0 }), "it takes only: {full}");
    for side in [&a, &b] {
        let receive = RecvWr { wr_id: 1, sges: &[] };
        assert_eq!(side.qp.post_recv(&[receive]).unwrap_err().error.errno(), 22);
    }
    // A plain queue pair is no other end.
    let plain = Side::new(&a.device, |_| {}, QpKind::Rc);
    plain.to_init();
    plain.to_rtr(&b);
    plain.to_rts_with(0, 0);
    plain.post(2, SendOp::Write(from.remote(0)), &[]);
    plain.pass(2 * TIMEOUT);
    assert_eq!(plain.done(), [(2, WcStatus::RetryExcErr)]);
    // A domain stays for as long as anything belongs to it.
    assert_eq!(b.device.close_xrcd(xrcd).unwrap_err().errno(), 16);
    b.device.destroy_qp(b.handle()).unwrap();
    let queue = Queue::new(&b.device, xrcd);
    assert_eq!(b.device.close_xrcd(xrcd).unwrap_err().errno(), 16);
    assert_eq!(b.device.destroy_cq(queue.cq).unwrap_err().errno(), 16);
    b.device.destroy_srq(queue.srq).unwrap();
    b.device.destroy_cq(queue.cq).unwrap();
    b.device.close_xrcd(xrcd).unwrap();
    let gone = QpInit { xrc: Some(Xrc::Receive(xrcd)), ..QpInit::new(QpKind::Rc, b.cq) };
    assert_eq!(b.device.create_qp(b.pd, &gone).unwrap_err().errno(), 2);
}
