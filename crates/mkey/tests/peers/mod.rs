//! Two ends of a connection in one process.
#![allow(dead_code, reason = "each test program uses some of them")]

use mkey::{
    Completion, Cq, Device, Mr, Pd, Qp, Recv, Region, RemoteKey, Slice, SoftOptions, WcStatus, Work,
};
use std::time::Duration;

pub const LONG: Duration = Duration::from_secs(20);
pub const SHORT: Duration = Duration::from_millis(30);

pub struct Side {
    pub qp: Qp,
    pub cq: Cq,
    pub pd: Pd,
}

pub fn device() -> Device {
    Device::soft(SoftOptions::default()).expect("a software RNIC")
}

impl Side {
    pub fn new(pd: &Pd, depth: u32) -> Self {
        let cq = Cq::new(pd.device(), 4096).expect("cq");
        let qp = Qp::builder(pd, &cq).depth(depth, 256).create().expect("qp");
        Self { qp, cq, pd: pd.clone() }
    }

    /// Memory that windows may be bound to, registered.
    pub fn memory(&self, len: usize) -> Slice {
        let mr = Mr::builder(&self.pd).windows();
        let mr = mr.register(Region::new(len).expect("memory")).expect("mr");
        mr.into_slice().part(..len).expect("rounded up to pages")
    }

    pub fn one(&self) -> Completion {
        let mut into = [Completion::BLANK];
        assert_eq!(self.cq.wait(&mut into, LONG), Ok(1), "a completion");
        into[0]
    }

    /// How a READ of what `key` names ends.
    pub fn reads(&self, key: RemoteKey) -> WcStatus {
        let into = self.memory(4096).part(..key.length as usize).expect("within");
        self.qp.post(&[Work::read(&into, key).id(77)]).expect("posted");
        self.done(77)
    }

    /// How a WRITE of all of what `key` names ends; each byte is `value`.
    pub fn writes(&self, key: RemoteKey, value: u8) -> WcStatus {
        let from = self.memory(4096).part(..key.length as usize).expect("within");
        from.write(0, &vec![value; from.len()]).expect("within");
        self.qp.post(&[Work::write(&from, key).id(78)]).expect("posted");
        self.done(78)
    }

    pub fn done(&self, id: u64) -> WcStatus {
        let done = self.one();
        assert_eq!(done.wr_id, id, "{done:?}");
        done.status
    }

    /// A receive, posted.
    pub fn expects(&self, id: u64) {
        self.qp.post_recv(&[Recv::new(&[self.memory(4096)]).id(id)]).expect("posted");
    }
}

/// Connects two queue pairs of their own protection domains.
pub fn pair_on(device: &Device, depth: u32) -> (Side, Side) {
    let side = || Side::new(&Pd::new(device).expect("pd"), depth);
    let (a, b) = (side(), side());
    connect(&a.qp, &b.qp);
    (a, b)
}

pub fn pair() -> (Side, Side) {
    pair_on(&device(), 256)
}

pub fn connect(a: &Qp, b: &Qp) {
    a.connect(&b.endpoint()).expect("connect");
    b.connect(&a.endpoint()).expect("connect");
}
