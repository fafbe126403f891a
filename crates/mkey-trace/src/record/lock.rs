//! A lock of one byte. Taking it is one atomic exchange, giving it back a store: half of what a lock that
//! puts threads to sleep takes. What is done under it is short.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::Duration;

/// A value behind such a lock.
pub struct Spin<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a `Held`, of which there is one at a time: the exchange that
// makes one is ordered after the store that ended the one before.
unsafe impl<T: Send> Sync for Spin<T> {}

/// The lock is held until this is dropped.
pub struct Held<'a, T> {
    of: &'a Spin<T>,
}

/// Turns of the loop between two looks at whether others should run.
const TURNS: u32 = 64;
/// After so many looks it is slept for so long between two: a thread of real-time priority gives way to none of
/// less by asking whether others should run.
const LOOKS: u32 = 100;
const SLEEP: Duration = Duration::from_micros(50);

/// Lets others run, who may hold what this thread has waited for, for the `round`th time.
pub fn give_way(round: u32) {
    if round < LOOKS {
        std::thread::yield_now();
    } else {
        std::thread::sleep(SLEEP);
    }
}

impl<T> Spin<T> {
    /// An open lock.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock, however long that takes.
    #[inline]
    pub fn lock(&self) -> Held<'_, T> {
        if self.held.swap(true, Acquire) {
            self.wait(u32::MAX);
        }
        Held { of: self }
    }

    /// Takes the lock unless it stays held: for where the thread itself may have been interrupted with it.
    #[inline]
    pub fn try_lock(&self) -> Option<Held<'_, T>> {
        (!self.held.swap(true, Acquire) || self.wait(200)).then_some(Held { of: self })
    }

    /// Takes the lock if it is open.
    #[inline]
    pub fn try_once(&self) -> Option<Held<'_, T>> {
        // Looked at first: who only looks takes it from nobody's cache.
        let taken = !self.held.load(Relaxed) && !self.held.swap(true, Acquire);
        taken.then_some(Held { of: self })
    }

    #[cold]
    fn wait(&self, rounds: u32) -> bool {
        let mut round = 0_u32;
        while round < rounds {
            for _ in 0..TURNS {
                if !self.held.load(Relaxed) && !self.held.swap(true, Acquire) {
                    return true;
                }
                std::hint::spin_loop();
            }
            // Who holds it may be waiting for this processor.
            match rounds {
                u32::MAX => {
                    give_way(round);
                    round = round.saturating_add(1).min(LOOKS);
                }
                _ => {
                    std::thread::yield_now();
                    round += 1;
                }
            }
        }
        false
    }

    /// Opens the lock, whoever held it.
    ///
    /// # Safety
    /// No other thread is there (a forked child, before it starts any), and whatever state the value was
    /// left in is one that it may have.
    pub unsafe fn break_open(&self) {
        self.held.store(false, Release);
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the lock is held by `self`.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held by `self`, which is borrowed alone.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.of.held.store(false, Release);
    }
}
