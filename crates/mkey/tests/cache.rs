//! The cache over a device and the operating system's events.

mod common;

use common::allocations::{self, Counting};
use mkey::{
    Access, Cache, CacheError, Completion, Cq, Device, Invalidation, Mr, Pd, Qp, Reason, Region,
    SoftOptions, WcStatus, Work,
};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PAGE: usize = 4096;

static HANDLED: AtomicU64 = AtomicU64::new(0);
static ALLOCATED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The thread's allocations when it began to read events.
    static BEFORE: Cell<Option<u64>> = const { Cell::new(None) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The first and the last sink that are told of a reading.
struct First;
struct Last;

impl mkey_os::events::Sink for First {
    fn before_read(&self) {
        BEFORE.set(Some(allocations::of_this_thread()));
    }

    fn event(&self, _: &mkey_os::events::Event) {}
}

impl mkey_os::events::Sink for Last {
    fn event(&self, _: &mkey_os::events::Event) {
        HANDLED.fetch_add(1, Ordering::SeqCst);
    }

    fn after_read(&self) {
        if let Some(before) = BEFORE.take() {
            ALLOCATED.fetch_add(allocations::of_this_thread() - before, Ordering::SeqCst);
        }
    }
}

struct Bed {
    pd: Pd,
    qp: Qp,
    cq: Cq,
    peer: Pd,
    _peer_qp: Qp,
}

impl Bed {
    fn new() -> Self {
        let device = Device::soft(SoftOptions::default()).expect("a software RNIC");
        let side = || {
            let pd = Pd::new(&device).expect("pd");
            let cq = Cq::new(&device, 64).expect("cq");
            let qp = Qp::builder(&pd, &cq).create().expect("qp");
            (pd, cq, qp)
        };
        let ((pd, cq, qp), (peer, _, peer_qp)) = (side(), side());
        qp.connect(&peer_qp.endpoint()).expect("connect");
        peer_qp.connect(&qp.endpoint()).expect("connect");
        Self { pd, qp, cq, peer, _peer_qp: peer_qp }
    }

    fn one(&self) -> Completion {
        let mut into = [Completion::BLANK];
        assert_eq!(self.cq.wait(&mut into, Duration::from_secs(10)), Ok(1));
        into[0]
    }
}

/// Memory of the test's own, unmapped when dropped.
struct Mapped(*mut u8, usize);

impl Mapped {
    /// At a place, if nobody else has taken it.
    fn at(place: *mut u8, len: usize, prot: ProtFlags) -> Option<Self> {
        let fixed = if place.is_null() { MapFlags::empty() } else { MapFlags::FIXED_NOREPLACE };
        // SAFETY: at a place of the kernel's choice, or at one where nothing is mapped.
        let at = unsafe { mmap_anonymous(place.cast(), len, prot, MapFlags::PRIVATE | fixed) };
        Some(Self(at.ok()?.cast(), len))
    }

    fn new(len: usize) -> Self {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        Self::at(std::ptr::null_mut(), len, prot).expect("mapped")
    }

    fn fill(&self, byte: u8) {
        // SAFETY: ours, and mapped.
        unsafe { std::ptr::write_bytes(self.0, byte, self.1) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { munmap(self.0.cast(), self.1) }.expect("unmapped");
    }
}

/// Puts the first bytes of `memory` at the peer, through the cache, and says what arrived.
fn send(bed: &Bed, cache: &Cache, memory: &Mapped) -> Vec<u8> {
    let target = Mr::builder(&bed.peer).remote_write();
    let target = target.register(Region::new(PAGE).expect("memory")).expect("mr");
    // SAFETY: the memory stays until the completion is seen.
    let cached = unsafe { cache.get(memory.0, 16, Access::local()) }.expect("registered");
    let key = target.remote_key(..16).expect("exposed");
    bed.qp.post(&[Work::write(&[cached.into_slice()], key)]).expect("posted");
    assert_eq!(bed.one().status, WcStatus::Success);
    target.slice(..16).expect("within").to_vec().expect("mapped")
}

#[test]
fn libfabric_cray_1000_no_stale_data_after_munmap_and_mmap_at_the_same_place() {
    let bed = Bed::new();
    let cache = Cache::builder(&bed.pd).invalidation(Invalidation::Events).build().expect("events");
    let (mut place, mut again) = (std::ptr::null_mut(), 0);
    for round in 1..=50 {
        // Another test may have taken the place meanwhile.
        let memory = Mapped::at(place, 4 * PAGE, ProtFlags::READ | ProtFlags::WRITE);
        let memory = memory.unwrap_or_else(|| Mapped::new(4 * PAGE));
        again += u32::from(memory.0 == place);
        memory.fill(round);
        assert_eq!(send(&bed, &cache, &memory), [round; 16]);
        assert_eq!(send(&bed, &cache, &memory), [round; 16]);
        place = memory.0;
    }
    assert!(again > 0, "never at the same place");
    cache.maintain();
    let stats = cache.stats();
    // Other memory that the device watches goes away as well: then a hit is not a fast one.
    assert_eq!((stats.misses, stats.invalidated_by_events), (50, 50));
    assert_eq!(stats.fast_hits + stats.slow_hits, 50);
    assert_eq!((stats.registered, stats.unwatched), (0, 0));
}

#[test]
fn libfabric_5554_no_allocation_in_the_event_handler() {
    let watcher = mkey_os::events::process().expect("events");
    watcher.add_sink(&First);
    let bed = Bed::new();
    let cache = Cache::builder(&bed.pd).invalidation(Invalidation::Events).build().expect("events");
    watcher.add_sink(&Last);
    let before = HANDLED.load(Ordering::SeqCst);
    for _ in 0..100 {
        let memory = Mapped::new(2 * PAGE);
        // SAFETY: given back at once.
        drop(unsafe { cache.get(memory.0, PAGE, Access::local()) }.expect("registered"));
    }
    cache.maintain();
    let handled = HANDLED.load(Ordering::SeqCst) - before;
    assert!(handled >= 100, "{handled} events seen by the test");
    assert_eq!(ALLOCATED.load(Ordering::SeqCst), 0);
    assert_eq!(cache.stats().registered, 0);
}

#[test]
fn posted_work_keeps_what_the_cache_has_dropped() {
    let bed = Bed::new();
    let memory = Mapped::new(PAGE);
    memory.fill(7);
    let cache = Cache::builder(&bed.pd).build().expect("built");
    let target = Mr::builder(&bed.peer).remote_write();
    let target = target.register(Region::new(PAGE).expect("memory")).expect("mr");
    // SAFETY: the memory stays until the end of the test.
    let cached = unsafe { cache.get(memory.0, 16, Access::local()) }.expect("registered");
    let key = target.remote_key(..16).expect("exposed");
    bed.qp.post(&[Work::write(&[cached.slice()], key)]).expect("posted");
    drop(cached);
    cache.flush();
    let stats = cache.stats();
    assert_eq!((stats.invalidated_explicitly, stats.invalid_in_use), (1, 1));
    let device = bed.pd.device().clone();
    drop(cache);
    let before = device.stats().deregistrations;
    assert_eq!(bed.one().status, WcStatus::Success);
    assert_eq!(device.stats().deregistrations, before + 1, "after the completion was seen");
    assert_eq!(target.slice(..16).expect("within").to_vec(), Ok(vec![7; 16]));
}

#[test]
fn a_slice_of_cached_memory_is_what_was_asked_for() {
    let bed = Bed::new();
    let memory = Mapped::new(PAGE);
    let cache = Cache::builder(&bed.pd).build().expect("built");
    let at = memory.0.wrapping_add(100);
    // SAFETY: the memory stays until the end of the test.
    let cached = unsafe { cache.get(at, 50, Access::local().remote_read()) }.expect("registered");
    assert_eq!((cached.len(), cached.iova().0), (50, at.addr() as u64));
    assert_eq!(cached.registered().start.0, memory.0.addr() as u64);
    assert_eq!(cached.registered().len, PAGE as u64);
    let slice = cached.slice();
    assert_eq!((slice.len(), slice.as_ptr(), slice.lkey()), (50, at, cached.lkey()));
    assert!(slice.is_exposed());
    slice.write(0, b"there").expect("mapped");
    let (slice, _) = slice.into_local().expect_err("never lent: the memory is not the library's");
    assert_eq!(slice.to_vec().expect("mapped")[..5], *b"there");
}

#[test]
fn mxl_516_memory_mapped_read_only_is_cached_for_reading() {
    let bed = Bed::new();
    let memory = Mapped::at(std::ptr::null_mut(), PAGE, ProtFlags::READ).expect("mapped");
    let cache = Cache::builder(&bed.pd).remember_failures(Duration::from_secs(60)).build();
    let cache = cache.expect("built");
    // SAFETY: given back at once.
    let get = |access| unsafe { cache.get(memory.0, 64, access) }.map(drop);
    for _ in 0..2 {
        let refused = get(Access::local()).expect_err("refused");
        let CacheError::Register(error) = refused else { panic!("{refused}") };
        assert!(matches!(error.reason, Reason::NotWritable { .. }), "{error}");
    }
    assert_eq!(cache.stats().negative_hits, 1);
    get(Access::local_read()).expect("registered");
    get(Access::local_read()).expect("hit");
    assert_eq!(cache.stats().fast_hits, 1);
}

#[test]
fn memory_that_reports_nothing_is_registered_for_one_request() {
    let bed = Bed::new();
    let cache = Cache::builder(&bed.pd).invalidation(Invalidation::Events).build().expect("events");
    let file = tempfile::tempfile().expect("a file");
    file.set_len(PAGE as u64).expect("sized");
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: at a place of the kernel's choice.
    let at = unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE, prot, flags, &file, 0) };
    let memory = Mapped(at.expect("mapped").cast(), PAGE);
    for _ in 0..3 {
        // SAFETY: given back at once.
        drop(unsafe { cache.get(memory.0, 64, Access::local()) }.expect("registered"));
        assert_eq!(cache.stats().registered, 0);
    }
    let stats = cache.stats();
    assert_eq!((stats.unwatched, stats.misses), (3, 3));
}

