//! Memory that got the place of what another thread is unmapping still. In a process of its own: it
//! holds up the events of all watched memory.

use mkey::{Access, Cache, Device, Invalidation, Pd, SoftOptions};
use mkey_os::events::{Event, Sink};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;

const LEN: usize = 2 * 4096;

/// Told before all other sinks that an event is about to be read, and waits while it is shut.
struct Door {
    shut: Mutex<bool>,
    changed: Condvar,
}

static DOOR: Door = Door { shut: Mutex::new(false), changed: Condvar::new() };

impl Door {
    fn set(&self, shut: bool) {
        *self.shut.lock().unwrap() = shut;
        self.changed.notify_all();
    }
}

impl Sink for Door {
    fn before_read(&self) {
        let shut = self.shut.lock().unwrap();
        drop(self.changed.wait_while(shut, |shut| *shut).unwrap());
    }

    fn event(&self, _: &Event) {}
}

fn map(at: usize, flags: MapFlags) -> rustix::io::Result<usize> {
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: a new mapping, where nothing is mapped.
    let mapped = unsafe {
        mmap_anonymous(at, LEN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | flags)
    };
    mapped.map(|at| at.expose_provenance())
}

/// The number of the registration that a request gets; it is not kept.
fn key(cache: &Cache, at: usize) -> u32 {
    let at = std::ptr::with_exposed_provenance(at);
    // SAFETY: mapped while this lasts, and nobody makes references to it.
    unsafe { cache.get(at, LEN, Access::local()) }.expect("registered").lkey().0.0
}

#[test]
fn memory_in_the_place_of_what_another_thread_is_unmapping_gets_no_registration_of_that() {
    mkey_os::events::process().expect("this test needs unmap events").add_sink(&DOOR);
    let device = Device::soft(SoftOptions::default()).expect("a software RNIC");
    let pd = Pd::new(&device).expect("pd");
    let cache = Cache::builder(&pd).invalidation(Invalidation::Events).build().expect("events");
    let place = map(0, MapFlags::empty()).expect("mapped");
    let got = AtomicUsize::new(0);
    thread::scope(|scope| {
        let before = scope.spawn(|| key(&cache, place)).join().expect("registered");
        DOOR.set(true);
        scope.spawn(|| {
            // SAFETY: nobody uses it.
            unsafe { munmap(std::ptr::with_exposed_provenance_mut(place), LEN) }.expect("unmapped");
        });
        // It has gone as soon as something else can take its place; the thread is in there still,
        // as nobody reads the event.
        while map(place, MapFlags::FIXED_NOREPLACE).is_err() {
            thread::yield_now();
        }
        let asks = scope.spawn(|| {
            got.store(key(&cache, place) as usize, Ordering::SeqCst);
        });
        (0..1000).for_each(|_| thread::yield_now());
        let early = got.load(Ordering::SeqCst);
        // Before anything is said about it, or a thread would be left behind in `munmap`.
        DOOR.set(false);
        asks.join().expect("registered");
        assert_eq!(early, 0, "served before the event was read");
        assert_ne!(got.load(Ordering::SeqCst), before as usize);
    });
    let stats = cache.stats();
    assert_eq!((stats.slow_hits, stats.fast_hits, stats.misses), (0, 0, 2));
}
