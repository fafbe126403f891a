//! An object of libibverbs that one thread may destroy while others use it.

use std::ffi::c_int;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock};

/// A pointer that is valid until [`Live::end`] has succeeded.
pub(crate) struct Live<T>(RwLock<Option<NonNull<T>>>);

// SAFETY: libibverbs' objects may be used by any thread; only the pointer itself is kept here.
unsafe impl<T> Send for Live<T> {}
// SAFETY: as above; it is changed behind the lock.
unsafe impl<T> Sync for Live<T> {}

impl<T> Live<T> {
    /// An object that was just created.
    pub(crate) fn new(object: NonNull<T>) -> Self {
        Self(RwLock::new(Some(object)))
    }

    /// Uses the object, beside other users; `None` once it is destroyed.
    pub(crate) fn with<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> Option<R> {
        let object = self.0.read().unwrap_or_else(PoisonError::into_inner);
        object.map(|object| use_it(object.as_ptr()))
    }

    /// Uses two objects, which may be one and the same, as [`Live::with`].
    pub(crate) fn with_both<R>(
        first: &Self,
        second: &Self,
        use_them: impl FnOnce(*mut T, *mut T) -> R,
    ) -> Option<R> {
        if std::ptr::eq(first, second) {
            // A second use of one object would wait for who waits to destroy it, and that for the
            // first.
            return first.with(|object| use_them(object, object));
        }
        // All in one order, whatever theirs is: two that wait for each other's second would wait for
        // ever, with one to destroy each between them.
        if std::ptr::from_ref(first) < std::ptr::from_ref(second) {
            first.with(|first| second.with(|second| use_them(first, second))).flatten()
        } else {
            second.with(|second| first.with(|first| use_them(first, second))).flatten()
        }
    }

    /// Uses the object alone; `None` once it is destroyed.
    #[inline]
    pub(crate) fn alone<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> Option<R> {
        let object = self.0.write().unwrap_or_else(PoisonError::into_inner);
        object.map(|object| use_it(object.as_ptr()))
    }

    /// Destroys the object, after all uses; the errno if it is refused and lives on. An object that
    /// was destroyed before is left alone.
    pub(crate) fn end(&self, destroy: impl FnOnce(*mut T) -> c_int) -> Result<(), i32> {
        let mut object = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(live) = *object else { return Ok(()) };
        match destroy(live.as_ptr()) {
            0 => {
                *object = None;
                Ok(())
            }
            errno => Err(crate::failure::errno_of(errno)),
        }
    }
}

impl<T> fmt::Debug for Live<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Live")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_objects_are_told_apart_in_either_order() {
        let objects = [1u8, 2].map(|value| Box::leak(Box::new(value)));
        let lives = objects.map(|object| Live::new(NonNull::from(object)));
        for [first, second] in [[0, 1], [1, 0]] {
            // SAFETY: the objects above, which nobody else touches.
            let read = |a: *mut u8, b: *mut u8| unsafe { [*a, *b] };
            let seen = Live::with_both(&lives[first], &lives[second], read);
            assert_eq!(seen, Some([first as u8 + 1, second as u8 + 1]));
        }
        assert_eq!(lives[1].end(|_| 0), Ok(()));
        assert_eq!(Live::with_both(&lives[0], &lives[1], |_, _| ()), None);
    }

    #[test]
    fn both_uses_of_one_object_do_not_wait_for_who_is_to_end_it() {
        static OBJECT: u8 = 0;
        let live = std::sync::Arc::new(Live::new(NonNull::from(&OBJECT)));
        let (done, ended) = std::sync::mpsc::channel();
        let start = std::sync::Arc::new(std::sync::Barrier::new(2));
        for ends in [false, true] {
            let (live, done, start) = (live.clone(), done.clone(), start.clone());
            std::thread::spawn(move || {
                start.wait();
                for _ in 0..1_000_000 {
                    if ends {
                        assert_eq!(live.end(|_| libc::EBUSY), Err(libc::EBUSY));
                    } else {
                        assert_eq!(Live::with_both(&live, &live, |a, b| a == b), Some(true));
                    }
                }
                done.send(()).unwrap();
            });
        }
        for _ in 0..2 {
            let ended = ended.recv_timeout(std::time::Duration::from_secs(60));
            ended.expect("they wait for each other");
        }
    }

    #[test]
    fn a_refused_end_leaves_the_object_and_a_done_one_does_not() {
        let mut object = 5u8;
        let live = Live::new(NonNull::from(&mut object));
        assert_eq!(live.end(|_| libc::EBUSY), Err(libc::EBUSY));
        // SAFETY: the object above, which nobody else touches.
        assert_eq!(live.with(|object| unsafe { *object }), Some(5));
        assert_eq!(live.end(|_| 0), Ok(()));
        assert_eq!(live.with(|_| ()), None);
        assert_eq!(live.alone(|_| ()), None);
        assert_eq!(live.end(|_| libc::EBUSY), Ok(()), "it is not asked again");
    }
}
