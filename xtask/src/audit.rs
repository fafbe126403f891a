//! The dependencies: their licences, bans and sources (a part of the tests), and the published
//! advisories (`cargo xtask audit`, which needs the advisory database and so the network).

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::exit::Exit;
use crate::part::Report;
use crate::run;
use crate::tools;
use crate::workspace::Workspace;

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  cargo xtask audit

The advisory database is fetched from its repository. Where that cannot be reached, nothing is
known about advisories; the command says so and its exit status is 3.")]
pub struct Args {}

/// The manifests whose dependencies are looked at, beside each other since the fuzz targets are
/// a workspace of their own.
const MANIFESTS: &[&str] = &["Cargo.toml", "fuzz/Cargo.toml"];

/// `cargo xtask audit`.
pub fn run(workspace: &Workspace, _: &Args) -> Result<Exit> {
    let program = tools::DENY.get(workspace)?;
    let mut report = Report::default();
    for manifest in manifests(workspace) {
        let ended = run::shown(&mut check(workspace, &program, manifest, &["advisories"]))?;
        if !ended.status.success() && is_unreachable(&ended.text) {
            println!("\nThe advisory database cannot be reached: nothing was checked.");
            return Ok(Exit::Skipped);
        }
        report.check(ended.status.success(), || format!("{manifest} has open advisories"));
    }
    for note in &report.notes {
        println!("{note}");
    }
    Ok(Exit::of(report.tally.failed > 0, false, false))
}

/// The part `deny` of the tests.
pub fn deny(workspace: &Workspace) -> Result<Report> {
    let program = match tools::DENY.get(workspace) {
        Ok(program) => program,
        Err(error) => return Ok(Report::skipped(format!("{error:#}"))),
    };
    let mut report = Report::default();
    for manifest in manifests(workspace) {
        let what = ["licenses", "bans", "sources"];
        report.command(&mut check(workspace, &program, manifest, &what))?;
    }
    Ok(report)
}

fn manifests(workspace: &Workspace) -> impl Iterator<Item = &'static str> {
    MANIFESTS.iter().copied().filter(|manifest| workspace.root().join(manifest).is_file())
}

fn check(workspace: &Workspace, program: &Path, manifest: &str, what: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.current_dir(workspace.root());
    command.args(["--config", "deny.toml", "--manifest-path", manifest]);
    command.arg("check").args(what);
    command
}

/// Whether cargo-deny gave up because it could not fetch the database.
fn is_unreachable(text: &str) -> bool {
    text.contains("failed to fetch advisory database")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_cannot_be_fetched_is_told_from_an_advisory() {
        assert!(is_unreachable("[ERROR] failed to fetch advisory database https://..."));
        assert!(!is_unreachable("error[vulnerability]: a wrong length is trusted"));
    }
}
