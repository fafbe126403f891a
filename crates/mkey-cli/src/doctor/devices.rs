//! Which RDMA devices the kernel has, what each is, and whether this user may open it.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use crate::explain::errno;
use crate::interfaces::DEVICES;
use std::io::ErrorKind;

/// The checks; `library`: why libibverbs can not be used, if it was tried and can not.
pub fn check(at: &Context, library: Option<&str>) -> Vec<Finding> {
    let devices = at.devices();
    let mut findings = vec![which(&devices, library)];
    for device in &devices {
        findings.push(identity(at, device));
        findings.push(file(at, device));
    }
    findings
}

fn which(devices: &[String], library: Option<&str>) -> Finding {
    let finding = match (devices.is_empty(), library) {
        (true, _) => Finding::new(Code::RdmaDevices, Status::NotApplicable, "none"),
        (false, Some(why)) => {
            Finding::new(Code::RdmaDevices, Status::Fail, "no-library").word("why", why)
        }
        (false, None) => Finding::new(Code::RdmaDevices, Status::Ok, "there"),
    };
    let finding = finding.value("devices", devices.join(" ")).file(DEVICES);
    match finding.says {
        "there" => finding,
        "no-library" => finding.mend("library"),
        _ => finding.mend("no-device"),
    }
}

fn identity(at: &Context, device: &str) -> Finding {
    let path = |name: &str| format!("{DEVICES}/{device}/{name}");
    let text = |name: &str| at.files.line(&path(name)).ok().filter(|text| !text.is_empty());
    let driver = at.files.link_name(&path("device/driver"));
    let hardware = at.is_hardware(device);
    let known = text("node_type");
    let (status, says) = match (&known, hardware) {
        (None, _) => (Status::NotReadable, "says-nothing"),
        (Some(_), true) => (Status::Ok, "hardware"),
        (Some(_), false) => (Status::Ok, "software"),
    };
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    Finding::new(Code::Device, status, says)
        .word("device", device)
        .of(device)
        .value("type", or(known))
        .value("driver", or(driver))
        .value("firmware", or(text("fw_ver")))
        .value("board", or(text("board_id").or_else(|| text("hca_type"))))
        .file(&path(""))
}

/// The file by which programs reach it, and whether they may.
fn file(at: &Context, device: &str) -> Finding {
    let folder = format!("{DEVICES}/{device}/device/infiniband_verbs");
    let class = "sys/class/infiniband_verbs";
    let named = at.files.names(&folder).ok().and_then(|names| names.into_iter().next());
    // Devices without a bus are found by their name.
    let by_name = || {
        let names = at.files.names(class).unwrap_or_default();
        names.into_iter().find(|name| {
            at.files.line(&format!("{class}/{name}/ibdev")).is_ok_and(|of| of == device)
        })
    };
    let Some(name) = named.or_else(by_name) else {
        return Finding::new(Code::DeviceFile, Status::Warn, "no-uverbs")
            .word("device", device)
            .of(device)
            .file(class)
            .mend("uverbs");
    };
    let path = format!("dev/infiniband/{name}");
    let finding = |status, says| {
        Finding::new(Code::DeviceFile, status, says)
            .word("file", format!("/{path}"))
            .of(device)
            .file(&path)
            .mend("device-file")
    };
    if !at.probes {
        return finding(Status::NotApplicable, "untried");
    }
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(at.files.path(&path));
    match opened {
        Ok(_) => finding(Status::Ok, "opens"),
        Err(error) if error.kind() == ErrorKind::NotFound => finding(Status::Fail, "not-there"),
        Err(error) => finding(Status::Fail, "refused").word("why", errno::shown(&error)),
    }
}
