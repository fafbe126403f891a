//! Bringing all pages of a range in, on several threads, with progress.

use crate::copy;
use crate::error::{Errno, OsError};
use crate::mapping::{Mapping, PageKind};
use rustix::mm::Advice;
use std::ops::{ControlFlow, Range};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Memory could not be brought in: there is not enough, or a limit (of a hugetlb control group,
/// for one) is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bringing in {len} bytes at {addr:#x}: {source}")]
pub struct PrefaultError {
    /// Where the part that failed begins.
    pub addr: usize,
    /// How long it is.
    pub len: usize,
    /// Why.
    #[source]
    pub source: OsError,
}

/// Makes every page of `mapping` present and writable, by `threads` threads (at least one).
/// `progress` is told (bytes done, bytes in all) after each part, from any of the threads; once it
/// answers `Break`, no further part is begun, and `Break` is handed on unless all was done.
///
/// # Errors
/// The first [`PrefaultError`]; other parts may have been brought in.
pub fn prefault(
    mapping: &Mapping,
    threads: usize,
    progress: impl Fn(usize, usize) -> ControlFlow<()> + Sync,
) -> Result<ControlFlow<()>, PrefaultError> {
    /// Large enough that a system call does not matter, small enough that threads share well.
    const PART: usize = 8 << 20;
    let part = mapping.page_kind().size().max(PART);
    let range = mapping.range();
    let total = mapping.len();
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let stopped = AtomicBool::new(false);
    let failure = Mutex::new(None);
    let work = || {
        while !stopped.load(Ordering::Relaxed) {
            let offset = next.fetch_add(part, Ordering::Relaxed);
            if offset >= total {
                break;
            }
            let len = part.min(total - offset);
            let addr = range.start + offset;
            // SAFETY: the range belongs to `mapping`, which is borrowed; populating writes
            // nothing that could be seen.
            match unsafe { populate_write(addr..addr + len) } {
                Ok(()) => {
                    let before = done.fetch_add(len, Ordering::Relaxed);
                    if progress(before + len, total).is_break() {
                        stopped.store(true, Ordering::Relaxed);
                    }
                }
                Err(source) => {
                    stopped.store(true, Ordering::Relaxed);
                    let mut slot = failure.lock().unwrap_or_else(|e| e.into_inner());
                    slot.get_or_insert(PrefaultError { addr, len, source });
                }
            }
        }
    };
    let parts = total.div_ceil(part);
    std::thread::scope(|scope| {
        for _ in 1..threads.min(parts) {
            // Refused for want of threads, the others do its part.
            let _ =
                std::thread::Builder::new().name("mkey-prefault".into()).spawn_scoped(scope, work);
        }
        work();
    });
    let failure = failure.into_inner().unwrap_or_else(|e| e.into_inner());
    match failure {
        Some(failure) => Err(failure),
        None if done.into_inner() < total => Ok(ControlFlow::Break(())),
        None => Ok(ControlFlow::Continue(())),
    }
}

/// Makes the pages of `range` present and writable; on kernels before 5.14 by touching them.
///
/// # Safety
/// As for [`copy::Installed::touch_write`], for one byte of each page.
pub(crate) unsafe fn populate_write(range: Range<usize>) -> Result<(), OsError> {
    match populate(&range, Advice::LinuxPopulateWrite) {
        // Memory that the call does not know (device memory) answers so as well.
        Err(OsError { errno: Errno::INVAL, .. }) => each_page(&range, |tolerant, addr| {
            // SAFETY: passed on from the caller.
            unsafe { tolerant.touch_write(addr as *mut u8) }
        }),
        other => other,
    }
}

/// Makes the pages of `range` present and readable; on kernels before 5.14 by touching them.
pub(crate) fn populate_read(range: Range<usize>) -> Result<(), OsError> {
    match populate(&range, Advice::LinuxPopulateRead) {
        Err(OsError { errno: Errno::INVAL, .. }) => {
            each_page(&range, |tolerant, addr| tolerant.touch_read(addr as *const u8))
        }
        other => other,
    }
}

fn populate(range: &Range<usize>, advice: Advice) -> Result<(), OsError> {
    loop {
        // SAFETY: populating changes no contents and answers addresses that are not mapped.
        match unsafe { rustix::mm::madvise(range.start as *mut _, range.len(), advice) } {
            Ok(()) => return Ok(()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(OsError::new("madvise(MADV_POPULATE)", errno)),
        }
    }
}

fn each_page(
    range: &Range<usize>,
    touch: impl Fn(copy::Installed, usize) -> Result<(), copy::CopyFault>,
) -> Result<(), OsError> {
    let fault = OsError::new("touching", Errno::FAULT);
    let tolerant = copy::install().map_err(|_| fault)?;
    range
        .clone()
        .step_by(PageKind::Base.size())
        .try_for_each(|addr| touch(tolerant, addr))
        .map_err(|_| fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reaches_the_total_and_all_pages_are_in() {
        let mapping = Mapping::new(20 << 20, PageKind::Base).unwrap();
        let last = AtomicUsize::new(0);
        let end = prefault(&mapping, 3, |done, total| {
            assert_eq!(total, 20 << 20);
            last.fetch_max(done, Ordering::Relaxed);
            ControlFlow::Continue(())
        });
        assert_eq!(end, Ok(ControlFlow::Continue(())));
        assert_eq!(last.into_inner(), 20 << 20);
        let mut present = vec![0u8; mapping.len() / 4096];
        // SAFETY: one byte per page of the mapping.
        let rc =
            unsafe { libc::mincore(mapping.as_ptr().cast(), mapping.len(), present.as_mut_ptr()) };
        assert_eq!(rc, 0);
        assert!(present.iter().all(|&p| p & 1 == 1));
    }

    #[test]
    fn a_break_leaves_the_parts_that_were_not_begun() {
        let mapping = Mapping::new(64 << 20, PageKind::Base).unwrap();
        let told = AtomicUsize::new(0);
        let end = prefault(&mapping, 1, |_, _| {
            told.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Break(())
        });
        assert_eq!(end, Ok(ControlFlow::Break(())));
        assert_eq!(told.into_inner(), 1);
        let mut present = vec![0u8; mapping.len() / 4096];
        // SAFETY: one byte per page of the mapping.
        let rc =
            unsafe { libc::mincore(mapping.as_ptr().cast(), mapping.len(), present.as_mut_ptr()) };
        assert_eq!(rc, 0);
        assert_eq!(present.first().map(|&p| p & 1), Some(1));
        assert_eq!(present.last().map(|&p| p & 1), Some(0));
    }

    #[test]
    fn touching_does_what_populating_does() {
        let mapping = Mapping::new(64 << 10, PageKind::Base).unwrap();
        each_page(&mapping.range(), |tolerant, addr| {
            // SAFETY: the mapping is ours.
            unsafe { tolerant.touch_write(addr as *mut u8) }
        })
        .unwrap();
        let mut present = [0u8; 16];
        // SAFETY: one byte per page of the mapping.
        unsafe { libc::mincore(mapping.as_ptr().cast(), mapping.len(), present.as_mut_ptr()) };
        assert!(present.iter().all(|&p| p & 1 == 1));
        let nothing = 0..4096;
        assert_eq!(populate_read(nothing.clone()).unwrap_err().errno, Errno::NOMEM);
        assert!(each_page(&nothing, |t, addr| t.touch_read(addr as *const u8)).is_err());
    }
}
