//! A look as OpenMetrics: what is read is there, what is not is missing, and
//! `mkey_monitor_unread` counts it.

use super::super::counter::Counter;
use super::super::kernel::{Holder, Objects};
use super::super::pinned::{Limit, Pinned};
use super::super::ports::{Device, Port, Region};
use super::super::sample::{HugePages, Sample};
use super::super::told::Told;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use std::collections::HashSet;
use std::fmt;

/// The page.
pub fn text(sample: Sample) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collector(sample)));
    let mut text = String::new();
    // A string takes all that is written to it.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Collector(Sample);

/// Labels of a figure.
type Labels = Vec<(&'static str, String)>;

/// A family: figures of one name, which OpenMetrics wants together.
struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    counter: bool,
    figures: Vec<(Labels, u64)>,
    known: HashSet<Labels>,
}

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sample = &self.0;
        let mut unread = Vec::new();
        let mut families = Vec::new();
        match &sample.huge_pages {
            Told::Is(pools) => families.extend(huge_pages(pools)),
            Told::Not { .. } => unread.push("huge_pages"),
        }
        match &sample.pinned {
            Told::Is(pinned) => families.extend(self::pinned(pinned)),
            Told::Not { .. } => unread.push("pinned"),
        }
        match &sample.devices {
            Told::Is(devices) => families.extend(of_devices(sample, devices, &mut unread)),
            Told::Not { .. } => unread.push("devices"),
        }
        families.push(unread_family(&unread));
        for family in families.into_iter().filter(|family| !family.figures.is_empty()) {
            family.encode(&mut encoder)?;
        }
        Ok(())
    }
}

impl Family {
    fn gauge(name: &'static str, help: &'static str) -> Self {
        let (figures, known) = (Vec::new(), HashSet::new());
        Self { name, help, unit: None, counter: false, figures, known }
    }

    fn bytes(name: &'static str, help: &'static str) -> Self {
        Self { unit: Some(Unit::Bytes), ..Self::gauge(name, help) }
    }

    fn counter(name: &'static str, help: &'static str) -> Self {
        Self { counter: true, ..Self::gauge(name, help) }
    }

    fn put(&mut self, labels: Labels, value: u64) {
        // Two of the same name and labels are against the rules: a driver may name two alike.
        if self.known.insert(labels.clone()) {
            self.figures.push((labels, value));
        }
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = if self.counter { MetricType::Counter } else { MetricType::Gauge };
        let mut metric =
            encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), kind)?;
        for (labels, value) in &self.figures {
            let labels: Vec<(&str, &str)> =
                labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let labelled = metric.encode_family(&labels)?;
            Figure { counter: self.counter, value: *value }.encode(labelled)?;
        }
        Ok(())
    }
}

/// A figure of 64 bits, which the library's constants have as a counter only.
struct Figure {
    counter: bool,
    value: u64,
}

impl EncodeMetric for Figure {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        if self.counter {
            let none: Option<&Exemplar<Vec<(String, String)>, u64>> = None;
            encoder.encode_counter(&self.value, none)
        } else {
            encoder.encode_gauge(&(self.value as f64))
        }
    }

    fn metric_type(&self) -> MetricType {
        if self.counter { MetricType::Counter } else { MetricType::Gauge }
    }
}

fn huge_pages(pools: &[HugePages]) -> [Family; 2] {
    let mut total = Family::gauge("mkey_huge_pages", "Huge pages in the pool of a NUMA node");
    let mut free = Family::gauge("mkey_huge_pages_free", "Huge pages not in use");
    for pool in pools {
        if pool.nodes.is_empty() {
            let all =
                || vec![("page_bytes", pool.page_size.to_string()), ("node", "all".to_owned())];
            total.put(all(), pool.total);
            free.put(all(), pool.free);
        }
        for node in &pool.nodes {
            let labels = || {
                vec![("page_bytes", pool.page_size.to_string()), ("node", node.node.to_string())]
            };
            total.put(labels(), node.total);
            free.put(labels(), node.free);
        }
    }
    [total, free]
}

fn pinned(pinned: &Pinned) -> [Family; 4] {
    let mut bytes = Family::bytes("mkey_pinned", "Memory pinned by a process (VmPin)");
    let mut locked = Family::bytes("mkey_locked", "Memory locked by a process (VmLck)");
    let mut limit = Family::bytes("mkey_memlock_limit", "RLIMIT_MEMLOCK of a process that has one");
    let mut hidden =
        Family::gauge("mkey_processes_unread", "Processes that could not be looked at");
    hidden.put(Vec::new(), pinned.unread as u64);
    for process in &pinned.processes {
        let labels = || vec![("process", process.name.clone()), ("pid", process.pid.to_string())];
        bytes.put(labels(), process.pinned);
        locked.put(labels(), process.locked);
        if let Told::Is(Limit::Bytes(most)) = process.limit {
            limit.put(labels(), most);
        }
    }
    [bytes, locked, limit, hidden]
}

/// On-demand regions that are told of one by one, of each device.
const REGIONS: usize = 1000;

