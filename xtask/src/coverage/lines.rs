//! Lines and how often they were run: read from what `llvm-cov export --format=lcov` writes.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// A source file's lines that have code, without its tests.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    /// Its path in the workspace.
    pub name: String,
    /// Each line and how often it was run, in order.
    pub lines: Vec<(u32, u64)>,
}

impl File {
    fn covered(&self) -> usize {
        self.lines.iter().filter(|(_, runs)| *runs > 0).count()
    }

    /// Percent of the lines that were run.
    pub fn percent(&self) -> f64 {
        percent(self.covered(), self.lines.len())
    }

    /// The lines that were not run: `3-5, 9`. What lies between two of them and has no code
    /// belongs to the same range.
    pub fn missed(&self) -> String {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let mut before = false;
        for &(line, runs) in &self.lines {
            match ranges.last_mut() {
                Some((_, last)) if runs == 0 && before => *last = line,
                _ if runs == 0 => ranges.push((line, line)),
                _ => {}
            }
            before = runs == 0;
        }
        let shown = ranges.iter().map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// The files, worst first, with what they come to, and percent of all lines that were run. No line
/// at all is 0 percent.
pub fn table(files: &[File]) -> (String, f64) {
    let mut sorted: Vec<&File> = files.iter().collect();
    sorted.sort_by(|a, b| a.percent().total_cmp(&b.percent()).then_with(|| a.name.cmp(&b.name)));
    let mut text = String::from("covered   lines  file, and the lines that are not covered\n");
    let mut row = |percent: f64, lines: usize, rest: &str| {
        let _ = writeln!(text, "{percent:6.1}%  {lines:6}  {}", rest.trim_end());
    };
    for file in sorted {
        row(file.percent(), file.lines.len(), &format!("{}  {}", file.name, file.missed()));
    }
    let covered: usize = files.iter().map(File::covered).sum();
    let lines: usize = files.iter().map(|file| file.lines.len()).sum();
    let percent = percent(covered, lines);
    row(percent, lines, "in total");
    (text, percent)
}

fn percent(part: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { 100.0 * part as f64 / all as f64 }
}

/// The files of a report, which are below `root`; those without code are left out.
pub fn read(report: &str, root: &Path) -> Result<Vec<File>> {
    let files = records(report)?.into_iter().filter_map(|(path, lines)| {
        let name = Path::new(path).strip_prefix(root).unwrap_or(Path::new(path));
        if name.ends_with("tests.rs") {
            return None;
        }
        Some(fs::read_to_string(path).with_context(|| format!("cannot read {path}")).map(
            |source| {
                let tests = tests_begin(&source);
                let lines = lines.into_iter().filter(|(line, _)| *line < tests).collect();
                File { name: name.display().to_string(), lines }
            },
        ))
    });
    let files: Result<Vec<File>> = files.collect();
    Ok(files?.into_iter().filter(|file| !file.lines.is_empty()).collect())
}

/// A path, and its lines with how often they were run.
type Record<'a> = (&'a str, Vec<(u32, u64)>);

/// Each file of a report.
fn records(report: &str) -> Result<Vec<Record<'_>>> {
    let mut records: Vec<Record<'_>> = Vec::new();
    for line in report.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            records.push((path, Vec::new()));
        } else if let Some(numbers) = line.strip_prefix("DA:") {
            let mut numbers = numbers.split(',');
            let mut next = || numbers.next()?.parse::<u64>().ok();
            let number = next().and_then(|line| u32::try_from(line).ok()).zip(next());
            let number = number.with_context(|| format!("no line and count: `{line}`"))?;
            let (_, lines) = records.last_mut().context("a line that is of no file")?;
            lines.push(number);
        }
    }
    ensure!(!records.is_empty(), "llvm-cov reports of no file");
    Ok(records)
}

/// The line with which a file's module of tests begins, which is the last thing in it.
fn tests_begin(source: &str) -> u32 {
    let lines = source.lines().zip(source.lines().skip(1)).zip(1..);
    let mut tests =
        lines.filter(|((line, next), _)| *line == "#[cfg(test)]" && next.starts_with("mod tests"));
    tests.next().map_or(u32::MAX, |(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn a() {\n    b();\n}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";

    fn file(name: &str, lines: &[(u32, u64)]) -> File {
        File { name: name.into(), lines: lines.to_vec() }
    }

    #[test]
    fn the_lines_of_tests_are_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            let path = folder.path().join(name);
            fs::write(&path, SOURCE).unwrap();
            path.display().to_string()
        };
        let report = format!(
            "SF:{}\nFN:1,a\nFNDA:3,a\nDA:1,3\nDA:2,0\nDA:3,18446744073709551615\nDA:7,1\nBRF:0\n\
             LF:4\nLH:3\nend_of_record\nSF:{}\nDA:1,1\nend_of_record\n",
            path("a.rs"),
            path("tests.rs")
        );
        let read = read(&report, folder.path()).unwrap();
        assert_eq!(read, [file("a.rs", &[(1, 3), (2, 0), (3, u64::MAX)])]);
    }

    #[test]
    fn only_a_module_of_tests_ends_the_code() {
        assert_eq!(tests_begin(SOURCE), 5);
        assert_eq!(tests_begin("#[cfg(test)]\nmod tests;\n"), 1);
        assert_eq!(tests_begin("    #[cfg(test)]\n    fn a() {}\n"), u32::MAX);
    }

    #[test]
    fn what_is_no_report_is_an_error() {
        assert!(records("").is_err());
        assert!(records("DA:1,1\n").is_err());
        assert!(records("SF:a.rs\nDA:1\n").is_err());
        assert!(records("SF:a.rs\nDA:-1,2\n").is_err());
        assert_eq!(records("SF:a.rs\nDA:1,2,checksum\n").unwrap(), [("a.rs", vec![(1, 2)])]);
    }

    #[test]
    fn missed_lines_are_shown_as_ranges() {
        let lines = [(1, 0), (2, 0), (4, 0), (5, 1), (7, 0), (8, 2), (9, 0), (10, 0)];
        assert_eq!(file("a", &lines).missed(), "1-4, 7, 9-10");
        assert_eq!(file("a", &[(1, 1)]).missed(), "");
    }

    #[test]
    fn the_worst_file_comes_first_and_the_total_last() {
        let files = [
            file("whole.rs", &[(1, 1), (2, 1)]),
            file("half.rs", &[(1, 1), (2, 0)]),
            file("quarter.rs", &[(1, 1), (2, 0), (3, 0), (4, 0)]),
        ];
        let (text, percent) = table(&files);
        assert_eq!(percent, 50.0);
        let rows: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(
            rows,
            [
                "  25.0%       4  quarter.rs  2-4",
                "  50.0%       2  half.rs  2",
                " 100.0%       2  whole.rs",
                "  50.0%       8  in total"
            ]
        );
        assert_eq!(table(&[]).1, 0.0);
    }
}
