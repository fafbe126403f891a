//! Whether a sweep that was read can have been measured.
//!
//! A file may come from anywhere: what no run of mkey writes is refused with its place, before it
//! reaches a formula or a terminal.

use crate::bench::registration::report::{Figures, Row, Sweep, Term, Terms};
use crate::bench::report::Summary;
use serde_json::Value;
use std::ops::RangeInclusive;

/// Rows of a sweep: several times those of every size on every kind of page. Leaving each size out
/// once takes the square of them.
const ROWS: usize = 1_000;
/// Stages of a call chain, and whatever else stands in a list.
const LISTED: usize = 200;
/// Characters of a text.
const TEXT: usize = 4_096;
/// Kinds of pages of all architectures.
const PAGES: RangeInclusive<u64> = 4 << 10..=16 << 30;
/// Bytes of a region.
const BYTES: RangeInclusive<u64> = 1..=1 << 50;
/// Seconds of a run.
const SECONDS: RangeInclusive<f64> = 0.0..=1e8;
/// Nanoseconds of something that happened: to ten days.
const TIMES: RangeInclusive<f64> = 0.001..=1e15;

/// Refuses what can not have been measured, in words.
pub fn check(sweep: &Sweep) -> Result<(), String> {
    if sweep.rows.len() > ROWS {
        return Err(format!("{} rows, more than the {ROWS} of any sweep", sweep.rows.len()));
    }
    within("seconds", sweep.seconds, &SECONDS)?;
    let value = serde_json::to_value(sweep).map_err(|error| error.to_string())?;
    texts("", &value)?;
    for (number, row) in sweep.rows.iter().enumerate() {
        self::row(row).map_err(|why| format!("row {}: {why}", number + 1))?;
    }
    Ok(())
}

/// A text without what a terminal would obey.
pub fn printable(text: &str) -> String {
    let escaped = |c: char| {
        if obeyed(c) { c.escape_unicode().collect() } else { c.to_string() }
    };
    text.chars().map(escaped).collect()
}

/// Control characters, and those that turn the direction of writing.
pub fn obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// All texts and lists, wherever they are.
fn texts(place: &str, value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) if text.chars().any(obeyed) => {
            Err(format!("{place} holds control characters: \"{}\"", printable(&cut(text))))
        }
        Value::String(text) if text.len() > TEXT => {
            Err(format!("{place} is longer than {TEXT} bytes"))
        }
        Value::Array(all) => {
            let limit = if place == "rows" { ROWS } else { LISTED };
            if all.len() > limit {
                return Err(format!("{place} lists {}, more than {limit}", all.len()));
            }
            all.iter().try_for_each(|one| texts(place, one))
        }
        Value::Object(all) => all.iter().try_for_each(|(name, one)| {
            let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
            texts(&place, one)
        }),
        _ => Ok(()),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

fn within(name: &str, value: f64, range: &RangeInclusive<f64>) -> Result<(), String> {
    // Not a number is in no range.
    if range.contains(&value) {
        return Ok(());
    }
    Err(format!("{name} {value:e} is not within {:e} to {:e}", range.start(), range.end()))
}

fn row(row: &Row) -> Result<(), String> {
    if !(row.page_bytes.is_power_of_two() && PAGES.contains(&row.page_bytes)) {
        return Err(format!("page_bytes {} is no size of a page", row.page_bytes));
    }
    if !BYTES.contains(&row.bytes) {
        return Err(format!("{} bytes are no size of a region", row.bytes));
    }
    let Some(figures) = row.figures() else { return Ok(()) };
    if !row.bytes.is_multiple_of(row.page_bytes) {
        return Err(format!("{} bytes are no whole pages of {}", row.bytes, row.page_bytes));
    }
    self::figures(figures)
}

fn figures(figures: &Figures) -> Result<(), String> {
    summary("register", &figures.register, &TIMES)?;
    // A coarse clock may see nothing of it.
    summary("deregister", &figures.deregister, &(0.0..=*TIMES.end()))?;
    if let Some(terms) = &figures.terms {
        self::terms(terms, figures)?;
    }
    if let Some(dma) = &figures.dma {
        for (name, of) in [("map", &dma.map), ("unmap", &dma.unmap), ("pin", &dma.pin)] {
            summary(name, of, &TIMES)?;
        }
    }
    let Some(stages) = &figures.stages else { return Ok(()) };
    within("verb_ns", stages.verb_ns, &TIMES)?;
    let part = part_of(stages.verb_ns);
    within("outside_ns", stages.outside_ns, &part)?;
    for stage in &stages.stages {
        within("own_ns", stage.own_ns, &part)?;
        within("total_ns", stage.total_ns, &(0.0..=*TIMES.end()))?;
        within("calls", stage.calls, &(0.0..=1e12))?;
    }
    Ok(())
}

