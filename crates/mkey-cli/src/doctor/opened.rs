//! Devices, opened: what they say they can hold, what of it was tried, what is in use.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use super::rkey;
use crate::bench::units::{count, size};
use crate::device::{self, PATIENCE, within};
use crate::devices::facts::{DeviceFacts, Feature};
use mkey_core::device::Device;
use mkey_os::rdma_netlink::resources::{self, InUse};
use mkey_soft::PinMode;
use std::time::Duration;

/// What a device said and did.
#[derive(Clone, Debug)]
struct Seen {
    facts: DeviceFacts,
    keys: Result<Vec<u32>, String>,
    in_use: Result<Vec<InUse>, String>,
}

/// What a device shows of itself, or why not.
#[derive(Clone, Debug)]
enum Shown {
    Seen(Box<Seen>),
    Refused(String),
    Silent,
}

const CODES: [Code; 6] = [
    Code::DeviceLimits,
    Code::Windows,
    Code::OnDemand,
    Code::DmaBuf,
    Code::Resources,
    Code::RkeyPredictable,
];

/// The checks of all devices.
pub fn check(at: &Context) -> Vec<Finding> {
    let mut devices = at.devices();
    // The software RNIC of this process, for who asks about it.
    if at.device.as_deref() == Some(device::SOFTWARE) {
        devices.push(device::SOFTWARE.to_owned());
    }
    if devices.is_empty() {
        return vec![Finding::new(Code::DeviceOpen, Status::NotApplicable, "no-device")];
    }
    if !at.probes {
        let all = [Code::DeviceOpen].into_iter().chain(CODES);
        return all.map(Finding::untried).collect();
    }
    devices.iter().flat_map(|device| of_device(device)).collect()
}

fn of_device(device: &str) -> Vec<Finding> {
    match look(device) {
        Shown::Seen(seen) => {
            let mut findings = vec![
                Finding::new(Code::DeviceOpen, Status::Ok, "opens")
                    .word("device", device)
                    .of(device)
                    .by("ibv_open_device"),
                limits(device, &seen),
                windows(device, &seen),
                on_demand(device, &seen),
                dma_buf(device, &seen),
                resources(device, &seen),
            ];
            findings.push(match &seen.keys {
                Ok(keys) => rkey::judge(device, keys),
                Err(why) => failed(Code::RkeyPredictable, device, "ibv_reg_mr", why),
            });
            findings
        }
        Shown::Refused(why) => vec![
            Finding::new(Code::DeviceOpen, Status::Fail, "refused")
                .word("device", device)
                .word("why", why)
                .of(device)
                .by("ibv_open_device")
                .mend("device-file"),
        ],
        Shown::Silent => vec![
            Finding::new(Code::DeviceOpen, Status::Fail, "silent")
                .word("device", device)
                .word("seconds", PATIENCE.as_secs())
                .of(device)
                .by("ibv_open_device")
                .mend("device-health"),
        ],
    }
}

fn failed(code: Code, device: &str, call: &str, why: &str) -> Finding {
    Finding::new(code, Status::NotReadable, "unread-error")
        .of(device)
        .word("file", call)
        .word("what", why)
        .by(call)
}

/// Looks at a device, for as long as it may take.
fn look(device: &str) -> Shown {
    let name = device.to_owned();
    match within(PATIENCE, move || open(&name)) {
        Some(Ok(seen)) => Shown::Seen(Box::new(seen)),
        Some(Err(why)) => Shown::Refused(why),
        None => Shown::Silent,
    }
}

fn open(name: &str) -> Result<Seen, String> {
    let refused = |error: mkey_core::error::Error| error.to_string();
    if name == device::SOFTWARE {
        let device =
            device::open_software(PinMode::Kernel, Duration::ZERO, false).map_err(refused)?;
        let keys = rkey::sample(&*device as &dyn Device).map_err(refused);
        let facts = DeviceFacts::of(&*device as &dyn Device, None);
        return Ok(Seen { facts, keys, in_use: Ok(Vec::new()) });
    }
    let device = device::open_real(name).map_err(refused)?;
    // Before anything of ours is in use.
    let in_use = resources::in_use(name).map_err(|error| error.to_string());
    let keys = rkey::sample(&*device as &dyn Device).map_err(refused);
    let facts = DeviceFacts::of(&*device as &dyn Device, Some(device.tried()));
    Ok(Seen { facts, keys, in_use })
}

