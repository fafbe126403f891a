//! The table: work, aim, figure, reference, met or missed.

use crate::rows::Row;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt;

/// More processors kept busy by others than this, and a row's figures say little.
const QUIET: f64 = 0.05;
/// Rows that may miss their aim.
const MAY_MISS: usize = 2;
/// How many times its aim a missed figure may be.
const MISSED_BY: f64 = 2.0;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Nanoseconds,
    Microseconds,
    Percent,
    /// How many times something else.
    Times,
    /// How many.
    Count,
}

impl Unit {
    fn show(self, figure: f64) -> String {
        match self {
            Self::Nanoseconds => format!("{figure:.1} ns"),
            Self::Microseconds => format!("{figure:.2} us"),
            Self::Percent => format!("{figure:.1} %"),
            Self::Times => format!("{figure:.2} x"),
            Self::Count => format!("{figure:.0}"),
        }
    }
}

/// What a figure is to be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aim {
    AtMost(f64),
    AtLeast(f64),
    /// It is shown for what it tells.
    None,
}

/// One figure.
#[derive(Debug, Serialize)]
pub struct Line {
    pub work: String,
    pub aim: Aim,
    pub unit: Unit,
    /// The figure, or why there is none.
    pub figure: Result<f64, String>,
    /// What it is to be seen beside, with its figure.
    pub reference: String,
}

impl Line {
    pub fn new(work: impl Into<String>, aim: Aim, unit: Unit, figure: f64) -> Self {
        let (work, figure) = (work.into(), Ok(figure));
        Self { work, aim, unit, figure, reference: String::new() }
    }

    pub fn not_measured(work: impl Into<String>, aim: Aim, unit: Unit, why: String) -> Self {
        Self { work: work.into(), aim, unit, figure: Err(why), reference: String::new() }
    }

    pub fn beside(mut self, reference: impl Into<String>) -> Self {
        self.reference = reference.into();
        self
    }

    /// How many times the aim this is; above 1 it is missed. `None` without aim or figure.
    fn times_aim(&self) -> Option<f64> {
        let figure = *self.figure.as_ref().ok()?;
        let times = match self.aim {
            // An aim of nothing is met by nothing only.
            Aim::AtMost(0.0) => return Some(if figure <= 0.0 { 0.0 } else { f64::INFINITY }),
            Aim::AtMost(most) => figure / most,
            Aim::AtLeast(least) => least / figure,
            Aim::None => return None,
        };
        // What is no number is no figure within its aim.
        Some(if times.is_nan() { f64::INFINITY } else { times.max(0.0) })
    }

    fn verdict(&self) -> String {
        match (&self.figure, self.times_aim()) {
            (Err(_), _) => "not measured".into(),
            (Ok(_), None) => String::new(),
            (Ok(_), Some(times)) if times <= 1.0 => "met".into(),
            (Ok(_), Some(times)) => format!("missed ({times:.2} x)"),
        }
    }
}

/// The figures of one row.
#[derive(Serialize)]
struct Measured {
    row: u8,
    work: &'static str,
    lines: Vec<Line>,
    /// Processors that others kept busy meanwhile.
    others: Option<f64>,
}

impl Measured {
    fn times_aim(&self) -> f64 {
        self.lines.iter().filter_map(Line::times_aim).fold(0.0, f64::max)
    }

    fn is_complete(&self) -> bool {
        self.lines.iter().all(|line| line.figure.is_ok())
    }
}

/// All rows measured.
#[derive(Default)]
pub struct Report(Vec<Measured>);

impl Report {
    pub fn add(&mut self, row: &Row, lines: Result<Vec<Line>>, others: Option<f64>) {
        let lines = lines.unwrap_or_else(|error| {
            let why = format!("{error:#}");
            vec![Line::not_measured(row.work, Aim::None, Unit::Count, why)]
        });
        self.0.push(Measured { row: row.number, work: row.work, lines, others });
    }

    fn missed(&self) -> Vec<&Measured> {
        self.0.iter().filter(|row| row.times_aim() > 1.0).collect()
    }

