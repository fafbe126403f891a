//! A barrier that all threads pass which may ring bells, in whatever process they are. So they need
//! none of their own as long as nobody sleeps.

use crate::core::generation;
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Whether threads of this process pass the barriers of others, and may have others pass theirs: where
/// the kernel offers that (Linux 4.16) and no filter of system calls refuses it.
pub(super) fn is_there() -> bool {
    /// For which process that was found out, and what.
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    let own = (u64::from(generation()) + 1) << 1;
    let known = KNOWN.load(Ordering::Relaxed);
    if known & !1 == own {
        return known & 1 == 1;
    }
    let there = membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok() && all().is_ok();
    KNOWN.store(own | u64::from(there), Ordering::Relaxed);
    there
}

/// Every thread passes a barrier now. Where it [was there](is_there) and is refused now, a filter of
/// system calls came later: a bell may then be missed by who rings at this very moment, and who sleeps
/// is woken later, by [`super::pair`]'s look for what lies unread.
pub(super) fn pass() {
    fence(Ordering::SeqCst);
    let _ = all();
}

fn all() -> rustix::io::Result<()> {
    membarrier(MembarrierCommand::GlobalExpedited)
}
