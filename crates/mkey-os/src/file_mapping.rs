//! Shared mappings of file descriptors: memfd, hugetlbfs, dma-buf, and other files that can be
//! mapped.

use crate::error::{Errno, OsError};
use crate::limits;
use rustix::mm::{MapFlags, ProtFlags};
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Part of a file's memory, shared with all who have it mapped; unmapped on drop. The descriptor
/// may be closed meanwhile.
///
/// Others may change it at any time, so it hands out addresses only.
#[derive(Debug)]
pub struct FileMapping {
    /// All that is mapped, in whole pages.
    mapped: Range<usize>,
    range: Range<usize>,
}

impl FileMapping {
    /// The size of the file in bytes.
    ///
    /// # Errors
    /// [`OsError`] of `fstat`.
    pub fn size_of(fd: BorrowedFd<'_>) -> Result<u64, OsError> {
        let stat = rustix::fs::fstat(fd).map_err(|errno| OsError::new("fstat", errno))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Maps `len` bytes of the file from `offset` on, which need not be multiples of a page, readable
    /// and, with `write`, writable. Writable also without it, where the file allows that: pinning by
    /// the kernel asks for it. Touches none of them, and does not look whether the file has
    /// them.
    ///
    /// # Errors
    /// [`OsError`]: `EACCES` or `EPERM` if the file may not be written and `write` asks for that,
    /// `ENODEV` if it can not be mapped, `EINVAL` if the range is beyond what can be addressed.
    pub fn new(fd: BorrowedFd<'_>, offset: u64, len: usize, write: bool) -> Result<Self, OsError> {
        let beyond = OsError::new("mmap", Errno::INVAL);
        let page = page_size(fd)?;
        let into = usize::try_from(offset % page as u64).map_err(|_| beyond)?;
        let whole = into.checked_add(len.max(1)).and_then(|len| len.checked_next_multiple_of(page));
        let whole = whole.ok_or(beyond)?;
        let from = offset - into as u64;
        let map = |protection| {
            // SAFETY: a new mapping at an address the kernel chooses touches no other.
            unsafe {
                let anywhere = std::ptr::null_mut();
                rustix::mm::mmap(anywhere, whole, protection, MapFlags::SHARED, fd, from)
            }
        };
        let start = match map(ProtFlags::READ | ProtFlags::WRITE) {
            Err(Errno::ACCESS | Errno::PERM) if !write => map(ProtFlags::READ),
            mapped => mapped,
        };
        let start = start.map_err(|errno| OsError::new("mmap", errno))? as usize;
        let first = start.saturating_add(into);
        Ok(Self {
            mapped: start..start.saturating_add(whole),
            range: first..first.saturating_add(len),
        })
    }

    /// Where the bytes asked for are.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        let Range { start, .. } = self.mapped;
        // SAFETY: the range is ours; who still uses its addresses has broken the contract. A
        // refusal leaves the memory mapped, which is safe.
        let _ = unsafe { rustix::mm::munmap(start as *mut _, self.mapped.len()) };
    }
}

/// What offsets and lengths of mappings of this file are multiples of: hugetlbfs tells its page
/// size so, and where another kind of file tells something else, it does no harm.
fn page_size(fd: BorrowedFd<'_>) -> Result<usize, OsError> {
    let stat = rustix::fs::fstat(fd).map_err(|errno| OsError::new("fstat", errno))?;
    let block = usize::try_from(stat.st_blksize).unwrap_or(0);
    let page = limits::page_size();
    Ok(if block.is_power_of_two() { block.max(page) } else { page })
}
