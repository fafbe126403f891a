//! What the files of a process below `/proc` say, as texts that were read already: of whatever
//! process, on whatever machine.

use crate::files::{self, Unread};
use crate::lang::Lang;
use mkey_os::limits::INITIAL_USER_NAMESPACE;
use std::path::Path;

/// No list of a namespace's ids is as long as this, in bytes.
const LONGEST: u64 = 64 << 10;

/// A limit of `/proc/PID/limits`; `None` is "unlimited".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In force.
    pub soft: Option<u64>,
    /// What the process may raise it to without privilege.
    pub hard: Option<u64>,
}

/// The limit with this name, as in `Max locked memory`; `None` if it is not there, or no number.
pub fn limit(limits: &str, name: &str) -> Option<Limit> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut fields = rest.split_whitespace();
    let mut next = || match fields.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(Limit { soft: next()?, hard: next()? })
}

/// What a file of the process says instead of the limit with this name.
pub fn no_limit(path: &str, limits: &str, name: &str) -> Unread {
    match limits.lines().find(|line| line.starts_with(name)) {
        Some(line) => {
            let words: Vec<&str> = line.split_whitespace().collect();
            files::garbage(path, &words.join(" "))
        }
        None => files::no_line(path, name),
    }
}

/// CAP_IPC_LOCK's bit.
pub const IPC_LOCK: u32 = 14;

/// CAP_SYS_PTRACE's bit.
pub const SYS_PTRACE: u32 = 19;

/// Whether a set of `/proc/PID/status` (as in `CapEff`) has this capability; `None` if the set is not
/// there.
pub fn has_capability(status: &str, set: &str, bit: u32) -> Option<bool> {
    let hex = field(status, set)?;
    let set = u64::from_str_radix(hex, 16).ok()?;
    Some(set.checked_shr(bit).unwrap_or(0) & 1 == 1)
}

/// Whether a process lives in the user namespace that the kernel booted with: by what its link
/// `ns/user` leads to, whose number is fixed in the kernel (PROC_USER_INIT_INO); where that may not be
/// read, by its `uid_map`, which in that namespace maps all ids to themselves. `None` if neither tells.
pub fn in_initial_namespace(link: Option<&str>, uid_map: Option<&str>) -> Option<bool> {
    if let Some(link) = link {
        return Some(link == INITIAL_USER_NAMESPACE);
    }
    let map: Vec<u64> = uid_map?.split_whitespace().map_while(|id| id.parse().ok()).collect();
    (!map.is_empty()).then(|| map == [0, 0, u64::from(u32::MAX)])
}

/// The same by the folder of a process below `/proc`.
pub fn is_initial_below(folder: &Path) -> Option<bool> {
    let link = std::fs::read_link(folder.join("ns/user")).ok();
    let map = files::bounded(&folder.join("uid_map"), LONGEST).ok();
    let map = map.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    in_initial_namespace(link.as_deref().and_then(Path::to_str), map.as_deref())
}

/// Which variables of libibverbs' fork protection an environment sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForkSafe {
    /// RDMAV_FORK_SAFE or IBV_FORK_SAFE: protection.
    pub asked: bool,
    /// RDMAV_HUGEPAGES_SAFE: with a look at the size of each page, at each registration.
    pub huge_pages: bool,
}

/// The variables in `/proc/PID/environ`.
pub fn fork_safe(environment: &str) -> ForkSafe {
    let says = |name| variable(environment, name).is_some();
    ForkSafe {
        asked: says("RDMAV_FORK_SAFE") || says("IBV_FORK_SAFE"),
        huge_pages: says("RDMAV_HUGEPAGES_SAFE"),
    }
}

/// Why a process has no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memoryless {
    /// It has ended, and whoever started it has not asked for its status.
    Ended,
    /// It is a thread of the kernel.
    Kernel,
}

impl Memoryless {
    /// In words.
    pub fn told(self, pid: &str, lang: Lang) -> String {
        match (self, lang) {
            (Self::Ended, Lang::En) => {
                format!("process {pid} has ended (a zombie): it has no memory any more")
            }
            (Self::Ended, Lang::Zh) => format!("进程 {pid} 已经结束（僵尸进程）：不再有内存"),
            (Self::Kernel, Lang::En) => {
                format!("process {pid} is a thread of the kernel: it has no memory of its own")
            }
            (Self::Kernel, Lang::Zh) => format!("进程 {pid} 是内核线程：没有自己的内存"),
        }
    }
}

/// Why the process with this `status` has no memory; `None` if it has, or that is not told.
pub fn without_memory(status: &str) -> Option<Memoryless> {
    let state = field(status, "State")?;
    if state.starts_with(['Z', 'X']) {
        return Some(Memoryless::Ended);
    }
    let none = !status.lines().any(|line| line.starts_with("Vm"));
    (none || field(status, "Kthread") == Some("1")).then_some(Memoryless::Kernel)
}

/// Whether a folder that is to be `/proc` shows any process.
pub fn is_mounted(proc: &Path) -> bool {
    let is_process = |entry: std::fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name == "self" || name.parse::<u32>().is_ok())
    };
    std::fs::read_dir(proc).is_ok_and(|entries| entries.flatten().any(is_process))
}

