//! What a live process shows of the memory that it registers: mappings, limits, pins.

use crate::exit::End;
use crate::lang::Lang;
use crate::process::{self, kib_of};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;

/// What was seen of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// RLIMIT_MEMLOCK (soft) in bytes; nothing if it is unlimited.
    pub memlock: Option<u64>,
    /// CAP_IPC_LOCK is in effect, in the initial user namespace.
    pub ipc_lock: bool,
    /// CAP_IPC_LOCK is in effect, but in another user namespace, where it does not count.
    pub ipc_lock_elsewhere: bool,
    /// CAP_IPC_LOCK is in effect, and in which user namespace can not be seen.
    pub ipc_lock_somewhere: bool,
    /// Bytes pinned (VmPin).
    pub pinned: u64,
    /// Mappings.
    pub map_count: u64,
    /// vm.max_map_count.
    pub max_map_count: Option<u64>,
    /// RDMAV_FORK_SAFE or IBV_FORK_SAFE stands in its environment; nothing if that can not be read.
    pub fork_safe: Option<bool>,
    /// RDMAV_HUGEPAGES_SAFE stands in its environment.
    pub huge_safe: bool,
    /// The mappings in the range.
    pub areas: Vec<Area>,
    /// What of the range is not mapped.
    pub gaps: Vec<Range<u64>>,
}

/// A mapping in the range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Area {
    /// First address and one past the last.
    pub range: Range<u64>,
    /// May be read.
    pub read: bool,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub execute: bool,
    /// Shared with others.
    pub shared: bool,
    /// What is mapped; empty for anonymous memory.
    pub path: String,
    /// The kind of file system that it lies on, if it is a file.
    pub file_system: Option<String>,
    /// Bytes of a page.
    pub page: u64,
    /// Bytes of huge pages (hugetlb) that are there.
    pub huge_present: u64,
    /// Free huge pages of this size in the system.
    pub huge_free: Option<u64>,
    /// VmFlags.
    pub flags: Vec<String>,
}

impl Area {
    /// Whether it consists of huge pages (hugetlb).
    pub fn is_huge(&self) -> bool {
        self.flags.iter().any(|flag| flag == "ht")
    }

    /// Whether a flag of VmFlags is set.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|other| other == flag)
    }
}

