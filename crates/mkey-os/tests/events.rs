//! Unmap, discard and move events: each arrives, whole, before the access that follows it.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the tests' memory is the tests' own")]

mod common;

use common::{Ended, PAGE, Pages, in_child};
use mkey_os::error::Errno;
use mkey_os::events::{self, Event, EventKind, Sink, WatchError, Watcher};
use mkey_os::limits::map_count;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Events as the sink saw them; the sink must not allocate, so room is made before.
type Seen = Arc<Mutex<Vec<(EventKind, Range<usize>)>>>;

fn watcher() -> (Watcher, Seen) {
    let watcher = Watcher::new();
    let watcher = watcher.unwrap_or_else(|error| panic!("SKIP: {error}; {}", error.mend()));
    let seen = listen(&watcher);
    (watcher, seen)
}

fn listen(watcher: &Watcher) -> Seen {
    let seen: Seen = Arc::new(Mutex::new(Vec::with_capacity(100_000)));
    let for_sink = Arc::clone(&seen);
    watcher.add_sink(leaked(move |event: &Event| {
        let mut seen = for_sink.lock().unwrap();
        assert!(seen.len() < seen.capacity());
        seen.push((event.kind, event.range.clone()));
    }));
    seen
}

/// Sinks stay until the process ends, which in these tests is soon.
fn leaked<S: Sink + 'static>(sink: S) -> &'static S {
    Box::leak(Box::new(sink))
}

fn process() -> &'static Watcher {
    events::process().unwrap_or_else(|error| panic!("SKIP: {error}; {}", error.mend()))
}

/// What the sink saw of these addresses, after the event in hand.
fn seen_of(watcher: &Watcher, seen: &Seen, range: &Range<usize>) -> Vec<(EventKind, Range<usize>)> {
    watcher.in_hand().wait();
    let seen = seen.lock().unwrap();
    seen.iter().filter(|(_, r)| r.start < range.end && r.end > range.start).cloned().collect()
}

fn whole(pages: &Pages) -> Range<usize> {
    pages.addr as usize..pages.addr as usize + pages.len
}

/// In a child of one thread: no other test unmaps or maps around us, and descriptors are few.
fn alone(body: impl FnOnce() -> i32) {
    assert_eq!(in_child(body), Ended::Exit(0));
}

#[test]
fn unmapping_discarding_and_moving_are_seen_when_the_call_returns() {
    alone(|| {
        let (watcher, seen) = watcher();
        let pages = Pages::new(8);
        pages.fill(1);
        let range = whole(&pages);
        let _guard = watcher.watch(range.clone()).unwrap();
        let page = |i: usize| pages.page(i) as usize;
        unsafe { libc::madvise(pages.page(1).cast(), PAGE, libc::MADV_DONTNEED) };
        let expected = vec![(EventKind::Discarded, page(1)..page(2))];
        assert_eq!(seen_of(&watcher, &seen, &range), expected);
        pages.unmap(3, 1);
        assert_eq!(
            seen_of(&watcher, &seen, &(page(3)..page(4))),
            [(EventKind::Unmapped, page(3)..page(4))]
        );
        pages.replace(5, 1);
        assert_eq!(
            seen_of(&watcher, &seen, &(page(5)..page(6))),
            [(EventKind::Unmapped, page(5)..page(6))]
        );
        let target = Pages::new(1);
        let moved = unsafe {
            libc::mremap(
                pages.page(6).cast(),
                PAGE,
                PAGE,
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                target.addr,
            )
        };
        assert_eq!(moved.cast::<u8>(), target.addr);
        let to = target.addr as usize;
        assert!(
            seen_of(&watcher, &seen, &(page(6)..page(7)))
                .contains(&(EventKind::Moved { to }, page(6)..page(7)))
        );
        0
    });
}

#[test]
fn first_touches_are_no_events() {
    alone(|| {
        let (watcher, _seen) = watcher();
        let pages = Pages::new(1000);
        let _guard = watcher.watch(whole(&pages)).unwrap();
        let before = watcher.in_hand().reads();
        pages.fill(1);
        assert_eq!(watcher.in_hand().reads(), before);
        0
    });
}

