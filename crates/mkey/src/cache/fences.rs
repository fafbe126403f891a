//! A fence of two unlike halves: free where it is taken often, a system call where it is not.
//!
//! Each half stands between a store and a load of another word. With both, at least one side sees
//! the other's store.

#[cfg(not(loom))]
use core::sync::atomic::compiler_fence;

use super::sync::{Ordering, fence};

/// The two halves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fences {
    /// The kernel makes all running threads of the process pass a barrier (`membarrier`).
    #[cfg_attr(loom, allow(dead_code, reason = "the model has the portable halves"))]
    by_kernel: bool,
}

impl Fences {
    /// As the model has them.
    #[cfg(loom)]
    pub(super) fn choose() -> Self {
        Self::portable()
    }

    /// By the kernel where it offers that.
    #[cfg(not(loom))]
    pub(super) fn choose() -> Self {
        use rustix::thread::{MembarrierCommand, membarrier};
        use std::sync::OnceLock;

        static BY_KERNEL: OnceLock<bool> = OnceLock::new();
        let by_kernel = *BY_KERNEL.get_or_init(|| {
            membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
                && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        });
        Self { by_kernel }
    }

    /// Without help: both halves are fences of the processor.
    #[cfg(any(test, loom))]
    pub(super) fn portable() -> Self {
        Self { by_kernel: false }
    }

    /// The half on the path that is taken often.
    #[inline]
    pub(super) fn light(self) {
        #[cfg(not(loom))]
        if self.by_kernel {
            compiler_fence(Ordering::SeqCst);
            return;
        }
        fence(Ordering::SeqCst);
    }

    /// The half on the path that is taken seldom.
    pub(super) fn heavy(self) {
        fence(Ordering::SeqCst);
        #[cfg(not(loom))]
        if self.by_kernel {
            use rustix::thread::{MembarrierCommand, membarrier};
            // A forked child is not registered until it asks itself; nothing else can fail.
            while membarrier(MembarrierCommand::PrivateExpedited).is_err() {
                let _ = membarrier(MembarrierCommand::RegisterPrivateExpedited);
                std::thread::yield_now();
            }
        }
    }
}
