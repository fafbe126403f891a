//! Descriptors that a forked child gives up at once: those that would keep something of the parent's for as
//! long as the child lives, although nobody is there to look after it. A socket that shares its port would
//! get packets that nobody reads; a listener would be connected to; a lock would stay taken.
//!
//! In the child the number stays in use, of something harmless, so that who closes it there closes nothing
//! else.
#![allow(unsafe_code)]

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

/// More than that are inherited.
const PLACES: usize = 1024;
const NONE: i32 = -1;

static OPEN: [AtomicI32; PLACES] = [const { AtomicI32::new(NONE) }; PLACES];
/// What is put in their place.
static HARMLESS: AtomicI32 = AtomicI32::new(NONE);

/// A descriptor that is this process's only, and not that of its forked children.
#[derive(Debug)]
pub(crate) struct NotInherited {
    fd: OwnedFd,
    place: Option<usize>,
}

impl NotInherited {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        static MADE: OnceLock<()> = OnceLock::new();
        MADE.get_or_init(|| {
            if let Ok(harmless) = eventfd(0, EventfdFlags::CLOEXEC) {
                HARMLESS.store(harmless.into_raw_fd(), Ordering::Release);
            }
        });
        let number = fd.as_raw_fd();
        let take = |place: &AtomicI32| {
            place.compare_exchange(NONE, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let place = OPEN.iter().position(take);
        Self { fd, place }
    }
}

impl AsFd for NotInherited {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for NotInherited {
    fn drop(&mut self) {
        // Before it is closed: another one may have the number then.
        if let Some(place) = self.place.and_then(|place| OPEN.get(place)) {
            let own = self.fd.as_raw_fd();
            let _ = place.compare_exchange(own, NONE, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// In a forked child: gives them up. Does only what a signal handler may.
pub(crate) fn give_up() {
    let harmless = HARMLESS.load(Ordering::Acquire);
    if harmless == NONE {
        return;
    }
    for place in &OPEN {
        let fd = place.swap(NONE, Ordering::AcqRel);
        if fd != NONE {
            // SAFETY: both are descriptors of this process, of which the second is in use for nothing else.
            unsafe { libc::dup3(harmless, fd, libc::O_CLOEXEC) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::fs::File;
    use std::io::{PipeReader, PipeWriter, Read, Write};

    fn pipe() -> (PipeReader, PipeWriter) {
        std::io::pipe().unwrap()
    }

    /// The parent's lock is free once the parent lets go of it, although a child lives.
    #[test]
    fn a_child_does_not_keep_what_its_parent_lets_go_of() {
        let _counted = crate::core::executors();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let kept = NotInherited::new(File::create(&path).unwrap().into());
        flock(&kept, FlockOperation::LockExclusive).unwrap();
        let ((mut alive, mut is_alive), (mut ended, end)) = (pipe(), pipe());
        // SAFETY: the child does nothing but this.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // Ends it if it hangs.
            // SAFETY: nobody else uses the alarm here.
            unsafe { libc::alarm(20) };
            let told = is_alive.write_all(b"x").is_ok();
            // SAFETY: of this child, which has a copy of it.
            unsafe { libc::close(end.as_raw_fd()) };
            let _ = ended.read(&mut [0]);
            // SAFETY: it ends the child.
            unsafe { libc::_exit(i32::from(!told)) };
        }
        alive.read_exact(&mut [0]).unwrap();
        let other = File::open(&path).unwrap();
        let lock = || flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert!(lock().is_err(), "the parent has it");
        drop(kept);
        lock().unwrap();
        drop(end);
        let mut status = -1;
        // SAFETY: the child is ours; the place is there.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
    }
}
