//! What a hostile or careless program does: memory that goes and comes back, operations that meet
//! each other half way. Each test ends by itself or is ended by a watchdog.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests' memory is the tests' own")]

mod common;

use common::*;
use mkey_core::address::{HostAddr, IoAddr};
use mkey_core::device::{Device, MrInfo, MrSpec};
use mkey_core::key::{Key, Lkey};
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::rights::Rights;
use mkey_core::status::WcStatus::{RemAccessErr, Success};
use mkey_core::work::{RegMr, RemoteAddr, SendOp, Sge};
use mkey_soft::{SoftDevice, SoftOptions};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const PAGE: usize = 4096;

/// Runs `body` on a thread of its own, and ends the process if it hangs.
fn watched(body: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match ended.recv_timeout(Duration::from_secs(20)) {
        Err(mpsc::RecvTimeoutError::Timeout) => {
            eprintln!("hangs: {:?}", std::thread::current().name());
            std::process::exit(101);
        }
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

fn map(at: *mut u8, len: usize) -> *mut u8 {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let start = unsafe { libc::mmap(at.cast(), len, prot, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start.cast()
}

fn register(side: &Side, at: *mut u8, len: usize, rights: Rights) -> MrInfo {
    let spec = MrSpec { address: HostAddr(at as u64), length: len as u64, iova: None, rights };
    unsafe { side.device.reg_mr(side.pd, &spec) }.unwrap()
}

fn remote(at: *mut u8, mr: &MrInfo) -> RemoteAddr {
    RemoteAddr { address: IoAddr(at as u64), rkey: mr.rkey }
}

fn reconnect(a: &Side, b: &Side) {
    for side in [a, b] {
        side.go(QpState::Reset);
    }
    connect(a, b);
}

/// The old registration keeps the old pages' span, which keeps a watch over the old mapping: none
/// of that is the new mapping's.
#[test]
fn memory_mapped_anew_under_a_live_registration_is_watched_anew() {
    watched(|| {
        let (a, b) = pair(QpKind::Rc);
        let own = a.buffer(ALL);
        own.set(0, 7);
        let at = map(std::ptr::null_mut(), 4 * PAGE);
        for round in 0..50 {
            let old = register(&b, at, 4 * PAGE, ALL);
            map(at, 4 * PAGE);
            let new = register(&b, at, 4 * PAGE, ALL);
            let write = |mr: &MrInfo| {
                a.post(1, SendOp::Write(remote(at, mr)), &[own.sge(0, 64)]);
                let status = a.done()[0].1;
                if status != Success {
                    reconnect(&a, &b);
                }
                status
            };
            assert_eq!(write(&new), Success, "round {round}: the new memory is not the old");
            assert_eq!(write(&old), RemAccessErr, "round {round}");
            map(at, 4 * PAGE);
            assert_eq!(write(&new), RemAccessErr, "round {round}: the new mapping is not watched");
            b.device.dereg_mr(old.handle).unwrap();
            b.device.dereg_mr(new.handle).unwrap();
        }
    });
}

/// A thread whose signal handler unmaps registered memory, in the middle of a copy.
#[test]
fn unmapping_in_a_signal_handler_ends() {
    static PLACE: AtomicUsize = AtomicUsize::new(0);
    static RAN: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handler(_: i32) {
        let at = PLACE.load(Ordering::Acquire) as *mut libc::c_void;
        unsafe { libc::madvise(at, PAGE, libc::MADV_DONTNEED) };
        RAN.fetch_add(1, Ordering::Release);
    }
    watched(|| {
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()) }, 0);
        let (a, b) = pair(QpKind::Rc);
        let own = Buffer::new(&a.device, a.pd, 64 << 10, ALL);
        let target = Buffer::new(&b.device, b.pd, 64 << 10, ALL);
        let at = map(std::ptr::null_mut(), 4 * PAGE);
        let mr = register(&b, at, 4 * PAGE, ALL);
        PLACE.store(at as usize, Ordering::Release);
        // A handler that was in the way is told of.
        let gave_up = || a.device.notes().iter().any(|note| note.contains("signal handler:"));
        let (ended, me) = (AtomicUsize::new(0), unsafe { libc::pthread_self() } as usize);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while ended.load(Ordering::Acquire) == 0 {
                    let ran = RAN.load(Ordering::Acquire);
                    unsafe { libc::pthread_kill(me as libc::pthread_t, libc::SIGUSR2) };
                    while RAN.load(Ordering::Acquire) == ran && ended.load(Ordering::Acquire) == 0 {
                        std::hint::spin_loop();
                    }
                }
            });
            while RAN.load(Ordering::Acquire) < 500 && !gave_up() {
                a.post(1, SendOp::Write(target.remote(0)), &[own.sge(0, 64 << 10)]);
                assert_eq!(a.done(), [(1, Success)]);
            }
            ended.store(1, Ordering::Release);
        });
        b.device.dereg_mr(mr.handle).unwrap();
    });
}

