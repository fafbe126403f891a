//! A report for programs: CSV with one line a row; JSON is the report itself.

use super::report::{Report, Row};
use crate::bench::export::lines;
use crate::exit::End;
use serde::Serialize;

/// One line of the CSV form; an empty field is "there is no such figure". Nanoseconds.
#[derive(Debug, Serialize)]
struct Flat<'a> {
    id: &'a str,
    strategy: &'a str,
    bytes: u64,
    chunk: u64,
    device: &'a str,
    software: bool,
    simulated: bool,
    command_cost_ns: u64,
    iterations: u64,
    pages: Option<&'a str>,
    cold_total_ns: Option<f64>,
    cold_registration_ns: Option<f64>,
    cold_registration_percent: Option<f64>,
    warm_total_ns: Option<f64>,
    warm_registration_ns: Option<f64>,
    warm_registration_percent: Option<f64>,
    warm_bytes_per_second: Option<f64>,
    cold_faults: Option<u64>,
    not_measured: Option<&'a str>,
    command_that_allows_it: Option<&'a str>,
}

impl<'a> Flat<'a> {
    fn new(report: &'a Report, row: &'a Row) -> Self {
        let figures = row.figures();
        let missing = row.outcome.missing();
        Self {
            id: &row.id,
            strategy: &row.strategy,
            bytes: row.bytes,
            chunk: report.chunk,
            device: &report.device.name,
            software: report.device.software,
            simulated: row.simulated,
            command_cost_ns: report.command_cost_ns,
            iterations: report.iterations,
            pages: figures.map(|f| f.pages.as_str()),
            cold_total_ns: figures.map(|f| f.cold.total_ns),
            cold_registration_ns: figures.map(|f| f.cold.registration_ns),
            cold_registration_percent: figures.map(|f| f.cold.registration_percent),
            warm_total_ns: figures.map(|f| f.warm.total_ns),
            warm_registration_ns: figures.map(|f| f.warm.registration_ns),
            warm_registration_percent: figures.map(|f| f.warm.registration_percent),
            warm_bytes_per_second: figures.map(|f| f.warm.bytes_per_second),
            cold_faults: figures.and_then(|f| f.faults),
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
    use super::super::sample;
    use super::*;
    use crate::bench::export::json;

    #[test]
    fn json_comes_back_as_it_went() {
        let report = sample::report();
        let text = json(&report).unwrap();
        assert_eq!(serde_json::from_slice::<Report>(&text).unwrap(), report);
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
        assert_eq!(&records[3][column("cold_faults")], "16384");
        assert_eq!(&records[0][column("cold_faults")], "");
        assert_eq!(&records[4][column("warm_total_ns")], "");
        assert_eq!(&records[4][column("command_that_allows_it")], "docker run --memory 4g");
    }
}
