//! What each process has once and makes when it first needs it.
//!
//! A lock would not do: one that a thread of the parent holds while another one forks stays taken for
//! ever in the child.
#![allow(unsafe_code)]

use crate::core::generation;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// A place for what each process has once, and keeps until its end.
pub(crate) struct PerProcess<T> {
    made: AtomicPtr<Made<T>>,
    /// Which process makes it just now, counted from 1; 0: none.
    maker: AtomicU64,
}

struct Made<T> {
    generation: u32,
    value: T,
}

impl<T: Sync + 'static> PerProcess<T> {
    /// A place with nothing in it.
    pub(crate) const fn new() -> Self {
        Self { made: AtomicPtr::new(ptr::null_mut()), maker: AtomicU64::new(0) }
    }

    /// What this process has already.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or of a box that is never freed, and only read since.
        let made = unsafe { self.made.load(Ordering::Acquire).as_ref() }?;
        // What a forked child has inherited is its parent's.
        (made.generation == generation()).then_some(&made.value)
    }

    /// What this process has, made if need be, by one thread only; `None` if it could not be made.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> Option<T>) -> Option<&'static T> {
        if let Some(value) = self.get() {
            return Some(value);
        }
        let generation = generation();
        let own = u64::from(generation) + 1;
        loop {
            let maker = self.maker.load(Ordering::Acquire);
            if maker == own {
                // Another thread of this process, which is there and ends.
                std::thread::yield_now();
                if let Some(value) = self.get() {
                    return Some(value);
                }
                continue;
            }
            // One of a parent's threads is not here to end it.
            let take = (Ordering::AcqRel, Ordering::Relaxed);
            if self.maker.compare_exchange(maker, own, take.0, take.1).is_ok() {
                break;
            }
        }
        // Also if `make` panics: others wait for it.
        let _done = Done(&self.maker);
        self.get().or_else(|| {
            let made = Box::leak(Box::new(Made { generation, value: make()? }));
            self.made.store(made, Ordering::Release);
            Some(&made.value)
        })
    }
}

/// Nobody makes it any more.
struct Done<'a>(&'a AtomicU64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn it_is_made_once() {
        static PLACE: PerProcess<u32> = PerProcess::new();
        assert_eq!(PLACE.get_or_make(|| None), None);
        assert_eq!(PLACE.get_or_make(|| Some(1)), Some(&1));
        assert_eq!(PLACE.get_or_make(|| panic!("it is there")), Some(&1));
    }

    #[test]
    fn who_fails_to_make_it_leaves_it_to_others() {
        static PLACE: PerProcess<u32> = PerProcess::new();
        let made = std::panic::catch_unwind(|| PLACE.get_or_make(|| panic!("on purpose")));
        assert!(made.is_err());
        assert_eq!(PLACE.get_or_make(|| Some(1)), Some(&1));
    }

    #[test]
    fn threads_wait_for_the_one_that_makes_it() {
        static PLACE: PerProcess<usize> = PerProcess::new();
        let made: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|at| scope.spawn(move || PLACE.get_or_make(|| Some(at)))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(made[0].is_some() && made.iter().all(|of| *of == made[0]), "{made:?}");
    }

    /// A child makes its own, also if it was forked while another thread was making the parent's.
    #[test]
    fn r_fork_08_a_child_has_its_own() {
        static PLACE: PerProcess<u32> = PerProcess::new();
        let _counted = crate::core::executors();
        let ((begun, begins), (end, ends)) = (channel(), channel());
        std::thread::scope(|scope| {
            let maker = scope.spawn(move || {
                PLACE.get_or_make(|| {
                    begun.send(()).ok()?;
                    ends.recv().ok()?;
                    Some(1)
                })
            });
            begins.recv().unwrap();
            // SAFETY: the child does nothing but this.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // Ends it if it hangs.
                // SAFETY: nobody else uses the alarm here.
                unsafe { libc::alarm(5) };
                let own = PLACE.get_or_make(|| Some(2)) == Some(&2)
                    && PLACE.get_or_make(|| None) == Some(&2);
                // SAFETY: it ends the child.
                unsafe { libc::_exit(i32::from(!own)) };
            }
            end.send(()).unwrap();
            let mut status = -1;
            // SAFETY: the child is ours; the place is there.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0);
            assert_eq!(maker.join().unwrap(), Some(&1));
        });
    }
}
