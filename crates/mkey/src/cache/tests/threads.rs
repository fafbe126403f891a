//! Several threads.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;

#[test]
fn dingocache_88_one_registration_for_all_who_want_it_at_once() {
    let bench = Bench::new();
    let (inside, go) = bench.world.stop_registrations();
    thread::scope(|scope| {
        let first = scope.spawn(|| bench.get(1, 4, WRITE).map(|held| id(&held)));
        inside.recv().expect("registering");
        let others: Vec<_> = (0..4)
            .map(|i| {
                let bench = &bench;
                scope.spawn(move || bench.get(1 + i, 1, WRITE).map(|held| id(&held)))
            })
            .collect();
        while bench.cache.stats().waits < 4 {
            thread::yield_now();
        }
        go.send(()).expect("heard");
        for thread in others.into_iter().chain([first]) {
            assert_eq!(thread.join().expect("no panic"), Ok(1));
        }
    });
    let stats = bench.cache.stats();
    assert_eq!((stats.misses, stats.waits, stats.slow_hits), (1, 4, 4));
    bench.close();
}

#[test]
fn all_who_wait_get_the_error() {
    let bench = Bench::new();
    let (inside, go) = bench.world.stop_registrations();
    let span = Span { start: PAGE, end: 2 * PAGE, rights: WRITE };
    bench.world.fail(fault(&span));
    thread::scope(|scope| {
        let get = || bench.get(1, 1, WRITE).map(drop).map_err(|error| error.errno());
        let first = scope.spawn(get);
        inside.recv().expect("registering");
        let others: Vec<_> = (0..3).map(|_| scope.spawn(get)).collect();
        while bench.cache.stats().waits < 3 {
            thread::yield_now();
        }
        go.send(()).expect("heard");
        for thread in others.into_iter().chain([first]) {
            assert_eq!(thread.join().expect("no panic"), Err(14));
        }
    });
    bench.world.unhook();
    assert_eq!(bench.world.made(), 0);
    bench.close();
}

#[test]
fn who_waits_for_a_registration_that_panics_goes_on() {
    let bench = Bench::new();
    let (entered, inside) = channel();
    let (go, goes) = channel::<()>();
    let (goes, first) = (Mutex::new(goes), AtomicBool::new(true));
    bench.world.hook(move |_| {
        if first.swap(false, Ordering::SeqCst) {
            entered.send(()).expect("heard");
            goes.lock().expect("lock").recv().expect("told");
            panic!("as the test wants it");
        }
    });
    thread::scope(|scope| {
        let panics = scope.spawn(|| bench.get(1, 1, WRITE).map(drop));
        inside.recv().expect("registering");
        let other = scope.spawn(|| bench.get(1, 1, WRITE).map(|held| id(&held)));
        while bench.cache.stats().waits < 1 {
            thread::yield_now();
        }
        go.send(()).expect("heard");
        assert!(panics.join().is_err());
        assert_eq!(other.join().expect("no panic"), Ok(1));
    });
    bench.close();
}

#[test]
fn a_use_may_be_given_back_cloned_and_ended_by_any_thread() {
    let bench = Bench::new();
    let held = bench.get(1, 1, WRITE).expect("registered");
    let clone = thread::scope(|scope| {
        scope
            .spawn(|| {
                let clone = held.clone();
                drop(held.clone());
                clone
            })
            .join()
            .expect("no panic")
    });
    drop(held);
    bench.cache.invalidate(0..10 * PAGE);
    bench.check(&clone);
    thread::scope(|scope| scope.spawn(|| drop(clone)).join().expect("no panic"));
    assert!(bench.world.alive().is_empty());
    bench.close();
}

#[test]
fn counts_of_ended_threads_are_taken_over() {
    let bench = Bench::new();
    let kept: Vec<_> = (0..20)
        .map(|_| {
            thread::scope(|scope| {
                let get = || bench.get(1, 1, WRITE).expect("registered");
                scope.spawn(get).join().expect("no panic")
            })
        })
        .collect();
    assert_eq!(bench.cache.lock().locals.len(), 1, "one after another, so one set of counts");
    bench.cache.invalidate(0..10 * PAGE);
    kept.iter().for_each(|held| bench.check(held));
    drop(kept);
    assert!(bench.world.alive().is_empty());
    bench.close();
}

