//! What a Linux host says of its marking, and where it says so.

use crate::config::marking::Marking;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a host says. Several places may say the same thing, or contradict each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Host {
    /// DSCP of RoCE.
    pub roce_dscp: Vec<Value>,
    /// Priority of RoCE.
    pub roce_prio: Vec<Value>,
    /// DSCP of congestion notification packets.
    pub cnp_dscp: Vec<Value>,
    /// Their priority.
    pub cnp_prio: Vec<Value>,
    /// The priorities with PFC, by network device.
    pub pfc: Vec<Pfc>,
    /// The priorities that DSCPs have, by network device.
    pub map: Vec<Mapped>,
}

/// A value and where it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Value {
    /// The value.
    pub value: u8,
    /// A file, a program, or an option.
    pub from: String,
}

/// Priorities with PFC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pfc {
    /// The priorities.
    pub priorities: BTreeSet<u8>,
    /// The program that said so.
    pub from: String,
}

/// A DSCP and its priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mapped {
    /// The DSCP.
    pub dscp: u8,
    /// Its priority.
    pub priority: u8,
    /// The program that said so.
    pub from: String,
}

impl Host {
    /// Takes what was said on the command line in place of what was found.
    pub fn say(
        &mut self,
        roce_dscp: Option<u8>,
        roce_prio: Option<u8>,
        cnp_dscp: Option<u8>,
        cnp_prio: Option<u8>,
    ) {
        let fields = [
            (&mut self.roce_dscp, roce_dscp, "--roce-dscp"),
            (&mut self.roce_prio, roce_prio, "--roce-prio"),
            (&mut self.cnp_dscp, cnp_dscp, "--cnp-dscp"),
            (&mut self.cnp_prio, cnp_prio, "--cnp-prio"),
        ];
        for (field, said, from) in fields {
            if let Some(value) = said {
                *field = vec![Value { value, from: from.to_owned() }];
            }
        }
    }

    /// Whether nothing is known at all.
    pub fn says_nothing(&self) -> bool {
        self == &Self::default()
    }

    /// The DSCP of RoCE that is taken as the host's.
    pub fn roce_dscp(&self) -> Option<u8> {
        self.roce_dscp.first().map(|value| value.value)
    }

    /// The priority of RoCE: what is said, else what its DSCP has.
    pub fn roce_prio(&self) -> Option<u8> {
        self.roce_prio.first().map(|value| value.value).or_else(|| self.mapped(self.roce_dscp()?))
    }

    /// The DSCP of notifications.
    pub fn cnp_dscp(&self) -> Option<u8> {
        self.cnp_dscp.first().map(|value| value.value)
    }

    /// The priority of notifications.
    pub fn cnp_prio(&self) -> Option<u8> {
        self.cnp_prio.first().map(|value| value.value).or_else(|| self.mapped(self.cnp_dscp()?))
    }

    fn mapped(&self, dscp: u8) -> Option<u8> {
        self.map.iter().find(|mapped| mapped.dscp == dscp).map(|mapped| mapped.priority)
    }

    /// All of it, if all of it is known.
    pub fn marking(&self) -> Option<Marking> {
        Some(Marking {
            roce_prio: self.roce_prio()?,
            roce_dscp: self.roce_dscp()?,
            cnp_prio: self.cnp_prio()?,
            cnp_dscp: self.cnp_dscp()?,
        })
    }
}

