//! What is shown, as tables: the screen and the text have the same.

use super::counter::Counter;
use super::judge::{self, Level};
use super::kernel::{Holder, KINDS};
use super::known::{Class, Rule};
use super::pinned::Limit;
use super::ports::{Device, Region};
use super::sample::Sample;
use super::told::{Told, in_words};
use crate::bench::units::{per_second, size};
use crate::lang::Lang;
use std::collections::BTreeMap;

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pane {
    /// What it shows.
    pub title: &'static str,
    /// Heads of the columns, and whether their cells are figures.
    pub columns: Vec<(&'static str, bool)>,
    /// Cells, one a column.
    pub rows: Vec<Vec<Cell>>,
    /// What else is to be said.
    pub notes: Vec<String>,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Its text, with its mark.
    pub text: String,
    /// How it is coloured.
    pub level: Level,
}

impl Pane {
    /// The worst of its cells.
    pub fn level(&self) -> Level {
        self.rows.iter().flatten().map(|cell| cell.level).max().unwrap_or_default()
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, level: Level::Fine }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

fn judged(text: impl std::fmt::Display, level: Level) -> Cell {
    Cell { text: format!("{text}{}", level.mark()), level }
}

/// What there is no figure for.
const NONE: &str = "-";

/// The tables: of processes and regions at most `top` in each.
pub fn panes(sample: &Sample, top: usize, lang: Lang) -> Vec<Pane> {
    let nothing = Vec::new();
    let devices = sample.devices.value().unwrap_or(&nothing);
    let mut panes = vec![
        huge_pages(sample, lang),
        pinned(sample, top, lang),
        objects(devices, &sample.processes, top, lang),
        regions(devices, &sample.processes, top, lang),
        counters(devices, lang),
        pauses(devices, lang),
    ];
    let missing = match sample.devices.why_not() {
        Some(why) => Some(why.to_owned()),
        None if devices.is_empty() => {
            Some(lang.pick("no RDMA device", "没有 RDMA 设备").to_owned())
        }
        None => None,
    };
    if let Some(missing) = missing {
        for pane in panes.iter_mut().skip(2) {
            pane.notes.push(missing.clone());
        }
    }
    for note in panes.iter_mut().flat_map(|pane| &mut pane.notes) {
        *note = in_words(note, lang);
    }
    panes
}

/// A rate in few characters.
pub fn rate(rate: f64) -> String {
    if rate > 0.0 && rate < 9.95 { format!("{rate:.1}") } else { per_second(rate) }
}

fn rate_of(counter: &Counter, lang: Lang) -> String {
    match &counter.per_second {
        None => NONE.to_owned(),
        Some(Told::Is(per_second)) => rate(*per_second),
        Some(Told::Not { .. }) => lang.pick("anew", "重新计").to_owned(),
    }
}

fn not_read(place: &str, why: &str, lang: Lang) -> String {
    format!("{place}: {} {why}", lang.pick("not read:", "读不到："))
}

fn huge_pages(sample: &Sample, lang: Lang) -> Pane {
    let columns = vec![
        (lang.pick("page", "页大小"), false),
        (lang.pick("node", "节点"), false),
        (lang.pick("pages", "总数"), true),
        (lang.pick("free", "空闲"), true),
        (lang.pick("reserved", "已保留"), true),
        (lang.pick("surplus", "超额"), true),
        (lang.pick("in use", "已用"), true),
    ];
    let used =
        |total: u64, free: u64, page: u64| size(total.saturating_sub(free).saturating_mul(page));
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    notes.extend(sample.huge_pages.why_not().map(str::to_owned));
    let unread = sample.huge_pages_unread;
    if unread > 0 {
        notes.push(match lang {
            Lang::En => format!("pools that can not be read: {unread}"),
            Lang::Zh => format!("{unread} 个大页池读不到"),
        });
    }
    for pool in sample.huge_pages.value().into_iter().flatten() {
        rows.push(vec![
            size(pool.page_size).into(),
            lang.pick("all", "全部").into(),
            pool.total.to_string().into(),
            judged(pool.free, judge::pool(pool)),
            pool.reserved.to_string().into(),
            pool.surplus.to_string().into(),
            used(pool.total, pool.free, pool.page_size).into(),
        ]);
        // A single node has what all have.
        for node in pool.nodes.iter().filter(|_| pool.nodes.len() > 1) {
            rows.push(vec![
                Cell::default(),
                node.node.to_string().into(),
                node.total.to_string().into(),
                node.free.to_string().into(),
                NONE.into(),
                node.surplus.to_string().into(),
                used(node.total, node.free, pool.page_size).into(),
            ]);
        }
    }
    Pane { title: lang.pick("Huge pages", "大页"), columns, rows, notes }
}

fn pinned(sample: &Sample, top: usize, lang: Lang) -> Pane {
    let columns = vec![
        (lang.pick("process", "进程"), false),
        (lang.pick("pid", "进程号"), true),
        (lang.pick("pinned", "固定"), true),
        (lang.pick("locked", "锁定"), true),
        (lang.pick("limit", "上限"), true),
        (lang.pick("of it", "占比"), true),
    ];
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    notes.extend(sample.pinned.why_not().map(str::to_owned));
    if let Some(pinned) = sample.pinned.value() {
        for process in pinned.processes.iter().take(top) {
            let part = process.part();
            let limit = match &process.limit {
                Told::Is(Limit::Bytes(bytes)) => size(*bytes),
                Told::Is(Limit::Unlimited) => lang.pick("unlimited", "无限").to_owned(),
                Told::Is(Limit::Privileged) => "CAP_IPC_LOCK".to_owned(),
                Told::Not { .. } => lang.pick("not read", "读不到").to_owned(),
            };
            let percent = part.map_or(NONE.to_owned(), |part| format!("{:.0} %", part * 100.0));
            rows.push(vec![
                process.name.clone().into(),
                process.pid.to_string().into(),
                size(process.pinned).into(),
                size(process.locked).into(),
                limit.into(),
                judged(percent, judge::part(part)),
            ]);
        }
        let (more, unread) = (pinned.processes.len().saturating_sub(top), pinned.unread);
        if pinned.processes.is_empty() {
            let none = lang.pick("no process pins or locks memory", "没有进程固定或锁定内存");
            notes.push(none.to_owned());
        }
        if more > 0 {
            notes.push(and_more(more, lang));
        }
        if unread > 0 {
            notes.push(match lang {
                Lang::En => format!("processes that could not be looked at: {unread}"),
                Lang::Zh => format!("{unread} 个进程无法查看"),
            });
        }
    }
    Pane { title: lang.pick("Pinned memory", "固定的内存"), columns, rows, notes }
}

fn and_more(more: usize, lang: Lang) -> String {
    match lang {
        Lang::En => format!("and {more} more"),
        Lang::Zh => format!("另有 {more} 个"),
    }
}

fn objects(devices: &[Device], processes: &BTreeMap<u32, String>, top: usize, lang: Lang) -> Pane {
    let mut columns =
        vec![(lang.pick("device", "设备"), false), (lang.pick("whose", "属于"), false)];
    columns.extend(["MR", "MW", "QP", "CQ", "PD"].map(|kind| (kind, true)));
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for device in devices {
        let objects = match &device.objects {
            Told::Is(objects) => objects,
            Told::Not { not_read: why } => {
                notes.push(not_read(&device.name, why, lang));
                continue;
            }
        };
        let of = |kind: &str| objects.iter().find(|objects| objects.kind == kind);
        let mut row = |first: &str, who: String, cell: &dyn Fn(&str) -> Cell| {
            let mut cells = vec![Cell::from(first), Cell::from(who)];
            cells.extend(KINDS.map(cell));
            rows.push(cells);
        };
        let not_told = || Cell::from("?");
        row(&device.name, lang.pick("in use", "已用").to_owned(), &|kind| {
            let Some(objects) = of(kind) else { return not_told() };
            match &objects.in_use {
                Told::Is(count) => judged(count, judge::part(judge::part_of(objects))),
                Told::Not { .. } => not_told(),
            }
        });
        row("", lang.pick("limit", "上限").to_owned(), &|kind| {
            let limit = of(kind).and_then(|objects| objects.limit.value());
            limit.map_or_else(not_told, |most| most.to_string().into())
        });
        // Those who have most first.
        let mut by_owner: BTreeMap<&Holder, BTreeMap<&str, u64>> = BTreeMap::new();
        for objects in objects {
            for held in objects.owners.value().into_iter().flatten() {
                by_owner.entry(&held.owner).or_default().insert(&objects.kind, held.count);
            }
        }
        let mut by_owner: Vec<_> = by_owner.into_iter().collect();
        by_owner.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.values().sum::<u64>()));
        for (owner, counts) in by_owner.iter().take(top) {
            row("", owner_name(owner, processes, lang), &|kind| {
                // Nobody is told to have windows.
                let told = of(kind).is_some_and(|objects| objects.owners.value().is_some());
                let count = counts.get(kind).copied().unwrap_or(0);
                if told { count.to_string().into() } else { not_told() }
            });
        }
        let more = by_owner.len().saturating_sub(top);
        if more > 0 {
            notes.push(format!("{}: {}", device.name, and_more(more, lang)));
        }
        let mut whys: Vec<(&str, Vec<&str>)> = Vec::new();
        for objects in objects {
            for why in [objects.in_use.why_not(), objects.limit.why_not()].into_iter().flatten() {
                match whys.iter_mut().find(|(known, _)| *known == why) {
                    Some((_, kinds)) => kinds.push(&objects.kind),
                    None => whys.push((why, vec![&objects.kind])),
                }
            }
        }
        notes.extend(whys.into_iter().map(|(why, mut kinds)| {
            kinds.dedup();
            format!("{} ? {}: {why}", device.name, kinds.join(" ").to_uppercase())
        }));
    }
    Pane { title: lang.pick("Objects", "对象"), columns, rows, notes }
}

