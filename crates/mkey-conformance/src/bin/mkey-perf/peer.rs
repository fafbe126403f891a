//! A second process on a processor of its own, and the memory by which both talk to each other.

use crate::machine;
use crate::station::{RIGHTS, memory};
use anyhow::{Context, Result, ensure};
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::{AhAttr, Device, MrInfo, MrSpec};
use mkey_core::key::{Key, Rkey};
use mkey_core::queue_pair::{QpInit, QpKind, QpModify};
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::{Completion, RecvWr, RemoteAddr, SendWr, Sge};
use mkey_os::file_mapping::FileMapping;
use mkey_os::mapping::{Mapping, PageKind};
use mkey_soft::{Link, SoftCq, SoftDevice, SoftOptions, SoftQp};
use rustix::fs::{MemfdFlags, OFlags};
use std::hint::spin_loop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Words that are apart by two cache lines each.
const WORDS: usize = 64;
const APART: usize = 128;
/// Bytes behind the words, for rings of whoever measures.
pub const SPACE: usize = 1 << 20;
/// Bytes of each process's registered memory.
pub const LEN: usize = 8 << 20;

const COMMAND: usize = 0;
const DONE: usize = 1;
const ARGUMENT: usize = 2;
/// Number of the queue pair, address and key, of the first and of the second process.
const ADDRESSES: usize = 4;
/// From here on words are free for whoever measures.
pub const FREE: usize = 16;

/// Memory that both processes have.
pub struct Board {
    mapping: FileMapping,
    file: OwnedFd,
}

impl Board {
    fn new() -> Result<Self> {
        let file = rustix::fs::memfd_create("mkey-perf", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, (WORDS * APART + SPACE) as u64)?;
        Self::of(file)
    }

    fn of(file: OwnedFd) -> Result<Self> {
        let mapping = FileMapping::new(file.as_fd(), 0, WORDS * APART + SPACE, true)?;
        Ok(Self { mapping, file })
    }

    pub fn word(&self, number: usize) -> &AtomicU64 {
        let at = self.mapping.range().start + number % WORDS * APART;
        // SAFETY: within the mapping, which lives as long as `self`, and aligned; both processes
        // touch it as an atomic only.
        unsafe { &*(at as *const AtomicU64) }
    }

    /// The space behind the words.
    pub fn space(&self) -> *mut u8 {
        (self.mapping.range().start + WORDS * APART) as *mut u8
    }

    /// Spins until a word has a value.
    #[inline]
    pub fn await_value(&self, number: usize, value: u64) {
        while self.word(number).load(Ordering::Acquire) != value {
            spin_loop();
        }
    }
}

/// One end of a connection between the processes.
pub struct End {
    pub device: Arc<SoftDevice>,
    qp: SoftQp,
    cq: SoftCq,
    number: u32,
    pub memory: Arc<Mapping>,
    info: MrInfo,
    handle: mkey_core::device::QpHandle,
    peer: Option<(u64, u32)>,
}

impl End {
    pub fn open(link: Link, ip: std::net::IpAddr) -> Result<Self> {
        let device = SoftDevice::open(SoftOptions { link, ..SoftOptions::new("soft0", ip) })?;
        let pd = device.alloc_pd()?;
        let cq = device.create_cq(1024, None)?;
        let init = QpInit { max_send_wr: 256, max_recv_wr: 256, ..QpInit::new(QpKind::Rc, cq) };
        let made = device.create_qp(pd, &init)?;
        let memory = memory(LEN, PageKind::Base)?;
        let address = HostAddr(memory.addr() as u64);
        let spec = MrSpec { address, length: LEN as u64, iova: None, rights: RIGHTS };
        // SAFETY: the mapping is kept as long as the device, and no reference to its bytes is made.
        let info = unsafe { device.reg_mr(pd, &spec) }?;
        let (qp, cq) = (device.qp(made.handle)?, device.cq(cq)?);
        let (number, handle) = (made.qp_num, made.handle);
        Ok(Self { device, qp, cq, number, memory, info, handle, peer: None })
    }

    /// Connects with the other process, which does the same.
    pub fn connect(
        &mut self,
        board: &Board,
        second: bool,
        gid: mkey_core::device::Gid,
    ) -> Result<()> {
        let (own, other) = if second { (3, 0) } else { (0, 3) };
        let tell =
            [self.memory.addr() as u64, u64::from(self.info.rkey.0.0), u64::from(self.number)];
        for (at, word) in tell.into_iter().enumerate() {
            board.word(ADDRESSES + own + at).store(word, Ordering::Release);
        }
        let heard = |at: usize| loop {
            match board.word(ADDRESSES + other + at).load(Ordering::Acquire) {
                0 => std::thread::yield_now(),
                word => return word,
            }
        };
        // The number comes last.
        let number = heard(2) as u32;
        self.peer = Some((heard(0), heard(1) as u32));
        let ah = AhAttr { gid, port: 1, hop_limit: 64, ..AhAttr::default() };
        let mtu = self.device.port().active_mtu;
        let rights = RIGHTS
            .difference(mkey_core::rights::Rights::MW_BIND)
            .difference(mkey_core::rights::Rights::LOCAL_WRITE);
        for change in [QpModify::init(rights), QpModify::rtr(ah, number, mtu, 1), QpModify::rts(1)]
        {
            self.device.modify_qp(self.handle, &change)?;
        }
        Ok(())
    }