/// Looks at a process below `root`, and at a range of its memory if one is named.
///
/// # Errors
/// [`End::Failed`] if it is not there, has no memory, or may not be looked at; in words of a language.
pub fn read(root: &Path, pid: u32, range: Option<&Range<u64>>, lang: Lang) -> Result<Process, End> {
    let folder = root.join("proc").join(pid.to_string());
    let text = |name: &str| -> Result<String, End> {
        let path = folder.join(name);
        let bytes = fs::read(&path).map_err(|error| unreadable(pid, &path, &error, lang))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let status = text("status")?;
    if let Some(why) = process::without_memory(&status) {
        return Err(End::Failed(why.told(&pid.to_string(), lang)));
    }
    let holds = process::has_capability(&status, "CapEff", process::IPC_LOCK) == Some(true);
    let initial = process::is_initial_below(&folder);
    let fork_safe = text("environ").ok().map(|all| process::fork_safe(&all));
    // A limit that is not understood is not taken for none.
    let memlock = process::limit(&text("limits")?, "Max locked memory").ok_or_else(|| {
        let what = lang.pick(
            "the line “Max locked memory” can not be understood",
            "看不懂“Max locked memory”这一行",
        );
        End::Failed(format!("{}: {what}", folder.join("limits").display()))
    })?;
    let mut process = Process {
        pid,
        memlock: memlock.soft,
        ipc_lock: holds && initial == Some(true),
        ipc_lock_elsewhere: holds && initial == Some(false),
        ipc_lock_somewhere: holds && initial.is_none(),
        pinned: process::kib_of(&status, "VmPin").unwrap_or(0),
        max_map_count: number_in(&root.join("proc/sys/vm/max_map_count")),
        fork_safe: fork_safe.map(|says| says.asked),
        huge_safe: fork_safe.is_some_and(|says| says.huge_pages),
        ..Process::default()
    };
    let path = folder.join("smaps");
    let smaps = File::open(&path).map_err(|error| unreadable(pid, &path, &error, lang))?;
    let mut parsed = Smaps::new(range.cloned());
    for line in BufReader::new(smaps).split(b'\n') {
        let line = line.map_err(|error| unreadable(pid, &path, &error, lang))?;
        parsed.line(&String::from_utf8_lossy(&line));
    }
    process.map_count = parsed.count;
    process.areas = parsed.areas;
    process.gaps = range.map(|range| gaps(range, &process.areas)).unwrap_or_default();
    let mounts = text("mountinfo").unwrap_or_default();
    for area in &mut process.areas {
        area.file_system = file_system(&mounts, &area.path);
        let pool =
            format!("sys/kernel/mm/hugepages/hugepages-{}kB/free_hugepages", area.page / 1024);
        area.huge_free = area.is_huge().then(|| number_in(&root.join(pool))).flatten();
    }
    Ok(process)
}

fn unreadable(pid: u32, path: &Path, error: &std::io::Error, lang: Lang) -> End {
    let proc = path.parent().and_then(Path::parent).unwrap_or(path);
    let mend = match error.kind() {
        std::io::ErrorKind::NotFound if !process::is_mounted(proc) => lang.pick(
            "; /proc is not mounted here, and no process can be looked at",
            "；这里没有挂载 /proc，看不了任何进程",
        ),
        std::io::ErrorKind::NotFound => lang.pick("; there is no such process", "；没有这个进程"),
        std::io::ErrorKind::PermissionDenied => denied(
            &fs::read_to_string("/proc/self/status").unwrap_or_default(),
            &path
                .parent()
                .map(|folder| folder.join("status"))
                .map_or_else(String::new, |path| fs::read_to_string(path).unwrap_or_default()),
        ),
        _ => "",
    };
    let process = lang.pick("process", "进程");
    End::Failed(format!("{process} {pid}: {}: {error}{mend}", path.display()))
}

/// Why the kernel may refuse this process, by its `status`, to look at another, by that one's.
fn denied(ours: &str, other: &str) -> &'static str {
    let uid = |status| {
        let ids = process::field(status, "Uid")?;
        ids.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    match process::has_capability(ours, "CapEff", process::SYS_PTRACE) {
        Some(true) => {
            "; CAP_SYS_PTRACE is in effect here, so the process or its memory is of another user namespace, \
             or a security module forbids it"
        }
        _ if uid(ours) == Some(0) || uid(ours) == uid(other) => {
            "; CAP_SYS_PTRACE is not in effect here, and the process has capabilities that this one lacks, \
             or is not dumpable: run it with CAP_SYS_PTRACE (in a container: --cap-add SYS_PTRACE)"
        }
        _ => "; run it as the user of that process, or as root",
    }
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// `smaps`, line by line: how many mappings there are, and those in the range.
struct Smaps {
    range: Option<Range<u64>>,
    count: u64,
    areas: Vec<Area>,
    /// The lines that come next belong to the last area.
    inside: bool,
}

impl Smaps {
    fn new(range: Option<Range<u64>>) -> Self {
        Self { range, count: 0, areas: Vec::new(), inside: false }
    }

    fn line(&mut self, line: &str) {
        if let Some(area) = area_of(line) {
            self.count += 1;
            self.inside = self
                .range
                .as_ref()
                .is_some_and(|range| area.range.start < range.end && area.range.end > range.start);
            if self.inside {
                self.areas.push(area);
            }
            return;
        }
        let Some(area) = self.areas.last_mut().filter(|_| self.inside) else { return };
        if let Some(size) = kib_of(line, "KernelPageSize") {
            area.page = size;
        } else if let Some(size) =
            kib_of(line, "Shared_Hugetlb").or_else(|| kib_of(line, "Private_Hugetlb"))
        {
            area.huge_present = area.huge_present.saturating_add(size);
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            area.flags = flags.split_whitespace().map(str::to_owned).collect();
        }
    }
}

/// The first line of a mapping; `None` for the lines between.
fn area_of(line: &str) -> Option<Area> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let mut fields = rest.splitn(5, ' ');
    let rights = fields.next()?.as_bytes();
    let is = |at: usize, byte: u8| rights.get(at) == Some(&byte);
    let path = fields.nth(3).unwrap_or_default().trim();
    Some(Area {
        range: start..end,
        read: is(0, b'r'),
        write: is(1, b'w'),
        execute: is(2, b'x'),
        shared: is(3, b's'),
        path: path.to_owned(),
        page: 4096,
        ..Area::default()
    })
}

/// What of a range lies in no mapping; the areas are in order.
fn gaps(range: &Range<u64>, areas: &[Area]) -> Vec<Range<u64>> {
    let mut at = range.start;
    let mut gaps = Vec::new();
    for area in areas {
        if area.range.start > at {
            gaps.push(at..area.range.start.min(range.end));
        }
        at = at.max(area.range.end);
    }
    if at < range.end {
        gaps.push(at..range.end);
    }
    gaps
}

/// The file system of a path, by the mount point that is its longest beginning.
fn file_system(mountinfo: &str, path: &str) -> Option<String> {
    if !path.starts_with('/') {
        return None;
    }
    if path.starts_with("/memfd:") || path.starts_with("/SYSV") || path.starts_with("/dev/zero") {
        return Some("tmpfs".to_owned());
    }
    let mounts = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        Some((before.split(' ').nth(4)?, after.split(' ').next()?))
    });
    let under = |point: &str| {
        path.strip_prefix(point.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
    };
    // A later mount lies on top of an earlier one at the same point.
    let found = mounts.filter(|(point, _)| under(point)).max_by_key(|(point, _)| point.len());
    found.map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests;
