//! Counters that show trouble which has already happened. They count since the driver was loaded.

use super::code::Code;
use super::context::{Context, DEVICES};
use super::finding::{Finding, Status};
use super::ports;
use std::process::{Command, Stdio};

/// Counters that ought to be 0, by driver and kernel, and what each of them says.
const TROUBLE: [(&str, &str); 41] = [
    ("out_of_buffer", "receive"),
    ("rx_out_of_buffer", "receive"),
    ("rnr_nak_retry_err", "receive"),
    ("rnr_naks_rcvd", "receive"),
    ("rcvd_rnr_err", "receive"),
    ("send_rnr_err", "receive"),
    ("req_rnr_retries_exceeded", "receive"),
    ("retry_rnr_exceeded_err", "receive"),
    ("out_of_sequence", "loss"),
    ("out_of_seq_request", "loss"),
    ("oos_drop_count", "loss"),
    ("packet_seq_err", "loss"),
    ("rcvd_seq_err", "loss"),
    ("seq_err_naks_rcvd", "loss"),
    ("implied_nak_seq_err", "loss"),
    ("duplicate_request", "loss"),
    ("to_retransmits", "loss"),
    ("local_ack_timeout_err", "timeout"),
    ("req_transport_retries_exceeded", "timeout"),
    ("retry_exceeded_err", "timeout"),
    ("max_retry_exceeded", "timeout"),
    ("req_remote_access_errors", "access"),
    ("resp_remote_access_errors", "access"),
    ("remote_access_err", "access"),
    ("res_rx_invalid_rkey", "access"),
    ("res_rx_range_err", "access"),
    ("res_rx_no_perm", "access"),
    ("req_remote_invalid_request", "request"),
    ("resp_local_length_error", "request"),
    ("rx_icrc_encapsulated", "icrc"),
    ("rp_cnp_ignored", "cnp"),
    ("reg_mr_err", "registration"),
    ("symbol_error", "link"),
    ("link_error_recovery", "link"),
    ("link_downed", "link"),
    ("port_rcv_errors", "link"),
    ("local_link_integrity_errors", "link"),
    ("excessive_buffer_overrun_errors", "link"),
    ("port_xmit_discards", "discards"),
    ("port_rcv_remote_physical_errors", "link"),
    ("VL15_dropped", "discards"),
];

/// The check, of each port.
pub fn check(at: &Context) -> Vec<Finding> {
    let devices = at.devices();
    if devices.is_empty() {
        return vec![Finding::new(Code::Counters, Status::NotApplicable, "no-device")];
    }
    let mut findings = Vec::new();
    for device in devices {
        if at.files.live() && at.is_hardware(&device) {
            findings.extend(interfaces(at, &device));
        }
        let base = format!("{DEVICES}/{device}");
        let mut places = vec![(device.clone(), vec![format!("{base}/hw_counters")])];
        places.extend(at.ports(&device).into_iter().map(|port| {
            let folder = |name| format!("{base}/ports/{port}/{name}");
            (format!("{device}/{port}"), vec![folder("counters"), folder("hw_counters")])
        }));
        let counted = findings.len();
        for (subject, folders) in places {
            findings.extend(of_place(at, &subject, &folders));
        }
        if findings.len() == counted {
            findings.push(
                Finding::new(Code::Counters, Status::NotReadable, "none")
                    .word("device", &device)
                    .of(device)
                    .file(&format!("{base}/ports/*/hw_counters")),
            );
        }
    }
    findings
}

/// What the interfaces of a device count of pauses and discards, which only the program ethtool tells.
fn interfaces(at: &Context, device: &str) -> Vec<Finding> {
    let all = at.ports(device).into_iter().flat_map(|port| ports::nets(at, device, &port));
    let told = all.filter_map(|net| Some((ethtool(&net)?, net)));
    told.flat_map(|(text, net)| of_interface(&text, &net)).collect()
}

fn ethtool(net: &str) -> Option<String> {
    let mut command = Command::new("ethtool");
    command.args(["-S", net]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The findings in what `ethtool -S` printed.
fn of_interface(text: &str, net: &str) -> Vec<Finding> {
    let of = |line: &str| {
        let (name, value) = line.trim().split_once(':')?;
        let value = value.trim().parse::<u64>().ok().filter(|value| *value > 0)?;
        let says = interface_trouble(name)?;
        Some(
            Finding::new(Code::Counters, Status::Warn, says)
                .of(format!("{net} {name}"))
                .word("counter", name)
                .measure("value", value)
                .by("ethtool -S")
                .mend("counters"),
        )
    };
    text.lines().filter_map(of).collect()
}

/// What a counter of an interface says, if it ought to be 0. A pause is none; one without end is.
fn interface_trouble(name: &str) -> Option<&'static str> {
    let storms = [
        "tx_pause_storm_warning_events",
        "tx_pause_storm_error_events",
        "continuous_roce_pause_events",
    ];
    let by_priority = name.strip_prefix("rx_prio").and_then(|rest| rest.split_once('_'));
    let discards = ["discards", "buf_discard", "cong_discard"];
    if storms.contains(&name) {
        Some("pause")
    } else if name == "rx_discards_phy" || by_priority.is_some_and(|(_, of)| discards.contains(&of))
    {
        Some("discards")
    } else {
        None
    }
}

/// A finding for each counter that shows trouble; one that all is quiet if none does; nothing if
/// there are no counters.
fn of_place(at: &Context, subject: &str, folders: &[String]) -> Vec<Finding> {
    let (mut findings, mut read, mut unread) = (Vec::new(), 0u64, 0u64);
    for folder in folders {
        for name in at.files.names(folder).unwrap_or_default() {
            // A setting among the counters.
            if name == "lifespan" {
                continue;
            }
            let path = format!("{folder}/{name}");
            // Drivers have "N/A (no PMA)" there, and worse.
            let Ok(value) = at.files.number(&path) else {
                unread += 1;
                continue;
            };
            read += 1;
            let known = TROUBLE.iter().find(|(counter, _)| *counter == name);
            if let Some((_, says)) = known.filter(|_| value > 0) {
                findings.push(
                    Finding::new(Code::Counters, Status::Warn, says)
                        .of(format!("{subject} {name}"))
                        .word("counter", &name)
                        .word("port", subject)
                        .measure("value", value)
                        .file(&path)
                        .mend("counters"),
                );
            }
        }
    }
    if findings.is_empty() && read + unread > 0 {
        let (status, says) =
            if read == 0 { (Status::NotReadable, "no-numbers") } else { (Status::Ok, "quiet") };
        let finding = Finding::new(Code::Counters, status, says)
            .of(subject)
            .measure("read", read)
            .measure("unread", unread);
        findings.push(folders.iter().fold(finding, |finding, folder| finding.file(folder)));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storms_and_discards_of_interfaces_are_trouble_and_pauses_are_not() {
        let text = "NIC statistics:\n     rx_prio3_pause: 900\n     rx_prio3_buf_discard: 7\n     \
                    rx_discards_phy: 0\n     tx_pause_storm_error_events: 2\n     odd\n     a: b\n";
        let found = of_interface(text, "eth2");
        let told: Vec<_> = found.iter().map(|f| (f.subject.as_str(), f.says)).collect();
        assert_eq!(
            told,
            [
                ("eth2 rx_prio3_buf_discard", "discards"),
                ("eth2 tx_pause_storm_error_events", "pause")
            ]
        );
    }
}
