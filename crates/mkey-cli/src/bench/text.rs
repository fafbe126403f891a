//! A report as text for people.

use super::report::{DeviceFacts, Figures, Machine, Missing, Outcome, Report, Row, Summary};
use super::table::{Line, Side, WIDTH, render};
use super::units::{count, rate, size, time};
use std::fmt::Write;

const NONE: &str = "-";
/// The heading of a device's notes.
pub const NOTES: &str = "What is to be known about the device";

/// The whole report.
pub fn report(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, "bench", &report.device, &report.machine, report.seconds);
    less_memory(&mut out, report);
    let _ = writeln!(out, "\n{}", title(report));
    out.push_str(&strategies(report));
    out.push('\n');
    out.push_str(&reading(report));
    heading(&mut out, report, "Spread: medians again, with p99 and how often each was taken");
    out.push_str(&spread(report));
    heading(&mut out, report, "The four mechanisms, cost classes as measured here");
    out.push_str(&mechanisms(report));
    heading(&mut out, report, "Widely copied claims beside this run");
    out.push_str(&claims(report));
    ending(&mut out, &report.missing, &report.device);
    out
}

/// Whose figures they are; stands at every table.
pub fn whose(device: &DeviceFacts, command_cost_ns: u64) -> String {
    let mut text = if device.software {
        format!("figures of the software RNIC {}, not of a NIC", device.name)
    } else {
        format!("figures of {} ({})", device.name, device.driver)
    };
    if command_cost_ns > 0 {
        let cost = time(command_cost_ns as f64);
        let _ = write!(text, "; simulated device command of {cost}");
    }
    text
}

/// The first lines: what ran, on what.
pub fn head(
    out: &mut String,
    command: &str,
    device: &DeviceFacts,
    machine: &Machine,
    seconds: f64,
) {
    let cpu = machine.cpu.as_deref().unwrap_or("unknown CPU");
    let cores = match machine.cores {
        1 => "1 core".to_owned(),
        cores => format!("{cores} cores"),
    };
    let asked = if device.pin == device.pin_asked {
        String::new()
    } else {
        format!(" ({} asked)", device.pin_asked)
    };
    let _ = writeln!(
        out,
        "mkey {} {command}: {} ({}), pin {}{asked}; {cpu}, {cores}, Linux {}; {seconds:.0} s",
        env!("CARGO_PKG_VERSION"),
        device.name,
        device.driver,
        device.pin,
        machine.kernel,
    );
    if !device.notes.is_empty() {
        let _ = writeln!(out, "There is something to know about the device: it is at the end.");
    }
}

fn less_memory(out: &mut String, report: &Report) {
    if report.memory.bytes != report.memory.asked {
        let _ = writeln!(
            out,
            "Registered memory: {} instead of {}; the reasons are at the end.",
            size(report.memory.bytes),
            size(report.memory.asked)
        );
    }
}

fn heading(out: &mut String, report: &Report, text: &str) {
    let _ = writeln!(out, "\n{text}\n({})", whose(&report.device, report.command_cost_ns));
}

fn title(report: &Report) -> String {
    format!(
        "What registration costs: {} registered, I/O of {}\n({})",
        size(report.memory.bytes),
        size(report.io.bytes),
        whose(&report.device, report.command_cost_ns)
    )
}

fn median(summary: Option<Summary>) -> String {
    summary.map_or(NONE.to_owned(), |summary| time(summary.median_ns))
}

fn p99(summary: Option<Summary>) -> String {
    summary.map_or(NONE.to_owned(), |summary| time(summary.p99_ns))
}

fn name_cells(row: &Row) -> Vec<String> {
    vec![row.strategy.clone(), row.page.clone()]
}

