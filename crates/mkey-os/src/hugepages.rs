//! The pools of hugetlb pages: what there is, and reserving more for a while.

use crate::error::{Errno, OsError};
use crate::limits::numa_nodes_below;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A pool of hugetlb pages of one size; counts in pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Size of a page in bytes.
    pub page_size: usize,
    /// Pages in the pool.
    pub total: u64,
    /// Pages not in use (those promised to mappings included).
    pub free: u64,
    /// Free pages that are promised to mappings not yet touched.
    pub reserved: u64,
    /// Pages beyond the configured number, returned to the system when freed.
    pub surplus: u64,
    /// How many surplus pages the kernel may make on demand.
    pub overcommit: u64,
    /// The same per NUMA node.
    pub nodes: Vec<NodePool>,
}

/// The part of a [`Pool`] on one NUMA node; counts in pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePool {
    /// The node.
    pub node: u32,
    /// Pages there.
    pub total: u64,
    /// Pages there not in use.
    pub free: u64,
    /// Pages there beyond the configured number.
    pub surplus: u64,
}

impl Pool {
    /// Pages a new mapping can have: free, not promised, and those the kernel may still make.
    pub fn available(&self) -> u64 {
        let idle = self.free.saturating_sub(self.reserved);
        idle.saturating_add(self.overcommit.saturating_sub(self.surplus))
    }
}

/// All pools, largest page first; empty where the kernel has no hugetlb.
pub fn pools() -> Vec<Pool> {
    pools_below(Path::new("/"))
}

/// The same of the kernel whose file system has this root.
pub fn pools_below(root: &Path) -> Vec<Pool> {
    sizes_below(root).into_iter().filter_map(|size| pool_below(root, size)).collect()
}

