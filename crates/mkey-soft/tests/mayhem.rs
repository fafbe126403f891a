//! Everything at once, with arguments that may be anything: nothing panics, nothing hangs, and
//! nothing is left at the end.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests' memory is the tests' own")]

mod common;

use common::*;
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair, SharedReceive};
use mkey_core::device::*;
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::queue_pair::{QpInit, QpKind, QpModify, QpState};
use mkey_core::rights::Rights;
use mkey_core::work::*;
use mkey_soft::{PinMode, SoftDevice, SoftOptions, Stale, gid_of};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const PAGES: usize = 64;
/// The longest length that may fit.
const BEYOND: usize = 20 * PAGE;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Mostly one that is known, else one that is wrong in some way.
    fn handle(&mut self, known: &Mutex<Vec<u64>>) -> u64 {
        let one = {
            let known = known.lock().unwrap();
            if known.is_empty() { 0 } else { known[self.below(known.len() as u64) as usize] }
        };
        match self.below(16) {
            0 => self.of(&[0, 1, u64::MAX, u64::from(u32::MAX), 1 << 32]),
            1 => one ^ 1 << self.below(64),
            _ => one,
        }
    }

    fn take(&mut self, known: &Mutex<Vec<u64>>) -> u64 {
        let mut known = known.lock().unwrap();
        if known.is_empty() || self.below(16) == 0 {
            return self.next();
        }
        let at = self.below(known.len() as u64) as usize;
        known.swap_remove(at)
    }
}

#[derive(Default)]
struct Known {
    pds: Mutex<Vec<u64>>,
    cqs: Mutex<Vec<u64>>,
    srqs: Mutex<Vec<u64>>,
    qps: Mutex<Vec<u64>>,
    nums: Mutex<Vec<u64>>,
    mrs: Mutex<Vec<u64>>,
    mws: Mutex<Vec<u64>>,
    keys: Mutex<Vec<u64>>,
    ahs: Mutex<Vec<u64>>,
}

fn keep(list: &Mutex<Vec<u64>>, one: u64) {
    let mut list = list.lock().unwrap();
    if list.len() < 256 {
        list.push(one);
    }
}

struct Field {
    devices: [Arc<SoftDevice>; 2],
    known: [Known; 2],
    memory: usize,
}

impl Field {
    fn address(&self, random: &mut Random) -> u64 {
        match random.below(12) {
            0 => random.of(&[0, 1, u64::MAX, u64::MAX - 4095, 1 << 63, 1 << 47, (1 << 47) - 4096]),
            _ => self.memory as u64 + random.below((PAGES * PAGE) as u64),
        }
    }

    fn length(&self, random: &mut Random) -> u64 {
        match random.below(12) {
            0 => random.of(&[0, u64::MAX, u64::MAX - 1, 1 << 63, 1 << 31, (1 << 31) + 1, 1 << 32]),
            _ => random.below(BEYOND as u64),
        }
    }

    fn key(&self, random: &mut Random) -> Key {
        let known = &self.known[random.below(2) as usize];
        match random.below(16) {
            0 => Key(random.of(&[0, u32::MAX, 1, 1 << 31])),
            1 => Key(random.next() as u32),
            _ => Key(random.handle(&known.keys) as u32),
        }
    }

    fn sges(&self, random: &mut Random) -> Vec<Sge> {
        let count = random.of(&[0, 1, 1, 1, 1, 2, 3, 31, 32, 33, 100]);
        (0..count)
            .map(|_| Sge {
                address: IoAddr(self.address(random)),
                length: self.length(random) as u32,
                lkey: Lkey(self.key(random)),
            })
            .collect()
    }

    fn rights(&self, random: &mut Random) -> Rights {
        match random.below(4) {
            0 => Rights::from_bits_retain(random.next() as u32),
            1 => random.of(&[
                Rights::ON_DEMAND,
                Rights::ON_DEMAND | ALL,
                ALL | Rights::ZERO_BASED,
                Rights::REMOTE_READ,
            ]),
            _ => ALL,
        }
    }