fn terms(terms: &Terms, figures: &Figures) -> Result<(), String> {
    let (register, deregister) = (figures.register.median_ns, figures.deregister.median_ns);
    let all = [
        (Term::Pin.name(), terms.pin, register),
        (Term::Table.name(), Some(terms.table), register),
        (Term::Command.name(), terms.command, register),
        ("unpin", terms.unpin, deregister),
    ];
    for (name, of, whole) in all {
        let Some(of) = of else { continue };
        within(name, of.median_ns, &part_of(whole))?;
        summary(name, &of, &(0.0..=*TIMES.end()))?;
    }
    Ok(())
}

/// What a part of a time can be: clocks differ, and medians of few samples do not add up.
fn part_of(whole: f64) -> RangeInclusive<f64> {
    0.0..=whole * 2.0 + 1_000.0
}

fn summary(name: &str, of: &Summary, range: &RangeInclusive<f64>) -> Result<(), String> {
    within(name, of.median_ns, range)?;
    within(name, of.p99_ns, range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::registration::report::Stages;
    use crate::bench::registration::sample;
    use crate::bench::report::Outcome;

    /// Why a sweep with a change in its first row is refused.
    fn refused(change: impl Fn(&mut Row, &mut Figures)) -> String {
        let mut sweep = sample::sweep();
        let mut row = sweep.rows[0].clone();
        let Outcome::Measured(mut figures) = row.outcome.clone() else { panic!() };
        change(&mut row, &mut figures);
        row.outcome = Outcome::Measured(figures);
        sweep.rows[0] = row;
        check(&sweep).unwrap_err()
    }

    fn stages(figures: &mut Figures) -> &mut Stages {
        figures.stages.as_mut().unwrap()
    }

    #[test]
    fn what_was_measured_passes() {
        assert_eq!(check(&sample::sweep()), Ok(()));
    }

    #[test]
    fn pages_and_sizes_that_no_machine_has() {
        for bytes in [0, 1, 4097, 1 << 40, u64::MAX] {
            let why = refused(|row, _| row.page_bytes = bytes);
            assert_eq!(why, format!("row 1: page_bytes {bytes} is no size of a page"));
        }
        for bytes in [0, 4095, 4097, u64::MAX] {
            assert!(refused(|row, _| row.bytes = bytes).contains(&bytes.to_string()));
        }
    }

    #[test]
    fn times_that_nothing_takes() {
        assert!(refused(|_, figures| figures.register.median_ns = 0.0).contains("register 0e0"));
        for ns in [-1.0, 1e-308, 1e308, f64::NAN, f64::INFINITY] {
            let whys = [
                refused(|_, figures| figures.register.median_ns = ns),
                refused(|_, figures| stages(figures).verb_ns = ns),
            ];
            for why in whys {
                assert!(why.contains("is not within"), "{ns}: {why}");
            }
        }
        for ns in [-1.0, 1e308, f64::NAN] {
            let whys = [
                refused(|_, figures| figures.deregister.p99_ns = ns),
                refused(|_, figures| stages(figures).outside_ns = ns),
            ];
            for why in whys {
                assert!(why.contains("is not within"), "{ns}: {why}");
            }
        }
        let why = refused(|_, figures| stages(figures).stages[0].own_ns = -1.0);
        assert!(why.contains("own_ns -1e0"), "{why}");
        // A pin of 1000 s within less than 1 us.
        let why = refused(|_, figures| {
            figures.terms.as_mut().unwrap().pin.as_mut().unwrap().median_ns = 1e12;
        });
        assert!(why.contains("row 1: pin 1e12 is not within 0e0 to 2.14e3"), "{why}");
    }

    #[test]
    fn lists_that_take_all_time() {
        let mut sweep = sample::sweep();
        let row = sweep.rows[0].clone();
        sweep.rows.resize(ROWS + 1, row);
        assert!(check(&sweep).unwrap_err().contains("1001 rows"));
        let why = refused(|_, figures| {
            let stage = stages(figures).stages[0].clone();
            stages(figures).stages.resize(LISTED + 1, stage);
        });
        assert!(why.contains("stages lists 201"), "{why}");
    }

    #[test]
    fn texts_that_a_terminal_would_obey() {
        for bad in ["\x1b[31m4 KiB", "\x1b]0;title\x07", "a\nb", "\u{9b}31m", "\u{202e}x"] {
            let why = refused(|row, _| row.page = bad.to_owned());
            assert!(why.contains("rows.page holds control characters"), "{why}");
            assert!(!why.chars().any(obeyed), "{why:?}");
            let mut sweep = sample::sweep();
            sweep.device.name = bad.to_owned();
            assert!(check(&sweep).unwrap_err().contains("device.name holds control"));
        }
        assert!(refused(|row, _| row.page = "x".repeat(5_000)).contains("longer"));
    }
}
