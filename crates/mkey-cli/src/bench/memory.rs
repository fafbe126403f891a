//! How much memory fits: what is free, what the control group allows, what may be locked.

use super::mend;
use super::report::Missing;
use super::units::size;
use crate::process;
use mkey_os::cgroup::{self, Folder, Version};
use mkey_os::limits;
use std::fs;
use std::path::Path;

/// The step that registered memory is a multiple of: one huge page.
const STEP: u64 = 2 << 20;
/// Left to the rest of this process: working sets, tables, the program.
const OTHERS: u64 = 64 << 20;
/// Memory that the rows pin besides the large registration: the peer's buffer, and the blocks of
/// one chain that are registered for one I/O each.
const PINNED_BESIDES: u64 = 1 << 20;

/// How much to register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Bytes: what was asked for or what fits, in whole huge pages.
    pub bytes: u64,
    /// Why it is less than asked for, most binding last.
    pub limits: Vec<Missing>,
    /// Why nothing of use may be pinned at all; on-demand rows do without.
    pub unpinnable: Option<Missing>,
}

/// What bounds the memory, in bytes; `None`: no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// MemAvailable.
    pub available: Option<u64>,
    /// What the control groups leave.
    pub cgroup: Option<u64>,
    /// What this process may still lock.
    pub lockable: Option<u64>,
}

/// What bounds the memory here and now.
pub fn bounds() -> Bounds {
    Bounds { available: available(), cgroup: cgroup_room(Path::new("/")), lockable: lockable() }
}

/// How much of `asked` fits into `bounds`.
pub fn fit(asked: u64, bounds: &Bounds) -> Fit {
    fit_told(asked, bounds, |bytes| format!("{} are registered", size(bytes)))
}

/// The same; `told` says what becomes of what does not fit into so many bytes.
pub fn fit_told(asked: u64, bounds: &Bounds, told: impl Fn(u64) -> String) -> Fit {
    let mut fit = Fit { bytes: round(asked), limits: Vec::new(), unpinnable: None };
    for (bound, what, command) in [
        (bounds.available, "of memory are available", None),
        (bounds.cgroup, "of memory are left by the control group", Some(mend::CGROUP)),
    ] {
        // A tenth stays free, so that the measurement does not push others out.
        let Some(free) = bound else { continue };
        let room = (free / 10 * 9).saturating_sub(OTHERS);
        fit.lower_to(room, format!("{} {what}", size(free)), command, &told);
    }
    if let Some(lockable) = bounds.lockable {
        let room = lockable.saturating_sub(PINNED_BESIDES);
        let what = format!("{} may be locked (RLIMIT_MEMLOCK)", size(lockable));
        if room < STEP {
            fit.unpinnable =
                Some(Missing::with(format!("only {what}: too little to measure"), mend::MEMLOCK));
        } else {
            fit.lower_to(room, what, Some(mend::MEMLOCK), &told);
        }
    }
    fit
}

impl Fit {
    fn lower_to(
        &mut self,
        room: u64,
        why: String,
        command: Option<&str>,
        told: impl Fn(u64) -> String,
    ) {
        if room >= self.bytes {
            return;
        }
        self.bytes = floor(room);
        let what = format!("{why}: {}", told(self.bytes));
        self.limits.push(Missing::new(what, command.map(str::to_owned)));
    }
}

/// Up to whole steps.
fn round(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(STEP).unwrap_or(u64::MAX / STEP * STEP).max(STEP)
}

/// Down to a power of two above 64 MiB, to whole steps below; at least one step.
fn floor(bytes: u64) -> u64 {
    let whole = bytes / STEP * STEP;
    let nice = if whole > 64 << 20 { 1 << whole.ilog2() } else { whole };
    nice.max(STEP)
}

fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    process::kib_of(&text, "MemAvailable")
}

fn lockable() -> Option<u64> {
    if limits::has_ipc_lock().unwrap_or(false) {
        return None;
    }
    let limit = limits::memlock().soft?;
    Some(limit.saturating_sub(limits::held().map_or(0, |held| held.pinned)))
}

/// What the control groups of this process leave, the tightest of them.
fn cgroup_room(root: &Path) -> Option<u64> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    cgroup::folders(root, &own, "memory").into_iter().filter_map(|folder| room(&folder)).min()
}

fn room(folder: &Folder) -> Option<u64> {
    let (limit, usage) = match folder.version {
        Version::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        Version::V2 => ("memory.max", "memory.current"),
    };
    let read = |file: &str| -> Option<u64> {
        fs::read_to_string(folder.path.join(file)).ok()?.trim().parse().ok()
    };
    // "max" does not parse: no limit. Version 1 says it with a number no machine has.
    let limit = read(limit).filter(|limit| *limit < 1 << 60)?;
    Some(limit.saturating_sub(read(usage).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn without_bounds_all_fits() {
        let fit = fit(GIB, &Bounds::default());
        assert_eq!((fit.bytes, fit.limits.len(), fit.unpinnable), (GIB, 0, None));
    }

    #[test]
    fn the_tightest_bound_counts_and_says_so() {
        let bounds =
            Bounds { available: Some(GIB), cgroup: Some(300 << 20), lockable: Some(8 << 20) };
        let fit = fit(GIB, &bounds);
        assert_eq!(fit.bytes, 6 << 20);
        assert_eq!(fit.limits.len(), 3);
        let last = fit.limits.last().unwrap();
        assert_eq!(last.what, "8 MiB may be locked (RLIMIT_MEMLOCK): 6 MiB are registered");
        assert_eq!(last.command.as_deref(), Some(mend::MEMLOCK));
    }

    #[test]
    fn a_memlock_of_64_kib_leaves_on_demand_rows() {
        let fit = fit(GIB, &Bounds { lockable: Some(64 << 10), ..Bounds::default() });
        assert_eq!(fit.bytes, GIB);
        assert!(fit.unpinnable.unwrap().what.contains("64 KiB may be locked"));
    }

    #[test]
    fn nothing_at_all_still_gives_one_step() {
        let fit = fit(u64::MAX, &Bounds { available: Some(0), ..Bounds::default() });
        assert_eq!(fit.bytes, STEP);
    }

    #[test]
    fn files_of_the_kernel() {
        let of = |text| process::kib_of(text, "MemAvailable");
        assert_eq!(of("MemTotal: 5 kB\nMemAvailable:   1024 kB\n"), Some(1 << 20));
        assert_eq!(of("MemTotal: 5 kB\n"), None);
    }

    #[test]
    fn the_tightest_group_of_the_path() {
        for (groups, top, limit, usage, none) in [
            ("0::/a/b\n", "sys/fs/cgroup", "memory.max", "memory.current", "max\n"),
            (
                "5:cpu,memory:/a/b\n0::/\n",
                "sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "9223372036854771712\n",
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            let write = |file: &str, text: &str| {
                let file = root.path().join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            };
            assert_eq!(cgroup_room(root.path()), None);
            write("proc/self/cgroup", groups);
            write(&format!("{top}/a/b/{limit}"), none);
            assert_eq!(cgroup_room(root.path()), None, "no limit");
            write(&format!("{top}/a/{limit}"), "1000\n");
            write(&format!("{top}/a/{usage}"), "400\n");
            assert_eq!(cgroup_room(root.path()), Some(600));
        }
    }
}
