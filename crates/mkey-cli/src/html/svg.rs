//! Plots as SVG elements, whose colours are classes that the page defines for light and dark.

use crate::bench::units::{size, time};
use std::fmt::Write;

/// Colours that a page has.
pub const COLOURS: usize = 6;

pub(super) const WIDTH: f64 = 760.0;
pub(super) const HEIGHT: f64 = 420.0;
pub(super) const LEFT: f64 = 70.0;
pub(super) const RIGHT: f64 = 28.0;
pub(super) const TOP: f64 = 34.0;
pub(super) const BOTTOM: f64 = 46.0;

/// A series of a plot of times over sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its colour, below [`COLOURS`].
    pub colour: usize,
    /// What was measured.
    pub points: Vec<Dot>,
    /// A line: bytes and nanoseconds.
    pub line: Vec<(f64, f64)>,
    /// A dashed line with a band: bytes, nanoseconds, lower and upper end.
    pub far: Vec<(f64, f64, f64, f64)>,
}

/// A measured size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Dot {
    /// Bytes.
    pub bytes: f64,
    /// The median, nanoseconds.
    pub median: f64,
    /// The 99th percentile, nanoseconds.
    pub p99: f64,
    /// Whether the machine was too busy for it: drawn hollow.
    pub disturbed: bool,
}

/// A part of stacked columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Its colour, below [`COLOURS`].
    pub colour: usize,
    /// Its value in each column, nanoseconds.
    pub values: Vec<f64>,
}

/// A bar of a logarithmic plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Its colour, below [`COLOURS`].
    pub colour: usize,
    /// Nanoseconds.
    pub ns: f64,
}

/// Text as XML has it.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Controls are not allowed in XML, not even escaped.
            c if c.is_control() && c != '\n' && c != '\t' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// An axis by logarithm.
#[derive(Clone, Copy, Debug)]
struct Log {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Log {
    /// From the values' range, widened to whole steps of `base`; `None` without values above zero.
    fn over(values: impl Iterator<Item = f64>, base: f64, from: f64, to: f64) -> Option<Self> {
        let usable = values.filter(|v| v.is_finite() && *v > 0.0);
        let (low, high) = usable.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            return None;
        }
        let low = (low.log(base) + 1e-9).floor();
        let high = (high.log(base) - 1e-9).ceil().max(low + 1.0);
        Some(Self { low: low * base.ln(), high: high * base.ln(), from, to })
    }

    fn at(&self, value: f64) -> f64 {
        let log = value.max(f64::MIN_POSITIVE).ln().clamp(self.low, self.high);
        self.from + (log - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Whole powers of `base` within, at most about `most`.
    fn ticks(&self, base: f64, most: usize) -> Vec<f64> {
        let (low, high) = ((self.low / base.ln()).round(), (self.high / base.ln()).round());
        let step = ((high - low) / most.max(1) as f64).ceil().max(1.0);
        let count = ((high - low) / step).floor() as usize;
        (0..=count.min(64)).map(|n| base.powf(low + n as f64 * step)).collect()
    }
}

pub(super) fn open(height: f64, name: &str) -> String {
    let name = escape(name);
    format!("<svg viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\" aria-label=\"{name}\">\n")
}

pub(super) fn text(out: &mut String, x: f64, y: f64, anchor: &str, class: &str, words: &str) {
    let words = escape(words);
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{words}</text>"
    );
}

pub(super) fn rule(out: &mut String, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
    );
}

/// Names and colours above a plot.
pub(super) fn legend(out: &mut String, names: &[(&str, usize)]) {
    let mut x = LEFT;
    for (name, colour) in names {
        let colour = colour % COLOURS;
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"8\" width=\"12\" height=\"12\" rx=\"2\" class=\"f{colour}\"/>"
        );
        text(out, x + 17.0, 18.5, "start", "", name);
        x += 34.0 + 6.6 * name.chars().count() as f64;
    }
}

pub(super) fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut out = String::new();
    for (n, (x, y)) in points.enumerate() {
        let _ = write!(out, "{}{x:.1} {y:.1}", if n == 0 { "M" } else { " L" });
    }
    out
}