    fn post(&self, random: &mut Random) {
        let at = random.below(2) as usize;
        let (device, known) = (&self.devices[at], &self.known[at]);
        if let Ok(cq) = device.cq(CqHandle(random.handle(&known.cqs))) {
            let mut into = [Completion::BLANK; 16];
            let most = random.below(17) as usize;
            let _ = cq.poll(&mut into[..most]);
            let _ = cq.request_notify(random.below(2) == 0);
        }
        if let Ok(srq) = device.srq(SrqHandle(random.handle(&known.srqs))) {
            let sges = self.sges(random);
            let _ = srq.post_recv(&[RecvWr { wr_id: 1, sges: &sges }]);
        }
        let Ok(qp) = device.qp(QpHandle(random.handle(&known.qps))) else { return };
        let sges = self.sges(random);
        let _ = qp.post_recv(&[RecvWr { wr_id: 1, sges: &sges }]);
        for _ in 0..random.below(4) {
            let (sges, list) = (self.sges(random), self.sges(random));
            let (address, length) = (IoAddr(self.address(random)), self.length(random));
            let remote = RemoteAddr { address, rkey: Rkey(self.key(random)) };
            let (mw, mr) = (Rkey(self.key(random)), Lkey(self.key(random)));
            let new_key = if random.below(2) == 0 { Rkey(mw.0.next()) } else { remote.rkey };
            let rights = self.rights(random);
            let bind = BindMw { mw, new_key, mr, address, length, rights };
            let op = match random.below(13) {
                0 => SendOp::Send,
                1 => SendOp::SendImm(1),
                2 => SendOp::SendInv(mw),
                3 | 4 => SendOp::Write(remote),
                5 => SendOp::WriteImm(remote, 1),
                6 => SendOp::Read(remote),
                7 => SendOp::FetchAdd { remote, add: 1 },
                8 => SendOp::CompareSwap { remote, compare: 0, swap: 1 },
                9 => SendOp::BindMw(bind),
                10 => SendOp::BindMw1(bind),
                11 => SendOp::LocalInv(mw.0),
                _ => SendOp::RegMr(RegMr { key: mw.0, iova: address, rights, entries: &list }),
            };
            let bytes = vec![0; random.of(&[0, 1, 64, 1024, 1025])];
            let mut wr = SendWr::new(2, op, &sges);
            if random.below(8) == 0 {
                wr.payload = Payload::Inline(&bytes);
            }
            if random.below(4) == 0 {
                let (ah, qp_num) =
                    (AhHandle(random.handle(&known.ahs)), random.handle(&known.nums));
                wr.dest = Some(UdDest { ah, qp_num: qp_num as u32, qkey: QKEY });
            }
            let _ = qp.post_send(&[wr]);
        }
    }

    fn connect(&self, random: &mut Random) {
        let at = random.below(2) as usize;
        let other = if random.below(3) == 0 { at } else { 1 - at };
        let (device, known) = (&self.devices[at], &self.known[at]);
        let qp = QpHandle(random.handle(&known.qps));
        let peer = random.handle(&self.known[other].nums) as u32;
        let gid = self.devices[other].port().gid;
        let ah = AhAttr { gid, gid_index: 0, port: 1, traffic_class: 0, hop_limit: 64 };
        let states = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
        for state in states {
            let rtr = state == QpState::Rtr;
            let (init, rts) = (state == QpState::Init, state == QpState::Rts);
            for rc in [true, false] {
                let change = QpModify {
                    state: Some(state),
                    port: init.then_some(1),
                    pkey_index: init.then_some(0),
                    rights: init.then_some(ALL),
                    ah: rtr.then_some(ah),
                    path_mtu: rtr.then_some(1024),
                    dest_qp_num: rtr.then_some(peer),
                    rq_psn: rtr.then_some(7),
                    max_dest_rd_atomic: (rtr && rc).then_some(4),
                    min_rnr_timer: (rtr && rc).then_some(1),
                    sq_psn: rts.then_some(7),
                    timeout: (rts && rc).then_some(1),
                    retry_cnt: (rts && rc).then_some(1),
                    rnr_retry: (rts && rc).then_some(random.of(&[0, 1, 7])),
                    max_rd_atomic: (rts && rc).then_some(4),
                    ..QpModify::default()
                };
                if device.modify_qp(qp, &change).is_ok() {
                    break;
                }
            }
        }
    }

