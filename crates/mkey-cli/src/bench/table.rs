//! Tables of text: columns two blanks apart, a line under the head, long texts wrapped.

use super::report::Missing;
use std::fmt::Write;

/// How a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// A line of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// One cell a column.
    Cells(Vec<String>),
    /// Cells of the first columns, then a text over all others; a second text stands below it on
    /// one line, however long, to be copied.
    Text(Vec<String>, String, Option<String>),
}

impl Line {
    /// A row that was not measured, after its names.
    pub fn not_measured(names: Vec<String>, missing: &Missing) -> Self {
        let why = format!("not measured: {}", missing.what);
        Self::Text(names, why, missing.command.clone())
    }
}

/// The width that texts are wrapped to.
pub const WIDTH: usize = 118;
const GAP: &str = "  ";

/// Renders a table. Heads may hold several lines (`\n`); the last one stands on the line. A column
/// with a width wraps its cells to it.
pub fn render(columns: &[(&str, Side, Option<usize>)], lines: &[Line]) -> String {
    let heads: Vec<Vec<&str>> =
        columns.iter().map(|(head, ..)| head.split('\n').collect()).collect();
    let height = heads.iter().map(Vec::len).max().unwrap_or(0);
    let cells_of = |line: &Line| match line {
        Line::Cells(cells) | Line::Text(cells, ..) => cells.clone(),
    };
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(n, (_, _, wrap))| {
            let head = heads.get(n).into_iter().flatten().map(|text| text.len()).max().unwrap_or(0);
            let cells = lines.iter().filter_map(|line| cells_of(line).get(n).map(String::len));
            let widest = cells.max().unwrap_or(0);
            head.max(wrap.map_or(widest, |wrap| wrap.min(widest)))
        })
        .collect();
    let mut out = String::new();
    for level in 0..height {
        let row: Vec<String> = heads
            .iter()
            .map(|head| {
                let missing = height - head.len();
                level
                    .checked_sub(missing)
                    .and_then(|n| head.get(n))
                    .copied()
                    .unwrap_or("")
                    .to_owned()
            })
            .collect();
        put(&mut out, columns, &widths, &row);
    }
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    put(&mut out, columns, &widths, &rule);
    for line in lines {
        match line {
            Line::Cells(cells) => put_wrapped(&mut out, columns, &widths, cells),
            Line::Text(cells, text, whole) => {
                let taken: usize = widths.iter().take(cells.len()).map(|w| w + GAP.len()).sum();
                let wrapped = textwrap::wrap(text, WIDTH.saturating_sub(taken).max(20));
                let parts = wrapped.iter().map(AsRef::as_ref).chain(whole.as_deref());
                for (n, part) in parts.enumerate() {
                    let mut row =
                        if n == 0 { cells.clone() } else { vec![String::new(); cells.len()] };
                    // The last cell is as wide as it is: nothing follows it.
                    row.push(part.to_string());
                    put(&mut out, columns, widths.get(..cells.len()).unwrap_or_default(), &row);
                }
            }
        }
    }
    out
}

fn put_wrapped(
    out: &mut String,
    columns: &[(&str, Side, Option<usize>)],
    widths: &[usize],
    cells: &[String],
) {
    let parts: Vec<Vec<String>> = cells
        .iter()
        .zip(columns)
        .zip(widths)
        .map(|((cell, (_, _, wrap)), width)| match wrap {
            Some(_) => textwrap::wrap(cell, *width).iter().map(ToString::to_string).collect(),
            None => vec![cell.clone()],
        })
        .collect();
    for n in 0..parts.iter().map(Vec::len).max().unwrap_or(0) {
        let row: Vec<String> =
            parts.iter().map(|part| part.get(n).cloned().unwrap_or_default()).collect();
        put(out, columns, widths, &row);
    }
}

/// One line; cells beyond `widths` are as wide as they are.
fn put(
    out: &mut String,
    columns: &[(&str, Side, Option<usize>)],
    widths: &[usize],
    cells: &[String],
) {
    let mut line = String::new();
    for (n, cell) in cells.iter().enumerate() {
        let width = widths.get(n).copied().unwrap_or(0);
        let gap = if n == 0 { "" } else { GAP };
        let side = columns.get(n).map_or(Side::Left, |(_, side, _)| *side);
        // Writing to a string does not fail.
        let _ = if side == Side::Right && n < widths.len() {
            write!(line, "{gap}{cell:>width$}")
        } else {
            write!(line, "{gap}{cell:<width$}")
        };
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn golden() {
        let columns = [
            ("strategy", Side::Left, None),
            ("map\np50", Side::Right, None),
            ("note", Side::Left, Some(9)),
        ];
        let lines = [
            Line::Cells(cells(&["MR", "18.0ms", "one two three"])),
            Line::Text(
                cells(&["FRMR"]),
                "not measured: why".to_owned(),
                Some("sudo mend".to_owned()),
            ),
        ];
        let expected = "             map
strategy     p50  note
--------  ------  ---------
MR        18.0ms  one two
                  three
FRMR      not measured: why
          sudo mend
";
        assert_eq!(render(&columns, &lines), expected);
    }

    #[test]
    fn long_texts_wrap_within_the_width() {
        let columns = [("a", Side::Left, None), ("b", Side::Right, None)];
        let text = "word ".repeat(60);
        let table = render(&columns, &[Line::Text(cells(&["x"]), text, None)]);
        assert!(table.lines().count() > 4);
        assert!(table.lines().all(|line| line.len() <= WIDTH), "{table}");
    }

    #[test]
    fn nothing_is_no_panic() {
        assert_eq!(render(&[], &[]), "\n");
        assert_eq!(render(&[("a", Side::Left, None)], &[Line::Cells(vec![])]), "a\n-\n");
    }
}
