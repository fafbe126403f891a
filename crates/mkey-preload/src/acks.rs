//! Events given to the program, and how many of them it has acknowledged. An object is not destroyed
//! before all are: until then another thread may be about to use it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The events of one object.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    /// Given and not acknowledged.
    open: Mutex<u64>,
    changed: Condvar,
}

impl Acks {
    /// One more event was given.
    pub(crate) fn given(&self) {
        *self.lock() += 1;
    }

    /// So many were acknowledged.
    pub(crate) fn acknowledge(&self, count: u32) {
        let mut open = self.lock();
        *open = open.saturating_sub(u64::from(count));
        drop(open);
        self.changed.notify_all();
    }

    /// Waits until all are.
    pub(crate) fn wait(&self) {
        let mut open = self.lock();
        while *open > 0 {
            open = self.changed.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