    fn control(&self, random: &mut Random) {
        let at = random.below(2) as usize;
        let (device, known) = (&self.devices[at], &self.known[at]);
        let pd = PdHandle(random.handle(&known.pds));
        match random.below(26) {
            0 => keep(&known.pds, device.alloc_pd().unwrap().0),
            1 => drop(device.dealloc_pd(pd)),
            2 => {
                let depth = random.of(&[0, 1, 2, 16, 256, u32::MAX]);
                if let Ok(cq) = device.create_cq(depth, None) {
                    keep(&known.cqs, cq.0);
                }
            }
            3 => drop(device.destroy_cq(CqHandle(random.handle(&known.cqs)))),
            4 => {
                let (wr, sge) = (random.of(&[0, 1, 64, u32::MAX]), random.of(&[0, 1, 32, 33]));
                if let Ok(srq) = device.create_srq(pd, wr, sge) {
                    keep(&known.srqs, srq.0);
                }
            }
            5 => {
                let srq = SrqHandle(random.handle(&known.srqs));
                let _ = device.modify_srq(srq, random.of(&[0, 1, 64, u32::MAX]));
                let _ = device.destroy_srq(srq);
            }
            6..=8 => {
                let cq = CqHandle(random.handle(&known.cqs));
                let mut init = QpInit::new(random.of(&[QpKind::Rc, QpKind::Uc, QpKind::Ud]), cq);
                init.srq = (random.below(4) == 0).then(|| SrqHandle(random.handle(&known.srqs)));
                init.max_send_wr = random.of(&[0, 1, 16, 64, u32::MAX]);
                init.max_send_sge = random.of(&[1, 32, 33]);
                init.signal_all = random.below(2) == 0;
                if let Ok(info) = device.create_qp(pd, &init) {
                    keep(&known.qps, info.handle.0);
                    keep(&known.nums, info.qp_num.into());
                }
            }
            9 => drop(device.destroy_qp(QpHandle(random.take(&known.qps)))),
            10..=13 => self.connect(random),
            14 => {
                let qp = QpHandle(random.handle(&known.qps));
                let state = random.of(&[QpState::Err, QpState::Sqd, QpState::Rts, QpState::Reset]);
                let _ =
                    device.modify_qp(qp, &QpModify { state: Some(state), ..Default::default() });
                let _ = device.query_qp(qp);
            }
            15..=18 => {
                let (address, length) = (HostAddr(self.address(random)), self.length(random));
                let iova = match random.below(4) {
                    0 => Some(IoAddr(self.address(random))),
                    1 => Some(IoAddr(u64::MAX - 8191 + address.0 % 4096)),
                    _ => None,
                };
                let spec = MrSpec { address, length, iova, rights: self.rights(random) };
                if let Ok(info) = unsafe { device.reg_mr(pd, &spec) } {
                    keep(&known.mrs, info.handle.0);
                    keep(&known.keys, info.lkey.0.0.into());
                    keep(&known.keys, info.rkey.0.0.into());
                }
            }
            19 => drop(device.dereg_mr(MrHandle(random.take(&known.mrs)))),
            20 => {
                let translation = (HostAddr(self.address(random)), self.length(random));
                let change = MrChange {
                    pd: (random.below(2) == 0).then_some(pd),
                    translation: (random.below(2) == 0).then_some(translation),
                    rights: (random.below(2) == 0).then(|| self.rights(random)),
                };
                let _ = unsafe { device.rereg_mr(MrHandle(random.handle(&known.mrs)), &change) };
            }
            21 => {
                let kind = random.of(&[MwKind::Type1, MwKind::Type2]);
                if let Ok(mw) = device.alloc_mw(pd, kind) {
                    keep(&known.mws, mw.handle.0);
                    keep(&known.keys, mw.rkey.0.0.into());
                }
            }
            22 => drop(device.dealloc_mw(MwHandle(random.take(&known.mws)))),
            23 => {
                let entries = random.of(&[0, 1, 3, 4096, 4097, u32::MAX]);
                if let Ok(info) = device.alloc_fast_mr(pd, entries) {
                    keep(&known.mrs, info.handle.0);
                    keep(&known.keys, info.rkey.0.0.into());
                }
            }
            24 => {
                let gid = self.devices[random.below(2) as usize].port().gid;
                let port = random.of(&[0, 1, 255]);
                let ah = AhAttr { gid, gid_index: 0, port, traffic_class: 0, hop_limit: 64 };
                if let Ok(ah) = device.create_ah(pd, &ah) {
                    keep(&known.ahs, ah.0);
                }
                let _ = device.destroy_ah(AhHandle(random.handle(&known.ahs)));
            }
            _ => {
                let advice =
                    random.of(&[Advice::Prefetch, Advice::PrefetchWrite, Advice::PrefetchNoFault]);
                let sges: Vec<_> =
                    self.sges(random).into_iter().filter(|sge| sge.length < 1 << 20).collect();
                let _ = device.advise_mr(pd, advice, random.below(2) == 0, &sges);
                let _ = device.odp_stats(MrHandle(random.handle(&known.mrs)));
                while let Ok(Some(_)) = device.get_async_event(Some(Duration::ZERO)) {}
                let _ = device.refusals();
            }
        }
    }

