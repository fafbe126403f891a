//! The atomics and locks of the engine, so that loom can watch them.

#[cfg(not(loom))]
pub(super) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(super) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(super) use std::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// Locks; what a panicking thread left behind is still whole, since no critical section of the
/// engine leaves its data half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
