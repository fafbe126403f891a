//! The end of a test run: one table of the parts, and the plain closing line.

use std::time::Duration;

use crate::exit::Exit;
use crate::part::{Report, Verdict};
use crate::tally::Tally;

/// A part that was run, or left out by the user.
pub struct Row {
    pub name: &'static str,
    pub took: Duration,
    pub report: Report,
}

/// The table and, as its last line, `N passed, N failed, N skipped`.
pub fn table(rows: &[Row]) -> String {
    let mut out = format!(
        "{:<16} {:<8} {:>9} {:>7} {:>7} {:>7}\n",
        "part", "verdict", "time", "passed", "failed", "skipped"
    );
    let mut sum = Tally::default();
    let mut time = Duration::ZERO;
    for Row { name, took, report } in rows {
        let verdict = match report.verdict() {
            Verdict::Passed => "passed",
            Verdict::Failed => "FAILED",
            Verdict::Skipped => "skipped",
            Verdict::Excused => "SKIPPED",
        };
        out += &row(name, verdict, *took, report.tally);
        for note in &report.notes {
            out += &format!("    {}\n", note.replace('\n', "\n    "));
        }
        sum += report.tally;
        time += *took;
    }
    out += &row("all", "", time, sum);
    out + &format!("\n{} passed, {} failed, {} skipped\n", sum.passed, sum.failed, sum.skipped)
}

/// How the run ends.
pub fn exit(rows: &[Row], ci: bool) -> Exit {
    let any = |verdict| rows.iter().any(|row| row.report.verdict() == verdict);
    let failed = rows.is_empty() || any(Verdict::Failed);
    // In CI nobody can mend what cannot be had.
    let skipped = any(Verdict::Skipped) || (any(Verdict::Excused) && !ci);
    Exit::of(failed, skipped, ci)
}

fn row(name: &str, verdict: &str, took: Duration, tally: Tally) -> String {
    let Tally { passed, failed, skipped } = tally;
    let seconds = took.as_secs_f64();
    format!("{name:<16} {verdict:<8} {seconds:>7.1} s {passed:>7} {failed:>7} {skipped:>7}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let tally = Tally { passed: 12, failed: 0, skipped: 0 };
        let tests = Report { tally, ..Report::default() };
        let skipped = Report::skipped("valgrind: apt-get update failed\nno network".into());
        let took = Duration::from_millis(1250);
        vec![
            Row { name: "unit", took, report: tests },
            Row { name: "gates", took, report: skipped },
        ]
    }

    #[test]
    fn the_closing_line_stands_alone_and_counts_all_parts() {
        let table = table(&rows());
        assert_eq!(table.lines().last(), Some("12 passed, 0 failed, 1 skipped"));
    }

    #[test]
    fn each_part_has_a_row_and_its_reasons_below() {
        let table = table(&rows());
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[1].starts_with("unit") && lines[1].contains("passed"), "{table}");
        assert!(lines[1].contains("1.2 s") || lines[1].contains("1.3 s"), "{table}");
        assert!(lines[2].starts_with("gates") && lines[2].contains("skipped"), "{table}");
        assert_eq!(lines[3..5], ["    valgrind: apt-get update failed", "    no network"]);
        assert!(lines[5].starts_with("all") && lines[5].contains("2.5 s"), "{table}");
    }

    #[test]
    fn the_exit_follows_the_worst_part() {
        let mut rows = rows();
        assert_eq!(exit(&rows, false), Exit::Skipped);
        assert_eq!(exit(&rows, true), Exit::Failed);
        rows[1].report.excused = 1;
        assert_eq!(exit(&rows, false), Exit::Skipped);
        assert_eq!(exit(&rows, true), Exit::Well);
        assert!(table(&rows).contains("gates            SKIPPED"));
        rows[0].report.check(false, || "broken".into());
        assert_eq!(exit(&rows, false), Exit::Failed);
        assert_eq!(exit(&rows, true), Exit::Failed);
        rows.truncate(0);
        assert_eq!(exit(&rows, false), Exit::Failed, "a run of nothing shows nothing");
    }
}