/// Times over sizes, both by logarithm. `None` if there is nothing to show.
pub fn log_log(name: &str, series: &[Series]) -> Option<String> {
    let sizes = series.iter().flat_map(|s| {
        let points = s.points.iter().map(|dot| dot.bytes);
        points.chain(s.line.iter().map(|p| p.0)).chain(s.far.iter().map(|p| p.0))
    });
    let times = series.iter().flat_map(|s| {
        let points = s.points.iter().flat_map(|dot| [dot.median, dot.p99]);
        points.chain(s.line.iter().map(|p| p.1)).chain(s.far.iter().flat_map(|p| [p.1, p.3]))
    });
    let x = Log::over(sizes, 2.0, LEFT, WIDTH - RIGHT)?;
    let y = Log::over(times, 10.0, HEIGHT - BOTTOM, TOP)?;
    let mut out = open(HEIGHT, name);
    for tick in x.ticks(2.0, 8) {
        let at = x.at(tick);
        rule(&mut out, at, TOP, at, HEIGHT - BOTTOM, "grid");
        text(&mut out, at, HEIGHT - BOTTOM + 18.0, "middle", "dim", &size(tick as u64));
    }
    for tick in y.ticks(10.0, 10) {
        let at = y.at(tick);
        rule(&mut out, LEFT, at, WIDTH - RIGHT, at, "grid");
        text(&mut out, LEFT - 8.0, at + 4.0, "end", "dim", &short(tick));
    }
    text(&mut out, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 8.0, "middle", "dim", "size");
    for s in series {
        draw(&mut out, s, &x, &y);
    }
    let names: Vec<_> = series.iter().map(|s| (s.name.as_str(), s.colour)).collect();
    legend(&mut out, &names);
    out.push_str("</svg>");
    Some(out)
}

fn draw(out: &mut String, s: &Series, x: &Log, y: &Log) {
    let colour = s.colour % COLOURS;
    if !s.far.is_empty() {
        let there = s.far.iter().map(|p| (x.at(p.0), y.at(p.3)));
        let back = s.far.iter().rev().map(|p| (x.at(p.0), y.at(p.2)));
        let band = path(there.chain(back));
        let _ = writeln!(out, "<path d=\"{band} Z\" class=\"band f{colour}\"/>");
        let line = path(s.far.iter().map(|p| (x.at(p.0), y.at(p.1))));
        let _ = writeln!(out, "<path d=\"{line}\" class=\"far k{colour}\"/>");
    }
    if !s.line.is_empty() {
        let line = path(s.line.iter().map(|p| (x.at(p.0), y.at(p.1))));
        let _ = writeln!(out, "<path d=\"{line}\" class=\"line k{colour}\"/>");
    }
    for Dot { bytes, median, p99, disturbed } in &s.points {
        let at = x.at(*bytes);
        rule(out, at, y.at(*median), at, y.at(*p99), &format!("spread k{colour}"));
        let (class, busy) = if *disturbed {
            (format!("hollow k{colour}"), ", on a machine too busy for it")
        } else {
            (format!("mark f{colour}"), "")
        };
        let (of, times) = (size(*bytes as u64), (time(*median), time(*p99)));
        let told = format!("{}, {of}: {}, p99 {}{busy}", s.name, times.0, times.1);
        let _ = writeln!(
            out,
            "<circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"4\" class=\"{class}\">\
             <title>{}</title></circle>",
            y.at(*median),
            escape(&told)
        );
    }
}

/// A decade of time: `1us`, `100ms`.
fn short(ns: f64) -> String {
    let text = time(ns * 1.000_001);
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    match number.split_once('.') {
        Some((whole, part)) if part.chars().all(|c| c == '0') => format!("{whole} {unit}"),
        _ => format!("{number} {unit}"),
    }
}

/// Columns of shares that add up to the whole. `None` if there is nothing to show.
pub fn stacked(name: &str, columns: &[String], parts: &[Part]) -> Option<String> {
    if columns.is_empty() || parts.is_empty() {
        return None;
    }
    let mut out = open(HEIGHT, name);
    let (bottom, height) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP);
    for percent in [0, 25, 50, 75, 100] {
        let at = bottom - f64::from(percent) / 100.0 * height;
        rule(&mut out, LEFT, at, WIDTH - RIGHT, at, "grid");
        text(&mut out, LEFT - 8.0, at + 4.0, "end", "dim", &format!("{percent} %"));
    }
    let slot = (WIDTH - LEFT - RIGHT) / columns.len() as f64;
    let every = columns.len().div_ceil(10);
    for (n, column) in columns.iter().enumerate() {
        let left = LEFT + n as f64 * slot;
        // A difference of medians may come out below zero: it has no height.
        let value = |part: &Part| part.values.get(n).copied().unwrap_or(0.0).max(0.0);
        let whole: f64 = parts.iter().map(value).sum();
        let mut top = bottom;
        for part in parts {
            let share = if whole > 0.0 { value(part) / whole } else { 0.0 };
            top -= share * height;
            let told =
                format!("{column}, {}: {} ({:.0} %)", part.name, time(value(part)), share * 100.0);
            let _ = writeln!(
                out,
                "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" class=\"f{}\">\
                 <title>{}</title></rect>",
                left + slot * 0.12,
                slot * 0.76,
                share * height,
                part.colour % COLOURS,
                escape(&told)
            );
        }
        if n % every == 0 {
            text(&mut out, left + slot / 2.0, bottom + 18.0, "middle", "dim", column);
        }
    }
    let names: Vec<_> = parts.iter().map(|part| (part.name.as_str(), part.colour)).collect();
    legend(&mut out, &names);
    out.push_str("</svg>");
    Some(out)
}

