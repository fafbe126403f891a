//! Who holds memory in place: bytes pinned (VmPin) and locked (VmLck) by process, against their limit.

use super::files;
use super::told::Told;
use crate::files::Files;
use crate::process;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Memory held in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pinned {
    /// Processes that pin or lock some, the largest first.
    pub processes: Vec<Process>,
    /// Processes that could not be looked at.
    pub unread: usize,
}

/// A process that pins or locks memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Bytes pinned, as registrations pin them.
    pub pinned: u64,
    /// Bytes locked by `mlock`.
    pub locked: u64,
    /// How much it may pin.
    pub limit: Told<Limit>,
}

/// How much a process may pin, and how much lock: each counts by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// So many bytes (RLIMIT_MEMLOCK).
    Bytes(u64),
    /// As much as there is: RLIMIT_MEMLOCK is unlimited.
    Unlimited,
    /// As much as there is: CAP_IPC_LOCK, in the initial user namespace.
    Privileged,
}

impl Process {
    /// The part of its limit that is pinned or locked, whichever is more; `None` without a limit.
    pub fn part(&self) -> Option<f64> {
        match self.limit.value()? {
            Limit::Bytes(0) => None,
            Limit::Bytes(most) => Some(self.pinned.max(self.locked) as f64 / *most as f64),
            Limit::Unlimited | Limit::Privileged => None,
        }
    }
}

/// Looks at every process below `root`.
pub fn read(root: &Files) -> Told<Pinned> {
    let folder = Path::new("proc");
    if let Err(error) = files::list(root, folder) {
        return Told::not(format!("/proc: {error}"));
    }
    let numbers = files::numbers(root, folder);
    if numbers.is_empty() {
        return Told::not("no process is below /proc: not mounted, or not gathered");
    }
    let mut pinned = Pinned::default();
    for pid in numbers {
        match one(root, &folder.join(pid.to_string()), pid) {
            Ok(found) => pinned.processes.extend(found),
            // It has ended meanwhile, which none does in a copy.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && root.live() => {}
            Err(error) if error.raw_os_error() == Some(ESRCH) => {}
            Err(_) => pinned.unread += 1,
        }
    }
    pinned.processes.sort_by_key(|one| (std::cmp::Reverse(one.pinned.max(one.locked)), one.pid));
    Told::Is(pinned)
}

/// The name of a process; `None` if it is gone.
pub fn name(root: &Files, pid: u32) -> Option<String> {
    files::text(root, Path::new(&format!("proc/{pid}/comm"))).ok()
}

/// A process that ends while its file is read.
const ESRCH: i32 = 3;

/// A process, if it pins or locks any.
fn one(root: &Files, folder: &Path, pid: u32) -> std::io::Result<Option<Process>> {
    let status = files::bytes(root, &folder.join("status"))?;
    let status = String::from_utf8_lossy(&status);
    // Threads of the kernel have no memory of their own, and no such lines.
    let kib = |name: &str| match (process::field(&status, name), process::kib_of(&status, name)) {
        (Some(_), None) => Err(std::io::Error::from(std::io::ErrorKind::InvalidData)),
        (_, kib) => Ok(kib.unwrap_or(0)),
    };
    let (pinned, locked) = (kib("VmPin")?, kib("VmLck")?);
    if pinned == 0 && locked == 0 {
        return Ok(None);
    }
    let holds = process::has_capability(&status, "CapEff", process::IPC_LOCK) == Some(true);
    // In another user namespace, as in a rootless container, the limit counts all the same.
    let limit = match (holds, is_initial(root, folder)) {
        (true, Some(true)) => Told::Is(Limit::Privileged),
        (true, None) => Told::not("CAP_IPC_LOCK is held; in which user namespace can not be read"),
        (true, Some(false)) | (false, _) => match files::bytes(root, &folder.join("limits")) {
            Ok(limits) => memlock(&String::from_utf8_lossy(&limits)),
            Err(error) => Told::not(error),
        },
    };
    let name = files::text(root, &folder.join("comm")).unwrap_or_else(|_| "?".to_owned());
    Ok(Some(Process { pid, name, pinned, locked, limit }))
}

/// Whether a process lives in the user namespace that the kernel booted with.
fn is_initial(root: &Files, folder: &Path) -> Option<bool> {
    let link = root.place(&folder.join("ns")).and_then(|ns| fs::read_link(ns.join("user"))).ok();
    let map = files::text(root, &folder.join("uid_map")).ok();
    process::in_initial_namespace(link.as_deref().and_then(Path::to_str), map.as_deref())
}

/// The soft limit in `/proc/PID/limits`.
fn memlock(limits: &str) -> Told<Limit> {
    match process::limit(limits, "Max locked memory") {
        Some(process::Limit { soft: None, .. }) => Told::Is(Limit::Unlimited),
        Some(process::Limit { soft: Some(bytes), .. }) => Told::Is(Limit::Bytes(bytes)),
        None => Told::not("no line \"Max locked memory\" that holds limits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_as_the_kernel_prints_them() {
        let line =
            "Max locked memory         8388608              8388608              bytes     \n";
        assert_eq!(memlock(line), Told::Is(Limit::Bytes(8 << 20)));
        let line =
            "Max locked memory         unlimited            unlimited            bytes     \n";
        assert_eq!(memlock(line), Told::Is(Limit::Unlimited));
        assert!(
            memlock("").why_not().is_some() && memlock("Max locked memory x").why_not().is_some()
        );
    }

    #[test]
    fn a_privilege_counts_in_the_initial_user_namespace_only() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        let files = Files::below(Some(root.path())).unwrap();
        put("status", "VmPin:\t  8 kB\nCapEff:\t0000000000004000\n");
        put("limits", "Max locked memory         65536 65536 bytes\n");
        let limit = || one(&files, Path::new(""), 7).unwrap().unwrap().limit;
        assert!(limit().why_not().unwrap().contains("can not be read"));
        put("uid_map", "0 1000 1\n");
        assert_eq!(limit(), Told::Is(Limit::Bytes(65536)));
        put("uid_map", "0 0 4294967295\n");
        assert_eq!(limit(), Told::Is(Limit::Privileged));
    }

    #[test]
    fn the_larger_of_the_two_counts_against_the_limit() {
        let mut process = Process {
            pid: 1,
            name: "x".to_owned(),
            pinned: 10,
            locked: 40,
            limit: Told::Is(Limit::Bytes(80)),
        };
        assert_eq!(process.part(), Some(0.5));
        for limit in [Limit::Unlimited, Limit::Privileged, Limit::Bytes(0)] {
            process.limit = Told::Is(limit);
            assert_eq!(process.part(), None);
        }
    }
}
