//! Counters that show trouble. They count since the driver was loaded, so they are looked at twice: what
//! does not grow meanwhile is a note.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use super::ports;
use crate::explain::errno;
use crate::interfaces::DEVICES;
use crate::monitor::counter::{Step, step};
use crate::monitor::known::{self, Class, Meaning, Rule};
use mkey_os::ethtool;
use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

/// How long is waited between two looks.
const BETWEEN: Duration = Duration::from_millis(200);

/// What of a port, a device or an interface was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    /// As in `mlx5_0/1` or `eth2`.
    subject: String,
    /// Where it was read.
    from: Vec<String>,
    /// The counters, by name.
    counters: Vec<(String, u64)>,
    /// Those that hold no number, by name.
    unread: Vec<String>,
}

/// How a counter went on between two looks; nothing if there was one look only.
type Grown = Option<bool>;

/// The check, of each port.
pub fn check(at: &Context) -> Vec<Finding> {
    let devices = at.devices();
    if devices.is_empty() {
        return vec![Finding::new(Code::Counters, Status::NotApplicable, "no-device")];
    }
    let (first, mut findings) = look(at, &devices);
    let trouble = first.iter().any(|place| place.counters.iter().any(is_trouble));
    // Only a machine that runs counts on, and waiting is worth it only for what counts.
    let second = (at.files.live() && trouble).then(|| {
        thread::sleep(BETWEEN);
        look(at, &devices).0
    });
    for place in &first {
        let before = second.as_ref().map(|all| all.iter().find(|p| p.subject == place.subject));
        findings.extend(of_place(place, before));
    }
    findings
}

/// Reads all counters; and says where there are none.
fn look(at: &Context, devices: &[String]) -> (Vec<Place>, Vec<Finding>) {
    let (mut places, mut findings) = (Vec::new(), Vec::new());
    for device in devices {
        let base = format!("{DEVICES}/{device}");
        let mut own = vec![place(at, device.clone(), vec![format!("{base}/hw_counters")])];
        own.extend(at.ports(device).into_iter().map(|port| {
            let folder = |name| format!("{base}/ports/{port}/{name}");
            place(at, format!("{device}/{port}"), vec![folder("counters"), folder("hw_counters")])
        }));
        own.retain(|place| !place.counters.is_empty() || !place.unread.is_empty());
        if own.is_empty() {
            findings.push(
                Finding::new(Code::Counters, Status::NotReadable, "none")
                    .word("device", device)
                    .of(device.clone())
                    .file(&format!("{base}/ports/*/hw_counters")),
            );
        }
        places.extend(own);
        if !at.is_hardware(device) {
            continue;
        }
        let nets = at.ports(device).into_iter().flat_map(|port| ports::nets(at, device, &port));
        for net in nets.collect::<BTreeSet<_>>() {
            match interface(at, &net) {
                Ok(place) => places.push(place),
                Err(finding) => findings.push(*finding),
            }
        }
    }
    (places, findings)
}

fn place(at: &Context, subject: String, folders: Vec<String>) -> Place {
    let mut place = Place { subject, ..Place::default() };
    for folder in &folders {
        for name in at.files.names(folder).unwrap_or_default() {
            // A setting among the counters.
            if name == "lifespan" {
                continue;
            }
            // Drivers have "N/A (no PMA)" there, and worse.
            match at.files.number(&format!("{folder}/{name}")) {
                Ok(value) => place.counters.push((name, value)),
                Err(_) => place.unread.push(name),
            }
        }
    }
    place.from = folders.iter().map(|folder| crate::files::shown(folder)).collect();
    place
}

/// What the driver of an interface counts of pauses and discards, which is asked of the kernel.
fn interface(at: &Context, net: &str) -> Result<Place, Box<Finding>> {
    let subject = net.to_owned();
    if !at.files.live() {
        return Err(Box::new(Finding::untried(Code::Counters).of(subject)));
    }
    let call = "ioctl SIOCETHTOOL";
    let all = ethtool::statistics(net).map_err(|error| {
        let finding = Finding::new(Code::Counters, Status::NotReadable, "unread-error");
        Box::new(
            finding
                .of(net)
                .word("file", call)
                .word("what", errno::shown(&error.errno.into()))
                .by(call),
        )
    })?;
    let known = all.into_iter().filter(|one| known::of_interface(&one.name).is_some());
    let counters = known.map(|one| (one.name, one.value)).collect();
    Ok(Place { subject, from: vec![call.to_owned()], counters, unread: Vec::new() })
}

fn meaning(name: &str) -> Meaning {
    known::of_interface(name).unwrap_or_else(|| known::of_port(name))
}

/// Whether a counter ought to be 0 and is not.
fn is_trouble((name, value): &(String, u64)) -> bool {
    *value > 0 && matches!(meaning(name).rule, Rule::Bad | Rule::Warn)
}

/// What a counter says that ought to be 0.
fn says(name: &str) -> &'static str {
    let has = |part: &str| name.contains(part);
    match meaning(name).class {
        Class::Access => "access",
        Class::Completion => "request",
        Class::Retry if has("exceeded") || has("timeout") || has("RTO") => "timeout",
        Class::Retry | Class::Sequence => "loss",
        Class::Rnr => "receive",
        Class::Cnp | Class::Ecn => "cnp",
        Class::Discard => "discards",
        Class::Damage if has("icrc") => "icrc",
        Class::Damage => "link",
        Class::Pause => "pause",
        Class::Paging | Class::Other => "registration",
    }
}

