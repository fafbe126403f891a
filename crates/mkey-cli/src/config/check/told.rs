//! What the saved configuration of a switch says about RoCE, in one form for all vendors.

use super::reader;
use crate::config::vendor::{Stock, Vendor};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a configuration says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// Whose switch.
    pub vendor: Vendor,
    /// The priorities (traffic classes) that DSCPs are sent to, where the configuration says so.
    pub dscp: BTreeMap<u8, u8>,
    /// What else it says for all ports.
    pub everywhere: Port,
    /// What it says for one.
    pub ports: BTreeMap<String, Port>,
    /// Whether there is a watchdog of PFC.
    pub watchdog: bool,
    /// A built-in profile for RoCE: the word that chooses its mode.
    pub profile: Option<String>,
    /// What contradicts itself within the configuration.
    pub odd: Vec<String>,
}

/// What is said for a port, or for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Whether PFC is switched on.
    pub pfc_on: bool,
    /// The priorities that PFC is for.
    pub pfc: BTreeSet<u8>,
    /// Whether DSCPs are looked at.
    pub trust_dscp: bool,
    /// The queues with ECN.
    pub ecn: BTreeSet<u8>,
    /// Whether 802.3x pause is on.
    pub pause: bool,
}

impl Port {
    /// Whether it has to do with RoCE.
    fn matters(&self) -> bool {
        self.pfc_on || !self.pfc.is_empty() || !self.ecn.is_empty() || self.trust_dscp
    }
}

/// Where a DSCP goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// The configuration says so.
    Written(u8),
    /// The configuration says nothing, and the map that the switch comes with does.
    Stock(u8),
    /// The same, but how sure that map is known is another matter.
    LikelyStock(u8),
    /// Nothing is known.
    Unknown,
}

impl Told {
    /// Nothing said yet.
    pub(super) fn new(vendor: Vendor) -> Self {
        Self {
            vendor,
            dscp: BTreeMap::new(),
            everywhere: Port::default(),
            ports: BTreeMap::new(),
            watchdog: false,
            profile: None,
            odd: Vec::new(),
        }
    }

    /// Where a DSCP goes.
    pub fn goes(&self, dscp: u8) -> Goes {
        match self.dscp.get(&dscp) {
            Some(priority) => Goes::Written(*priority),
            None => match self.vendor.stock(dscp) {
                Stock::Known(priority) => Goes::Stock(priority),
                Stock::Likely(priority) => Goes::LikelyStock(priority),
                Stock::Unknown => Goes::Unknown,
            },
        }
    }

    /// The ports that have to do with RoCE, each with what holds for all.
    pub fn roce_ports(&self) -> Vec<(String, Port)> {
        let all = &self.everywhere;
        let ports = self.ports.iter().filter(|(_, port)| port.matters() || port.pause);
        ports
            .map(|(name, port)| {
                let merged = Port {
                    pfc_on: port.pfc_on || all.pfc_on,
                    pfc: port.pfc.union(&all.pfc).copied().collect(),
                    trust_dscp: port.trust_dscp || all.trust_dscp,
                    ecn: port.ecn.union(&all.ecn).copied().collect(),
                    pause: port.pause || all.pause,
                };
                (name.clone(), merged)
            })
            .collect()
    }

    /// Whether the profile for RoCE is the lossless one.
    pub fn lossless_profile(&self) -> bool {
        self.profile.as_deref() == Some("lossless")
    }
}

/// Whose configuration a text is, by the commands that only one of them has.
pub fn vendor_of(text: &str) -> Option<Vendor> {
    let says = |word: &str| text.lines().any(|line| line.trim_start().starts_with(word));
    if text.trim_start().starts_with('{') {
        return ["PORT_QOS_MAP", "DSCP_TO_TC_MAP", "DEVICE_METADATA", "PFC_WD"]
            .iter()
            .any(|table| text.contains(table))
            .then_some(Vendor::Sonic);
    }
    let found = MARKS.iter().find(|(_, words)| words.iter().any(|word| says(word)));
    found.map(|(vendor, _)| *vendor)
}

