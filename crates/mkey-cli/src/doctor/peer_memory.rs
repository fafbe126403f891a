//! GPU memory: what lets a device reach it.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};

/// Where the kernel shows its modules.
const MODULES: &str = "sys/module";
/// Modules of GPUs, and those by which their memory is registered by address.
const GPUS: [&str; 3] = ["nvidia", "amdgpu", "xe"];
const PEERS: [&str; 2] = ["nvidia_peermem", "nv_peer_mem"];

/// The check; `others`: what was found before, of devices that were tried with dma-bufs.
pub fn check(at: &Context, others: &[Finding]) -> Vec<Finding> {
    let loaded = |name: &str| at.files.exists(&format!("{MODULES}/{name}"));
    let found = |names: &[&'static str]| -> Vec<&'static str> {
        names.iter().copied().filter(|name| loaded(name)).collect()
    };
    let (gpus, peers) = (found(&GPUS), found(&PEERS));
    // Of a folder that is not there no module is missing.
    if gpus.is_empty()
        && let Err(unread) = at.files.names(MODULES)
    {
        return vec![Finding::unread(Code::PeerMemory, &unread)];
    }
    let nvidia = gpus.contains(&"nvidia");
    let version = at.files.line("proc/driver/nvidia/version").unwrap_or_default();
    let open = version.contains("Open Kernel Module");
    // Not every NIC takes a dma-buf: mlx4 and rxe do not.
    let tried = others.iter().filter(|finding| finding.code == Code::DmaBuf);
    let tried: Vec<bool> = tried
        .filter(|finding| finding.says != "untried")
        .map(|finding| finding.status == Status::Ok)
        .collect();
    let taken = (!tried.is_empty()).then(|| tried.contains(&true));
    let (status, says) = match (gpus.is_empty(), at.devices().is_empty()) {
        (true, _) => (Status::NotApplicable, "no-gpu"),
        (false, true) => (Status::NotApplicable, "no-device"),
        _ if nvidia && !peers.is_empty() && (!open || taken != Some(true)) => (Status::Ok, "peer"),
        _ if nvidia && !peers.is_empty() => (Status::Ok, "both"),
        _ if nvidia && !open => (Status::Warn, "neither"),
        _ => match taken {
            Some(true) => (Status::Ok, "dma-buf"),
            Some(false) => (Status::Warn, "not-taken"),
            None => (Status::NotReadable, "not-tried"),
        },
    };
    let listed = |names: Vec<&str>| if names.is_empty() { "-".to_owned() } else { names.join(" ") };
    vec![
        Finding::new(Code::PeerMemory, status, says)
            .value("gpu_modules", listed(gpus))
            .value("peer_modules", listed(peers))
            .value("open_modules", open)
            .file(MODULES)
            .by("ibv_reg_dmabuf_mr")
            .file("proc/driver/nvidia/version")
            .mend(if nvidia && says != "not-taken" { "peer-memory" } else { "dma-buf-nic" }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::launcher::Launcher;
    use crate::files::Files;

    #[test]
    fn a_gpu_is_reached_by_dma_buf_only_if_a_device_takes_one() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["sys/module/amdgpu", "sys/class/infiniband/mlx4_0"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let at = Context {
            files: Files::below(Some(root.path())).unwrap(),
            process: "self".to_owned(),
            probes: false,
            launcher: Launcher::Shell,
            device: None,
            user: None,
        };
        let tried = |status, says| vec![Finding::new(Code::DmaBuf, status, says)];
        for (others, status) in [
            (Vec::new(), Status::NotReadable),
            (vec![Finding::untried(Code::DmaBuf)], Status::NotReadable),
            (tried(Status::NotApplicable, "not-offered"), Status::Warn),
            (tried(Status::Ok, "offered"), Status::Ok),
        ] {
            assert_eq!(check(&at, &others)[0].status, status, "{others:?}");
        }
    }
}
