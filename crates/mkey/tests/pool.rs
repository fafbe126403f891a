//! The pool over a device: what is registered when, and what its blocks are good for.

mod common;

use common::allocations::{self, Counting};
use mkey::{
    Access, Completion, Cq, Device, Mr, PageKind, Pd, Pool, PoolError, PoolOptions, Qp, Reason,
    Region, Request, Slice, SoftOptions, WcStatus, Work,
};
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn device() -> (Device, Pd) {
    let device = Device::soft(SoftOptions::default()).expect("a software RNIC");
    let pd = Pd::new(&device).expect("pd");
    (device, pd)
}

fn small() -> PoolOptions {
    PoolOptions::default().slab(4 * MIB).ceiling(16 * MIB)
}

#[test]
fn promise_7_nothing_is_registered_or_allocated_on_the_data_path() {
    let (device, pd) = device();
    let pool = Pool::new(&pd, &PoolOptions::default().slab(16 * MIB)).expect("a pool");
    assert_eq!(device.stats().registrations, 1);
    let mut held: Vec<Slice> = Vec::with_capacity(64);
    let mut round = |len: usize| {
        for _ in 0..32 {
            held.push(pool.alloc(len).expect("room"));
        }
        let copies = held[0].clone();
        held.clear();
        drop(copies);
    };
    // From the thread's own magazines, and (too large for those) through the lock.
    for len in [4 * KIB, 12_000, 100 * KIB] {
        // Records of blocks are made as they are first needed.
        for _ in 0..20 {
            round(len);
        }
        let before = allocations::of_this_thread();
        for _ in 0..100 {
            round(len);
        }
        assert_eq!(
            allocations::of_this_thread() - before,
            0,
            "allocations with blocks of {len} bytes"
        );
    }
    assert_eq!(device.stats().registrations, 1);
    assert!(pool.stats().fast_allocations > 6000);
}

#[test]
fn promise_7_the_rung_and_the_reasons_are_told() {
    let (device, pd) = device();
    let pool = Pool::new(&pd, &small().pages(PageKind::Base)).expect("a pool");
    let slabs = pool.slabs();
    assert_eq!(slabs.len(), 1);
    assert_eq!((slabs[0].page_kind, slabs[0].bytes), (PageKind::Base, 4 * MIB));
    drop(pool);

    let pool = Pool::new(&pd, &small()).expect("a pool");
    let slab = &pool.slabs()[0];
    // Each larger kind says why it does not serve.
    let larger = PageKind::LADDER.iter().position(|kind| *kind == slab.page_kind);
    assert_eq!(Some(slab.refused.len()), larger, "{slab:?}");
    assert_eq!(pool.stats().registered_bytes as usize, slab.bytes);
    assert_eq!(device.stats().registered_bytes as usize, slab.bytes);
}

#[test]
fn a_pool_registers_its_floor_grows_to_its_ceiling_and_leaves_nothing() {
    let (device, pd) = device();
    let registered = || device.stats().registered_bytes as usize;
    let pool = Pool::new(&pd, &small()).expect("a pool");
    assert_eq!(registered(), 4 * MIB);
    let mut blocks = Vec::new();
    let full = loop {
        match pool.alloc(MIB) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
        assert!(registered() <= 16 * MIB);
    };
    assert!(matches!(full, PoolError::Full(_)), "{full}");
    assert_eq!((blocks.len(), registered()), (16, 16 * MIB));
    blocks.clear();
    pool.trim();
    assert_eq!(registered(), 4 * MIB);
    let kept = pool.alloc(4 * KIB).expect("room");
    drop(pool);
    kept.write(0, b"still there").expect("mapped");
    assert_eq!(registered(), 4 * MIB);
    drop(kept);
    let stats = device.stats();
    assert_eq!((stats.registered_bytes, stats.failed_drops, stats.kept), (0, 0, 0));
    assert_eq!(stats.registrations, stats.deregistrations);
}

#[test]
fn blocks_are_sent_from_and_written_to() {
    let (device, pd) = device();
    let cq = Cq::new(&device, 64).expect("cq");
    let ours = Qp::builder(&pd, &cq).create().expect("qp");
    let theirs = Qp::builder(&pd, &cq).create().expect("qp");
    ours.connect(&theirs.endpoint()).expect("connect");
    theirs.connect(&ours.endpoint()).expect("connect");
    let target = Mr::builder(&pd).remote_write();
    let target = target.register(Region::new(64 * KIB).expect("memory")).expect("mr");
    let pool = Pool::new(&pd, &small().access(Access::local())).expect("a pool");

    // Not the first block of its slab, so that a wrong address would show.
    let _first = pool.alloc(8 * KIB).expect("room");
    let block = pool.alloc(Request::new(5000).aligned(64 * KIB)).expect("room");
    assert_eq!((block.len(), block.as_ptr().addr() % (64 * KIB)), (5000, 0));
    block.write(0, &[7; 5000]).expect("within");
    let key = target.remote_key(..5000).expect("exposed");
    ours.post(&[Work::write(std::slice::from_ref(&block), key)]).expect("posted");
    // The work holds the block: nobody else gets it.
    drop(block);
    let mut done = [Completion::BLANK];
    assert_eq!(cq.wait(&mut done, Duration::from_secs(10)), Ok(1));
    assert_eq!(done[0].status, WcStatus::Success);
    assert_eq!(target.slice(..5000).expect("within").to_vec().expect("mapped"), [7; 5000]);
    drop((ours, theirs));
    drop(_first);
    assert_eq!(pool.stats().in_use_bytes, 0);
}

#[test]
fn a_block_that_was_used_can_be_had_zeroed_and_borrowed() {
    let (_device, pd) = device();
    let pool = Pool::new(&pd, &small()).expect("a pool");
    let block = pool.alloc(4 * KIB).expect("room");
    block.write(0, &[0xa5; 4 * KIB]).expect("within");
    let place = block.as_ptr();
    drop(block);
    let block = pool.alloc(4 * KIB).expect("room");
    assert_eq!((block.as_ptr(), block.load(8)), (place, Ok(0xa5a5_a5a5_a5a5_a5a5)));
    drop(block);
    let block = pool.alloc_zeroed(4 * KIB).expect("room");
    assert_eq!(block.as_ptr(), place);
    let other = block.clone();
    let (block, error) = block.into_local().expect_err("two have it");
    assert_eq!(error.reason, Reason::StillUsed { what: "memory" });
    drop(other);
    let local = block.into_local().expect("the only one");
    assert!(local.iter().all(|byte| *byte == 0));
}

#[test]
fn a_device_that_registers_no_more_is_named() {
    let options = SoftOptions { max_keys: 1, ..SoftOptions::default() };
    let device = Device::soft(options).expect("a software RNIC");
    let pd = Pd::new(&device).expect("pd");
    let pool = Pool::new(&pd, &small()).expect("a pool");
    let _all = pool.alloc(4 * MIB).expect("room");
    let error = pool.alloc(4 * KIB).expect_err("no second region");
    let PoolError::Source { error, shortage } = error else { panic!("{error}") };
    assert!(matches!(error.reason, Reason::TableFull { .. }), "{error}");
    assert_eq!((shortage.asked, shortage.free), (4 * KIB, 0));
}
