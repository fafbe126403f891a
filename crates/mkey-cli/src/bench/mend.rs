//! What this machine does not allow, and the command that would.

use mkey_os::hugepages::ReserveError;
use mkey_os::mapping::PageKind;

use super::report::Missing;

/// More memory may be locked: in this shell, or in a container.
pub const MEMLOCK: &str =
    "sudo prlimit --pid $$ --memlock=unlimited   (docker run --ulimit memlock=-1)";

/// The control group leaves more memory: a container, or a service.
pub const CGROUP: &str = "docker run --memory 4g   (systemd-run -p MemoryMax=4G)";

/// Huge pages that could not be reserved.
pub fn reserve(kind: PageKind, needed: u64, free: u64, error: &ReserveError) -> Missing {
    let what = match error {
        ReserveError::Refused { errno, .. } => format!(
            "{kind} pages: {needed} needed, {free} free, and this user may not reserve more \
             ({errno})"
        ),
        ReserveError::Short { asked, got, .. } => format!(
            "{kind} pages: {needed} needed, {free} free, and the kernel found only {got} of \
             {asked} more: memory is too fragmented or too small"
        ),
        other => format!("{kind} pages: {needed} needed, {free} free; {other}"),
    };
    Missing { what, command: Some(error.mend()) }
}
