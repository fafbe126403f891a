//! RDMA devices and what their ports count, from `/sys/class/infiniband`; names of counters differ by
//! driver, and a port that can not be read hides no other.

use super::counter::Counter;
use super::files;
use super::kernel::{DeviceAnswers, Holder, Kernel, Objects, RegionAnswer};
use super::known;
use super::told::Told;
use crate::files::Files;
use crate::interfaces::{self, DEVICES};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its driver, where the kernel tells.
    pub driver: Option<String>,
    /// Its NUMA node, where it has one.
    pub node: Option<u32>,
    /// Its objects against its limits.
    pub objects: Told<Vec<Objects>>,
    /// Its regions.
    pub regions: Told<Regions>,
    /// Its ports; what it counts as a whole is that of port 0.
    pub ports: Vec<Port>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Port {
    /// Its number.
    pub port: u32,
    /// Whether it is up, as in `ACTIVE`.
    pub state: Told<String>,
    /// The network interface it belongs to.
    pub interface: Option<String>,
    /// What it counts.
    pub counters: Vec<Counter>,
    /// Why it has none.
    pub missing: Vec<String>,
    /// What its interface counts of losses and pauses.
    pub pause: Told<Vec<Counter>>,
}

/// The memory regions of a device. There may be very many; those that nothing is counted for are only
/// counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regions {
    /// Those that something is counted for: on-demand regions.
    pub on_demand: Vec<Region>,
    /// How many others there are.
    pub others: usize,
}

/// An on-demand region.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Region {
    /// What the kernel numbers it by.
    pub number: u32,
    /// Whose it is.
    pub owner: Holder,
    /// Its length in bytes.
    pub bytes: u64,
    /// What is counted for it.
    pub counters: Vec<Counter>,
}

/// Why there are no devices where all is well.
pub const NONE: &str = "the kernel has no RDMA devices (no /sys/class/infiniband)";

/// Settings that stand among the counters.
const NO_COUNTERS: [&str; 1] = ["lifespan"];

/// The names of the devices below a root.
pub fn names(root: &Files) -> Vec<OsString> {
    files::names(root, Path::new(DEVICES))
}

/// Reads the devices below a root, or the one of that name.
pub fn read(root: &Files, kernel: &mut Kernel, only: Option<&str>) -> Told<Vec<Device>> {
    let folder = Path::new(DEVICES);
    if let Err(error) = files::list(root, folder) {
        return Told::not(match error.kind() {
            std::io::ErrorKind::NotFound if root.exists("sys/class") => NONE.to_owned(),
            std::io::ErrorKind::NotFound => {
                "/sys/class is not there: not mounted, or not gathered".to_owned()
            }
            _ => format!("/{DEVICES}: {error}"),
        });
    }
    let names: Vec<OsString> = names(root)
        .into_iter()
        .filter(|name| only.is_none_or(|only| files::shown(name) == only))
        .collect();
    let shown: Vec<String> = names.iter().map(|name| files::shown(name)).collect();
    let mut answers = kernel.devices(&shown);
    let devices = names.iter().zip(shown).map(|(file, name)| {
        let answers = answers.remove(&name);
        device((root, &folder.join(file)), name, answers, kernel)
    });
    Told::Is(devices.collect())
}

/// A device, by its folder below a root.
fn device(
    (root, folder): (&Files, &Path),
    name: String,
    answers: Option<DeviceAnswers>,
    kernel: &Kernel,
) -> Device {
    let why = "not asked for";
    let DeviceAnswers { objects, regions } = answers
        .unwrap_or_else(|| DeviceAnswers { objects: Told::not(why), regions: Told::not(why) });
    let regions = match regions {
        Told::Not { not_read } => Told::not(not_read),
        Told::Is(all) => Told::Is(regions_of(all)),
    };
    let link = root.place(&folder.join("device"));
    let link = link.and_then(|device| fs::read_link(device.join("driver"))).ok();
    let driver = link.as_deref().and_then(Path::file_name).map(files::shown);
    // What has no hardware says by its description what it is.
    let driver = driver.or_else(|| {
        files::text(root, &folder.join("node_desc")).ok().filter(|text| !text.is_empty())
    });
    let objects =
        if driver.as_deref() == Some("irdma") { without_moving_limit(objects) } else { objects };
    let node = files::number(root, &folder.join("device/numa_node"));
    let numbers = files::numbers(root, &folder.join("ports"));
    let mut ports: Vec<Port> = Vec::with_capacity(numbers.len() + 1);
    // efa and others count for the whole device.
    let (counters, _) = counters(root, &folder.join("hw_counters"));
    if !counters.is_empty() {
        ports.push(Port {
            port: 0,
            state: Told::not("of the device as a whole"),
            interface: None,
            counters,
            missing: Vec::new(),
            pause: Told::not("of the device as a whole"),
        });
    }
    let (only, folder) = (numbers.len() == 1, &folder);
    ports.extend(numbers.into_iter().map(|number| port((root, folder), number, only, kernel)));
    let node = node.value().and_then(|node| u32::try_from(*node).ok());
    Device { name, driver, node, objects, regions, ports }
}