/// Reads a host below `root`; `dcb` runs iproute2's program with these arguments and gives what it
/// printed; `variable` is the environment.
pub fn read(
    root: &Path,
    device: Option<&str>,
    dcb: &dyn Fn(&[&str]) -> Option<String>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Host {
    let mut host = Host::default();
    for name in ["NCCL_IB_TC", "UCX_IB_TRAFFIC_CLASS"] {
        let class = variable(name).and_then(|text| last_number(&text));
        host.roce_dscp
            .extend(class.map(|class| Value { value: class >> 2, from: name.to_owned() }));
    }
    for rdma in names(&root.join("sys/class/infiniband")) {
        if device.is_none_or(|device| device == rdma) {
            read_device(root, &rdma, dcb, &mut host);
        }
    }
    host
}

fn read_device(root: &Path, rdma: &str, dcb: &dyn Fn(&[&str]) -> Option<String>, host: &mut Host) {
    let value = |path: PathBuf| -> Option<(u8, String)> {
        let text = fs::read_to_string(&path).ok()?;
        let shown = path.strip_prefix(root).unwrap_or(&path).display();
        Some((last_number(&text)?, format!("/{shown}")))
    };
    let class = |path: PathBuf| value(path).filter(|(class, _)| *class != 0);
    let sys = root.join("sys/class/infiniband").join(rdma);
    let kernel = root.join("sys/kernel");
    let dscps = [
        class(sys.join("tc/1/traffic_class")),
        class(kernel.join("config/rdma_cm").join(rdma).join("ports/1/default_roce_tos")),
    ];
    let dscps = dscps.into_iter().flatten();
    host.roce_dscp.extend(dscps.map(|(class, from)| Value { value: class >> 2, from }));
    let bnxt = kernel.join("config/bnxt_re").join(rdma).join("ports/1/cc");
    let pci = fs::canonicalize(sys.join("device")).ok();
    let pci = pci.as_deref().and_then(Path::file_name).unwrap_or_default();
    let mlx5 = kernel.join("debug/mlx5").join(pci).join("cc_params");
    let nets = names(&sys.join("device/net"));
    let mut put = |field: fn(&mut Host) -> &mut Vec<Value>, path: PathBuf, most: u8| {
        let found = value(path).filter(|(value, _)| *value <= most);
        field(host).extend(found.map(|(value, from)| Value { value, from }));
    };
    put(|h| &mut h.roce_dscp, bnxt.join("roce_dscp"), 63);
    put(|h| &mut h.roce_prio, bnxt.join("roce_prio"), 7);
    put(|h| &mut h.cnp_dscp, bnxt.join("cnp_dscp"), 63);
    put(|h| &mut h.cnp_prio, bnxt.join("cnp_prio"), 7);
    put(|h| &mut h.cnp_dscp, mlx5.join("np_cnp_dscp"), 63);
    put(|h| &mut h.cnp_prio, mlx5.join("np_cnp_prio"), 7);
    for net in &nets {
        let ofed = root.join("sys/class/net").join(net).join("ecn/roce_np");
        put(|h| &mut h.cnp_dscp, ofed.join("cnp_dscp"), 63);
        put(|h| &mut h.cnp_prio, ofed.join("cnp_802p_prio"), 7);
    }
    for net in &nets {
        let from = format!("dcb app show dev {net}");
        let map = dcb(&["-j", "app", "show", "dev", net]);
        let map = map.map(|text| dscp_priorities(&text)).unwrap_or_default();
        host.map.extend(map.into_iter().map(|(dscp, priority)| Mapped {
            dscp,
            priority,
            from: from.clone(),
        }));
        let pfc = dcb(&["-j", "pfc", "show", "dev", net]).and_then(|text| pfc_priorities(&text));
        let from = format!("dcb pfc show dev {net}");
        host.pfc.extend(pfc.map(|priorities| Pfc { priorities, from }));
    }
}

/// Runs iproute2's `dcb`, where it is installed.
pub fn dcb(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("dcb");
    let output =
        command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `dcb -j app show`: pairs of DSCP and priority.
fn dscp_priorities(json: &str) -> Vec<(u8, u8)> {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(json) else { return Vec::new() };
    let pairs = value.get("dscp_prio").and_then(|pairs| pairs.as_array());
    let number = |value: Option<&serde_json::Value>| u8::try_from(value?.as_u64()?).ok();
    pairs
        .into_iter()
        .flatten()
        .filter_map(|pair| Some((number(pair.get(0))?, number(pair.get(1))?)))
        .filter(|(dscp, priority)| *dscp < 64 && *priority < 8)
        .collect()
}

/// `dcb -j pfc show`: which priorities are on.
fn pfc_priorities(json: &str) -> Option<BTreeSet<u8>> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let on = value.get("prio_pfc")?.as_array()?;
    let is_on = |value: &serde_json::Value| value.as_bool().unwrap_or(value.as_u64() == Some(1));
    Some((0u8..8).zip(on).filter(|(_, value)| is_on(value)).map(|(priority, _)| priority).collect())
}

/// The last number of a text: files say `106`, `0x6a` or `Global tclass=106`.
fn last_number(text: &str) -> Option<u8> {
    let word = text.split(|c: char| !c.is_ascii_alphanumeric()).rfind(|word| !word.is_empty())?;
    match word.strip_prefix("0x") {
        Some(hex) => u8::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests;
