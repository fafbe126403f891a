//! Two connected queue pairs on software RNICs with a virtual clock.
#![allow(dead_code)] // Each test file takes what it needs.

use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::{
    AhAttr, CqHandle, Device, MrHandle, MrInfo, MrSpec, PdHandle, QpHandle, QpInfo, SrqHandle,
};
use mkey_core::event::AsyncEvent;
use mkey_core::key::Rkey;
use mkey_core::queue_pair::{QpInit, QpKind, QpModify, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus;
use mkey_core::work::{Completion, RecvWr, RemoteAddr, SendOp, SendWr, Sge};
use mkey_soft::{Clock, SoftCq, SoftDevice, SoftOptions, SoftQp, VirtualClock};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::time::Duration;

pub const ALL: Rights = Rights::LOCAL_WRITE
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::REMOTE_ATOMIC)
    .union(Rights::MW_BIND);
/// 4.096 us * 2^8.
pub const TIMEOUT: Duration = Duration::from_nanos(4096 << 8);
/// Of code 1.
pub const RNR: Duration = Duration::from_micros(10);

pub fn options() -> SoftOptions {
    SoftOptions { clock: Arc::new(VirtualClock::new()), ..SoftOptions::default() }
}

/// Registered pages, deregistered before they are freed.
pub struct Buffer {
    device: Arc<SoftDevice>,
    start: *mut u8,
    layout: Layout,
    pub info: MrInfo,
}

// SAFETY: the bytes are only touched through volatile accesses and by the device.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub fn new(device: &Arc<SoftDevice>, pd: PdHandle, len: usize, rights: Rights) -> Self {
        let layout = Layout::from_size_align(len, 4096).unwrap();
        // SAFETY: the layout has a size.
        let start = unsafe { alloc_zeroed(layout) };
        assert!(!start.is_null());
        let address = HostAddr(start as u64);
        let spec = MrSpec { address, length: len as u64, iova: None, rights };
        // SAFETY: the memory is ours until after deregistration, and never lent as a reference.
        let info = unsafe { device.reg_mr(pd, &spec) }.unwrap();
        Self { device: device.clone(), start, layout, info }
    }

    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { address: IoAddr(self.start as u64 + offset), length, lkey: self.info.lkey }
    }

    pub fn remote(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { address: IoAddr(self.start as u64 + offset), rkey: self.info.rkey }
    }

    pub fn remote_by(&self, rkey: Rkey) -> RemoteAddr {
        RemoteAddr { rkey, ..self.remote(0) }
    }

    pub fn set(&self, offset: usize, value: u8) {
        assert!(offset < self.layout.size());
        // SAFETY: within the allocation.
        unsafe { self.start.add(offset).write_volatile(value) }
    }

    pub fn get(&self, offset: usize) -> u8 {
        assert!(offset < self.layout.size());
        // SAFETY: within the allocation.
        unsafe { self.start.add(offset).read_volatile() }
    }

    pub fn handle(&self) -> MrHandle {
        self.info.handle
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Refused if the test has deregistered it already.
        let _ = self.device.dereg_mr(self.info.handle);
        // SAFETY: allocated with this layout, and the device does not know it any more.
        unsafe { dealloc(self.start, self.layout) }
    }
}

pub struct Side {
    pub device: Arc<SoftDevice>,
    pub pd: PdHandle,
    pub cq: CqHandle,
    pub srq: Option<SrqHandle>,
    pub info: QpInfo,
    pub qp: SoftQp,
    pub cqs: SoftCq,
    pub kind: QpKind,
}

pub const QKEY: u32 = 0x1111;

impl Side {
    pub fn new(device: &Arc<SoftDevice>, change: impl Fn(&mut QpInit), kind: QpKind) -> Self {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(256, None).unwrap();
        let mut init = QpInit::new(kind, cq);
        change(&mut init);
        let info = device.create_qp(pd, &init).unwrap();
        let (qp, cqs) = (device.qp(info.handle).unwrap(), device.cq(cq).unwrap());
        let (device, srq) = (device.clone(), init.srq);
        Self { device, pd, cq, srq, info, qp, cqs, kind }
    }

    pub fn handle(&self) -> QpHandle {
        self.info.handle
    }

    /// The same objects once more.
    pub fn again(&self) -> Self {
        let Self { device, pd, cq, srq, info, qp, cqs, kind } = self;
        let (device, qp, cqs) = (device.clone(), qp.clone(), cqs.clone());
        Self { device, pd: *pd, cq: *cq, srq: *srq, info: *info, qp, cqs, kind: *kind }
    }

