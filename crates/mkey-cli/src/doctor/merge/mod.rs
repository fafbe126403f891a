//! `mkey doctor --merge`: the reports of many hosts, compared.
//!
//! * [`read`]: reports from files that may be anything. [`compare`]: what differs. [`text`] prints it.

pub mod compare;
pub mod read;
pub mod text;

use super::ended;
use super::report::printable;
use super::texts::Words;
use crate::bench::export;
use crate::bench::outputs::check_output;
use crate::cli::print;
use crate::exit::{End, NO_REPORT};
use crate::lang::Lang;
use std::path::Path;

/// Compares the reports in a folder, and shows what differs.
///
/// # Errors
/// [`End`]: how the run ended before it was done; [`End::Status`] 1 if hosts differ, have warnings or
/// reports were skipped, 2 if a host has failures, 3 if there is no report.
pub fn run(folder: &Path, json: Option<&Path>, words: &Words, lang: Lang) -> Result<(), End> {
    if let Some(path) = json.filter(|path| !export::is_stdout(path)) {
        if read::is_one_of(folder, path, words, lang) {
            let path = printable(&path.display().to_string());
            return Err(End::Usage(format!("--json {path}: this is what is read; name another")));
        }
        check_output(path).map_err(|error| End::output(path.display(), &error))?;
    }
    let (hosts, skipped) = read::folder(folder, words, lang)?;
    if hosts.is_empty() {
        let mut why =
            format!("{}: no report of mkey doctor (mkey doctor --json)", folder.display());
        for skip in &skipped {
            let told = [("file", skip.file.clone()), ("why", skip.why.clone())];
            why.push_str(&format!("\n  {}", words.fill("merge-skipped", lang, &told)));
        }
        return Err(End::Status(NO_REPORT, why));
    }
    let merged = compare::compare(&hosts, skipped);
    if let Some(path) = json {
        export::write(path, &export::json(&merged)?)?;
    }
    if !json.is_some_and(export::is_stdout) {
        print(text::merged(&merged, words, lang).as_bytes())?;
    }
    ended(merged.exit_code())
}

#[cfg(test)]
mod tests;
