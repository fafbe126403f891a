//! Tables of text in any language: columns two blanks apart, a line under the heads.

use crate::lang::{columns, wrap};

/// Columns of a line.
pub const WIDTH: usize = 118;
/// What a table is set in by.
const INDENT: &str = "  ";
const GAP: &str = "  ";

/// A table. Columns named in `words` stand left, the others right; the last one is cut where the line is full.
pub fn table(heads: &[&str], words: &[usize], rows: &[Vec<String>]) -> String {
    let cell = |row: &[String], n: usize| row.get(n).cloned().unwrap_or_default();
    let widths: Vec<usize> = (0..heads.len())
        .map(|n| {
            let head = heads.get(n).map_or(0, |head| columns(head));
            rows.iter().map(|row| columns(&cell(row, n))).max().unwrap_or(0).max(head)
        })
        .collect();
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let before: usize = widths.iter().rev().skip(1).map(|width| width + GAP.len()).sum();
    let last = WIDTH.saturating_sub(INDENT.len() + before).max(8);
    let widths: Vec<usize> = widths
        .iter()
        .enumerate()
        .map(|(n, width)| if n + 1 == widths.len() { (*width).min(last) } else { *width })
        .collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let mut out = String::new();
    for row in [&heads, &rule].into_iter().chain(rows) {
        let mut line = INDENT.to_owned();
        for (n, width) in widths.iter().enumerate() {
            let text = cut(&cell(row, n), *width);
            let pad = " ".repeat(width.saturating_sub(columns(&text)));
            if n > 0 {
                line.push_str(GAP);
            }
            line.push_str(&if words.contains(&n) { text + &pad } else { pad + &text });
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A text of at most so many columns; `..` stands for what is left out.
pub fn cut(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut taken = 0;
    // Controls would end the line, or do worse to a terminal.
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        let wide = columns(c.encode_utf8(&mut [0; 4]));
        if taken + wide > width {
            while taken + 2 > width {
                let Some(c) = out.pop() else { break };
                taken -= columns(c.encode_utf8(&mut [0; 4]));
            }
            out.push_str("..");
            break;
        }
        out.push(c);
        taken += wide;
    }
    out
}

/// A paragraph: its first line begins with `first`, the others below where that ends. What can not be broken is
/// cut.
pub fn paragraph(first: &str, text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let lines = wrap(first, &text, WIDTH);
    lines.iter().map(|line| cut(line, WIDTH) + "\n").collect()
}

/// Values as a line of characters, the darkest for the largest.
pub fn shades(values: &[u64]) -> String {
    const SHADES: [char; 10] = [' ', '.', ':', '-', '=', '+', '*', '#', '%', '@'];
    let most = u128::from(values.iter().copied().max().unwrap_or(0));
    let shade = |value: &u64| {
        // Whatever is there is seen: only nothing is blank.
        let level = (u128::from(*value) * 9).div_ceil(most.max(1));
        usize::try_from(level).ok().and_then(|level| SHADES.get(level)).copied().unwrap_or('@')
    };
    values.iter().map(shade).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden() {
        let rows = [
            vec!["ibv_reg_mr".to_owned(), "12".to_owned(), "注册 main.c:1".to_owned()],
            vec!["x".to_owned(), "1,000".to_owned(), "w".repeat(200)],
        ];
        let table = table(&["verb", "calls", "place"], &[0, 2], &rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "  verb        calls  place");
        assert_eq!(lines[2], "  ibv_reg_mr     12  注册 main.c:1");
        assert!(lines[3].ends_with("ww.."));
        assert!(lines.iter().all(|line| columns(line) <= WIDTH));
    }

    #[test]
    fn nothing_is_blank_and_the_most_is_dark() {
        assert_eq!(shades(&[0, 1, 1000, 500]), " .@+");
        assert_eq!(shades(&[]), "");
        assert_eq!(shades(&[0, 0, u64::MAX]), "  @");
    }

    proptest! {
        #[test]
        fn no_line_is_wider(
            first in "[ -]{0,6}", text in ".{0,300}", cell in ".{0,300}", width in 0usize..20,
        ) {
            for line in paragraph(&first, &text).lines() {
                prop_assert!(columns(line) <= WIDTH, "{line}");
            }
            let table = table(&["a", "b"], &[0], &[vec!["x".to_owned(), cell.clone()]]);
            prop_assert!(table.lines().all(|line| columns(line) <= WIDTH));
            prop_assert!(columns(&cut(&cell, width)) <= width.max(2));
        }
    }
}
