//! The atomics of the use counts, in a place of their own: the model of the counts
//! (`tests/loom_cache.rs`) has loom's instead.

pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
