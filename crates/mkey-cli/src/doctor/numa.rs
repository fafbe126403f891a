//! The node that a device is attached to, and whether the process may run and have memory there.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use crate::files::no_line;
use crate::interfaces::DEVICES;
use crate::process::field;
use mkey_os::limits::parse_ranges;

/// The check.
pub fn check(at: &Context) -> Vec<Finding> {
    let devices = at.devices();
    if devices.is_empty() {
        return vec![Finding::new(Code::Numa, Status::NotApplicable, "no-device")];
    }
    devices.into_iter().map(|device| of_device(at, device)).collect()
}

fn of_device(at: &Context, device: String) -> Finding {
    let path = format!("{DEVICES}/{device}/device/numa_node");
    let node = match at.files.line(&path) {
        Ok(text) => text.parse::<u32>().ok(),
        Err(_) => None,
    };
    // -1, and devices without a bus, belong to no node.
    let Some(node) = node else {
        return Finding::new(Code::Numa, Status::NotApplicable, "no-node").of(device).file(&path);
    };
    let status_path = at.of_process("status");
    let list_path = format!("sys/devices/system/node/node{node}/cpulist");
    let (status, near) = match (at.files.text(&status_path), at.files.line(&list_path)) {
        (Ok(status), Ok(near)) => (status, near),
        (Err(unread), _) | (_, Err(unread)) => {
            return Finding::unread(Code::Numa, &unread).of(device);
        }
    };
    let memory = field(&status, "Mems_allowed_list").unwrap_or_default();
    let Some(cpus) = field(&status, "Cpus_allowed_list") else {
        let none = no_line(&status_path, "Cpus_allowed_list");
        return Finding::unread(Code::Numa, &none).of(device);
    };
    let (Some(allowed), Some(close)) = (parse_ranges(cpus), parse_ranges(&near)) else {
        let odd = crate::files::garbage(&status_path, cpus);
        return Finding::unread(Code::Numa, &odd).of(device);
    };
    let runs_there = allowed.iter().any(|cpu| close.contains(cpu));
    let memory_there = parse_ranges(memory).is_none_or(|nodes| nodes.contains(&node));
    let (result, says) = match (runs_there, memory_there) {
        (true, true) => (Status::Ok, "near"),
        (false, _) => (Status::Warn, "far"),
        (true, false) => (Status::Warn, "memory-far"),
    };
    Finding::new(Code::Numa, result, says)
        .word("device", &device)
        .of(device)
        .value("node", node)
        .value("cpus_of_node", near)
        .value("cpus_allowed", cpus)
        .word("memory_allowed", memory)
        .file(&path)
        .file(&list_path)
        .file(&status_path)
        .mend("numa")
}
