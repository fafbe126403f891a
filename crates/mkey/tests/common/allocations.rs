//! The system's allocator, which counts what is asked of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// For `#[global_allocator]`.
pub struct Counting;

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
}
static ALL: AtomicU64 = AtomicU64::new(0);

/// Allocations and frees of the calling thread so far.
pub fn of_this_thread() -> u64 {
    OWN.get()
}

/// Allocations and frees of all threads so far.
pub fn of_all() -> u64 {
    ALL.load(Ordering::Relaxed)
}

fn count() {
    ALL.fetch_add(1, Ordering::Relaxed);
    // A thread that is ending counts no more.
    let _ = OWN.try_with(|own| own.set(own.get() + 1));
}

// SAFETY: all is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}
