//! What is found out about devices, as it is written to JSON. Sizes are bytes.

use crate::exit::End;
use mkey_core::device::{Capabilities, Device, OdpOps};
use mkey_ibverbs::{Trial, Tried};
use mkey_os::limits;
use serde::Serialize;
use std::net::Ipv6Addr;

/// The version of the JSON form; grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// The devices of a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of mkey.
    pub mkey: String,
    /// Those that could be opened.
    pub devices: Vec<DeviceFacts>,
    /// Those that could not.
    pub failed: Vec<Failed>,
    /// Why there is no real device, with what mends it.
    pub no_real_device: Option<String>,
    /// What this process may pin, whatever the device says.
    pub locks: Locks,
}

/// A device that could not be opened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failed {
    /// Its name.
    pub name: String,
    /// In words.
    pub why: String,
}

/// What this process may pin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Locks {
    /// RLIMIT_MEMLOCK; `None` is unlimited.
    pub memlock: Option<u64>,
    /// CAP_IPC_LOCK is effective: the limit does not count.
    pub ipc_lock: bool,
    /// Pinned by this process now.
    pub pinned: u64,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceFacts {
    /// Its name.
    pub name: String,
    /// What stands behind it.
    pub driver: String,
    /// Whether its figures are those of software.
    pub software: bool,
    /// Its port.
    pub port: Port,
    /// How many objects of each kind, and how large, as the device says.
    pub limits: Limits,
    /// What it offers, and how that is known.
    pub features: Vec<Feature>,
    /// On-demand paging by transport, as the device says.
    pub odp: Vec<Transport>,
    /// How memory is registered on the data path.
    pub fast_registration: String,
    /// Page sizes that it maps, ascending.
    pub page_sizes: Vec<u64>,
    /// What it falls back to and what is not guaranteed then, a sentence each.
    pub notes: Vec<String>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Port {
    /// Whether it is up.
    pub active: bool,
    /// Bytes of a packet.
    pub mtu: u32,
    /// Its identifier, as an IPv6 address.
    pub gid: String,
    /// Where in the table of identifiers that is.
    pub gid_index: u8,
}

/// Limits that a device declares.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names are those of `struct ibv_device_attr`")]
pub struct Limits {
    pub max_mr: u32,
    pub max_mr_size: u64,
    pub max_mw: u32,
    pub max_pd: u32,
    pub max_qp: u32,
    pub max_qp_wr: u32,
    pub max_sge: u32,
    pub max_inline: u32,
    pub max_cq: u32,
    pub max_cqe: u32,
    pub max_srq: u32,
    pub max_ah: u32,
    pub max_rd_atomic: u8,
    pub max_fast_mr_entries: u32,
}

/// Something that a device may offer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Feature {
    /// What.
    pub name: &'static str,
    /// Whether it does.
    pub offered: bool,
    /// How that is known: "tried, works", "tried, not offered", "declared".
    pub known: String,
}

/// On-demand paging of one transport.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transport {
    /// RC, UC or UD.
    pub name: &'static str,
    /// Operations that may touch on-demand memory.
    pub operations: Vec<String>,
}

impl Report {
    /// A report of this version.
    pub fn new(
        devices: Vec<DeviceFacts>,
        failed: Vec<Failed>,
        no_real_device: Option<String>,
        locks: Locks,
    ) -> Self {
        let mkey = env!("CARGO_PKG_VERSION").to_owned();
        Self { schema: SCHEMA, mkey, devices, failed, no_real_device, locks }
    }
}

/// What this process may pin now.
pub fn locks() -> Locks {
    Locks {
        memlock: limits::memlock().soft,
        ipc_lock: limits::has_ipc_lock().unwrap_or(false),
        pinned: limits::held().map_or(0, |held| held.pinned),
    }
}

/// The report as JSON.
///
/// # Errors
/// [`End::Failed`] if it can not be put so.
pub fn json(report: &Report) -> Result<Vec<u8>, End> {
    let mut text = serde_json::to_vec_pretty(report).map_err(End::failed)?;
    text.push(b'\n');
    Ok(text)
}

