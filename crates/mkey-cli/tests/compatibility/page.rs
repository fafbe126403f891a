//! `docs/compatibility.md`: a section for each test that fills one, compared with what it saw.
//!
//! With [`WRITE`] in the environment the section is written instead.

use crate::list::{Expected, Program};
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Set to have the page written.
const WRITE: &str = "MKEY_WRITE_PAGE";

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md")
}

/// The section with this title is to have this text, which may be preceded by other words.
pub fn compare(title: &str, text: &str) {
    let file = File::open(path()).unwrap();
    file.lock().unwrap();
    let page = fs::read_to_string(path()).unwrap();
    let start = format!("<!-- {title} -->\n");
    let end = "<!-- end -->";
    let (before, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no section {title}"));
    let (now, after) = rest.split_once(end).unwrap_or_else(|| panic!("{title} has no end"));
    if std::env::var_os(WRITE).is_some() {
        return fs::write(path(), format!("{before}{start}{text}{end}{after}")).unwrap();
    }
    assert_eq!(now, text, "docs/compatibility.md is old: run this test with {WRITE}=1");
}

/// A table of programs, options and what became of them, on one host and by UDP: the same, as the tests of
/// both hold it against this table.
pub fn programs(programs: &[Program]) -> String {
    let mut text = "| program | options | on one host | by UDP |\n|---|---|---|---|\n".to_owned();
    for program in programs {
        for run in program.runs {
            let result = match run.expected {
                Expected::Works => "works".to_owned(),
                Expected::Declines(words) => format!("declines: \"{words}\""),
            };
            let options = match run.options {
                "" => String::new(),
                options => format!("`{options}`"),
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| `{} {}` | {options} | {result} | {result} |",
                program.name, program.always
            );
        }
    }
    text
}
