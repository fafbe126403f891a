//! The boundary to C: how a verb answers, and that no panic goes beyond it.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// An errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl From<mkey_core::error::Error> for Errno {
    fn from(error: mkey_core::error::Error) -> Self {
        Self(error.errno())
    }
}

pub(crate) const EINVAL: Errno = Errno(libc::EINVAL);
pub(crate) const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
/// What a forked child meets that uses an object of its parent's.
pub(crate) const NOT_HERE: Errno = Errno(libc::EPERM);

/// What a verb of ours comes to.
pub(crate) type Verb<T> = Result<T, Errno>;

/// Verbs that answer -1 and set errno, where most answer the errno itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrMinusOne(pub(crate) c_int);

/// The same that answer `-errno`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrMinusErrno<T>(pub(crate) T);

/// How C is told.
pub(crate) trait Answer<C> {
    /// The value that C sees, errno set if it is a failure.
    fn to_c(self) -> C;
    /// A failure.
    fn failed(errno: Errno) -> C;
}

/// Sets the calling thread's errno.
pub(crate) fn set_errno(errno: Errno) {
    // SAFETY: the C library's own pointer to this thread's errno.
    unsafe { *libc::__errno_location() = errno.0 };
}

impl<T> Answer<*mut T> for Verb<*mut T> {
    fn to_c(self) -> *mut T {
        self.unwrap_or_else(Self::failed)
    }

    fn failed(errno: Errno) -> *mut T {
        set_errno(errno);
        ptr::null_mut()
    }
}

impl Answer<c_int> for Verb<()> {
    fn to_c(self) -> c_int {
        self.map_or_else(Self::failed, |()| 0)
    }

    fn failed(errno: Errno) -> c_int {
        set_errno(errno);
        errno.0
    }
}

impl Answer<c_int> for Verb<OrMinusOne> {
    fn to_c(self) -> c_int {
        self.map_or_else(Self::failed, |value| value.0)
    }

    fn failed(errno: Errno) -> c_int {
        set_errno(errno);
        -1
    }
}

impl Answer<isize> for Verb<OrMinusErrno<isize>> {
    fn to_c(self) -> isize {
        self.map_or_else(Self::failed, |value| value.0)
    }

    fn failed(errno: Errno) -> isize {
        set_errno(errno);
        -(errno.0 as isize)
    }
}

impl Answer<()> for Verb<()> {
    fn to_c(self) {}

    fn failed(_: Errno) {}
}

/// Runs a verb. A panic, which would be a mistake of ours, ends in a failure of the verb and not in
/// the program's stack; what it was is on standard error by then.
#[inline]
pub(crate) fn verb<C, A: Answer<C>>(work: impl FnOnce() -> A) -> C {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(answer) => answer.to_c(),
        Err(_) => A::failed(Errno(libc::EIO)),
    }
}

/// The same for what answers values of its own: `broken` after a panic.
#[inline]
pub(crate) fn plain<C>(broken: C, work: impl FnOnce() -> C) -> C {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> c_int {
        // SAFETY: as in `set_errno`.
        unsafe { *libc::__errno_location() }
    }

    #[test]
    fn a_panic_is_a_failure_of_the_verb() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let failed: c_int = verb(|| -> Verb<()> { panic!("a mistake") });
        let none: *mut c_int = verb(|| -> Verb<*mut c_int> { panic!("a mistake") });
        let value = plain(-7, || panic!("a mistake"));
        std::panic::set_hook(hook);
        assert_eq!((failed, none.is_null(), value, errno()), (libc::EIO, true, -7, libc::EIO));
    }

    #[test]
    fn verbs_answer_in_their_own_ways() {
        let itself: c_int = Verb::<()>::Err(EINVAL).to_c();
        assert_eq!(itself, libc::EINVAL);
        let minus: c_int = Verb::<OrMinusOne>::Err(EOPNOTSUPP).to_c();
        assert_eq!((minus, errno()), (-1, libc::EOPNOTSUPP));
        assert_eq!(Verb::<OrMinusErrno<isize>>::Err(EINVAL).to_c(), -(libc::EINVAL as isize));
        assert_eq!(Verb::<OrMinusErrno<isize>>::Ok(OrMinusErrno(3)).to_c(), 3);
    }
}
