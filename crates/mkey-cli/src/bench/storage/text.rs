//! A report as text for people.

use super::report::{Figures, Report, Row, SystemCalls};
use crate::bench::report::Outcome;
use crate::bench::table::{Line, Side, WIDTH, render};
use crate::bench::text::{ending, head, whose};
use crate::bench::units::{per_second, size, time};
use std::fmt::Write;

const NONE: &str = "-";

/// The whole report.
pub fn report(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, "bench storage", &report.device, &report.machine, report.seconds);
    let whose = whose(&report.device, report.command_cost_ns);
    let mut sizes: Vec<u64> = report.rows.iter().map(|row| row.bs).collect();
    sizes.dedup();
    for bs in sizes {
        let work = &report.workload;
        let jobs = match work.numjobs {
            1 => "1 job".to_owned(),
            jobs => format!("{jobs} jobs"),
        };
        let _ = writeln!(
            out,
            "\n{} of {}, {} in flight, {jobs}\n({whose})",
            work.rw,
            size(bs),
            work.iodepth
        );
        out.push_str(&rows(report, bs));
    }
    out.push('\n');
    out.push_str(&reading(report));
    if !report.aims.is_empty() {
        let _ = writeln!(out, "\nWhat the figures are to be\n({whose})");
        out.push_str(&aims(report));
    }
    ending(&mut out, &report.missing, &report.device);
    out
}

fn rows(report: &Report, bs: u64) -> String {
    let right = |head| (head, Side::Right, None);
    let mut columns = vec![
        ("\nstrategy", Side::Left, None),
        ("\npages", Side::Left, None),
        right("\nIOPS"),
        right("time\nan I/O"),
        right("CPU\nan I/O"),
        right("lat\np50"),
        right("\np99"),
        right("\np99.9"),
        right("of\nstatic"),
        right("x MR\n/ I/O"),
        right("regs\n/ I/O"),
        right("calls\n/ I/O"),
        right("allocs\n/ I/O"),
    ];
    let simulated = report.command_cost_ns > 0;
    if simulated {
        columns.push(("\nmark", Side::Left, None));
    }
    let line = |row: &Row| match &row.outcome {
        Outcome::NotMeasured(missing) => Line::not_measured(vec![row.strategy.clone()], missing),
        Outcome::Measured(figures) => {
            let mut cells = cells(row, figures);
            if simulated {
                cells.push(if row.simulated { "simulated" } else { "" }.to_owned());
            }
            Line::Cells(cells)
        }
    };
    let lines: Vec<Line> = report.rows.iter().filter(|row| row.bs == bs).map(line).collect();
    render(&columns, &lines)
}

fn cells(row: &Row, figures: &Figures) -> Vec<String> {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let latency = figures.latency;
    let quantile = |ns: Option<u64>| or_none(ns.map(|ns| time(ns as f64)));
    let calls = match figures.system_calls {
        SystemCalls::Counted { ios, calls, .. } => Some(per_io(calls, ios)),
        SystemCalls::NotMeasured(_) => None,
    };
    vec![
        row.strategy.clone(),
        figures.pages.clone(),
        per_second(figures.iops),
        time(figures.ns_per_io),
        time(figures.cpu_ns_per_io),
        quantile(latency.map(|l| l.p50_ns)),
        quantile(latency.map(|l| l.p99_ns)),
        quantile(latency.map(|l| l.p999_ns)),
        or_none(figures.percent_of_static.map(|percent| format!("{percent:.0} %"))),
        or_none(figures.times_mr_per_io.map(|times| format!("{times:.2}"))),
        per_io(figures.registrations, figures.ios),
        or_none(calls),
        or_none(figures.allocations.map(|count| per_io(count, figures.ios))),
    ]
}

/// A count for one I/O: 0 is none at all.
fn per_io(count: u64, ios: u64) -> String {
    let per = count as f64 / ios.max(1) as f64;
    match count {
        0 => "0".to_owned(),
        _ if per < 0.01 => "<0.01".to_owned(),
        _ => format!("{per:.2}"),
    }
}

