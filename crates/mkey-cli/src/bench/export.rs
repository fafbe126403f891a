//! A report for programs: JSON with everything, CSV with one line a row.

use super::report::{Report, Row, Summary};
use crate::exit::End;
use crate::model::check::obeyed;
use crate::whole;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Writes `content` to `path`, the whole of it or nothing; "-" is standard output.
///
/// # Errors
/// [`End`] as the output can not be written.
pub fn write(path: &Path, content: &[u8]) -> Result<(), End> {
    if is_stdout(path) {
        return crate::cli::print(content);
    }
    whole::write(path, content).map_err(|error| End::output(path.display(), &error))
}

/// Whether a path names standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The report as JSON, with a line end.
///
/// # Errors
/// [`End::Failed`] if it can not be represented.
pub fn json(report: &impl Serialize) -> Result<Vec<u8>, End> {
    serde_json::to_string_pretty(report).map(ended).map_err(End::failed)
}

/// The report as JSON in one line.
///
/// # Errors
/// [`End::Failed`] if it can not be represented.
pub fn json_line(report: &impl Serialize) -> Result<Vec<u8>, End> {
    serde_json::to_string(report).map(ended).map_err(End::failed)
}

/// JSON with a line end, and with escapes for what a terminal would obey in its strings: JSON itself asks
/// for them below U+0020 alone.
fn ended(json: String) -> Vec<u8> {
    let mut text = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        if c != '\n' && obeyed(c) {
            // Each of them has 16 bits; and writing to a string does not fail.
            let _ = write!(text, "\\u{:04x}", u32::from(c));
        } else {
            text.push(c);
        }
    }
    text.push('\n');
    text.into_bytes()
}

/// Rows as CSV, below a head line with the names of their fields.
///
/// # Errors
/// [`End::Failed`] if a row can not be represented.
pub fn lines(rows: impl Iterator<Item = impl Serialize>) -> Result<Vec<u8>, End> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(End::failed)?;
    }
    writer.into_inner().map_err(End::failed)
}

/// One line of the CSV form; an empty field is "there is no such figure". Nanoseconds.
#[derive(Debug, Serialize)]
struct Flat<'a> {
    id: &'a str,
    strategy: &'a str,
    page: &'a str,
    device: &'a str,
    software: bool,
    simulated: bool,
    registered_bytes: Option<u64>,
    prefault_ns: Option<f64>,
    prefault_runs: Option<u64>,
    pin_ns: Option<f64>,
    table_ns: Option<f64>,
    command_ns: Option<f64>,
    total_ns: Option<f64>,
    reg_mr_ns: Option<f64>,
    reg_mr_p99_ns: Option<f64>,
    dereg_mr_ns: Option<f64>,
    dereg_mr_p99_ns: Option<f64>,
    register_runs: Option<u64>,
    allocate_ns: Option<f64>,
    map_ns: Option<f64>,
    map_p99_ns: Option<f64>,
    map_samples: Option<u64>,
    map_batch: Option<u32>,
    percent_of_bare: Option<f64>,
    bytes_per_second: Option<f64>,
    io_rounds: Option<u64>,
    io_bytes: u64,
    working_set: u64,
    depth: usize,
    cpu_ns_per_io: Option<f64>,
    not_measured: Option<&'a str>,
    command_that_allows_it: Option<&'a str>,
}

impl<'a> Flat<'a> {
    fn new(report: &'a Report, row: &'a Row) -> Self {
        let figures = row.figures();
        let register = figures.and_then(|f| f.register);
        let map = figures.and_then(|f| f.map);
        let bandwidth = figures.and_then(|f| f.bandwidth);
        let median = |summary: Option<Summary>| summary.map(|s| s.median_ns);
        let missing = row.outcome.missing();
        Self {
            id: &row.id,
            strategy: &row.strategy,
            page: &row.page,
            device: &report.device.name,
            software: report.device.software,
            simulated: row.simulated,
            registered_bytes: register.map(|r| r.bytes),
            prefault_ns: median(register.and_then(|r| r.prefault)),
            prefault_runs: register.and_then(|r| r.prefault).map(|p| p.samples),
            pin_ns: median(register.and_then(|r| r.pin)),
            table_ns: median(register.and_then(|r| r.table)),
            command_ns: median(register.and_then(|r| r.command)),
            total_ns: register.map(|r| r.total_ns()),
            reg_mr_ns: register.map(|r| r.verb.median_ns),
            reg_mr_p99_ns: register.map(|r| r.verb.p99_ns),
            dereg_mr_ns: register.map(|r| r.deregister.median_ns),
            dereg_mr_p99_ns: register.map(|r| r.deregister.p99_ns),
            register_runs: register.map(|r| r.verb.samples),
            allocate_ns: median(figures.and_then(|f| f.allocate)),
            map_ns: median(map),
            map_p99_ns: map.map(|m| m.p99_ns),
            map_samples: map.map(|m| m.samples),
            map_batch: map.map(|m| m.batch),
            percent_of_bare: bandwidth.map(|b| b.percent_of_bare),
            bytes_per_second: bandwidth.map(|b| b.bytes_per_second),
            io_rounds: bandwidth.map(|b| b.rounds),
            io_bytes: report.io.bytes,
            working_set: report.io.working_set,
            depth: report.io.depth,
            cpu_ns_per_io: median(figures.and_then(|f| f.cpu)),
            not_measured: missing.map(|m| m.what.as_str()),
            command_that_allows_it: missing.and_then(|m| m.command.as_deref()),
        }
    }
}

/// The rows as CSV with a head line.
///
/// # Errors
/// As [`lines`].
pub fn csv(report: &Report) -> Result<Vec<u8>, End> {
    lines(report.rows.iter().map(|row| Flat::new(report, row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sample;

    #[test]
    fn json_comes_back_as_it_went() {
        let report = sample::report();
        let text = json(&report).unwrap();
        assert_eq!(serde_json::from_slice::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn the_json_form_is_stable() {
        let text = json(&sample::report()).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["schema"], 1);
        assert_eq!(value["device"]["pin"], "kernel");
        assert_eq!(value["device"]["pin_asked"], "kernel");
        let row = &value["rows"][0];
        assert_eq!(row["id"], "mr-4k");
        let figures = &row["outcome"]["measured"];
        assert_eq!(figures["register"]["pin"]["median_ns"], 18e6);
        assert_eq!(figures["register"]["command"], serde_json::Value::Null);
        assert_eq!(figures["bandwidth"]["percent_of_bare"], 97.0);
        let missing = &value["rows"][3]["outcome"]["not_measured"];
        assert!(missing["command"].as_str().unwrap().starts_with("echo 1 | sudo tee "));
    }

    #[test]
    fn csv_has_a_line_a_row() {
        let report = sample::report();
        let text = csv(&report).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_slice());
        let heads = reader.headers().unwrap().clone();
        let column = |name: &str| heads.iter().position(|head| head == name).unwrap();
        let records: Vec<_> = reader.records().collect::<Result<_, _>>().unwrap();
        assert_eq!(records.len(), report.rows.len());
        assert_eq!(&records[0][column("pin_ns")], "18000000.0");
        assert_eq!(&records[0][column("map_ns")], "");
        assert_eq!(&records[3][column("pin_ns")], "");
        assert!(records[3][column("not_measured")].contains("1 needed, 0 of 0"));
    }
}