impl DeviceFacts {
    /// What `device` says of itself, and what came of trying it; nothing is tried of the software
    /// RNIC, which is what it says.
    pub fn of(device: &dyn Device, tried: Option<&Tried>) -> Self {
        let (caps, port) = (device.capabilities(), device.port());
        let odp = [("RC", caps.odp.rc), ("UC", caps.odp.uc), ("UD", caps.odp.ud)];
        Self {
            name: device.name().to_owned(),
            driver: caps.driver.clone(),
            software: caps.software,
            port: Port {
                active: port.active,
                mtu: port.active_mtu,
                gid: Ipv6Addr::from(port.gid.0).to_string(),
                gid_index: port.gid_index,
            },
            limits: limits_of(caps),
            features: features(caps, tried),
            odp: odp.map(|(name, ops)| Transport { name, operations: operations(ops) }).into(),
            fast_registration: fast_registration(caps),
            page_sizes: page_sizes(caps.page_sizes),
            notes: device.notes(),
        }
    }
}

fn limits_of(caps: &Capabilities) -> Limits {
    Limits {
        max_mr: caps.max_mr,
        max_mr_size: caps.max_mr_size,
        max_mw: caps.max_mw,
        max_pd: caps.max_pd,
        max_qp: caps.max_qp,
        max_qp_wr: caps.max_qp_wr,
        max_sge: caps.max_sge,
        max_inline: caps.max_inline,
        max_cq: caps.max_cq,
        max_cqe: caps.max_cqe,
        max_srq: caps.max_srq,
        max_ah: caps.max_ah,
        max_rd_atomic: caps.max_rd_atomic,
        max_fast_mr_entries: caps.max_fast_mr_entries,
    }
}

fn features(caps: &Capabilities, tried: Option<&Tried>) -> Vec<Feature> {
    let feature = |name, offered, of: fn(&Tried) -> &Trial| {
        let known = tried.map_or_else(|| "built in".to_owned(), |tried| of(tried).to_string());
        Feature { name, offered, known }
    };
    let declared = |name, offered| {
        let known = if tried.is_some() { "declared" } else { "built in" };
        Feature { name, offered, known: known.to_owned() }
    };
    let works = |of: fn(&Tried) -> &Trial| tried.is_none_or(|tried| of(tried).works());
    vec![
        feature("memory regions", works(|t| &t.mr), |t| &t.mr),
        feature("zero-based, from a page", works(|t| &t.zero_based), |t| &t.zero_based),
        feature("re-registration", caps.rereg, |t| &t.rereg),
        feature("null region", caps.null_mr, |t| &t.null_mr),
        feature("dma-buf regions", caps.dma_buf, |t| &t.dma_buf),
        feature("windows, type 1", caps.window1, |t| &t.window1),
        feature("windows, type 2", caps.window2, |t| &t.window2),
        feature("on-demand paging", caps.odp.explicit, |t| &t.on_demand),
        feature("on-demand, implicit", caps.odp.implicit, |t| &t.on_demand_implicit),
        feature("prefetch advice", caps.advise, |t| &t.advise),
        feature("fast registration", caps.max_fast_mr_entries > 0, |t| &t.fast_mr),
        feature("shared receive queues", caps.srq, |t| &t.srq),
        declared("atomics", caps.atomics),
        feature("RC queue pairs", works(|t| &t.rc), |t| &t.rc),
        feature("UC queue pairs", works(|t| &t.uc), |t| &t.uc),
        feature("UD queue pairs", works(|t| &t.ud), |t| &t.ud),
    ]
}

fn operations(ops: OdpOps) -> Vec<String> {
    ops.iter_names().map(|(name, _)| name.to_lowercase().replace('_', " ")).collect()
}

fn fast_registration(caps: &Capabilities) -> String {
    let most = caps.max_fast_mr_entries;
    match (most, caps.window2) {
        (0, true) => "none for programs; windows of type 2 over one region instead".to_owned(),
        (0, false) => "none for programs; pooled registrations instead".to_owned(),
        (most, _) if caps.software => format!("REG_MR work requests, {most} entries"),
        (most, _) => format!("mlx5 UMR work requests, {most} entries (not run on hardware)"),
    }
}

fn page_sizes(bits: u64) -> Vec<u64> {
    (0..u64::BITS).map(|bit| 1 << bit).filter(|size| bits & size != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_are_read_off_their_bits() {
        assert_eq!(page_sizes(0x4020_1000), [4096, 2 << 20, 1 << 30]);
        assert!(page_sizes(0).is_empty());
    }

    #[test]
    fn operations_in_words() {
        assert_eq!(operations(OdpOps::READ | OdpOps::SRQ_RECV), ["read", "srq recv"]);
    }
}
