//! A device with two connected queue pairs and memory, and threads that have used it.

use anyhow::{Context, Result, ensure};
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::{AhAttr, CqHandle, Device, MrInfo, MrSpec, PdHandle, QpHandle};
use mkey_core::queue_pair::{QpInit, QpKind, QpModify};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus;
use mkey_core::work::{Completion, RemoteAddr, SendOp, SendWr, Sge};
use mkey_os::mapping::{Mapping, PageKind};
use mkey_soft::{SoftCq, SoftDevice, SoftOptions, SoftQp};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// Rights of every region that is measured.
pub const RIGHTS: Rights = Rights::LOCAL_WRITE
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_READ)
    .union(Rights::MW_BIND);

/// A software RNIC whose queue pair `qp` is connected to another of the same device.
pub struct Station {
    pub device: Arc<SoftDevice>,
    pub pd: PdHandle,
    pub qp: SoftQp,
    pub cq: SoftCq,
}

impl Station {
    pub fn open() -> Result<Self> {
        let device = SoftDevice::open(SoftOptions::default())?;
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(1024, None)?;
        let (a, b) = (queue_pair(&device, pd, cq)?, queue_pair(&device, pd, cq)?);
        connect(&device, a.0, b.1)?;
        connect(&device, b.0, a.1)?;
        let (qp, cq) = (device.qp(a.0)?, device.cq(cq)?);
        Ok(Self { device, pd, qp, cq })
    }

    /// Registers `len` bytes of a mapping from `at` on.
    pub fn register(&self, mapping: &Arc<Mapping>, at: usize, len: usize) -> Result<Registered> {
        let spec = self.spec(mapping, at, len)?;
        // SAFETY: the mapping is kept as long as the registration, and no reference to its bytes
        // is ever made.
        let info = unsafe { self.device.reg_mr(self.pd, &spec) }?;
        let device = self.device.clone();
        Ok(Registered { device, info, address: spec.address, mapping: mapping.clone() })
    }

    /// What to register: `len` bytes of a mapping from `at` on.
    pub fn spec(&self, mapping: &Mapping, at: usize, len: usize) -> Result<MrSpec> {
        ensure!(at + len <= mapping.len(), "{len} bytes from {at} on are not in the mapping");
        let address = HostAddr((mapping.addr() + at) as u64);
        Ok(MrSpec { address, length: len as u64, iova: None, rights: RIGHTS })
    }

    /// Polls until `count` work requests have succeeded.
    #[inline]
    pub fn reap(&self, count: usize) -> Result<()> {
        let mut got = 0;
        let mut into = [Completion::BLANK; 4];
        while got < count {
            let taken = self.cq.poll(&mut into)?;
            for completion in into.iter().take(taken) {
                let status = completion.status;
                ensure!(status == WcStatus::Success, "a work request ended as {status:?}");
            }
            got += taken;
        }
        Ok(())
    }

    /// Posts a chain.
    #[inline]
    pub fn post(&self, chain: &[SendWr<'_>]) -> Result<()> {
        Ok(self.qp.post_send(chain).map_err(|refused| refused.error)?)
    }

    /// Threads that have used the device, and so have an executor slot each, and sleep now.
    pub fn sleepers(&self, count: usize, write: &Write) -> Result<Sleepers> {
        let (used, all_used) = mpsc::channel();
        let mut sleepers = Sleepers { wake: Vec::new(), threads: Vec::new() };
        for _ in 0..count {
            let (wake, woken) = mpsc::channel::<()>();
            let (qp, used, write) = (self.qp.clone(), used.clone(), *write);
            sleepers.wake.push(wake);
            sleepers.threads.push(std::thread::spawn(move || {
                let posted = qp.post_send(&[write.request(&[write.from]).unsignaled()]);
                let _ = used.send(posted.is_ok());
                // Ends when the sender is dropped.
                let _ = woken.recv();
            }));
        }
        for _ in 0..count {
            ensure!(all_used.recv().context("a thread ended")?, "a thread could not post");
        }
        Ok(sleepers)
    }
}

/// A registration, which keeps its memory.
pub struct Registered {
    device: Arc<SoftDevice>,
    pub info: MrInfo,
    address: HostAddr,
    mapping: Arc<Mapping>,
}

impl Registered {
    /// `len` bytes from `at` on, for the own side of a work request.
    pub fn sge(&self, at: u64, len: u32) -> Sge {
        Sge { address: IoAddr(self.address.0 + at), length: len, lkey: self.info.lkey }
    }

    /// The place `at` bytes in, for a peer.
    pub fn remote(&self, at: u64) -> RemoteAddr {
        RemoteAddr { address: IoAddr(self.address.0 + at), rkey: self.info.rkey }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // One that is still held by windows keeps its memory with it, as an error that was not
        // foreseen; the process ends soon.
        if self.device.dereg_mr(self.info.handle).is_err() {
            std::mem::forget(self.mapping.clone());
        }
    }
}

/// An RDMA WRITE.
#[derive(Clone, Copy)]
pub struct Write {
    pub from: Sge,
    pub to: RemoteAddr,
}

impl Write {
    #[inline]
    pub fn request<'a>(&self, from: &'a [Sge; 1]) -> SendWr<'a> {
        SendWr::new(1, SendOp::Write(self.to), from)
    }
}

/// Threads asleep; they end when this is dropped.
pub struct Sleepers {
    wake: Vec<mpsc::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        self.wake.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Memory of which every page has been touched.
pub fn memory(len: usize, pages: PageKind) -> Result<Arc<Mapping>> {
    let mapping = Mapping::new(len, pages)?;
    for at in (0..mapping.len()).step_by(4096) {
        // SAFETY: the byte lies in the mapping, which nothing else has seen yet.
        unsafe { mapping.as_ptr().add(at).write_volatile(1) };
    }
    Ok(Arc::new(mapping))
}

fn queue_pair(device: &SoftDevice, pd: PdHandle, cq: CqHandle) -> Result<(QpHandle, u32)> {
    let init = QpInit { max_send_wr: 256, ..QpInit::new(QpKind::Rc, cq) };
    let made = device.create_qp(pd, &init)?;
    Ok((made.handle, made.qp_num))
}

fn connect(device: &SoftDevice, qp: QpHandle, to: u32) -> Result<()> {
    let port = device.port();
    let ah = AhAttr { gid: port.gid, port: 1, hop_limit: 64, ..AhAttr::default() };
    let init = QpModify::init(Rights::REMOTE_WRITE | Rights::REMOTE_READ);
    for change in [init, QpModify::rtr(ah, to, port.active_mtu, 1), QpModify::rts(1)] {
        device.modify_qp(qp, &change)?;
    }
    Ok(())
}