#[test]
fn what_can_not_be_is_refused() {
    let bed = Bed::new();
    for size in [0, 1, 1000, 3 * PAGE, PAGE / 2] {
        let error = Cache::builder(&bed.pd).page_size(size).build().map(drop).expect_err("no page");
        assert!(matches!(error.reason, Reason::Argument { .. }), "{error}");
    }
    let cache = Cache::builder(&bed.pd).invalidation(Invalidation::Off).build().expect("built");
    assert_eq!(cache.invalidation().to_string(), "off");
    // SAFETY: nothing comes of it.
    let get = |at: usize, len| unsafe {
        cache.get(std::ptr::without_provenance(at), len, Access::local())
    };
    for (at, len) in [(0, 1), (0, 0), (usize::MAX, 1), (usize::MAX, usize::MAX), (PAGE, 8)] {
        assert!(get(at, len).is_err(), "{len} bytes from {at:#x}");
    }
    assert_eq!(cache.stats().registered, 0);
}

#[test]
fn no_stale_data_while_other_threads_map_and_unmap_at_the_same_places() {
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            scope.spawn(move || {
                let bed = Bed::new();
                let cache = Cache::builder(&bed.pd).invalidation(Invalidation::Events);
                let cache = cache.build().expect("events");
                for round in 0..60 {
                    let memory = Mapped::new(4 * PAGE);
                    let byte = thread * 64 + round;
                    memory.fill(byte);
                    assert_eq!(send(&bed, &cache, &memory), [byte; 16]);
                    assert_eq!(send(&bed, &cache, &memory), [byte; 16]);
                }
                cache.maintain();
                let stats = cache.stats();
                assert_eq!(stats.registered, 0);
                assert!(stats.invalidated_by_events > 0, "{stats:?}");
            });
        }
    });
}