#[test]
fn a_thread_that_is_ending_is_served() {
    struct AtEnd(Option<Box<dyn FnOnce()>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            if let Some(run) = self.0.take() {
                run();
            }
        }
    }
    thread_local!(static AT_END: std::cell::RefCell<AtEnd> =
        const { std::cell::RefCell::new(AtEnd(None)) });

    let bench = Arc::new(Bench::new());
    let (done, is_done) = channel();
    let there = Arc::clone(&bench);
    thread::spawn(move || {
        // Made first, so that it is dropped after the thread's part of the cache.
        AT_END.with(|at_end| {
            let there = Arc::clone(&there);
            at_end.borrow_mut().0 = Some(Box::new(move || {
                let held = there.get(1, 1, WRITE).expect("hit");
                let fresh = there.get(7, 1, WRITE).expect("registered");
                there.cache.invalidate(0..2 * PAGE);
                there.check(&held);
                drop((held, fresh, there));
                done.send(()).expect("heard");
            }));
        });
        drop(there.get(1, 1, WRITE).expect("registered"));
    })
    .join()
    .expect("no panic");
    is_done.recv().expect("ran");
    let bench = Arc::into_inner(bench).expect("the thread has ended");
    assert_eq!(bench.world.alive().len(), 1);
    bench.close();
}

#[test]
fn two_caches_on_one_thread_do_not_mix() {
    let (a, b) = (Bench::new(), Bench::new());
    for _ in 0..4 {
        assert_eq!(id(&a.get(1, 1, WRITE).expect("registered")), 1);
        assert_eq!(id(&b.get(1, 1, WRITE).expect("registered")), 1);
    }
    assert_eq!((a.cache.stats().fast_hits, b.cache.stats().fast_hits), (3, 3));
    a.close();
    drop(b.get(1, 1, WRITE).expect("hit"));
    b.close();
}

/// Everything at once: no registration is used after it was deregistered, and none leaks.
fn stress(fences: Fences, max_count: u64) {
    const THREADS: usize = 4;
    const STEPS: usize = 30_000;
    let bench = Bench::with(|config| {
        config.fences = fences;
        config.max_count = max_count;
    });
    let start = Barrier::new(THREADS);
    let passed: Mutex<Vec<Held<Fake>>> = Mutex::default();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (bench, start, passed) = (&bench, &start, &passed);
            scope.spawn(move || {
                let mut seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(thread as u64 + 1);
                let mut random = |below: usize| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    (seed >> 33) as usize % below
                };
                let mut mine: Vec<Held<Fake>> = Vec::new();
                start.wait();
                for _ in 0..STEPS {
                    match random(100) {
                        0..70 => {
                            let rights = [READ, WRITE, Rights::REMOTE_READ][random(3)];
                            match bench.get(random(24), 1 + random(2), rights) {
                                Ok(held) => mine.push(held),
                                Err(CacheError::Count { .. }) => mine.clear(),
                                Err(error) => panic!("{error}"),
                            }
                        }
                        70..75 => mine.extend(mine.last().cloned()),
                        75..80 => {
                            let mut passed = passed.lock().expect("lock");
                            passed.extend(mine.pop());
                            if passed.len() > 4 {
                                mine.push(passed.swap_remove(0));
                            }
                        }
                        80..90 => {
                            let at = random(24) * PAGE;
                            bench.cache.invalidate(at..at + PAGE);
                        }
                        _ => mine.iter().for_each(|held| bench.check(held)),
                    }
                    if mine.len() > random(8) {
                        let held = mine.swap_remove(0);
                        bench.check(&held);
                    }
                }
            });
        }
    });
    drop(passed.into_inner());
    let stats = bench.cache.stats();
    assert!(stats.fast_hits > 1000, "{stats:?}");
    assert!(stats.invalidated_explicitly > 1000, "{stats:?}");
    assert_eq!(stats.invalid_in_use, 0);
    assert!(bench.world.peak() as u64 <= max_count);
    bench.close();
}

#[test]
fn no_use_after_deregistration_and_no_leak() {
    stress(Fences::choose(), u64::MAX);
}

#[test]
fn no_use_after_deregistration_and_no_leak_without_the_kernels_help() {
    stress(Fences::portable(), u64::MAX);
}

#[test]
fn no_use_after_deregistration_and_no_leak_when_room_is_short() {
    stress(Fences::choose(), 40);
}
