//! Huge pages: what is set aside, by size and node, what was asked for at boot, and one obtained.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use super::pools::{self, POOLS};
use super::{cgroups, pools::of_kubernetes};
use crate::bench::sizes::parse_bytes;
use crate::bench::units::size;
use crate::explain::errno;
use crate::files::garbage;
use crate::interfaces::DEVICES;
use crate::process::kib_of;
use mkey_os::error::OsError;
use mkey_os::hugepages::{NodePool, Pool};
use mkey_os::ladder::{self, Pages, Reason, Request};
use mkey_os::mapping::PageKind;

/// The checks.
pub fn check(at: &Context) -> Vec<Finding> {
    let sizes = pools::sizes(at);
    if sizes.is_empty() {
        let none = match at.files.names(POOLS) {
            Err(unread) if !at.files.exists("sys/kernel/mm") => {
                Finding::unread(Code::HugePages, &unread)
            }
            _ => Finding::new(Code::HugePages, Status::NotApplicable, "no-hugetlb").file(POOLS),
        };
        return vec![none];
    }
    let smallest = sizes.iter().copied().min().unwrap_or_default();
    let pools: Vec<_> = sizes.iter().map(|size| (*size, pools::pool(at, *size))).collect();
    let any = pools.iter().any(|(_, pool)| pool.as_ref().is_some_and(has_pages));
    let mut findings = Vec::new();
    for (page, pool) in &pools {
        let Some(pool) = pool else {
            let unread = at.files.number(&file(*page, "nr_hugepages")).err();
            let unread = unread.unwrap_or_else(|| garbage(&file(*page, "free_hugepages"), "?"));
            findings.push(Finding::unread(Code::HugePages, &unread).of(size(*page as u64)));
            continue;
        };
        findings.push(set_aside(pool, !any && *page == smallest));
        findings.extend(nodes(at, pool));
        if at.probes {
            findings.extend(obtain(at, pool));
        }
    }
    if !at.probes {
        findings.push(Finding::untried(Code::HugePageProbe));
    }
    findings.extend(boot(at, &pools));
    findings
}

/// The words of a kernel's command line that huge pages are asked for with: pages by size.
fn asked(line: &str, default: usize) -> Vec<(usize, u64)> {
    let (mut page, mut all) = (default, Vec::<(usize, u64)>::new());
    let bytes = |text: &str| {
        let text = text.trim_end_matches('\0');
        let iec = match text.strip_suffix(['K', 'k', 'M', 'm', 'G', 'g']) {
            Some(_) => format!("{text}iB"),
            None => text.to_owned(),
        };
        parse_bytes(&iec).ok().and_then(|bytes| usize::try_from(bytes).ok())
    };
    for word in line.split_whitespace() {
        if let Some(text) = word.strip_prefix("hugepagesz=") {
            page = bytes(text).unwrap_or(page);
        } else if let Some(text) = word.strip_prefix("default_hugepagesz=") {
            page = bytes(text).unwrap_or(page);
        } else if let Some(text) = word.strip_prefix("hugepages=") {
            // By node: 0:512,1:512.
            let counts = text.split(',').map(|part| part.rsplit(':').next().unwrap_or(part));
            let pages = counts.filter_map(|count| count.parse::<u64>().ok());
            let pages = pages.fold(0u64, u64::saturating_add);
            match all.iter_mut().find(|(known, _)| *known == page) {
                Some(known) => known.1 = pages,
                None => all.push((page, pages)),
            }
        }
    }
    all
}

/// The bytes of the pages that the boot line is about where it names no size.
fn default_size(at: &Context) -> usize {
    let told = at.files.text("proc/meminfo").ok();
    let told = told.and_then(|text| kib_of(&text, "Hugepagesize"));
    told.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(2 << 20)
}

fn boot(at: &Context, pools: &[(usize, Option<Pool>)]) -> Vec<Finding> {
    let path = "proc/cmdline";
    let line = match at.files.line(path) {
        Ok(line) => line,
        Err(unread) => return vec![Finding::unread(Code::HugePagesBoot, &unread)],
    };
    let asked = asked(&line, default_size(at));
    if asked.is_empty() {
        return vec![
            Finding::new(Code::HugePagesBoot, Status::NotApplicable, "not-asked").file(path),
        ];
    }
    let of = |(page, pages): (usize, u64)| {
        let pool = pools.iter().find(|(size, _)| *size == page).and_then(|(_, pool)| pool.as_ref());
        let total = pool.map_or(0, |pool| pool.total);
        let (status, says) =
            if total < pages { (Status::Warn, "fewer") } else { (Status::Ok, "all") };
        Finding::new(Code::HugePagesBoot, status, says)
            .of(size(page as u64))
            .value("asked", pages)
            .value("total", total)
            .word("kib", page / 1024)
            .file(path)
            .mend("huge-pages-boot")
    };
    asked.into_iter().map(of).collect()
}

fn has_pages(pool: &Pool) -> bool {
    pool.total > 0 || pool.overcommit > 0
}

fn file(page: usize, name: &str) -> String {
    format!("{POOLS}/hugepages-{}kB/{name}", page / 1024)
}