fn regions_of(all: Vec<RegionAnswer>) -> Regions {
    let count = all.len();
    let counted = all.into_iter().filter(|region| !region.counters.is_empty());
    let on_demand: Vec<Region> = counted
        .map(|region| Region {
            number: region.number,
            owner: region.owner,
            bytes: region.bytes,
            counters: region
                .counters
                .into_iter()
                .map(|(name, value)| {
                    let meaning = known::of_region(&name);
                    Counter::new(name, Told::Is(value), meaning)
                })
                .collect(),
        })
        .collect();
    Regions { others: count.saturating_sub(on_demand.len()), on_demand }
}

/// irdma declares how many regions are left, not how many there may be.
fn without_moving_limit(mut objects: Told<Vec<Objects>>) -> Told<Vec<Objects>> {
    for objects in objects.value_mut().into_iter().flatten().filter(|one| one.kind == "mr") {
        objects.limit = Told::not("irdma declares what is left, not the most");
    }
    objects
}

fn port((root, device): (&Files, &Path), number: u32, only: bool, kernel: &Kernel) -> Port {
    let folder = device.join("ports").join(number.to_string());
    // "4: ACTIVE"
    let state = files::text(root, &folder.join("state")).map(|text| {
        text.split_once(':').map_or(text.as_str(), |(_, state)| state).trim().to_owned()
    });
    let (mut all, mut missing) = (Vec::new(), Vec::new());
    for set in ["hw_counters", "counters"] {
        let (counters, why) = counters(root, &folder.join(set));
        missing.extend(why.map(|why| format!("{set}: {why}")));
        // A name that is in both is that of the same counter.
        for counter in counters {
            if !all.iter().any(|known: &Counter| known.name == counter.name) {
                all.push(counter);
            }
        }
    }
    // Some drivers have the one and some the other.
    if !all.is_empty() {
        missing.clear();
    }
    let interface = interface(root, device, number, only);
    let pause = match &interface {
        None => Told::not("no network interface is told"),
        Some(interface) => match kernel.statistics(interface) {
            Told::Not { not_read } => Told::not(format!("{interface}: {not_read}")),
            Told::Is(all) => Told::Is(pauses(all)),
        },
    };
    Port { port: number, state: state.into(), interface, counters: all, missing, pause }
}

fn pauses(statistics: Vec<(String, u64)>) -> Vec<Counter> {
    let known = statistics.into_iter().filter_map(|(name, value)| {
        let meaning = known::of_interface(&name)?;
        Some(Counter::new(name, Told::Is(value), meaning))
    });
    known.collect()
}

/// The counters in a folder, by name, and why there are none.
fn counters(root: &Files, folder: &Path) -> (Vec<Counter>, Option<String>) {
    if let Err(error) = files::list(root, folder) {
        return (Vec::new(), Some(error.to_string()));
    }
    let names = files::names(root, folder);
    let names = names.iter().filter(|name| NO_COUNTERS.iter().all(|no| OsStr::new(no) != *name));
    let read = |file: &OsString| {
        let name = files::shown(file);
        let meaning = known::of_port(&name);
        Counter::new(name, files::number(root, &folder.join(file)), meaning)
    };
    (names.map(read).collect(), None)
}

/// The network interface of a port, if it is one.
fn interface(root: &Files, device: &Path, port: u32, only: bool) -> Option<String> {
    let text = |name: &str| files::text(root, &device.join(name)).ok();
    let names = |name: &str| -> Vec<String> {
        files::names(root, &device.join(name)).iter().map(|name| files::shown(name)).collect()
    };
    match interfaces::of_port(&port.to_string(), only, text, names).as_slice() {
        [interface] => Some(interface.clone()),
        _ => None,
    }
}

impl Port {
    /// As in `mlx5_0/1`; the device alone for what it counts as a whole.
    pub fn place(&self, device: &Device) -> String {
        if self.port == 0 { device.name.clone() } else { format!("{}/{}", device.name, self.port) }
    }
}
