//! Many threads: canaries, blocks that are freed elsewhere, threads that end.

use super::*;
use std::sync::Barrier;
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn handles_and_blocks_go_between_threads() {
    fn sent_and_shared<T: Send + Sync>() {}
    sent_and_shared::<Pool>();
    sent_and_shared::<crate::keep::Hold>();
}

#[test]
fn a_thread_that_ends_gives_back_what_rests() {
    let (_fake, pool) = fixed(64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(pool.alloc(4 * KIB).expect("room"));
            assert!(pool.stats().resting_bytes > 0);
        });
    });
    // A scope ends before the thread's own data is gone: only joining the thread waits for that.
    let other = pool.clone();
    std::thread::spawn(move || drop(other.alloc(8 * KIB).expect("room"))).join().expect("a thread");
    let stats = pool.stats();
    assert_eq!((stats.allocations, stats.in_use_bytes), (2, 0));
    assert_eq!(drain(&pool).len(), 64);
}

#[test]
fn what_rests_with_an_idle_thread_is_fetched() {
    let (_fake, pool) = fixed(64);
    let (ready, end) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let blocks: Vec<_> = (0..20).map(|_| pool.alloc(4 * KIB).expect("room")).collect();
            drop(blocks);
            assert!(pool.stats().resting_bytes >= 80 << 10);
            ready.wait();
            end.wait();
        });
        ready.wait();
        assert_eq!(pool.alloc(256 * KIB).expect("all of it").len, 256 * KIB);
        assert_eq!(pool.stats().resting_bytes, 0);
        end.wait();
    });
}

#[test]
fn a_pool_that_goes_while_threads_free_leaves_nothing() {
    for _ in 0..200 {
        let fake = Fake::default();
        let pool = fake.pool(MIB, PoolOptions::default().slab(256 * KIB));
        let start = Arc::new(Barrier::new(3));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let blocks: Vec<_> = (0..8).map(|_| pool.alloc(4 * KIB).expect("room")).collect();
                let (start, pool) = (Arc::clone(&start), pool.clone());
                std::thread::spawn(move || {
                    drop(pool.alloc(4 * KIB).expect("room"));
                    drop(pool);
                    start.wait();
                    drop(blocks);
                })
            })
            .collect();
        start.wait();
        drop(pool);
        for thread in threads {
            thread.join().expect("a thread");
        }
        assert_eq!(fake.registered(), 0);
    }
}

/// Small numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Four threads allocate, write their canary, hand half of the blocks to a neighbour who checks and
/// frees; the pool is too small for all, so that they wait, recall, grow and shrink.
#[test]
fn canaries_survive_under_stress() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 20_000;
    let fake = Fake::default();
    let options = PoolOptions::default()
        .slab(256 * KIB)
        .floor(256 * KIB)
        .ceiling(768 * KIB)
        .resting(32 * KIB);
    let pool = fake.pool(MIB, options);
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::sync_channel::<(Slice, u8)>(8)).unzip();
    let threads: Vec<_> = receivers
        .into_iter()
        .enumerate()
        .map(|(at, receiver)| {
            let pool = pool.clone();
            let to = senders[(at + 1) % THREADS].clone();
            std::thread::spawn(move || {
                let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (at as u64 + 1));
                let mut held: Vec<(Slice, u8)> = Vec::new();
                for round in 0..ROUNDS {
                    let len = match dice.below(20) {
                        0 => 1 + dice.below(256 << 10) as usize,
                        1..4 => 1 + dice.below(40 << 10) as usize,
                        _ => 4 * KIB,
                    };
                    let got = match dice.below(8) {
                        0 => pool.alloc_within(len, Duration::from_millis(5)),
                        _ => pool.alloc(len),
                    };
                    match got {
                        Ok(block) => {
                            let canary = (round % 251) as u8 ^ (at as u8) << 6;
                            write(&block, canary);
                            held.push((block, canary));
                        }
                        Err(PoolError::Full(_) | PoolError::TimedOut { .. }) => held.truncate(4),
                        Err(error) => panic!("{error}"),
                    }
                    while held.len() > 12 || dice.below(3) == 0 && !held.is_empty() {
                        let old = held.swap_remove(dice.below(held.len() as u64) as usize);
                        assert!(holds_only(&old.0, old.1));
                        if dice.below(2) == 0 {
                            // Full or gone: freed here.
                            drop(to.try_send(old));
                        }
                    }
                    while let Ok((block, canary)) = receiver.try_recv() {
                        assert!(holds_only(&block, canary));
                    }
                }
            })
        })
        .collect();
    drop(senders);
    for thread in threads {
        thread.join().expect("no canary died");
    }
    let stats = pool.stats();
    assert!(stats.fast_allocations > 0 && stats.waits > 0 && stats.grows > 1, "{stats:?}");
    assert_eq!((stats.in_use_bytes, stats.resting_bytes, stats.waiting), (0, 0, 0), "{stats:?}");
    assert_eq!(stats.registered_bytes as usize, fake.registered());
    pool.trim();
    assert_eq!(fake.registered(), 256 * KIB);
    assert_eq!(pool.stats().largest_free_bytes, 256 << 10);
    drop(pool);
    assert_eq!(fake.registered(), 0);
}
