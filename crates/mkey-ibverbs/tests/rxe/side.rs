//! Two queue pairs of one device, and memory.

use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::*;
use mkey_core::queue_pair::{QpInit, QpKind, QpModify, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus;
use mkey_core::work::{Completion, RecvWr, RemoteAddr, SendOp, SendWr, Sge, UdDest};
use mkey_ibverbs::{IbvCq, IbvDevice, IbvQp};
use mkey_os::mapping::{Mapping, PageKind};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// The device of the virtual machine.
pub const NAME: &str = "rxe0";
/// How long something may take that happens.
pub const LIMIT: Duration = Duration::from_secs(30);
pub const ALL: Rights = Rights::LOCAL_WRITE
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::REMOTE_ATOMIC);
pub const QKEY: u32 = 0x1111_1111;
const PEER: Rights = Rights::REMOTE_WRITE.union(Rights::REMOTE_READ).union(Rights::REMOTE_ATOMIC);

static MACHINE: RwLock<()> = RwLock::new(());

/// The device, and the word that the machine stays as it is.
pub fn open() -> (Arc<IbvDevice>, RwLockReadGuard<'static, ()>) {
    let stays = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    (device(), stays)
}

/// The device, and the machine alone.
pub fn open_alone() -> (Arc<IbvDevice>, RwLockWriteGuard<'static, ()>) {
    let alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    (device(), alone)
}

fn device() -> Arc<IbvDevice> {
    IbvDevice::open(NAME).unwrap_or_else(|error| panic!("{error}"))
}

/// Memory with a region over it.
pub struct Buffer<'a> {
    pub info: MrInfo,
    device: &'a IbvDevice,
    pub map: Mapping,
}

impl<'a> Buffer<'a> {
    pub fn new(device: &'a IbvDevice, pd: PdHandle, rights: Rights) -> Self {
        let map = Mapping::new(16 << 10, PageKind::Base).expect("memory");
        let length = map.len() as u64;
        let spec = MrSpec { address: HostAddr(map.addr() as u64), length, iova: None, rights };
        // SAFETY: the memory is unmapped after the region is deregistered, or the device closed.
        let info = unsafe { device.reg_mr(pd, &spec) }.expect("reg_mr");
        Self { info, device, map }
    }

    pub fn at(&self, offset: u64) -> IoAddr {
        IoAddr(self.map.addr() as u64 + offset)
    }

    pub fn sge(&self, offset: u64, length: u32) -> [Sge; 1] {
        [Sge { address: self.at(offset), length, lkey: self.info.lkey }]
    }

    pub fn remote(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { address: self.at(offset), rkey: self.info.rkey }
    }

    pub fn set(&self, offset: usize, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            assert!(offset + at < self.map.len());
            // SAFETY: within the mapping, as asserted.
            unsafe { self.map.as_ptr().add(offset + at).write_volatile(*byte) };
        }
    }

    pub fn get(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.map.len());
        // SAFETY: within the mapping, as asserted.
        (offset..offset + length)
            .map(|at| unsafe { self.map.as_ptr().add(at).read_volatile() })
            .collect()
    }

    pub fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.get(offset, 8).try_into().unwrap())
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // Memory of a region that is left would be unmapped under it.
        if let Err(error) = self.device.dereg_mr(self.info.handle)
            && !std::thread::panicking()
        {
            panic!("{error}");
        }
    }
}

/// One of two queue pairs.
pub struct Side {
    pub device: Arc<IbvDevice>,
    pub pd: PdHandle,
    pub cq: IbvCq,
    pub cq_handle: CqHandle,
    pub qp: IbvQp,
    pub info: QpInfo,
    pub kind: QpKind,
    pub dest: Option<UdDest>,
}

pub fn path(device: &IbvDevice) -> AhAttr {
    let port = device.port();
    AhAttr { gid: port.gid, gid_index: port.gid_index, port: 1, traffic_class: 0, hop_limit: 64 }
}