    pub fn buffer(&self, rights: Rights) -> Buffer {
        Buffer::new(&self.device, self.pd, 4 * 4096, rights)
    }

    pub fn modify(&self, change: QpModify) {
        self.device.modify_qp(self.handle(), &change).unwrap();
    }

    pub fn go(&self, state: QpState) {
        self.modify(QpModify { state: Some(state), ..QpModify::default() });
    }

    pub fn state(&self) -> QpState {
        self.device.query_qp(self.handle()).unwrap().state
    }

    pub fn ah(&self) -> AhAttr {
        let gid = self.device.port().gid;
        AhAttr { gid, gid_index: 0, port: 1, traffic_class: 0, hop_limit: 64 }
    }

    pub fn to_init(&self) {
        let ud = self.kind == QpKind::Ud;
        self.modify(QpModify {
            state: Some(QpState::Init),
            port: Some(1),
            pkey_index: Some(0),
            rights: (!ud).then_some(ALL),
            qkey: ud.then_some(QKEY),
            ..QpModify::default()
        });
    }

    pub fn to_rtr(&self, peer: &Side) {
        let (rc, ud) = (self.kind == QpKind::Rc, self.kind == QpKind::Ud);
        self.modify(QpModify {
            state: Some(QpState::Rtr),
            ah: (!ud).then(|| peer.ah()),
            path_mtu: (!ud).then_some(1024),
            dest_qp_num: (!ud).then_some(peer.info.qp_num),
            rq_psn: (!ud).then_some(7),
            max_dest_rd_atomic: rc.then_some(4),
            min_rnr_timer: rc.then_some(1),
            ..QpModify::default()
        });
    }

    pub fn to_rts(&self) {
        self.to_rts_with(2, 2);
    }

    pub fn to_rts_with(&self, retry_cnt: u8, rnr_retry: u8) {
        let rc = self.kind == QpKind::Rc;
        self.modify(QpModify {
            state: Some(QpState::Rts),
            sq_psn: Some(7),
            timeout: rc.then_some(8),
            retry_cnt: rc.then_some(retry_cnt),
            rnr_retry: rc.then_some(rnr_retry),
            max_rd_atomic: rc.then_some(4),
            ..QpModify::default()
        });
    }

    pub fn post(&self, wr_id: u64, op: SendOp<'_>, sges: &[Sge]) {
        self.qp.post_send(&[SendWr::new(wr_id, op, sges)]).unwrap();
    }

    pub fn receive(&self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&[RecvWr { wr_id, sges }]).unwrap();
    }

    /// All completions so far.
    pub fn poll(&self) -> Vec<Completion> {
        let mut all = Vec::new();
        loop {
            let mut into = [Completion::BLANK; 8];
            match self.cqs.poll(&mut into).unwrap() {
                0 => return all,
                taken => all.extend_from_slice(&into[..taken]),
            }
        }
    }

    /// All completions so far: number and status.
    pub fn done(&self) -> Vec<(u64, WcStatus)> {
        self.poll().iter().map(|completion| (completion.wr_id, completion.status)).collect()
    }

    pub fn events(&self) -> Vec<AsyncEvent> {
        let next = || self.device.get_async_event(Some(Duration::ZERO)).unwrap();
        std::iter::from_fn(next).collect()
    }

    /// Lets time go on.
    pub fn pass(&self, time: Duration) {
        self.device.advance(self.device.now() + time);
    }
}

/// Two queue pairs of one device, each with a domain and a completion queue, connected, in RTS.
pub fn pair(kind: QpKind) -> (Side, Side) {
    pair_on(options(), kind)
}

pub fn pair_on(options: SoftOptions, kind: QpKind) -> (Side, Side) {
    let device = SoftDevice::open(options).unwrap();
    let (a, b) = (Side::new(&device, |_| {}, kind), Side::new(&device, |_| {}, kind));
    connect(&a, &b);
    (a, b)
}

pub fn connect(a: &Side, b: &Side) {
    for side in [a, b] {
        side.to_init();
    }
    a.to_rtr(b);
    b.to_rtr(a);
    a.to_rts();
    b.to_rts();
}

pub fn virtual_clock() -> Arc<dyn Clock> {
    Arc::new(VirtualClock::new())
}