fn owner_name(owner: &Holder, processes: &BTreeMap<u32, String>, lang: Lang) -> String {
    match owner {
        Holder::Kernel(name) => format!("[{name}]"),
        Holder::Pid(0) => lang.pick("(not told)", "（未知）").to_owned(),
        Holder::Pid(pid) => {
            format!("{} {pid}", processes.get(pid).map_or("?", String::as_str))
        }
    }
}

/// The counters of a region that have a column, by their names.
const PAGING: [&str; 3] = ["page_faults", "page_invalidations", "page_prefetch"];

fn regions(devices: &[Device], processes: &BTreeMap<u32, String>, top: usize, lang: Lang) -> Pane {
    let columns = vec![
        (lang.pick("device", "设备"), false),
        ("MR", true),
        (lang.pick("whose", "属于"), false),
        (lang.pick("size", "大小"), true),
        (lang.pick("faults", "缺页"), true),
        ("/s", true),
        (lang.pick("invalid.", "失效"), true),
        ("/s", true),
        (lang.pick("prefetch", "预取"), true),
        ("/s", true),
    ];
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for device in devices {
        let all = match &device.regions {
            Told::Is(all) => all,
            Told::Not { not_read: why } => {
                notes.push(not_read(&device.name, why, lang));
                continue;
            }
        };
        let mut counted: Vec<&Region> = all.on_demand.iter().collect();
        let faults = |region: &Region| {
            let faults = region.counters.iter().find(|one| one.name == PAGING[0]);
            faults.and_then(|one| one.value.value()).copied().unwrap_or(0)
        };
        counted.sort_by_key(|region| std::cmp::Reverse(faults(region)));
        for region in counted.iter().take(top) {
            let mut row: Vec<Cell> = vec![
                device.name.clone().into(),
                region.number.to_string().into(),
                owner_name(&region.owner, processes, lang).into(),
                size(region.bytes).into(),
            ];
            for name in PAGING {
                match region.counters.iter().find(|one| one.name == name) {
                    Some(one) => {
                        row.push(one.value.value().map_or("?".into(), |v| v.to_string().into()));
                        row.push(judged(rate_of(one, lang), judge::counter(one)));
                    }
                    None => row.extend([Cell::from(NONE), Cell::from(NONE)]),
                }
            }
            rows.push(row);
        }
        let (more, plain) = (counted.len().saturating_sub(top), all.others);
        if more > 0 {
            notes.push(format!("{}: {}", device.name, and_more(more, lang)));
        }
        let name = &device.name;
        if plain > 0 {
            notes.push(match lang {
                Lang::En => {
                    format!("{name}: regions that its driver counts nothing for (not on demand): {plain}")
                }
                Lang::Zh => format!("{name}：{plain} 个区域驱动不计数（非按需分页）"),
            });
        }
    }
    Pane { title: lang.pick("On-demand regions", "按需分页区域"), columns, rows, notes }
}

