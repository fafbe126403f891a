//! Probes and instances of processes that were killed before they could remove them.
//!
//! A probe costs every process time at each call of its function for as long as the kernel runs. A
//! name tells the process that made it, `mkey_PID_N`; the number alone is not enough, since tracefs
//! is one for all PID namespaces. A [`Mark`] on the instance tells the rest: the kernel takes it
//! away when the last holder has ended, whatever its number is elsewhere.

use rustix::fs::FlockOperation;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// What every name of an instance and of a group of probes begins with.
const PREFIX: &str = "mkey_";

/// Held while an instance is in use.
#[derive(Debug)]
pub(super) struct Mark {
    _folder: File,
}

impl Mark {
    /// Marks an instance; `None` if it is marked already, or can not be.
    pub(super) fn new(instance: &Path) -> Option<Self> {
        let folder = File::open(instance).ok()?;
        rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Self { _folder: folder })
    }
}

/// The name of a process's instance and group of probes.
pub(super) fn name(number: u32) -> String {
    format!("{PREFIX}{}_{number}", std::process::id())
}

/// Removes what ended processes left. What can not be removed stays, and the next start tries
/// again.
pub(super) fn remove(root: &Path) {
    let instances = root.join("instances");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(&instances).into_iter().flatten().flatten() {
        names.extend(entry.file_name().into_string().ok());
    }
    let probes = fs::read_to_string(root.join("kprobe_events")).unwrap_or_default();
    let probes: Vec<(&str, &str)> = probes.lines().filter_map(probe).collect();
    names.extend(probes.iter().map(|(group, _)| (*group).to_owned()));
    for name in names.iter().filter(|name| process(name).is_some_and(|pid| !lives(pid))) {
        let instance = instances.join(name);
        // Held until the instance is gone, so that two starts do not remove it together.
        let mark = Mark::new(&instance);
        if mark.is_none() && instance.exists() {
            continue;
        }
        // A probe that is on in any instance can not be removed; removing the instance turns its
        // own off.
        let _ = fs::write(instance.join("events").join(name).join("enable"), "0");
        let _ = fs::remove_dir(&instance);
        for (_, event) in probes.iter().filter(|(group, _)| group == name) {
            let _ = define(root, &format!("-:{name}/{event}"));
        }
    }
}

/// Writes a line to the kernel's list of probes.
pub(super) fn define(root: &Path, line: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().append(true).open(root.join("kprobe_events"))?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// Group and event of a line of that list, as in `p:GROUP/EVENT FUNCTION` or `r16:GROUP/EVENT ...`.
fn probe(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once(':')?;
    rest.split_whitespace().next()?.split_once('/')
}

/// The process that a name tells; `None` if it is no name of ours.
fn process(name: &str) -> Option<u32> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (pid, number) = name.strip_prefix(PREFIX)?.split_once('_')?;
    if digits(pid) && digits(number) { pid.parse().ok() } else { None }
}

/// Whether there is such a process; where that can not be told there is.
fn lives(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_none_or(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, id};

    /// The number of a process that has ended.
    fn ended() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    /// A folder laid out as tracefs is. Removing an instance of the kernel's removes all in it, a
    /// folder's only if it is empty: these are.
    fn tracefs(instances: &[&str], probes: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("kprobe_events"), probes).unwrap();
        for name in instances {
            fs::create_dir_all(root.path().join("instances").join(name)).unwrap();
        }
        root
    }

    #[test]
    fn what_ended_processes_left_goes_and_all_else_stays() {
        let (dead, own) = (ended(), id());
        let left = format!("mkey_{dead}_0");
        let others = ["theirs".to_owned(), format!("mkey_{own}_3"), format!("mkey_{dead}_x")];
        let mut instances: Vec<&str> = others.iter().map(String::as_str).collect();
        instances.push(&left);
        let probes = format!(
            "p:{left}/p0 do_work\nr16:{left}/r0 do_work\np:mkey_{own}_3/p0 do_work\n\
             p:kprobes/theirs do_work\nr:mkey_{dead}_7/r1 no_instance_is_left arg=$retval\n"
        );
        let root = tracefs(&instances, &probes);
        remove(root.path());
        let text = fs::read_to_string(root.path().join("kprobe_events")).unwrap();
        let mut written: Vec<&str> = text.strip_prefix(&probes).unwrap().lines().collect();
        written.sort_unstable();
        let mut expected =
            [format!("-:{left}/p0"), format!("-:{left}/r0"), format!("-:mkey_{dead}_7/r1")];
        expected.sort_unstable();
        assert_eq!(written, expected);
        for name in &others {
            assert!(root.path().join("instances").join(name).exists(), "{name}");
        }
        assert!(!root.path().join("instances").join(&left).exists());
    }

    #[test]
    fn a_number_that_is_of_another_namespace_is_told_by_its_mark() {
        let name = format!("mkey_{}_0", ended());
        let root = tracefs(&[&name], "");
        let instance = root.path().join("instances").join(&name);
        let mark = Mark::new(&instance).unwrap();
        assert!(Mark::new(&instance).is_none());
        remove(root.path());
        assert!(instance.exists());
        drop(mark);
        remove(root.path());
        assert!(!instance.exists());
    }

    #[test]
    fn names_and_lines_that_are_no_ours() {
        assert_eq!(process("mkey_12_0"), Some(12));
        for name in [
            "",
            "mkey_",
            "mkey_12",
            "mkey_12_",
            "mkey__0",
            "mkey_+1_0",
            "mkey_1_0_0",
            "x_12_0",
            "mkey_99999999999999_0",
        ] {
            assert_eq!(process(name), None, "{name}");
        }
        assert_eq!(probe("r16:a/b c"), Some(("a", "b")));
        for line in ["", "p", "p:", "p:a b", ":"] {
            assert_eq!(probe(line), None, "{line}");
        }
        remove(Path::new("/no/such/folder"));
    }
}
