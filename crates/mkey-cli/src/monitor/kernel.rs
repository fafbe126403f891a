//! What is asked of the kernel and not read from files: objects, regions, limits, statistics of
//! interfaces. For a root that is not this system's, what it once answered stands in a file.

use super::told::Told;
use crate::device::{PATIENCE, within};
use crate::files::Files;
use mkey_ibverbs::{IbvDevice, Limits};
use mkey_os::ethtool;
use mkey_os::rdma_netlink::Counter;
use mkey_os::rdma_netlink::resources::{self, Kind, Owner, Region};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Below a root, what the kernel answered there; [`Answers`] as JSON.
pub const ANSWERS: &str = "mkey-monitor.json";

/// No list of answers is as long as this, in bytes.
const LONGEST: u64 = 16 << 20;

/// Kinds of objects that are shown, in this order.
pub const KINDS: [&str; 5] = ["mr", "mw", "qp", "cq", "pd"];

/// Where answers come from.
#[derive(Debug)]
pub enum Kernel {
    /// This system's, with the limits of devices as they were when first seen.
    Live(HashMap<String, Told<BTreeMap<String, u64>>>),
    /// A file's.
    Recorded(Told<Answers>),
}

/// What a kernel answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answers {
    /// By device.
    #[serde(default)]
    pub devices: BTreeMap<String, DeviceAnswers>,
    /// Statistics by network interface.
    #[serde(default)]
    pub interfaces: BTreeMap<String, Told<BTreeMap<String, u64>>>,
}

/// What a kernel answered of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceAnswers {
    /// Its objects.
    pub objects: Told<Vec<Objects>>,
    /// Its regions.
    pub regions: Told<Vec<RegionAnswer>>,
}

/// Objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Objects {
    /// `mr`, `mw`, `qp`, `cq`, `pd`.
    pub kind: String,
    /// How many there are.
    pub in_use: Told<u64>,
    /// The most there may be.
    pub limit: Told<u64>,
    /// Whose they are.
    pub owners: Told<Vec<Held>>,
}

/// How many objects somebody has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Who.
    #[serde(flatten)]
    pub owner: Holder,
    /// How many.
    pub count: u64,
}

/// Whose an object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// A process; 0 if the kernel does not tell which.
    Pid(u32),
    /// A part of the kernel.
    Kernel(String),
}

/// A region, and what is counted for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionAnswer {
    /// What the kernel numbers it by.
    pub number: u32,
    /// Whose it is.
    pub owner: Holder,
    /// Its length in bytes.
    pub bytes: u64,
    /// By name.
    pub counters: BTreeMap<String, u64>,
}

impl Kernel {
    /// The one that answers for a root.
    pub fn of(files: &Files) -> Self {
        if files.live() {
            return Self::Live(HashMap::new());
        }
        let read = files.bytes(Path::new(ANSWERS), LONGEST + 1).map_err(|error| error.to_string());
        let answers = read
            .and_then(|bytes| match bytes.len() as u64 > LONGEST {
                true => Err(format!("longer than {LONGEST} bytes")),
                false => parsed(&bytes).map_err(|error| error.to_string()),
            })
            .map_err(|why| format!("{ANSWERS}, for what no other file tells: {why}"));
        Self::Recorded(answers.into())
    }

    /// The objects of these devices, and their regions.
    pub fn devices(&mut self, names: &[String]) -> HashMap<String, DeviceAnswers> {
        match self {
            Self::Live(limits) => live(names, limits),
            Self::Recorded(answers) => {
                let of = |name: &String| (name.clone(), recorded(answers, name));
                names.iter().map(of).collect()
            }
        }
    }

    /// The statistics of a network interface, in their order.
    pub fn statistics(&self, interface: &str) -> Told<Vec<(String, u64)>> {
        match self {
            Self::Live(_) => {
                let pair = |one: Counter| (super::files::clean(one.name.as_bytes()), one.value);
                let all = ethtool::statistics(interface);
                all.map(|all| all.into_iter().map(pair).collect::<Vec<_>>()).into()
            }
            Self::Recorded(Told::Not { not_read }) => Told::not(not_read),
            Self::Recorded(Told::Is(answers)) => match answers.interfaces.get(interface) {
                Some(Told::Is(all)) => Told::Is(all.clone().into_iter().collect()),
                Some(Told::Not { not_read }) => Told::not(not_read),
                None => Told::not("no such interface"),
            },
        }
    }
}

