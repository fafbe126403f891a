//! What the figures mean, in words.

use super::report::{Direction, Numbers, Refusal, Report};
use crate::bench::units::time;
use mkey_wire::udp::ROCE_PORT;
use serde::Serialize;

/// One thing that the figures say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A word for programs.
    pub code: &'static str,
    /// Whether it is something that ought not to be.
    pub trouble: bool,
    /// In words.
    pub text: String,
}

fn trouble(code: &'static str, text: String) -> Finding {
    Finding { code, trouble: true, text }
}

/// What sender and receiver are called: by their addresses, and by their queue pairs where that is one.
fn ends(there: &Direction) -> (String, String) {
    if there.from != there.to {
        return (there.from.to_string(), there.to.to_string());
    }
    let from = there.from_qp.map_or("?".to_owned(), |qp| format!("{qp:#x}"));
    (format!("{} QP {from}", there.from), format!("{} QP {:#x}", there.to, there.to_qp))
}

/// Refused requests that are told one by one.
const TOLD: usize = 3;

/// Of a connection.
pub fn pair(directions: &[Direction], transport: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (one, other) = (directions.first(), directions.get(1));
    for (there, back) in [(one, other), (other, one)] {
        let Some(there) = there else { continue };
        findings.extend(sent_again(there, back));
        findings.extend(data_again(there));
        findings.extend(holes(there, transport));
        findings.extend(refused(there));
        findings.extend(not_ready(there));
        findings.extend(congestion(there, back, transport));
        findings.extend(damaged(there));
        findings.extend(twice(there));
        findings.extend(unanswered(there));
    }
    let restarts: u64 = directions.iter().map(|direction| direction.requests.restarts).sum();
    if restarts > 0 {
        let text = format!(
            "the numbers began anew {}: another connection of the same queue pair, or a long pause of the capture",
            times(restarts)
        );
        findings.push(Finding { code: "began-anew", trouble: false, text });
    }
    if let ([only], "RC" | "XRC") = (directions, transport) {
        let text = format!(
            "only packets to {} are in the capture, or no answer told which belong to them",
            only.to
        );
        findings.push(Finding { code: "one-direction", trouble: false, text });
    }
    if !findings.iter().any(|finding| finding.trouble) {
        findings.insert(0, well());
    }
    findings
}

fn well() -> Finding {
    Finding {
        code: "well",
        trouble: false,
        text: "nothing went wrong that can be seen here".to_owned(),
    }
}

fn sent_again(there: &Direction, back: Option<&Direction>) -> Option<Finding> {
    let Numbers { packets, gaps, .. } = there.requests;
    let (sent_again, unseen) =
        (there.requests.retransmissions, there.requests.retransmissions_of_unseen);
    if sent_again == 0 {
        return None;
    }
    let (from, to) = ends(there);
    let mut why = Vec::new();
    if unseen > 0 {
        why.push(format!("{unseen} had been lost between {from} and where this was captured"));
    }
    if sent_again > unseen {
        let naks = back.map(|back| (back.naks.psn_sequence_error, back.naks.receiver_not_ready));
        why.push(match naks {
            Some((missed @ 1.., _)) if missed <= gaps => format!("{to} had missed them and asked for all from there on"),
            Some((missed @ 1.., _)) if gaps > 0 => {
                format!("{to} said {} that packets were missing, of which {gaps} gaps were seen here, too", times(missed))
            }
            Some((missed @ 1.., _)) => {
                format!("{to} said {} that packets were missing: loss on the way to {to}, behind where this was captured", times(missed))
            }
            Some((0, not_ready @ 1..)) => format!("{to} was not ready {}", times(not_ready)),
            Some(_) => format!("no answer had come in time: it, or the request, was lost, or {to} was slow"),
            None => format!("why can not be seen without the answers of {to}"),
        });
    }
    let text = format!(
        "{sent_again} of {packets} request packets from {from} were sent again: {}",
        why.join("; ")
    );
    Some(trouble("sent-again", text))
}

fn data_again(there: &Direction) -> Option<Finding> {
    let Numbers { packets, retransmissions: sent_again, retransmissions_of_unseen: unseen, .. } =
        there.read_data;
    let (from, to) = ends(there);
    let lost = match unseen {
        0 => format!("lost on the way to {to}, behind where this was captured"),
        unseen => format!(
            "{unseen} of the first ones had been lost between {from} and where this was captured"
        ),
    };
    let text = format!(
        "{sent_again} of {packets} packets of data that {from} answered with were sent again: {lost}"
    );
    (sent_again > 0).then(|| trouble("data-sent-again", text))
}

