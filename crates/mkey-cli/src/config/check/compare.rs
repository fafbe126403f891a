//! Host and switch beside each other.

use super::host::{Host, Value};
use super::told::{Goes, Port, Told};
use crate::model::check::printable;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// They agree.
    Same,
    /// One of them does not say.
    Unknown,
    /// It works, but not well.
    Warning,
    /// They contradict each other, or themselves.
    Mismatch,
}

/// One point in which they were compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How it came out.
    pub level: Level,
    /// In words.
    pub what: String,
}

/// Compares in every point that matters to RoCE.
pub fn compare(host: &Host, told: &Told) -> Vec<Finding> {
    let mut found = Vec::new();
    agrees_with_itself(host, told, &mut found);
    path(told, "RoCE", host.roce_dscp(), host.roce_prio(), &mut found);
    path(told, "CNP", host.cnp_dscp(), host.cnp_prio(), &mut found);
    // What the host does not say is what the switch makes of its DSCP.
    let by_switch = || match told.goes(host.roce_dscp()?) {
        Goes::Written(to) | Goes::Stock(to) | Goes::LikelyStock(to) => Some(to),
        Goes::Unknown => None,
    };
    if let Some(priority) = host.roce_prio().or_else(by_switch) {
        lossless(told, priority, &mut found);
    }
    host_pfc(host, &mut found);
    let (level, what) = if told.watchdog {
        (Level::Same, "the switch has a watchdog of PFC")
    } else if told.profile.is_some() {
        (Level::Unknown, "whether the switch has a watchdog of PFC is not in this configuration")
    } else {
        (
            Level::Warning,
            "no watchdog of PFC on the switch: one port that keeps pausing can stop all of them",
        )
    };
    put(&mut found, level, what);
    found.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    found
}

fn put(found: &mut Vec<Finding>, level: Level, what: impl Into<String>) {
    found.push(Finding { level, what: what.into() });
}

fn agrees_with_itself(host: &Host, told: &Told, found: &mut Vec<Finding>) {
    let fields = [
        ("the DSCP of RoCE", &host.roce_dscp),
        ("the priority of RoCE", &host.roce_prio),
        ("the DSCP of CNP", &host.cnp_dscp),
        ("the priority of CNP", &host.cnp_prio),
    ];
    for (what, values) in fields {
        if values.iter().any(|value| values.first().is_some_and(|v| v.value != value.value)) {
            let all: Vec<String> = values.iter().map(shown).collect();
            put(
                found,
                Level::Mismatch,
                format!("the host contradicts itself: {what} is {}", all.join(", ")),
            );
        }
    }
    let pairs =
        [("RoCE", host.roce_dscp(), host.roce_prio()), ("CNP", host.cnp_dscp(), host.cnp_prio())];
    for (what, dscp, priority) in pairs {
        let Some((dscp, priority)) = dscp.zip(priority) else { continue };
        for other in host.map.iter().filter(|m| m.dscp == dscp && m.priority != priority) {
            let (is, from) = (other.priority, &other.from);
            put(
                found,
                Level::Mismatch,
                format!(
                    "the host contradicts itself: {what} has priority {priority}, its DSCP {dscp} has {is} ({from})"
                ),
            );
        }
    }
    if let Some(marking) = host.marking() {
        for why in marking.contradictions() {
            put(found, Level::Mismatch, format!("the host: {why}"));
        }
    }
    for odd in &told.odd {
        put(found, Level::Mismatch, format!("the switch: {odd}"));
    }
}

fn shown(value: &Value) -> String {
    format!("{} ({})", value.value, value.from)
}

/// Whether a DSCP goes where the host means it to go.
fn path(told: &Told, what: &str, dscp: Option<u8>, priority: Option<u8>, found: &mut Vec<Finding>) {
    let Some(dscp) = dscp else {
        return put(found, Level::Unknown, format!("the DSCP of {what} on the host is not known"));
    };
    let (to, how) = match told.goes(dscp) {
        Goes::Written(to) => (to, ""),
        Goes::Stock(to) => (to, " (the stock map; this configuration does not say)"),
        Goes::LikelyStock(to) => {
            (to, " (the stock map as far as is known; this configuration does not say)")
        }
        Goes::Unknown => {
            return put(
                found,
                Level::Unknown,
                format!(
                    "{what}: where DSCP {dscp} goes is not in this configuration, and the stock map is not known"
                ),
            );
        }
    };
    let Some(priority) = priority else {
        let what = format!(
            "{what}: the switch sends DSCP {dscp} to priority {to}{how}; which one the host means is not known"
        );
        return put(found, Level::Unknown, what);
    };
    if to == priority {
        put(found, Level::Same, format!("{what}: DSCP {dscp} goes to priority {to}{how}"));
    } else {
        put(
            found,
            Level::Mismatch,
            format!(
                "{what}: the host means DSCP {dscp} to be priority {priority}, the switch sends it to {to}{how}"
            ),
        );
    }
}

