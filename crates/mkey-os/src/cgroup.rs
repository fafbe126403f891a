//! The control groups of a process, as folders: its own and those above it, of version 2 and of
//! version 1.
//!
//! A limit holds for a group and all groups below it, so who asks what a process may have looks at
//! each folder of [`folders`].

use std::path::{Path, PathBuf};

/// Which of the kernel's two interfaces a folder belongs to. Their files differ in name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One tree of groups for each controller: `memory.limit_in_bytes`.
    V1,
    /// One tree for all: `memory.max`.
    V2,
}

/// A folder of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Whose files lie in it.
    pub version: Version,
    /// Where it is, or would be: inside a container the path may name what only the host sees.
    pub path: PathBuf,
}

/// The folders whose limits of `controller` (as in `memory`, `rdma`) hold for a process, by what its
/// `/proc/PID/cgroup` says: in each tree from its own group up to the top. `root` is the root of the
/// file system.
pub fn folders(root: &Path, groups: &str, controller: &str) -> Vec<Folder> {
    let mut found = Vec::new();
    for (version, tree, path) in groups.lines().filter_map(|line| tree(line, controller)) {
        let top = top(root, version, &tree);
        // A path with ".." names a group outside what this process sees.
        let below = path.trim_start_matches('/');
        let seen = !below.is_empty() && !below.split('/').any(|part| part == "..");
        let group = if seen { top.join(below) } else { top.clone() };
        let up = group.ancestors().take_while(|folder| folder.starts_with(&top));
        found.extend(up.map(|folder| Folder { version, path: folder.to_owned() }));
    }
    found
}

/// The top of a tree. Where both versions are in use that of version 2 is a folder of its own, as
/// systemd mounts it.
fn top(root: &Path, version: Version, tree: &str) -> PathBuf {
    let unified = root.join(tree).join("unified");
    if version == Version::V2 && unified.is_dir() { unified } else { root.join(tree) }
}

/// A line of `/proc/PID/cgroup` as the tree of groups that it is about, and the group in it; `None` if
/// that tree does not have the controller.
fn tree<'l>(line: &'l str, controller: &str) -> Option<(Version, String, &'l str)> {
    let (number, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    if controllers.is_empty() {
        return (number == "0").then(|| (Version::V2, "sys/fs/cgroup".to_owned(), path));
    }
    let has = controllers.split(',').any(|name| name == controller);
    has.then(|| (Version::V1, format!("sys/fs/cgroup/{controller}"), path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn paths(groups: &str, controller: &str) -> Vec<(Version, String)> {
        let folders = folders(Path::new("/r"), groups, controller).into_iter();
        folders.map(|folder| (folder.version, folder.path.display().to_string())).collect()
    }

    #[test]
    fn a_group_and_all_above_it_in_both_versions() {
        let v2 = |path: &str| (Version::V2, path.to_owned());
        let v1 = |path: &str| (Version::V1, path.to_owned());
        assert_eq!(
            paths("0::/a/b\n", "memory"),
            [v2("/r/sys/fs/cgroup/a/b"), v2("/r/sys/fs/cgroup/a"), v2("/r/sys/fs/cgroup")]
        );
        let both = "5:cpu,memory:/x\n1:name=systemd:/y\n0::/\n";
        assert_eq!(
            paths(both, "memory"),
            [
                v1("/r/sys/fs/cgroup/memory/x"),
                v1("/r/sys/fs/cgroup/memory"),
                v2("/r/sys/fs/cgroup")
            ]
        );
        assert_eq!(paths(both, "rdma"), [v2("/r/sys/fs/cgroup")]);
        assert_eq!(paths("0::/../other\n", "rdma"), [v2("/r/sys/fs/cgroup")]);
        assert_eq!(paths("7:memory\nx\n1::/a\n", "memory"), []);
    }

    #[test]
    fn beside_version_1_the_tree_of_version_2_is_a_folder_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        let unified = root.path().join("sys/fs/cgroup/unified");
        let one = |groups: &str| folders(root.path(), groups, "rdma").remove(0).path;
        assert_eq!(one("0::/a\n"), root.path().join("sys/fs/cgroup/a"));
        std::fs::create_dir_all(&unified).unwrap();
        assert_eq!(one("0::/a\n"), unified.join("a"));
        assert_eq!(one("3:rdma:/a\n"), root.path().join("sys/fs/cgroup/rdma/a"));
    }

    proptest! {
        #[test]
        fn no_text_leads_out_of_the_tree(groups in "[0-9:./a-z,\n]{0,60}|.{0,40}") {
            for folder in folders(Path::new("/r"), &groups, "memory") {
                prop_assert!(folder.path.starts_with("/r/sys/fs/cgroup"));
                prop_assert!(!folder.path.components().any(|part| part.as_os_str() == ".."));
            }
        }
    }
}