/// How lines begin that only one of them has, and that have to do with RoCE.
const MARKS: [(Vendor, &[&str]); 6] = [
    (Vendor::Cumulus, &["nv set "]),
    (Vendor::Nxos, &["class-map type qos", "policy-map type network-qos", "system qos"]),
    (Vendor::Huawei, &["dcb pfc", "diffserv domain", "trust upstream", "ip-dscp-inbound"]),
    (
        Vendor::Onyx,
        &["roce lossless", "roce lossy", "roce semi-lossless", "dcb priority-flow-control"],
    ),
    (Vendor::Eos, &["qos map dscp", "priority-flow-control priority", "tx-queue", "uc-tx-queue"]),
    (
        Vendor::H3c,
        &[
            "priority-flow-control no-drop",
            "priority-flow-control deadlock",
            "qos map-table",
            "qos wred queue",
            "qos wfq",
        ],
    ),
];

/// How lines begin that a configuration has whether it is about RoCE or not, by vendor.
fn usual(vendor: Vendor) -> &'static [&'static str] {
    match vendor {
        Vendor::H3c => &["sysname ", "version ", "interface ", "vlan ", "undo ", "qos ", "return"],
        Vendor::Huawei => {
            &["sysname ", "interface ", "vlan ", "undo ", "dcb ", "qos ", "drop-profile ", "return"]
        }
        Vendor::Nxos => {
            &["hostname ", "version ", "feature ", "interface ", "vlan ", "switchname "]
        }
        Vendor::Eos => &["hostname ", "interface ", "vlan ", "qos ", "transceiver ", "end"],
        Vendor::Onyx => &["hostname ", "interface ", "vlan ", "lldp", "dcb ", "roce", "no roce"],
        Vendor::Cumulus => &["nv set ", "nv config"],
        // That is JSON.
        Vendor::Sonic => &[],
    }
}

/// Whether a text can be a configuration of this vendor: it has a line that such a one has, and none that
/// only another's has.
///
/// # Errors
/// What it is instead, in words.
pub fn fits(vendor: Vendor, text: &str) -> Result<(), String> {
    let title = vendor.title();
    if text.contains('\0') {
        return Err("this is no text".to_owned());
    }
    if vendor == Vendor::Sonic {
        // What is no JSON is refused by who reads it.
        let tables = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
        let named = |name: &String| {
            name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        };
        let tables =
            tables.as_object().map(|all| all.iter().any(|(k, v)| named(k) && v.is_object()));
        return match tables {
            Some(false) => {
                Err(format!("no table of a config_db.json is in it: this is none of {title}"))
            }
            None if text.trim_start().starts_with('[') => {
                Err(format!("a list, which no config_db.json is: this is none of {title}"))
            }
            _ => Ok(()),
        };
    }
    let mut lines = text.lines().map(str::trim_start);
    let says =
        |words: &[&str]| lines.clone().find(|line| words.iter().any(|word| line.starts_with(word)));
    let own = MARKS.iter().find(|(of, _)| *of == vendor).and_then(|(_, words)| says(words));
    if own.is_some() {
        return Ok(());
    }
    let others = MARKS.iter().filter(|(of, _)| *of != vendor);
    let mut others = others.filter_map(|(of, words)| Some((of, says(words)?)));
    if let Some((of, line)) = others.next() {
        let (of, line) = (of.title(), line.chars().take(60).collect::<String>());
        return Err(format!("“{line}” is a line of {of}: this is no configuration of {title}"));
    }
    let syntax = vendor.syntax();
    let known = says(usual(vendor)).is_some() || lines.any(|line| syntax.find(line).is_some());
    if known {
        Ok(())
    } else {
        Err(format!("no line of it is one of {title}: this is no configuration of it"))
    }
}

/// Reads a configuration. What it does not know, it passes over.
///
/// # Errors
/// Why the text can not be of this vendor, in words.
pub fn read(vendor: Vendor, text: &str) -> Result<Told, String> {
    let mut told = Told::new(vendor);
    match vendor {
        Vendor::Sonic => reader::sonic(text, &mut told)?,
        Vendor::H3c => reader::comware(text, &mut told),
        Vendor::Huawei => reader::vrp(text, &mut told),
        Vendor::Nxos => reader::nxos(text, &mut told),
        Vendor::Eos => reader::eos(text, &mut told),
        Vendor::Cumulus => reader::cumulus(text, &mut told),
        Vendor::Onyx => reader::onyx(text, &mut told),
    }
    Ok(told)
}

#[cfg(test)]
mod tests;