/// Starts a long message from `a` to `b` on another thread, runs `end` when its first bytes have
/// come, and sees that none comes after that, but for what was being copied at that moment.
fn written_after(end: impl Fn(&Side)) {
    const LONG: usize = 16 << 20;
    // Freed when all that is registered below has gone.
    let (mut from, mut to) = (vec![7u8; LONG], vec![0u8; LONG]);
    let (own, target) = (from.as_mut_ptr(), to.as_mut_ptr());
    let last = target.wrapping_add(LONG - 1);
    for _ in 0..500 {
        let (a, b) = pair(QpKind::Rc);
        let (source, mr) = (register(&a, own, LONG, ALL), register(&b, target, LONG, ALL));
        let (sge, to) = (
            Sge { address: IoAddr(own as u64), length: LONG as u32, lkey: source.lkey },
            remote(target, &mr),
        );
        unsafe { target.write_volatile(0) };
        unsafe { last.write_volatile(0) };
        let before = std::thread::scope(|scope| {
            let a = &a;
            scope.spawn(move || a.post(1, SendOp::Write(to), &[sge]));
            while unsafe { target.read_volatile() } != 7 {
                std::hint::spin_loop();
            }
            end(&b);
            unsafe { last.read_volatile() }
        });
        if before == 0 {
            let after = unsafe { last.read_volatile() };
            assert_eq!(after, 0, "written to after the queue pair had ended");
            return;
        }
    }
    panic!("each message was over before the queue pair was");
}

#[test]
fn nothing_is_written_through_a_queue_pair_that_was_destroyed() {
    watched(|| written_after(|b| b.device.destroy_qp(b.handle()).unwrap()));
}

#[test]
fn nothing_is_written_through_a_queue_pair_in_reset() {
    watched(|| written_after(|b| b.go(QpState::Reset)));
}

/// The receive of a message that fails at its source, while the queue pair goes to ERR, is flushed.
#[test]
fn a_receive_that_was_taken_when_the_queue_pair_failed_is_completed() {
    watched(|| {
        const LONG: usize = 8 << 20;
        for _ in 0..10 {
            let (a, b) = pair(QpKind::Rc);
            let own = Buffer::new(&a.device, a.pd, LONG, ALL);
            let target = Buffer::new(&b.device, b.pd, LONG, ALL);
            own.set(0, 7);
            b.receive(1, &[]);
            std::thread::scope(|scope| {
                let op = SendOp::WriteImm(target.remote(0), 5);
                let own = &own;
                scope.spawn({
                    let a = a.again();
                    move || a.post(1, op, &[own.sge(0, LONG as u32)])
                });
                while target.get(0) != 7 {
                    std::hint::spin_loop();
                }
                b.go(QpState::Err);
                a.device.dereg_mr(own.handle()).unwrap();
            });
            let ids: Vec<_> = b.done().iter().map(|(id, _)| *id).collect();
            assert_eq!(ids, [1], "one completion for the receive");
        }
    });
}

