//! The bare references: what the same work costs without mkey.

use anyhow::{Context, Result};
use io_uring::IoUring;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What publishing an access and ending it costs at least.
#[inline(always)]
pub fn publish(word: &AtomicU64) {
    word.store(1, Ordering::Release);
    fence(Ordering::SeqCst);
    word.store(0, Ordering::Release);
}

/// A cache line.
#[repr(align(64))]
#[derive(Clone)]
struct CacheLine([u64; 8]);

/// As many bytes as a protection table.
pub struct Lines(Vec<CacheLine>);

impl Lines {
    pub fn new(lines: usize) -> Self {
        Self(vec![CacheLine([0; 8]); lines])
    }

    /// Loads all of one line.
    #[inline(always)]
    pub fn load(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |line| line.0.iter().fold(0, |sum, word| sum.wrapping_add(*word)))
    }
}

/// The kernel's pin: a table of registered buffers with one slot, as io_uring has it.
pub struct Pin(IoUring);

impl Pin {
    pub fn new() -> Result<Self> {
        let ring = IoUring::new(1).context("io_uring_setup")?;
        ring.submitter().register_buffers_sparse(1).context("a table of io_uring buffers")?;
        Ok(Self(ring))
    }

    /// Pins `len` bytes.
    ///
    /// # Safety
    ///
    /// They are mapped until [`Pin::unpin`].
    #[inline]
    pub unsafe fn pin(&self, address: usize, len: usize) -> Result<()> {
        self.update(libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len })
    }

    #[inline]
    pub fn unpin(&self) -> Result<()> {
        self.update(libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 })
    }

    fn update(&self, buffer: libc::iovec) -> Result<()> {
        // SAFETY: nothing is submitted to this ring, so that the kernel only pins and unpins.
        unsafe { self.0.submitter().register_buffers_update(0, &[buffer], Some(&[0])) }
            .context("io_uring_register")
    }
}