impl Side {
    pub fn new(
        device: &Arc<IbvDevice>,
        pd: PdHandle,
        kind: QpKind,
        change: impl FnOnce(&mut QpInit),
    ) -> Self {
        let cq_handle = device.create_cq(64, None).expect("create_cq");
        let mut init = QpInit { max_send_wr: 32, max_recv_wr: 32, ..QpInit::new(kind, cq_handle) };
        change(&mut init);
        let info = device.create_qp(pd, &init).expect("create_qp");
        Self {
            device: device.clone(),
            pd,
            cq: device.cq(cq_handle).expect("cq"),
            cq_handle,
            qp: device.qp(info.handle).expect("qp"),
            info,
            kind,
            dest: None,
        }
    }

    pub fn modify(&self, change: &QpModify) {
        self.device.modify_qp(self.info.handle, change).expect("modify_qp");
    }

    pub fn connect(&mut self, peer: QpInfo) {
        let ah = path(&self.device);
        if self.kind == QpKind::Ud {
            let init = QpModify { rights: None, qkey: Some(QKEY), ..QpModify::init(PEER) };
            let go = |state| QpModify { state: Some(state), ..QpModify::default() };
            self.modify(&init);
            self.modify(&go(QpState::Rtr));
            self.modify(&QpModify { sq_psn: Some(7), ..go(QpState::Rts) });
            let ah = self.device.create_ah(self.pd, &ah).expect("create_ah");
            self.dest = Some(UdDest { ah, qp_num: peer.qp_num, qkey: QKEY });
            return;
        }
        let (rtr, rts) = (QpModify::rtr(ah, peer.qp_num, 1024, 7), QpModify::rts(7));
        let rts = QpModify { timeout: Some(12), retry_cnt: Some(2), ..rts };
        self.modify(&QpModify::init(PEER));
        match self.kind {
            QpKind::Uc => {
                self.modify(&QpModify { max_dest_rd_atomic: None, min_rnr_timer: None, ..rtr });
                let state = Some(QpState::Rts);
                self.modify(&QpModify { state, sq_psn: Some(7), ..QpModify::default() });
            }
            _ => {
                self.modify(&rtr);
                self.modify(&rts);
            }
        }
    }

    pub fn state(&self) -> QpState {
        self.device.query_qp(self.info.handle).expect("query_qp").state
    }

    pub fn send(&self, wr_id: u64, op: SendOp<'_>, sges: &[Sge]) {
        let wr = SendWr { dest: self.dest, ..SendWr::new(wr_id, op, sges) };
        self.qp.post_send(&[wr]).unwrap_or_else(|refused| panic!("{}", refused.error));
    }

    pub fn recv(&self, wr_id: u64, sges: &[Sge]) {
        let posted = self.qp.post_recv(&[RecvWr { wr_id, sges }]);
        posted.unwrap_or_else(|refused| panic!("{}", refused.error));
    }

    pub fn next(&self) -> Completion {
        let begun = Instant::now();
        let mut into = [Completion::BLANK];
        loop {
            if self.cq.poll(&mut into).expect("poll_cq") == 1 {
                return into[0];
            }
            assert!(begun.elapsed() < LIMIT, "no completion");
            std::thread::yield_now();
        }
    }

    /// Posts a send and takes its completion.
    pub fn run(&self, op: SendOp<'_>, sges: &[Sge]) -> Completion {
        self.send(77, op, sges);
        let completion = self.next();
        assert_eq!((completion.wr_id, completion.qp_num), (77, self.info.qp_num));
        completion
    }

    pub fn done(&self, op: SendOp<'_>, sges: &[Sge]) -> Completion {
        let completion = self.run(op, sges);
        assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
        completion
    }
}

/// Two queue pairs of one protection domain, connected.
pub fn pair(device: &Arc<IbvDevice>, kind: QpKind) -> (PdHandle, Side, Side) {
    let pd = device.alloc_pd().expect("alloc_pd");
    let (one, two) = pair_in(device, pd, kind);
    (pd, one, two)
}

/// Two queue pairs of this protection domain, connected.
pub fn pair_in(device: &Arc<IbvDevice>, pd: PdHandle, kind: QpKind) -> (Side, Side) {
    let (mut one, mut two) =
        (Side::new(device, pd, kind, |_| ()), Side::new(device, pd, kind, |_| ()));
    one.connect(two.info);
    two.connect(one.info);
    (one, two)
}