fn holes(there: &Direction, transport: &str) -> Option<Finding> {
    let never = there.requests.never_seen + there.read_data.never_seen;
    let (from, _) = ends(there);
    let text = match transport {
        "UC" => format!(
            "{never} packets from {from} were lost before they got here; an unreliable connection does not send again"
        ),
        _ => format!(
            "{never} packets from {from} are missing and were not sent again: the capture has holes"
        ),
    };
    (never > 0).then(|| trouble("missing", text))
}

fn refused(there: &Direction) -> Vec<Finding> {
    let (naks, (from, _)) = (there.naks, ends(there));
    let kinds = [
        ("remote-access-error", "remote access error", naks.remote_access_error, "10"),
        ("invalid-request", "invalid request", naks.invalid_request, "9"),
        (
            "remote-operational-error",
            "remote operational error",
            naks.remote_operational_error,
            "11",
        ),
        ("invalid-rd-request", "invalid RD request", naks.invalid_rd_request, ""),
    ];
    let finding = |(code, why, count, status): (&'static str, &str, u64, &str)| {
        let of = there.refused.iter().filter(|refusal| refusal.why == why);
        let mut what: Vec<String> = of.filter_map(about).take(TOLD).collect();
        if count > what.len() as u64 && !what.is_empty() {
            what.push("..".to_owned());
        }
        let about = if what.is_empty() { String::new() } else { format!(": {}", what.join("; ")) };
        let see =
            if status.is_empty() { String::new() } else { format!("; see mkey explain {status}") };
        let text = format!("{from} refused {} by {why}{about}{see}", counted(count, "request"));
        trouble(code, text)
    };
    kinds.into_iter().filter(|(_, _, count, _)| *count > 0).map(finding).collect()
}

/// What a refused request was about.
fn about(refusal: &Refusal) -> Option<String> {
    let Refusal { rkey: Some(rkey), address: Some(address), length: Some(length), .. } = refusal
    else {
        return None;
    };
    Some(format!("rkey {rkey}, address {address}, {length} bytes"))
}

fn not_ready(there: &Direction) -> Option<Finding> {
    let (count, (from, _)) = (there.naks.receiver_not_ready, ends(there));
    let text = format!(
        "{from} was not ready {}: no receive was posted when a message came; if the retries run out, see mkey explain 13",
        times(count)
    );
    (count > 0).then(|| trouble("receiver-not-ready", text))
}

fn congestion(there: &Direction, back: Option<&Direction>, transport: &str) -> Option<Finding> {
    let (marked, all) = (there.congestion_experienced, there.packets);
    let (from, to) = ends(there);
    let notified = back.map_or(0, |back| back.cnps);
    let (code, text) = match (marked, notified) {
        (0, 0) => return None,
        (0, _) => (
            "congestion-notified",
            format!(
                "{to} told {from} {} of congestion (CNP); no packet was marked yet where this was captured",
                times(notified)
            ),
        ),
        // Which datagrams or unreliable connection a notification is about, it does not say.
        (_, 0) if matches!(transport, "UD" | "UC") => (
            "congestion",
            format!("{marked} of {all} packets from {from} were marked by a congested switch"),
        ),
        (_, 0) => (
            "congestion-not-notified",
            format!(
                "{marked} of {all} packets from {from} were marked by a congested switch, and no CNP of {to} is in the capture: nothing slows {from} down"
            ),
        ),
        _ => (
            "congestion",
            format!(
                "{marked} of {all} packets from {from} were marked by a congested switch; {to} told {from} so {} (CNP)",
                times(notified)
            ),
        ),
    };
    Some(trouble(code, text))
}

fn damaged(there: &Direction) -> Option<Finding> {
    let (wrong, (from, _)) = (there.icrc.wrong, ends(there));
    let text = format!(
        "{} from {from} with a wrong ICRC: damaged on the way; receivers drop such",
        counted(wrong, "packet")
    );
    (wrong > 0).then(|| trouble("wrong-icrc", text))
}

fn twice(there: &Direction) -> Option<Finding> {
    let duplicates = there.requests.duplicates + there.read_data.duplicates;
    let packets = there.requests.packets + there.read_data.packets;
    let reordered = there.requests.reordered + there.read_data.reordered;
    let (from, _) = ends(there);
    let mut what = Vec::new();
    if duplicates > 0 {
        let twice = format!("{duplicates} of {packets} packets from {from} came twice");
        // As good as all of them.
        let all = duplicates.saturating_mul(5) >= packets.saturating_mul(2);
        what.push(if all { format!("{twice}: captured at two places") } else { twice });
    }
    if reordered > 0 {
        what.push(format!(
            "{reordered} of {packets} packets from {from} were overtaken on the way"
        ));
    }
    let code = if duplicates > 0 { "duplicates" } else { "reordered" };
    (!what.is_empty()).then(|| trouble(code, what.join("; ")))
}

