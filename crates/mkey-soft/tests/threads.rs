//! Several threads at once, and the timer thread on a real clock.

mod common;

use common::*;
use mkey_core::data_plane::{CompletionQueue, DataPlane, QueuePair};
use mkey_core::device::{Device, QpHandle};
use mkey_core::key::Rkey;
use mkey_core::queue_pair::{QpKind, QpModify, QpState};
use mkey_core::status::WcStatus;
use mkey_core::work::{Completion, RecvWr, SendOp, SendWr};
use mkey_soft::{SoftDevice, SoftOptions};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Two queue pairs post at each other from two threads: messages, RDMA, and violations that put
/// both into the error state. A deadlock hangs; each round must end with all work completed.
#[test]
fn two_that_post_at_each_other_never_deadlock() {
    for round in 0..300u64 {
        let (a, b) = pair(QpKind::Rc);
        let (mine, theirs) = (a.buffer(ALL), b.buffer(ALL));
        std::thread::scope(|scope| {
            for (side, own, peer) in [(&a, &mine, &theirs), (&b, &theirs, &mine)] {
                scope.spawn(move || {
                    let wrong = peer.remote_by(Rkey(peer.info.rkey.0.next()));
                    let mut completed = 0;
                    for wr_id in 0..50 {
                        let op = match wr_id % 4 {
                            0 => SendOp::Write(peer.remote(0)),
                            1 => SendOp::Read(peer.remote(0)),
                            2 => SendOp::Send,
                            _ if wr_id == 20 + round % 30 => SendOp::Write(wrong),
                            _ => SendOp::FetchAdd { remote: peer.remote(8), add: 1 },
                        };
                        side.qp
                            .post_recv(&[RecvWr { wr_id: 1000, sges: &[own.sge(64, 8)] }])
                            .unwrap();
                        side.qp.post_send(&[SendWr::new(wr_id, op, &[own.sge(0, 8)])]).unwrap();
                        completed += side.poll().iter().filter(|wc| wc.wr_id < 1000).count();
                    }
                    // What waits for a receive or an answer comes to its end by the clock.
                    while completed < 50 {
                        side.pass(TIMEOUT);
                        completed += side.poll().iter().filter(|wc| wc.wr_id < 1000).count();
                    }
                    assert_eq!(completed, 50);
                });
            }
        });
        for side in [&a, &b] {
            assert!(matches!(side.state(), QpState::Rts | QpState::Err));
        }
    }
}

/// Deregistration returns only when no access runs any more: the memory is filled with a canary at
/// once, and stays so.
#[test]
fn r_reg_18_nothing_is_written_after_deregistration() {
    let device = SoftDevice::open(SoftOptions { watch: false, ..SoftOptions::default() }).unwrap();
    let (a, b) = (Side::new(&device, |_| {}, QpKind::Rc), Side::new(&device, |_| {}, QpKind::Rc));
    connect(&a, &b);
    let own = a.buffer(ALL);
    let target = Buffer::new(&device, b.pd, 64 << 10, ALL);
    let key = AtomicU64::new(u64::from(target.info.rkey.0.0));
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                let rkey = Rkey(mkey_core::key::Key(key.load(Ordering::Acquire) as u32));
                let remote = target.remote_by(rkey);
                a.post(1, SendOp::Write(remote), &[own.sge(0, 4096)]);
                match a.done().as_slice() {
                    [(1, WcStatus::Success)] => drop(done.fetch_add(1, Ordering::Relaxed)),
                    [(1, WcStatus::RemAccessErr)] => {
                        for side in [&a, &b] {
                            side.go(QpState::Reset);
                        }
                        connect(&a, &b);
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
        let mut handle = target.handle();
        for _ in 0..500 {
            device.dereg_mr(handle).unwrap();
            target.set(4095, 0xa5);
            for _ in 0..20 {
                assert_eq!(target.get(4095), 0xa5, "written after deregistration");
                std::thread::yield_now();
            }
            let spec = mkey_core::device::MrSpec {
                address: mkey_core::address::HostAddr(target.remote(0).address.0),
                length: 64 << 10,
                iova: None,
                rights: ALL,
            };
            // SAFETY: the buffer lives on, and is only touched through volatile accesses.
            let info = unsafe { device.reg_mr(b.pd, &spec) }.unwrap();
            handle = info.handle;
            let before = done.load(Ordering::Relaxed);
            key.store(u64::from(info.rkey.0.0), Ordering::Release);
            // Writes are under way again.
            while done.load(Ordering::Relaxed) == before && !writer.is_finished() {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Release);
        device.dereg_mr(handle).unwrap();
    });
}

/// Nobody polls: the device's own thread ends the retries and tells the armed channel.
#[test]
fn the_timer_thread_ends_retries() {
    let device = SoftDevice::open(SoftOptions::default()).unwrap();
    let channel = device.create_comp_channel().unwrap();
    let cq = device.create_cq(16, Some(channel)).unwrap();
    let a = Side::new(&device, |init| (init.send_cq, init.recv_cq) = (cq, cq), QpKind::Rc);
    let b = Side::new(&device, |_| {}, QpKind::Rc);
    connect(&a, &b);
    b.go(QpState::Reset);
    let plane = device.cq(cq).unwrap();
    plane.request_notify(false).unwrap();
    a.post(1, SendOp::Send, &[]);
    assert_eq!(device.get_cq_event(channel, None).unwrap(), Some(cq));
    let mut into = [Completion::BLANK];
    assert_eq!(plane.poll(&mut into).unwrap(), 1);
    assert_eq!((into[0].wr_id, into[0].status), (1, WcStatus::RetryExcErr));
}

/// Atomics of many threads, through several devices, on one word.
#[test]
fn r_at_06_atomics_are_atomic_over_devices() {
    let target = SoftDevice::open(SoftOptions::default()).unwrap();
    let b = Side::new(&target, |_| {}, QpKind::Rc);
    let word = b.buffer(ALL);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (target, word) = (&target, &word);
            let b = &b;
            scope.spawn(move || {
                let device = SoftDevice::open(SoftOptions::default()).unwrap();
                let a = Side::new(&device, |_| {}, QpKind::Rc);
                let info = target
                    .create_qp(b.pd, &mkey_core::queue_pair::QpInit::new(QpKind::Rc, b.cq))
                    .unwrap();
                let there = Side { info, qp: target.qp(info.handle).unwrap(), ..b.again() };
                connect(&a, &there);
                let own = a.buffer(ALL);
                for _ in 0..1000 {
                    let op = SendOp::FetchAdd { remote: word.remote(0), add: 1 };
                    a.post(1, op, &[own.sge(0, 8)]);
                    assert_eq!(a.done(), [(1, WcStatus::Success)]);
                }
            });
        }
    });
    let sum = u32::from(word.get(0)) + (u32::from(word.get(1)) << 8);
    assert_eq!(sum, 3000);
}

