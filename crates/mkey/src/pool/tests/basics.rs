//! Requests, limits, growth, statistics.

use super::*;
use crate::pool::Limit;

fn error(answer: std::result::Result<Slice, PoolError>) -> PoolError {
    answer.expect_err("an error")
}

#[test]
fn impossible_requests_are_refused_without_a_panic() {
    let pool = Fake::default().pool(MIB, PoolOptions::default().slab(64 * KIB));
    let refuse = |request: Request| error(pool.alloc(request));
    assert_eq!(refuse(0.into()), PoolError::Empty);
    assert_eq!(refuse(Request::new(0).aligned(4096)), PoolError::Empty);
    for align in [0, 3, 4 * MIB, usize::MAX] {
        let refused = refuse(Request::new(1).aligned(align));
        assert_eq!(refused, PoolError::Alignment { align, most: 2 * MIB });
    }
    for asked in [MIB + 1, usize::MAX - 4095, usize::MAX] {
        let refused = refuse(asked.into());
        let (limit, most) = (Limit::Device, MIB);
        assert_eq!(refused, PoolError::TooLarge { asked, align: 1, limit, most });
    }
    assert_eq!(pool.stats().failures, 9);
}

#[test]
fn the_ceiling_is_named_where_it_is_in_the_way() {
    let pool = Fake::default().pool(MIB, PoolOptions::default().ceiling(64 * KIB));
    let refused = error(pool.alloc_within(64 * KIB + 1, std::time::Duration::MAX));
    let (asked, limit, most) = (64 * KIB + 1, Limit::Ceiling, 64 * KIB);
    assert_eq!(refused, PoolError::TooLarge { asked, align: 1, limit, most });
}

#[test]
fn wrong_options_are_refused() {
    let wrong = |options: PoolOptions| match Pool::over(Box::new(Fake::default()), MIB, &options) {
        Err(PoolError::Option { option, .. }) => option,
        other => panic!("{:?}", other.err()),
    };
    assert_eq!(wrong(PoolOptions::default().min_block(0)), "min_block");
    assert_eq!(wrong(PoolOptions::default().min_block(5000)), "min_block");
    assert_eq!(wrong(PoolOptions::default().min_block(2 * MIB)), "min_block");
    assert_eq!(wrong(PoolOptions::default().slab(0)), "slab");
    assert_eq!(wrong(PoolOptions::default().ceiling(100)), "ceiling");
    assert_eq!(wrong(PoolOptions::default().floor(2 * MIB).ceiling(MIB)), "floor");
}

#[test]
fn slabs_are_no_larger_than_the_device_registers() {
    let fake = Fake::default();
    let pool = fake.pool(MIB, PoolOptions::default().floor(3 * MIB));
    let slabs: Vec<_> =
        fake.ledger.lock().expect("ledger").slabs.iter().map(|slab| slab.1).collect();
    assert_eq!(slabs, [MIB; 3]);
    assert_eq!(pool.stats().grows, 3);
}

#[test]
fn a_block_names_its_place_for_the_device() {
    let fake = Fake::default();
    let pool = fake.pool(MIB, PoolOptions::default().slab(256 * KIB).floor(0));
    let blocks: Vec<_> = (0..6).map(|_| pool.alloc(100 * KIB).expect("room")).collect();
    let ledger = fake.ledger.lock().expect("ledger");
    assert_eq!(ledger.slabs.len(), 3);
    for block in &blocks {
        let address = block.start.as_ptr().addr();
        let slab = ledger.slabs.iter().find(|(start, len, _)| {
            (*start..start + len).contains(&address) && address + block.len <= start + len
        });
        assert_eq!(block.lkey, slab.expect("within a slab").2);
        assert_eq!(block.iova, IoAddr(address as u64 + IOVA_OFFSET));
        assert_eq!(block.len, 100 * KIB);
    }
    drop(ledger);
}

#[test]
fn what_is_larger_than_a_slab_gets_one_of_its_own() {
    let fake = Fake::default();
    let pool = fake.pool(MIB, PoolOptions::default().slab(64 * KIB));
    let block = pool.alloc(MIB).expect("room");
    assert_eq!(fake.registered(), MIB + 64 * KIB);
    drop(block);
    // The first slab is empty, too: one of them is enough.
    assert_eq!(fake.registered(), 64 * KIB);
}

#[test]
fn empty_slabs_make_room_for_a_large_one_below_the_ceiling() {
    let fake = Fake::default();
    let options = PoolOptions::default().slab(64 * KIB).floor(0).ceiling(256 * KIB);
    let pool = fake.pool(MIB, options);
    let blocks: Vec<_> = (0..4).map(|_| pool.alloc(64 * KIB).expect("room")).collect();
    let full = error(pool.alloc(128 * KIB));
    let PoolError::Full(shortage) = full else { panic!("{full}") };
    assert_eq!((shortage.asked, shortage.free, shortage.largest_free), (128 * KIB, 0, 0));
    assert_eq!((shortage.registered, shortage.ceiling), (256 * KIB, 256 * KIB));
    drop(blocks);
    let block = pool.alloc(256 * KIB).expect("room");
    assert_eq!(block.len, 256 * KIB);
    assert_eq!(fake.registered(), 256 * KIB);
}

