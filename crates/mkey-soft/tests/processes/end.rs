//! One end of a connection between processes.

use crate::common::{ALL, Buffer, QKEY};
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::{AhAttr, AhHandle, CqHandle, Device, PdHandle, QpInfo};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpInit, QpKind, QpModify, QpState};
use mkey_core::status::WcStatus;
use mkey_core::work::{Completion, RecvWr, SendOp, SendWr, Sge, UdDest};
use mkey_soft::{Link, SoftCq, SoftDevice, SoftOptions, SoftQp, gid_of};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of each end's memory.
pub const LEN: usize = 4 << 20;
/// 4.096 us * 2^13 = 33.6 ms to wait for an answer, and as often again: others use the processors, too.
pub const TIMEOUT: (u8, Duration) = (13, Duration::from_nanos(4096 << 13));
pub const RETRIES: u8 = 7;

/// How two ends are linked.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub name: &'static str,
    pub own: &'static str,
    pub other: &'static str,
}

pub const SHARED: Setting = Setting { name: "shared_memory", own: "127.0.0.1", other: "127.0.0.1" };
/// Each writes into the other's memory by itself.
pub const DIRECT: Setting = Setting { name: "direct", own: "127.0.0.1", other: "127.0.0.1" };
pub const UDP: Setting = Setting { name: "udp", own: "127.0.0.1", other: "127.0.0.2" };
/// Both processes have one address, and so one port.
pub const UDP6: Setting = Setting { name: "udp_of_one_port", own: "::1", other: "::1" };
pub const SETTINGS: [Setting; 4] = [SHARED, DIRECT, UDP, UDP6];

/// What an end tells the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub ip: IpAddr,
    pub qp_num: u32,
    pub start: u64,
    pub rkey: u32,
}

impl Address {
    pub fn to_line(self) -> String {
        format!("{} {} {} {}", self.ip, self.qp_num, self.start, self.rkey)
    }

    pub fn of_line(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let ip = words.next().expect("an address").parse().expect("an address");
        let mut next = || words.next().expect("a word").parse::<u64>().expect("a number");
        Self { ip, qp_num: next() as u32, start: next(), rkey: next() as u32 }
    }
}

pub struct End {
    pub device: Arc<SoftDevice>,
    pub pd: PdHandle,
    pub cqs: SoftCq,
    pub kind: QpKind,
    pub info: QpInfo,
    pub qp: SoftQp,
    pub memory: Buffer,
    pub peer: Option<Address>,
    pub ah: Option<AhHandle>,
}

pub fn device(link: &str, ip: &str) -> Arc<SoftDevice> {
    let direct = link == DIRECT.name;
    let link = if direct || link == SHARED.name { Link::SharedMemory } else { Link::Udp };
    let options = SoftOptions::new("soft0", ip.parse().expect("an address"));
    SoftDevice::open(SoftOptions { link, direct, ..options }).expect("a device")
}

impl Setting {
    pub fn is_of_host(&self) -> bool {
        [SHARED.name, DIRECT.name].contains(&self.name)
    }

    pub fn device(&self) -> Arc<SoftDevice> {
        device(self.name, self.own)
    }
}

impl End {
    pub fn new(device: &Arc<SoftDevice>, kind: QpKind) -> Self {
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_cq(1024, None).unwrap();
        Self::on(device, kind, pd, cq)
    }

    pub fn on(device: &Arc<SoftDevice>, kind: QpKind, pd: PdHandle, cq: CqHandle) -> Self {
        let init = QpInit { max_send_wr: 256, max_recv_wr: 256, ..QpInit::new(kind, cq) };
        let info = device.create_qp(pd, &init).unwrap();
        let (qp, cqs) = (device.qp(info.handle).unwrap(), device.cq(cq).unwrap());
        let memory = Buffer::new(device, pd, LEN, ALL);
        let device = device.clone();
        Self { device, pd, cqs, kind, info, qp, memory, peer: None, ah: None }
    }

    pub fn address(&self) -> Address {
        let gid = self.device.port().gid;
        Address {
            ip: Ipv6Addr::from(gid.0).to_canonical(),
            qp_num: self.info.qp_num,
            start: self.memory.remote(0).address.0,
            rkey: self.memory.info.rkey.0.0,
        }
    }

    fn modify(&self, change: QpModify) {
        self.device.modify_qp(self.info.handle, &change).unwrap();
    }

    pub fn reset(&self) {
        self.modify(QpModify { state: Some(QpState::Reset), ..QpModify::default() });
    }