/// A way in which a queue pair ends, by its name.
type Ending = (&'static str, fn(&SoftDevice, QpHandle));

fn endings() -> [Ending; 3] {
    fn modify(device: &SoftDevice, qp: QpHandle, state: QpState) {
        device.modify_qp(qp, &QpModify { state: Some(state), ..QpModify::default() }).unwrap();
    }
    [
        ("destroyed", |device, qp| device.destroy_qp(qp).unwrap()),
        ("RESET", |device, qp| modify(device, qp, QpState::Reset)),
        ("ERR", |device, qp| modify(device, qp, QpState::Err)),
    ]
}

/// Posts `op` at the peer from a thread of its own until it is no longer done, and has `then` called
/// on this one while that is going on.
fn hammered(a: &Side, op: SendOp<'_>, own: &Buffer, length: u32, then: impl FnOnce()) {
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let hammer = scope.spawn(|| {
            loop {
                a.post(1, op, &[own.sge(0, length)]);
                match a.done().as_slice() {
                    [(1, WcStatus::Success)] => drop(done.fetch_add(1, Ordering::Release)),
                    // Nobody answers, and the clock stands still.
                    [] => break,
                    other => panic!("{other:?}"),
                }
            }
        });
        while done.load(Ordering::Acquire) < 3 && !hammer.is_finished() {
            std::thread::yield_now();
        }
        then();
    });
}

/// Messages of one chunk and of several. The last byte is the last to be copied, so that a copy under
/// way when the queue pair ends would overwrite the canary.
const LENGTHS: [u32; 2] = [64 << 10, 256 << 10];

/// For each way of ending a queue pair, many times: `round` with the two sides of a pair, a buffer
/// of each, their last byte, the name of the way and what ends the second side.
fn each_ending(round: impl Fn(&Side, [&Buffer; 2], usize, &str, &dyn Fn())) {
    let device = SoftDevice::open(options()).unwrap();
    for (way, end) in endings() {
        for number in 0..60 {
            let length = LENGTHS[number % 2] as usize;
            let side = || Side::new(&device, |_| {}, QpKind::Rc);
            let (a, b) = (side(), side());
            connect(&a, &b);
            let [own, other] = [&a, &b].map(|side| Buffer::new(&device, side.pd, length, ALL));
            round(&a, [&own, &other], length - 1, way, &|| end(&device, b.handle()));
        }
    }
}

#[test]
fn nothing_is_written_after_the_queue_pair_has_ended_by_which_it_comes() {
    each_ending(|a, [own, target], last, way, end| {
        hammered(a, SendOp::Write(target.remote(0)), own, last as u32 + 1, || {
            end();
            target.set(last, 0xa5);
            for _ in 0..50 {
                assert_eq!(target.get(last), 0xa5, "written after: {way}");
                std::thread::yield_now();
            }
        });
        assert_eq!(target.get(last), 0xa5, "written after: {way}");
    });
}