#[test]
fn memory_mapped_anew_can_be_watched_anew() {
    alone(|| {
        let (watcher, seen) = watcher();
        let pages = Pages::new(4);
        let range = whole(&pages);
        let first = watcher.watch(range.clone()).unwrap();
        for round in 1..200 {
            pages.unmap(0, 4);
            pages.replace(0, 4);
            let again = watcher.watch(range.clone()).unwrap();
            let events = seen_of(&watcher, &seen, &range).len();
            assert_eq!(events, round, "each unmapping is seen once");
            drop(again);
        }
        drop(first);
        0
    });
}

#[test]
fn many_small_watches_split_no_mapping() {
    alone(|| {
        let (watcher, seen) = watcher();
        let pages = Pages::new(2000);
        let before = map_count().unwrap();
        let guards: Vec<_> = (0..1000)
            .map(|i| {
                let addr = pages.page(2 * i) as usize;
                watcher.watch(addr..addr + 1).unwrap()
            })
            .collect();
        assert!(map_count().unwrap() <= before + 2);
        drop(guards);
        assert!(map_count().unwrap() <= before + 2);
        unsafe { libc::madvise(pages.page(7).cast(), PAGE, libc::MADV_DONTNEED) };
        assert_eq!(seen_of(&watcher, &seen, &whole(&pages)).len(), 1, "kept for the next");
        0
    });
}

#[test]
fn what_cannot_be_watched_says_why() {
    alone(|| {
        let (watcher, _seen) = watcher();
        let pages = Pages::new(3);
        pages.unmap(1, 1);
        let hole = pages.page(1) as usize;
        assert_eq!(watcher.watch(whole(&pages)).unwrap_err(), WatchError::Unmapped { addr: hole });
        // A private mapping of a file.
        let code = whole as *const () as usize;
        match watcher.watch(code..code + 1).unwrap_err() {
            WatchError::Kind { range, file: true, errno } => {
                assert!(range.contains(&code));
                assert_eq!(errno, Errno::INVAL);
            }
            other => panic!("{other:?}"),
        }
        assert!(watcher.watch(0..0).is_ok());
        assert!(watcher.watch(usize::MAX - 1..usize::MAX).is_err());
        // Somebody else's.
        let (other, _) = self::watcher();
        let theirs = Pages::new(1);
        let _guard = other.watch(whole(&theirs)).unwrap();
        match watcher.watch(whole(&theirs)).unwrap_err() {
            WatchError::Kind { errno: Errno::BUSY, .. } => {}
            other => panic!("{other:?}"),
        }
        0
    });
}

#[test]
fn shared_memory_and_huge_pages_can_be_watched() {
    alone(|| {
        let (watcher, seen) = watcher();
        let shared = common::memfd_pages(4, 4);
        shared.fill(1);
        let _guard = watcher.watch(whole(&shared)).unwrap();
        shared.unmap(2, 1);
        assert_eq!(seen_of(&watcher, &seen, &whole(&shared)).len(), 1);
        match mkey_os::hugepages::reserve(2 << 20, 4) {
            Ok(_reservation) => {
                use mkey_os::mapping::{Mapping, PageKind};
                let huge = Mapping::new(2 << 20, PageKind::Huge2M).unwrap();
                let range = huge.range();
                let _guard = watcher.watch(range.clone()).unwrap();
                drop(huge);
                assert_eq!(seen_of(&watcher, &seen, &range), [(EventKind::Unmapped, range)]);
            }
            Err(error) => {
                assert!(!rustix::process::geteuid().is_root(), "{error}");
                eprintln!("SKIPPED: huge pages cannot be reserved here");
            }
        }
        0
    });
}