/// A finding for each counter that shows trouble; one that all is quiet if none does. `again`: the second
/// look, if there was one.
fn of_place(place: &Place, again: Option<Option<&Place>>) -> Vec<Finding> {
    let grown = |name: &str, value: u64| -> Grown {
        let later = again?.and_then(|place| place.counters.iter().find(|(n, _)| n == name));
        Some(later.is_some_and(|(_, now)| matches!(step(value, *now), Step::Up(1..))))
    };
    let of = |name: &str, value: u64, says: &'static str, grown: Grown| {
        let (status, when) = match grown {
            None => (Status::Warn, "count-once"),
            Some(true) => (Status::Warn, "count-grows"),
            Some(false) => (Status::Ok, "count-stands"),
        };
        let finding = Finding::new(Code::Counters, status, says)
            .of(format!("{} {name}", place.subject))
            .word("counter", name)
            .word("port", &place.subject)
            .word("ms", BETWEEN.as_millis())
            .term("when", when)
            .measure("value", value);
        place.from.iter().fold(finding, |finding, from| finding.by(from)).mend("counters")
    };
    let mut findings: Vec<Finding> = place
        .counters
        .iter()
        .filter(|counter| is_trouble(counter))
        .map(|(name, value)| of(name, *value, says(name), grown(name, *value)))
        .collect();
    let find = |wanted: &str| place.counters.iter().find(|(name, _)| name == wanted);
    if let Some(((name, marked), (_, 0))) = known::answered(find).filter(|(marked, _)| marked.1 > 0)
    {
        findings.push(of(name, *marked, "unanswered", None));
    }
    if findings.is_empty() {
        let read = place.counters.len();
        let (status, says) =
            if read == 0 { (Status::NotReadable, "no-numbers") } else { (Status::Ok, "quiet") };
        let finding = Finding::new(Code::Counters, status, says)
            .of(&*place.subject)
            .measure("read", read)
            .measure("unread", place.unread.len());
        findings.push(place.from.iter().fold(finding, |finding, from| finding.by(from)));
    }
    if !place.unread.is_empty() && !place.counters.is_empty() {
        let finding = Finding::new(Code::Counters, Status::NotReadable, "some-unread")
            .of(format!("{} unread", place.subject))
            .measure("unread", place.unread.len())
            .measure("names", place.unread.join(", "));
        findings.push(place.from.iter().fold(finding, |finding, from| finding.by(from)));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(counters: &[(&str, u64)]) -> Place {
        let counters = counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Place {
            subject: "x/1".to_owned(),
            from: vec!["/f".to_owned()],
            counters,
            unread: Vec::new(),
        }
    }

    fn told(
        before: &[(&str, u64)],
        again: Option<&[(&str, u64)]>,
    ) -> Vec<(String, &'static str, Status)> {
        let again = again.map(place);
        let found = of_place(&place(before), again.as_ref().map(Some));
        found.into_iter().map(|f| (f.subject, f.says, f.status)).collect()
    }

    #[test]
    fn storms_and_discards_of_interfaces_are_trouble_and_pauses_are_not() {
        let all = [
            ("rx_prio3_pause", 900),
            ("rx_prio3_buf_discard", 7),
            ("rx_discards_phy", 0),
            ("tx_pause_storm_error_events", 2),
            ("continuous_roce_pause_events", 1),
        ];
        let of = |name: &str, says| (format!("x/1 {name}"), says, Status::Warn);
        assert_eq!(
            told(&all, None),
            [
                of("rx_prio3_buf_discard", "discards"),
                of("tx_pause_storm_error_events", "pause"),
                of("continuous_roce_pause_events", "pause"),
            ]
        );
    }

    /// A counter that holds no number is named, beside those that show trouble and those that do not.
    #[test]
    fn what_holds_no_number_is_told_by_name() {
        for (value, first) in [(0, "quiet"), (5, "loss")] {
            let mut place = place(&[("packet_seq_err", value)]);
            place.unread = vec!["symbol_error".to_owned(), "port_rcv_errors".to_owned()];
            let found = of_place(&place, None);
            let says: Vec<_> = found.iter().map(|f| (f.says, f.status)).collect();
            assert_eq!((says[0].0, says[1]), (first, ("some-unread", Status::NotReadable)));
            assert_eq!(found[1].words["names"], "symbol_error, port_rcv_errors");
        }
    }

    #[test]
    fn what_does_not_grow_between_two_looks_is_a_note() {
        let before = [("link_downed", 1), ("duplicate_request", 5)];
        let after = told(&before, Some(&[("link_downed", 1), ("duplicate_request", 6)]));
        let states: Vec<_> = after.iter().map(|(_, _, status)| *status).collect();
        assert_eq!(states, [Status::Ok, Status::Warn]);
    }

    #[test]
    fn the_counters_of_each_driver_are_known() {
        for (name, says) in [
            ("RetransSegs", "loss"),
            ("RTO", "timeout"),
            ("Nak Sequence Error", "loss"),
            ("cnpIgnored", "cnp"),
            ("rx_drops", "discards"),
            ("req_cqe_error", "request"),
            ("roce_adp_retrans", "loss"),
            ("rx_icrc_encapsulated", "icrc"),
            ("reg_mr_err", "registration"),
            ("req_transport_retries_exceeded", "timeout"),
        ] {
            assert_eq!(told(&[(name, 1)], None)[0].1, says, "{name}");
        }
        assert_eq!(told(&[("rx_write_requests", 9)], None)[0].1, "quiet");
    }

    #[test]
    fn marks_that_no_notification_answers_are_trouble() {
        let of = |sent| told(&[("np_ecn_marked_roce_packets", 900), ("np_cnp_sent", sent)], None);
        assert_eq!(of(0)[0].1, "unanswered");
        assert_eq!(of(9)[0].1, "quiet");
    }
}
