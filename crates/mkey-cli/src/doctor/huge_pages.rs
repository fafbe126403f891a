//! Huge pages: what is set aside, by size and node, what was asked for at boot, and one obtained.

use super::code::Code;
use super::context::{Context, DEVICES};
use super::files::garbage;
use super::finding::{Finding, Status};
use crate::bench::sizes::parse_bytes;
use crate::bench::units::size;
use mkey_os::hugepages::{self, Pool};
use mkey_os::ladder::{self, Pages, Reason, Request};
use mkey_os::mapping::PageKind;

/// The folder of the pools.
const POOLS: &str = "sys/kernel/mm/hugepages";

/// The checks.
pub fn check(at: &Context) -> Vec<Finding> {
    let root = at.files.root();
    let sizes = hugepages::sizes_below(root);
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
    let pools: Vec<_> =
        sizes.iter().map(|size| (*size, hugepages::pool_below(root, *size))).collect();
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
            findings.extend(obtain(pool));
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

fn boot(at: &Context, pools: &[(usize, Option<Pool>)]) -> Vec<Finding> {
    let path = "proc/cmdline";
    let line = match at.files.line(path) {
        Ok(line) => line,
        Err(unread) => return vec![Finding::unread(Code::HugePagesBoot, &unread)],
    };
    let asked = asked(&line, 2 << 20);
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
        let free = pool.nodes.iter().find(|known| known.node == node)?.free;
        let (status, says) =
            if free == 0 { (Status::Warn, "none-near") } else { (Status::Ok, "near") };
        let finding = Finding::new(Code::HugePagesNode, status, says)
            .of(format!("{device} {}", size(pool.page_size as u64)))
            .word("device", &device)
            .word("kib", pool.page_size / 1024)
            .word("more", default_more(pool.page_size))
            .value("node", node)
            .measure("free", free)
            .file(&path);
        Some(finding.mend("huge-pages-node"))
    };
    at.devices().into_iter().filter_map(near).collect()
}

/// Obtains one page, and gives it back.
fn obtain(pool: &Pool) -> Option<Finding> {
    let kinds = [PageKind::Huge2M, PageKind::Huge1G];
    let kind = kinds.into_iter().find(|kind| kind.size() == pool.page_size)?;
    let subject = size(pool.page_size as u64);
    if !has_pages(pool) {
        return Some(
            Finding::new(Code::HugePageProbe, Status::NotApplicable, "no-pool").of(subject),
        );
    }
    let request = Request { len: kind.size(), pages: Pages::Exactly(kind), numa_node: None };
    let finding = match ladder::obtain_prefaulted(&request, 1, |_, _| ()) {
        Ok(_) => Finding::new(Code::HugePageProbe, Status::Ok, "obtained"),
        Err(error) => {
            let refused = error.refused.into_iter().next();
            let why = refused.as_ref().map(|r| r.reason.to_string()).unwrap_or_default();
            match refused.map(|refused| refused.reason) {
                // Promised and then not given: a control group, or memory that failed.
                Some(Reason::Prefault(_)) => {
                    Finding::new(Code::HugePageProbe, Status::Fail, "not-given")
                        .mend("huge-pages-cgroup")
                }
                _ => Finding::new(Code::HugePageProbe, Status::Warn, "refused").mend("huge-pages"),
            }
            .word("why", why)
        }
    };
    Some(
        finding
            .of(subject)
            .word("kib", pool.page_size / 1024)
            .word("more", pool.total.saturating_add(default_more(pool.page_size)))
            .by("mmap(MAP_HUGETLB)")
            .by("madvise(MADV_POPULATE_WRITE)"),
    )
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
}
