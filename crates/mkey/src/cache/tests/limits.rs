//! Limits, and what is given up for them.

use super::*;

#[test]
fn beyond_the_count_the_one_not_used_lately_goes() {
    let bench = Bench::with(|config| config.max_count = 4);
    for page in 0..4 {
        drop(bench.get(page * 2, 1, WRITE).expect("registered"));
    }
    // The first search for room remembers the uses so far; what is used after that stays.
    drop(bench.get(100, 1, WRITE).expect("room is made"));
    let kept: Vec<usize> = bench.world.alive().values().map(|span| span.start / PAGE).collect();
    assert_eq!(kept.len(), 4);
    let used = kept[0];
    drop(bench.get(used, 1, WRITE).expect("hit"));
    drop(bench.get(102, 1, WRITE).expect("room is made"));
    assert!(bench.world.alive().values().any(|span| span.start / PAGE == used), "used lately");
    assert_eq!(bench.cache.stats().evictions, 2);
    assert_eq!(bench.world.peak(), 4, "never more than allowed, not even for a moment");
    bench.close();
}

#[test]
fn beyond_the_bytes_as_many_go_as_are_needed() {
    let bench = Bench::with(|config| config.max_bytes = 8 * PAGE as u64);
    for page in 0..8 {
        drop(bench.get(page * 2, 1, WRITE).expect("registered"));
    }
    drop(bench.get(100, 5, WRITE).expect("room is made"));
    assert_eq!(bench.cache.stats().evictions, 5);
    assert_eq!(bench.cache.stats().registered_bytes, 8 * PAGE as u64);
    bench.close();
}

#[test]
fn what_is_in_use_stays_and_the_error_says_how_many() {
    let bench = Bench::with(|config| config.max_count = 2);
    let held = [1, 3].map(|page| bench.get(page, 1, WRITE).expect("registered"));
    let error = bench.get(5, 1, WRITE).map(drop).expect_err("full");
    assert_eq!(error, CacheError::Count { most: 2, in_use: 2 });
    assert_eq!((error.errno(), error.code().0), (12, 10));
    held.iter().for_each(|held| bench.check(held));
    assert_eq!(id(&bench.get(1, 1, WRITE).expect("hit")), id(&held[0]), "hits go on");
    drop(held);
    drop(bench.get(5, 1, WRITE).expect("room is made"));
    bench.close();
}

#[test]
fn what_never_fits_costs_nobody_a_registration() {
    let bench = Bench::with(|config| config.max_bytes = 4 * PAGE as u64);
    drop(bench.get(0, 4, WRITE).expect("registered"));
    let error = bench.get(10, 5, WRITE).map(drop).expect_err("too large");
    let (most, wanted) = (4 * PAGE as u64, 5 * PAGE as u64);
    assert_eq!(error, CacheError::Bytes { most, registered: most, wanted });
    assert_eq!(bench.cache.stats().evictions, 0);
    bench.close();
    let bench = Bench::with(|config| config.max_count = 0);
    let error = bench.get(0, 1, WRITE).map(drop).expect_err("nothing allowed");
    assert_eq!(error, CacheError::Count { most: 0, in_use: 0 });
    bench.close();
}

#[test]
fn the_devices_limit_is_met_by_giving_up_idle_ones() {
    let bench = Bench::new();
    bench.world.room(10);
    for page in 0..50 {
        drop(bench.get(page * 2, 1, WRITE).expect("room is made"));
    }
    let stats = bench.cache.stats();
    assert_eq!((stats.registrations, stats.evictions, stats.failures), (50, 40, 40));
    bench.close();
}

#[test]
fn out_of_memory_with_nothing_idle_is_the_devices_error() {
    let bench = Bench::new();
    bench.world.room(2);
    let held = [1, 3].map(|page| bench.get(page, 1, WRITE).expect("registered"));
    let error = bench.get(5, 1, WRITE).map(drop).expect_err("no room");
    assert!(matches!(error, CacheError::Register(_)), "{error}");
    assert_eq!(error.errno(), mkey_core::error::errno::ENOMEM);
    drop(held);
    bench.close();
}

#[test]
fn ucx_mlx_21_a_device_that_is_always_full_is_not_asked_for_ever() {
    let bench = Bench::new();
    for page in 0..1000 {
        drop(bench.get(page * 2, 1, WRITE).expect("registered"));
    }
    bench.world.room(0);
    assert!(bench.get(5000, 1, WRITE).is_err());
    let stats = bench.cache.stats();
    assert!(stats.failures <= 9, "{stats:?}");
    assert!(stats.evictions <= 255, "{stats:?}");
    bench.close();
}