fn set_aside(pool: &Pool, matters: bool) -> Finding {
    let (status, says) = match (has_pages(pool), pool.available()) {
        (false, _) if matters => (Status::Warn, "none"),
        (false, _) => (Status::NotApplicable, "none"),
        (true, 0) => (Status::Warn, "exhausted"),
        (true, _) => (Status::Ok, "some"),
    };
    let nodes = pool.nodes.iter().map(|n| format!("{}:{}/{}", n.node, n.free, n.total));
    let totals = pool.nodes.iter().map(|n| format!("{}:{}", n.node, n.total));
    Finding::new(Code::HugePages, status, says)
        .of(size(pool.page_size as u64))
        .value("total", pool.total)
        .value("overcommit", pool.overcommit)
        .value("total_by_node", totals.collect::<Vec<_>>().join(" "))
        .measure("free", pool.free)
        .measure("reserved", pool.reserved)
        .measure("surplus", pool.surplus)
        .measure("available", pool.available())
        .measure("free_by_node", nodes.collect::<Vec<_>>().join(" "))
        .word("kib", pool.page_size / 1024)
        .word("more", pool.total.saturating_add(default_more(pool.page_size)))
        .word("resource", of_kubernetes(pool.page_size))
        .word("amount", of_kubernetes(pool.page_size.max(1 << 30)))
        .file(&file(pool.page_size, "*"))
        .file(&format!(
            "sys/devices/system/node/node*/hugepages/hugepages-{}kB/*",
            pool.page_size / 1024
        ))
        .mend("huge-pages")
}

/// A first number of pages to set aside: 1 GiB in all, for a start.
fn default_more(page: usize) -> u64 {
    ((1u64 << 30) / (page.max(1) as u64)).max(1)
}

/// Whether the nodes of devices have any of the pages.
fn nodes(at: &Context, pool: &Pool) -> Vec<Finding> {
    if pool.nodes.len() < 2 || pool.free == 0 {
        return Vec::new();
    }
    let near = |device: String| {
        let path = format!("{DEVICES}/{device}/device/numa_node");
        let node = u32::try_from(at.files.number(&path).ok()?).ok()?;
        let NodePool { free, total, .. } = *pool.nodes.iter().find(|known| known.node == node)?;
        let (status, says) =
            if free == 0 { (Status::Warn, "none-near") } else { (Status::Ok, "near") };
        let finding = Finding::new(Code::HugePagesNode, status, says)
            .of(format!("{device} {}", size(pool.page_size as u64)))
            .word("device", &device)
            .word("kib", pool.page_size / 1024)
            .word("more", total.saturating_add(default_more(pool.page_size)))
            .value("node", node)
            .measure("free", free)
            .file(&path);
        Some(finding.mend("huge-pages-node"))
    };
    at.devices().into_iter().filter_map(near).collect()
}

/// Obtains one page, and gives it back.
fn obtain(at: &Context, pool: &Pool) -> Option<Finding> {
    let kinds = [PageKind::Huge2M, PageKind::Huge1G];
    let kind = kinds.into_iter().find(|kind| kind.size() == pool.page_size)?;
    let subject = size(pool.page_size as u64);
    if !has_pages(pool) {
        return Some(
            Finding::new(Code::HugePageProbe, Status::NotApplicable, "no-pool").of(subject),
        );
    }
    let request = Request { len: kind.size(), pages: Pages::Exactly(kind), numa_node: None };
    let refused = match ladder::obtain_prefaulted(&request, 1, |_, _| ()) {
        Ok(_) => None,
        Err(error) => Some(error.refused.into_iter().next().map(|refused| refused.reason)),
    };
    let groups = at.files.text(&at.of_process("cgroup")).unwrap_or_default();
    let limits = cgroups::of_pages(at, &groups, pool.page_size).unwrap_or_default();
    Some(judge(pool, refused.as_ref().map(Option::as_ref), limits))
}

/// Why no page was obtained, in words of each language.
fn told(finding: Finding, why: Option<&Reason>) -> Finding {
    let refused =
        |error: &OsError| format!("{}: {}", error.call, errno::shown(&error.errno.into()));
    match why {
        None => finding.word("why", "-"),
        Some(Reason::NoSuchSize) => finding.term("why", "why-no-size"),
        Some(Reason::Pool { needed, available, total, errno, .. }) => finding
            .word("needed", needed)
            .word("left", available)
            .word("total", total)
            .word("errno", errno::shown(&(*errno).into()))
            .term("why", "why-pool"),
        Some(Reason::Prefault(error)) => finding.word("why", refused(&error.source)),
        Some(Reason::Os(error)) => finding.word("why", refused(error)),
        Some(other) => finding.word("why", other),
    }
}

