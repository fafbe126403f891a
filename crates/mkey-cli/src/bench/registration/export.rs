//! A sweep as CSV: one line a size.

use super::report::{Row, Sweep, Term};
use crate::bench::export::lines;
use crate::bench::report::Summary;
use crate::exit::End;
use serde::Serialize;

/// One line; an empty field is "there is no such figure". Nanoseconds.
#[derive(Debug, Serialize)]
struct Flat<'a> {
    page: &'a str,
    bytes: u64,
    pages: u64,
    software: bool,
    simulated: bool,
    register_ns: Option<f64>,
    register_p99_ns: Option<f64>,
    deregister_ns: Option<f64>,
    deregister_p99_ns: Option<f64>,
    samples: Option<u64>,
    preempted: Option<u64>,
    disturbed: Option<bool>,
    pin_ns: Option<f64>,
    unpin_ns: Option<f64>,
    table_ns: Option<f64>,
    command_ns: Option<f64>,
    probed_verb_ns: Option<f64>,
    probed_syscall_ns: Option<f64>,
    probed_pin_ns: Option<f64>,
    probed_map_ns: Option<f64>,
    probed_table_ns: Option<f64>,
    probed_command_ns: Option<f64>,
    not_measured: Option<&'a str>,
}

impl<'a> Flat<'a> {
    fn new(sweep: &'a Sweep, row: &'a Row) -> Self {
        let figures = row.figures();
        let median = |summary: Option<Summary>| summary.map(|s| s.median_ns);
        let p99 = |summary: Option<Summary>| summary.map(|s| s.p99_ns);
        let (register, deregister) = (figures.map(|f| f.register), figures.map(|f| f.deregister));
        let terms = figures.and_then(|f| f.terms);
        let probed = figures.and_then(|f| f.split(true));
        let stage = |term: Term| {
            let (_, split) = probed.as_ref()?;
            split.iter().find(|(known, _)| *known == term).map(|(_, ns)| *ns)
        };
        Self {
            page: &row.page,
            bytes: row.bytes,
            pages: row.pages(),
            software: sweep.device.software,
            simulated: row.simulated,
            register_ns: median(register),
            register_p99_ns: p99(register),
            deregister_ns: median(deregister),
            deregister_p99_ns: p99(deregister),
            samples: register.map(|s| s.samples),
            preempted: figures.map(|f| f.preempted),
            disturbed: figures.map(|f| f.disturbed),
            pin_ns: median(terms.and_then(|t| t.pin)),
            unpin_ns: median(terms.and_then(|t| t.unpin)),
            table_ns: median(terms.map(|t| t.table)),
            command_ns: median(terms.and_then(|t| t.command)),
            probed_verb_ns: probed.as_ref().map(|(whole, _)| *whole),
            probed_syscall_ns: stage(Term::Syscall),
            probed_pin_ns: stage(Term::Pin),
            probed_map_ns: stage(Term::Map),
            probed_table_ns: stage(Term::Table),
            probed_command_ns: stage(Term::Command),
            not_measured: row.outcome.missing().map(|missing| missing.what.as_str()),
        }
    }
}

/// The sweep as CSV with a head line.
///
/// # Errors
/// As [`lines`].
pub fn csv(sweep: &Sweep) -> Result<Vec<u8>, End> {
    lines(sweep.rows.iter().map(|row| Flat::new(sweep, row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::registration::sample;

    #[test]
    fn one_line_a_size_and_empty_is_no_figure() {
        let sweep = sample::sweep();
        let text = csv(&sweep).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_slice());
        let head = reader.headers().unwrap().clone();
        let lines: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
        assert_eq!(lines.len(), sweep.rows.len());
        let field = |line: usize, name: &str| {
            lines[line].get(head.iter().position(|h| h == name).unwrap()).unwrap().to_owned()
        };
        assert_eq!((field(0, "page"), field(0, "bytes")), ("4 KiB".into(), "4096".into()));
        assert!(!field(0, "register_ns").is_empty() && field(0, "command_ns").is_empty());
        let last = lines.len() - 1;
        assert!(field(last, "register_ns").is_empty() && !field(last, "not_measured").is_empty());
    }
}