    /// Whether few enough rows miss their aims by little enough. What could not be measured here is
    /// neither met nor missed.
    pub fn is_well(&self) -> bool {
        let missed = self.missed();
        missed.len() <= MAY_MISS && missed.iter().all(|row| row.times_aim() <= MISSED_BY)
    }

    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(&self.0).context("cannot write JSON")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cells = vec![["work", "aim", "figure", "reference", ""].map(String::from)];
        for row in &self.0 {
            for line in &row.lines {
                let aim = match line.aim {
                    Aim::AtMost(most) => format!("<= {}", line.unit.show(most)),
                    Aim::AtLeast(least) => format!(">= {}", line.unit.show(least)),
                    Aim::None => String::new(),
                };
                let figure = match &line.figure {
                    Ok(figure) => line.unit.show(*figure),
                    Err(_) => "-".into(),
                };
                let work = format!("{:>2} {}", row.row, line.work);
                cells.push([work, aim, figure, line.reference.clone(), line.verdict()]);
            }
        }
        let widths: [usize; 5] = std::array::from_fn(|column| {
            cells.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
        });
        for [work, aim, figure, reference, verdict] in &cells {
            let [a, b, c, d, _] = widths;
            let line =
                format!("{work:<a$} | {aim:>b$} | {figure:>c$} | {reference:<d$} | {verdict}");
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(f)?;
        for row in &self.0 {
            for line in &row.lines {
                if let Err(why) = &line.figure {
                    writeln!(f, "row {}, {}: not measured: {why}", row.row, line.work)?;
                }
            }
            if let Some(others) = row.others.filter(|others| *others > QUIET) {
                writeln!(
                    f,
                    "row {}: others kept {others:.1} processors busy meanwhile; measure again on a \
                     quiet machine",
                    row.row
                )?;
            }
        }
        let missed = self.missed();
        let incomplete = self.0.iter().filter(|row| !row.is_complete()).count();
        writeln!(
            f,
            "{} rows, {} missed, {incomplete} not or not wholly measured; all of it software, no \
             NIC's figure among it",
            self.0.len(),
            missed.len(),
        )?;
        for row in missed {
            writeln!(f, "missed: row {}, {}: {:.2} x its aim", row.row, row.work, row.times_aim())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: &[&[(Aim, f64)]]) -> Report {
        let measured = rows.iter().map(|lines| Measured {
            row: 1,
            work: "work",
            lines: lines
                .iter()
                .map(|(aim, figure)| Line::new("work", *aim, Unit::Nanoseconds, *figure))
                .collect(),
            others: None,
        });
        Report(measured.collect())
    }

    #[test]
    fn two_rows_may_miss_by_up_to_twice() {
        let (met, missed) = ((Aim::AtMost(10.0), 10.0), (Aim::AtMost(10.0), 20.0));
        assert!(report(&[&[met], &[missed], &[missed, missed]]).is_well());
        assert!(!report(&[&[missed], &[missed], &[met, missed]]).is_well());
        assert!(!report(&[&[(Aim::AtMost(10.0), 20.1)]]).is_well());
    }

    #[test]
    fn a_figure_that_is_to_be_large_is_missed_by_being_small() {
        assert!(report(&[&[(Aim::AtLeast(70.0), 70.0)]]).missed().is_empty());
        assert!(report(&[&[(Aim::AtLeast(70.0), 35.0)]]).is_well());
        assert!(!report(&[&[(Aim::AtLeast(70.0), 34.0)]]).is_well());
    }

    #[test]
    fn no_number_is_a_miss() {
        assert!(!report(&[&[(Aim::AtMost(10.0), f64::NAN)]]).is_well());
        assert!(!report(&[&[(Aim::AtMost(0.0), 0.1)]]).is_well());
        assert!(report(&[&[(Aim::AtMost(0.0), 0.0)]]).is_well());
    }

    #[test]
    fn a_row_that_could_not_be_measured_says_why() {
        let mut report = Report::default();
        let row = Row { number: 7, work: "pins", measure: |_| Ok(Vec::new()) };
        report.add(&row, Err(anyhow::anyhow!("no io_uring here")), None);
        let shown = report.to_string();
        assert!(shown.contains("row 7, pins: not measured: no io_uring here"), "{shown}");
        assert!(report.json().unwrap().contains("no io_uring here"));
    }
}
