//! Ports: their state, their identifiers, their MTU.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use crate::files::garbage;
use crate::interfaces::{self, DEVICES};

/// Identifiers beyond this index are not looked at; tables have 256.
const MOST_GIDS: usize = 512;
/// What a path MTU of 4096 needs of the Ethernet interface below it: headers of IPv6, UDP and RoCE.
const JUMBO: u64 = 4200;
/// The kernel has the MTU of an interface as a signed number of 32 bits.
const MOST_MTU: u64 = (1 << 31) - 1;

/// The checks.
pub fn check(at: &Context) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in at.devices() {
        let ports = at.ports(&device);
        if ports.is_empty() {
            findings.push(
                Finding::new(Code::Port, Status::NotReadable, "no-ports")
                    .word("device", &device)
                    .of(device.clone())
                    .file(&format!("{DEVICES}/{device}/ports")),
            );
        }
        for port in ports {
            let ethernet = link(at, &device, &port).is_none_or(|link| link == "Ethernet");
            findings.push(state(at, &device, &port));
            findings.push(identifiers(at, &device, &port, ethernet));
            if ethernet {
                findings.extend(mtu(at, &device, &port));
            }
        }
    }
    findings
}

fn path(device: &str, port: &str, name: &str) -> String {
    format!("{DEVICES}/{device}/ports/{port}/{name}")
}

fn link(at: &Context, device: &str, port: &str) -> Option<String> {
    at.files.line(&path(device, port, "link_layer")).ok().filter(|text| !text.is_empty())
}

fn state(at: &Context, device: &str, port: &str) -> Finding {
    let file = path(device, port, "state");
    let subject = format!("{device}/{port}");
    let state = match at.files.line(&file) {
        Ok(state) => state,
        Err(unread) => return Finding::unread(Code::Port, &unread).of(subject),
    };
    let word = |name| at.files.line(&path(device, port, name)).unwrap_or_else(|_| "-".to_owned());
    // "4: ACTIVE"
    let (status, says) = match state.split(':').next().map(str::trim) {
        Some("4") => (Status::Ok, "active"),
        Some("1" | "2" | "3" | "5") => (Status::Warn, "not-active"),
        _ => (Status::NotReadable, "odd"),
    };
    Finding::new(Code::Port, status, says)
        .of(subject)
        .value("state", state)
        .value("physical", word("phys_state"))
        .value("rate", word("rate"))
        .value("link_layer", link(at, device, port).unwrap_or_else(|| "-".to_owned()))
        .word("net", nets(at, device, port).first().map_or("-", String::as_str))
        .file(&file)
        .mend("port")
}

fn identifiers(at: &Context, device: &str, port: &str, ethernet: bool) -> Finding {
    let folder = path(device, port, "gids");
    let subject = format!("{device}/{port}");
    let names = match at.files.names(&folder) {
        Ok(names) => names,
        Err(unread) => return Finding::unread(Code::Gid, &unread).of(subject),
    };
    let (mut all, mut v2) = (0u64, 0u64);
    for index in names.iter().take(MOST_GIDS) {
        let gid = at.files.line(&format!("{folder}/{index}")).unwrap_or_default();
        let set = gid.bytes().any(|byte| byte != b'0' && byte != b':' && byte.is_ascii_hexdigit());
        if set {
            all += 1;
            // The kernel refuses to tell the type of an index that is not in use.
            let kind = at.files.line(&path(device, port, &format!("gid_attrs/types/{index}")));
            v2 += u64::from(kind.is_ok_and(|kind| kind.contains("v2")));
        }
    }
    let (status, says) = match (all, v2) {
        (0, _) => (Status::Warn, "none"),
        (_, 0) if ethernet => (Status::Warn, "no-v2"),
        _ => (Status::Ok, "there"),
    };
    Finding::new(Code::Gid, status, says)
        .of(subject)
        .value("gids", all)
        .value("roce_v2", v2)
        .word("net", nets(at, device, port).first().map_or("-", String::as_str))
        .file(&folder)
        .mend("gid")
}

/// The network interfaces of a port.
pub fn nets(at: &Context, device: &str, port: &str) -> Vec<String> {
    interfaces::of_port_in(&at.files, device, port, at.ports(device).len() == 1)
}

fn mtu(at: &Context, device: &str, port: &str) -> Vec<Finding> {
    let of = |net: String| {
        let file = format!("sys/class/net/{net}/mtu");
        let subject = format!("{device}/{port}");
        let mtu = match at.files.number(&file) {
            Ok(mtu) if mtu <= MOST_MTU => mtu,
            Ok(odd) => {
                let unread = garbage(&file, &odd.to_string());
                return Finding::unread(Code::Mtu, &unread).of(subject);
            }
            Err(unread) => return Finding::unread(Code::Mtu, &unread).of(subject),
        };
        let (status, says) = match mtu {
            mtu if mtu >= JUMBO => (Status::Ok, "jumbo"),
            _ if !at.is_hardware(device) => (Status::Ok, "software"),
            _ => (Status::Warn, "small"),
        };
        Finding::new(Code::Mtu, status, says)
            .of(subject)
            .value("mtu", mtu)
            .word("net", net)
            .file(&file)
            .mend("mtu")
    };
    nets(at, device, port).into_iter().map(of).collect()
}
