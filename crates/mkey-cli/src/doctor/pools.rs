//! The pools of huge pages, by the host's files; and how a size of pages is named.

use super::context::Context;
use mkey_os::hugepages::{self, Pool};
use mkey_os::limits::parse_ranges;

/// The folder of the pools.
pub const POOLS: &str = "sys/kernel/mm/hugepages";

/// The sizes in bytes that there are, the largest first.
pub fn sizes(at: &Context) -> Vec<usize> {
    let names = at.files.names(POOLS).unwrap_or_default();
    let mut sizes: Vec<usize> = names.iter().filter_map(|name| hugepages::size_of(name)).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

/// The pool of a size; `None` if a figure can not be read.
pub fn pool(at: &Context, size: usize) -> Option<Pool> {
    let nodes = at.files.line("sys/devices/system/node/online").ok();
    let nodes = nodes.and_then(|list| parse_ranges(&list)).filter(|nodes| !nodes.is_empty());
    let nodes = nodes.unwrap_or_else(|| vec![0]);
    hugepages::pool_by(size, nodes, |path| at.files.number(path.to_str()?).ok())
}

/// How control groups name a size of pages: 2MB, 1GB, 64KB.
pub fn of_groups(page: usize) -> String {
    match page {
        page if page >= 1 << 30 => format!("{}GB", page >> 30),
        page if page >= 1 << 20 => format!("{}MB", page >> 20),
        page => format!("{}KB", page >> 10),
    }
}

/// How Kubernetes names a size: 2Mi, 1Gi, 64Ki.
pub fn of_kubernetes(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{}Gi", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{}Mi", bytes >> 20),
        bytes => format!("{}Ki", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_named_as_groups_and_kubernetes_do() {
        let names = |page| (of_groups(page), of_kubernetes(page));
        assert_eq!(names(2 << 20), ("2MB".to_owned(), "2Mi".to_owned()));
        assert_eq!(names(1 << 30), ("1GB".to_owned(), "1Gi".to_owned()));
        assert_eq!(names(64 << 10), ("64KB".to_owned(), "64Ki".to_owned()));
        assert_eq!(names(16 << 30), ("16GB".to_owned(), "16Gi".to_owned()));
    }
}