/// What stands behind `name:` in a file of such lines.
pub fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let of = |line: &'t str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim());
    text.lines().find_map(of)
}

/// The bytes that `name:` has, as in `VmPin:  40 kB`.
pub fn kib_of(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The same of a file that has to say it.
///
/// # Errors
/// [`Unread`]: it has no such line, or one that tells no size.
pub fn size_in(path: &str, text: &str, name: &str) -> Result<u64, Unread> {
    let said = field(text, name).ok_or_else(|| files::no_line(path, name))?;
    kib_of(text, name).ok_or_else(|| files::garbage(path, &format!("{name}: {said}")))
}

/// A variable of `/proc/PID/environ`.
pub fn variable<'t>(environment: &'t str, name: &str) -> Option<&'t str> {
    environment.split('\0').find_map(|one| one.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Why;
    use proptest::prelude::*;

    #[test]
    fn limits_capabilities_sizes_and_variables() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max locked memory         65536                unlimited            bytes\n\
                      Max open files            1024                 4096                 files\n";
        let read = |name| limit(limits, name);
        assert_eq!(read("Max locked memory"), Some(Limit { soft: Some(65536), hard: None }));
        assert_eq!(read("Max open files"), Some(Limit { soft: Some(1024), hard: Some(4096) }));
        assert_eq!(read("Max stack size"), None);
        let status = "VmPin:\t  40 kB\nCapEff:\t0000000000004000\nCapBnd:\tx\n";
        assert_eq!(has_capability(status, "CapEff", IPC_LOCK), Some(true));
        assert_eq!(has_capability(status, "CapEff", 15), Some(false));
        assert_eq!(has_capability(status, "CapEff", 64), Some(false));
        assert_eq!(has_capability(status, "CapBnd", IPC_LOCK), None);
        assert_eq!((kib_of(status, "VmPin"), kib_of(status, "VmLck")), (Some(40960), None));
        let environment = "A=1\0RDMAV_FORK_SAFE=1\0B=\0";
        assert_eq!(variable(environment, "RDMAV_FORK_SAFE"), Some("1"));
        assert_eq!((variable(environment, "B"), variable(environment, "C")), (Some(""), None));
    }

    #[test]
    fn the_line_at_fault_is_told() {
        let why = |text: &str| no_limit("l", text, "Max locked memory").why;
        assert_eq!(why("Limit\n"), Why::NoLine("Max locked memory".to_owned()));
        let odd = "Limit Soft\nMax locked memory      x     1\n";
        assert_eq!(why(odd), Why::Garbage("Max locked memory x 1".to_owned()));
        let status = "VmPin:\t18446744073709551615 kB\nVmLck:\t4 kB\n";
        let size = |name: &str| size_in("s", status, name).map_err(|unread| unread.why);
        assert_eq!(size("VmLck"), Ok(4096));
        assert_eq!(size("VmPin"), Err(Why::Garbage("VmPin: 18446744073709551615 kB".to_owned())));
        assert_eq!(size("VmSwap"), Err(Why::NoLine("VmSwap".to_owned())));
    }

    #[test]
    fn processes_without_memory() {
        for (status, why) in [
            ("State:\tZ (zombie)\n", Some(Memoryless::Ended)),
            ("State:\tX (dead)\nVmPin:\t0 kB\n", Some(Memoryless::Ended)),
            ("State:\tI (idle)\n", Some(Memoryless::Kernel)),
            ("State:\tS (sleeping)\nKthread:\t1\n", Some(Memoryless::Kernel)),
            ("State:\tS (sleeping)\nKthread:\t0\nVmPin:\t0 kB\n", None),
            ("CapEff:\t0\n", None),
        ] {
            assert_eq!(without_memory(status), why, "{status}");
        }
    }

    #[test]
    fn a_namespace_that_can_not_be_read_is_not_taken_for_the_initial_one() {
        let of = in_initial_namespace;
        assert_eq!(of(Some("user:[4026531837]"), None), Some(true));
        assert_eq!(of(Some("user:[4026532201]"), Some("0 0 4294967295")), Some(false));
        assert_eq!(of(None, Some("         0          0 4294967295\n")), Some(true));
        assert_eq!(of(None, Some("0 1000 1\n")), Some(false));
        assert_eq!(of(None, Some("0 0 1000\n1000 100000 64\n")), Some(false));
        assert_eq!((of(None, None), of(None, Some("")), of(None, Some("x"))), (None, None, None));
    }

    #[test]
    fn the_variables_of_fork_protection() {
        let of = |asked, huge_pages| ForkSafe { asked, huge_pages };
        assert_eq!(fork_safe("IBV_FORK_SAFE=1\0"), of(true, false));
        assert_eq!(fork_safe("RDMAV_FORK_SAFE=\0RDMAV_HUGEPAGES_SAFE=1\0"), of(true, true));
        // There is no such variable.
        assert_eq!(fork_safe("IBV_HUGEPAGES_SAFE=1\0"), of(false, false));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}", name in "[A-Za-z ]{0,8}") {
            let _ = (limit(&text, &name), has_capability(&text, &name, 14), kib_of(&text, &name));
        }
    }
}
