//! The userfaultfd itself: opening, registering, reading. Knows no policy.

use super::{Event, EventKind};
use crate::error::{Errno, OsError};
use linux_raw_sys::general as sys;
use linux_raw_sys::ioctl::{
    UFFDIO_API, UFFDIO_REGISTER, UFFDIO_UNREGISTER, UFFDIO_WAKE, UFFDIO_WRITEPROTECT,
};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

/// Events other than page faults.
const EVENTS: u64 = (sys::UFFD_FEATURE_EVENT_REMOVE
    | sys::UFFD_FEATURE_EVENT_UNMAP
    | sys::UFFD_FEATURE_EVENT_REMAP
    | sys::UFFD_FEATURE_PAGEFAULT_FLAG_WP) as u64;
/// Write-protect mode for shared memory and hugetlb too (Linux 5.19).
const EVERY_KIND: u64 = sys::UFFD_FEATURE_WP_HUGETLBFS_SHMEM as u64;
/// `_IO(0xAA, 0)`: makes a userfaultfd from `/dev/userfaultfd` (Linux 6.1).
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xaa00;

/// Opens a userfaultfd that reports events.
pub(super) fn open() -> Result<OwnedFd, OsError> {
    let fd = create()?;
    match handshake(&fd, EVENTS | EVERY_KIND) {
        Ok(()) => Ok(fd),
        // A failed handshake spoils the descriptor.
        Err(OsError { errno: Errno::INVAL, .. }) => {
            let fd = create()?;
            handshake(&fd, EVENTS)?;
            Ok(fd)
        }
        Err(error) => Err(error),
    }
}

fn create() -> Result<OwnedFd, OsError> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // Without user-mode-only (before 5.11) the call wants privilege or a sysctl.
    for flags in [flags | sys::UFFD_USER_MODE_ONLY as i32, flags] {
        // SAFETY: the call takes flags only and returns a new descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if let Some(fd) = owned(fd) {
            return Ok(fd);
        }
        let error = OsError::last("userfaultfd");
        if error.errno != Errno::INVAL {
            return by_device(flags).ok_or(error);
        }
    }
    Err(OsError::new("userfaultfd", Errno::INVAL))
}

/// The device's permissions stand in for the call's.
fn by_device(flags: i32) -> Option<OwnedFd> {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd");
    // SAFETY: the request takes flags only and returns a new descriptor.
    let fd = unsafe { libc::ioctl(device.ok()?.as_raw_fd(), USERFAULTFD_IOC_NEW, flags) };
    owned(fd.into())
}

fn owned(fd: libc::c_long) -> Option<OwnedFd> {
    let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0)?;
    // SAFETY: the kernel has just made the descriptor for us.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn handshake(fd: &OwnedFd, features: u64) -> Result<(), OsError> {
    let mut api = sys::uffdio_api { api: 0xaa, features, ioctls: 0 };
    // SAFETY: the request reads and writes one uffdio_api.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API.into(), &mut api) };
    if rc == 0 { Ok(()) } else { Err(OsError::last("ioctl(UFFDIO_API)")) }
}

/// Watches a range; nothing is write-protected, so no page fault is reported.
pub(super) fn register(fd: i32, range: &Range<usize>) -> Result<(), OsError> {
    let mut register = sys::uffdio_register {
        range: raw(range),
        mode: u64::from(sys::UFFDIO_REGISTER_MODE_WP),
        ioctls: 0,
    };
    // SAFETY: the request reads and writes one uffdio_register.
    let rc = unsafe { libc::ioctl(fd, UFFDIO_REGISTER.into(), &mut register) };
    if rc == 0 { Ok(()) } else { Err(OsError::last("ioctl(UFFDIO_REGISTER)")) }
}

pub(super) fn unregister(fd: i32, range: &Range<usize>) {
    let range = raw(range);
    // SAFETY: the request reads one uffdio_range. Refused, the range has gone already.
    unsafe { libc::ioctl(fd, UFFDIO_UNREGISTER.into(), &range) };
}

/// Whether a thread is at this moment unmapping, discarding or moving watched memory: from before
/// the mapping goes until its event has been read. The kernel answers EAGAIN then, before it looks
/// at the request, and EINVAL at other times, as this one is empty: so it costs no more than a
/// system call.
pub(super) fn change_under_way(fd: i32) -> bool {
    let mut request = sys::uffdio_writeprotect { range: raw(&(0..0)), mode: 0 };
    // SAFETY: the request reads one uffdio_writeprotect, and an empty range changes nothing.
    let rc = unsafe { libc::ioctl(fd, UFFDIO_WRITEPROTECT.into(), &mut request) };
    rc != 0 && OsError::last("ioctl(UFFDIO_WRITEPROTECT)").errno == Errno::AGAIN
}

fn raw(range: &Range<usize>) -> sys::uffdio_range {
    sys::uffdio_range { start: range.start as u64, len: range.len() as u64 }
}

/// Reads what there is, at most a few events, and gives each to `each`. Allocates nothing.
pub(super) fn read_events(fd: i32, mut each: impl FnMut(&Event)) {
    const AT_ONCE: usize = 16;
    let mut messages = [const { MaybeUninit::<sys::uffd_msg>::uninit() }; AT_ONCE];
    // SAFETY: the kernel writes whole messages into the array, at most its size.
    let read = unsafe { libc::read(fd, messages.as_mut_ptr().cast(), size_of_val(&messages)) };
    let count = usize::try_from(read).unwrap_or(0) / size_of::<sys::uffd_msg>();
    let when = Instant::now();
    for message in messages.iter().take(count) {
        // SAFETY: the kernel has written this one whole.
        let message = unsafe { message.assume_init_ref() };
        // SAFETY: all views of the union are plain integers; the kernel has zeroed the rest.
        let (remap, remove, fault) =
            unsafe { (message.arg.remap, message.arg.remove, message.arg.pagefault) };
        let (kind, range) = match u32::from(message.event) {
            sys::UFFD_EVENT_UNMAP => (EventKind::Unmapped, remove.start..remove.end),
            sys::UFFD_EVENT_REMOVE => (EventKind::Discarded, remove.start..remove.end),
            sys::UFFD_EVENT_REMAP => (
                EventKind::Moved { to: remap.to as usize },
                remap.from..remap.from.saturating_add(remap.len),
            ),
            sys::UFFD_EVENT_PAGEFAULT => {
                // Nothing is protected, so none is expected; whoever waits must go on.
                let page = crate::limits::page_size() as u64;
                let range = sys::uffdio_range { start: fault.address / page * page, len: page };
                // SAFETY: the request reads one uffdio_range.
                unsafe { libc::ioctl(fd, UFFDIO_WAKE.into(), &range) };
                continue;
            }
            _ => continue,
        };
        each(&Event { kind, range: range.start as usize..range.end as usize, when });
    }
}