/// What may be worth a look; bytes and packets are not.
fn is_shown(counter: &Counter) -> bool {
    counter.class != Class::Other || counter.rule != Rule::Never
}

fn counters(devices: &[Device], lang: Lang) -> Pane {
    let columns = vec![
        (lang.pick("port", "端口"), false),
        (lang.pick("about", "类别"), false),
        (lang.pick("counter", "计数器"), false),
        (lang.pick("value", "值"), true),
        ("/s", true),
    ];
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for device in devices {
        for port in &device.ports {
            let place = port.place(device);
            let mut known: Vec<&Counter> = port
                .counters
                .iter()
                .filter(|one| is_shown(one) && one.value.value().is_some())
                .collect();
            known.sort_by_key(|one| one.class);
            for one in &known {
                let value = one.value.value().map_or(NONE.to_owned(), u64::to_string);
                let level = judge::counter(one);
                rows.push(vec![
                    place.clone().into(),
                    one.class.name(lang).into(),
                    one.name.clone().into(),
                    Cell { text: value, level: level.min(Level::Note) },
                    judged(rate_of(one, lang), level),
                ]);
            }
            notes.extend(port.missing.iter().map(|why| format!("{place}: {why}")));
            // Often all for one reason.
            let unread: Vec<&Counter> =
                port.counters.iter().filter(|one| one.value.why_not().is_some()).collect();
            if let [first, ..] = unread.as_slice() {
                let (count, why) = (unread.len(), first.value.why_not().unwrap_or(NONE));
                notes.push(match lang {
                    Lang::En => {
                        format!("{place}: counters not read: {count}; {}: {why}", first.name)
                    }
                    Lang::Zh => format!("{place}：{count} 个计数器读不到，{}：{why}", first.name),
                });
            }
            let others = port.counters.len() - known.len() - unread.len();
            if others > 0 {
                notes.push(match lang {
                    Lang::En => format!("{place}: others, by --json: {others}"),
                    Lang::Zh => format!("{place}：其余 {others} 个见 --json"),
                });
            }
        }
        if device.ports.is_empty() {
            notes.push(not_read(&device.name, lang.pick("it has no ports", "没有端口"), lang));
        }
    }
    Pane { title: lang.pick("Errors and congestion", "错误与拥塞"), columns, rows, notes }
}