fn unanswered(there: &Direction) -> Option<Finding> {
    let count = there.unanswered.filter(|count| *count > 0)?;
    let text = format!(
        "{} of {} without an answer by the end of the capture",
        counted(count, "request"),
        ends(there).0
    );
    Some(Finding { code: "unanswered", trouble: false, text })
}

/// Of the whole capture.
pub fn whole(report: &Report) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(damage) = &report.damage {
        findings.push(trouble(
            "damaged-file",
            format!("the file could not be read to its end, {damage}"),
        ));
    }
    if report.frames.roce == 0 {
        let text = match report.frames.unknown_link_type {
            Some(kind) => format!("no RoCE packet: frames are of link type {kind}, which is not known here"),
            None if report.frames.unknown_link > 0 => format!("no RoCE packet: {} of an interface that the file does not describe, so that nothing says what they begin with: the file is damaged, or put together from parts", counted(report.frames.unknown_link, "frame")),
            None if report.port != ROCE_PORT => format!("no packet to UDP port {} is in the capture, and none of RoCEv1: RoCEv2 has port {ROCE_PORT}, which is looked at without --port", report.port),
            None => "no RoCE packet is in the capture: a NIC's own traffic is seen by tcpdump only where its driver supports it (mlx5: tcpdump -i mlx5_0), or at a mirror port of the switch".to_owned(),
        };
        findings.push(trouble("no-roce", text));
        findings.extend(time_goes_back(report));
        return findings;
    }
    let pairs = report.pairs.len() as u64;
    let with =
        report.pairs.iter().filter(|pair| pair.verdict.iter().any(|finding| finding.trouble));
    let with = with.count();
    if with > 0 {
        let text = format!("trouble in {with} of {}", counted(pairs, "pair"));
        findings.push(trouble("trouble", text));
        let sum = |of: fn(&Direction) -> u64| {
            report.pairs.iter().flat_map(|pair| &pair.directions).map(of).sum::<u64>()
        };
        let sums = [
            (sum(|d| d.requests.retransmissions + d.read_data.retransmissions), "sent again"),
            (sum(|d| d.requests.never_seen + d.read_data.never_seen), "missing"),
            (sum(|d| d.naks.psn_sequence_error), "NAKs of a wrong sequence"),
            (sum(|d| d.naks.receiver_not_ready), "times not ready"),
            (
                sum(|d| {
                    let naks = d.naks;
                    naks.remote_access_error + naks.invalid_request + naks.remote_operational_error
                }),
                "requests refused",
            ),
            (report.packets.congestion_experienced, "congestion marks"),
            (report.packets.cnps, "CNPs"),
        ];
        let sums: Vec<String> = sums
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if !sums.is_empty() {
            findings.push(trouble("sums", sums.join(", ")));
        }
    }
    let icrc = report.packets.icrc;
    match (icrc.right, icrc.wrong) {
        (_, 0) => {}
        (0, wrong) => {
            let text = format!(
                "no ICRC is right, {wrong} are wrong: captured before the NIC wrote them, or behind something that rewrites addresses; --no-icrc looks at the packets all the same"
            );
            findings.push(trouble("no-right-icrc", text));
        }
        (_, wrong) => findings
            .push(trouble("wrong-icrc", format!("{} with a wrong ICRC", counted(wrong, "packet")))),
    }
    if report.frames.malformed > 0 {
        let first = report
            .frames
            .first_malformed
            .as_ref()
            .map_or(String::new(), |first| format!(", the first {first}"));
        let text = format!(
            "{} to RoCE's port that is none{first}",
            counted(report.frames.malformed, "packet")
        );
        findings.push(trouble("malformed", text));
    }
    if findings.is_empty() {
        findings.push(well());
    }
    findings.extend(time_goes_back(report));
    findings
}

/// Duplicates, what is overtaken and latencies are told by time.
fn time_goes_back(report: &Report) -> Option<Finding> {
    let text = format!(
        "time goes back {} in the capture, by {} at most: a clock was set, or captures were put behind each other; what is told by time (duplicates, overtaken, latency) is not to be relied on there",
        times(report.time_goes_back),
        time(report.time_goes_back_by as f64)
    );
    (report.time_goes_back > 0).then_some(Finding { code: "time-goes-back", trouble: false, text })
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
