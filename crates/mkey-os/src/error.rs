//! A refused system call.

pub use rustix::io::Errno;

/// A system call (or a file below `/proc` or `/sys`) that was refused, with its errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {errno}")]
pub struct OsError {
    /// The call or the file.
    pub call: &'static str,
    /// Why.
    pub errno: Errno,
}

impl OsError {
    pub(crate) fn new(call: &'static str, errno: Errno) -> Self {
        Self { call, errno }
    }

    /// The error of the C library's last call.
    pub(crate) fn last(call: &'static str) -> Self {
        Self::from_io(call, &std::io::Error::last_os_error())
    }

    pub(crate) fn from_io(call: &'static str, error: &std::io::Error) -> Self {
        Self { call, errno: Errno::from_io_error(error).unwrap_or(Errno::IO) }
    }
}
