//! A report for programs: JSON with everything, CSV with one line a row.

use super::report::{Report, Row, SystemCalls};
use crate::bench::export::lines;
use crate::exit::End;
use serde::Serialize;

/// One line of the CSV form; an empty field is "there is no such figure". Nanoseconds.
#[derive(Debug, Serialize)]
struct Flat<'a> {
    id: &'a str,
    strategy: &'a str,
    rw: &'a str,
    bs: u64,
    iodepth: u64,
    numjobs: u64,
    device: &'a str,
    software: bool,
    simulated: bool,
    command_cost_ns: u64,
    pages: Option<&'a str>,
    iops: Option<f64>,
    ns_per_io: Option<f64>,
    cpu_ns_per_io: Option<f64>,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    percent_of_static: Option<f64>,
    times_mr_per_io: Option<f64>,
    ios: Option<u64>,
    checked_whole: Option<u64>,
    registrations: Option<u64>,
    allocations: Option<u64>,
    system_calls: Option<u64>,
    system_call_ios: Option<u64>,
    not_measured: Option<&'a str>,
    command_that_allows_it: Option<&'a str>,
}

impl<'a> Flat<'a> {
    fn new(report: &'a Report, row: &'a Row) -> Self {
        let figures = row.figures();
        let missing = row.outcome.missing();
        let latency = figures.and_then(|f| f.latency);
        let calls = figures.and_then(|f| match f.system_calls {
            SystemCalls::Counted { ios, calls, .. } => Some((ios, calls)),
            SystemCalls::NotMeasured(_) => None,
        });
        Self {
            id: &row.id,
            strategy: &row.strategy,
            rw: &report.workload.rw,
            bs: row.bs,
            iodepth: report.workload.iodepth,
            numjobs: report.workload.numjobs,
            device: &report.device.name,
            software: report.device.software,
            simulated: row.simulated,
            command_cost_ns: report.command_cost_ns,
            pages: figures.map(|f| f.pages.as_str()),
            iops: figures.map(|f| f.iops),
            ns_per_io: figures.map(|f| f.ns_per_io),
            cpu_ns_per_io: figures.map(|f| f.cpu_ns_per_io),
            p50_ns: latency.map(|l| l.p50_ns),
            p99_ns: latency.map(|l| l.p99_ns),
            p999_ns: latency.map(|l| l.p999_ns),
            percent_of_static: figures.and_then(|f| f.percent_of_static),
            times_mr_per_io: figures.and_then(|f| f.times_mr_per_io),
            ios: figures.map(|f| f.ios),
            checked_whole: figures.map(|f| f.checked_whole),
            registrations: figures.map(|f| f.registrations),
            allocations: figures.and_then(|f| f.allocations),
            system_calls: calls.map(|(_, calls)| calls),
            system_call_ios: calls.map(|(ios, _)| ios),
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
    fn the_json_form_is_stable() {
        let value: serde_json::Value =
            serde_json::from_slice(&json(&sample::report()).unwrap()).unwrap();
        assert_eq!(value["schema"], 1);
        assert_eq!(value["workload"]["rw"], "randread");
        let figures = &value["rows"][1]["outcome"]["measured"];
        assert_eq!(figures["system_calls"]["counted"]["by_name"][0][0], "io_uring_register");
        assert_eq!(figures["latency"]["p50_ns"], 80_000);
        assert_eq!(value["rows"][5]["outcome"]["not_measured"]["what"], "no events here");
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
        assert_eq!(&records[1][column("system_calls")], "512");
        assert_eq!(&records[5][column("iops")], "");
        assert_eq!(&records[5][column("not_measured")], "no events here");
    }
}
