//! Where figures go: a JSON file, a CSV file, and the tables unless one of these is standard output.

use super::export;
use crate::exit::End;
use crate::html;
use crate::model::check::printable;
use clap::Args;
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
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
    /// The same with a page, which may not be one of the other files.
    ///
    /// # Errors
    /// As [`Outputs::check`] and [`html::check`]; `Usage` for a file that two would be written to.
    pub fn check_with(&self, page: &Option<PathBuf>) -> Result<(), End> {
        let named = [("--json", &self.json), ("--csv", &self.csv), ("--html", page)];
        let mut before: Vec<(&str, &Path)> = Vec::new();
        for (option, path) in named {
            let Some(path) = path.as_deref().filter(|path| !export::is_stdout(path)) else {
                continue;
            };
            if let Some((other, _)) = before.iter().find(|(_, other)| same(other, path)) {
                let path = path.display();
                return Err(End::Usage(format!("{other} and {option} are the same file: {path}")));
            }
            before.push((option, path));
        }
        self.check()?;
        html::check(page)
    }

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

    /// Writes what was asked for: the tables first, and whatever can be written, so that figures are
    /// not lost with a file.
    ///
    /// # Errors
    /// `Failed` for what can not be written, `ClosedPipe` if nobody reads the tables.
    pub fn write(
        &self,
        report: &impl Serialize,
        lines: impl FnOnce() -> Result<Vec<u8>, End>,
        tables: impl FnOnce() -> String,
    ) -> Result<(), End> {
        let printed = if self.paths().any(export::is_stdout) {
            Ok(())
        } else {
            crate::cli::print(tables().as_bytes())
        };
        let json = |path| export::write(path, &export::json(report)?);
        let csv = |path| export::write(path, &lines()?);
        let written =
            [self.json.as_deref().map_or(Ok(()), json), self.csv.as_deref().map_or(Ok(()), csv)];
        // A reader that went away is told last: it is no failure.
        let all = written.into_iter().chain([printed]).filter_map(Result::err);
        let (closed, failed): (Vec<_>, Vec<_>) = all.partition(|end| *end == End::ClosedPipe);
        failed.into_iter().chain(closed).next().map_or(Ok(()), Err)
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.json, &self.csv].into_iter().flatten().map(PathBuf::as_path)
    }
}

/// Refuses outputs that could not be written, and those that are the input, which writing would destroy,
/// before anything is read or opened for writing.
///
/// # Errors
/// `Usage` for an output that is the input, by whatever name; `Failed` for one that can not be written.
pub fn check_apart<'p>(
    outputs: impl IntoIterator<Item = (&'static str, Option<&'p Path>)>,
    input: &Path,
) -> Result<(), End> {
    let input = match input.as_os_str() == "-" {
        true => Path::new("/dev/stdin"),
        false => input,
    };
    for (option, path) in outputs {
        let Some(path) = path.filter(|path| !export::is_stdout(path)) else { continue };
        let shown = printable(&path.display().to_string());
        if same(path, input) {
            return Err(End::Usage(format!(
                "{option} {shown}: this is what is read; name another"
            )));
        }
        check_output(path).map_err(|error| End::output(shown, &error))?;
    }
    Ok(())
}

/// Whether two paths are one file, of which the second writing would be all that is left. A device, as
/// /dev/null is, takes both.
pub fn same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(a), Ok(b)) => a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino()),
        (Err(_), Err(_)) => one == other || place(one).is_some_and(|at| place(other) == Some(at)),
        _ => false,
    }
}

/// Where a file that is not there yet would be made.
fn place(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(folder.join(path.file_name()?))
}

/// Whether a file could be written. One that is there stays as it is, and none is left behind: an
/// interrupted run has no report.
///
/// # Errors
/// As the file system refuses.
pub fn check_output(path: &Path) -> io::Result<()> {
    // Who reads a pipe takes its closing for the end; opening one waits for a reader.
    if fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir()) {
        return Ok(());
    }
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
    fn one_file_is_not_written_twice() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| Some(folder.path().join(name));
        let check = |json: &str, csv: &str, page: &str| {
            Outputs { json: at(json), csv: at(csv) }.check_with(&at(page))
        };
        assert_eq!(check("a", "b", "c"), Ok(()));
        fs::write(folder.path().join("there"), "").unwrap();
        std::os::unix::fs::symlink("there", folder.path().join("link")).unwrap();
        for (json, csv, page) in
            [("a", "a", "c"), ("a", "b", "a"), ("a", "b", "./b"), ("there", "b", "link")]
        {
            let end = check(json, csv, page);
            assert!(matches!(&end, Err(End::Usage(why)) if why.contains("same file")), "{end:?}");
        }
        assert_eq!(check("/dev/null", "/dev/null", "/dev/null"), Ok(()));
    }

    #[test]
    fn an_output_that_is_the_input_is_refused_by_whatever_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("input"), "kept").unwrap();
        std::os::unix::fs::symlink("input", at("link")).unwrap();
        fs::hard_link(at("input"), at("second name")).unwrap();
        for name in ["input", "link", "second name", "./input"] {
            let end = check_apart([("--json", Some(&*at(name)))], &at("input"));
            assert!(
                matches!(&end, Err(End::Usage(why)) if why.contains("what is read")),
                "{end:?}"
            );
        }
        assert_eq!(fs::read_to_string(at("input")).unwrap(), "kept");
        let check = |path: &Path| check_apart([("--json", Some(path))], &at("input"));
        assert_eq!(check(&at("other")), Ok(()));
        assert!(!at("other").exists());
        for allowed in ["-", "/dev/null", "/dev/full"] {
            assert_eq!(check(Path::new(allowed)), Ok(()), "{allowed}");
        }
        assert!(matches!(check(folder.path()), Err(End::Failed(_))));
    }

    #[test]
    fn checking_an_output_does_not_wait_for_the_reader_of_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        check_output(&pipe).unwrap();
    }

    #[test]
    fn a_file_that_can_not_be_written_does_not_keep_the_others_back() {
        let folder = tempfile::tempdir().unwrap();
        let csv = folder.path().join("run.csv");
        let outputs = Outputs { json: Some("/dev/full".into()), csv: Some(csv.clone()) };
        let printed = std::cell::Cell::new(false);
        let tables = || {
            printed.set(true);
            String::new()
        };
        let end = outputs.write(&1, || Ok(b"line\n".to_vec()), tables);
        assert!(matches!(&end, Err(End::Failed(why)) if why.contains("/dev/full")), "{end:?}");
        assert!(printed.get());
        assert_eq!(fs::read_to_string(csv).unwrap(), "line\n");
    }

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
