//! What a look at a process says about a cause: that it is this one, may be, or is not.

use super::process::{Area, Process};
use crate::bench::units::size;
use crate::lang::Lang;
use mkey_core::rights::Rights;
use mkey_os::accounting::{self, AccountError, Allowance, Case};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Rights that exclude each other.
    Rights,
    /// The range wraps around.
    Wraps,
    /// The range is empty, or has too many pages.
    Empty,
    /// Fork protection would have to split a huge page.
    HugeSplit,
    /// Nothing may be locked at all.
    MemlockZero,
    /// The limit of locked memory.
    Memlock,
    /// vm.max_map_count.
    VmaLimit,
    /// A hole in the range.
    Unmapped,
    /// PROT_NONE.
    ProtNone,
    /// Read-only, and to be written.
    ReadOnly,
    /// A device's memory.
    DeviceMemory,
    /// A shared mapping of a file on a disk.
    SharedFile,
    /// Huge pages that are not there yet, and can not be had.
    HugePool,
    /// memfd_secret.
    SecretMemory,
}

/// How a check came out. The order is that in which causes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is this.
    Found,
    /// It may be this.
    Possible,
    /// Nothing was seen either way.
    Open,
    /// It is not this.
    RuledOut,
}

/// What is asked about a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// First address and length in bytes.
    pub range: Option<(u64, u64)>,
    /// The rights of the registration.
    pub access: Option<Rights>,
}

impl Asked {
    /// The range, if it does not wrap around.
    pub fn span(&self) -> Option<Range<u64>> {
        let (address, length) = self.range?;
        Some(address..address.checked_add(length)?)
    }

    /// Whether the memory has to be writable; nothing if the rights are not known.
    fn writes(&self) -> Option<bool> {
        self.access.map(|access| access.intersects(Rights::NEED_WRITABLE))
    }
}

/// Checks a cause; in words, what was seen.
pub fn check(check: Check, process: &Process, asked: &Asked, lang: Lang) -> (Verdict, String) {
    // The kernel refuses it with EINVAL before it looks at any page.
    let of_pages = !matches!(check, Check::Rights | Check::Wraps | Check::Empty | Check::VmaLimit);
    if let Some((address, length)) = asked.range.filter(|_| of_pages && asked.span().is_none()) {
        let text = lang.pick(
            "is beyond 2^64: refused with EINVAL before any page is looked at",
            "超过 2^64：未查看任何页就以 EINVAL 拒绝",
        );
        return (Verdict::RuledOut, format!("{address:#x} + {length:#x} {text}"));
    }
    let judged = match check {
        Check::Rights => rights(asked, lang),
        Check::Wraps => wraps(asked, lang),
        Check::Empty => empty(asked, lang),
        Check::HugeSplit => huge_split(process, asked, lang),
        Check::MemlockZero => Some(memlock_zero(process, lang)),
        Check::Memlock => Some(memlock(process, asked, lang)),
        Check::VmaLimit => vma_limit(process, lang),
        Check::Unmapped => unmapped(process, asked, lang),
        Check::ProtNone => areas(process, asked, |area| !area.read && !area.write, lang),
        Check::ReadOnly => read_only(process, asked, lang),
        Check::DeviceMemory => areas(process, asked, |area| area.has("io") || area.has("pf"), lang),
        Check::SharedFile => shared_file(process, asked, lang),
        Check::HugePool => huge_pool(process, asked, lang),
        Check::SecretMemory => {
            areas(process, asked, |area| area.path.starts_with("/secretmem"), lang)
        }
    };
    judged.unwrap_or((Verdict::Open, String::new()))
}

type Judged = Option<(Verdict, String)>;

fn rights(asked: &Asked, lang: Lang) -> Judged {
    let access = asked.access?;
    Some(match access.validate() {
        Ok(_) => (Verdict::RuledOut, format!("{access}")),
        Err(_) => {
            let lacks = lang.pick("without LOCAL_WRITE", "没有 LOCAL_WRITE");
            (Verdict::Found, format!("{access} {lacks}"))
        }
    })
}

fn wraps(asked: &Asked, lang: Lang) -> Judged {
    let (address, length) = asked.range?;
    let text = format!("{address:#x} + {length:#x}");
    Some(match asked.span() {
        None => (Verdict::Found, format!("{text} {}", lang.pick("is beyond 2^64", "超过 2^64"))),
        Some(_) => (Verdict::RuledOut, text),
    })
}

fn empty(asked: &Asked, lang: Lang) -> Judged {
    let (_, length) = asked.range?;
    let text = format!("{} {length}", lang.pick("length", "长度"));
    let odd = length == 0 || length / accounting::PAGE > u64::from(u32::MAX);
    Some((if odd { Verdict::Found } else { Verdict::RuledOut }, text))
}

