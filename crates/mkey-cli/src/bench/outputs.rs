//! Where figures go: a JSON file, a CSV file, and the tables unless one of these is standard output.

use super::export;
use crate::exit::End;
use clap::Args;
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The files to write.
#[derive(Args, Clone, Debug, Default)]
pub struct Outputs {
    /// Write all figures as JSON to FILE; "-" is standard output, without the tables
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write one line a row as CSV to FILE; "-" is standard output, without the tables
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}

impl Outputs {
    /// Refuses what could not be written after the measurement.
    ///
    /// # Errors
    /// `Usage` if both are standard output, `Failed` for a file that can not be written.
    pub fn check(&self) -> Result<(), End> {
        let (to_stdout, files): (Vec<_>, Vec<_>) =
            self.paths().partition(|path| export::is_stdout(path));
        if to_stdout.len() > 1 {
            let why = "only one of --json and --csv can be standard output";
            return Err(End::Usage(why.to_owned()));
        }
        for path in files {
            check_output(path).map_err(|error| End::output(path.display(), &error))?;
        }
        Ok(())
    }

    /// Writes what was asked for.
    ///
    /// # Errors
    /// `Failed` for what can not be written, `ClosedPipe` if nobody reads the tables.
    pub fn write(
        &self,
        report: &impl Serialize,
        lines: impl FnOnce() -> Result<Vec<u8>, End>,
        tables: impl FnOnce() -> String,
    ) -> Result<(), End> {
        if let Some(path) = &self.json {
            export::write(path, &export::json(report)?)?;
        }
        if let Some(path) = &self.csv {
            export::write(path, &lines()?)?;
        }
        if self.paths().any(export::is_stdout) {
            return Ok(());
        }
        crate::cli::print(tables().as_bytes())
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.json, &self.csv].into_iter().flatten().map(PathBuf::as_path)
    }
}

/// Whether a file could be written. One that is there stays as it is, and none is left behind: an
/// interrupted run has no report.
///
/// # Errors
/// As the file system refuses.
pub fn check_output(path: &Path) -> io::Result<()> {
    match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return opened.map(drop),
    }
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path),
        // A symbolic link to a file that is still to be made.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checking_an_output_makes_no_file_and_changes_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        check_output(&path).unwrap();
        assert!(!path.exists());
        fs::write(&path, "earlier").unwrap();
        check_output(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "earlier");
        let nowhere = folder.path().join("none/run.json");
        assert_eq!(check_output(&nowhere).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