/// The sizes in bytes of huge pages that the kernel has whose file system has this root, the largest
/// first; empty where it shows none.
pub fn sizes_below(root: &Path) -> Vec<usize> {
    let Ok(entries) = fs::read_dir(root.join(POOLS)) else { return Vec::new() };
    let mut sizes: Vec<usize> =
        entries.flatten().filter_map(|entry| size_of(entry.file_name().to_str()?)).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

/// The folder of the pools, below the root of the file system.
const POOLS: &str = "sys/kernel/mm/hugepages";

/// The pool of pages of `page_size` bytes; `None` if the kernel has none.
pub fn pool(page_size: usize) -> Option<Pool> {
    pool_below(Path::new("/"), page_size)
}

/// The same of the kernel whose file system has this root; `None`, too, if a figure can not be read.
pub fn pool_below(root: &Path, page_size: usize) -> Option<Pool> {
    pool_by(page_size, numa_nodes_below(root), |path| read_count(&root.join(path)))
}

/// The same by who reads numbers: `read` is asked for files below a root, as in
/// `sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`.
pub fn pool_by(
    page_size: usize,
    nodes: Vec<u32>,
    read: impl Fn(&Path) -> Option<u64>,
) -> Option<Pool> {
    let folder = folder(Path::new(POOLS), page_size);
    let count = |name: &str| read(&folder.join(name));
    let nodes = nodes.into_iter().filter_map(|node| {
        let node_folder = PathBuf::from(format!("sys/devices/system/node/node{node}/hugepages"));
        let folder = self::folder(&node_folder, page_size);
        let count = |name: &str| read(&folder.join(name));
        Some(NodePool {
            node,
            total: count("nr_hugepages")?,
            free: count("free_hugepages")?,
            surplus: count("surplus_hugepages")?,
        })
    });
    Some(Pool {
        page_size,
        total: count("nr_hugepages")?,
        free: count("free_hugepages")?,
        reserved: count("resv_hugepages")?,
        surplus: count("surplus_hugepages")?,
        overcommit: count("nr_overcommit_hugepages").unwrap_or(0),
        nodes: nodes.collect(),
    })
}

/// Why the pool of pages of `page_size` bytes can not be read although the kernel may have it, and the
/// file; `None` if it can be, or if the kernel has no such pages.
pub fn unread(page_size: usize) -> Option<(PathBuf, Errno)> {
    unread_below(Path::new("/sys"), page_size)
}

fn unread_below(sys: &Path, page_size: usize) -> Option<(PathBuf, Errno)> {
    let path = folder(&sys.join("kernel/mm/hugepages"), page_size).join("nr_hugepages");
    let error = fs::read_to_string(&path).err()?;
    // A kernel that shows its memory management shows all sizes that it has.
    if error.kind() == std::io::ErrorKind::NotFound && sys.join("kernel/mm").exists() {
        return None;
    }
    Some((path, Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}

/// What makes a pool readable that [`unread`] is told of.
pub fn mend_unread(errno: Errno) -> &'static str {
    match errno {
        Errno::MFILE => "ulimit -n 1024",
        Errno::NOENT => "sudo mount -t sysfs sysfs /sys   # container: let it have /sys",
        _ => "let this user read /sys",
    }
}

/// Hugetlb pages could not be reserved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// The kernel has no pages of this size.
    #[error("the kernel has no huge pages of {page_size} bytes")]
    NoSuchSize {
        /// The size asked for.
        page_size: usize,
    },
    /// How many there are can not be read.
    #[error("{} can not be read ({errno}); {}", path.display(), mend_unread(*errno))]
    Unread {
        /// The file.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// Only root may.
    #[error("writing {} is refused ({errno}); {}", path.display(), self.mend())]
    Refused {
        /// The file that would be written.
        path: PathBuf,
        /// What it would hold.
        pages: u64,
        /// Why.
        errno: Errno,
    },
    /// The memory is too fragmented or too small; nothing was kept.
    #[error("{got} of {asked} huge pages of {page_size} bytes could be had")]
    Short {
        /// The size asked for.
        page_size: usize,
        /// How many were asked for.
        asked: u64,
        /// How many the kernel found.
        got: u64,
    },
}

impl ReserveError {
    /// The command that would help, in words.
    pub fn mend(&self) -> String {
        match self {
            Self::NoSuchSize { page_size } => {
                format!("boot with hugepagesz={}K", page_size / 1024)
            }
            Self::Unread { errno, .. } => mend_unread(*errno).to_owned(),
            Self::Refused { path, pages, .. } => {
                format!("echo {pages} | sudo tee {}", path.display())
            }
            Self::Short { .. } => "echo 1 | sudo tee /proc/sys/vm/compact_memory   \
                                   # or reserve at boot: hugepages=N"
                .to_owned(),
        }
    }
}

/// Hugetlb pages reserved on top of what was configured; dropping gives them back.
#[derive(Debug)]
pub struct Reservation {
    handle: RestoreHandle,
}

/// Gives the pages of a [`Reservation`] back from elsewhere, for a Ctrl-C handler's thread (it
/// reads and writes files, so not from within a signal handler).
#[derive(Clone, Debug)]
pub struct RestoreHandle {
    path: Arc<PathBuf>,
    page_size: usize,
    held: Arc<AtomicU64>,
}

/// Reserves `more` pages of `page_size` bytes beyond those configured.
///
/// # Errors
/// [`ReserveError`]; the pool is then as before.
pub fn reserve(page_size: usize, more: u64) -> Result<Reservation, ReserveError> {
    let path = folder(&Path::new("/").join(POOLS), page_size).join("nr_hugepages");
    let seen = read_count(&path).ok_or_else(|| match unread(page_size) {
        Some((path, errno)) => ReserveError::Unread { path, errno },
        None => ReserveError::NoSuchSize { page_size },
    })?;
    let (before, after) =
        change(&path, |now| now.saturating_add(more)).map_err(|error| ReserveError::Refused {
            path: path.clone(),
            pages: seen.saturating_add(more),
            errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })?;
    let got = after.saturating_sub(before);
    let handle =
        RestoreHandle { path: Arc::new(path), page_size, held: Arc::new(AtomicU64::new(got)) };
    let reservation = Reservation { handle };
    if got < more {
        // Dropping the reservation gives back what was found.
        return Err(ReserveError::Short { page_size, asked: more, got });
    }
    Ok(reservation)
}

impl Reservation {
    /// Pages reserved by this guard; 0 after they were given back.
    pub fn pages(&self) -> u64 {
        self.handle.held.load(Ordering::Acquire)
    }

    /// Size of a page in bytes.
    pub fn page_size(&self) -> usize {
        self.handle.page_size
    }

    /// A handle that gives the pages back from another thread.
    pub fn restore_handle(&self) -> RestoreHandle {
        self.handle.clone()
    }
}

impl RestoreHandle {
    /// Gives the pages back, once: takes what was added off the number now configured, so that
    /// others who changed it meanwhile keep theirs. Pages in use stay until they are freed.
    ///
    /// # Errors
    /// [`OsError`] if the pool's file cannot be read or written.
    pub fn restore(&self) -> Result<(), OsError> {
        const FILE: &str = "nr_hugepages";
        let held = self.held.swap(0, Ordering::AcqRel);
        if held == 0 {
            return Ok(());
        }
        change(&self.path, |now| now.saturating_sub(held))
            .map(drop)
            .map_err(|error| OsError::from_io(FILE, &error))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // A refusal leaves the pages reserved; there is nobody to tell.
        let _ = self.handle.restore();
    }
}

/// Changes the size of a pool; returns it before and after. Others who do the same wait, as the
/// file is locked between reading and writing.
fn change(path: &Path, to: impl FnOnce(u64) -> u64) -> std::io::Result<(u64, u64)> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    let count = || read_count(path).ok_or(std::io::Error::from(Errno::IO));
    let before = count()?;
    fs::write(path, to(before).to_string())?;
    Ok((before, count()?))
}

fn folder(root: &Path, page_size: usize) -> PathBuf {
    root.join(format!("hugepages-{}kB", page_size / 1024))
}

/// The bytes of the pages whose pool has this folder, as in `hugepages-2048kB`; `None` if it is none.
pub fn size_of(name: &str) -> Option<usize> {
    let kib: usize = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

fn read_count(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names() {
        assert_eq!(size_of("hugepages-2048kB"), Some(2 << 20));
        assert_eq!(size_of("hugepages-1048576kB"), Some(1 << 30));
        assert_eq!(size_of("hugepages-"), None);
        assert_eq!(size_of("hugepages-99999999999999999999kB"), None);
        assert_eq!(size_of("hugepages-18446744073709551615kB"), None);
    }

    #[test]
    fn available_counts_promises_and_overcommit() {
        let pool = Pool {
            page_size: 2 << 20,
            total: 10,
            free: 6,
            reserved: 4,
            surplus: 1,
            overcommit: 3,
            nodes: vec![],
        };
        assert_eq!(pool.available(), 2 + 2);
    }

    #[test]
    fn a_pool_that_can_not_be_read_is_not_one_that_is_not_there() {
        let sys = tempfile::tempdir().unwrap();
        let (path, errno) = unread_below(sys.path(), 2 << 20).unwrap();
        assert!(path.ends_with("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"));
        assert_eq!(errno, Errno::NOENT);
        assert!(mend_unread(errno).contains("/sys"));
        fs::create_dir_all(sys.path().join("kernel/mm/hugepages/hugepages-2048kB")).unwrap();
        assert_eq!(unread_below(sys.path(), 2 << 20), None);
        fs::create_dir(&path).unwrap();
        assert_eq!(unread_below(sys.path(), 2 << 20), Some((path, Errno::ISDIR)));
        assert_eq!(unread_below(sys.path(), 1 << 30), None);
    }

    #[test]
    fn pools_of_another_system() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, value: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        };
        let pool = "sys/kernel/mm/hugepages/hugepages-2048kB";
        for name in ["nr", "free", "resv", "surplus"] {
            put(&format!("{pool}/{name}_hugepages"), if name == "nr" { "7\n" } else { "1\n" });
        }
        put("sys/devices/system/node/online", "1\n");
        for name in ["nr", "free", "surplus"] {
            let node = "sys/devices/system/node/node1/hugepages/hugepages-2048kB";
            put(&format!("{node}/{name}_hugepages"), "3\n");
        }
        let nodes = vec![NodePool { node: 1, total: 3, free: 3, surplus: 3 }];
        let (page_size, overcommit) = (2 << 20, 0);
        let expected =
            Pool { page_size, total: 7, free: 1, reserved: 1, surplus: 1, overcommit, nodes };
        assert_eq!(pools_below(root.path()), [expected]);
        // A pool that can not be read hides no other.
        put("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "many\n");
        assert_eq!(pools_below(root.path()).len(), 1);
    }

    #[test]
    fn no_such_size_is_an_error() {
        assert_eq!(
            reserve(12345 << 10, 1).unwrap_err(),
            ReserveError::NoSuchSize { page_size: 12345 << 10 }
        );
    }
}