fn huge_split(process: &Process, asked: &Asked, lang: Lang) -> Judged {
    let span = asked.span()?;
    let torn = |at: u64| {
        process.areas.iter().any(|area| {
            area.is_huge()
                && area.range.contains(&at)
                && area.page > 0
                && !at.is_multiple_of(area.page)
        })
    };
    if !torn(span.start) && !torn(span.end) {
        return Some((
            Verdict::RuledOut,
            lang.pick("no huge page would be split", "不会拆分大页").to_owned(),
        ));
    }
    let torn =
        lang.pick("the range begins or ends within a huge page", "范围的起点或终点在大页之内");
    Some(match process.fork_safe {
        _ if process.huge_safe => (
            Verdict::RuledOut,
            format!(
                "{torn}, {}",
                lang.pick("but RDMAV_HUGEPAGES_SAFE is set", "但已设置 RDMAV_HUGEPAGES_SAFE")
            ),
        ),
        Some(true) => (
            Verdict::Found,
            format!(
                "{torn}, {}",
                lang.pick(
                    "and RDMAV_FORK_SAFE or IBV_FORK_SAFE is set",
                    "且设置了 RDMAV_FORK_SAFE 或 IBV_FORK_SAFE"
                )
            ),
        ),
        _ => (
            Verdict::Possible,
            format!(
                "{torn}; {}",
                lang.pick(
                    "whether it called ibv_fork_init can not be seen",
                    "看不出是否调用过 ibv_fork_init"
                )
            ),
        ),
    })
}

fn memlock_zero(process: &Process, lang: Lang) -> (Verdict, String) {
    let found = process.memlock == Some(0) && !process.ipc_lock;
    let verdict = match (found, process.ipc_lock_somewhere) {
        (true, false) => Verdict::Found,
        (true, true) => Verdict::Possible,
        (false, _) => Verdict::RuledOut,
    };
    (verdict, allowance(process, lang))
}

/// What the process may lock, and what it has.
fn allowance(process: &Process, lang: Lang) -> String {
    let limit = match process.memlock {
        None => lang.pick("unlimited", "不限").to_owned(),
        Some(limit) => size(limit),
    };
    let capability = match (process.ipc_lock, process.ipc_lock_elsewhere) {
        _ if process.ipc_lock_somewhere => lang.pick(
            "CAP_IPC_LOCK in a user namespace that can not be seen",
            "CAP_IPC_LOCK 在看不到的用户命名空间",
        ),
        (true, _) => lang.pick("CAP_IPC_LOCK in effect", "CAP_IPC_LOCK 生效"),
        (false, true) => lang.pick(
            "CAP_IPC_LOCK only in another user namespace, where it does not count",
            "CAP_IPC_LOCK 只在别的用户命名空间，不算数",
        ),
        (false, false) => lang.pick("no CAP_IPC_LOCK", "没有 CAP_IPC_LOCK"),
    };
    let (pinned, word) = (size(process.pinned), lang.pick("pinned", "已固定"));
    format!("RLIMIT_MEMLOCK {limit}, {word} {pinned} (VmPin), {capability}")
}

fn memlock(process: &Process, asked: &Asked, lang: Lang) -> (Verdict, String) {
    let text = allowance(process, lang);
    let allowance = Allowance { memlock: process.memlock, ipc_lock: process.ipc_lock };
    let Some(limit) = process.memlock.filter(|_| !process.ipc_lock) else {
        return (Verdict::RuledOut, text);
    };
    // Whether the limit counts is not known.
    if process.ipc_lock_somewhere {
        return (Verdict::Possible, text);
    }
    let (pinned, room) =
        (process.pinned / accounting::PAGE, size(limit.saturating_sub(process.pinned)));
    let text = format!("{text}, {} {room}", lang.pick("room for", "剩余"));
    let Some((addr, len)) = asked.range else {
        let full = process.pinned.saturating_add(accounting::PAGE) > limit;
        return (if full { Verdict::Found } else { Verdict::Possible }, text);
    };
    match accounting::account(&Case { addr, len, pinned, allowance }) {
        Err(AccountError::Limit { pages, .. }) => {
            let more = size(pages.saturating_mul(accounting::PAGE));
            (Verdict::Found, format!("{text}; {} {more}", lang.pick("asked for", "要求")))
        }
        _ => (Verdict::RuledOut, text),
    }
}

fn vma_limit(process: &Process, lang: Lang) -> Judged {
    let (now, most) = (process.map_count, process.max_map_count?);
    let text = match lang {
        Lang::En => format!("{now} mappings of at most {most}"),
        Lang::Zh => format!("{now} 个映射，上限 {most}"),
    };
    Some(match now {
        // A split takes two more.
        _ if now.saturating_add(2) > most => (Verdict::Found, text),
        _ if now > most / 10 * 9 => (Verdict::Possible, text),
        _ => (Verdict::RuledOut, text),
    })
}