fn limits(device: &str, seen: &Seen) -> Finding {
    let limits = &seen.facts.limits;
    // What no device has: no limit, although it is written as one.
    let region = match limits.max_mr_size {
        size if size >= 1 << 62 => "2^64".to_owned(),
        bytes => size(bytes),
    };
    let (status, says) = match (limits.max_mr, limits.max_mr_size) {
        (0, _) | (_, 0) => (Status::Warn, "absurd"),
        _ => (Status::Ok, "told"),
    };
    Finding::new(Code::DeviceLimits, status, says)
        .of(device)
        .value("max_mr", limits.max_mr)
        .value("max_mr_size", region)
        .value("max_mw", limits.max_mw)
        .value("max_qp", limits.max_qp)
        .value("max_cq", limits.max_cq)
        .value("max_pd", limits.max_pd)
        .word("max_mr", count(limits.max_mr.into()))
        .word("max_qp", count(limits.max_qp.into()))
        .by("ibv_query_device_ex")
}

fn feature<'s>(seen: &'s Seen, name: &str) -> Option<&'s Feature> {
    seen.facts.features.iter().find(|feature| feature.name == name)
}

/// How it is known whether a device has a feature, in words of each language.
fn how(finding: Finding, gap: &'static str, feature: Option<&Feature>) -> Finding {
    let known = feature.map_or("-", |feature| feature.known.as_str());
    let finding = finding.word(gap, known);
    match known {
        "tried, works" => finding.term(gap, "known-works"),
        "tried, not offered" => finding.term(gap, "known-not-offered"),
        "declared" => finding.term(gap, "known-declared"),
        "built in" => finding.term(gap, "known-built-in"),
        _ => finding,
    }
}

fn windows(device: &str, seen: &Seen) -> Finding {
    let one = feature(seen, "windows, type 1");
    let two = feature(seen, "windows, type 2");
    let offered = |feature: Option<&Feature>| feature.is_some_and(|feature| feature.offered);
    let says_it_has = seen.facts.limits.max_mw > 0;
    let (status, says) = match (offered(one), offered(two)) {
        (_, true) => (Status::Ok, "type-2"),
        (true, false) => (Status::Ok, "type-1"),
        // bnxt_re, cxgb4, erdma and qedr tell of windows and do not make any.
        (false, false) if says_it_has => (Status::Warn, "told-not-offered"),
        (false, false) => (Status::NotApplicable, "not-offered"),
    };
    let finding =
        how(how(Finding::new(Code::Windows, status, says), "known_1", one), "known_2", two);
    finding
        .of(device)
        .value("type_1", offered(one))
        .value("type_2", offered(two))
        .word("max_mw", seen.facts.limits.max_mw)
        .by("ibv_alloc_mw")
        .mend("windows")
}

fn on_demand(device: &str, seen: &Seen) -> Finding {
    let explicit = feature(seen, "on-demand paging");
    let implicit = feature(seen, "on-demand, implicit");
    let offered = |feature: Option<&Feature>| feature.is_some_and(|feature| feature.offered);
    let (status, says) = match (offered(explicit), offered(implicit)) {
        (true, true) => (Status::Ok, "both"),
        (true, false) => (Status::Ok, "explicit"),
        (false, _) => (Status::NotApplicable, "not-offered"),
    };
    how(Finding::new(Code::OnDemand, status, says), "known", explicit)
        .of(device)
        .value("explicit", offered(explicit))
        .value("implicit", offered(implicit))
        .by("ibv_reg_mr(IBV_ACCESS_ON_DEMAND)")
}

