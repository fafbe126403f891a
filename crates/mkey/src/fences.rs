//! A fence of two unlike halves: free where it is taken often, a system call where it is not.
//!
//! Each half stands between a store and a load of another word. With both, at least one side sees
//! the other's store.

#[cfg(not(loom))]
use core::sync::atomic::{Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};

/// The two halves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fences {
    /// The kernel makes all running threads of the process pass a barrier (`membarrier`).
    #[cfg(not(loom))]
    by_kernel: bool,
}

#[cfg(not(loom))]
impl Fences {
    /// By the kernel where it offers that.
    pub(crate) fn choose() -> Self {
        use std::sync::OnceLock;
        static BY_KERNEL: OnceLock<bool> = OnceLock::new();
        Self { by_kernel: *BY_KERNEL.get_or_init(|| register() && barrier()) }
    }

    /// Without help: both halves are fences of the processor.
    #[cfg(test)]
    pub(crate) fn portable() -> Self {
        Self { by_kernel: false }
    }

    /// The half on the path that is taken often.
    #[inline]
    pub(crate) fn light(self) {
        if self.by_kernel {
            core::sync::atomic::compiler_fence(Ordering::SeqCst);
            return;
        }
        fence(Ordering::SeqCst);
    }

    /// The half on the path that is taken seldom. False if the kernel, asked successfully when the
    /// fences were chosen, refuses now (a system call filter came later): then it was not passed,
    /// and nothing is known about the order.
    #[must_use]
    pub(crate) fn heavy(self) -> bool {
        fence(Ordering::SeqCst);
        // A forked child has to register anew.
        !self.by_kernel || barrier() || (register() && barrier())
    }
}

#[cfg(not(loom))]
fn register() -> bool {
    use rustix::thread::{MembarrierCommand, membarrier};
    membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
}

#[cfg(not(loom))]
fn barrier() -> bool {
    use rustix::thread::{MembarrierCommand, membarrier};
    membarrier(MembarrierCommand::PrivateExpedited).is_ok()
}

/// Both halves are fences that loom knows.
#[cfg(loom)]
impl Fences {
    pub(crate) fn choose() -> Self {
        Self {}
    }

    #[cfg(test)]
    pub(crate) fn portable() -> Self {
        Self {}
    }

    pub(crate) fn light(self) {
        fence(Ordering::SeqCst);
    }

    #[must_use]
    pub(crate) fn heavy(self) -> bool {
        fence(Ordering::SeqCst);
        true
    }
}
