//! GPU memory: what lets a device reach it.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};

/// Modules of GPUs, and those by which their memory is registered by address.
const GPUS: [&str; 3] = ["nvidia", "amdgpu", "xe"];
const PEERS: [&str; 2] = ["nvidia_peermem", "nv_peer_mem"];

/// The check.
pub fn check(at: &Context) -> Vec<Finding> {
    let loaded = |name: &str| at.files.exists(&format!("sys/module/{name}"));
    let found = |names: &[&'static str]| -> Vec<&'static str> {
        names.iter().copied().filter(|name| loaded(name)).collect()
    };
    let (gpus, peers) = (found(&GPUS), found(&PEERS));
    let nvidia = gpus.contains(&"nvidia");
    let version = at.files.line("proc/driver/nvidia/version").unwrap_or_default();
    let open = version.contains("Open Kernel Module");
    let (status, says) = match (gpus.is_empty(), at.devices().is_empty()) {
        (true, _) => (Status::NotApplicable, "no-gpu"),
        (false, true) => (Status::NotApplicable, "no-device"),
        _ if !nvidia => (Status::Ok, "dma-buf"),
        _ if !peers.is_empty() && open => (Status::Ok, "both"),
        _ if !peers.is_empty() => (Status::Ok, "peer"),
        _ if open => (Status::Ok, "dma-buf"),
        _ => (Status::Warn, "neither"),
    };
    let listed = |names: Vec<&str>| if names.is_empty() { "-".to_owned() } else { names.join(" ") };
    vec![
        Finding::new(Code::PeerMemory, status, says)
            .value("gpu_modules", listed(gpus))
            .value("peer_modules", listed(peers))
            .value("open_modules", open)
            .file("sys/module")
            .file("proc/driver/nvidia/version")
            .mend("peer-memory"),
    ]
}