/// The first table: the heads of its columns, two lines each, and the cells of its rows; those of a
/// row that was not measured end with its name.
pub fn strategy_rows(report: &Report) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let simulated = report.command_cost_ns > 0;
    let mut heads = vec!["\nstrategy", "\npage", "register\nprefault", "\npin", "\ntable"];
    if simulated {
        heads.push("\ncommand");
    }
    heads.extend([
        "\ntotal",
        "de-\nregister",
        "map I/O\np50",
        "\np99",
        "of bare\ncopy",
        "CPU\nper I/O",
    ]);
    if simulated {
        heads.push("\nmark");
    }
    let cells = |row: &Row| {
        let mut cells = name_cells(row);
        let Some(figures) = row.figures() else { return cells };
        let register = figures.register;
        cells.push(median(register.and_then(|r| r.prefault)));
        cells.push(median(register.and_then(|r| r.pin)));
        cells.push(median(register.and_then(|r| r.table)));
        if simulated {
            cells.push(median(register.and_then(|r| r.command)));
        }
        cells.push(register.map_or(NONE.to_owned(), |r| time(r.total_ns())));
        cells.push(median(register.map(|r| r.deregister)));
        cells.push(median(figures.map));
        cells.push(p99(figures.map));
        let percent = figures.bandwidth.map(|b| format!("{:.0} %", b.percent_of_bare));
        cells.push(percent.unwrap_or_else(|| NONE.to_owned()));
        cells.push(median(figures.cpu));
        if simulated {
            cells.push(if row.simulated { "simulated" } else { "" }.to_owned());
        }
        cells
    };
    (heads, report.rows.iter().map(cells).collect())
}

fn strategies(report: &Report) -> String {
    let (heads, rows) = strategy_rows(report);
    let side = |n: usize, head: &str| match (n, head) {
        (0 | 1, _) | (_, "\nmark") => Side::Left,
        _ => Side::Right,
    };
    let columns: Vec<_> =
        heads.iter().enumerate().map(|(n, head)| (*head, side(n, head), None)).collect();
    let line = |(cells, row): (Vec<String>, &Row)| match &row.outcome {
        Outcome::Measured(_) => Line::Cells(cells),
        Outcome::NotMeasured(missing) => Line::not_measured(cells, missing),
    };
    let lines: Vec<Line> = rows.into_iter().zip(&report.rows).map(line).collect();
    render(&columns, &lines)
}

/// How to read the first table, a paragraph each.
pub fn reading_lines(report: &Report) -> Vec<String> {
    let bare = bare_copies(report);
    let mut texts = vec![
        "register: medians. prefault brings the pages in (the first time warms up and is not \
         counted); pin and table are terms of reg_mr as the device counts them; total is prefault \
         and reg_mr from call to return."
            .to_owned()
            + if report.device.is_mkeys() {
                " A NIC adds a table entry a page and firmware commands, which --command-cost \
                 declares."
            } else {
                " This device does not tell them: bench registration --stages asks the kernel."
            },
        format!(
            "An I/O is an RDMA WRITE of {} by a peer in the same process, over a working set of \
             {}, {} posted at a time, with all that the strategy needs besides. The bare copy \
             (the C library's) moves the same bytes without a device, in turns with the I/O: {bare}. The \
             device's copy may be slower{}. CPU counts all threads of the process.",
            size(report.io.bytes),
            size(report.io.working_set),
            report.io.depth,
            if report.device.is_mkeys() {
                ", as it stores in ascending order: programs poll the last byte"
            } else {
                ""
            }
        ),
        "map I/O: what one I/O needs besides its data, there and back:".to_owned(),
    ];
    for row in &report.rows {
        if let Some(Figures { map: Some(_), map_is, .. }) = row.figures() {
            texts.push(format!("  {}: {map_is}", row.strategy));
        }
    }
    texts
}

fn reading(report: &Report) -> String {
    let wrap = |text: &String| textwrap::wrap(text, WIDTH).join("\n") + "\n";
    reading_lines(report).iter().map(wrap).collect()
}

/// How fast the bare copy was: the median of the rows, and the rows that had a much slower or
/// faster one, since their percentages are of that.
fn bare_copies(report: &Report) -> String {
    let copies: Vec<(&Row, f64)> = report
        .rows
        .iter()
        .filter_map(|row| Some((row, row.figures()?.bandwidth?.bare_bytes_per_second)))
        .collect();
    let mut rates: Vec<f64> = copies.iter().map(|(_, rate)| *rate).collect();
    let Some(median) = super::measure::median(&mut rates) else { return "not measured".into() };
    let mut text = rate(median);
    for (row, other) in copies {
        if !(0.7..=1.4).contains(&(other / median.max(1.0))) {
            let name = format!("{} on {} pages", row.strategy, row.page);
            let _ = write!(text, ", beside {name} {}", rate(other));
        }
    }
    text
}

