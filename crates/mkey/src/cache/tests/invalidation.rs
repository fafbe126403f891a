//! Memory that goes away.

use super::*;
use std::sync::Barrier;

impl Bench {
    /// An event from its reading to its end.
    fn event(&self, range: std::ops::Range<usize>) {
        self.cache.gate.before_read();
        self.cache.gate.leave(range);
        self.cache.gate.after_read();
    }
}

#[test]
fn libfabric_4946_unmapped_and_mapped_again_is_registered_again() {
    let bench = Bench::new();
    drop(bench.get(1, 4, WRITE).expect("registered"));
    bench.event(2 * PAGE..3 * PAGE);
    let stats = bench.cache.stats();
    assert_eq!((stats.queued, stats.queued_bytes), (1, PAGE as u64));
    assert_eq!(bench.world.alive().len(), 1, "not inside the handler");
    let held = bench.get(1, 4, WRITE).expect("registered");
    assert_eq!(id(&held), 2);
    assert_eq!(bench.world.alive().len(), 1, "the next request deregisters");
    let stats = bench.cache.stats();
    assert_eq!((stats.events, stats.invalidated_by_events, stats.queued), (1, 1, 0));
    drop(held);
    bench.close();
}

#[test]
fn events_elsewhere_cost_no_registration() {
    let bench = Bench::new();
    drop(bench.get(4, 4, WRITE).expect("registered"));
    for range in [0..4 * PAGE, 8 * PAGE..9 * PAGE, 5 * PAGE..5 * PAGE] {
        bench.event(range);
        assert_eq!(id(&bench.get(4, 4, WRITE).expect("hit")), 1);
    }
    bench.close();
}

#[test]
fn what_is_in_use_when_its_memory_goes_is_deregistered_after_its_last_use() {
    let bench = Bench::new();
    let held = bench.get(1, 1, WRITE).expect("registered");
    let clone = held.clone();
    bench.cache.invalidate(PAGE..2 * PAGE);
    let stats = bench.cache.stats();
    assert_eq!((stats.invalidated_explicitly, stats.invalid_in_use), (1, 1));
    assert_eq!(stats.invalid_in_use_bytes, PAGE as u64);
    let new = bench.get(1, 1, WRITE).expect("registered");
    assert_ne!(id(&new), id(&held));
    drop(held);
    bench.check(&clone);
    drop(clone);
    assert_eq!(bench.world.alive().into_keys().collect::<Vec<_>>(), [2]);
    drop(new);
    bench.close();
}

#[test]
fn maintain_does_what_no_request_comes_to_do() {
    let bench = Bench::new();
    drop(bench.get(1, 1, WRITE).expect("registered"));
    bench.event(0..10 * PAGE);
    bench.cache.maintain();
    assert!(bench.world.alive().is_empty());
    bench.close();
}

#[test]
fn promise_8_the_queue_of_events_is_bounded_and_loses_nothing() {
    let bench = Bench::new();
    for page in 0..1000 {
        drop(bench.get(page * 2, 1, WRITE).expect("registered"));
    }
    // Every fourth page, so that neighbours do not merge.
    for page in (0..1000).step_by(2) {
        bench.event(page * 2 * PAGE..(page * 2 + 1) * PAGE);
    }
    let stats = bench.cache.stats();
    assert!(stats.queued <= 64 && stats.queue_widened_bytes > 0, "{stats:?}");
    for page in (0..1000).step_by(2) {
        let held = bench.get(page * 2, 1, WRITE).expect("registered");
        assert!(id(&held) > 1000, "page {page} stale");
    }
    bench.close();
}

#[test]
fn libfabric_5554_the_event_handler_waits_for_no_lock_of_the_cache() {
    let bench = Arc::new(Bench::new());
    drop(bench.get(1, 1, WRITE).expect("registered"));
    let (inside, go) = bench.world.stop_registrations();
    std::thread::scope(|scope| {
        let registering = scope.spawn(|| bench.get(3, 1, WRITE).map(|held| id(&held)));
        inside.recv().expect("registering");
        // In the middle of a registration, and with the cache's lock taken.
        let locked = bench.cache.lock();
        bench.event(PAGE..2 * PAGE);
        drop(locked);
        go.send(()).expect("heard");
        assert_eq!(registering.join().expect("no panic"), Ok(2));
    });
    bench.world.unhook();
    assert_eq!(id(&bench.get(1, 1, WRITE).expect("registered")), 3);
    Arc::into_inner(bench).expect("all threads ended").close();
}

#[test]
fn a_request_while_an_event_is_in_hand_waits_for_it() {
    let bench = Bench::new();
    drop(bench.get(1, 1, WRITE).expect("registered"));
    bench.cache.gate.before_read();
    let asked = Barrier::new(2);
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            asked.wait();
            bench.get(1, 1, WRITE).map(|held| id(&held))
        });
        asked.wait();
        // The event has been read, so the unmapping thread may have mapped something else by now.
        (0..1000).for_each(|_| std::thread::yield_now());
        assert!(!late.is_finished(), "served while the event is in hand");
        bench.cache.gate.leave(PAGE..2 * PAGE);
        assert!(!late.is_finished());
        bench.cache.gate.after_read();
        assert_eq!(late.join().expect("no panic"), Ok(2), "stale");
    });
    bench.close();
}

#[test]
fn what_changes_while_it_is_registered_is_not_kept() {
    let bench = Bench::new();
    let cache = Arc::clone(&bench.cache);
    bench.world.hook(move |_| cache.invalidate(0..100 * PAGE));
    let held = bench.get(1, 1, WRITE).expect("registered");
    bench.world.unhook();
    assert_eq!(bench.cache.stats().invalid_in_use, 1);
    let again = bench.get(1, 1, WRITE).expect("registered");
    assert_ne!(id(&again), id(&held));
    drop((held, again));
    assert_eq!(bench.world.alive().len(), 1);
    bench.close();
}

#[test]
fn dropping_the_cache_leaves_what_is_in_use() {
    let bench = Bench::new();
    let held = bench.get(1, 1, WRITE).expect("registered");
    drop(bench.get(3, 1, WRITE).expect("registered"));
    let Bench { world, cache } = bench;
    cache.close();
    let weak = Arc::downgrade(&cache);
    drop(cache);
    assert_eq!(world.alive().into_keys().collect::<Vec<_>>(), [1]);
    let elsewhere = held.clone();
    std::thread::spawn(move || drop(elsewhere)).join().expect("no panic");
    assert!(weak.upgrade().is_some());
    assert!(world.is_alive(id(&held)));
    drop(held);
    assert!(world.alive().is_empty());
    assert!(weak.upgrade().is_none(), "the cache went with its last use");
}

#[test]
fn dropping_the_cache_then_the_last_use_on_another_thread() {
    let bench = Bench::new();
    let held = bench.get(1, 1, WRITE).expect("registered");
    let Bench { world, cache } = bench;
    cache.close();
    let weak = Arc::downgrade(&cache);
    drop(cache);
    std::thread::spawn(move || drop(held)).join().expect("no panic");
    assert!(world.alive().is_empty() && weak.upgrade().is_none());
}
