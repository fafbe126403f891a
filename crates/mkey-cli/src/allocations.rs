//! Heap allocations, counted by thread.
#![allow(unsafe_code)] // An allocator is; all of it is handed on to the system's.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

/// The system's allocator, with a count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted;

thread_local! {
    // Without a destructor, so that it is there for as long as the thread allocates.
    static MADE: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that can not count any more is ending: nobody asks it.
    let _ = MADE.try_with(|made| made.set(made.get().wrapping_add(1)));
}

/// Allocations that this thread has made so far, growth of one included.
pub fn made() -> u64 {
    MADE.with(Cell::get)
}

/// Whether the process has this allocator: otherwise [`made`] tells nothing.
pub fn is_counted() -> bool {
    let before = made();
    drop(black_box(Box::new(black_box(0u8))));
    made() != before
}

// SAFETY: every call is handed on to the system's allocator as it is; the count touches no memory
// but a thread's own cell, and allocates nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counted = Counted;

    #[test]
    fn each_allocation_of_the_thread_counts_and_those_of_others_do_not() {
        assert!(is_counted());
        let before = made();
        let mut boxes: Vec<Box<u64>> = Vec::with_capacity(3);
        boxes.extend((0..3).map(Box::new));
        assert_eq!(made() - before, 4);
        let before = made();
        black_box(&boxes).iter().for_each(|number| assert!(**number < 3));
        assert_eq!(made(), before);
        let elsewhere = std::thread::spawn(|| {
            let before = made();
            drop(black_box(vec![0u8; 100]));
            made() - before
        });
        assert_eq!(elsewhere.join().expect("no panic"), 1);
    }
}
