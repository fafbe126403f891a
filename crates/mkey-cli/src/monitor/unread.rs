//! What could not be read: of that nothing says that all is well.

use super::ports::{self, Device, Port};
use super::sample::Sample;
use super::told::Told;

/// Where, in the order of the tables. What a kernel or a driver does not have is not among it.
pub fn places(sample: &Sample) -> Vec<String> {
    let mut all = Vec::new();
    if sample.huge_pages.value().is_none() || sample.huge_pages_unread > 0 {
        all.push("/sys/kernel/mm/hugepages".to_owned());
    }
    match &sample.pinned {
        Told::Not { .. } => all.push("/proc".to_owned()),
        Told::Is(pinned) => {
            all.extend((pinned.unread > 0).then(|| "/proc/*/status".to_owned()));
            let limits = pinned.processes.iter().filter(|one| one.limit.value().is_none());
            all.extend(limits.map(|one| format!("/proc/{}/limits", one.pid)));
        }
    }
    match &sample.devices {
        Told::Not { not_read } if not_read == ports::NONE => {}
        Told::Not { .. } => all.push(format!("/{}", crate::interfaces::DEVICES)),
        Told::Is(devices) => devices.iter().for_each(|device| of_device(device, &mut all)),
    }
    all
}

fn of_device(device: &Device, all: &mut Vec<String>) {
    let name = &device.name;
    all.extend(device.objects.why_not().map(|_| format!("{name} objects")));
    all.extend(device.regions.why_not().map(|_| format!("{name} regions")));
    all.extend(device.ports.is_empty().then(|| format!("{name} ports")));
    for port in &device.ports {
        of_port(device, port, all);
    }
}

fn of_port(device: &Device, port: &Port, all: &mut Vec<String>) {
    let place = port.place(device);
    if port.port > 0 {
        all.extend(port.state.why_not().map(|_| format!("{place} state")));
    }
    all.extend((!port.missing.is_empty()).then(|| format!("{place} counters")));
    let counters = port.counters.iter().filter(|counter| counter.value.value().is_none());
    all.extend(counters.map(|counter| format!("{place} {}", counter.name)));
    if let (Some(interface), Some(why)) = (&port.interface, port.pause.why_not()) {
        // A driver without statistics has none that could be read.
        let none = why.contains("EOPNOTSUPP") || why.contains("not supported");
        all.extend((!none).then(|| format!("{interface} statistics")));
    }
}