    pub fn sge(&self, at: usize, len: usize) -> Sge {
        let address = IoAddr((self.memory.addr() + at) as u64);
        Sge { address, length: len as u32, lkey: self.info.lkey }
    }

    pub fn remote(&self, at: usize) -> RemoteAddr {
        let (start, rkey) = self.peer.unwrap_or_default();
        RemoteAddr { address: IoAddr(start + at as u64), rkey: Rkey(Key(rkey)) }
    }

    /// A byte of the own memory, which the peer may write.
    pub fn byte(&self, at: usize) -> u8 {
        assert!(at < LEN);
        // SAFETY: within the mapping.
        unsafe { self.memory.as_ptr().add(at).read_volatile() }
    }

    pub fn set(&self, at: usize, value: u8) {
        assert!(at < LEN);
        // SAFETY: within the mapping.
        unsafe { self.memory.as_ptr().add(at).write_volatile(value) }
    }

    #[inline]
    pub fn post(&self, wr: &SendWr<'_>) -> Result<()> {
        self.qp.post_send(std::slice::from_ref(wr)).map_err(|refused| refused.error.into())
    }

    #[inline]
    pub fn receive(&self, sges: &[Sge]) -> Result<()> {
        self.qp.post_recv(&[RecvWr { wr_id: 0, sges }]).map_err(|refused| refused.error.into())
    }

    /// Polls once; how many sends and receives are done.
    #[inline]
    pub fn poll(&self) -> Result<(usize, usize)> {
        let mut into = [Completion::BLANK; 8];
        let taken = self.cq.poll(&mut into)?;
        let mut receives = 0;
        for done in into.iter().take(taken) {
            ensure!(done.status == WcStatus::Success, "a work request ended as {}", done.status);
            receives += usize::from(done.opcode == WcOpcode::Recv);
        }
        Ok((taken - receives, receives))
    }
}

/// What the second process is told.
pub type Task = fn(&Board, &mut Option<End>, u64) -> Result<()>;

/// The second process, as the first sees it.
pub struct Second {
    pub board: Board,
    child: Child,
    told: u64,
}

impl Second {
    /// Starts it on a processor.
    pub fn start(cpu: usize) -> Result<Self> {
        let board = Board::new()?;
        let file = format!("/proc/{}/fd/{}", std::process::id(), board.file.as_raw_fd());
        let own = std::env::current_exe().context("current_exe")?;
        let child = Command::new(own)
            .args(["--second", &file, "--second-cpu", &cpu.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start a second process")?;
        Ok(Self { board, child, told: 0 })
    }

    /// Has it begin a task; waits until it has.
    pub fn begin(&mut self, task: usize, argument: u64) {
        self.board.word(ARGUMENT).store(argument, Ordering::Release);
        self.told += 1;
        self.board.word(COMMAND).store(self.told << 8 | task as u64, Ordering::Release);
    }

    /// Waits until it has done what it was told last.
    pub fn finish(&mut self) -> Result<()> {
        let mut looks = 0u32;
        while self.board.word(DONE).load(Ordering::Acquire) != self.told {
            looks += 1;
            if looks.is_multiple_of(1 << 16) {
                ensure!(self.child.try_wait()?.is_none(), "the second process has ended");
            }
            spin_loop();
        }
        Ok(())
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program of the second process: does tasks until it is killed.
pub fn second(file: &str, cpu: usize, tasks: &[Task]) -> Result<ExitCode> {
    machine::pin_to(&[cpu])?;
    let file = rustix::fs::open(file, OFlags::RDWR | OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
    let board = Board::of(file)?;
    let parent = rustix::process::getppid();
    let (mut end, mut done) = (None, 0);
    loop {
        let command = board.word(COMMAND).load(Ordering::Acquire);
        if command >> 8 == done {
            if rustix::process::getppid() != parent {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(Duration::from_micros(50));
            continue;
        }
        let task = tasks.get(command as u8 as usize).context("no such task")?;
        task(&board, &mut end, board.word(ARGUMENT).load(Ordering::Acquire))?;
        done = command >> 8;
        board.word(DONE).store(done, Ordering::Release);
    }
}
