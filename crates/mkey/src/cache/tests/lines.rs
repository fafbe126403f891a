//! Where a thread finds its uses, and what becomes of them when a place serves another registration
//! or there are more lines.

use super::*;
use std::thread;

/// More than the first lines take before there are others, and those again.
const MANY: usize = 3000;

/// A page, far from the others.
fn page(number: usize) -> usize {
    (number + 1) * 37
}

#[test]
fn all_of_many_are_found_without_the_lock_once_the_lines_have_grown() {
    let bench = Bench::new();
    let all = || (0..MANY).for_each(|number| drop(bench.get(page(number), 1, WRITE).expect("got")));
    // Registered; brought to the new lines; and those that were in the middle of that.
    (0..3).for_each(|_| all());
    let before = bench.cache.stats();
    all();
    let after = bench.cache.stats();
    assert_eq!(after.fast_hits - before.fast_hits, MANY as u64);
    assert_eq!((after.misses, bench.world.made()), (MANY as u64, MANY as u64));
    bench.close();
}

#[test]
fn a_registration_of_many_pages_is_found_from_each() {
    let bench = Bench::new();
    let pages = 64;
    drop(bench.get(page(0), pages, WRITE).expect("got"));
    let all = || (0..pages).for_each(|n| drop(bench.get(page(0) + n, 1, WRITE).expect("got")));
    all();
    let before = bench.cache.stats();
    all();
    assert_eq!(bench.cache.stats().fast_hits - before.fast_hits, pages as u64);
    assert_eq!(bench.world.made(), 1);
    bench.close();
}

/// A use is out of the lines of before, and others of the new ones come and go.
#[test]
fn a_use_from_before_the_lines_grew_keeps_its_registration() {
    let bench = Bench::new();
    let held = bench.get(page(0), 1, WRITE).expect("got");
    (1..MANY).for_each(|number| drop(bench.get(page(number), 1, WRITE).expect("got")));
    let slow = bench.cache.stats().slow_hits;
    let other = bench.get(page(0), 1, WRITE).expect("got");
    assert_eq!(bench.cache.stats().slow_hits, slow + 1, "it has come to the new lines");
    assert!(!std::ptr::eq(held.used(), other.used()));
    drop(other);
    bench.cache.invalidate(page(0) * PAGE..(page(0) + 1) * PAGE);
    bench.check(&held);
    let (here, number) = (held.clone(), id(&held));
    drop(held);
    bench.check(&here);
    drop(here);
    assert!(!bench.world.is_alive(number), "ended with its last use");
    bench.close();
}

/// What was taken here and given back elsewhere is balanced beside the place, and what that balances
/// must not be lost when the place serves another address and so another line.
#[test]
fn a_place_that_serves_another_address_keeps_its_counts() {
    let bench = Bench::new();
    for number in 0..200 {
        let held = bench.get(page(number), 1, WRITE).expect("got");
        assert_eq!(bench.cache.stats().registered, 1, "there is one place");
        let (kept, first) = (held.clone(), id(&held));
        thread::scope(|scope| {
            let there = scope.spawn(|| {
                let own = bench.get(page(number), 1, WRITE).expect("got");
                drop(held);
                own
            });
            let from_there = there.join().expect("no panic");
            bench.cache.invalidate(0..usize::MAX);
            bench.check(&from_there);
            drop(from_there);
        });
        bench.check(&kept);
        drop(kept);
        assert!(!bench.world.is_alive(first), "ended with its last use");
    }
    bench.close();
}

/// The same address at the same place: no line is lost by that, however often.
#[test]
fn a_place_that_serves_the_same_address_again_keeps_its_line() {
    let bench = Bench::new();
    let line = |held: &Held<Fake>| std::ptr::from_ref(held.used());
    let first = line(&bench.get(page(0), 1, WRITE).expect("got"));
    for _ in 0..MANY {
        bench.cache.invalidate(0..usize::MAX);
        assert_eq!(line(&bench.get(page(0), 1, WRITE).expect("got")), first);
    }
    bench.close();
}
