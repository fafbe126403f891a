//! One look at everything, and two of them compared.

use super::counter;
use super::files;
use super::kernel::{Holder, Kernel};
use super::pinned::{self, Pinned};
use super::ports::{self, Device};
use super::told::Told;
use crate::files::Files;
use mkey_os::hugepages;
use mkey_os::limits::parse_ranges;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The form of the JSON.
pub const SCHEMA: u32 = 1;

/// What was seen at one time; rates are there once it is compared with an earlier look.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The form of this.
    pub schema: u32,
    /// The version of mkey.
    pub mkey: &'static str,
    /// The host's name.
    pub host: String,
    /// Seconds since 1970.
    pub time: f64,
    /// Seconds that rates are of; nothing at the first look.
    pub interval: Option<f64>,
    /// Pools of huge pages.
    pub huge_pages: Told<Vec<HugePages>>,
    /// Pools that can not be read.
    pub huge_pages_unread: usize,
    /// Memory held in place.
    pub pinned: Told<Pinned>,
    /// RDMA devices.
    pub devices: Told<Vec<Device>>,
    /// Names of processes that own objects, by number.
    pub processes: BTreeMap<u32, String>,
    /// Devices that were there at the look before.
    pub gone: Vec<String>,
    /// When, on a clock that is never set.
    #[serde(skip)]
    pub at: Duration,
}

/// A pool of huge pages; counts in pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HugePages {
    /// Bytes of a page.
    pub page_size: u64,
    /// Pages.
    pub total: u64,
    /// Not in use.
    pub free: u64,
    /// Free, but promised to mappings.
    pub reserved: u64,
    /// Beyond the configured number.
    pub surplus: u64,
    /// Those that a new mapping can have, overcommit included.
    pub available: u64,
    /// By NUMA node.
    pub nodes: Vec<NodePages>,
}

/// The part of a pool on a NUMA node; counts in pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodePages {
    /// The node.
    pub node: u32,
    /// Pages there.
    pub total: u64,
    /// Not in use.
    pub free: u64,
    /// Beyond the configured number.
    pub surplus: u64,
}

/// Where to look.
#[derive(Debug)]
pub struct Host {
    root: Files,
    device: Option<String>,
    kernel: Kernel,
}

impl Host {
    /// The system below `root`, and one of its devices or all.
    ///
    /// # Errors
    /// The root is not there.
    pub fn new(root: &Path, device: Option<&str>) -> io::Result<Self> {
        let root = Files::below(Some(root).filter(|root| *root != Path::new("/")))?;
        let kernel = Kernel::of(&root);
        Ok(Self { root, device: device.map(str::to_owned), kernel })
    }

    /// Its files.
    pub fn files(&self) -> &Files {
        &self.root
    }

    /// Looks at everything. `at` is the time on a clock that is never set.
    pub fn look(&mut self, at: Duration) -> Sample {
        let devices = ports::read(&self.root, &mut self.kernel, self.device.as_deref());
        let processes = names_of_owners(&self.root, devices.value().map_or(&[], Vec::as_slice));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let host = files::text(&self.root, Path::new("proc/sys/kernel/hostname"));
        let huge_pages = huge_pages(&self.root);
        let pools = huge_pages.value().map_or(0, Vec::len);
        Sample {
            schema: SCHEMA,
            mkey: env!("CARGO_PKG_VERSION"),
            host: host.unwrap_or_else(|_| "?".to_owned()),
            time: now.as_secs_f64(),
            interval: None,
            huge_pages,
            huge_pages_unread: pool_folders(&self.root).saturating_sub(pools),
            pinned: pinned::read(&self.root),
            devices,
            processes,
            gone: Vec::new(),
            at,
        }
    }
}

