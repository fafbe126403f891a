//! Plots of values over time, and of how many calls took how long.

use super::svg::{
    BOTTOM, COLOURS, HEIGHT, LEFT, RIGHT, TOP, WIDTH, escape, legend, open, path, rule, text,
};
use crate::bench::units::time;
use std::fmt::Write;

/// A line of values, one for each bucket of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Its colour, below [`COLOURS`].
    pub colour: usize,
    /// Its values.
    pub values: Vec<f64>,
}

/// A column of calls: a label and how many there are of each kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its label.
    pub label: String,
    /// How many, by kind.
    pub counts: Vec<u64>,
}

const GROUND: f64 = HEIGHT - BOTTOM;

/// Values over time from 0 on, in buckets of `bucket_ns`; `unit` says a value in words. `None` if there is
/// nothing to show.
pub fn over_time(
    name: &str,
    bucket_ns: u64,
    lines: &[Line],
    unit: impl Fn(f64) -> String,
) -> Option<String> {
    let values = || lines.iter().flat_map(|line| line.values.iter().copied());
    let buckets = lines.iter().map(|line| line.values.len()).max()?;
    let most = values().filter(|v| v.is_finite()).fold(0.0, f64::max);
    if most <= 0.0 || buckets == 0 {
        return None;
    }
    let slot = (WIDTH - LEFT - RIGHT) / buckets as f64;
    let y = |value: f64| {
        let value = if value.is_finite() { value.clamp(0.0, most) } else { 0.0 };
        GROUND - value / most * (GROUND - TOP)
    };
    let mut out = open(HEIGHT, name);
    scale(&mut out, most, &unit);
    let every = [1, 2, 5, 10, 20, 50].into_iter().find(|every| buckets / every <= 10);
    let every = every.unwrap_or(buckets.div_ceil(10));
    for n in (0..=buckets).step_by(every) {
        let at = LEFT + n as f64 * slot;
        rule(&mut out, at, TOP, at, GROUND, "grid");
        let when = if n == 0 { "0".to_owned() } else { time(n as f64 * bucket_ns as f64) };
        text(&mut out, at, GROUND + 18.0, "middle", "dim", &when);
    }
    for line in lines {
        let colour = line.colour % COLOURS;
        let steps = line.values.iter().enumerate().flat_map(|(n, value)| {
            let from = LEFT + n as f64 * slot;
            [(from, y(*value)), (from + slot, y(*value))]
        });
        let _ = writeln!(out, "<path d=\"{}\" class=\"line k{colour}\"/>", path(steps));
        let peak = line.values.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
        let end = line.values.iter().position(|value| *value == peak);
        if let Some(n) = end.filter(|_| peak > 0.0) {
            let when = time(n as f64 * bucket_ns as f64);
            let told = format!("{}: at most {}, at {when}", line.name, unit(peak));
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" class=\"mark f{colour}\">\
                 <title>{}</title></circle>",
                LEFT + (n as f64 + 0.5) * slot,
                y(peak),
                escape(&told)
            );
        }
    }
    names(&mut out, lines.iter().map(|line| (line.name.as_str(), line.colour)));
    out.push_str("</svg>");
    Some(out)
}

/// How many calls are in each column, kinds upon each other in the order of `kinds`. `None` if there is nothing
/// to show.
pub fn columns(name: &str, kinds: &[String], columns: &[Column]) -> Option<String> {
    let sum = |column: &Column| column.counts.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    let most = columns.iter().map(sum).max().filter(|most| *most > 0)? as f64;
    let mut out = open(HEIGHT, name);
    scale(&mut out, most, &|value| format!("{value:.0}"));
    let slot = (WIDTH - LEFT - RIGHT) / columns.len() as f64;
    let every = columns.len().div_ceil(7);
    for (n, column) in columns.iter().enumerate() {
        let left = LEFT + n as f64 * slot;
        let mut top = GROUND;
        for (kind, count) in column.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let height = *count as f64 / most * (GROUND - TOP);
            top -= height;
            let kind_name = kinds.get(kind).map_or("", String::as_str);
            let told = format!("{}, {kind_name}: {count}", column.label);
            let _ = writeln!(
                out,
                "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\" class=\"f{}\">\
                 <title>{}</title></rect>",
                left + slot * 0.1,
                slot * 0.8,
                kind % COLOURS,
                escape(&told)
            );
        }
        if n % every == 0 {
            text(&mut out, left + slot / 2.0, GROUND + 18.0, "middle", "dim", &column.label);
        }
    }
    names(&mut out, kinds.iter().enumerate().map(|(n, kind)| (kind.as_str(), n)));
    out.push_str("</svg>");
    Some(out)
}

/// Lines at quarters of the most.
fn scale(out: &mut String, most: f64, unit: &dyn Fn(f64) -> String) {
    for quarter in 0..=4u8 {
        let part = f64::from(quarter) / 4.0;
        let at = GROUND - part * (GROUND - TOP);
        rule(out, LEFT, at, WIDTH - RIGHT, at, "grid");
        let words = if quarter == 0 { "0".to_owned() } else { unit(most * part) };
        text(out, LEFT - 8.0, at + 4.0, "end", "dim", &words);
    }
}

fn names<'n>(out: &mut String, names: impl Iterator<Item = (&'n str, usize)>) {
    legend(out, &names.collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_makes_no_plot() {
        let line = Line { name: "x".to_owned(), colour: 0, values: vec![0.0; 3] };
        assert_eq!(over_time("x", 1, &[], |v| v.to_string()), None);
        assert_eq!(over_time("x", 1, &[line], |v| v.to_string()), None);
        assert_eq!(columns("x", &[], &[]), None);
        let column = Column { label: "1 us".to_owned(), counts: vec![0] };
        assert_eq!(columns("x", &["a".to_owned()], &[column]), None);
    }

    proptest! {
        #[test]
        fn any_values_and_names_make_well_formed_plots(
            name in any::<String>(), values in prop::collection::vec(any::<f64>(), 1..9),
            counts in prop::collection::vec(any::<u64>(), 1..9), bucket in any::<u64>(),
        ) {
            let line = Line { name: name.clone(), colour: 9, values };
            let column = Column { label: name.clone(), counts };
            let plots = [
                over_time(&name, bucket, &[line], |v| v.to_string()),
                columns(&name, std::slice::from_ref(&name), &[column.clone(), column]),
            ];
            for plot in plots.into_iter().flatten() {
                prop_assert!(roxmltree::Document::parse(&plot).is_ok(), "{}", plot);
                prop_assert!(!plot.contains("NaN") && !plot.contains("\"inf"), "{}", plot);
            }
        }
    }
}
