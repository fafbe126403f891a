//! What a round takes beside a second thread that works or sleeps as it is told.

use crate::machine;
use crate::measure::{Samples, alternate};
use anyhow::{Context, Result};
use std::cell::RefCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

/// `round` on one processor: while a thread on another does `work` again and again, and while that
/// sleeps, in turns.
pub fn beside_second(
    rounds: usize,
    [here, there]: [usize; 2],
    work: impl FnMut() + Send,
    mut round: impl FnMut() -> f64,
) -> Result<[Samples; 2]> {
    let second = Second::default();
    thread::scope(|scope| {
        let handle = scope.spawn(|| second.work(there, work));
        let samples = machine::pin_to(&[here]).map(|()| {
            let round = RefCell::new(|run: bool| {
                second.set(run, handle.thread());
                round()
            });
            // One closure at a time may hold `round`.
            alternate(rounds, [&mut || round.borrow_mut()(true), &mut || round.borrow_mut()(false)])
        });
        second.end(handle.thread());
        handle.join().ok().context("the second thread has panicked")??;
        samples
    })
}

/// What the thread is told, and what it does.
#[derive(Default)]
struct Second {
    run: AtomicBool,
    end: AtomicBool,
    runs: AtomicBool,
    gone: AtomicBool,
}

impl Second {
    /// The thread: does `round` again and again, on one processor, while it is to run.
    fn work(&self, cpu: usize, mut round: impl FnMut()) -> Result<()> {
        let _gone = Gone(&self.gone);
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

    /// Comes back when it does what it is told, or is gone.
    fn set(&self, run: bool, thread: &Thread) {
        self.run.store(run, Ordering::Release);
        thread.unpark();
        while self.runs.load(Ordering::Acquire) != run && !self.gone.load(Ordering::Acquire) {
            spin_loop();
        }
    }

    /// It is to end.
    fn end(&self, thread: &Thread) {
        self.end.store(true, Ordering::Release);
        thread.unpark();
    }
}

/// Tells that the thread has ended, however it did.
struct Gone<'a>(&'a AtomicBool);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
