//! What control groups leave of memory, huge pages and RDMA objects.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use super::pools;
use crate::bench::units::size;
use crate::files::{Unread, Why, garbage, shown};
use mkey_os::cgroup::{self, Folder, Version};
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
pub struct Room {
    /// In bytes or objects.
    pub limit: u64,
    /// In the same.
    pub used: u64,
    /// The file of the limit, below the root.
    pub file: String,
    /// What lifts the limit when it is written there.
    pub unlimited: &'static str,
}

impl Room {
    /// What is left.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Words for what mends it.
    pub fn told(&self, finding: Finding) -> Finding {
        let limit = self.file.rsplit('/').next().unwrap_or_default();
        finding
            .word("file", shown(&self.file))
            .word("limit_file", limit)
            .word("unlimited", self.unlimited)
    }
}

/// The names of a limit's file and of that of its use.
#[derive(Clone, Copy)]
struct Names<'n> {
    limit: &'n str,
    used: &'n str,
}

fn below(at: &Context, path: &Path) -> String {
    let path = path.strip_prefix(at.files.root()).unwrap_or(path);
    path.to_string_lossy().trim_start_matches('/').to_owned()
}

/// The folders of all groups that hold for the process, those that are there.
///
/// # Errors
/// The process is in groups, and none of them can be seen.
fn folders(at: &Context, groups: &str, controller: &str) -> Result<Vec<(Version, String)>, Unread> {
    let all: Vec<Folder> = cgroup::folders(at.files.root(), groups, controller);
    let path = |folder: &Folder| below(at, &folder.path);
    let there = |folder: &&Folder| at.files.names(&path(folder)).is_ok_and(|n| !n.is_empty());
    let seen: Vec<_> = all.iter().filter(there).map(|f| (f.version, path(f))).collect();
    // Where its own group is not, the top has to be one: a container's, whose path the host sees.
    let hidden = all.first().zip(all.last()).is_some_and(|(own, top)| {
        own.version == Version::V2
            && !there(&own)
            && !at.files.exists(&format!("{}/cgroup.type", path(top)))
    });
    match all.first() {
        Some(own) if seen.is_empty() || hidden => Err(at
            .files
            .names(&path(own))
            .err()
            .unwrap_or_else(|| Unread { path: shown(&path(own)), why: Why::Missing })),
        _ => Ok(seen),
    }
}

/// The room of a group; `None`: no limit.
fn room(
    at: &Context,
    version: Version,
    folder: &str,
    names: Names<'_>,
) -> Result<Option<Room>, Unread> {
    let path = format!("{folder}/{}", names.limit);
    let limit = match at.files.line(&path) {
        Ok(limit) => limit,
        // The top has no limit, nor has a group without the controller.
        Err(Unread { why: Why::Missing, .. }) => return Ok(None),
        Err(unread) => return Err(unread),
    };
    // Version 1 says that there is none with a number no machine has.
    let limit = match limit.parse::<u64>() {
        Ok(limit) if limit < 1 << 60 => limit,
        Ok(_) => return Ok(None),
        Err(_) if limit == "max" => return Ok(None),
        Err(_) => return Err(garbage(&path, &limit)),
    };
    let used = at.files.number(&format!("{folder}/{}", names.used))?;
    let unlimited = if version == Version::V1 { "-1" } else { "max" };
    Ok(Some(Room { limit, used, file: path, unlimited }))
}

/// The room that is tightest of all groups that hold for the process.
fn tightest(
    at: &Context,
    groups: &str,
    controller: &str,
    v1: Names<'_>,
    v2: Names<'_>,
) -> Result<Option<Room>, Unread> {
    let mut tight: Option<Room> = None;
    for (version, folder) in folders(at, groups, controller)? {
        let names = if version == Version::V1 { v1 } else { v2 };
        let Some(mut room) = room(at, version, &folder, names)? else { continue };
        if controller == "memory" {
            room.used = room.used.saturating_sub(reclaimable(at, version, &folder));
        }
        if tight.as_ref().is_none_or(|known| room.left() < known.left()) {
            tight = Some(room);
        }
    }
    Ok(tight)
}

/// Pages of files that nobody has used for a while: they go before anything else does.
fn reclaimable(at: &Context, version: Version, folder: &str) -> u64 {
    let name = if version == Version::V1 { "total_inactive_file " } else { "inactive_file " };
    let stat = at.files.text(&format!("{folder}/memory.stat")).unwrap_or_default();
    let bytes = stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    bytes.unwrap_or(0)
}

/// What says of a control group that it could not be looked at.
fn unseen(code: Code, unread: &Unread) -> Finding {
    match unread.why {
        Why::Missing => Finding::new(code, Status::NotReadable, "no-group").by(&unread.path),
        _ => Finding::unread(code, unread),
    }
}

fn memory(at: &Context, groups: &str) -> Finding {
    let v1 = Names { limit: "memory.limit_in_bytes", used: "memory.usage_in_bytes" };
    let v2 = Names { limit: "memory.max", used: "memory.current" };
    let room = match tightest(at, groups, "memory", v1, v2) {
        Ok(Some(room)) => room,
        Ok(None) => {
            return Finding::new(Code::MemoryCgroup, Status::Ok, "no-limit")
                .file(&at.of_process("cgroup"));
        }
        Err(unread) => return unseen(Code::MemoryCgroup, &unread),
    };
    let (status, says) = if room.left() < room.limit / 20 {
        (Status::Warn, "nearly-full")
    } else {
        (Status::Ok, "room")
    };
    let finding = Finding::new(Code::MemoryCgroup, status, says)
        .value("limit", size(room.limit))
        .measure("used", size(room.used))
        .measure("left", size(room.left()))
        // Twice as much: a fixed figure may be less than there is.
        .word("gib", room.limit.saturating_mul(2).div_ceil(1 << 30))
        .file(&room.file);
    room.told(finding).mend("memory-cgroup")
}

