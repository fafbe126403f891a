//! Freeing memory may unmap memory that is watched. Whoever hears of that waits for the accesses
//! that run, among them those that look at detached pages. So no operation may free anything under
//! a lock that an access takes: here the allocator itself makes such an access each time.

#![cfg(not(loom))]
#![allow(missing_docs)]

use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::engine::{
    Access, Backing, Denied, Engine, EngineConfig, Executors, Progress, Registered, Registration,
    Remap,
};
use mkey_core::refusal::{DetachCause, PdId, QpId, Refusal};
use mkey_core::rights::{Rights, Want};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

struct Accessing;

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
}
static ASKED: AtomicU32 = AtomicU32::new(0);
static ANSWERED: AtomicU32 = AtomicU32::new(0);
static ENDED: AtomicBool = AtomicBool::new(false);
static HANGS: AtomicBool = AtomicBool::new(false);

fn access() {
    if !ARMED.try_with(Cell::get).unwrap_or(false) || HANGS.load(Ordering::Acquire) {
        return;
    }
    let mine = ASKED.fetch_add(1, Ordering::AcqRel) + 1;
    let begun = Instant::now();
    while ANSWERED.load(Ordering::Acquire) < mine {
        if begun.elapsed() > Duration::from_secs(5) {
            HANGS.store(true, Ordering::Release);
            return;
        }
        std::thread::yield_now();
    }
}

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Accessing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        access();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        access();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Accessing = Accessing;

const PD: PdId = PdId(1);
const PAGE: u64 = 4096;

fn register(engine: &Engine, host: u64, on_demand: bool) -> Registered {
    let host = HostAddr(host);
    let backing = match on_demand {
        true => Backing::OnDemand { host, page_shift: 12 },
        false => Backing::Plain { host },
    };
    let (iova, length, rights) = (IoAddr(host.0), 64 * PAGE, Rights::LOCAL_WRITE);
    engine.register(PD, &Registration { iova, length, rights, backing }).expect("there is room")
}

/// Takes every other page of the region away.
fn take_pages(engine: &Engine, host: u64) {
    for page in (0..64).step_by(2) {
        let range = HostRange { start: HostAddr(host + page * PAGE), len: PAGE };
        engine.detach(range, DetachCause::Unmapped, Duration::ZERO);
    }
}

#[test]
fn nothing_is_freed_under_a_lock_that_accesses_take() {
    let engine = Engine::new(EngineConfig { max_keys: 4096, seed: 3 }, Executors::new());
    let detached = register(&engine, 1 << 30, false);
    take_pages(&engine, 1 << 30);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut executor = engine.executors().enter().expect("a slot is free");
            let access = Access {
                key: detached.lkey.0,
                pd: PD,
                qp: QpId(1),
                address: IoAddr(1 << 30),
                length: 8,
                want: Want::LocalRead,
            };
            while !ENDED.load(Ordering::Acquire) {
                let asked = ASKED.load(Ordering::Acquire);
                if ANSWERED.load(Ordering::Acquire) == asked {
                    std::thread::yield_now();
                    continue;
                }
                let denied = engine.open(&mut executor.source, &access).expect_err("it is gone");
                assert!(matches!(denied, Denied::Refused(Refusal::Detached { .. })));
                ANSWERED.store(asked, Ordering::Release);
            }
        });
        for round in 0..100 {
            let (host, other) = (1 << 32, 1 << 33);
            let region = register(&engine, host, round % 2 == 0);
            take_pages(&engine, host);
            ARMED.set(true);
            if round % 3 == 0 {
                let backing = Backing::Plain { host: HostAddr(other) };
                let remap = Remap {
                    translation: Some((IoAddr(other), 64 * PAGE, backing)),
                    ..Remap::default()
                };
                let mut change = engine.reregister(region.id, &remap).expect("nothing holds it");
                assert_eq!(engine.finish(&mut change), Progress::Quiet);
            }
            let mut change = engine.deregister(region.id).expect("nothing holds it");
            assert_eq!(engine.finish(&mut change), Progress::Quiet);
            ARMED.set(false);
        }
        ENDED.store(true, Ordering::Release);
    });
    assert!(!HANGS.load(Ordering::Acquire), "an access waited for a lock under which was freed");
    assert!(ASKED.load(Ordering::Acquire) > 100, "the allocator was used");
}
