//! Who is told of what a program should not have done.

use mkey_core::address::HostRange;
use mkey_core::device::RefusalReport;
use mkey_core::refusal::DetachCause;
use std::fmt::Debug;

/// Told as it happens. Of each, the one that asks is told nothing more; a device works on whatever the
/// listener does, but it waits for it.
pub trait Listener: Debug + Send + Sync {
    /// An access or an operation was refused. On the thread that met it, with locks of the device
    /// held: nothing of the device may be called.
    fn refused(&self, report: &RefusalReport);

    /// The program has taken pages away from a registration that needs them. `range` is all that it
    /// took, which others than this device's registrations may lie in, too. On a thread of the
    /// device's.
    fn detached(&self, range: HostRange, cause: DetachCause);
}
