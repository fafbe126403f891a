//! Forked children. They can open devices of their own; what the parent had open is not theirs: pins,
//! descriptors and threads are the parent's. Destroying such an object succeeds and does nothing, all
//! else is refused.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Openings of devices, counted from 1 over this process and those that it was forked from.
static OPENINGS: AtomicU32 = AtomicU32::new(0);
/// Of these, how many were made before this process was forked.
static INHERITED: AtomicU32 = AtomicU32::new(0);

/// The number of a new opening.
pub(crate) fn opening() -> u32 {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        mkey_os::fork::in_children(in_child);
    });
    OPENINGS.fetch_add(1, Ordering::Relaxed) + 1
}

/// Whether an opening is another process's.
#[inline]
pub(crate) fn inherited(opening: u32) -> bool {
    opening <= INHERITED.load(Ordering::Relaxed) && opening != 0
}

extern "C" fn in_child() {
    INHERITED.store(OPENINGS.load(Ordering::Relaxed), Ordering::Relaxed);
}
