//! What the system allows this process: memory locks, privileges, mappings, NUMA nodes.
//!
//! Small readers of the kernel's own figures; nothing is cached.

use crate::error::OsError;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::Path;

/// [`RAISE_MEMLOCK`] as a literal, for texts put together at compile time.
macro_rules! raise_memlock {
    () => {
        "sudo prlimit --pid $$ --memlock=unlimited   # container: docker run --ulimit memlock=-1"
    };
}
pub(crate) use raise_memlock;

/// The command by which more memory may be locked: in this shell, or in a container. As shells
/// take it when it is copied as a whole.
pub const RAISE_MEMLOCK: &str = raise_memlock!();

/// RLIMIT_MEMLOCK in bytes; `None` is "unlimited".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memlock {
    /// The limit in force.
    pub soft: Option<u64>,
    /// What the process may raise it to without privilege.
    pub hard: Option<u64>,
}

/// Reads RLIMIT_MEMLOCK.
pub fn memlock() -> Memlock {
    let limit = getrlimit(Resource::Memlock);
    Memlock { soft: limit.current, hard: limit.maximum }
}

/// Whether the calling thread holds CAP_IPC_LOCK where the kernel asks for it: effective, and in
/// the initial user namespace (root inside a user namespace does not count).
///
/// # Errors
/// [`OsError`] if `capget` is refused.
pub fn has_ipc_lock() -> Result<bool, OsError> {
    let sets = rustix::thread::capabilities(None).map_err(|errno| OsError::new("capget", errno))?;
    Ok(sets.effective.contains(rustix::thread::CapabilitySet::IPC_LOCK)
        && in_initial_user_namespace())
}

/// What `/proc/PID/ns/user` leads to in the user namespace that the kernel booted with: its number is
/// fixed there (`PROC_USER_INIT_INO`).
pub const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

/// Whether this process is in the user namespace that the kernel booted with; true where `/proc`
/// does not say. Asked of the namespace itself: another one may map all ids as this one does.
pub fn in_initial_user_namespace() -> bool {
    fs::read_link("/proc/self/ns/user")
        .map_or(true, |link| link.as_os_str() == INITIAL_USER_NAMESPACE)
}

/// Memory of this process that is held in place, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// `VmPin`: pinned by drivers and io_uring.
    pub pinned: u64,
    /// `VmLck`: locked by `mlock`.
    pub locked: u64,
}

/// Reads `VmPin` and `VmLck` of this process.
///
/// # Errors
/// [`OsError`] if `/proc/self/status` cannot be read.
pub fn held() -> Result<Held, OsError> {
    const FILE: &str = "/proc/self/status";
    let text = fs::read_to_string(FILE).map_err(|error| OsError::from_io(FILE, &error))?;
    let kib = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .map_or(0, |kib| kib.saturating_mul(1024))
    };
    Ok(Held { pinned: kib("VmPin"), locked: kib("VmLck") })
}

/// `vm.max_map_count`: the most mappings a process may have.
///
/// # Errors
/// [`OsError`] if the file cannot be read.
pub fn max_map_count() -> Result<u64, OsError> {
    number("/proc/sys/vm/max_map_count")
}

/// The mappings this process has now.
///
/// # Errors
/// [`OsError`] if `/proc/self/maps` cannot be read.
pub fn map_count() -> Result<u64, OsError> {
    const FILE: &str = "/proc/self/maps";
    let maps = fs::read(FILE).map_err(|error| OsError::from_io(FILE, &error))?;
    Ok(maps.iter().filter(|&&byte| byte == b'\n').count() as u64)
}

/// The NUMA nodes that are online, ascending; `[0]` where the kernel has no NUMA.
pub fn numa_nodes() -> Vec<u32> {
    numa_nodes_below(Path::new("/"))
}

/// The same of the machine whose file system has this root.
pub fn numa_nodes_below(root: &Path) -> Vec<u32> {
    fs::read_to_string(root.join("sys/devices/system/node/online"))
        .ok()
        .and_then(|text| parse_ranges(text.trim()))
        .filter(|nodes| !nodes.is_empty())
        .unwrap_or_else(|| vec![0])
}

/// The size of a base page in bytes.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// A decimal number alone in a file.
pub(crate) fn number(file: &'static str) -> Result<u64, OsError> {
    let text = fs::read_to_string(file).map_err(|error| OsError::from_io(file, &error))?;
    text.trim().parse().map_err(|_| OsError::new(file, rustix::io::Errno::INVAL))
}

/// A list of the kernel's, of nodes or CPUs: "0-2,5" as 0, 1, 2, 5. `None` for what is none, or names
/// more than any kernel is built for.
pub fn parse_ranges(text: &str) -> Option<Vec<u32>> {
    /// More nodes, and as many CPUs, than any kernel is built for.
    const MOST: u32 = 8192;
    let mut all = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if last > MOST {
            return None;
        }
        all.extend(first..=last);
        if all.len() > MOST as usize + 1 {
            return None;
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ranges() {
        assert_eq!(parse_ranges("0"), Some(vec![0]));
        assert_eq!(parse_ranges("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_ranges(""), Some(vec![]));
        assert_eq!(parse_ranges("x"), None);
        assert_eq!(parse_ranges("0-4294967295"), None);
    }

    #[test]
    fn readers_agree_with_the_system() {
        assert!(numa_nodes().contains(&0));
        assert!(max_map_count().unwrap() > map_count().unwrap());
        assert!(map_count().unwrap() > 5);
        // A lock must show up, whatever else the process holds.
        let page = vec![0u8; 3 * page_size()];
        let before = held().unwrap().locked;
        // SAFETY: mlock does not touch the contents.
        unsafe { rustix::mm::mlock(page.as_ptr().cast_mut().cast(), page.len()).unwrap() };
        assert!(held().unwrap().locked >= before + 3 * page_size() as u64);
        // SAFETY: as above.
        unsafe { rustix::mm::munlock(page.as_ptr().cast_mut().cast(), page.len()).unwrap() };
    }
}
