//! What an errno of the verbs stands for.

use crate::context::Context;
use mkey_core::device::Capability;
use mkey_core::error::{Error, Object, Reason};
use mkey_os::rdma_cgroup::{Resource, reached};
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

/// The kernel's own "not supported", which some drivers let out.
const ENOTSUPP: i32 = 524;
/// How often a verb that answers EAGAIN is called. The waits between grow from 1 ms to 128 ms: what
/// frees itself does so in that time, and what does not is not waited for.
const TRIES: u32 = 9;

/// The errno that a verb answered, whichever sign it has.
pub(crate) fn errno_of(answer: i32) -> i32 {
    answer.checked_abs().unwrap_or(libc::EIO)
}

/// This thread's errno.
pub(crate) fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().filter(|&errno| errno != 0).unwrap_or(libc::EIO)
}

/// Calls a verb that answers a new object, again for a while where it answers EAGAIN.
///
/// # Errors
/// The errno.
pub(crate) fn create<T>(mut verb: impl FnMut() -> *mut T) -> Result<NonNull<T>, i32> {
    again(|| {
        // SAFETY: the C library's own pointer to this thread's errno.
        unsafe { *libc::__errno_location() = 0 };
        NonNull::new(verb()).ok_or_else(last_errno)
    })
}

/// Calls a verb that answers 0 or an errno, again for a while where that is EAGAIN.
///
/// # Errors
/// The errno.
pub(crate) fn call(mut verb: impl FnMut() -> i32) -> Result<(), i32> {
    again(|| match verb() {
        0 => Ok(()),
        errno => Err(errno_of(errno)),
    })
}

/// Calls a verb again for a while where it answers EAGAIN.
pub(crate) fn again<T>(mut verb: impl FnMut() -> Result<T, i32>) -> Result<T, i32> {
    for tried in 1..TRIES {
        match verb() {
            Err(libc::EAGAIN) => std::thread::sleep(Duration::from_millis(1 << (tried - 1))),
            answer => return answer,
        }
    }
    verb()
}

/// Whether an errno says that the device, its driver or the kernel does not have a function.
pub(crate) fn not_offered(errno: i32) -> bool {
    matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS | ENOTSUPP)
}

/// The limit of a control group that a verb which answered EAGAIN ran into, if it did.
pub(crate) fn group_is_full(device: &str, resource: Resource) -> Option<Reason> {
    let limit = reached(device, resource)?;
    let what = match resource {
        Resource::Handle => {
            "control group's count of open devices (hca_handle; its rdma.max raises it)"
        }
        Resource::Object => {
            "control group's count of objects on the device (hca_object; its rdma.max raises it)"
        }
    };
    Some(Reason::Exhausted { what, asked: 1, free: 0, limit })
}

/// A verb that was refused.
pub(crate) struct Refused<'a> {
    /// Whose verb.
    pub(crate) context: &'a Context,
    /// Its name, without `ibv_`.
    pub(crate) verb: &'static str,
    /// What it answered.
    pub(crate) errno: i32,
    /// What the device lacks if it answered that it has no such function.
    pub(crate) lacks: Option<Capability>,
}

impl Refused<'_> {
    /// The reason, as far as the errno alone tells it.
    pub(crate) fn reason(&self) -> Reason {
        let (call, errno) = (self.verb, self.errno);
        match (errno, self.lacks) {
            (_, Some(capability)) if not_offered(errno) => Reason::Unsupported { capability },
            (libc::EIO | libc::ENODEV, _) if self.context.looks_gone() => Reason::DeviceGone,
            (libc::EAGAIN, _) => {
                let full = group_is_full(&self.context.name, Resource::Object);
                full.unwrap_or(Reason::System { call, errno })
            }
            _ => Reason::System { call, errno },
        }
    }

    /// The error.
    #[cold]
    pub(crate) fn error(&self, arguments: impl fmt::Display) -> Error {
        Error::new(self.verb, arguments, self.reason())
    }

    /// The error of a verb that makes an object of which the device has at most `most`, and of
    /// which there are `live` now.
    #[cold]
    pub(crate) fn creating(
        &self,
        object: Object,
        live: usize,
        most: u32,
        arguments: impl fmt::Display,
    ) -> Error {
        let full = matches!(self.errno, libc::ENOMEM | libc::EINVAL | libc::ENOSPC | libc::EAGAIN);
        if full && most > 0 && live as u64 >= u64::from(most) {
            let reason = Reason::TableFull { object, most: u64::from(most) };
            return Error::new(self.verb, arguments, reason);
        }
        self.error(arguments)
    }

    /// The error of a verb that destroys an object, which `by` may hold.
    #[cold]
    pub(crate) fn destroying(&self, object: Object, handle: u64, by: &str) -> Error {
        let reason = match self.errno {
            libc::EBUSY => Reason::InUse { object, by: by.into() },
            _ => self.reason(),
        };
        Error::new(self.verb, format_args!("handle {handle:#x}"), reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eagain_is_tried_again_a_bounded_number_of_times() {
        let mut calls = 0;
        let answer = call(|| {
            calls += 1;
            libc::EAGAIN
        });
        assert_eq!((answer, calls), (Err(libc::EAGAIN), TRIES));
        let mut calls = 0;
        let answer = call(|| {
            calls += 1;
            if calls < 3 { -libc::EAGAIN } else { 0 }
        });
        assert_eq!((answer, calls), (Ok(()), 3));
    }

    #[test]
    fn a_null_without_errno_is_still_an_error() {
        assert_eq!(create(std::ptr::null_mut::<u8>).unwrap_err(), libc::EIO);
        assert_eq!(errno_of(-22), 22);
        assert_eq!(errno_of(i32::MIN), libc::EIO);
    }
}
