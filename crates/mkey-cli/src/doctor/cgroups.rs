//! What control groups leave of memory, huge pages and RDMA objects.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use crate::bench::units::size;
use mkey_os::cgroup::{self, Folder, Version};
use mkey_os::hugepages;
use mkey_os::rdma_cgroup::{self, Resource};
use std::path::Path;

/// The checks.
pub fn check(at: &Context) -> Vec<Finding> {
    let path = at.of_process("cgroup");
    let groups = match at.files.text(&path) {
        Ok(groups) => groups,
        Err(unread) => {
            let codes = [Code::MemoryCgroup, Code::HugePagesCgroup, Code::RdmaCgroup];
            return codes.into_iter().map(|code| Finding::unread(code, &unread)).collect();
        }
    };
    let mut findings = vec![memory(at, &groups)];
    findings.extend(huge_pages(at, &groups));
    findings.extend(rdma(at, &groups));
    findings
}

/// A limit and what is used of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Room {
    limit: u64,
    used: u64,
    /// The file of the limit, below the root.
    file: String,
}

impl Room {
    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// In one of a process' groups; `None`: no limit.
    fn of(at: &Context, folder: &Folder, limit: &str, used: &str) -> Option<Self> {
        let file = |name: &str| below(at, &folder.path.join(name));
        // "max" is no number, and version 1 says it with a number no machine has.
        let most = at.files.number(&file(limit)).ok().filter(|most| *most < 1 << 60)?;
        let used = at.files.number(&file(used)).unwrap_or(0);
        Some(Self { limit: most, used, file: file(limit) })
    }
}

fn below(at: &Context, path: &Path) -> String {
    let path = path.strip_prefix(at.files.root()).unwrap_or(path);
    path.to_string_lossy().trim_start_matches('/').to_owned()
}

/// The room that is tightest of all groups that hold for the process.
fn tightest(
    at: &Context,
    groups: &str,
    controller: &str,
    names: [(String, String); 2],
) -> Option<Room> {
    let [v1, v2] = names;
    let folders = cgroup::folders(at.files.root(), groups, controller);
    let rooms = folders.iter().filter_map(|folder| {
        let (limit, used) = match folder.version {
            Version::V1 => &v1,
            Version::V2 => &v2,
        };
        Room::of(at, folder, limit, used)
    });
    rooms.min_by_key(Room::left)
}

fn memory(at: &Context, groups: &str) -> Finding {
    let names = [
        ("memory.limit_in_bytes".to_owned(), "memory.usage_in_bytes".to_owned()),
        ("memory.max".to_owned(), "memory.current".to_owned()),
    ];
    let Some(room) = tightest(at, groups, "memory", names) else {
        return Finding::new(Code::MemoryCgroup, Status::Ok, "no-limit")
            .file(&at.of_process("cgroup"));
    };
    let (status, says) = if room.left() < room.limit / 20 {
        (Status::Warn, "nearly-full")
    } else {
        (Status::Ok, "room")
    };
    Finding::new(Code::MemoryCgroup, status, says)
        .value("limit", size(room.limit))
        .measure("used", size(room.used))
        .measure("left", size(room.left()))
        .file(&room.file)
        .mend("memory-cgroup")
}

fn huge_pages(at: &Context, groups: &str) -> Vec<Finding> {
    let of = |page: usize| {
        let name = name(page);
        let names = [
            (format!("hugetlb.{name}.limit_in_bytes"), format!("hugetlb.{name}.usage_in_bytes")),
            (format!("hugetlb.{name}.max"), format!("hugetlb.{name}.current")),
        ];
        let room = tightest(at, groups, "hugetlb", names)?;
        let total = hugepages::pool_below(at.files.root(), page).map_or(0, |pool| pool.total);
        let (status, says) = match room.left() / (page.max(1) as u64) {
            _ if total == 0 => (Status::NotApplicable, "no-pool"),
            0 => (Status::Fail, "none-left"),
            left if left < room.limit / (page as u64) / 10 => (Status::Warn, "little-left"),
            _ => (Status::Ok, "room"),
        };
        let finding = Finding::new(Code::HugePagesCgroup, status, says)
            .of(size(page as u64))
            .value("limit", size(room.limit))
            .measure("used", size(room.used))
            .measure("left", size(room.left()))
            .word("name", &name)
            .file(&room.file);
        Some(finding.mend("huge-pages-cgroup"))
    };
    let sizes = hugepages::sizes_below(at.files.root());
    let mut findings: Vec<_> = sizes.into_iter().filter_map(of).collect();
    if findings.is_empty() {
        let path = at.of_process("cgroup");
        findings.push(Finding::new(Code::HugePagesCgroup, Status::Ok, "no-limit").file(&path));
    }
    findings
}

/// How the kernel names a size of pages: 2MB, 1GB, 64KB.
fn name(page: usize) -> String {
    match page {
        page if page >= 1 << 30 => format!("{}GB", page >> 30),
        page if page >= 1 << 20 => format!("{}MB", page >> 20),
        page => format!("{}KB", page >> 10),
    }
}

fn rdma(at: &Context, groups: &str) -> Vec<Finding> {
    let devices = at.devices();
    if devices.is_empty() {
        return vec![Finding::new(Code::RdmaCgroup, Status::NotApplicable, "no-device")];
    }
    let path = at.of_process("cgroup");
    let of = |device: String| {
        let tight = [(Resource::Handle, "hca_handle"), (Resource::Object, "hca_object")];
        let rooms = tight.into_iter().flat_map(|(resource, name)| {
            let rooms = rdma_cgroup::rooms(at.files.root(), groups, &device, resource);
            rooms.into_iter().map(move |room| (name, room))
        });
        let left = |room: &rdma_cgroup::Room| room.limit.saturating_sub(room.used);
        let Some((name, room)) = rooms.min_by_key(|(_, room)| left(room)) else {
            return Finding::new(Code::RdmaCgroup, Status::Ok, "no-limit").of(device).file(&path);
        };
        let (status, says) = match left(&room) {
            0 => (Status::Fail, "none-left"),
            left if left < room.limit / 10 => (Status::Warn, "little-left"),
            _ => (Status::Ok, "room"),
        };
        Finding::new(Code::RdmaCgroup, status, says)
            .word("device", &device)
            .of(device)
            .value("resource", name)
            .value("limit", room.limit)
            .measure("used", room.used)
            .measure("left", left(&room))
            .file(&below(at, &room.file))
            .word("folder", room.file.parent().unwrap_or(&room.file).display())
            .mend("rdma-cgroup")
    };
    devices.into_iter().map(of).collect()
}
