//! A file descriptor that counts: readable while the count is not 0, and each read takes one off. What
//! a queue of events shows a program that polls.

use crate::error::OsError;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{ReadWriteFlags, preadv2};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Such a descriptor (`eventfd` as a semaphore), closed on exec.
#[derive(Debug)]
pub struct CountFd(OwnedFd);

impl CountFd {
    /// A count of `start`.
    ///
    /// # Errors
    /// Where the process may open no more descriptors.
    pub fn new(start: u32) -> Result<Self, OsError> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC;
        eventfd(start, flags).map(Self).map_err(|errno| OsError::new("eventfd", errno))
    }

    /// Counts one more. Every call wakes those that poll, also by edge.
    pub fn add(&self) {
        // Only a count of 2^64 - 2 could be in its way.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes one off; waits for it unless the descriptor was made non-blocking.
    ///
    /// # Errors
    /// `EINTR` if a signal handler ran that asks for no restart, `EAGAIN` if the descriptor is
    /// non-blocking and the count is 0.
    pub fn take(&self) -> Result<(), OsError> {
        let mut count = [0u8; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(_) => Ok(()),
            Err(errno) => Err(OsError::new("read", errno)),
        }
    }

    /// Takes one off if the count is not 0, and never waits; whether it did. Kernels before 5.8 can
    /// not, and then the count stays.
    pub fn try_take(&self) -> bool {
        let mut count = [0u8; 8];
        let mut into = [IoSliceMut::new(&mut count)];
        // From where the descriptor is: it has no places.
        preadv2(&self.0, &mut into, u64::MAX, ReadWriteFlags::NOWAIT).is_ok()
    }
}

impl AsFd for CountFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable(fd: &CountFd) -> bool {
        let mut set = [PollFd::new(fd, PollFlags::IN)];
        poll(&mut set, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn is_readable_as_often_as_it_was_counted() {
        let fd = CountFd::new(1).unwrap();
        fd.add();
        fd.take().unwrap();
        assert!(readable(&fd));
        assert!(fd.try_take());
        assert!(!readable(&fd) && !fd.try_take());
        rustix::io::ioctl_fionbio(&fd, true).unwrap();
        assert_eq!(fd.take().unwrap_err().errno, rustix::io::Errno::AGAIN);
    }
}
