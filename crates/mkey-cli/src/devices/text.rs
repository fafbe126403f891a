//! Devices as text: a block each.

use super::facts::{DeviceFacts, Locks, Report};
use crate::bench::units::{count, size};
use std::fmt::{self, Write};

/// The report as text.
pub fn report(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_report(&mut text, report);
    text
}

fn write_report(out: &mut String, report: &Report) -> fmt::Result {
    for device in &report.devices {
        write_device(out, device)?;
        out.push('\n');
    }
    for failed in &report.failed {
        writeln!(out, "{}: could not be opened: {}\n", failed.name, failed.why)?;
    }
    if let Some(why) = &report.no_real_device {
        writeln!(out, "No real device: {why}\n")?;
    }
    writeln!(out, "This process may pin {}.", locks(&report.locks))
}

fn write_device(out: &mut String, device: &DeviceFacts) -> fmt::Result {
    let software =
        if device.software { ", in software: no figure of it is that of a NIC" } else { "" };
    writeln!(out, "{} ({}{software})", device.name, device.driver)?;
    let port = &device.port;
    let state = if port.active { "up" } else { "down" };
    line(
        out,
        "port",
        format_args!("{state}, MTU {}, GID {} at index {}", port.mtu, port.gid, port.gid_index),
    )?;
    let limits = &device.limits;
    let (most, bytes) = (count(limits.max_mr.into()), bytes(limits.max_mr_size));
    line(out, "regions", format_args!("{most}, each of at most {bytes}"))?;
    line(out, "windows", count(limits.max_mw.into()))?;
    let (qp, wr) = (count(limits.max_qp.into()), count(limits.max_qp_wr.into()));
    let (sge, inline) = (limits.max_sge, limits.max_inline);
    line(
        out,
        "queue pairs",
        format_args!("{qp}, {wr} work requests of {sge} entries or {inline} bytes inline"),
    )?;
    let (cq, cqe) = (count(limits.max_cq.into()), count(limits.max_cqe.into()));
    line(out, "completion", format_args!("{cq} queues of {cqe} entries"))?;
    line(out, "page sizes", page_sizes(&device.page_sizes))?;
    line(out, "fast path", &device.fast_registration)?;
    for transport in &device.odp {
        if !transport.operations.is_empty() {
            line(
                out,
                "on-demand",
                format_args!("{}: {}", transport.name, transport.operations.join(", ")),
            )?;
        }
    }
    for feature in &device.features {
        let mark = if feature.offered { "yes" } else { "no" };
        writeln!(out, "  {:<23} {mark:<4} {}", feature.name, feature.known)?;
    }
    for note in &device.notes {
        writeln!(out, "  note: {note}")?;
    }
    Ok(())
}

fn line(out: &mut String, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(out, "  {name:<12} {value}")
}

/// A size that may be no limit at all.
fn bytes(most: u64) -> String {
    if most >= 1 << 62 { "2^64 bytes (no real limit)".to_owned() } else { size(most) }
}

/// Sizes, runs of neighbours shortened.
fn page_sizes(sizes: &[u64]) -> String {
    match sizes {
        [] => "not told".to_owned(),
        [first, .., last] if (last / first) >> (sizes.len() - 1) == 1 => {
            format!("{} to {}", size(*first), size_beyond(*last))
        }
        sizes => sizes.iter().map(|&s| size_beyond(s)).collect::<Vec<_>>().join(", "),
    }
}

fn size_beyond(bytes: u64) -> String {
    if bytes >= 1 << 50 { format!("2^{} bytes", bytes.ilog2()) } else { size(bytes) }
}

fn locks(locks: &Locks) -> String {
    let pinned = size(locks.pinned);
    match locks.memlock {
        _ if locks.ipc_lock => "as much as there is (CAP_IPC_LOCK)".to_owned(),
        None => "as much as there is (RLIMIT_MEMLOCK is unlimited)".to_owned(),
        Some(limit) => format!(
            "{} in all (RLIMIT_MEMLOCK), whatever a device says; {pinned} are pinned; for more: {}",
            size(limit),
            mkey_os::limits::RAISE_MEMLOCK
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts;
    use super::*;
    use mkey_core::device::Device;

    fn software() -> DeviceFacts {
        let device =
            crate::device::open_software(mkey_soft::PinMode::None, Default::default(), false);
        DeviceFacts::of(&*device.unwrap() as &dyn Device, None)
    }

    #[test]
    fn the_software_rnic_is_said_to_be_software_and_why_there_is_no_other() {
        let locks = Locks { memlock: Some(64 << 10), ipc_lock: false, pinned: 0 };
        let why = Some("libibverbs.so.1 is not there; install it".to_owned());
        let facts = Report::new(vec![software()], Vec::new(), why, locks);
        let text = report(&facts);
        assert!(text.starts_with("mkey0 (mkey software RNIC, in software: no figure"), "{text}");
        for part in [
            "No real device: libibverbs.so.1 is not there; install it",
            "windows, type 2         yes  built in",
            "RC: send, recv, write, read, atomic, srq recv",
            "64 KiB in all (RLIMIT_MEMLOCK)",
            "prlimit",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        let json = facts::json(&facts).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(value["devices"][0]["name"], "mkey0");
        assert_eq!(value["schema"], 1);
    }

    #[test]
    fn runs_of_page_sizes_are_shortened() {
        assert_eq!(page_sizes(&[4096, 8192, 16384]), "4 KiB to 16 KiB");
        assert_eq!(page_sizes(&[4096, 2 << 20]), "4 KiB, 2 MiB");
        assert_eq!(page_sizes(&[]), "not told");
        assert_eq!(page_sizes(&[4096]), "4 KiB");
    }
}