#[test]
fn nothing_is_read_after_the_queue_pair_has_ended_by_which_it_is_asked_for() {
    each_ending(|a, [own, source], last, way, end| {
        hammered(a, SendOp::Read(source.remote(0)), own, last as u32 + 1, || {
            end();
            source.set(last, 0xa5);
        });
        assert_eq!(own.get(last), 0, "read after: {way}");
    });
}

/// A message that found its peer before the peer was reset does not come in by the connection that is
/// made after.
#[test]
fn nothing_is_written_by_a_connection_that_was_made_anew() {
    let device = SoftDevice::open(options()).unwrap();
    let side = || Side::new(&device, |_| {}, QpKind::Rc);
    let (a, b, other) = (side(), side(), side());
    connect(&a, &b);
    let (own, target) = (a.buffer(ALL), Buffer::new(&device, b.pd, 64 << 10, ALL));
    for _ in 0..200 {
        hammered(&a, SendOp::Write(target.remote(0)), &own, 4096, || {
            // From now on another is its peer.
            b.go(QpState::Reset);
            connect(&other, &b);
            target.set(4095, 0xa5);
            for _ in 0..20 {
                assert_eq!(target.get(4095), 0xa5, "written by another's connection");
                std::thread::yield_now();
            }
        });
        for side in [&a, &b, &other] {
            side.go(QpState::Reset);
        }
        connect(&a, &b);
    }
}

/// Each ends the other's queue pair while that other posts at it: whoever waits holds nothing that the
/// other waits for.
#[test]
fn two_that_end_each_others_queue_pairs_never_deadlock() {
    let device = SoftDevice::open(options()).unwrap();
    for round in 0..200 {
        let side = || Side::new(&device, |_| {}, QpKind::Rc);
        let (a, b) = (side(), side());
        connect(&a, &b);
        let (mine, theirs) = (a.buffer(ALL), b.buffer(ALL));
        std::thread::scope(|scope| {
            for (side, own, peer, there) in [(&a, &mine, &theirs, &b), (&b, &theirs, &mine, &a)] {
                scope.spawn(move || {
                    for wr_id in 0..20 {
                        let op = match wr_id % 3 {
                            0 => SendOp::Write(peer.remote(0)),
                            1 => SendOp::Read(peer.remote(0)),
                            _ => SendOp::Send,
                        };
                        side.post(wr_id, op, &[own.sge(0, 8)]);
                        if wr_id == 3 + round % 15 {
                            let change =
                                QpModify { state: Some(QpState::Err), ..QpModify::default() };
                            there.modify(change);
                        }
                    }
                });
            }
        });
        for side in [&a, &b] {
            assert_eq!(side.state(), QpState::Err);
        }
    }
}

/// Who is stopped in the middle of an access is waited for, but not for ever; and it is told.
#[test]
fn ending_a_queue_pair_goes_on_when_a_thread_is_stopped_in_an_access() {
    static STAGE: AtomicU32 = AtomicU32::new(0);
    extern "C" fn stop(_: i32) {
        STAGE.store(1, Ordering::SeqCst);
        while STAGE.load(Ordering::SeqCst) == 1 {
            std::hint::spin_loop();
        }
    }
    let handler = stop as extern "C" fn(i32);
    // SAFETY: the handler touches an atomic only.
    unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
    // The WRITE is so long that the signal comes in the middle of its copy.
    const LONG: usize = 8 << 20;
    let told = (0..20).any(|_| {
        let (a, b) = pair(QpKind::Rc);
        let [own, target] = [&a, &b].map(|side| Buffer::new(&side.device, side.pd, LONG, ALL));
        let thread = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: no more than asks who this is.
                thread.store(unsafe { libc::pthread_self() }, Ordering::SeqCst);
                loop {
                    a.post(1, SendOp::Write(target.remote(0)), &[own.sge(0, LONG as u32)]);
                    if a.done().is_empty() {
                        break;
                    }
                }
            });
            while thread.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_micros(500));
            // SAFETY: the thread lives on until the queue pair has ended.
            let sent = unsafe { libc::pthread_kill(thread.load(Ordering::SeqCst), libc::SIGUSR2) };
            assert_eq!(sent, 0);
            while STAGE.load(Ordering::SeqCst) != 1 {
                std::thread::yield_now();
            }
            b.go(QpState::Err);
            STAGE.store(0, Ordering::SeqCst);
        });
        b.device.notes().iter().any(|note| note.contains("stopped in the middle"))
    });
    assert!(told, "the device's notes say that an access was not waited for");
}
