//! What is worth a look, and which command tells more of it.

use super::counter::Counter;
use super::kernel::Objects;
use super::known::{self, Rule};
use super::pinned::Process;
use super::ports::{Device, Port};
use super::sample::{HugePages, Sample};
use super::told::Told;
use crate::lang::Lang;
use serde::Serialize;

/// How much something is worth a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Not at all.
    #[default]
    Fine,
    /// It has happened, and does not now.
    Note,
    /// It is.
    Warn,
    /// It is a failure.
    Bad,
}

impl Level {
    /// What stands behind a cell, so that it is seen without colours.
    pub fn mark(self) -> &'static str {
        match self {
            Self::Fine | Self::Note => "",
            Self::Warn => " !",
            Self::Bad => " !!",
        }
    }
}

/// Something that is worth a look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much.
    pub level: Level,
    /// Of what, as in `mlx5_0/1`.
    pub place: String,
    /// What was seen.
    pub what: String,
    /// What to run to learn more.
    pub command: Option<String>,
}

/// From this part of a limit on it is a warning, from that on bad.
const PARTS: (f64, f64) = (0.8, 0.95);

/// How a part of a limit is judged.
pub fn part(part: Option<f64>) -> Level {
    match part {
        Some(part) if part >= PARTS.1 => Level::Bad,
        Some(part) if part >= PARTS.0 => Level::Warn,
        _ => Level::Fine,
    }
}

/// How a counter is judged.
pub fn counter(counter: &Counter) -> Level {
    let rate = counter.rate().unwrap_or(0.0);
    match counter.rule {
        Rule::Bad if rate > 0.0 => Level::Bad,
        Rule::Warn if rate > 0.0 => Level::Warn,
        Rule::Above(_, bad) if rate >= bad => Level::Bad,
        Rule::Above(warn, _) if rate >= warn => Level::Warn,
        Rule::Bad | Rule::Warn if counter.value.value().is_some_and(|value| *value > 0) => {
            Level::Note
        }
        _ => Level::Fine,
    }
}

/// How a pool of huge pages is judged: one of which nothing can be had any more is a warning.
pub fn pool(pool: &HugePages) -> Level {
    if pool.total > 0 && pool.available == 0 { Level::Warn } else { Level::Fine }
}

/// The part of their limit that objects take.
pub fn part_of(objects: &Objects) -> Option<f64> {
    match (&objects.in_use, &objects.limit) {
        (Told::Is(count), Told::Is(most)) if *most > 0 => Some(*count as f64 / *most as f64),
        _ => None,
    }
}

/// Everything that is worth a look, the worst first.
pub fn findings(sample: &Sample, lang: Lang) -> Vec<Finding> {
    let mut all = Vec::new();
    for name in &sample.gone {
        let what = lang.pick("the device is gone", "设备消失");
        all.push(found(Level::Bad, name.clone(), what.to_owned(), "IBV_EVENT_DEVICE_FATAL"));
    }
    for device in sample.devices.value().into_iter().flatten() {
        of_device(device, lang, &mut all);
    }
    for pool in sample.huge_pages.value().into_iter().flatten() {
        let level = self::pool(pool);
        if level >= Level::Warn {
            let place = crate::bench::units::size(pool.page_size);
            let what = lang.pick("no huge page can be had any more", "大页已用尽");
            all.push(found(level, place, what.to_owned(), "ibv_reg_mr EFAULT"));
        }
    }
    let pinned = sample.pinned.value();
    for process in pinned.into_iter().flat_map(|pinned| &pinned.processes) {
        of_process(process, lang, &mut all);
    }
    // Stable: those of one level stay in order.
    all.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    all
}

fn found(level: Level, place: String, what: String, explain: &str) -> Finding {
    Finding { level, place, what, command: Some(format!("mkey explain {explain}")) }
}

fn of_process(process: &Process, lang: Lang, all: &mut Vec<Finding>) {
    let part = process.part();
    let level = self::part(part);
    if level < Level::Warn {
        return;
    }
    let percent = part.unwrap_or(0.0) * 100.0;
    let what = match lang {
        Lang::En => format!("{percent:.0} % of RLIMIT_MEMLOCK is pinned or locked"),
        Lang::Zh => format!("已固定或锁定 RLIMIT_MEMLOCK 的 {percent:.0} %"),
    };
    let explain = format!("ibv_reg_mr ENOMEM --pid {}", process.pid);
    all.push(found(level, format!("{} {}", process.name, process.pid), what, &explain));
}

fn of_device(device: &Device, lang: Lang, all: &mut Vec<Finding>) {
    for objects in device.objects.value().into_iter().flatten() {
        let part = part_of(objects);
        let level = self::part(part);
        if level >= Level::Warn {
            let (kind, percent) = (objects.kind.to_uppercase(), part.unwrap_or(0.0) * 100.0);
            let what = match lang {
                Lang::En => format!("{percent:.0} % of its {kind}s are in use"),
                Lang::Zh => format!("{kind} 已用 {percent:.0} %"),
            };
            let command = verb_of(&objects.kind).map(|verb| format!("mkey explain {verb} ENOMEM"));
            all.push(Finding { level, place: device.name.clone(), what, command });
        }
    }
    for region in device.regions.value().into_iter().flat_map(|all| &all.on_demand) {
        let place = format!("{} MR {}", device.name, region.number);
        all.extend(region.counters.iter().filter_map(|one| of_counter(one, &place)));
    }
    for port in &device.ports {
        of_port(device, port, lang, all);
    }
}