/// Judges how obtaining a page went; `refused`: it was not, and why; `limits`: those of control groups
/// on pages touched and on pages promised.
fn judge(
    pool: &Pool,
    refused: Option<Option<&Reason>>,
    limits: [Option<cgroups::Room>; 2],
) -> Finding {
    let full = |room: &cgroups::Room| room.left() < pool.page_size as u64;
    let [touched, promised] = limits.map(|room| room.filter(full));
    let finding = match refused {
        None => Finding::new(Code::HugePageProbe, Status::Ok, "obtained"),
        // Promised and then not given: a control group, or memory that failed.
        Some(Some(Reason::Prefault(_))) => {
            let finding = Finding::new(Code::HugePageProbe, Status::Fail, "not-given");
            match touched {
                Some(room) => room.told(finding).mend("huge-pages-cgroup"),
                None => finding.mend("huge-pages-log"),
            }
        }
        Some(_) => {
            let finding = Finding::new(Code::HugePageProbe, Status::Warn, "refused");
            match promised {
                Some(room) => room.told(finding).mend("huge-pages-cgroup"),
                None => finding.mend("huge-pages"),
            }
        }
    };
    told(finding, refused.flatten())
        .of(size(pool.page_size as u64))
        .word("kib", pool.page_size / 1024)
        .word("more", pool.total.saturating_add(default_more(pool.page_size)))
        .word("resource", of_kubernetes(pool.page_size))
        .word("amount", of_kubernetes(pool.page_size.max(1 << 30)))
        .by("mmap(MAP_HUGETLB)")
        .by("madvise(MADV_POPULATE_WRITE)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_at_boot() {
        let line = "quiet default_hugepagesz=1G hugepagesz=1G hugepages=16 hugepagesz=2M hugepages=0:512,1:512";
        assert_eq!(asked(line, 2 << 20), [(1 << 30, 16), (2 << 20, 1024)]);
        assert_eq!(asked("hugepages=7", 2 << 20), [(2 << 20, 7)]);
        assert_eq!(asked("ro quiet", 2 << 20), []);
        assert_eq!(asked("hugepagesz=x hugepages=many hugepages=", 2 << 20), [(2 << 20, 0)]);
        let huge = "hugepages=0:18446744073709551615,1:18446744073709551615";
        assert_eq!(asked(huge, 2 << 20), [(2 << 20, u64::MAX)]);
    }

    #[test]
    fn what_the_probe_finds_is_told_and_mended_without_a_gap() {
        use crate::doctor::launcher::Launcher;
        use crate::doctor::texts::{Words, gap};
        use crate::lang::Lang;
        use mkey_os::error::Errno;
        use mkey_os::prefault::PrefaultError;
        let pool = |page_size| Pool {
            page_size,
            total: 8,
            free: 8,
            reserved: 0,
            surplus: 0,
            overcommit: 0,
            nodes: Vec::new(),
        };
        let room = |file: &str, unlimited| {
            Some(cgroups::Room { limit: 0, used: 0, file: file.to_owned(), unlimited })
        };
        let v1 = "sys/fs/cgroup/hugetlb/a/hugetlb.1GB.limit_in_bytes";
        let v2 = "sys/fs/cgroup/a/hugetlb.2MB.rsvd.max";
        let prefault = Reason::Prefault(PrefaultError {
            addr: 0,
            len: 1,
            source: OsError { call: "madvise", errno: Errno::FAULT },
        });
        let words = Words::load().unwrap();
        let mut all = Vec::new();
        for limits in [[None, None], [room(v1, "-1"), None], [None, room(v2, "max")]] {
            for refused in
                [None, Some(None), Some(Some(&prefault)), Some(Some(&Reason::NoSuchSize))]
            {
                for page in [2 << 20, 1 << 30] {
                    all.push(judge(&pool(page), refused, limits.clone()));
                }
            }
        }
        let systemd = Launcher::Systemd { unit: "a.service".to_owned() };
        let user = Launcher::SystemdUser { unit: "a.scope".to_owned() };
        for launcher in [
            Launcher::Shell,
            systemd,
            user,
            Launcher::Docker,
            Launcher::Kubernetes,
            Launcher::Slurm,
        ] {
            for finding in &all {
                for lang in [Lang::En, Lang::Zh] {
                    let check = words.check(finding, &launcher, lang);
                    assert_eq!(gap(&check), None, "{check:#?}");
                    assert_eq!(check.mend.is_empty(), check.status == Status::Ok, "{check:#?}");
                }
            }
        }
        let mend = |finding: Finding, launcher: &Launcher| {
            format!("{:?}", words.check(&finding, launcher, Lang::En).mend)
        };
        let big = || judge(&pool(1 << 30), Some(Some(&prefault)), [room(v1, "-1"), None]);
        assert!(mend(big(), &Launcher::Shell).contains(&format!("echo -1 | sudo tee /{v1}")));
        assert!(mend(big(), &Launcher::Kubernetes).contains("hugepages-1Gi: 1Gi"));
        let small = judge(&pool(2 << 20), Some(None), [None, room(v2, "max")]);
        assert!(mend(small, &Launcher::Shell).contains(&format!("echo max | sudo tee /{v2}")));
        // A limit that leaves room is not the cause.
        let free = room(v1, "-1").map(|room| cgroups::Room { limit: 1 << 40, ..room });
        let other = judge(&pool(1 << 30), Some(Some(&prefault)), [free, None]);
        assert!(mend(other, &Launcher::Shell).contains("dmesg"));
    }
}
