//! The page of `mkey trace`.

use super::page::{Item, Page, Plot, Section, Table, TableRow};
use super::svg::{self, Dot, Series};
use super::timeline::{self, Column, Line};
use crate::bench::units::{per_second, size, time};
use crate::lang::Lang;
use crate::trace::analyse::Report;
use crate::trace::analyse::findings::Severity;
use crate::trace::analyse::ground::Kind;
use crate::trace::analyse::latency::Cell;
use crate::trace::analyse::list::List;
use crate::trace::analyse::says::{cost, count, ns, percent};
use crate::trace::analyse::text::{class, kind, pages, place_words};
use mkey_trace::format::Pages;
use std::collections::BTreeMap;

/// The page of a report.
pub fn page(report: &Report) -> Page {
    let (head, lang) = (&report.head, report.lang);
    let fact = |en: &str, zh: &str, value: String| (lang.pick(en, zh).to_owned(), value);
    let devices = head.devices.iter().map(|device| match (device.soft, lang) {
        (false, _) => device.name.clone(),
        (true, Lang::En) => format!("{} (software RNIC)", device.name),
        (true, Lang::Zh) => format!("{}（软件 RNIC）", device.name),
    });
    let devices: Vec<String> = devices.collect();
    let soft = head.devices.iter().any(|device| device.soft);
    let label = match (soft, lang) {
        (true, Lang::En) => {
            "Figures of a software RNIC among them: a NIC's registrations cost more"
        }
        (true, Lang::Zh) => "其中含软件 RNIC 的数据：真实网卡的注册开销更大",
        (false, Lang::En) => "As recorded on this host",
        (false, Lang::Zh) => "在本主机上记录",
    };
    let sections = [
        findings(report),
        over_time(report),
        latency(report),
        sites(report),
        verbs(report),
        pieces(report),
        lifetimes(report),
    ];
    Page {
        title: format!("mkey trace: {}", head.command.join(" ")),
        label: label.to_owned(),
        facts: vec![
            fact("devices", "设备", devices.join(", ")),
            fact("wall time", "墙钟时间", ns(head.wall_ns)),
            fact("CPU time", "CPU 时间", head.cpu_ns.map_or_else(|| "?".to_owned(), ns)),
            fact("ended", "结束", head.end.clone()),
            fact("processes", "进程", head.processes.to_string()),
            fact("threads", "线程", head.threads.to_string()),
            fact("work requests", "请求", count(head.posts)),
            fact("host", "主机", format!("{}, {}", head.host, head.cpu)),
            fact("Linux", "Linux", head.kernel.clone()),
            fact(
                "tracing, a call",
                "跟踪每次调用",
                head.overhead.ns_per_call.map_or_else(|| "?".to_owned(), time),
            ),
            fact("tracing, a work request", "跟踪每个请求", time(head.overhead.ns_per_post)),
            fact("lost records", "丢失的记录", count(head.overhead.lost)),
        ],
        sections: sections.into_iter().flatten().collect(),
    }
}

fn findings(report: &Report) -> Option<Section> {
    let lang = report.lang;
    let nothing = lang.pick("Nothing was found that is worth a change.", "没有发现值得修改之处。");
    let rows = report.findings.iter().map(|finding| {
        let severity = match finding.severity {
            Severity::Error => lang.pick("error", "错误"),
            Severity::Warning => lang.pick("warning", "警告"),
            Severity::Info => lang.pick("info", "提示"),
        };
        let place = finding.sites.first.first();
        TableRow::cells(vec![
            severity.to_owned(),
            finding.code.to_string(),
            finding.what.clone(),
            place.map_or_else(String::new, |site| place_words(&site.place, lang)),
            finding.mend.to_owned(),
        ])
    });
    let heads = match lang {
        Lang::En => ["", "code", "what", "where most", "what to change"],
        Lang::Zh => ["", "代码", "发现", "主要位置", "改法"],
    };
    let mut notes = Vec::new();
    if report.registration.calls() > 0 {
        notes.push(cost(report));
    }
    if report.findings.is_empty() {
        notes.push(nothing.to_owned());
    }
    Some(Section {
        title: lang.pick("What was found", "发现").to_owned(),
        notes,
        table: table(&heads, &[0, 1], &[2, 3, 4], rows.collect()),
        ..Section::default()
    })
}

fn table(heads: &[&str], words: &[usize], long: &[usize], rows: Vec<TableRow>) -> Option<Table> {
    (!rows.is_empty()).then(|| Table {
        heads: heads.iter().map(|head| (*head).to_owned()).collect(),
        words: words.to_vec(),
        long: long.to_vec(),
        rows,
    })
}