/// The verb that fails when the limit of a kind is met.
fn verb_of(kind: &str) -> Option<&'static str> {
    match kind {
        "mr" => Some("ibv_reg_mr"),
        "mw" => Some("ibv_alloc_mw"),
        "qp" => Some("ibv_create_qp"),
        "cq" => Some("ibv_create_cq"),
        _ => None,
    }
}

fn of_port(device: &Device, port: &Port, lang: Lang, all: &mut Vec<Finding>) {
    let place = port.place(device);
    if let Some(state) = port.state.value().filter(|state| *state != "ACTIVE") {
        let what = match lang {
            Lang::En => format!("the port is {state}"),
            Lang::Zh => format!("端口状态为 {state}"),
        };
        all.push(found(Level::Warn, place.clone(), what, "IBV_EVENT_PORT_ERR"));
    }
    if let Some(marked) = unanswered(port) {
        let what = lang.pick(
            "marked packets arrive and no CNP goes out: congestion control is off here",
            "收到 ECN 标记却不发 CNP：此处拥塞控制未开启",
        );
        all.push(found(Level::Bad, place.clone(), what.to_owned(), &quoted(&marked.name)));
    }
    all.extend(port.counters.iter().filter_map(|one| of_counter(one, &place)));
    if let Some(pause) = port.pause.value() {
        let place = port.interface.as_deref().unwrap_or("?");
        all.extend(pause.iter().filter_map(|one| of_counter(one, place)));
    }
}

fn of_counter(one: &Counter, place: &str) -> Option<Finding> {
    let level = counter(one);
    if level < Level::Warn {
        return None;
    }
    let what = format!("{} +{}/s", one.name, super::view::rate(one.rate().unwrap_or(0.0)));
    Some(found(level, place.to_owned(), what, &quoted(&one.name)))
}

/// Marked packets that come while no notification goes.
fn unanswered(port: &Port) -> Option<&Counter> {
    let find = |name: &str| port.counters.iter().find(|one| one.name == name);
    let (marked, sent) = known::answered(find)?;
    // A few marks may fall into the pause between two notifications.
    (marked.rate()? >= 10.0 && sent.rate()? == 0.0).then_some(marked)
}

/// A name as a shell takes it. It comes from a driver.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::find;
    use crate::explain::texts::Library;
    use std::time::Duration;

    fn moved(name: &str, by: u64) -> Counter {
        let of = |value| Counter::new(name.to_owned(), Told::Is(value), known::of_port(name));
        let mut now = of(100 + by);
        now.compare(&of(100), Duration::from_secs(1));
        now
    }

    #[test]
    fn a_counter_is_judged_by_its_rate_and_noted_by_its_value() {
        assert_eq!(counter(&moved("req_remote_access_errors", 1)), Level::Bad);
        assert_eq!(counter(&moved("req_remote_access_errors", 0)), Level::Note);
        assert_eq!(counter(&moved("out_of_sequence", 1)), Level::Warn);
        assert_eq!(counter(&moved("rp_cnp_handled", 999)), Level::Fine);
        assert_eq!(counter(&moved("rp_cnp_handled", 1_000)), Level::Warn);
        assert_eq!(counter(&moved("rp_cnp_handled", 100_000)), Level::Bad);
        assert_eq!(counter(&moved("sent_pkts", 1 << 40)), Level::Fine);
    }

    #[test]
    fn parts_of_limits() {
        let levels = [None, Some(0.79), Some(0.8), Some(0.95), Some(f64::NAN)].map(part);
        assert_eq!(levels, [Level::Fine, Level::Fine, Level::Warn, Level::Bad, Level::Fine]);
    }

    /// Whether `mkey explain` knows what a command asks it, without options.
    fn known(library: &Library, command: &str) -> bool {
        let words = command.strip_prefix("mkey explain ").unwrap();
        let words = words.split(" --").next().unwrap().trim_matches('\'');
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        !find::find(library, &words).is_empty()
    }

    #[test]
    fn every_command_that_is_named_explains_something() {
        let library = Library::load().unwrap();
        let counters = known::COUNTERS.iter().map(|(name, ..)| quoted(name));
        let interface =
            ["rx_prio3_pause", "rx_prio0_pause_duration", "tx_pause_storm_error_events"]
                .into_iter()
                .chain(["rx_pfc_ena_frames_pri3", "pfc_pri3_rx_duration_us", "rx_prio3_discards"])
                .chain(["rx_priority_3_xoff.nic", "rx_discards_phy", "rx_prio5_marked"])
                .chain(["tx_prio3_pause_transition", "continuous_roce_pause_events"]);
        let verbs = super::super::kernel::KINDS.into_iter().filter_map(verb_of);
        let others = ["IBV_EVENT_DEVICE_FATAL", "IBV_EVENT_PORT_ERR", "ibv_reg_mr EFAULT"];
        let others = others.into_iter().chain(["page_faults", "page_invalidations"]);
        let all = counters
            .chain(interface.map(quoted))
            .chain(verbs.map(|verb| format!("{verb} ENOMEM")))
            .chain(others.map(str::to_owned));
        let mut checked = 0;
        for explain in all {
            assert!(known(&library, &format!("mkey explain {explain}")), "{explain}");
            checked += 1;
        }
        assert!(checked > 70);
    }

    #[test]
    fn names_of_drivers_do_no_harm_in_a_shell() {
        assert_eq!(quoted("rx_priority_3_xoff.nic"), "rx_priority_3_xoff.nic");
        assert_eq!(quoted("RNR sent"), "'RNR sent'");
        assert_eq!(quoted("$(x)'y"), "'$(x)'\\''y'");
        assert_eq!(quoted(""), "''");
    }
}