/// How much was counted for a region.
fn activity(region: &Region) -> u64 {
    region.counters.iter().filter_map(|one| one.value.value()).fold(0, |a, b| a.saturating_add(*b))
}

fn of_devices(sample: &Sample, devices: &[Device], unread: &mut Vec<&'static str>) -> Vec<Family> {
    let mut objects = Objected::new();
    let mut active = Family::gauge("mkey_port_active", "Whether a port is up");
    let mut port = Family::counter("mkey_port_events", "What a port counts, by its driver's name");
    let mut gauges = Family::gauge("mkey_port_objects", "What a port says there is now");
    let mut interface =
        Family::counter("mkey_interface_events", "Pauses and losses of a port's network interface");
    let mut regions =
        Family::counter("mkey_region_events", "What a driver counts for an on-demand region");
    let mut others = Family::gauge("mkey_regions_uncounted", "Regions that nothing is counted for");
    for device in devices {
        match &device.objects {
            Told::Is(all) => objects.put(sample, device, all),
            Told::Not { .. } => unread.push("objects"),
        }
        match &device.regions {
            Told::Is(all) => {
                others.put(vec![("device", device.name.clone())], all.others as u64);
                // The most active: a series for each of very many would be too much for who asks.
                let mut shown: Vec<&Region> = all.on_demand.iter().collect();
                shown.sort_by_key(|region| std::cmp::Reverse(activity(region)));
                for region in shown.into_iter().take(REGIONS) {
                    for one in &region.counters {
                        let labels = vec![
                            ("device", device.name.clone()),
                            ("mr", region.number.to_string()),
                            ("counter", one.name.clone()),
                        ];
                        put(&mut regions, labels, one, unread);
                    }
                }
            }
            Told::Not { .. } => unread.push("regions"),
        }
        for one in &device.ports {
            let labels = || vec![("device", device.name.clone()), ("port", one.port.to_string())];
            if let Some(state) = one.state.value() {
                active.put(labels(), u64::from(state == "ACTIVE"));
            }
            of_port(device, one, [&mut port, &mut gauges, &mut interface], unread);
        }
    }
    let Objected { in_use, limit, held } = objects;
    vec![in_use, limit, held, active, port, gauges, interface, regions, others]
}

fn of_port(
    device: &Device,
    port: &Port,
    [counters, gauges, interface]: [&mut Family; 3],
    unread: &mut Vec<&'static str>,
) {
    for one in &port.counters {
        let labels = vec![
            ("device", device.name.clone()),
            ("port", port.port.to_string()),
            ("counter", one.name.clone()),
            ("about", one.class.name(crate::lang::Lang::En).to_owned()),
        ];
        put(if one.is_gauge() { gauges } else { counters }, labels, one, unread);
    }
    match &port.pause {
        Told::Is(all) => {
            for one in all {
                let name = port.interface.clone().unwrap_or_default();
                let labels = vec![
                    ("interface", name),
                    ("counter", one.name.clone()),
                    ("about", one.class.name(crate::lang::Lang::En).to_owned()),
                ];
                put(interface, labels, one, unread);
            }
        }
        Told::Not { .. } if port.port > 0 => unread.push("interface"),
        Told::Not { .. } => {}
    }
}

fn put(family: &mut Family, labels: Labels, one: &Counter, unread: &mut Vec<&'static str>) {
    match one.value {
        Told::Is(value) => family.put(labels, value),
        Told::Not { .. } => unread.push("counter"),
    }
}

/// Objects of devices.
struct Objected {
    in_use: Family,
    limit: Family,
    held: Family,
}

impl Objected {
    fn new() -> Self {
        Self {
            in_use: Family::gauge("mkey_objects", "RDMA objects of a device"),
            limit: Family::gauge("mkey_objects_limit", "The most that a device declares"),
            held: Family::gauge("mkey_objects_held", "RDMA objects by who has them"),
        }
    }

    fn put(&mut self, sample: &Sample, device: &Device, all: &[Objects]) {
        for objects in all {
            let labels = || vec![("device", device.name.clone()), ("kind", objects.kind.clone())];
            if let Told::Is(count) = objects.in_use {
                self.in_use.put(labels(), count);
            }
            if let Told::Is(most) = objects.limit {
                self.limit.put(labels(), most);
            }
            for held in objects.owners.value().into_iter().flatten() {
                let (process, pid) = match &held.owner {
                    Holder::Kernel(name) => (format!("[{name}]"), String::new()),
                    Holder::Pid(pid) => {
                        (sample.processes.get(pid).cloned().unwrap_or_default(), pid.to_string())
                    }
                };
                let mut labels = labels();
                labels.extend([("process", process), ("pid", pid)]);
                self.held.put(labels, held.count);
            }
        }
    }
}

/// How many things of a kind could not be read.
fn unread_family(unread: &[&'static str]) -> Family {
    let mut family = Family::gauge("mkey_monitor_unread", "What could not be read, by kind");
    let kinds = ["huge_pages", "pinned", "devices", "objects", "regions", "counter", "interface"];
    for kind in kinds {
        let count = unread.iter().filter(|one| **one == kind).count();
        family.put(vec![("kind", kind.to_owned())], count as u64);
    }
    family
}
