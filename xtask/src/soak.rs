//! `cargo xtask soak`: random servers and clients on a device that fails, for as long as asked.

use anyhow::Result;

use crate::exit::{Exit, in_ci};
use crate::part::{Report, Verdict};
use crate::workspace::Workspace;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask soak                    ten minutes, with choices of its own
  cargo xtask soak --seconds 60 --seed 7
                                      a minute, with the choices of another run

Prints the seed, and what happened how often. Exit status: 0 all was well, 1 memory was accessed
outside of a live grant, data was wrong, a thread was stuck, or something was left at the end.")]
pub struct Args {
    /// How long
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Makes the choices: the same seed gives each thread the same
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

pub fn run(workspace: &Workspace, args: &Args) -> Result<Exit> {
    let mut command = workspace.cargo();
    command.args(["test", "--release", "--package", "mkey", "--test", "soak", "--", "--nocapture"]);
    command.env("MKEY_SOAK_SECONDS", args.seconds.to_string());
    if let Some(seed) = args.seed {
        command.env("MKEY_SOAK_SEED", seed.to_string());
    }
    let mut report = Report::default();
    report.tests(workspace, &mut command)?;
    let verdict = report.verdict();
    Ok(Exit::of(verdict == Verdict::Failed, verdict == Verdict::Skipped, in_ci()))
}
