//! The report as text: its findings first, then what they stand on. What there is nothing of is left out.

use super::Report;
use super::failures::Explained;
use super::findings::Severity;
use super::grid::{WIDTH, cut, paragraph, shades, table};
use super::ground::Kind;
use super::places::Place;
use super::says::{count, ns, percent, plural};
use super::tally::SiteCost;
use crate::bench::units::{per_second, size, time};
use crate::lang::Lang;
use mkey_trace::format::Pages;

/// Characters of a line over time.
const STEPS: usize = 60;
/// Places that a finding tells.
const MOST_SITES: usize = 3;

/// The report as text, in its language; at most 118 columns wide.
pub fn text(report: &Report) -> String {
    let parts = [
        head(report),
        findings(report),
        verbs(report),
        sites(report),
        latency(report),
        over_time(report),
        pieces(report),
        rights(report),
        open(report),
        others(report),
        failures(report),
        lifetimes(report),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

fn head(report: &Report) -> String {
    let (head, lang) = (&report.head, report.lang);
    let mut out = paragraph("mkey trace: ", &cut(&head.command.join(" "), 2 * WIDTH));
    let cpu = head.cpu_ns.map_or_else(|| lang.pick("unknown", "未知").to_owned(), ns);
    let (wall, processes, threads) = (ns(head.wall_ns), head.processes, head.threads);
    let posts = count(head.posts);
    let end = &head.end;
    let line = match lang {
        Lang::En => format!(
            "{wall} wall, {cpu} CPU, {end}; processes with a device: {processes}, threads: {threads}, work requests: {posts}"
        ),
        Lang::Zh => format!(
            "墙钟 {wall}，CPU {cpu}，{end}；打开设备的进程 {processes}，线程 {threads}，请求 {posts}"
        ),
    };
    out += &paragraph("  ", &line);
    let devices: Vec<String> = head
        .devices
        .iter()
        .map(|device| match (device.command_cost_ns, device.soft, lang) {
            (Some(ns), _, Lang::En) => {
                format!(
                    "{} (simulated: software RNIC, a declared {} a command)",
                    device.name,
                    time(ns as f64)
                )
            }
            (Some(ns), _, Lang::Zh) => {
                format!("{}（模拟：软件 RNIC，每条命令声明为 {}）", device.name, time(ns as f64))
            }
            (None, false, _) => device.name.clone(),
            (None, true, Lang::En) => {
                format!("{} (software RNIC: a NIC's registrations cost more)", device.name)
            }
            (None, true, Lang::Zh) => {
                format!("{}（软件 RNIC：真实网卡的注册开销更大）", device.name)
            }
        })
        .collect();
    if !devices.is_empty() {
        let label = lang.pick("devices: ", "设备：");
        out += &paragraph("  ", &format!("{label}{}", devices.join(", ")));
    }
    let over = &head.overhead;
    if let Some(call) = over.ns_per_call {
        let (call, post, calls) = (time(call), time(over.ns_per_post), count(over.calls));
        out += &paragraph(
            "  ",
            &match lang {
                Lang::En => {
                    format!("tracing took {call} a call ({calls} calls) and {post} a work request")
                }
                Lang::Zh => format!("跟踪开销：每次调用 {call}（共 {calls} 次），每个请求 {post}"),
            },
        );
    }
    for process in &head.not_exited.first {
        let (pid, name) = (process.pid, cut(&process.arguments.join(" "), 60));
        out += &paragraph(
            "  ",
            &match (process.running, lang) {
                (true, Lang::En) => format!(
                    "process {pid} ({name}) had not ended: what it held at the end is no leak"
                ),
                (true, Lang::Zh) => format!("进程 {pid}（{name}）尚未结束：它最后持有的不算泄漏"),
                (false, Lang::En) => format!(
                    "process {pid} ({name}) did not end by exit: what it held at the end is no leak"
                ),
                (false, Lang::Zh) => {
                    format!("进程 {pid}（{name}）不是由 exit 结束：它最后持有的不算泄漏")
                }
            },
        );
    }
    out += &more(head.not_exited.more, lang);
    out.push('\n');
    if report.registration.calls() == 0 {
        let none = lang.pick("No memory was registered.", "没有注册任何内存。");
        return out + &paragraph("", none);
    }
    let mut cost = super::says::cost(report);
    if let Some(first) = cost.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    out + &paragraph("", &format!("{cost}{}", lang.pick(".", "。")))
}

fn findings(report: &Report) -> String {
    let lang = report.lang;
    if report.findings.is_empty() {
        return paragraph(
            "",
            lang.pick("Nothing was found that is worth a change.", "没有发现值得修改之处。"),
        );
    }
    let mut out = title(lang.pick("What was found", "发现"));
    for (n, finding) in report.findings.iter().enumerate() {
        let severity = match finding.severity {
            Severity::Error => lang.pick("ERROR", "错误"),
            Severity::Warning => lang.pick("WARN", "警告"),
            Severity::Info => lang.pick("info", "提示"),
        };
        out += &paragraph(
            &format!("{:>2}. ", n + 1),
            &format!("{severity} {}: {}", finding.code, finding.what),
        );
        let known = finding.sites.first.iter().filter(|site| !site.place.at.is_empty());
        for site in known.take(MOST_SITES) {
            out += &paragraph(
                "      ",
                &format!("{} {}", lang.pick("at", "位于"), site_words(site, lang)),
            );
        }
        let hidden = finding.sites.count().saturating_sub(MOST_SITES as u64);
        if hidden > 0 {
            out += &paragraph("      ", more(hidden, lang).trim());
        }
        if finding.severity != Severity::Info {
            out +=
                &paragraph("      ", &format!("{}{}", lang.pick("mend: ", "改法："), finding.mend));
        }
    }
    out
}

/// A place with the way to it, and what is said of it.
fn site_words(site: &SiteCost, lang: Lang) -> String {
    let mut words = place_words(&site.place, lang);
    if site.ns > 0 {
        words += &format!(": {} x, {}", count(site.calls), ns(site.ns));
    } else {
        words += &format!(": {} x", count(site.calls));
    }
    if site.bytes > 0 {
        words += &format!(", {}", size(site.bytes));
    }
    words
}

/// A place with the way to it: through the libraries that it called, and from where.
pub fn place_words(place: &Place, lang: Lang) -> String {
    if place.at.is_empty() {
        return lang.pick("a place that is not known", "未知位置").to_owned();
    }
    let through = place.through.iter().rev().map(|frame| format!(" -> {frame}"));
    let from = place.from.iter().take(2).map(|frame| format!(" <- {frame}"));
    place.at.clone() + &through.chain(from).collect::<String>()
}

fn verbs(report: &Report) -> String {
    let lang = report.lang;
    let rows: Vec<Vec<String>> = report
        .registration
        .verbs
        .iter()
        .map(|verb| {
            vec![
                verb.verb.clone(),
                count(verb.times.calls),
                if verb.failed > 0 { count(verb.failed) } else { "-".to_owned() },
                ns(verb.times.ns),
                ns(verb.times.p50_ns),
                ns(verb.times.p99_ns),
                ns(verb.times.max_ns),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads = match lang {
        Lang::En => ["verb", "calls", "failed", "time", "p50", "p99", "longest"],
        Lang::Zh => ["verb", "次数", "失败", "用时", "p50", "p99", "最长"],
    };
    title(lang.pick("Calls", "调用")) + &table(&heads, &[0], &rows)
}

fn sites(report: &Report) -> String {
    let (sites, lang) = (&report.registration.sites, report.lang);
    if sites.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = sites
        .first
        .iter()
        .map(|site| {
            let sizes = match (site.least_bytes, site.most_bytes) {
                (a, b) if a == b => size(a),
                (a, b) => format!("{} - {}", size(a), size(b)),
            };
            vec![
                count(site.calls),
                ns(site.ns),
                percent(site.share),
                size(site.bytes),
                sizes,
                place_words(&site.place, lang),
            ]
        })
        .collect();
    let heads = match lang {
        Lang::En => ["calls", "time", "of wall", "bytes", "sizes", "where"],
        Lang::Zh => ["次数", "用时", "占墙钟", "字节", "大小", "位置"],
    };
    title(lang.pick("Registration by place", "各位置的注册"))
        + &table(&heads, &[5], &rows)
        + &more(sites.more, lang)
}

/// The words for a kind of call.
pub fn kind(kind: Kind, lang: Lang) -> &'static str {
    match kind {
        Kind::Register => lang.pick("register", "注册"),
        Kind::Reregister => lang.pick("reregister", "重新注册"),
        Kind::Deregister => lang.pick("deregister", "注销"),
    }
}

/// The words for a kind of pages.
pub fn pages(pages: Pages, lang: Lang) -> &'static str {
    match pages {
        Pages::Unknown => lang.pick("not known", "未知"),
        Pages::Small => "4 KiB",
        Pages::Thp => lang.pick("transparent huge", "透明大页"),
        Pages::Huge2M => "2 MiB",
        Pages::Huge1G => "1 GiB",
        Pages::Shared => lang.pick("shared", "共享内存"),
        Pages::File => lang.pick("file", "文件"),
        Pages::Device => lang.pick("device", "设备"),
        Pages::None => lang.pick("none", "无"),
    }
}

/// The words for a class of sizes.
pub fn class(up_to: u64, lang: Lang) -> String {
    match up_to {
        0 => lang.pick("without", "无").to_owned(),
        up_to => format!("<= {}", size(up_to)),
    }
}

fn latency(report: &Report) -> String {
    let lang = report.lang;
    if report.latency.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = report
        .latency
        .iter()
        .map(|cell| {
            vec![
                kind(cell.kind, lang).to_owned(),
                class(cell.up_to_bytes, lang),
                pages(cell.pages, lang).to_owned(),
                count(cell.times.calls),
                ns(cell.times.p50_ns),
                ns(cell.times.p99_ns),
                ns(cell.times.max_ns),
            ]
        })
        .collect();
    let heads = match lang {
        Lang::En => ["", "size", "pages", "calls", "p50", "p99", "longest"],
        Lang::Zh => ["", "大小", "页", "次数", "p50", "p99", "最长"],
    };
    title(lang.pick("Time by size and pages", "按大小和页的用时")) + &table(&heads, &[0, 2], &rows)
}

fn over_time(report: &Report) -> String {
    let (over, lang) = (&report.over_time, report.lang);
    if report.registration.calls() == 0 {
        return String::new();
    }
    let each = over.registrations.len().div_ceil(STEPS).max(1);
    let sums = |values: &[u64]| -> Vec<u64> {
        values
            .chunks(each)
            .map(|part| part.iter().fold(0u64, |a, b| a.saturating_add(*b)))
            .collect()
    };
    let most = |values: &[u64]| -> Vec<u64> {
        values.chunks(each).map(|part| part.iter().copied().max().unwrap_or(0)).collect()
    };
    let step = over.bucket_ns.saturating_mul(each as u64);
    let rate = |values: &[u64]| {
        let most = values.iter().copied().max().unwrap_or(0);
        format!("{}/s", per_second(most as f64 * 1e9 / step as f64))
    };
    let rows = [
        (lang.pick("registrations", "注册"), sums(&over.registrations), None),
        (lang.pick("deregistrations", "注销"), sums(&over.deregistrations), None),
        (lang.pick("work requests", "请求"), sums(&over.posts), None),
        (
            lang.pick("bytes registered", "已注册字节"),
            most(&over.registered),
            Some(over.peak_registered),
        ),
        (lang.pick("VmPin", "VmPin"), most(&over.pinned), Some(over.peak_pinned)),
    ];
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .filter(|(_, values, _)| values.iter().any(|value| *value > 0))
        .map(|(name, values, peak)| {
            let peak = peak.map_or_else(|| rate(&values), size);
            vec![name.to_owned(), peak, format!("|{}|", shades(&values))]
        })
        .collect();
    let heads = [
        String::new(),
        lang.pick("at most", "最多").to_owned(),
        format!("{} {}", lang.pick("one character is", "每字符"), ns(step)),
    ];
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    title(lang.pick("Over time", "随时间")) + &table(&heads, &[0, 2], &rows)
}

fn pieces(report: &Report) -> String {
    let (of, lang) = (&report.repeated.largest, report.lang);
    if of.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = of
        .first
        .iter()
        .map(|piece| {
            vec![
                format!("{:#x}", piece.addr),
                size(piece.len),
                pages(piece.pages, lang).to_owned(),
                count(piece.times),
                ns(piece.ns),
                ns(piece.first_ns),
                place_words(&piece.place, lang),
            ]
        })
        .collect();
    let heads = match lang {
        Lang::En => ["address", "size", "pages", "times", "time", "the first", "where (last)"],
        Lang::Zh => ["地址", "大小", "页", "次数", "用时", "首次", "位置（最后）"],
    };
    title(lang.pick("The same memory again and again", "反复注册的内存"))
        + &table(&heads, &[0, 2, 6], &rows)
        + &more(of.more, lang)
}

fn rights(report: &Report) -> String {
    let (of, lang) = (&report.rights, report.lang);
    if of.excess.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = of
        .excess
        .first
        .iter()
        .map(|excess| {
            vec![
                count(excess.regions),
                size(excess.bytes),
                excess.unused.join(", "),
                place_words(&excess.place, lang),
            ]
        })
        .collect();
    let heads = match lang {
        Lang::En => ["regions", "bytes", "granted and never used", "where"],
        Lang::Zh => ["区域", "字节", "已授予但从未使用", "位置"],
    };
    title(lang.pick("Rights", "权限"))
        + &table(&heads, &[2, 3], &rows)
        + &more(of.excess.more, lang)
}

/// What is not known.
fn open(report: &Report) -> String {
    let (held, lang) = (&report.held, report.lang);
    let mut lines = Vec::new();
    let regions = |of: &super::held::Regions| (count(of.regions), size(of.bytes));
    if held.maybe_used_by_peer.regions > 0 {
        let (n, bytes) = regions(&held.maybe_used_by_peer);
        lines.push(match lang {
            Lang::En => format!("whether {n} {} ({bytes}) with remote rights {} used: not by this side, and a peer was not traced, as far as is known", plural(held.maybe_used_by_peer.regions, "region", "regions"), plural(held.maybe_used_by_peer.regions, "was", "were")),
            Lang::Zh => format!("{n} 个有远程权限的区域（{bytes}）是否被使用：本端没有使用，而就所知并非所有对端都被跟踪"),
        });
    }
    if held.posts_not_seen.regions > 0 {
        let (n, bytes) = regions(&held.posts_not_seen);
        lines.push(match lang {
            Lang::En => format!("whether {n} {} ({bytes}) used: its process, or a peer, may post past libibverbs (mlx5dv), where work is not seen", plural(held.posts_not_seen.regions, "region was", "regions were")),
            Lang::Zh => format!("{n} 个区域（{bytes}）是否被使用：其进程或对端可能绕过 libibverbs 投递（mlx5dv），这些请求无法看到"),
        });
    }
    if report.rights.not_known > 0 {
        let n = count(report.rights.not_known);
        lines.push(match lang {
            Lang::En => format!(
                "whether the remote rights of {n} {} were used: a peer was not traced, or posts past libibverbs, as far as is known",
                plural(report.rights.not_known, "region", "regions")
            ),
            Lang::Zh => format!("{n} 个区域的远程权限是否被使用：就所知并非所有对端都被跟踪，或有对端绕过 libibverbs 投递"),
        });
    }
    if report.windows.open > 0 {
        let n = count(report.windows.open);
        lines.push(match lang {
            Lang::En => format!(
                "whether {n} {} would have been bound or taken back: the process did not end by exit",
                plural(report.windows.open, "window", "windows")
            ),
            Lang::Zh => format!("{n} 个窗口是否会被绑定或收回：其进程不是由 exit 结束"),
        });
    }
    if held.open.regions > 0 {
        let (n, bytes) = regions(&held.open);
        lines.push(match lang {
            Lang::En => format!("whether {n} {} ({bytes}) would have been deregistered: the process did not end by exit", plural(held.open.regions, "region", "regions")),
            Lang::Zh => format!("{n} 个区域（{bytes}）是否会被注销：其进程不是由 exit 结束"),
        });
    }
    if lines.is_empty() {
        return String::new();
    }
    let lines: String = lines.iter().map(|line| paragraph("  - ", line)).collect();
    title(lang.pick("Not known", "无法得知")) + &lines
}

fn others(report: &Report) -> String {
    let (windows, lang) = (&report.windows, report.lang);
    let mut out = String::new();
    if windows.count() > 0 {
        let [one, two, binds, unbinds, gone, remote] = [
            windows.type_1,
            windows.type_2,
            windows.binds,
            windows.unbinds,
            windows.invalidations,
            windows.remote_invalidations,
        ]
        .map(count);
        out += &title(lang.pick("Memory windows", "内存窗口"));
        out += &paragraph(
            "  ",
            &match lang {
                Lang::En => format!(
                    "type 1: {one}, type 2: {two}; binds {binds}, unbinds {unbinds}, invalidated by their own process {gone}, SENDs with invalidate {remote}"
                ),
                Lang::Zh => format!(
                    "类型 1：{one}，类型 2：{two}；绑定 {binds}，解绑 {unbinds}，本进程失效 {gone}，带失效的 SEND {remote}"
                ),
            },
        );
    }
    if !report.counters.moved.is_empty() {
        if !out.is_empty() {
            out.push('\n');
        }
        out += &title(lang.pick("Counters of the devices that moved", "有变化的设备计数器"));
        let each = report.counters.moved.iter();
        let all: Vec<String> = each
            .map(|moved| format!("{} {} +{}", moved.device, moved.name, count(moved.by)))
            .collect();
        out += &paragraph("  ", &all.join(", "));
    }
    out
}

fn failures(report: &Report) -> String {
    let (of, lang) = (&report.failures, report.lang);
    let mut out = String::new();
    for call in &of.calls.first {
        let (times, at) = (count(call.times), place_words(&call.place, lang));
        out += &paragraph(
            "  ",
            &match lang {
                Lang::En => format!("{} {}: {times} x at {at}", call.verb, call.name),
                Lang::Zh => format!("{} {}：{times} 次，位于 {at}", call.verb, call.name),
            },
        );
        out += &explained(call.explained.as_ref(), lang);
    }
    out += &more(of.calls.more, lang);
    for work in &of.work.first {
        let (times, queues, at) = (count(work.times), count(work.queues), ns(work.first_at));
        let vendor = work
            .vendor
            .filter(|v| *v != 0)
            .map_or_else(String::new, |v| format!(", vendor_err {v:#x}"));
        let first = work.first_queue;
        out += &paragraph(
            "  ",
            &match lang {
                Lang::En => format!(
                    "{} ({}{vendor}): {times} x on {queues} {}, first after {at} on queue pair {first:#x}",
                    work.name,
                    work.status,
                    plural(work.queues, "queue", "queues")
                ),
                Lang::Zh => format!(
                    "{}（{}{vendor}）：{times} 次，{queues} 个队列，首次在 {at} 后，QP {first:#x}",
                    work.name, work.status
                ),
            },
        );
        out += &explained(work.explained.as_ref(), lang);
    }
    out += &more(of.work.more, lang);
    if out.is_empty() { out } else { title(lang.pick("Failures", "失败")) + &out }
}

fn explained(explained: Option<&Explained>, lang: Lang) -> String {
    let Some(explained) = explained else { return String::new() };
    let mut out = paragraph("      ", &explained.meaning);
    for cause in &explained.causes {
        let text = format!("{}{}{}", cause.cause, lang.pick(" Mend: ", "改法："), cause.mend);
        out += &paragraph("      - ", &text);
    }
    out
}

fn lifetimes(report: &Report) -> String {
    let (of, lang) = (&report.lifetimes, report.lang);
    if of.is_empty() {
        return String::new();
    }
    let mut out =
        title(lang.pick("Memory and keys, their mistakes one by one", "内存与键的各个错误"));
    for one in &of.first {
        out += &paragraph("  - ", &one.what);
        for (name, place) in
            [(lang.pick("done", "操作"), &one.place), (lang.pick("before", "此前"), &one.before)]
        {
            out += &paragraph(&format!("      {name}: "), &place_words(place, lang));
        }
    }
    out + &more(of.more, lang)
}

fn title(words: &str) -> String {
    format!("{words}\n")
}

/// How many are not told.
fn more(n: u64, lang: Lang) -> String {
    match (n, lang) {
        (0, _) => String::new(),
        (n, Lang::En) => format!("  and {} more\n", count(n)),
        (n, Lang::Zh) => format!("  另有 {} 项\n", count(n)),
    }
}
