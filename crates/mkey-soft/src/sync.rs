//! Locks that do not pass on another thread's panic: the data behind them is consistent at every
//! point where a panic could happen.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None` if another thread has it.
pub(crate) fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// [`lock`] with `wait`, else [`try_lock`].
pub(crate) fn lock_or_leave<T: ?Sized>(mutex: &Mutex<T>, wait: bool) -> Option<MutexGuard<'_, T>> {
    if wait { Some(lock(mutex)) } else { try_lock(mutex) }
}