fn spread(report: &Report) -> String {
    let right = |head| (head, Side::Right, None);
    let columns = [
        ("\nstrategy", Side::Left, None),
        ("\npage", Side::Left, None),
        right("reg_mr\np50"),
        right("\np99"),
        right("dereg_mr\np50"),
        right("\np99"),
        right("\nruns"),
        right("prefault\nruns"),
        right("allocate\np50"),
        right("map I/O\np99"),
        right("\nsamples"),
        right("\nx batch"),
        right("I/O\nrounds"),
    ];
    let line = |row: &Row| {
        let figures = row.figures()?;
        let register = figures.register;
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        let mut cells = name_cells(row);
        cells.extend([
            median(register.map(|r| r.verb)),
            p99(register.map(|r| r.verb)),
            median(register.map(|r| r.deregister)),
            p99(register.map(|r| r.deregister)),
            or_none(register.map(|r| count(r.verb.samples))),
            or_none(register.and_then(|r| r.prefault).map(|p| count(p.samples))),
            median(figures.allocate),
            p99(figures.map),
            or_none(figures.map.map(|m| count(m.samples))),
            or_none(figures.map.map(|m| m.batch.to_string())),
            or_none(figures.bandwidth.map(|b| count(b.rounds))),
        ]);
        Some(Line::Cells(cells))
    };
    let lines: Vec<Line> = report.rows.iter().filter_map(line).collect();
    let mut out = render(&columns, &lines);
    let note = format!(
        "A batch above 1: so many are timed together, because one is too short for the clock ({} \
         a reading); p99 is then that of their means. Nothing is subtracted.",
        time(report.machine.clock_ns as f64)
    );
    out.push_str(&textwrap::wrap(&note, WIDTH).join("\n"));
    out.push('\n');
    out
}

fn mechanisms(report: &Report) -> String {
    let columns = [
        ("mechanism", Side::Left, None),
        ("what for", Side::Left, Some(34)),
        ("cost class here", Side::Left, Some(34)),
        ("needs", Side::Left, Some(34)),
    ];
    let cells = report.mechanisms.iter().map(|m| {
        Line::Cells(vec![m.name.clone(), m.what_for.clone(), m.cost.clone(), m.needs.clone()])
    });
    render(&columns, &cells.collect::<Vec<_>>())
}

fn claims(report: &Report) -> String {
    let columns = [
        ("claim", Side::Left, Some(24)),
        ("measured here", Side::Left, Some(28)),
        ("why they differ", Side::Left, Some(62)),
    ];
    let cells = report
        .claims
        .iter()
        .map(|c| Line::Cells(vec![c.claim.clone(), c.measured.clone(), c.why.clone()]));
    render(&columns, &cells.collect::<Vec<_>>())
}

/// What was not allowed, with the commands that would, and what is to be known about the device, each
/// below a heading of its own.
pub fn ending(out: &mut String, lacks: &[Missing], device: &DeviceFacts) {
    let silent = DeviceFacts { notes: Vec::new(), ..device.clone() };
    if !lacks.is_empty() {
        let _ = writeln!(out, "\nWhat this machine does not allow, and the command that would");
        missing(out, lacks, &silent);
    }
    if !device.notes.is_empty() {
        let _ = writeln!(out, "\n{NOTES}");
        missing(out, &[], device);
    }
}

