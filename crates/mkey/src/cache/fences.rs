//! A fence of two unlike halves: free where it is taken often, a system call where it is not.
//!
//! Each half stands between a store and a load of another word. With both, at least one side sees
//! the other's store.

use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// The two halves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fences {
    /// The kernel makes all running threads of the process pass a barrier (`membarrier`).
    by_kernel: bool,
}

impl Fences {
    /// By the kernel where it offers that.
    pub(super) fn choose() -> Self {
        static BY_KERNEL: OnceLock<bool> = OnceLock::new();
        let by_kernel = *BY_KERNEL.get_or_init(|| {
            membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
                && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        });
        Self { by_kernel }
    }

    /// Without help: both halves are fences of the processor.
    #[cfg(test)]
    pub(super) fn portable() -> Self {
        Self { by_kernel: false }
    }

    /// The half on the path that is taken often.
    #[inline]
    pub(super) fn light(self) {
        if self.by_kernel {
            compiler_fence(Ordering::SeqCst);
            return;
        }
        fence(Ordering::SeqCst);
    }

    /// The half on the path that is taken seldom. False if the kernel, asked successfully when the
    /// fences were chosen, refuses now (a system call filter came later): then it was not passed.
    #[must_use]
    pub(super) fn heavy(self) -> bool {
        fence(Ordering::SeqCst);
        let barrier = || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        // A forked child has to register anew.
        let again = || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        !self.by_kernel || barrier() || (again() && barrier())
    }
}
