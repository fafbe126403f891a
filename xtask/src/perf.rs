//! `cargo xtask perf`: the costs, measured beside their bare references on a quiet machine.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::exit::Exit;
use crate::quiet;
use crate::workspace::Workspace;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask perf                    every row
  cargo xtask perf -- --help          what the harness takes
  cargo xtask perf --force            although the machine is busy

Builds the harness, waits for the machine to be quiet, and measures. Exit status: the harness's
own; 1 if it does not build or the machine stays busy.")]
pub struct Args {
    /// Measure on a busy machine, too
    #[arg(long)]
    force: bool,
    /// How long to wait for the machine to be quiet, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    patience: u64,
    /// Passed to the harness
    #[arg(last = true)]
    args: Vec<String>,
}

/// The package and its binary that measure.
const HARNESS: (&str, &str) = ("mkey-conformance", "mkey-perf");

pub fn run(workspace: &Workspace, args: &Args) -> Result<Exit> {
    let (package, binary) = HARNESS;
    let which = ["--release", "--package", package, "--bin", binary];
    let built =
        workspace.cargo().arg("build").args(which).status().context("cannot start cargo")?;
    ensure!(built.success(), "{binary} does not build: {built}");
    if !args.force {
        quiet::wait(Duration::from_secs(args.patience))?;
    }
    let mut harness = workspace.cargo();
    harness.args(["run", "--quiet"]).args(which).arg("--").args(&args.args);
    let ended = harness.status().context("cannot start cargo")?;
    let code = ended.code().with_context(|| format!("{binary} ended with {ended}"))?;
    Ok(u8::try_from(code).map_or(Exit::Failed, Exit::Other))
}