/// What was not allowed, with the commands that would, and the device's notes.
fn missing(out: &mut String, missing: &[Missing], device: &DeviceFacts) {
    let item = |out: &mut String, text: &str, first: &str| {
        let options = textwrap::Options::new(WIDTH).initial_indent(first).subsequent_indent("  ");
        let _ = writeln!(out, "{}", textwrap::fill(text, options));
    };
    for missing in missing {
        item(out, &missing.what, "- ");
        if let Some(command) = &missing.command {
            // Not wrapped: it is to be copied.
            let _ = writeln!(out, "    {command}");
        }
    }
    for note in &device.notes {
        item(out, &format!("{}: {note}", device.name), "- ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sample;

    #[test]
    fn the_first_table_is_golden() {
        let expected = "                         register                             de-  map I/O          of bare      CPU
strategy          page   prefault     pin  table  total  register      p50     p99     copy  per I/O
----------------  -----  --------  ------  -----  -----  --------  -------  ------  -------  -------
MR                4 KiB     300ms  18.0ms  500ns  318ms    2.90ms        -       -     97 %   3.30us
MR                THP       300ms   500us  500ns  301ms    2.90ms        -       -     97 %   3.30us
MR                2 MiB     300ms   460us  500ns  300ms    2.90ms        -       -     97 %   3.30us
MR                1 GiB  not measured: 1 GiB pages: 1 needed, 0 of 0 available (Cannot allocate memory)
                         echo 1 | sudo tee /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages
MR for each I/O   4 KiB         -       -      -      -         -   2.10us  3.15us     97 %   3.30us
FRMR pool         2 MiB     300ms   460us  500ns  300ms    2.90ms   90.0ns   135ns     97 %   3.30us
MW type 2         2 MiB     300ms   460us  500ns  300ms    2.90ms   80.0ns   120ns     97 %   3.30us
ODP, first touch  4 KiB         -       -  900ns  900ns    2.90ms   1.90us  2.85us     97 %   3.30us
ODP, warm         4 KiB         -       -  900ns  900ns    2.90ms   95.0ns   142ns     97 %   3.30us
";
        assert_eq!(strategies(&sample::report()), expected);
    }

    #[test]
    fn notes_of_the_device_are_not_what_the_machine_does_not_allow() {
        let mut report = sample::report();
        report.device.notes = vec!["it is slow".to_owned()];
        report.missing.clear();
        let text = super::report(&report);
        assert!(text.ends_with(&format!("\n{NOTES}\n- {}: it is slow\n", report.device.name)));
        assert!(!text.contains("does not allow, and"), "{text}");
        assert!(!text.contains("falls back"), "{text}");
        report.device.notes.clear();
        report.missing = vec![Missing::with("no pages", "do")];
        let text = super::report(&report);
        assert!(text.ends_with("and the command that would\n- no pages\n    do\n"), "{text}");
        assert!(!text.contains(NOTES), "{text}");
    }

    #[test]
    fn the_head_names_the_pin_mode_that_held_and_the_one_asked_for() {
        let mut report = sample::report();
        assert!(super::report(&report).contains("), pin kernel; "));
        report.device.pin = "mlock".to_owned();
        assert!(super::report(&report).contains("), pin mlock (kernel asked); "));
    }

    #[test]
    fn a_declared_command_adds_its_column_and_mark() {
        let mut report = sample::report();
        report.command_cost_ns = 16_000;
        report.rows[0].simulated = true;
        let table = strategies(&report);
        assert!(table.lines().nth(1).unwrap().contains("command"), "{table}");
        assert!(table.lines().nth(3).unwrap().ends_with("simulated"), "{table}");
        assert!(!table.lines().nth(4).unwrap().contains("simulated"), "{table}");
    }

    #[test]
    fn a_row_with_another_bare_copy_is_named() {
        let mut report = sample::report();
        assert!(flat(&reading(&report)).contains("in turns with the I/O: 20.0 GB/s. The device"));
        let slow = sample::figures(&mut report, "odp-first-touch").bandwidth.as_mut().unwrap();
        slow.bare_bytes_per_second = 5e9;
        let text = flat(&reading(&report));
        let said = "20.0 GB/s, beside ODP, first touch on 4 KiB pages 5.00 GB/s. The device";
        assert!(text.contains(said), "{text}");
        report.rows.clear();
        assert!(flat(&reading(&report)).contains("I/O: not measured."));
    }

    fn flat(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_table_says_whose_figures_they_are() {
        let text = report(&sample::report());
        let tables = text.lines().filter(|line| line.starts_with("---")).count();
        let labels = text.matches("(figures of the software RNIC mkey0, not of a NIC)").count();
        assert_eq!((tables, labels), (4, 4), "{text}");
    }

    #[test]
    fn it_fits_the_width_and_is_ascii() {
        let mut report = sample::report();
        for cost in [0, 16_000] {
            report.command_cost_ns = cost;
            for line in super::report(&report).lines().filter(|line| !line.starts_with("    ")) {
                assert!(line.len() <= 120 && line.is_ascii(), "{} {line}", line.len());
            }
        }
    }

    #[test]
    fn commands_stand_alone_on_a_line() {
        let text = report(&sample::report());
        assert!(text.lines().any(|line| line == "    as root: mend it"), "{text}");
    }
}
