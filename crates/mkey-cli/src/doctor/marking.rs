//! How this host marks RoCE, and what it does for it: trust, PFC, congestion notification. Only the
//! host's half; the switches' half can not be seen from here.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use super::ports;
use crate::config::check::host::{self, Host};
use crate::interfaces::DEVICES;
use crate::process::variable;
use std::collections::BTreeSet;

const CODES: [Code; 4] = [Code::TrafficClass, Code::Trust, Code::Pfc, Code::Ecn];
/// What is usual where nothing is said.
const USUAL_PRIO: u8 = 3;

/// The checks, of each device that is hardware with an Ethernet port.
pub fn check(at: &Context) -> Vec<Finding> {
    let ethernet = |device: &String| {
        at.is_hardware(device)
            && at.ports(device).iter().any(|port| {
                let path = format!("{DEVICES}/{device}/ports/{port}/link_layer");
                at.files.line(&path).is_ok_and(|link| link == "Ethernet")
            })
    };
    let devices: Vec<String> = at.devices().into_iter().filter(ethernet).collect();
    if devices.is_empty() {
        return CODES.map(|code| Finding::new(code, Status::NotApplicable, "no-roce")).into();
    }
    devices.iter().flat_map(|device| of_device(at, device)).collect()
}

fn of_device(at: &Context, device: &str) -> Vec<Finding> {
    let environment = at.files.text(&at.of_process("environ")).unwrap_or_default();
    let said = |name: &str| variable(&environment, name).map(str::to_owned);
    let none = |_: &[&str]| None;
    let dcb: &dyn Fn(&[&str]) -> Option<String> = if at.files.live() { &host::dcb } else { &none };
    let host = host::read(&at.files, Some(device), dcb, &said);
    vec![
        class(device, &host),
        trust(at, device, &host),
        pfc(at, device, &host),
        ecn(at, device, &host),
    ]
}

fn class(device: &str, host: &Host) -> Finding {
    let values: BTreeSet<u8> = host.roce_dscp.iter().map(|value| value.value).collect();
    let (status, says) = match (values.len(), values.first()) {
        (0, _) => (Status::Warn, "not-set"),
        (1, Some(0)) => (Status::Warn, "zero"),
        (1, _) => (Status::Ok, "set"),
        _ => (Status::Warn, "contradicts"),
    };
    let all: Vec<String> = values.iter().map(u8::to_string).collect();
    let mut finding = Finding::new(Code::TrafficClass, status, says)
        .word("device", device)
        .of(device)
        .value("dscp", if all.is_empty() { "-".to_owned() } else { all.join(" ") });
    for value in &host.roce_dscp {
        finding = finding.by(&value.from);
    }
    if host.roce_dscp.is_empty() {
        finding = finding
            .file(&format!("{DEVICES}/{device}/tc/1/traffic_class"))
            .file(&format!("sys/kernel/config/rdma_cm/{device}/ports/1/default_roce_tos"));
    }
    finding.mend("traffic-class")
}

/// The interface below a device, for commands.
fn net(at: &Context, device: &str) -> String {
    let port = at.ports(device).into_iter().next().unwrap_or_else(|| "1".to_owned());
    ports::nets(at, device, &port).into_iter().next().unwrap_or_else(|| "DEV".to_owned())
}

fn trust(at: &Context, device: &str, host: &Host) -> Finding {
    let finding = |status, says| {
        Finding::new(Code::Trust, status, says)
            .word("device", device)
            .word("net", net(at, device))
            .word("dscp", host.roce_dscp().unwrap_or(26))
            .word("prio", host.roce_prio().unwrap_or(USUAL_PRIO))
            .of(device)
            .by("dcb app show")
            .mend("trust")
    };
    if host.map.is_empty() {
        return match host.unmapped.is_empty() {
            false => finding(Status::Warn, "vlan").value("map", "-"),
            true if at.files.live() => finding(Status::NotReadable, "not-told"),
            true => finding(Status::NotReadable, "dcb-untried"),
        };
    }
    let map: Vec<String> = host.map.iter().map(|m| format!("{}:{}", m.dscp, m.priority)).collect();
    let mapped = host.roce_dscp().is_none_or(|dscp| host.map.iter().any(|m| m.dscp == dscp));
    let (status, says) = if mapped { (Status::Ok, "mapped") } else { (Status::Warn, "not-mapped") };
    finding(status, says).value("map", map.join(" "))
}

fn pfc(at: &Context, device: &str, host: &Host) -> Finding {
    let prio = host.roce_prio().unwrap_or(USUAL_PRIO);
    let finding = |status, says| {
        Finding::new(Code::Pfc, status, says)
            .word("device", device)
            .word("net", net(at, device))
            .word("prio", prio)
            .of(device)
            .by("dcb pfc show")
            .mend("pfc")
    };
    if host.pfc.is_empty() {
        let says = if at.files.live() { "not-told" } else { "dcb-untried" };
        return finding(Status::NotReadable, says);
    }
    let on: BTreeSet<u8> = host.pfc.iter().flat_map(|pfc| pfc.priorities.iter().copied()).collect();
    let shown: Vec<String> = on.iter().map(u8::to_string).collect();
    let (status, says) = match (on.is_empty(), on.contains(&prio)) {
        (true, _) => (Status::Warn, "off"),
        (false, false) => (Status::Warn, "other"),
        (false, true) => (Status::Ok, "on"),
    };
    finding(status, says).value("priorities", shown.join(" "))
}

fn ecn(at: &Context, device: &str, host: &Host) -> Finding {
    let prio = host.roce_prio().unwrap_or(USUAL_PRIO);
    let net = net(at, device);
    let switches = [
        format!("sys/class/net/{net}/ecn/roce_np/enable/{prio}"),
        format!("sys/class/net/{net}/ecn/roce_rp/enable/{prio}"),
        format!("sys/kernel/config/bnxt_re/{device}/ports/1/cc/ecn_enable"),
    ];
    let read = switches.iter().filter_map(|path| Some((path, at.files.number(path).ok()?)));
    let read: Vec<_> = read.collect();
    let (status, says) = match (read.is_empty(), read.iter().all(|(_, on)| *on == 1)) {
        (true, _) if host.cnp_dscp().is_some() => (Status::NotReadable, "marked"),
        (true, _) => (Status::NotReadable, "not-told"),
        (false, true) => (Status::Ok, "on"),
        (false, false) => (Status::Warn, "off"),
    };
    let shown = |value: Option<u8>| value.map_or("-".to_owned(), |value| value.to_string());
    let mut finding = Finding::new(Code::Ecn, status, says)
        .word("device", device)
        .word("net", &net)
        .word("prio", prio)
        .of(device)
        .value("cnp_dscp", shown(host.cnp_dscp()))
        .value("cnp_prio", shown(host.cnp_prio()));
    for (path, _) in &read {
        finding = finding.file(path);
    }
    for value in host.cnp_dscp.iter().chain(&host.cnp_prio) {
        finding = finding.by(&value.from);
    }
    if finding.read.is_empty() {
        finding = switches.iter().fold(finding, |finding, path| finding.file(path));
    }
    finding.mend("ecn")
}
