//! A second thread that works or sleeps as it is told.

use crate::machine;
use anyhow::Result;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

/// What the thread is told, and what it does.
#[derive(Default)]
pub struct Second {
    run: AtomicBool,
    end: AtomicBool,
    runs: AtomicBool,
}

impl Second {
    /// The thread: does `round` again and again, on one processor, while it is to run.
    pub fn work(&self, cpu: usize, mut round: impl FnMut()) -> Result<()> {
        machine::pin_to(&[cpu])?;
        while !self.end.load(Ordering::Acquire) {
            if self.run.load(Ordering::Acquire) {
                self.runs.store(true, Ordering::Release);
                (0..1000).for_each(|_| round());
            } else {
                self.runs.store(false, Ordering::Release);
                thread::park();
            }
        }
        Ok(())
    }

    /// Comes back when it does what it is told.
    pub fn set(&self, run: bool, thread: &Thread) {
        self.run.store(run, Ordering::Release);
        thread.unpark();
        while self.runs.load(Ordering::Acquire) != run {
            spin_loop();
        }
    }

    /// It is to end.
    pub fn end(&self, thread: &Thread) {
        self.end.store(true, Ordering::Release);
        thread.unpark();
    }
}