fn dma_buf(device: &str, seen: &Seen) -> Finding {
    let tried = feature(seen, "dma-buf regions");
    let offered = tried.is_some_and(|feature| feature.offered);
    let (status, says) =
        if offered { (Status::Ok, "offered") } else { (Status::NotApplicable, "not-offered") };
    how(Finding::new(Code::DmaBuf, status, says), "known", tried)
        .of(device)
        .value("offered", offered)
        .by("ibv_reg_dmabuf_mr")
}

/// What is in use of a kind, and how much there may be.
fn headroom(seen: &Seen, in_use: &[InUse]) -> Vec<(String, u64, u64)> {
    let limits = &seen.facts.limits;
    let declared = |kind: &str| match kind {
        "mr" => Some(limits.max_mr),
        "qp" => Some(limits.max_qp),
        "cq" => Some(limits.max_cq),
        "pd" => Some(limits.max_pd),
        "srq" => Some(limits.max_srq),
        _ => None,
    };
    let of = |used: &InUse| {
        let most = used.most.or_else(|| declared(&used.kind).map(u64::from))?;
        (most > 0).then(|| (used.kind.clone(), used.count, most))
    };
    in_use.iter().filter_map(of).collect()
}

fn resources(device: &str, seen: &Seen) -> Finding {
    let call = "netlink RDMA_NLDEV_CMD_RES_GET";
    let in_use = match &seen.in_use {
        Ok(in_use) => in_use,
        Err(why) => return failed(Code::Resources, device, call, why),
    };
    let room = headroom(seen, in_use);
    let share = |used: u64, most: u64| used.saturating_mul(100) / most.max(1);
    let Some((kind, used, most)) = room.iter().max_by_key(|(_, used, most)| share(*used, *most))
    else {
        return Finding::new(Code::Resources, Status::NotApplicable, "not-told")
            .of(device)
            .by(call);
    };
    // The real limit can be half of what is told.
    let (status, says) = match share(*used, *most) {
        95.. => (Status::Fail, "full"),
        50.. => (Status::Warn, "half"),
        _ => (Status::Ok, "room"),
    };
    let all: Vec<String> =
        room.iter().map(|(kind, used, most)| format!("{kind} {used}/{most}")).collect();
    Finding::new(Code::Resources, status, says)
        .of(device)
        .measure("in_use", all.join(", "))
        .word("kind", kind)
        .word("used", used)
        .word("most", most)
        .by(call)
        .mend("resources")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_software_rnic_is_looked_at_as_a_device_is() {
        let findings = of_device(device::SOFTWARE);
        let of = |code| findings.iter().find(|finding| finding.code == code).unwrap();
        assert_eq!(of(Code::DeviceOpen).says, "opens");
        assert_eq!((of(Code::Windows).says, of(Code::OnDemand).status), ("type-2", Status::Ok));
        assert_eq!(of(Code::DeviceLimits).says, "told");
        assert!(CODES.iter().all(|code| of(*code).subject == device::SOFTWARE));
        let none = of_device("no such device");
        assert_eq!((none.len(), none[0].says), (1, "refused"));
    }

    #[test]
    fn the_fullest_kind_of_object_counts() {
        let Ok(mut seen) = open(device::SOFTWARE) else { panic!("the software RNIC opens") };
        let used = |kind: &str, count, most| InUse { kind: kind.to_owned(), count, most };
        let mut judged = |in_use| {
            seen.in_use = in_use;
            resources("x", &seen)
        };
        let mr = |current, most| Ok(vec![used("pd", 1, None), used("mr", current, Some(most))]);
        assert_eq!(judged(mr(1, 1000)).status, Status::Ok);
        assert_eq!(judged(mr(500, 1000)).status, Status::Warn);
        let full = judged(mr(u64::MAX, u64::MAX));
        assert_eq!(full.words["kind"], "mr");
        assert_eq!(judged(Ok(vec![used("odd", 5, None)])).says, "not-told");
        assert_eq!(judged(Err("no netlink".to_owned())).status, Status::NotReadable);
    }
}