/// Answers, without what would steer a terminal.
fn parsed(bytes: &[u8]) -> serde_json::Result<Answers> {
    fn cleaned(value: Value) -> Value {
        let clean = |text: String| super::files::clean(text.as_bytes());
        match value {
            Value::String(text) => Value::String(clean(text)),
            Value::Array(all) => all.into_iter().map(cleaned).collect(),
            Value::Object(all) => {
                all.into_iter().map(|(name, value)| (clean(name), cleaned(value))).collect()
            }
            other => other,
        }
    }
    serde_json::from_value(cleaned(serde_json::from_slice(bytes)?))
}

fn recorded(answers: &Told<Answers>, name: &str) -> DeviceAnswers {
    match answers {
        Told::Is(answers) => answers
            .devices
            .get(name)
            .cloned()
            .unwrap_or_else(|| nothing_told("the kernel has no such RDMA device")),
        Told::Not { not_read } => nothing_told(not_read),
    }
}

fn nothing_told(why: &str) -> DeviceAnswers {
    DeviceAnswers { objects: Told::not(why), regions: Told::not(why) }
}

fn live(
    names: &[String],
    known: &mut HashMap<String, Told<BTreeMap<String, u64>>>,
) -> HashMap<String, DeviceAnswers> {
    if names.is_empty() {
        return HashMap::new();
    }
    let summaries = resources::summaries();
    let of = |name: &String| {
        let answers = match &summaries {
            Err(error) => nothing_told(&error.to_string()),
            Ok(all) => match all.iter().find(|summary| summary.device == *name) {
                None => nothing_told("the kernel's netlink has no such device in this namespace"),
                Some(summary) => {
                    let limits = known.entry(name.clone()).or_insert_with(|| declared(name));
                    of_device(name, summary, limits)
                }
            },
        };
        (name.clone(), answers)
    };
    names.iter().map(of).collect()
}

/// The limits that a device declares to who opens it.
fn declared(name: &str) -> Told<BTreeMap<String, u64>> {
    let device = name.to_owned();
    let asked = within(PATIENCE, move || IbvDevice::open(&device).map(|device| device.limits()));
    let Limits { pd, cq, qp, mr, mw } = match asked {
        Some(Ok(limits)) => limits,
        Some(Err(error)) => return Told::not(error),
        None => return Told::not("the device did not answer when it was opened"),
    };
    let all = [("pd", pd), ("cq", cq), ("qp", qp), ("mr", mr), ("mw", mw)];
    Told::Is(all.into_iter().map(|(kind, most)| (kind.to_owned(), u64::from(most))).collect())
}

fn of_device(
    name: &str,
    summary: &resources::Summary,
    limits: &Told<BTreeMap<String, u64>>,
) -> DeviceAnswers {
    // There may be very many: they are listed once, with whose they are.
    let regions = resources::regions(name);
    let owners = |kind: Kind| match (kind, &regions) {
        (Kind::Mr, Ok(regions)) => Told::Is(owners_of(regions)),
        (Kind::Mr, Err(error)) => Told::not(error),
        _ => resources::owners(name, kind).map(held).into(),
    };
    let objects = KINDS.map(|kind| {
        let counted = summary.objects.iter().find(|objects| objects.kind == kind);
        let listed = Kind::ALL.into_iter().find(|listed| listed.name() == kind);
        let limit = match (counted.and_then(|counted| counted.most), limits) {
            (Some(most), _) => Told::Is(most),
            (None, Told::Is(limits)) => {
                limits.get(kind).map_or_else(|| Told::not("not declared"), |most| Told::Is(*most))
            }
            (None, Told::Not { not_read }) => Told::not(not_read),
        };
        let not_counted = "the kernel does not count them";
        Objects {
            kind: kind.to_owned(),
            in_use: counted.map_or_else(|| Told::not(not_counted), |found| Told::Is(found.count)),
            limit,
            owners: listed.map_or_else(|| Told::not(not_counted), owners),
        }
    });
    DeviceAnswers {
        objects: Told::Is(objects.into()),
        regions: regions.map(|all| all.into_iter().map(region).collect::<Vec<_>>()).into(),
    }
}

