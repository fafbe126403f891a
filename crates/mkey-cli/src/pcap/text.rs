//! The summary for people.

use super::report::{Direction, Latency, Messages, Numbers, Pair, Report, Rkey};
use super::verdict::Finding;
use crate::bench::table::{Line, Side, WIDTH, render};
use crate::bench::units::{size, time};
use crate::lang::wrap;
use crate::model::check::printable;
use std::fmt::Write;
use std::net::IpAddr;

/// Remote keys that are shown of a direction.
const RKEYS: usize = 4;
/// Ranges that are shown of a key.
const RANGES: usize = 2;

/// The summary, with at most `top` pairs.
pub fn text(report: &Report, top: usize) -> String {
    let mut out = String::new();
    head(&mut out, report);
    for pair in report.pairs.iter().take(top) {
        out.push('\n');
        show_pair(&mut out, pair);
    }
    let left = report.pairs.len().saturating_sub(top);
    if left > 0 {
        put(
            &mut out,
            "\n",
            &format!(
                "{left} more {}: --top {} shows all, --json has them",
                if left == 1 { "pair" } else { "pairs" },
                report.pairs.len()
            ),
        );
    }
    out.push('\n');
    for bound in &report.bounds {
        put(&mut out, "bound reached: ", bound);
    }
    findings(&mut out, "verdict: ", &report.verdict);
    out
}

fn head(out: &mut String, report: &Report) {
    let frames = &report.frames;
    let packets = &report.packets;
    let span = report.nanoseconds.map_or(String::new(), |ns| format!(" in {}", time(ns as f64)));
    let cut = if frames.cut > 0 { format!(", {} of them cut", frames.cut) } else { String::new() };
    let v1 =
        if frames.roce_v1 > 0 { format!(", {} of RoCEv1", frames.roce_v1) } else { String::new() };
    let mut rest = Vec::new();
    for (count, what) in [
        (frames.roce_at_other_end, "the same once more, captured at the other end"),
        (frames.other, "others"),
        (frames.fragments, "fragments, which are not put together"),
        (frames.cut_headers, "cut in their headers"),
        (frames.unknown_link, "of an unknown link type"),
        (frames.malformed, "malformed"),
    ] {
        if count > 0 {
            rest.push(format!("{count} {what}"));
        }
    }
    let rest = if rest.is_empty() { String::new() } else { format!("; {}", rest.join(", ")) };
    let text = format!(
        "{}: {} frames{span}; {} RoCE packets{cut}{v1}, {} of payload{rest}",
        printable(&report.file),
        frames.all,
        packets.packets,
        size(packets.payload_bytes)
    );
    put(out, "", &text);
    if packets.packets == 0 {
        return;
    }
    let icrc = packets.icrc;
    put(
        out,
        "",
        &format!(
            "ICRC: {} right, {} wrong, {} not checkable",
            icrc.right, icrc.wrong, icrc.not_checkable
        ),
    );
    let lines: Vec<Line> = report
        .opcodes
        .iter()
        .map(|count| {
            let cells = [count.name.clone(), count.packets.to_string(), size(count.payload_bytes)];
            Line::Cells(cells.to_vec())
        })
        .collect();
    let columns = [
        ("opcode", Side::Left, None),
        ("packets", Side::Right, None),
        ("payload", Side::Right, None),
    ];
    out.push('\n');
    out.push_str(&render(&columns, &lines));
}