fn unmapped(process: &Process, asked: &Asked, lang: Lang) -> Judged {
    asked.span()?;
    Some(match process.gaps.as_slice() {
        [] => (
            Verdict::RuledOut,
            lang.pick("all of the range is mapped", "整个范围都有映射").to_owned(),
        ),
        [first, others @ ..] => {
            let more = match (others.len(), lang) {
                (0, _) => String::new(),
                (n, Lang::En) => format!(" and {n} more holes"),
                (n, Lang::Zh) => format!("，另有 {n} 处"),
            };
            let nothing = lang.pick("nothing is mapped at", "未映射：");
            (Verdict::Found, format!("{nothing} {:#x}-{:#x}{more}", first.start, first.end))
        }
    })
}

/// Whether one of the mappings is such.
fn areas(process: &Process, asked: &Asked, such: impl Fn(&Area) -> bool, lang: Lang) -> Judged {
    asked.span()?;
    Some(match process.areas.iter().find(|area| such(area)) {
        Some(area) => (Verdict::Found, shown(area)),
        None => (
            Verdict::RuledOut,
            lang.pick("no such mapping in the range", "范围内没有这样的映射").to_owned(),
        ),
    })
}

fn read_only(process: &Process, asked: &Asked, lang: Lang) -> Judged {
    let judged = areas(process, asked, |area| area.read && !area.write, lang)?;
    Some(match (judged, asked.writes()) {
        ((Verdict::Found, text), Some(false)) => (
            Verdict::RuledOut,
            format!(
                "{text}; {}",
                lang.pick("the rights do not need it writable", "权限不要求可写")
            ),
        ),
        ((Verdict::Found, text), None) => (
            Verdict::Possible,
            format!(
                "{text}; {}",
                lang.pick("say which rights by --access", "用 --access 指明权限")
            ),
        ),
        (judged, _) => judged,
    })
}

fn shared_file(process: &Process, asked: &Asked, lang: Lang) -> Judged {
    const IN_MEMORY: [&str; 4] = ["tmpfs", "hugetlbfs", "ramfs", "devtmpfs"];
    let on_disk = |area: &Area| {
        let kind = area.file_system.as_deref();
        area.shared
            && area.write
            && kind.is_some_and(|kind| !IN_MEMORY.contains(&kind))
            && !area.is_huge()
    };
    let judged = areas(process, asked, on_disk, lang)?;
    Some(match (judged, asked.writes()) {
        ((Verdict::Found, text), Some(false)) => (Verdict::RuledOut, text),
        ((Verdict::Found, text), None) => (Verdict::Possible, text),
        (judged, _) => judged,
    })
}

fn huge_pool(process: &Process, asked: &Asked, lang: Lang) -> Judged {
    asked.span()?;
    let lacking = |area: &&Area| {
        area.is_huge() && area.huge_present < area.range.end.saturating_sub(area.range.start)
    };
    let Some(area) = process.areas.iter().find(lacking) else {
        return Some((
            Verdict::RuledOut,
            lang.pick("no huge page of the range is still to come", "范围内没有尚未装入的大页")
                .to_owned(),
        ));
    };
    let missing = area.range.end.saturating_sub(area.range.start).saturating_sub(area.huge_present);
    let missing_pages = missing / area.page.max(1);
    let free = area.huge_free.map_or_else(|| "?".to_owned(), |free| free.to_string());
    let text = match lang {
        Lang::En => format!(
            "{}: {missing_pages} pages of {} still to come, {free} free in the system",
            shown(area),
            size(area.page)
        ),
        Lang::Zh => format!(
            "{}：还有 {missing_pages} 个 {} 页未装入，系统空闲 {free} 个",
            shown(area),
            size(area.page)
        ),
    };
    let empty = area.huge_free.is_some_and(|free| free < missing_pages);
    Some((if empty { Verdict::Found } else { Verdict::Possible }, text))
}

/// A mapping as `/proc/PID/maps` shows it.
fn shown(area: &Area) -> String {
    let bit = |set: bool, letter: char| if set { letter } else { '-' };
    let (r, w, x) = (bit(area.read, 'r'), bit(area.write, 'w'), bit(area.execute, 'x'));
    let kind = if area.shared { 's' } else { 'p' };
    let path = if area.path.is_empty() { String::new() } else { format!(" {}", area.path) };
    let disk = area.file_system.as_ref().map(|kind| format!(" ({kind})")).unwrap_or_default();
    format!("{:#x}-{:#x} {r}{w}{x}{kind}{path}{disk}", area.range.start, area.range.end)
}

#[cfg(test)]
mod tests;