/// How to read the tables.
fn reading(report: &Report) -> String {
    let work = &report.workload;
    let mut texts = vec![
        format!(
            "An I/O: the initiator opens its buffer, asks by a SEND with the buffer's remote key, \
             the target moves the data by RDMA WRITE or READ between its disk ({} a job, in memory) \
             and that buffer and answers by a SEND, and the initiator closes the buffer. Both ends \
             run on the job's thread. Every I/O is checked: a wrong or missing byte at either end \
             of a block fails the row, and of 1 I/O in {} all bytes are compared.",
            size(work.size),
            super::content::WHOLE
        ),
        format!(
            "The static MR is the baseline that the others are held against. IOPS, time and CPU: \
             medians of {} rounds, in which the strategies take turns; ratios: medians of the \
             rounds' ratios. CPU counts all threads of the process.",
            work.rounds
        ),
        "lat: from asking for an I/O to the end of its buffer's closing. regs, allocs: memory \
         regions registered and heap allocations of the jobs' threads in all rounds, 0 meaning not \
         one. calls: system calls of a job's thread in a pass of its own, each of them counted by \
         a seccomp listener."
            .to_owned(),
    ];
    texts.push("What one I/O needs besides its data:".to_owned());
    let first = report.rows.first().map_or(0, |row| row.bs);
    for row in report.rows.iter().filter(|row| row.bs == first) {
        if let Some(figures) = row.figures() {
            texts.push(format!("  {}: {}", row.strategy, figures.how));
        }
    }
    texts.extend(report.rows.iter().filter_map(calls));
    let wrap = |text: &String| textwrap::wrap(text, WIDTH).join("\n") + "\n";
    texts.iter().map(wrap).collect()
}

/// The system calls of a row by name, or why they were not counted; `None`: there were none.
fn calls(row: &Row) -> Option<String> {
    let what = match &row.figures()?.system_calls {
        SystemCalls::Counted { by_name, .. } if by_name.is_empty() => return None,
        SystemCalls::Counted { ios, by_name, .. } => {
            let calls = by_name.iter().map(|(name, n)| format!("{name} {}", per_io(*n, *ios)));
            format!("system calls of an I/O: {}", calls.collect::<Vec<_>>().join(", "))
        }
        SystemCalls::NotMeasured(missing) => {
            format!("system calls not measured: {}", missing.what)
        }
    };
    Some(format!("{}, {}: {what}", row.strategy, size(row.bs)))
}

fn aims(report: &Report) -> String {
    let columns = [
        ("work", Side::Left, None),
        ("aim", Side::Right, None),
        ("figure", Side::Right, None),
        ("", Side::Left, None),
    ];
    let line = |aim: &super::report::Aim| {
        let verdict = match aim.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        Line::Cells(vec![aim.work.clone(), aim.aim.clone(), aim.figure.clone(), verdict.to_owned()])
    };
    render(&columns, &report.aims.iter().map(line).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn the_table_is_golden() {
        let expected = "                                    time     CPU     lat                      of   x MR   regs  calls  allocs
strategy            pages   IOPS  an I/O  an I/O     p50     p99   p99.9  static  / I/O  / I/O  / I/O   / I/O
------------------  -----  -----  ------  ------  ------  ------  ------  ------  -----  -----  -----  ------
static MR (unsafe)  2 MiB  1.50M   667ns   673ns  21.3us  26.7us  60.0us   100 %   3.75      0      0       0
MR for each I/O     4 KiB   400k  2.50us  2.52us  80.0us   100us   225us    27 %   1.00   1.00   2.00       0
copy through pool   2 MiB  1.20M   833ns   842ns  26.7us  33.3us  75.0us    80 %   3.00      0      0       0
FRMR pool           2 MiB   900k  1.11us  1.12us  35.6us  44.4us   100us    60 %   2.25      0      0       0
grant (MW type 2)   2 MiB  1.00M  1.00us  1.01us  32.0us  40.0us  90.0us    67 %   2.50      0      0       0
cache               not measured: no events here
                    as root: allow them
";
        assert_eq!(rows(&sample::report(), 4096), expected);
    }

    #[test]
    fn every_table_says_whose_figures_they_are() {
        let text = report(&sample::report());
        let tables = text.lines().filter(|line| line.starts_with("---")).count();
        let labels = text.matches("(figures of the software RNIC mkey0, not of a NIC)").count();
        assert_eq!((tables, labels), (2, 2), "{text}");
    }

    #[test]
    fn it_fits_the_width_and_is_ascii() {
        let mut report = sample::report();
        for cost in [0, 16_000] {
            report.command_cost_ns = cost;
            for row in &mut report.rows {
                row.simulated = cost > 0;
            }
            for line in super::report(&report).lines().filter(|line| !line.starts_with("    ")) {
                assert!(line.len() <= 120 && line.is_ascii(), "{} {line}", line.len());
            }
        }
    }

    #[test]
    fn a_count_is_0_only_if_there_is_none() {
        assert_eq!(per_io(0, 1000), "0");
        assert_eq!(per_io(1, 1_000_000), "<0.01");
        assert_eq!(per_io(1500, 1000), "1.50");
        assert_eq!(per_io(7, 0), "7.00");
    }

    #[test]
    fn the_unsafe_baseline_is_labelled() {
        assert!(rows(&sample::report(), 4096).contains("static MR (unsafe)"));
    }
}