/// A completion that comes after `destroy_qp` returned would name what the program has freed.
#[test]
fn nothing_completes_on_a_queue_pair_that_was_destroyed() {
    watched(|| {
        const LONG: usize = 2 << 20;
        for _ in 0..30 {
            let (a, b) = pair(QpKind::Rc);
            let own = Buffer::new(&a.device, a.pd, LONG, ALL);
            let target = Buffer::new(&b.device, b.pd, LONG, ALL);
            own.set(0, 7);
            b.receive(1, &[]);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let op = SendOp::WriteImm(target.remote(0), 5);
                    a.post(1, op, &[own.sge(0, LONG as u32)]);
                });
                while target.get(0) != 7 {
                    std::hint::spin_loop();
                }
                b.device.destroy_qp(b.handle()).unwrap();
                b.done();
            });
            assert_eq!(b.done(), [], "a completion after the end");
        }
    });
}

/// Events come faster than a large table can be searched once for each.
#[test]
fn a_storm_of_discards_with_many_regions_does_not_stop_accesses_for_long() {
    watched(|| {
        let (a, b) = pair(QpKind::Rc);
        let own = a.buffer(ALL);
        let target = b.buffer(ALL);
        let at = map(std::ptr::null_mut(), 4 * PAGE);
        let neighbour = register(&b, at, PAGE, ALL);
        let null: Vec<_> =
            (0..100_000).map(|_| b.device.alloc_null_mr(b.pd).unwrap().handle).collect();
        for _ in 0..2000 {
            for page in [1, 3] {
                let page = at.wrapping_add(page * PAGE).cast();
                assert_eq!(unsafe { libc::madvise(page, PAGE, libc::MADV_DONTNEED) }, 0);
            }
        }
        let begun = std::time::Instant::now();
        a.post(1, SendOp::Write(target.remote(0)), &[own.sge(0, 8)]);
        assert_eq!(a.done(), [(1, Success)]);
        let stopped = begun.elapsed();
        assert!(stopped < Duration::from_millis(100), "stopped for {stopped:?}");
        null.into_iter().for_each(|handle| b.device.dereg_mr(handle).unwrap());
        b.device.dereg_mr(neighbour.handle).unwrap();
    });
}

/// Work requests that name a region by a stale lkey do not keep it from being deregistered.
#[test]
fn binding_by_a_stale_key_does_not_make_deregistration_fail() {
    watched(|| {
        let device = SoftDevice::open(SoftOptions { watch: false, ..options() }).unwrap();
        let sides: Vec<_> = (0..4).map(|_| Side::new(&device, |_| {}, QpKind::Rc)).collect();
        let (a, b) = (&sides[0], &sides[1]);
        connect(a, b);
        let at = map(std::ptr::null_mut(), PAGE);
        let address = IoAddr(at as u64);
        let stop = AtomicUsize::new(0);
        let key = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let fast = device.alloc_fast_mr(a.pd, 1).unwrap();
                let mut waiting = 0;
                while stop.load(Ordering::Acquire) == 0 {
                    let stale = Key(key.load(Ordering::Acquire) as u32 ^ 0x80);
                    let sge = Sge { address, length: 8, lkey: Lkey(stale) };
                    let (rights, iova) = (Rights::REMOTE_READ, IoAddr(0));
                    let entries = &[sge];
                    let op = SendOp::RegMr(RegMr { key: fast.rkey.0, iova, rights, entries });
                    a.post(1, op, &[]);
                    waiting += 1;
                    if a.done()[0].1 != Success {
                        reconnect(a, b);
                    }
                }
                assert!(waiting > 0);
            });
            let mut failed = None;
            for _ in 0..200_000 {
                let mr = register(a, at, PAGE, ALL);
                key.store(mr.lkey.0.0 as usize, Ordering::Release);
                failed = failed.or(a.device.dereg_mr(mr.handle).err());
            }
            stop.store(1, Ordering::Release);
            assert!(failed.is_none(), "{failed:?}");
        });
    });
}
