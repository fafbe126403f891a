//! Who is told of what a program should not have done.

use mkey_core::address::HostRange;
use mkey_core::device::{Gid, RefusalReport};
use mkey_core::refusal::DetachCause;
use std::fmt::Debug;

/// Told as it happens. Of each, the one that asks is told nothing more; a device works on whatever the
/// listener does, but it waits for it.
pub trait Listener: Debug + Send + Sync {
    /// An access or an operation was refused. On the thread that met it, with locks of the device
    /// held: nothing of the device may be called.
    fn refused(&self, report: &RefusalReport);

    /// A peer, the queue pair `peer_qp` at `peer`, has not answered the queue pair `qp_num`, whose work
    /// ends with `RETRY_EXC_ERR`; `why`, as far as can be told from here. Called as
    /// [`Listener::refused`] is.
    fn unanswered(&self, qp_num: u32, peer: Gid, peer_qp: u32, why: &str);

    /// The program has taken pages away from a registration that needs them. `range` is all that it
    /// took, which others than this device's registrations may lie in, too. On a thread of the
    /// device's.
    fn detached(&self, range: HostRange, cause: DetachCause);
}