#[test]
fn a_load_that_goes_up_and_down_by_a_block_does_not_register_each_time() {
    let fake = Fake::default();
    let pool = fake.pool(MIB, PoolOptions::default().slab(64 * KIB).resting(0));
    let base: Vec<_> = (0..16).map(|_| pool.alloc(4 * KIB).expect("room")).collect();
    for _ in 0..10 {
        drop(pool.alloc(4 * KIB).expect("room"));
    }
    let stats = pool.stats();
    assert_eq!((stats.grows, stats.shrinks), (2, 0));
    drop(base);
    assert_eq!(pool.stats().shrinks, 1);
    assert_eq!(fake.registered(), 64 * KIB);
}

#[test]
fn trim_keeps_the_floor() {
    let fake = Fake::default();
    let pool = fake.pool(MIB, PoolOptions::default().slab(64 * KIB).floor(128 * KIB));
    let blocks: Vec<_> = (0..64).map(|_| pool.alloc(4 * KIB).expect("room")).collect();
    assert_eq!(fake.registered(), 256 * KIB);
    drop(blocks);
    pool.trim();
    assert_eq!(fake.registered(), 128 * KIB);
    assert_eq!(pool.stats().resting_bytes, 0);
    assert_eq!(pool.trim(), 0);
}

#[test]
fn a_failed_registration_is_told_with_its_reason() {
    let fake = Fake::default();
    let pool = fake.pool(MIB, PoolOptions::default().slab(64 * KIB).floor(0));
    fake.fail_next(2);
    let failed = error(pool.alloc(4 * KIB));
    let PoolError::Source { error: reason, shortage } = failed else { panic!("{failed}") };
    assert_eq!(reason.code().to_string(), "MK0008");
    assert_eq!(shortage.registered, 0);
    // Nothing is out that could come back: waiting is no use.
    let failed = error(pool.alloc_within(4 * KIB, std::time::Duration::MAX));
    assert!(matches!(failed, PoolError::Source { .. }), "{failed}");
    pool.alloc(4 * KIB).expect("it works again");
}

#[test]
fn a_source_that_rounds_past_the_ceiling_is_not_kept() {
    struct Rounds(Fake);
    impl Source for Rounds {
        fn obtain(&self, len: usize, most: usize) -> Result<Obtained> {
            self.0.obtain(len.next_multiple_of(MIB), most)
        }
    }
    let fake = Fake::default();
    let options = PoolOptions::default().slab(64 * KIB).floor(0).ceiling(512 * KIB);
    let pool = Pool::over(Box::new(Rounds(fake.clone())), MIB, &options).expect("a pool");
    assert!(matches!(error(pool.alloc(4 * KIB)), PoolError::Full(_)));
    assert_eq!(fake.registered(), 0);
}

#[test]
fn a_clone_of_the_hold_keeps_the_block() {
    let (_fake, pool) = fixed(1);
    let Slice { start, mut hold, .. } = pool.alloc(4 * KIB).expect("room");
    assert!(hold.is_only());
    let mut other = hold.clone();
    assert!(!hold.is_only());
    drop(hold);
    assert!(matches!(error(pool.alloc(4 * KIB)), PoolError::Full(_)));
    assert!(other.is_only());
    drop(other);
    assert_eq!(pool.alloc(4 * KIB).expect("it is back").start, start);
}

#[test]
fn freed_blocks_are_handed_out_again_without_the_lock() {
    let pool = Fake::default().pool(64 * MIB, PoolOptions::default());
    let round = || -> Vec<_> { (0..32).map(|_| pool.alloc(4 * KIB).expect("room")).collect() };
    drop(round());
    let before = pool.stats();
    for _ in 0..100 {
        drop(round());
    }
    let after = pool.stats();
    assert_eq!(after.allocations - before.allocations, 3200);
    assert_eq!(after.fast_allocations - before.fast_allocations, 3200);
}

#[test]
fn statistics_add_up() {
    let pool = Fake::default().pool(MIB, PoolOptions::default().slab(64 * KIB).resting(0));
    let mut blocks: Vec<_> = (0..16).map(|_| pool.alloc(4 * KIB).expect("room")).collect();
    let mut at = 0;
    blocks.retain(|_| {
        at += 1;
        at % 2 == 0
    });
    let expected = PoolStats {
        registered_bytes: 64 << 10,
        in_use_bytes: 32 << 10,
        high_water_bytes: 64 << 10,
        slabs: 1,
        allocations: 16,
        largest_free_bytes: 4 << 10,
        fragmentation: 1.0 - 1.0 / 8.0,
        grows: 1,
        ..PoolStats::default()
    };
    assert_eq!(pool.stats(), expected);
}

#[test]
fn blocks_outlive_their_pool() {
    let fake = Fake::default();
    let pool = fake.pool(MIB, PoolOptions::default().slab(512 * KIB).floor(MIB));
    let kept: Vec<_> = (0..3).map(|_| pool.alloc(4 * KIB).expect("room")).collect();
    let rests = pool.alloc(8 * KIB).expect("room");
    drop(rests);
    let clone = pool.clone();
    drop(pool);
    assert_eq!(fake.registered(), MIB);
    drop(clone);
    // The empty slab goes at once, the other one with its last block.
    assert_eq!(fake.registered(), 512 * KIB);
    for block in kept {
        assert_eq!(fake.registered(), 512 * KIB);
        write(&block, 7);
        assert!(holds_only(&block, 7));
        std::thread::spawn(move || drop(block)).join().expect("a thread");
    }
    assert_eq!(fake.registered(), 0);
}
