//! What control groups leave a process of RDMA objects.
//!
//! A group counts what its members and the groups below it have on each device, and what would pass
//! its limit is refused with EAGAIN (the kernel's Documentation/admin-guide/cgroup-v2.rst, "RDMA").

use crate::cgroup;
use std::fs;
use std::path::Path;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A device that is open: `hca_handle`.
    Handle,
    /// A protection domain, memory region, queue and so on: `hca_object`.
    Object,
}

/// The limit on a device, as in `mlx5_0`, that leaves this process no room; `None` if there is none
/// such, or none that can be read.
pub fn reached(device: &str, resource: Resource) -> Option<u64> {
    reached_below(Path::new("/"), device, resource)
}

/// The same where `root` is the root of the file system. The own group's limit comes before those of the
/// groups above it.
fn reached_below(root: &Path, device: &str, resource: Resource) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    cgroup::folders(root, &groups, "rdma").into_iter().find_map(|folder| {
        let read = |file: &str| {
            figure(&fs::read_to_string(folder.path.join(file)).ok()?, device, resource)
        };
        let (limit, used) = (read("rdma.max")?, read("rdma.current")?);
        (used >= limit).then_some(limit)
    })
}

/// The figure of a device in lines as `rxe0 hca_handle=2 hca_object=max`; `None`: no limit.
pub fn figure(lines: &str, device: &str, resource: Resource) -> Option<u64> {
    let name = match resource {
        Resource::Handle => "hca_handle=",
        Resource::Object => "hca_object=",
    };
    let line = lines.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' '))?;
    line.split_whitespace().find_map(|word| word.strip_prefix(name))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_the_group_or_of_one_above_it_is_found() {
        for (groups, top) in [
            ("0::/a/b\n", "sys/fs/cgroup"),
            ("5:cpu,cpuacct:/x\n4:rdma:/a/b\n0::/\n", "sys/fs/cgroup/rdma"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let write = |file: &str, text: &str| {
                let file = root.path().join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            };
            let reached = |resource| reached_below(root.path(), "rxe0", resource);
            write("proc/self/cgroup", groups);
            assert_eq!(reached(Resource::Object), None, "no group can be read");
            let own = |file: &str| format!("{top}/a/b/rdma.{file}");
            write(&own("max"), "rxe01 hca_handle=0 hca_object=0\nrxe0 hca_handle=2 hca_object=9\n");
            write(&own("current"), "rxe0 hca_handle=2 hca_object=8\n");
            assert_eq!((reached(Resource::Handle), reached(Resource::Object)), (Some(2), None));
            write(&own("max"), "rxe0 hca_handle=max hca_object=max\n");
            assert_eq!((reached(Resource::Handle), reached(Resource::Object)), (None, None));
            write(&format!("{top}/a/rdma.max"), "rxe0 hca_handle=max hca_object=12\n");
            write(&format!("{top}/a/rdma.current"), "rxe0 hca_handle=7 hca_object=12\n");
            assert_eq!((reached(Resource::Handle), reached(Resource::Object)), (None, Some(12)));
        }
    }
}
