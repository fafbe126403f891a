//! Turns: what a program does in several calls, of which the first begins and another one ends it.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whose turn it is: nobody's, or that of the thread that has begun.
#[derive(Debug, Default)]
pub(crate) struct Turn(AtomicBool);

impl Turn {
    /// Begins; waits until others have ended.
    pub(crate) fn begin(&self) {
        while self.0.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    /// Whether somebody has begun and not ended.
    #[inline]
    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Ends.
    pub(crate) fn end(&self) {
        self.0.store(false, Ordering::Release);
    }
}