    /// From RESET to RTS.
    pub fn connect(&mut self, peer: Address) {
        let (rc, ud) = (self.kind == QpKind::Rc, self.kind == QpKind::Ud);
        let gid = gid_of(peer.ip);
        let ah = AhAttr { gid, gid_index: 0, port: 1, traffic_class: 0x20, hop_limit: 64 };
        self.modify(QpModify {
            state: Some(QpState::Init),
            port: Some(1),
            pkey_index: Some(0),
            rights: (!ud).then_some(ALL.difference(mkey_core::rights::Rights::MW_BIND)),
            qkey: ud.then_some(QKEY),
            ..QpModify::default()
        });
        self.modify(QpModify {
            state: Some(QpState::Rtr),
            ah: (!ud).then_some(ah),
            path_mtu: (!ud).then_some(1024),
            dest_qp_num: (!ud).then_some(peer.qp_num),
            rq_psn: (!ud).then_some(0xff_fff0),
            max_dest_rd_atomic: rc.then_some(8),
            min_rnr_timer: rc.then_some(1),
            ..QpModify::default()
        });
        self.modify(QpModify {
            state: Some(QpState::Rts),
            sq_psn: Some(0xff_fff0),
            timeout: rc.then_some(TIMEOUT.0),
            retry_cnt: rc.then_some(RETRIES),
            rnr_retry: rc.then_some(7),
            max_rd_atomic: rc.then_some(8),
            ..QpModify::default()
        });
        if ud {
            self.ah = Some(self.device.create_ah(self.pd, &ah).unwrap());
        }
        self.peer = Some(peer);
    }

    pub fn state(&self) -> QpState {
        self.device.query_qp(self.info.handle).unwrap().state
    }

    pub fn remote(&self, offset: u64) -> mkey_core::work::RemoteAddr {
        let peer = self.peer.expect("connected");
        mkey_core::work::RemoteAddr {
            address: mkey_core::address::IoAddr(peer.start + offset),
            rkey: mkey_core::key::Rkey(mkey_core::key::Key(peer.rkey)),
        }
    }

    pub fn post(&self, wr_id: u64, op: SendOp<'_>, sges: &[Sge]) {
        let dest = self.ah.map(|ah| UdDest {
            ah,
            qp_num: self.peer.expect("connected").qp_num,
            qkey: QKEY,
        });
        let wr = SendWr { dest, ..SendWr::new(wr_id, op, sges) };
        self.qp.post_send(&[wr]).unwrap();
    }

    pub fn receive(&self, wr_id: u64, offset: u64, length: u32) {
        let sges = [self.memory.sge(offset, length)];
        self.qp.post_recv(&[RecvWr { wr_id, sges: &sges }]).unwrap();
    }

    /// A completion, if there is one.
    pub fn poll(&self) -> Option<Completion> {
        let mut into = [Completion::BLANK];
        (self.cqs.poll(&mut into).unwrap() == 1).then_some(into[0])
    }

    /// The next completion.
    pub fn next(&self) -> Completion {
        let since = Instant::now();
        loop {
            if let Some(done) = self.poll() {
                return done;
            }
            assert!(since.elapsed() < Duration::from_secs(20), "no completion comes");
            // There are fewer processors than processes that wait.
            std::thread::yield_now();
        }
    }

    pub fn run(&self, op: SendOp<'_>, sges: &[Sge]) -> Completion {
        self.post(77, op, sges);
        let done = self.next();
        assert_eq!(done.wr_id, 77);
        done
    }

    pub fn succeeds(&self, op: SendOp<'_>, sges: &[Sge]) {
        assert_eq!(self.run(op, sges).status, WcStatus::Success, "{op:?}");
    }

    pub fn events(&self) -> Vec<AsyncEvent> {
        let next = || self.device.get_async_event(Some(Duration::ZERO)).unwrap();
        std::iter::from_fn(next).collect()
    }

    /// Fills memory with bytes that follow from `seed`.
    pub fn fill(&self, offset: usize, length: usize, seed: u64) {
        let mut dice = fastrand::Rng::with_seed(seed);
        for at in offset..offset + length {
            self.memory.set(at, dice.u8(..));
        }
    }

    /// Whether memory is as `fill` leaves it.
    pub fn holds(&self, offset: usize, length: usize, seed: u64) -> bool {
        let mut dice = fastrand::Rng::with_seed(seed);
        (offset..offset + length).all(|at| self.memory.get(at) == dice.u8(..))
    }
}
