//! Locks that do not pass on another thread's panic: the data behind them is consistent at every
//! point where a panic could happen. And a count that needs none.

use std::sync::atomic::{AtomicU32, Ordering};
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

/// Of so many calls one has its turn. Threads that call at once may lose counts to each other: it takes a
/// few more calls then.
#[derive(Debug, Default)]
pub(crate) struct Turns(AtomicU32);

impl Turns {
    /// Counts a call; whether it is the one of `calls`.
    #[inline]
    pub(crate) fn has_turn(&self, calls: u32) -> bool {
        let count = self.0.load(Ordering::Relaxed).wrapping_add(1);
        self.0.store(count, Ordering::Relaxed);
        count.is_multiple_of(calls)
    }

    /// Counts from the beginning.
    pub(crate) fn restart(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