fn over_time(report: &Report) -> Option<Section> {
    let (over, lang) = (&report.over_time, report.lang);
    let per_bucket = |values: &[u64]| -> Vec<f64> {
        values.iter().map(|n| *n as f64 * 1e9 / over.bucket_ns.max(1) as f64).collect()
    };
    let bytes = |values: &[u64]| -> Vec<f64> { values.iter().map(|n| *n as f64).collect() };
    let line = |en: &str, zh: &str, colour, values| Line {
        name: lang.pick(en, zh).to_owned(),
        colour,
        values,
    };
    let rate = |value: f64| format!("{}/s", per_second(value));
    let much = |value: f64| size(value as u64);
    let plot = |en: &str, zh: &str, lines: &[Line], unit: &dyn Fn(f64) -> String| {
        let caption = lang.pick(en, zh).to_owned();
        Some(Plot { svg: timeline::over_time(&caption, over.bucket_ns, lines, unit)?, caption })
    };
    let plots = [
        plot(
            "Registrations and deregistrations a second",
            "每秒注册与注销",
            &[
                line("registrations", "注册", 0, per_bucket(&over.registrations)),
                line("deregistrations", "注销", 1, per_bucket(&over.deregistrations)),
            ],
            &rate,
        ),
        plot(
            "Registered bytes, and bytes pinned as the kernel counts (VmPin)",
            "已注册字节，以及内核计数的固定字节（VmPin）",
            &[
                line("registered", "已注册", 2, bytes(&over.registered)),
                line("VmPin", "VmPin", 3, bytes(&over.pinned)),
            ],
            &much,
        ),
        plot(
            "Work requests a second",
            "每秒请求",
            &[line("work requests", "请求", 4, per_bucket(&over.posts))],
            &rate,
        ),
    ];
    section(lang.pick("Over time", "随时间"), Vec::new(), plots, None)
}

/// A section, if it has anything.
fn section<const N: usize>(
    title: &str,
    notes: Vec<String>,
    plots: [Option<Plot>; N],
    table: Option<Table>,
) -> Option<Section> {
    let plots: Vec<Plot> = plots.into_iter().flatten().collect();
    let title = title.to_owned();
    (!plots.is_empty() || table.is_some()).then(|| Section {
        title,
        notes,
        plots,
        table,
        ..Section::default()
    })
}

fn latency(report: &Report) -> Option<Section> {
    let lang = report.lang;
    let rows = report.latency.iter().map(|cell| {
        TableRow::cells(vec![
            kind(cell.kind, lang).to_owned(),
            class(cell.up_to_bytes, lang),
            pages(cell.pages, lang).to_owned(),
            count(cell.times.calls),
            ns(cell.times.ns),
            ns(cell.times.p50_ns),
            ns(cell.times.p99_ns),
            ns(cell.times.max_ns),
        ])
    });
    let heads = match lang {
        Lang::En => ["", "size", "pages", "calls", "time", "p50", "p99", "longest"],
        Lang::Zh => ["", "大小", "页", "次数", "用时", "p50", "p99", "最长"],
    };
    let table = table(&heads, &[0, 2], &[], rows.collect());
    let of =
        |of: Kind| -> Vec<&Cell> { report.latency.iter().filter(|cell| cell.kind == of).collect() };
    let (register, deregister) = (of(Kind::Register), of(Kind::Deregister));
    let plots = [
        by_size(lang.pick("register, by size and pages", "注册，按大小和页"), &register, lang),
        by_size(lang.pick("deregister, by size and pages", "注销，按大小和页"), &deregister, lang),
        histogram(
            lang.pick("register: how many calls took how long", "注册：多少次调用用时多久"),
            &register,
        ),
        histogram(
            lang.pick("deregister: how many calls took how long", "注销：多少次调用用时多久"),
            &deregister,
        ),
    ];
    let notes = lang.pick(
        "Points are medians, lines go up to the 99th percentile; axes are logarithmic.",
        "点为中位数，线至第 99 百分位；坐标轴为对数。",
    );
    section(
        lang.pick("Time by size and pages", "按大小和页的用时"),
        vec![notes.to_owned()],
        plots,
        table,
    )
}

fn by_size(caption: &str, cells: &[&Cell], lang: Lang) -> Option<Plot> {
    let mut by_pages: BTreeMap<Pages, Vec<Dot>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.up_to_bytes > 0) {
        by_pages.entry(cell.pages).or_default().push(Dot {
            bytes: cell.up_to_bytes as f64,
            median: cell.times.p50_ns as f64,
            p99: cell.times.p99_ns as f64,
            disturbed: false,
        });
    }
    let series: Vec<Series> = by_pages
        .into_iter()
        .enumerate()
        .map(|(colour, (of, points))| Series {
            name: pages(of, lang).to_owned(),
            colour,
            line: points.iter().map(|dot| (dot.bytes, dot.median)).collect(),
            points,
            far: Vec::new(),
        })
        .collect();
    Some(Plot { svg: svg::log_log(caption, &series)?, caption: caption.to_owned() })
}