/// Whether the priority is lossless on the switch, port by port.
fn lossless(told: &Told, priority: u8, found: &mut Vec<Finding>) {
    if let Some(mode) = &told.profile {
        let (level, what) = if !told.lossless_profile() {
            (Level::Mismatch, format!("the RoCE profile is {mode}, not lossless"))
        } else if priority == 3 {
            (Level::Same, "the RoCE profile is lossless, on priority 3".to_owned())
        } else {
            (
                Level::Mismatch,
                format!("the RoCE profile is lossless on priority 3, the host uses {priority}"),
            )
        };
        return put(found, level, what);
    }
    let mut ports = told.roce_ports();
    if ports.is_empty() {
        ports.push(("all ports".to_owned(), told.everywhere.clone()));
    }
    let all = ports.len();
    type Test = fn(&Port, u8) -> bool;
    let checks: [(Test, Level, String, &str); 5] = [
        (
            |p, prio| p.pfc.contains(&prio),
            Level::Mismatch,
            format!("PFC for priority {priority}"),
            "packets are dropped there when queues fill",
        ),
        (
            |p, _| p.pfc_on,
            Level::Mismatch,
            "PFC switched on".to_owned(),
            "the port ignores pauses and sends none",
        ),
        (
            |p, _| p.trust_dscp,
            Level::Mismatch,
            "DSCP trusted".to_owned(),
            "the marking is not looked at",
        ),
        (
            |p, prio| p.ecn.contains(&prio),
            Level::Warning,
            format!("ECN on queue {priority}"),
            "PFC alone has to do it: pauses spread",
        ),
        (
            |p, _| !p.pause,
            Level::Warning,
            "802.3x pause off".to_owned(),
            "it stops all traffic of the port",
        ),
    ];
    for (test, level, what, otherwise) in checks {
        let without: Vec<&str> = ports
            .iter()
            .filter(|(_, port)| !test(port, priority))
            .map(|(name, _)| name.as_str())
            .collect();
        if without.is_empty() {
            put(found, Level::Same, format!("{what}: on {}", counted(all)));
        } else {
            put(found, level, format!("{what}: not on {} ({otherwise})", few(&without)));
        }
    }
    let others: BTreeSet<u8> = ports
        .iter()
        .flat_map(|(_, port)| port.pfc.iter().copied())
        .filter(|p| *p != priority)
        .collect();
    if !others.is_empty() {
        put(
            found,
            Level::Warning,
            format!(
                "PFC is also on for priority {}, which RoCE of this host does not use",
                list(&others)
            ),
        );
    }
}

/// Whether the host pauses what the switch pauses.
fn host_pfc(host: &Host, found: &mut Vec<Finding>) {
    let Some(priority) = host.roce_prio() else { return };
    for pfc in &host.pfc {
        let on = list(&pfc.priorities);
        if !pfc.priorities.contains(&priority) {
            put(
                found,
                Level::Mismatch,
                format!(
                    "the host has PFC for priority {on}, not for {priority} of RoCE ({})",
                    pfc.from
                ),
            );
        } else if pfc.priorities.len() > 1 {
            put(
                found,
                Level::Warning,
                format!("the host has PFC for priorities {on}: one is enough ({})", pfc.from),
            );
        } else {
            put(
                found,
                Level::Same,
                format!("the host has PFC for priority {on} alone ({})", pfc.from),
            );
        }
    }
    if host.pfc.is_empty() {
        put(
            found,
            Level::Unknown,
            format!(
                "whether the host has PFC for priority {priority} is not known (dcb pfc show says)"
            ),
        );
    }
}

fn list(priorities: &BTreeSet<u8>) -> String {
    let all: Vec<String> = priorities.iter().map(ToString::to_string).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn counted(ports: usize) -> String {
    if ports == 1 { "the one port".to_owned() } else { format!("all {ports} ports") }
}

/// At most eight names.
fn few(names: &[&str]) -> String {
    match names.get(..8) {
        Some(first) if names.len() > 8 => {
            format!("{} and {} more", first.join(", "), names.len() - 8)
        }
        _ => names.join(", "),
    }
}

/// The findings as text, the worst first.
pub fn text(host: &Host, told: &Told, findings: &[Finding]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write_text(&mut out, host, told, findings);
    // Names are those of the switch's file, and files and programs of the host say what they like.
    let lines: Vec<String> = out.split('\n').map(printable).collect();
    lines.join("\n")
}

fn write_text(
    out: &mut String,
    host: &Host,
    told: &Told,
    findings: &[Finding],
) -> std::fmt::Result {
    writeln!(out, "switch: {}", told.vendor.title())?;
    let fields = [
        ("RoCE DSCP", &host.roce_dscp),
        ("RoCE priority", &host.roce_prio),
        ("CNP DSCP", &host.cnp_dscp),
        ("CNP priority", &host.cnp_prio),
    ];
    for (name, values) in fields {
        let all: Vec<String> = values.iter().map(shown).collect();
        if !all.is_empty() {
            writeln!(out, "host: {name} {}", all.join(", "))?;
        }
    }
    for mapped in &host.map {
        writeln!(
            out,
            "host: DSCP {} has priority {} ({})",
            mapped.dscp, mapped.priority, mapped.from
        )?;
    }
    out.push('\n');
    for finding in findings {
        let word = match finding.level {
            Level::Mismatch => "MISMATCH",
            Level::Warning => "warning",
            Level::Unknown => "unknown",
            Level::Same => "same",
        };
        let first = format!("{word:<9} ");
        let options =
            textwrap::Options::new(110).initial_indent(&first).subsequent_indent("          ");
        for line in textwrap::wrap(&finding.what, options) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
