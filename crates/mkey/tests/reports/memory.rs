//! Memory that is mapped in special ways.

use mkey::{Foreign, Region};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

pub const PAGE: usize = 4096;

/// A mapping of one's own, unmapped on drop.
#[derive(Debug)]
pub struct Mapped {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range; nobody makes references into it.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Anonymous memory.
    pub fn anonymous(len: usize, prot: i32) -> Self {
        Self::map(len, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// The start of a file.
    pub fn file(file: &File, len: usize, flags: i32) -> Self {
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, file.as_raw_fd())
    }

    fn map(len: usize, prot: i32, flags: i32, fd: i32) -> Self {
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, 0) };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { start: NonNull::new(start.cast()).expect("not at 0"), len }
    }

    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Fresh anonymous memory in place of the old, at the same address. In one step, or another
    /// thread's mapping could come between.
    pub fn replace(&self) {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_FIXED);
        let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: over the range that is ours; nobody holds references into it.
        let start = unsafe { libc::mmap(self.start.as_ptr().cast(), self.len, prot, flags, -1, 0) };
        assert_eq!(start.cast(), self.start.as_ptr());
    }

    /// All of it, as memory to register.
    pub fn foreign(self: &Arc<Self>) -> Foreign {
        // SAFETY: the guard keeps the mapping, and nobody makes references into it.
        unsafe { Foreign::new(self.start, self.len, self.clone()) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing uses it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Part of a region, as memory of its own.
pub fn part(region: &Arc<Region>, offset: usize, len: usize) -> Foreign {
    let (start, whole) = mkey::Memory::range(&**region);
    assert!(offset + len <= whole);
    // SAFETY: within the region, which the guard keeps; it is never borrowed, being shared.
    unsafe { Foreign::new(start.add(offset), len, region.clone()) }
}