fn show_pair(out: &mut String, pair: &Pair) {
    let Some(first) = pair.directions.first() else { return };
    let end = |ip: IpAddr, qp: Option<u32>| match qp {
        Some(qp) => format!("{ip} QP {qp:#x}"),
        None => format!("{ip} QP ?"),
    };
    let (one, other) = (end(first.from, first.from_qp), end(first.to, Some(first.to_qp)));
    let arrow = if pair.directions.len() == 2 { "<->" } else { "->" };
    put(out, "", &format!("{} {one} {arrow} {other}", pair.transport));
    let columns = [
        ("from", Side::Left, None),
        ("packets", Side::Right, None),
        ("payload", Side::Right, None),
        ("sent\nagain", Side::Right, None),
        ("dupli-\ncates", Side::Right, None),
        ("over-\ntaken", Side::Right, None),
        ("gaps", Side::Right, None),
        ("never\nseen", Side::Right, None),
        ("NAK", Side::Right, None),
        ("RNR", Side::Right, None),
        ("CE", Side::Right, None),
        ("CNP", Side::Right, None),
        ("wrong\nICRC", Side::Right, None),
    ];
    let lines: Vec<Line> =
        pair.directions.iter().map(|direction| Line::Cells(row(direction))).collect();
    indent(out, &render(&columns, &lines));
    for direction in &pair.directions {
        let from = format!("  {}: ", direction.from);
        let each = |Messages { name, count }: &Messages| format!("{count} {name}");
        let messages: Vec<String> = direction.messages.iter().map(each).collect();
        if !messages.is_empty() {
            put(out, &from, &messages.join(", "));
        }
        let answered: Vec<String> = direction.latency.iter().map(latency).collect();
        if !answered.is_empty() {
            put(out, &from, &format!("answered in {}", answered.join("; ")));
        }
        rkeys(out, direction);
    }
    findings(out, "  verdict: ", &pair.verdict);
}

fn row(direction: &Direction) -> Vec<String> {
    let both = |of: fn(&Numbers) -> u64| of(&direction.requests) + of(&direction.read_data);
    let naks = direction.naks;
    vec![
        direction.from.to_string(),
        direction.packets.to_string(),
        size(direction.payload_bytes),
        both(|n| n.retransmissions).to_string(),
        both(|n| n.duplicates).to_string(),
        both(|n| n.reordered).to_string(),
        both(|n| n.gaps).to_string(),
        both(|n| n.never_seen).to_string(),
        (naks.all() - naks.receiver_not_ready).to_string(),
        naks.receiver_not_ready.to_string(),
        direction.congestion_experienced.to_string(),
        direction.cnps.to_string(),
        direction.icrc.wrong.to_string(),
    ]
}

fn latency(latency: &Latency) -> String {
    let Latency { of, count, p50, p99, max } = latency;
    let [p50, p99, max] = [p50, p99, max].map(|ns| time(*ns as f64));
    format!("{p50} / {p99} / {max} (p50 / p99 / max of {count} {of})")
}

fn rkeys(out: &mut String, direction: &Direction) {
    for rkey in direction.rkeys.iter().take(RKEYS) {
        let Rkey { rkey: key, writes, reads, atomics, flushes, invalidated, ranges, ranges_joined } =
            rkey;
        let uses = [
            (*writes, "written"),
            (*reads, "read"),
            (*atomics, "atomics"),
            (*flushes, "flushed"),
            (*invalidated, "invalidated"),
        ];
        let uses: Vec<String> = uses
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{what} {count}x"))
            .collect();
        let mut where_ = String::new();
        for range in ranges.iter().take(RANGES) {
            // Writing to a string does not fail.
            let _ = write!(where_, ", {}-{} ({})", range.first, range.last, size(range.bytes));
        }
        if ranges.len() > RANGES {
            let _ = write!(where_, ", {} ranges more", ranges.len() - RANGES);
        }
        if *ranges_joined {
            where_.push_str(", near ones as one");
        }
        let text = format!("{}{where_}", uses.join(", "));
        put(out, &format!("  rkey {key} of {}: ", direction.to), &text);
    }
    let left = direction.rkeys.len().saturating_sub(RKEYS);
    if left > 0 {
        put(out, "  ", &format!("{left} rkeys more of {}", direction.to));
    }
}

fn findings(out: &mut String, first: &str, findings: &[Finding]) {
    for (n, finding) in findings.iter().enumerate() {
        let head = if n == 0 { first.to_owned() } else { " ".repeat(first.len()) };
        put(out, &head, &finding.text);
    }
}

fn put(out: &mut String, first: &str, text: &str) {
    let (lines, head) = match first.strip_prefix('\n') {
        Some(head) => ("\n", head),
        None => ("", first),
    };
    out.push_str(lines);
    for line in wrap(head, text, WIDTH) {
        out.push_str(&line);
        out.push('\n');
    }
}

fn indent(out: &mut String, table: &str) {
    for line in table.lines() {
        out.push_str("  ");
        out.push_str(line);
        out.push('\n');
    }
}
