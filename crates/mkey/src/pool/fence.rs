//! A fence in two halves: next to nothing on the hot side, a system call on the rare one.
//!
//! Between a store and a later load of another place a thread needs a full fence, unless whoever
//! depends on the order makes every running thread of the process pass one: `membarrier`. Where
//! the kernel does not offer that, both sides fence.

/// How the two sides are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    /// The rare side makes every thread pass a fence.
    #[cfg(all(target_os = "linux", not(loom)))]
    Process,
    /// Each side passes its own.
    Both,
}

impl Fence {
    /// The cheapest that the system offers.
    pub(super) fn new() -> Self {
        #[cfg(all(target_os = "linux", not(loom)))]
        {
            use rustix::thread::{MembarrierCommand, membarrier};
            use std::sync::OnceLock;
            static REGISTERED: OnceLock<bool> = OnceLock::new();
            let register = || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
            if *REGISTERED.get_or_init(register) {
                return Self::Process;
            }
        }
        Self::Both
    }

    /// Between the hot side's store and its load.
    #[inline]
    pub(super) fn light(self) {
        match self {
            #[cfg(all(target_os = "linux", not(loom)))]
            Self::Process => {
                core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst)
            }
            Self::Both => full(),
        }
    }

    /// Between the rare side's store and its load. False where the system refused: then nothing is
    /// known about the order.
    pub(super) fn heavy(self) -> bool {
        match self {
            #[cfg(all(target_os = "linux", not(loom)))]
            Self::Process => {
                use rustix::thread::{MembarrierCommand, membarrier};
                full();
                membarrier(MembarrierCommand::PrivateExpedited).is_ok()
            }
            Self::Both => {
                full();
                true
            }
        }
    }
}

#[inline]
fn full() {
    #[cfg(not(loom))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    super::sync::fence(super::sync::Ordering::SeqCst);
}
