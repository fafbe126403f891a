//! Work requests between two queue pairs of one device, and a registration that pins nothing new.

use std::hint::black_box;
use std::sync::Arc;

use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::{AhAttr, CqHandle, Device, MrInfo, MrSpec, MwKind, PdHandle, QpHandle};
use mkey_core::key::Rkey;
use mkey_core::queue_pair::{QpInit, QpKind, QpModify};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus;
use mkey_core::work::{BindMw, Completion, RemoteAddr, SendOp, SendWr, Sge};
use mkey_os::mapping::{Mapping, PageKind};
use mkey_soft::{PinMode, SoftCq, SoftDevice, SoftOptions, SoftQp};

type Iteration = Box<dyn FnMut()>;

const PAGE: usize = 4096;
const PAGES: usize = 16;
const RIGHTS: Rights = Rights::LOCAL_WRITE
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::MW_BIND);

/// A connected queue pair and a registered mapping.
struct Bed {
    qp: SoftQp,
    cq: SoftCq,
    pd: PdHandle,
    mr: MrInfo,
    device: Arc<SoftDevice>,
    memory: Mapping,
}

impl Bed {
    fn new() -> Self {
        // Pinning and watching are the kernel's work, which is not counted here. Under valgrind an
        // unmap of watched memory would wait for ever: it lets one thread run at a time.
        let options = SoftOptions {
            pin: PinMode::None,
            watch: false,
            seed: Some(3),
            ..SoftOptions::default()
        };
        let device = SoftDevice::open(options).expect("a device");
        let pd = device.alloc_pd().expect("a protection domain");
        let cq = device.create_cq(16, None).expect("a completion queue");
        let (a, b) = (queue_pair(&device, pd, cq), queue_pair(&device, pd, cq));
        connect(&device, a.0, b.1);
        connect(&device, b.0, a.1);
        let memory = Mapping::new(PAGES * PAGE, PageKind::Base).expect("memory");
        // SAFETY: the mapping lives as long as the process, and only work requests use its bytes.
        let mr = unsafe { device.reg_mr(pd, &spec(&memory, 0, PAGES * PAGE)) }.expect("a region");
        let (qp, cq) = (device.qp(a.0).expect("its queue"), device.cq(cq).expect("its queue"));
        Self { qp, cq, pd, mr, device, memory }
    }

    fn at(&self, offset: usize) -> IoAddr {
        IoAddr((self.memory.addr() + offset) as u64)
    }

    fn run(&self, chain: &[SendWr<'_>]) {
        self.qp.post_send(black_box(chain)).expect("the chain is well formed");
        let mut done = [Completion::BLANK];
        assert_eq!(self.cq.poll(&mut done).ok(), Some(1));
        assert_eq!(done[0].status, WcStatus::Success);
        black_box(&done);
    }
}

/// An RDMA WRITE of 8 bytes, posted and polled.
pub fn write_8_post_poll() -> Iteration {
    let bed = Bed::new();
    let from = [Sge { address: bed.at(0), length: 8, lkey: bed.mr.lkey }];
    let to = RemoteAddr { address: bed.at(PAGE), rkey: bed.mr.rkey };
    Box::new(move || bed.run(&[SendWr::new(1, SendOp::Write(to), &from)]))
}

/// A bind of a window and its invalidation, posted as a chain and polled.
pub fn window_post_poll() -> Iteration {
    let bed = Bed::new();
    let mut mw = bed.device.alloc_mw(bed.pd, MwKind::Type2).expect("a window").rkey;
    Box::new(move || {
        let new_key = Rkey(mw.0.next());
        let bind = BindMw {
            mw,
            new_key,
            mr: bed.mr.lkey,
            address: bed.at(PAGE),
            length: PAGE as u64,
            rights: Rights::REMOTE_READ,
        };
        mw = new_key;
        let bind = SendWr::new(1, SendOp::BindMw(bind), &[]).unsignaled();
        bed.run(&[bind, SendWr::new(2, SendOp::LocalInv(new_key.0), &[])]);
    })
}

/// A registration and deregistration of a page that another registration holds already.
pub fn reg_mr_where_pinned() -> Iteration {
    let bed = Bed::new();
    let spec = spec(&bed.memory, PAGE, PAGE);
    Box::new(move || {
        // SAFETY: the mapping lives as long as the process, and only work requests use its bytes.
        let mr = unsafe { bed.device.reg_mr(bed.pd, black_box(&spec)) }.expect("a region");
        bed.device.dereg_mr(black_box(mr.handle)).expect("nothing holds it");
    })
}

fn spec(memory: &Mapping, at: usize, len: usize) -> MrSpec {
    let address = HostAddr((memory.addr() + at) as u64);
    MrSpec { address, length: len as u64, iova: None, rights: RIGHTS }
}

fn queue_pair(device: &SoftDevice, pd: PdHandle, cq: CqHandle) -> (QpHandle, u32) {
    let made = device.create_qp(pd, &QpInit::new(QpKind::Rc, cq)).expect("a queue pair");
    (made.handle, made.qp_num)
}

fn connect(device: &SoftDevice, qp: QpHandle, to: u32) {
    let port = device.port();
    let ah = AhAttr { gid: port.gid, port: 1, hop_limit: 64, ..AhAttr::default() };
    let init = QpModify::init(Rights::REMOTE_WRITE | Rights::REMOTE_READ);
    for change in [init, QpModify::rtr(ah, to, port.active_mtu, 1), QpModify::rts(1)] {
        device.modify_qp(qp, &change).expect("the order of the states is right");
    }
}