/// The promise accessors rely on: once munmap has returned, an accessor that waits for the event
/// in hand finds the mark.
#[test]
fn the_mark_is_there_before_the_next_access() {
    alone(|| {
        let marks = Arc::new(AtomicUsize::new(0));
        let for_sink = Arc::clone(&marks);
        let watcher = Watcher::new().unwrap();
        watcher.add_sink(leaked(move |_: &Event| {
            // A sink that is slow to mark: the unmapping thread has long gone on.
            for _ in 0..2_000 {
                std::hint::spin_loop();
            }
            for_sink.fetch_add(1, Ordering::Release);
        }));
        let in_hand = watcher.in_hand();
        let pages = Pages::new(1000);
        let _guard = watcher.watch(whole(&pages)).unwrap();
        let mut early = 0;
        for i in 0..1000 {
            unsafe { libc::madvise(pages.page(i).cast(), PAGE, libc::MADV_DONTNEED) };
            early += usize::from(marks.load(Ordering::Acquire) <= i);
            in_hand.wait();
            assert_eq!(marks.load(Ordering::Acquire), i + 1);
        }
        assert!(early > 0, "the test never met the time between reading and marking");
        0
    });
}

#[test]
fn dropping_the_watcher_lets_waiting_threads_go_and_outlived_guards_do_nothing() {
    alone(|| {
        for _ in 0..50 {
            let (watcher, _seen) = watcher();
            let pages = Pages::new(64);
            let guard = watcher.watch(whole(&pages)).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for i in 0..64 {
                        unsafe { libc::madvise(pages.page(i).cast(), PAGE, libc::MADV_DONTNEED) };
                    }
                });
                drop(watcher);
            });
            drop(guard);
        }
        0
    });
}

#[test]
fn a_forked_child_has_no_events_and_harms_none() {
    alone(|| {
        let (watcher, seen) = watcher();
        let pages = Pages::new(2);
        let guard = watcher.watch(whole(&pages)).unwrap();
        let ended = in_child(|| {
            assert_eq!(watcher.watch(whole(&pages)).unwrap_err(), WatchError::Forked);
            drop(unsafe { std::ptr::read(&guard) });
            pages.unmap(0, 1);
            0
        });
        assert_eq!(ended, Ended::Exit(0));
        assert_eq!(seen_of(&watcher, &seen, &whole(&pages)), []);
        unsafe { libc::madvise(pages.page(0).cast(), PAGE, libc::MADV_DONTNEED) };
        assert_eq!(seen_of(&watcher, &seen, &whole(&pages)).len(), 1);
        0
    });
}

/// The pinner takes ranges from the event thread while threads allocate, free and unmap.
#[test]
fn a_pinner_fed_by_events_neither_hangs_nor_serves_old_pages() {
    use mkey_os::pin::{PinMode, PinRequest, Pinner};
    alone(|| {
        let pinner = Pinner::new(PinMode::Kernel);
        let for_sink = pinner.clone();
        let watcher = Watcher::new().unwrap();
        watcher.add_sink(leaked(move |event: &Event| for_sink.detach(event.range.clone())));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let in_hand = watcher.in_hand();
                    for round in 0..300u32 {
                        // Large enough that malloc maps it, so freeing unmaps.
                        let memory = vec![0u8; 200 << 10];
                        let addr = memory.as_ptr() as usize;
                        let _watch = watcher.watch(addr..addr + memory.len()).unwrap();
                        in_hand.wait();
                        let guard = pinner
                            .pin(&PinRequest { addr, len: memory.len(), write: true, page: None })
                            .unwrap();
                        let mark = round.to_ne_bytes();
                        guard.write_pinned(addr + 5000, &mark).unwrap();
                        let bytes = std::hint::black_box(&memory);
                        let got: Vec<u8> = (5000..5004)
                            .map(|i| unsafe { bytes.as_ptr().add(i).read_volatile() })
                            .collect();
                        assert_eq!(got, mark, "wrote pages that are mapped no more");
                    }
                });
            }
        });
        0
    });
}

/// Where a [`Holding`] sink is.
mod stage {
    pub const IDLE: usize = 0;
    pub const BEFORE: usize = 1;
    pub const LET_GO: usize = 2;
    pub const TOLD: usize = 3;
    pub const AFTER: usize = 4;
}

