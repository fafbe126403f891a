//! What this machine does not allow, and the command that would.

use mkey_os::hugepages::ReserveError;
use mkey_os::mapping::PageKind;

use super::report::Missing;
use crate::device::SOFTWARE;

pub use mkey_os::limits::RAISE_MEMLOCK as MEMLOCK;

/// The control group leaves more memory: a container, or a service.
pub const CGROUP: &str = "docker run --memory 4g   # service: systemd-run -p MemoryMax=4G";

/// Has a command of ours measure the device that was measured.
pub fn on_device(missing: &mut Missing, device: &str) {
    let ours = |command: &&mut String| {
        command.trim_start_matches("sudo ").starts_with("mkey bench")
            && !command.contains(" --device ")
    };
    if device != SOFTWARE
        && let Some(command) = missing.command.as_mut().filter(ours)
    {
        command.push_str(" --device ");
        command.push_str(device);
    }
}

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
        // How many are free is not known then.
        ReserveError::Unread { path, errno } => {
            format!("{kind} pages: {needed} needed; {} can not be read ({errno})", path.display())
        }
        other => format!("{kind} pages: {needed} needed, {free} free; {other}"),
    };
    Missing::with(what, error.mend())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn our_commands_keep_the_device_that_was_measured() {
        let told = |command: &str, device: &str| {
            let mut missing = Missing::with("", command);
            on_device(&mut missing, device);
            missing.command.unwrap()
        };
        let stages = "sudo mkey bench registration --stages";
        assert_eq!(told(stages, "rxe0"), format!("{stages} --device rxe0"));
        assert_eq!(told(&told(stages, "rxe0"), "rxe0"), format!("{stages} --device rxe0"));
        assert_eq!(told(stages, SOFTWARE), stages);
        assert_eq!(told(MEMLOCK, "rxe0"), MEMLOCK);
    }

    #[test]
    fn a_shell_takes_the_commands_as_they_are_printed() {
        for command in [MEMLOCK, CGROUP] {
            let shell = Command::new("sh").args(["-n", "-c", command]).output().unwrap();
            assert!(shell.status.success(), "{command}: {shell:?}");
        }
    }
}
