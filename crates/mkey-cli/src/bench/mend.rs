//! What this machine does not allow, and the command that would.

use mkey_os::hugepages::ReserveError;
use mkey_os::mapping::PageKind;

use super::report::Missing;

pub use mkey_os::limits::RAISE_MEMLOCK as MEMLOCK;

/// The control group leaves more memory: a container, or a service.
pub const CGROUP: &str = "docker run --memory 4g   # service: systemd-run -p MemoryMax=4G";

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_shell_takes_the_commands_as_they_are_printed() {
        for command in [MEMLOCK, CGROUP] {
            let shell = Command::new("sh").args(["-n", "-c", command]).output().unwrap();
            assert!(shell.status.success(), "{command}: {shell:?}");
        }
    }
}