/// Holds the first reading of events back until it is let go. Others may follow: mappings of the
/// test's own threads lie beside the pages.
struct Holding(Arc<AtomicUsize>);

impl Sink for Holding {
    fn before_read(&self) {
        self.step(stage::IDLE, stage::BEFORE);
        while self.0.load(Ordering::SeqCst) == stage::BEFORE {
            std::thread::yield_now();
        }
    }

    fn event(&self, _: &Event) {
        self.step(stage::LET_GO, stage::TOLD);
    }

    fn after_read(&self) {
        self.step(stage::TOLD, stage::AFTER);
    }
}

impl Holding {
    fn step(&self, from: usize, to: usize) {
        let _ = self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
    }
}

#[test]
fn who_unmaps_waits_until_the_sink_has_let_the_event_be_read() {
    alone(|| {
        let stage = Arc::new(AtomicUsize::new(stage::IDLE));
        let watcher = Watcher::new().unwrap();
        watcher.add_sink(leaked(Holding(Arc::clone(&stage))));
        let pages = Pages::new(2);
        pages.fill(1);
        let _guard = watcher.watch(whole(&pages)).unwrap();
        let returned = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pages.unmap(0, 1);
                returned.store(1, Ordering::SeqCst);
            });
            while stage.load(Ordering::SeqCst) != stage::BEFORE {
                std::thread::yield_now();
            }
            for _ in 0..10_000 {
                assert_eq!(returned.load(Ordering::SeqCst), 0, "munmap returned before the read");
                std::thread::yield_now();
            }
            stage.store(stage::LET_GO, Ordering::SeqCst);
        });
        watcher.in_hand().wait();
        assert_eq!(stage.load(Ordering::SeqCst), stage::AFTER);
        0
    });
}

/// Watches so many other mappings that none is kept watched for its own sake any more.
fn forget_kept(watcher: &Watcher) {
    for _ in 0..300 {
        // Of two kinds in turn, so that neighbours stay mappings of their own.
        let pages = Pages::new(2);
        pages.protect(1, 1, libc::PROT_NONE);
        drop(watcher.watch(pages.page(0) as usize..pages.page(1) as usize).unwrap());
        std::mem::forget(pages);
    }
}

#[test]
fn a_guard_watches_on_when_part_of_its_mapping_went_and_a_later_guard_is_dropped() {
    alone(|| {
        let (watcher, seen) = watcher();
        let pages = Pages::new(16);
        let page = |i: usize| pages.page(i) as usize;
        let _first = watcher.watch(page(8)..page(9)).unwrap();
        pages.unmap(0, 1);
        drop(watcher.watch(page(9)..page(10)).unwrap());
        forget_kept(&watcher);
        pages.replace(8, 1);
        let expected = [(EventKind::Unmapped, page(8)..page(9))];
        assert_eq!(seen_of(&watcher, &seen, &(page(8)..page(9))), expected);
        0
    });
}

#[test]
fn a_guard_watches_on_when_its_mapping_has_grown_and_a_later_guard_is_dropped() {
    alone(|| {
        let (watcher, seen) = watcher();
        let pages = Pages::new(16);
        let page = |i: usize| pages.page(i) as usize;
        pages.unmap(4, 12);
        let first = watcher.watch(page(0)..page(1)).unwrap();
        let grown = unsafe { libc::mremap(pages.addr.cast(), 4 * PAGE, 16 * PAGE, 0) };
        assert_eq!(grown, pages.addr.cast(), "the place is free");
        drop(watcher.watch(page(8)..page(9)).unwrap());
        forget_kept(&watcher);
        pages.replace(1, 1);
        let expected = [(EventKind::Unmapped, page(1)..page(2))];
        assert_eq!(seen_of(&watcher, &seen, &(page(1)..page(2))), expected);
        drop(first);
        0
    });
}