/// Bars of times by logarithm, with names and values. `None` if there is nothing to show.
pub fn bars(name: &str, bars: &[Bar]) -> Option<String> {
    const NAMES: f64 = 210.0;
    const ROW: f64 = 26.0;
    let height = ROW * bars.len() as f64 + 40.0;
    let x = Log::over(bars.iter().map(|bar| bar.ns), 10.0, NAMES, WIDTH - 80.0)?;
    let mut out = open(height, name);
    for tick in x.ticks(10.0, 8) {
        let at = x.at(tick);
        rule(&mut out, at, 6.0, at, height - 28.0, "grid");
        text(&mut out, at, height - 10.0, "middle", "dim", &short(tick));
    }
    for (n, bar) in bars.iter().enumerate() {
        let top = 8.0 + n as f64 * ROW;
        text(&mut out, NAMES - 10.0, top + 14.0, "end", "", &bar.name);
        let end = x.at(bar.ns);
        let _ = writeln!(
            out,
            "<rect x=\"{NAMES:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"18\" rx=\"2\" \
             class=\"f{}\"/>",
            (end - NAMES).max(1.0),
            bar.colour % COLOURS
        );
        text(&mut out, end.max(NAMES) + 6.0, top + 14.0, "start", "", &time(bar.ns));
    }
    out.push_str("</svg>");
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decades_are_short() {
        assert_eq!(
            [short(1.0), short(1e3), short(1e5), short(1e10)],
            ["1 ns", "1 us", "100 us", "10 s"]
        );
        assert_eq!(short(0.1), "0.10 ns");
    }

    #[test]
    fn axes_hold_their_values() {
        let axis = Log::over([4096.0, 1e9].into_iter(), 2.0, 0.0, 100.0).unwrap();
        assert_eq!(axis.at(4096.0), 0.0);
        assert!(axis.at(1e9) > 95.0 && axis.at(1e9) <= 100.0);
        assert_eq!(axis.ticks(2.0, 100).first(), Some(&4096.0));
        assert!(Log::over([0.0, f64::NAN].into_iter(), 10.0, 0.0, 1.0).is_none());
    }

    #[test]
    fn nothing_makes_no_plot() {
        assert_eq!(log_log("x", &[]), None);
        assert_eq!(stacked("x", &[], &[]), None);
        assert_eq!(bars("x", &[]), None);
    }

    proptest! {
        #[test]
        fn any_values_and_names_make_well_formed_plots(
            name in any::<String>(), values in prop::collection::vec(any::<f64>(), 1..9),
        ) {
            let dot = |v: &f64| Dot { bytes: *v, median: *v, p99: *v, disturbed: *v > 1.0 };
            let points = values.iter().map(dot).collect();
            let far = values.iter().map(|v| (*v, *v, *v, *v)).collect();
            let line = values.iter().map(|v| (*v, *v)).collect();
            let series = Series { name: name.clone(), colour: 9, points, line, far };
            let columns = vec![name.clone(); values.len()];
            let part = Part { name: name.clone(), colour: 7, values: values.clone() };
            let bar = |ns: &f64| Bar { name: name.clone(), colour: 8, ns: *ns };
            let plots = [
                log_log(&name, &[series]),
                stacked(&name, &columns, &[part]),
                bars(&name, &values.iter().map(bar).collect::<Vec<_>>()),
            ];
            for plot in plots.into_iter().flatten() {
                prop_assert!(roxmltree::Document::parse(&plot).is_ok(), "{}", plot);
                prop_assert!(!plot.contains("NaN") && !plot.contains("inf"), "{}", plot);
            }
        }
    }
}