fn pauses(devices: &[Device], lang: Lang) -> Pane {
    let columns = vec![
        (lang.pick("interface", "网口"), false),
        (lang.pick("about", "类别"), false),
        (lang.pick("statistic", "统计项"), false),
        (lang.pick("value", "值"), true),
        ("/s", true),
    ];
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for device in devices {
        for port in device.ports.iter().filter(|port| port.port > 0) {
            let all = match &port.pause {
                Told::Is(all) => all,
                Told::Not { not_read: why } => {
                    notes.push(not_read(&port.place(device), why, lang));
                    continue;
                }
            };
            let name = port.interface.as_deref().unwrap_or("?");
            let mut zero = 0;
            for one in all {
                let value = one.value.value().copied().unwrap_or(0);
                if value == 0 {
                    zero += 1;
                    continue;
                }
                let level = judge::counter(one);
                rows.push(vec![
                    name.into(),
                    one.class.name(lang).into(),
                    one.name.clone().into(),
                    Cell { text: value.to_string(), level: level.min(Level::Note) },
                    judged(rate_of(one, lang), level),
                ]);
            }
            if all.is_empty() {
                notes.push(match lang {
                    Lang::En => format!(
                        "{name}: its driver counts no pauses (mlx5 does while PFC is on for a priority)"
                    ),
                    Lang::Zh => format!("{name}：驱动没有暂停计数（mlx5 仅在启用 PFC 时才有）"),
                });
            } else if zero > 0 {
                notes.push(match lang {
                    Lang::En => format!("{name}: others, at 0: {zero}"),
                    Lang::Zh => format!("{name}：其余 {zero} 项为 0"),
                });
            }
        }
    }
    Pane { title: lang.pick("Pauses and discards", "暂停与丢弃"), columns, rows, notes }
}
