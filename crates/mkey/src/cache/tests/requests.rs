//! Who is served by what.

use super::*;

#[test]
fn the_same_request_again_is_served_without_a_lock() {
    let bench = Bench::new();
    for _ in 0..10 {
        let held = bench.bytes(0x12_3456, 100, WRITE).expect("registered");
        assert_eq!(id(&held), 1);
    }
    let stats = bench.cache.stats();
    assert_eq!((stats.gets, stats.misses, stats.fast_hits), (10, 1, 9));
    bench.close();
}

#[test]
fn a_part_is_served_by_the_whole() {
    let bench = Bench::new();
    let whole = bench.get(16, 8, WRITE).expect("registered");
    for page in 16..24 {
        assert_eq!(id(&bench.get(page, 1, WRITE).expect("hit")), id(&whole));
    }
    assert_eq!(bench.cache.stats().slow_hits, 7, "noted page by page");
    assert_ne!(id(&bench.get(23, 2, WRITE).expect("registered")), id(&whole), "one page beyond");
    assert_ne!(id(&bench.get(15, 2, WRITE).expect("registered")), id(&whole), "one page before");
    drop(whole);
    bench.close();
}

#[test]
fn aws_ofi_nccl_685_key_is_the_registered_range() {
    let bench = Bench::new();
    let first = bench.bytes(0x10_0010, 16, WRITE).expect("registered");
    assert_eq!(registration(&first).span, Span { start: 0x10_0000, end: 0x10_1000, rights: WRITE });
    // Another small buffer of the same page, before the first one and after it.
    for address in [0x10_0000, 0x10_0ff0] {
        assert_eq!(id(&bench.bytes(address, 16, WRITE).expect("hit")), id(&first));
    }
    // One that crosses into the next page is not served.
    assert_ne!(id(&bench.bytes(0x10_0ff0, 17, WRITE).expect("registered")), id(&first));
    drop(first);
    bench.close();
}

#[test]
fn libfabric_3617_entries_of_other_rights_are_not_merged() {
    let bench = Bench::new();
    let reader = bench.get(1, 1, Rights::REMOTE_READ).expect("registered");
    let writer = bench.get(1, 1, WRITE).expect("registered");
    assert_eq!(registration(&reader).span.rights, Rights::REMOTE_READ);
    assert_eq!(registration(&writer).span.rights, WRITE, "no right that was not asked for");
    // Both go on serving their own.
    assert_eq!(id(&bench.get(1, 1, Rights::REMOTE_READ).expect("hit")), id(&reader));
    assert_eq!(id(&bench.get(1, 1, WRITE).expect("hit")), id(&writer));
    assert_eq!(bench.cache.stats().merged, 0);
    drop((reader, writer));
    bench.close();
}

#[test]
fn nccl_ordering_and_paging_must_be_the_same() {
    let bench = Bench::new();
    for exact in [Rights::RELAXED_ORDERING, Rights::ON_DEMAND, Rights::HUGETLB] {
        let with = bench.get(1, 4, WRITE | exact).expect("registered");
        let without = bench.get(1, 4, WRITE).expect("registered");
        assert_ne!(id(&with), id(&without));
        assert_eq!(id(&bench.get(2, 1, WRITE | exact).expect("hit")), id(&with));
        assert_eq!(id(&bench.get(2, 1, WRITE).expect("hit")), id(&without));
    }
    bench.close();
}

#[test]
fn mxl_516_rights_are_never_raised_in_passing() {
    let bench = Bench::new();
    // Mapped read-only: local write is refused.
    let read_only = Span { start: PAGE, end: 2 * PAGE, rights: WRITE };
    let reader = bench.get(1, 1, READ).expect("registered");
    bench.world.fail(Reason::NotWritable { range: read_only.host() });
    let refused = bench.get(1, 1, WRITE).map(drop);
    assert_eq!(refused.map_err(|e| e.errno()), Err(mkey_core::error::errno::EFAULT));
    // Who only reads is served as before.
    assert_eq!(id(&bench.get(1, 1, READ).expect("hit")), id(&reader));
    drop(reader);
    bench.close();
}

#[test]
fn a_registration_that_does_all_replaces_smaller_ones() {
    let bench = Bench::new();
    drop(bench.get(1, 1, READ).expect("registered"));
    let in_use = bench.get(2, 1, WRITE).expect("registered");
    drop(bench.get(3, 1, Rights::REMOTE_READ).expect("registered"));
    let all = bench.get(0, 8, WRITE).expect("registered");
    let stats = bench.cache.stats();
    assert_eq!((stats.merged, stats.deregistrations, stats.invalid_in_use), (2, 1, 1));
    bench.check(&in_use);
    assert_eq!(id(&bench.get(2, 1, WRITE).expect("hit")), id(&all));
    assert_eq!(bench.world.alive().len(), 3, "the one in use, the one of other rights, and all");
    drop(in_use);
    assert_eq!(bench.world.alive().len(), 2);
    drop(all);
    bench.close();
}

