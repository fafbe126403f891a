//! How the IOMMU translates what devices address.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use crate::files::{Unread, Why};
use crate::interfaces::DEVICES;
use std::collections::BTreeSet;

/// The check: of each device; of the host where there is none.
pub fn check(at: &Context) -> Vec<Finding> {
    let devices = at.devices();
    if devices.is_empty() {
        return vec![host(at)];
    }
    devices.into_iter().map(|device| of_device(at, device)).collect()
}

/// The words of the boot line that are about it.
fn boot_words(at: &Context) -> String {
    let line = at.files.line("proc/cmdline").unwrap_or_default();
    let about = |word: &&str| {
        ["iommu=", "intel_iommu=", "amd_iommu=", "iommu."]
            .iter()
            .any(|begin| word.starts_with(begin))
    };
    let words: Vec<&str> = line.split_whitespace().filter(about).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(" ") }
}

fn of_device(at: &Context, device: String) -> Finding {
    let group = format!("{DEVICES}/{device}/device/iommu_group");
    let path = format!("{group}/type");
    let finding = |status, says, kind: &str| {
        Finding::new(Code::Iommu, status, says)
            .word("device", &device)
            .of(device.clone())
            .value("type", kind)
            .value("boot", boot_words(at))
            .file(&path)
            .file("proc/cmdline")
            .mend("iommu")
    };
    if !at.files.exists(&group) {
        if let Some(unread) = unseen(at) {
            return Finding::unread(Code::Iommu, &unread).of(device);
        }
        return finding(Status::Ok, "none", "none");
    }
    match at.files.line(&path) {
        Ok(kind) if kind == "identity" => finding(Status::Ok, "identity", &kind),
        Ok(kind) if kind.starts_with("DMA") => finding(Status::Warn, "translated", &kind),
        Ok(kind) => finding(Status::NotReadable, "odd", &kind),
        Err(unread) => Finding::unread(Code::Iommu, &unread).of(device),
    }
}

/// Why a group that is not there does not say that there is none: of a host that was copied in part it may
/// not have been copied.
fn unseen(at: &Context) -> Option<Unread> {
    if at.files.live() {
        return None;
    }
    at.files.line("proc/cmdline").err()
}

fn host(at: &Context) -> Finding {
    let folder = "sys/kernel/iommu_groups";
    let groups = match at.files.names(folder) {
        Ok(groups) => groups,
        // A kernel that shows itself and no groups has none.
        Err(Unread { why: Why::Missing, .. }) if at.files.exists("sys/kernel") => {
            if let Some(unread) = unseen(at) {
                return Finding::unread(Code::Iommu, &unread);
            }
            Vec::new()
        }
        Err(unread) => return Finding::unread(Code::Iommu, &unread),
    };
    let kinds = groups.iter().filter_map(|g| at.files.line(&format!("{folder}/{g}/type")).ok());
    let kinds: BTreeSet<String> = kinds.collect();
    let (says, kind) = if groups.is_empty() {
        ("host-none", "none".to_owned())
    } else {
        ("host", kinds.into_iter().collect::<Vec<_>>().join(" "))
    };
    Finding::new(Code::Iommu, Status::Ok, says)
        .value("type", kind)
        .value("boot", boot_words(at))
        .file(folder)
        .file("proc/cmdline")
}