/// The groups' limits on pages of a size: on those touched, and on those promised.
pub fn of_pages(at: &Context, groups: &str, page: usize) -> Result<[Option<Room>; 2], Unread> {
    let name = pools::of_groups(page);
    let of = |kind: &str| {
        let file = |what: &str| format!("hugetlb.{name}{kind}.{what}");
        let (limit, used) = (file("limit_in_bytes"), file("usage_in_bytes"));
        let (most, current) = (file("max"), file("current"));
        let v1 = Names { limit: &limit, used: &used };
        tightest(at, groups, "hugetlb", v1, Names { limit: &most, used: &current })
    };
    Ok([of("")?, of(".rsvd")?])
}

fn huge_pages(at: &Context, groups: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in pools::sizes(at) {
        match of_pages(at, groups, page) {
            Ok([touched, promised]) => {
                findings.extend(touched.map(|room| pages(at, page, &room, "none-left")));
                findings.extend(promised.map(|room| pages(at, page, &room, "none-promised")));
            }
            Err(unread) => {
                findings.push(unseen(Code::HugePagesCgroup, &unread).of(size(page as u64)));
            }
        }
    }
    if findings.is_empty() {
        let path = at.of_process("cgroup");
        findings.push(Finding::new(Code::HugePagesCgroup, Status::Ok, "no-limit").file(&path));
    }
    findings
}

fn pages(at: &Context, page: usize, room: &Room, none: &'static str) -> Finding {
    let total = pools::pool(at, page).map_or(0, |pool| pool.total);
    let bytes = page.max(1) as u64;
    let (status, says) = match room.left() / bytes {
        _ if total == 0 => (Status::NotApplicable, "no-pool"),
        0 => (Status::Fail, none),
        left if left < room.limit / bytes / 10 => (Status::Warn, "little-left"),
        _ => (Status::Ok, "room"),
    };
    let promised = if none == "none-promised" { " rsvd" } else { "" };
    let finding = Finding::new(Code::HugePagesCgroup, status, says)
        .of(format!("{}{promised}", size(page as u64)))
        .value("limit", size(room.limit))
        .measure("used", size(room.used))
        .measure("left", size(room.left()))
        .word("resource", pools::of_kubernetes(page))
        .word("amount", pools::of_kubernetes(page.max(1 << 30)))
        .file(&room.file);
    room.told(finding).mend("huge-pages-cgroup")
}

fn rdma(at: &Context, groups: &str) -> Vec<Finding> {
    let devices = at.devices();
    if devices.is_empty() {
        return vec![Finding::new(Code::RdmaCgroup, Status::NotApplicable, "no-device")];
    }
    let of = |device: String| match tightest_objects(at, groups, &device) {
        Ok(None) => Finding::new(Code::RdmaCgroup, Status::Ok, "no-limit")
            .of(device)
            .file(&at.of_process("cgroup")),
        Ok(Some((name, room))) => objects(device, name, &room),
        Err(unread) => unseen(Code::RdmaCgroup, &unread).of(device),
    };
    devices.into_iter().map(of).collect()
}

/// The tightest limit on a device's objects, with its name.
fn tightest_objects(
    at: &Context,
    groups: &str,
    device: &str,
) -> Result<Option<(&'static str, Room)>, Unread> {
    let mut tight: Option<(&str, Room)> = None;
    for (_, folder) in folders(at, groups, "rdma")? {
        let file = format!("{folder}/rdma.max");
        let limits = match at.files.text(&file) {
            Ok(limits) => limits,
            Err(Unread { why: Why::Missing, .. }) => continue,
            Err(unread) => return Err(unread),
        };
        let all = [(Resource::Handle, "hca_handle"), (Resource::Object, "hca_object")];
        for (resource, name) in all {
            let Some(limit) = rdma_cgroup::figure(&limits, device, resource) else { continue };
            let used = at.files.text(&format!("{folder}/rdma.current"))?;
            // What has none of the device is not listed.
            let used = rdma_cgroup::figure(&used, device, resource).unwrap_or(0);
            let room = Room { limit, used, file: file.clone(), unlimited: "max" };
            if tight.as_ref().is_none_or(|(_, known)| room.left() < known.left()) {
                tight = Some((name, room));
            }
        }
    }
    Ok(tight)
}

fn objects(device: String, name: &str, room: &Room) -> Finding {
    let (status, says) = match room.left() {
        0 => (Status::Fail, "none-left"),
        left if left < room.limit / 10 => (Status::Warn, "little-left"),
        _ => (Status::Ok, "room"),
    };
    let folder = room.file.trim_end_matches("/rdma.max");
    Finding::new(Code::RdmaCgroup, status, says)
        .word("device", &device)
        .of(device)
        .value("resource", name)
        .value("limit", room.limit)
        .measure("used", room.used)
        .measure("left", room.left())
        .file(&room.file)
        .word("folder", shown(folder))
        .mend("rdma-cgroup")
}
