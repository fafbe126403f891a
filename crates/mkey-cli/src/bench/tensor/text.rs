//! A report as text for people.

use super::report::{Figures, Push, Report, Row};
use crate::bench::report::{Missing, Outcome};
use crate::bench::table::{Line, Side, WIDTH, render};
use crate::bench::text::{ending, head, whose};
use crate::bench::units::{count, rate, size, time};
use std::fmt::Write;

/// The whole report.
pub fn report(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, "bench tensor", &report.device, &report.machine, report.seconds);
    let whose = whose(&report.device, report.command_cost_ns);
    let _ = writeln!(
        out,
        "\nPushing a buffer to a peer, in RDMA WRITEs of {}\n({whose})",
        size(report.chunk)
    );
    out.push_str(&rows(report));
    out.push('\n');
    out.push_str(&reading(report));
    let mut smaller: Vec<Missing> = Vec::new();
    for row in &report.rows {
        let why = row.figures().and_then(|figures| figures.smaller_pages.clone());
        smaller.extend(why.filter(|why| !smaller.contains(why)));
    }
    ending(&mut out, &smaller, &report.device);
    out
}

fn rows(report: &Report) -> String {
    let right = |head| (head, Side::Right, None);
    let mut columns = vec![
        ("\nbuffer", Side::Left, None),
        ("\nstrategy", Side::Left, None),
        ("\npages", Side::Left, None),
        right("cold:\ntotal"),
        right("regis-\ntration"),
        right("\nshare"),
        right("warm:\ntotal"),
        right("regis-\ntration"),
        right("\nshare"),
        right("\nrate"),
        right("faults,\ncold"),
    ];
    let simulated = report.command_cost_ns > 0;
    if simulated {
        columns.push(("\nmark", Side::Left, None));
    }
    let line = |row: &Row| match &row.outcome {
        Outcome::NotMeasured(missing) => {
            Line::not_measured(vec![size(row.bytes), row.strategy.clone()], missing)
        }
        Outcome::Measured(figures) => {
            let mut cells = cells(row, figures);
            if simulated {
                cells.push(if row.simulated { "simulated" } else { "" }.to_owned());
            }
            Line::Cells(cells)
        }
    };
    render(&columns, &report.rows.iter().map(line).collect::<Vec<_>>())
}

fn cells(row: &Row, figures: &Figures) -> Vec<String> {
    let mut cells = vec![size(row.bytes), row.strategy.clone(), figures.pages.clone()];
    let push = |push: &Push| {
        let registration = match push.registration_ns {
            0.0 => "0".to_owned(),
            ns => time(ns),
        };
        [time(push.total_ns), registration, share(push.registration_percent)]
    };
    cells.extend(push(&figures.cold));
    cells.extend(push(&figures.warm));
    cells.push(rate(figures.warm.bytes_per_second));
    cells.push(figures.faults.map_or("-".to_owned(), count));
    cells
}

/// A share in percent; 0 is none at all.
fn share(percent: f64) -> String {
    match percent {
        _ if percent <= 0.0 => "0 %".to_owned(),
        _ if percent < 0.1 => "<0.1 %".to_owned(),
        _ => format!("{percent:.1} %"),
    }
}

/// How to read the table.
fn reading(report: &Report) -> String {
    let texts = [
        format!(
            "A push: the buffer is registered if it has to be, moved to a peer in the same process \
             ({} of its memory, written over and over), and had back. cold: the buffer's first; \
             warm: its next. Medians of {}; after each push the first word of the last chunks is \
             checked at the peer.",
            size(report.landing),
            report.iterations
        ),
        "MR for each push, cache and on-demand paging: ordinary memory of the application, 4 KiB \
         pages, all of it there. The cache registers the first time and finds it the next. pool: \
         the application makes what it pushes in the pool's memory; cold holds the making of the \
         pool (mapping, page faults, registration), which a program does once at its start. \
         on-demand paging: registering pins nothing, and the faults are in the cold push's total, \
         not in its registration."
            .to_owned(),
    ];
    texts.iter().map(|text| textwrap::wrap(text, WIDTH).join("\n") + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn the_table_is_golden() {
        let expected = "                                  cold:   regis-           warm:   regis-                     faults,
buffer  strategy          pages   total  tration   share   total  tration   share       rate     cold
------  ----------------  -----  ------  -------  ------  ------  -------  ------  ---------  -------
64 MiB  MR for each push  4 KiB  9.00ms   2.00ms  22.2 %  9.00ms   2.00ms  22.2 %  7.46 GB/s        -
64 MiB  cache             4 KiB  8.50ms   1.60ms  18.8 %  6.90ms    100ns  <0.1 %  9.73 GB/s        -
64 MiB  pool              THP    25.0ms   18.0ms  72.0 %  6.50ms        0     0 %  10.3 GB/s        -
64 MiB  on-demand paging  4 KiB  30.0ms   1.00us  <0.1 %  7.00ms        0     0 %  9.59 GB/s      16k
2 GiB   MR for each push  not measured: 2.1 GiB are needed, and 1 GiB of memory are available
                          docker run --memory 4g
";
        assert_eq!(rows(&sample::report()), expected);
    }

    #[test]
    fn it_fits_the_width_is_ascii_and_says_whose_figures_they_are() {
        let mut report = sample::report();
        for cost in [0, 16_000] {
            report.command_cost_ns = cost;
            let text = super::report(&report);
            for line in text.lines().filter(|line| !line.starts_with("    ")) {
                assert!(line.len() <= 120 && line.is_ascii(), "{} {line}", line.len());
            }
            assert!(text.contains("(figures of the software RNIC mkey0, not of a NIC"), "{text}");
        }
    }

    #[test]
    fn no_share_is_0_and_a_small_one_is_not() {
        assert_eq!([share(0.0), share(0.05), share(12.34)], ["0 %", "<0.1 %", "12.3 %"]);
    }

    #[test]
    fn smaller_pages_are_told_once() {
        let text = report(&sample::report());
        assert_eq!(text.matches("2 MiB pages: none").count(), 1, "{text}");
    }
}