#[test]
fn two_sinks_of_the_process_hear_of_one_mapping_whoever_asked_for_it() {
    alone(|| {
        let (first, second) = (listen(process()), listen(process()));
        let pages = Pages::new(2);
        let _guard = process().watch(whole(&pages)).unwrap();
        pages.unmap(1, 1);
        let gone = pages.page(1) as usize..pages.page(1) as usize + PAGE;
        for seen in [first, second] {
            assert_eq!(
                seen_of(process(), &seen, &whole(&pages)),
                [(EventKind::Unmapped, gone.clone())]
            );
        }
        0
    });
}

#[test]
fn guards_of_two_users_of_one_mapping_are_counted() {
    alone(|| {
        let seen = listen(process());
        let pages = Pages::new(4);
        let mine = process().watch(whole(&pages)).unwrap();
        let theirs = process().watch(pages.page(1) as usize..pages.page(2) as usize).unwrap();
        drop(mine);
        forget_kept(process());
        unsafe { libc::madvise(pages.page(3).cast(), PAGE, libc::MADV_DONTNEED) };
        assert_eq!(seen_of(process(), &seen, &whole(&pages)).len(), 1, "one guard is left");
        drop(theirs);
        unsafe { libc::madvise(pages.page(3).cast(), PAGE, libc::MADV_DONTNEED) };
        assert_eq!(seen_of(process(), &seen, &whole(&pages)).len(), 1, "none is left");
        0
    });
}

/// While events come all the time, so that it is added in the middle of readings.
#[test]
fn a_sink_added_later_hears_every_later_event() {
    alone(|| {
        let (pages, others) = (Pages::new(100), Pages::new(1));
        let _guards = [&pages, &others].map(|pages| process().watch(whole(pages)).unwrap());
        let stop = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    unsafe { libc::madvise(others.page(0).cast(), PAGE, libc::MADV_DONTNEED) };
                }
            });
            let mut heard = Vec::new();
            for i in 0..100 {
                heard.push(listen(process()));
                let page = pages.page(i) as usize..pages.page(i) as usize + PAGE;
                unsafe { libc::madvise(pages.page(i).cast(), PAGE, libc::MADV_DONTNEED) };
                for seen in &heard {
                    let events = seen_of(process(), seen, &page);
                    assert_eq!(events, [(EventKind::Discarded, page.clone())]);
                }
            }
            stop.store(1, Ordering::Relaxed);
        });
        0
    });
}

/// Accesses that were stopped before a reading go on after it, also when the reading ends badly.
#[test]
fn every_beginning_of_a_reading_is_followed_by_its_end() {
    struct Paired(AtomicUsize, AtomicUsize);
    impl Sink for Paired {
        fn before_read(&self) {
            assert_eq!(self.0.fetch_add(1, Ordering::SeqCst), self.1.load(Ordering::SeqCst));
        }
        fn event(&self, _: &Event) {}
        fn after_read(&self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    alone(|| {
        let paired = leaked(Paired(AtomicUsize::new(0), AtomicUsize::new(0)));
        process().add_sink(paired);
        process().add_sink(leaked(|_: &Event| panic!("a sink that may not, but does")));
        let pages = Pages::new(2);
        let _guard = process().watch(whole(&pages)).unwrap();
        pages.unmap(0, 1);
        process().in_hand().wait();
        assert_eq!((paired.0.load(Ordering::SeqCst), paired.1.load(Ordering::SeqCst)), (1, 1));
        0
    });
}

#[test]
fn a_forked_child_adds_no_sink_to_its_parents_watcher_and_one_of_its_own_if_there_is_none() {
    alone(|| {
        // The parent of this process has started none.
        let seen = listen(process());
        let pages = Pages::new(2);
        let _guard = process().watch(whole(&pages)).unwrap();
        let ended = in_child(|| {
            assert!(!process().is_here());
            let unheard = listen(process());
            assert_eq!(process().watch(whole(&pages)).unwrap_err(), WatchError::Forked);
            pages.unmap(0, 1);
            assert_eq!(seen_of(process(), &unheard, &whole(&pages)), []);
            0
        });
        assert_eq!(ended, Ended::Exit(0));
        pages.unmap(1, 1);
        assert_eq!(seen_of(process(), &seen, &whole(&pages)).len(), 1);
        0
    });
}
