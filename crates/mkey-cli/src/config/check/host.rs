//! What a Linux host says of its marking, and where it says so.

use crate::config::marking::Marking;
use crate::device;
use crate::files::Files;
use crate::interfaces::{self, DEVICES};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

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
    /// The network devices that said that no DSCP has one.
    pub unmapped: Vec<String>,
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

/// Reads a host's files; `dcb` runs iproute2's program with these arguments and gives what it
/// printed; `variable` is the environment.
pub fn read(
    files: &Files,
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
    for rdma in files.names(DEVICES).unwrap_or_default() {
        if device.is_none_or(|device| device == rdma) {
            read_device(files, &rdma, dcb, &mut host);
        }
    }
    host
}

fn read_device(
    files: &Files,
    rdma: &str,
    dcb: &dyn Fn(&[&str]) -> Option<String>,
    host: &mut Host,
) {
    let value = |path: String| -> Option<(u8, String)> {
        Some((last_number(&files.text(&path).ok()?)?, format!("/{path}")))
    };
    let class = |path: String| value(path).filter(|(class, _)| *class != 0);
    let sys = format!("{DEVICES}/{rdma}");
    let dscps = [
        class(format!("{sys}/tc/1/traffic_class")),
        class(format!("sys/kernel/config/rdma_cm/{rdma}/ports/1/default_roce_tos")),
    ];
    let dscps = dscps.into_iter().flatten();
    host.roce_dscp.extend(dscps.map(|(class, from)| Value { value: class >> 2, from }));
    let bnxt = format!("sys/kernel/config/bnxt_re/{rdma}/ports/1/cc");
    let pci = files.real_name(&format!("{sys}/device")).unwrap_or_default();
    let mlx5 = format!("sys/kernel/debug/mlx5/{pci}/cc_params");
    let nets = nets(files, rdma);
    let mut put = |field: fn(&mut Host) -> &mut Vec<Value>, path: String, most: u8| {
        let found = value(path).filter(|(value, _)| *value <= most);
        field(host).extend(found.map(|(value, from)| Value { value, from }));
    };
    put(|h| &mut h.roce_dscp, format!("{bnxt}/roce_dscp"), 63);
    put(|h| &mut h.roce_prio, format!("{bnxt}/roce_prio"), 7);
    put(|h| &mut h.cnp_dscp, format!("{bnxt}/cnp_dscp"), 63);
    put(|h| &mut h.cnp_prio, format!("{bnxt}/cnp_prio"), 7);
    put(|h| &mut h.cnp_dscp, format!("{mlx5}/np_cnp_dscp"), 63);
    put(|h| &mut h.cnp_prio, format!("{mlx5}/np_cnp_prio"), 7);
    for net in &nets {
        let ofed = format!("sys/class/net/{net}/ecn/roce_np");
        put(|h| &mut h.cnp_dscp, format!("{ofed}/cnp_dscp"), 63);
        put(|h| &mut h.cnp_prio, format!("{ofed}/cnp_802p_prio"), 7);
    }
    for net in &nets {
        let from = format!("dcb app show dev {net}");
        let map = dcb(&["-j", "app", "show", "dev", net]);
        let map = map.and_then(|text| dscp_priorities(&text));
        if map.as_ref().is_some_and(Vec::is_empty) {
            host.unmapped.push(net.clone());
        }
        host.map.extend(map.into_iter().flatten().map(|(dscp, priority)| Mapped {
            dscp,
            priority,
            from: from.clone(),
        }));
        let pfc = dcb(&["-j", "pfc", "show", "dev", net]).and_then(|text| pfc_priorities(&text));
        let from = format!("dcb pfc show dev {net}");
        host.pfc.extend(pfc.map(|priorities| Pfc { priorities, from }));
    }
}

/// The interfaces of all ports of a device, each once.
fn nets(files: &Files, device: &str) -> Vec<String> {
    let mut ports = files.names(&format!("{DEVICES}/{device}/ports")).unwrap_or_default();
    // One that shows no ports has its card's interfaces all the same.
    if ports.is_empty() {
        ports.push("1".to_owned());
    }
    let only = ports.len() == 1;
    let all = ports.iter().flat_map(|port| interfaces::of_port_in(files, device, port, only));
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Programs that have not ended after this are ended.
const PATIENCE: Duration = Duration::from_secs(3);

/// Runs iproute2's `dcb`, where it is installed.
pub fn dcb(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("dcb");
    command.args(arguments);
    told_by(command, PATIENCE)
}

/// What a program printed; nothing if it is not there, fails, or takes longer.
fn told_by(mut command: Command, patience: Duration) -> Option<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut stdout = child.stdout.take()?;
    let told = device::within(patience, move || {
        let mut bytes = Vec::new();
        stdout.by_ref().take(LONGEST).read_to_end(&mut bytes).map(|_| bytes)
    });
    if told.is_none() {
        // It may have ended meanwhile.
        let _ = child.kill();
    }
    let status = child.wait().ok()?;
    let bytes = told?.ok()?;
    status.success().then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// No answer is as long as this, in bytes.
const LONGEST: u64 = 1 << 20;

/// `dcb -j app show`: pairs of DSCP and priority; `None` if it is no answer.
fn dscp_priorities(json: &str) -> Option<Vec<(u8, u8)>> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    // Where there are none the whole list is left out.
    let pairs = value.as_object()?.get("dscp_prio").and_then(|pairs| pairs.as_array());
    let number = |value: Option<&serde_json::Value>| u8::try_from(value?.as_u64()?).ok();
    let all = pairs
        .into_iter()
        .flatten()
        .filter_map(|pair| Some((number(pair.get(0))?, number(pair.get(1))?)));
    Some(all.filter(|(dscp, priority)| *dscp < 64 && *priority < 8).collect())
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

#[cfg(test)]
mod tests;
