//! `cargo xtask mutants`: cargo-mutants over the code that decides who may touch which memory.
//!
//! Which files, and whose tests must notice, is in `.cargo/mutants.toml`, so that a plain
//! `cargo mutants --workspace` does the same.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::exit::Exit;
use crate::run;
use crate::tools;
use crate::workspace::Workspace;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask mutants                         all files of .cargo/mutants.toml
  cargo xtask mutants -- --list               the mutants, without testing them
  cargo xtask mutants -- --re check           those whose description matches
  cargo xtask mutants -- --jobs 2

The details of a run are in target/mutants/mutants.out. Exit status: 0 every mutant was noticed,
1 some survived (they are listed), or the tests fail without any mutant.")]
pub struct Args {
    /// Passed to cargo-mutants
    #[arg(last = true)]
    args: Vec<String>,
}

const CONFIG: &str = ".cargo/mutants.toml";

pub fn run(workspace: &Workspace, args: &Args) -> Result<Exit> {
    let config = fs::read_to_string(workspace.root().join(CONFIG))
        .with_context(|| format!("cannot read {CONFIG}"))?;
    let files = Config::read(&config)?.files;
    for file in &files {
        ensure!(
            workspace.root().join(file).is_file(),
            "{CONFIG} names {file}, which is not there: no mutant of it would be tested"
        );
    }
    let program = tools::MUTANTS.get(workspace)?;
    let folder = workspace.target().join("mutants");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut command = Command::new(program);
    command.current_dir(workspace.root()).args([
        "mutants",
        "--workspace",
        "--colors=never",
        "--output",
    ]);
    command.arg(&folder).args(&args.args);
    let ended = run::shown(&mut command)?;
    if args.args.iter().any(|arg| arg == "--list") {
        return Ok(if ended.status.success() { Exit::Well } else { Exit::Failed });
    }
    let outcome = Outcome::of(ended.status.code(), &folder.join("mutants.out"))?;
    println!("\n{outcome}");
    Ok(Exit::of(!outcome.is_well(), false, false))
}

/// The files under test, of the configuration. They are plain paths, not patterns, so that one
/// that was renamed is noticed.
#[derive(Deserialize)]
struct Config {
    #[serde(rename = "examine_globs")]
    files: Vec<String>,
}

impl Config {
    fn read(text: &str) -> Result<Self> {
        let config: Self = toml::from_str(text).with_context(|| format!("cannot read {CONFIG}"))?;
        ensure!(!config.files.is_empty(), "{CONFIG} names no file in examine_globs");
        Ok(config)
    }
}

/// What came of the mutants.
struct Outcome {
    caught: usize,
    timed_out: usize,
    survivors: Vec<String>,
    /// Why the run itself was no good.
    broken: Option<String>,
}

impl Outcome {
    /// Reads the lists of the folder `out`. `status` is the tool's exit status: 0 all caught, 2
    /// some missed, 3 some timed out; anything else is a run that tested nothing.
    fn of(status: Option<i32>, out: &Path) -> Result<Self> {
        let list = |name: &str| -> Result<Vec<String>> {
            let path = out.join(name);
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        let (caught, timed_out) = (list("caught.txt")?.len(), list("timeout.txt")?.len());
        let survivors = list("missed.txt")?;
        let broken = match status {
            Some(0 | 2 | 3) if caught + timed_out + survivors.len() == 0 => {
                Some("no mutant was tested".to_owned())
            }
            Some(0 | 2 | 3) => None,
            Some(4) => Some("the tests fail without any mutant".to_owned()),
            Some(other) => Some(format!("cargo-mutants ended with exit status {other}")),
            None => Some("cargo-mutants was ended by a signal".to_owned()),
        };
        Ok(Self { caught, timed_out, survivors, broken })
    }

    /// A mutant that never ends was noticed, too.
    fn is_well(&self) -> bool {
        self.survivors.is_empty() && self.broken.is_none()
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for survivor in &self.survivors {
            writeln!(f, "survived: {survivor}")?;
        }
        if let Some(broken) = &self.broken {
            writeln!(f, "{broken}")?;
        }
        let Self { caught, timed_out, survivors, .. } = self;
        write!(f, "{caught} caught, {timed_out} ran out of time, {} survived", survivors.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(test: &str, status: i32, missed: &str, caught: &str, timeout: &str) -> Outcome {
        let out = std::env::temp_dir().join(format!("xtask-{}-{test}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        for (name, text) in
            [("missed.txt", missed), ("caught.txt", caught), ("timeout.txt", timeout)]
        {
            fs::write(out.join(name), text).unwrap();
        }
        let outcome = Outcome::of(Some(status), &out).unwrap();
        fs::remove_dir_all(&out).unwrap();
        outcome
    }

    #[test]
    fn all_caught_is_well_and_so_is_one_that_never_ends() {
        assert!(outcome("caught", 0, "", "a.rs:1:1: x\n", "").is_well());
        assert!(outcome("timeout", 3, "", "a.rs:1:1: x\n", "a.rs:2:1: y\n").is_well());
    }

    #[test]
    fn a_survivor_is_named() {
        let outcome = outcome("missed", 2, "a.rs:3:9: replace < with <=\n", "a.rs:1:1: x\n", "");
        assert!(!outcome.is_well());
        assert_eq!(
            outcome.to_string(),
            "survived: a.rs:3:9: replace < with <=\n1 caught, 0 ran out of time, 1 survived"
        );
    }

    #[test]
    fn a_run_that_tested_nothing_is_not_well() {
        assert!(!outcome("none", 0, "", "", "").is_well());
        assert!(!outcome("baseline", 4, "", "", "").is_well());
        assert!(!outcome("usage", 1, "", "a.rs:1:1: x\n", "").is_well());
    }

    #[test]
    fn a_configuration_without_files_is_refused() {
        assert!(Config::read("examine_globs = []").is_err());
        assert!(Config::read("test_package = [\"a\"]").is_err());
        let files = Config::read("examine_globs = [\"a.rs\"]\nminimum_test_timeout = 60").unwrap();
        assert_eq!(files.files, ["a.rs"]);
    }
}