/// Sizes that columns are told apart by.
const CLASSES: [(u64, &str); 6] = [
    (4 << 10, "<= 4 KiB"),
    (64 << 10, "<= 64 KiB"),
    (1 << 20, "<= 1 MiB"),
    (16 << 20, "<= 16 MiB"),
    (256 << 20, "<= 256 MiB"),
    (u64::MAX, "> 256 MiB"),
];

fn histogram(caption: &str, cells: &[&Cell]) -> Option<Plot> {
    let mut by_time: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for cell in cells {
        let class = CLASSES.iter().position(|(up_to, _)| cell.up_to_bytes <= *up_to).unwrap_or(0);
        for bucket in &cell.buckets {
            let counts = by_time.entry(bucket.up_to_ns).or_insert_with(|| vec![0; CLASSES.len()]);
            if let Some(count) = counts.get_mut(class) {
                *count = count.saturating_add(bucket.calls);
            }
        }
    }
    // Times between that no call took are columns, too.
    let (first, last) = (*by_time.keys().next()?, *by_time.keys().next_back()?);
    let times = std::iter::successors(Some(first), |at| at.checked_mul(2).filter(|at| *at <= last));
    let columns: Vec<Column> = times
        .map(|at| Column {
            label: format!("<= {}", time(at as f64)),
            counts: by_time.get(&at).cloned().unwrap_or_default(),
        })
        .collect();
    let kinds = CLASSES.map(|(_, name)| name.to_owned());
    Some(Plot { svg: timeline::columns(caption, &kinds, &columns)?, caption: caption.to_owned() })
}

fn sites(report: &Report) -> Option<Section> {
    let (sites, lang) = (&report.registration.sites, report.lang);
    let rows = sites.first.iter().map(|site| {
        TableRow::cells(vec![
            count(site.calls),
            ns(site.ns),
            percent(site.share),
            size(site.bytes),
            size(site.least_bytes),
            size(site.most_bytes),
            place_words(&site.place, lang),
        ])
    });
    let heads = match lang {
        Lang::En => ["calls", "time", "of wall", "bytes", "least", "most", "where"],
        Lang::Zh => ["次数", "用时", "占墙钟", "字节", "最小", "最大", "位置"],
    };
    let table = table(&heads, &[], &[6], rows.collect());
    section(lang.pick("Registration by place", "各位置的注册"), more(sites, lang), [], table)
}

/// How many entries of a list are not told.
fn more<T>(list: &List<T>, lang: Lang) -> Vec<String> {
    let words = match lang {
        Lang::En => format!("And {} more.", count(list.more)),
        Lang::Zh => format!("另有 {} 项。", count(list.more)),
    };
    if list.more > 0 { vec![words] } else { Vec::new() }
}

fn verbs(report: &Report) -> Option<Section> {
    let lang = report.lang;
    let rows = report.registration.verbs.iter().map(|verb| {
        TableRow::cells(vec![
            verb.verb.clone(),
            count(verb.times.calls),
            count(verb.failed),
            ns(verb.times.ns),
            ns(verb.times.p50_ns),
            ns(verb.times.p99_ns),
            ns(verb.times.max_ns),
        ])
    });
    let heads = match lang {
        Lang::En => ["verb", "calls", "failed", "time", "p50", "p99", "longest"],
        Lang::Zh => ["verb", "次数", "失败", "用时", "p50", "p99", "最长"],
    };
    let table = table(&heads, &[0], &[], rows.collect());
    section(lang.pick("Calls", "调用"), Vec::new(), [], table)
}

fn pieces(report: &Report) -> Option<Section> {
    let (of, lang) = (&report.repeated.largest, report.lang);
    let rows = of.first.iter().map(|piece| {
        TableRow::cells(vec![
            format!("{:#x}", piece.addr),
            size(piece.len),
            pages(piece.pages, lang).to_owned(),
            piece.rights.join(", "),
            count(piece.times),
            ns(piece.ns),
            ns(piece.first_ns),
            place_words(&piece.place, lang),
        ])
    });
    let heads = match lang {
        Lang::En => {
            ["address", "size", "pages", "rights", "times", "time", "the first", "where (last)"]
        }
        Lang::Zh => ["地址", "大小", "页", "权限", "次数", "用时", "首次", "位置（最后）"],
    };
    let table = table(&heads, &[0, 2], &[3, 7], rows.collect());
    let title = lang.pick("The same memory again and again", "反复注册的内存");
    section(title, more(of, lang), [], table)
}

fn lifetimes(report: &Report) -> Option<Section> {
    let (of, lang) = (&report.lifetimes, report.lang);
    let item = |text: String| Item { text, command: None };
    (!of.is_empty()).then(|| Section {
        title: lang
            .pick("Memory and keys, their mistakes one by one", "内存与键的各个错误")
            .to_owned(),
        notes: more(of, lang),
        items: of.first.iter().map(|one| item(one.what.clone())).collect(),
        ..Section::default()
    })
}