#[test]
fn requests_that_make_no_sense_are_refused_with_their_values() {
    let bench = Bench::new();
    let code = |error: CacheError| error.code().0;
    let refused = |address, len, rights| {
        // SAFETY: the registrar touches no memory.
        unsafe { bench.cache.get(address, len, rights) }.map(drop).map_err(code)
    };
    drop(bench.get(1, 1, WRITE).expect("registered"));
    for _ in 0..2 {
        assert_eq!(refused(PAGE, 0, WRITE), Err(19), "empty");
        assert_eq!(refused(0, 0, WRITE), Err(19), "empty");
    }
    assert_eq!(refused(usize::MAX, 1, WRITE), Err(4), "wraps");
    assert_eq!(refused(usize::MAX - 10, 5, WRITE), Err(4), "its page wraps");
    assert_eq!(refused(PAGE, usize::MAX, WRITE), Err(4), "wraps");
    assert_eq!(refused(PAGE, 1, Rights::REMOTE_WRITE), Err(1), "R-REG-01");
    assert_eq!(refused(PAGE, 1, Rights::ZERO_BASED), Err(19), "zero-based");
    let stats = bench.cache.stats();
    assert_eq!((stats.refused, stats.misses, stats.gets), (9, 1, 10));
    bench.close();
}

#[test]
fn a_failure_is_told_again_for_a_moment() {
    let bench = Bench::new();
    let span = Span { start: PAGE, end: 2 * PAGE, rights: WRITE };
    let fails = || bench.get(1, 1, WRITE).map(drop).expect_err("refused");
    bench.world.fail(fault(&span));
    let error = fails();
    assert_eq!(error, CacheError::from(Error::new("reg_mr", span.host(), fault(&span))));
    assert_eq!(fails(), error);
    assert_eq!(bench.cache.stats().negative_hits, 1);
    // Another request is tried.
    drop(bench.get(1, 1, READ).expect("registered"));
    bench.world.pass(9);
    assert_eq!(fails(), error);
    bench.world.pass(1);
    drop(bench.get(1, 1, WRITE).expect("tried again"));
    bench.close();
}

#[test]
fn a_failure_is_forgotten_when_the_memory_changes() {
    let bench = Bench::new();
    let span = Span { start: PAGE, end: 2 * PAGE, rights: WRITE };
    bench.world.fail(fault(&span));
    assert!(bench.get(1, 1, WRITE).is_err());
    bench.cache.invalidate(0..PAGE);
    assert!(bench.get(1, 1, WRITE).is_err(), "elsewhere");
    bench.cache.invalidate(PAGE..PAGE + 1);
    assert!(bench.get(1, 1, WRITE).is_ok());
    bench.close();
}

#[test]
fn a_failure_that_passes_is_not_remembered() {
    let bench = Bench::new();
    bench.world.fail(no_memory());
    assert!(bench.get(1, 1, WRITE).is_err());
    assert!(bench.get(1, 1, WRITE).is_ok());
    let stats = bench.cache.stats();
    assert_eq!((stats.negative_hits, stats.failures, stats.misses), (0, 1, 2));
    bench.close();
}

#[test]
fn promise_8_off_registers_for_each_request_and_deregisters_after_its_last_use() {
    let bench = Bench::with(|config| config.keeps = false);
    let first = bench.get(1, 1, WRITE).expect("registered");
    let second = bench.get(1, 1, WRITE).expect("registered");
    assert_ne!(id(&first), id(&second));
    let clone = first.clone();
    drop(first);
    bench.check(&clone);
    drop(clone);
    assert_eq!(bench.world.alive().into_keys().collect::<Vec<_>>(), [2]);
    drop(second);
    assert!(bench.world.alive().is_empty());
    let stats = bench.cache.stats();
    assert_eq!((stats.misses, stats.fast_hits + stats.slow_hits, stats.gets), (2, 0, 2));
    bench.close();
}

#[test]
fn many_registrations_are_found_again() {
    let bench = Bench::new();
    let pages: Vec<usize> = (0..5000).map(|i| i * 3).collect();
    for round in 0..3 {
        for &page in &pages {
            let held = bench.get(page, 2, WRITE).expect("registered");
            assert_eq!(registration(&held).span.start, page * PAGE, "round {round}");
        }
    }
    let stats = bench.cache.stats();
    assert_eq!(stats.registrations, 5000);
    assert!(stats.fast_hits > 9 * stats.slow_hits / 10, "{stats:?}");
    bench.close();
}

#[test]
fn a_large_registration_is_hit_at_every_page() {
    let bench = Bench::new();
    let whole = bench.get(1 << 18, 1 << 16, WRITE).expect("registered");
    for page in (1 << 18)..(1 << 18) + (1 << 16) {
        assert_eq!(id(&bench.get(page, 1, WRITE).expect("hit")), id(&whole));
    }
    let stats = bench.cache.stats();
    assert_eq!(stats.slow_hits, 127, "once for each further block of 2 MiB");
    drop(whole);
    bench.close();
}