impl Sample {
    /// Sets the rates by an earlier look at the same system. What was not there then has none.
    pub fn compare(&mut self, before: &Self) {
        let Some(passed) = self.at.checked_sub(before.at).filter(|passed| !passed.is_zero()) else {
            return;
        };
        self.interval = Some(passed.as_secs_f64());
        let Some(earlier) = before.devices.value() else { return };
        let mut nothing = Vec::new();
        let devices = self.devices.value_mut().unwrap_or(&mut nothing);
        let there = |name: &String| devices.iter().any(|device| device.name == *name);
        let names = earlier.iter().map(|device| &device.name);
        self.gone = names.filter(|name| !there(name)).cloned().collect();
        for device in devices {
            if let Some(before) = earlier.iter().find(|before| before.name == device.name) {
                compare_device(device, before, passed);
            }
        }
    }
}

fn compare_device(device: &mut Device, before: &Device, passed: Duration) {
    for port in &mut device.ports {
        let Some(before) = before.ports.iter().find(|before| before.port == port.port) else {
            continue;
        };
        counter::compare(&mut port.counters, &before.counters, passed);
        if let (Told::Is(pause), Told::Is(before)) = (&mut port.pause, &before.pause) {
            counter::compare(pause, before, passed);
        }
    }
    if let (Told::Is(regions), Told::Is(before)) = (&mut device.regions, &before.regions) {
        let before = before.on_demand.iter().map(|one| (one.number, one));
        let before: BTreeMap<u32, _> = before.collect();
        for region in &mut regions.on_demand {
            if let Some(before) = before.get(&region.number) {
                counter::compare(&mut region.counters, &before.counters, passed);
            }
        }
    }
}

/// The names of the processes that own something.
fn names_of_owners(root: &Files, devices: &[Device]) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    let mut ask = |owner: &Holder| {
        if let Holder::Pid(pid @ 1..) = owner {
            let name = || pinned::name(root, *pid).unwrap_or_else(|| "?".to_owned());
            names.entry(*pid).or_insert_with(name);
        }
    };
    for device in devices {
        let objects = device.objects.value().into_iter().flatten();
        objects.filter_map(|kind| kind.owners.value()).flatten().for_each(|held| ask(&held.owner));
        let regions = device.regions.value().into_iter().flat_map(|all| &all.on_demand);
        regions.for_each(|region| ask(&region.owner));
    }
    names
}

/// The folder of the pools.
const POOLS: &str = "sys/kernel/mm/hugepages";

/// How many pools there are, whether they can be read or not.
fn pool_folders(root: &Files) -> usize {
    let names = files::names(root, Path::new(POOLS));
    names.iter().filter(|name| name.as_encoded_bytes().starts_with(b"hugepages-")).count()
}

fn huge_pages(root: &Files) -> Told<Vec<HugePages>> {
    let nodes = files::text(root, Path::new("sys/devices/system/node/online")).ok();
    let nodes = nodes.and_then(|list| parse_ranges(&list)).filter(|nodes| !nodes.is_empty());
    let nodes = nodes.unwrap_or_else(|| vec![0]);
    // Below a root that is not the system's a file may be anything.
    let count = |path: &Path| files::number(root, path).value().copied();
    let there = root.place(Path::new(POOLS)).is_ok();
    let sizes = there.then(|| hugepages::sizes_below(root.root())).into_iter().flatten();
    let pools: Vec<_> =
        sizes.filter_map(|size| hugepages::pool_by(size, nodes.clone(), count)).collect();
    if pools.is_empty() {
        return Told::not("no pool can be read below /sys/kernel/mm/hugepages");
    }
    let pages = |pool: &hugepages::Pool| HugePages {
        page_size: pool.page_size as u64,
        total: pool.total,
        free: pool.free,
        reserved: pool.reserved,
        surplus: pool.surplus,
        available: pool.available(),
        nodes: pool
            .nodes
            .iter()
            .map(|node| NodePages {
                node: node.node,
                total: node.total,
                free: node.free,
                surplus: node.surplus,
            })
            .collect(),
    };
    Told::Is(pools.iter().map(pages).collect())
}