    fn memory(&self, random: &mut Random) {
        let first = random.below(PAGES as u64) as usize;
        let count = 1 + random.below((PAGES - first) as u64) as usize;
        let at = (self.memory + first * PAGE) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let all = libc::PROT_READ | libc::PROT_WRITE;
        match random.below(4) {
            0 => {
                let _ = unsafe { libc::madvise(at, count * PAGE, libc::MADV_DONTNEED) };
            }
            1 => {
                let prot = random.of(&[libc::PROT_NONE, libc::PROT_READ, all]);
                let _ = unsafe { libc::mprotect(at, count * PAGE, prot) };
            }
            2 => unsafe {
                let prot = random.of(&[libc::PROT_NONE, libc::PROT_READ, all]);
                libc::mmap(at, count * PAGE, prot, flags, -1, 0);
            },
            _ => unsafe {
                libc::mmap(at, count * PAGE, all, flags, -1, 0);
            },
        }
    }
}

fn mayhem(seed: u64, stale: Stale, pin: PinMode) {
    let len = PAGES * PAGE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // What the longest length may reach beyond it is nobody's, or it would be somebody else's.
    let around = len + BEYOND;
    let at = std::ptr::null_mut();
    let memory = unsafe { libc::mmap(at, around, libc::PROT_NONE, flags, -1, 0) };
    assert_eq!(unsafe { libc::mprotect(memory, len, prot) }, 0);
    let memory = memory as usize;
    let device = |last: u8| {
        let gid = gid_of(IpAddr::V4(Ipv4Addr::new(127, seed as u8, 0, last)));
        let options = SoftOptions { gid, stale, pin, max_keys: 200, ..SoftOptions::default() };
        SoftDevice::open(options).unwrap()
    };
    let field = Field { devices: [device(1), device(2)], known: Default::default(), memory };
    let stop = AtomicBool::new(false);
    let steps = [const { AtomicU64::new(0) }; 7];
    let (done, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let timeout = ended.recv_timeout(Duration::from_secs(30));
            if timeout == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                eprintln!("hangs, seed {seed}");
                if std::env::var_os("MAYHEM_STAY").is_none() {
                    std::process::exit(101);
                }
            }
        });
        for (number, steps) in steps.iter().enumerate() {
            let (field, stop) = (&field, &stop);
            scope.spawn(move || {
                let mut random = Random(seed * 100 + number as u64 + 1);
                while !stop.load(Ordering::Acquire) {
                    match number {
                        0..=2 => field.post(&mut random),
                        3..=5 => field.control(&mut random),
                        _ => {
                            field.memory(&mut random);
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                    steps.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(400) {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Release);
        drop(done);
    });
    for steps in &steps {
        assert!(steps.load(Ordering::Relaxed) > 0, "each thread did something");
    }
    drop(field);
    assert_eq!(unsafe { libc::munmap(memory as *mut _, around) }, 0);
    marks_end();
}

/// Waits until all that was unmapped is marked, as registering does: the thread that marks holds
/// the devices meanwhile, also those that were closed.
fn marks_end() {
    let device = SoftDevice::open(SoftOptions::default()).unwrap();
    let pd = device.alloc_pd().unwrap();
    // Never unmapped, so that this makes no event of its own.
    static WORD: AtomicU64 = AtomicU64::new(0);
    let address = HostAddr(WORD.as_ptr().addr() as u64);
    let spec = MrSpec { address, length: 8, iova: None, rights: Rights::LOCAL_WRITE };
    let region = unsafe { device.reg_mr(pd, &spec) }.unwrap();
    device.dereg_mr(region.handle).unwrap();
}

/// A figure of `/proc/self/status`.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Waits until there are no more descriptors than `most`: the thread may be at work still with what a
/// device had that is closed now.
fn descriptors_are_given_back(most: usize) {
    let begun = Instant::now();
    while descriptors() > most {
        assert!(begun.elapsed() < Duration::from_secs(10), "{} of {most}", descriptors());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn everything_at_once_neither_panics_nor_hangs_and_leaves_nothing() {
    mayhem(1, Stale::Refuse, PinMode::Kernel);
    let before = descriptors();
    mayhem(2, Stale::Refuse, PinMode::Kernel);
    mayhem(3, Stale::Nic, PinMode::Kernel);
    mayhem(4, Stale::Nic, PinMode::Mlock);
    assert_eq!((status("VmPin:"), status("VmLck:")), (0, 0));
    descriptors_are_given_back(before);
}