/// Whose regions are, and how many each has.
fn owners_of(regions: &[Region]) -> Vec<Held> {
    let mut owners = BTreeMap::<Owner, u64>::new();
    for region in regions {
        *owners.entry(region.owner.clone()).or_default() += 1;
    }
    held(owners)
}

fn held(owners: BTreeMap<Owner, u64>) -> Vec<Held> {
    owners.into_iter().map(|(owner, count)| Held { owner: holder(owner), count }).collect()
}

fn holder(owner: Owner) -> Holder {
    match owner {
        Owner::Process(pid) => Holder::Pid(pid),
        Owner::Kernel(name) => Holder::Kernel(super::files::clean(name.as_bytes())),
    }
}

fn region(region: Region) -> RegionAnswer {
    let counters = region.counters.into_iter();
    RegionAnswer {
        number: region.number,
        owner: holder(region.owner),
        bytes: region.bytes,
        counters: counters
            .map(|one| (super::files::clean(one.name.as_bytes()), one.value))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_without_answers_says_which_file_would_have_them() {
        let root = tempfile::tempdir().unwrap();
        let of = || Kernel::of(&Files::below(Some(root.path())).unwrap());
        let mut kernel = of();
        let devices = kernel.devices(&["mlx5_0".to_owned()]);
        let why = devices["mlx5_0"].objects.why_not().unwrap();
        assert!(why.contains(ANSWERS) && why.contains("No such file"), "{why}");
        assert!(kernel.statistics("eth0").why_not().unwrap().contains(ANSWERS));
        std::fs::write(root.path().join(ANSWERS), "{\"devices\": 5}").unwrap();
        let why = of().statistics("eth0");
        assert!(why.why_not().unwrap().contains("invalid type"), "{why:?}");
        let odd = r#"{"interfaces": {"eth0": {"not_read": "\u001b[31m\u202e"}}}"#;
        std::fs::write(root.path().join(ANSWERS), odd).unwrap();
        assert_eq!(of().statistics("eth0").why_not(), Some("\u{fffd}[31m\u{fffd}"));
    }

    #[test]
    fn answers_are_read_as_they_are_written() {
        let held = Held { owner: Holder::Pid(7), count: 2 };
        let kernel = Held { owner: Holder::Kernel("nvme_rdma".to_owned()), count: 1 };
        let objects = Objects {
            kind: "mr".to_owned(),
            in_use: Told::Is(3),
            limit: Told::not("why"),
            owners: Told::Is(vec![held, kernel]),
        };
        let text = serde_json::to_string(&objects).unwrap();
        assert!(
            text.contains(r#"[{"pid":7,"count":2},{"kernel":"nvme_rdma","count":1}]"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Objects>(&text).unwrap(), objects);
    }

    #[test]
    fn owners_of_regions_are_counted() {
        let region = |number, owner| Region { number, owner, bytes: 1, counters: Vec::new() };
        let (mine, kernel) = (Owner::Process(7), Owner::Kernel("nvme_rdma".to_owned()));
        let all = [region(1, mine.clone()), region(2, kernel), region(3, mine)];
        let counted: Vec<(Holder, u64)> =
            owners_of(&all).into_iter().map(|held| (held.owner, held.count)).collect();
        assert!(counted.contains(&(Holder::Pid(7), 2)), "{counted:?}");
        assert!(counted.contains(&(Holder::Kernel("nvme_rdma".to_owned()), 1)), "{counted:?}");
    }

    #[test]
    fn a_device_that_this_system_has_not_is_told_so() {
        let mut kernel = Kernel::of(&Files::below(None).unwrap());
        let devices = kernel.devices(&["no such device".to_owned()]);
        assert!(devices["no such device"].objects.why_not().is_some());
    }
}
