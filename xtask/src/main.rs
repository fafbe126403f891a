//! `cargo xtask`: the chores of mkey, one command each.
//!
//! `main` parses the arguments, hands over to the command's module and turns what it
//! answers into an exit status; it decides nothing else.

mod asan;
mod audit;
mod broken;
mod coverage;
mod dist;
mod exit;
mod fuzz;
mod gates;
mod mutants;
mod packages;
mod part;
mod parts;
mod perf;
mod quiet;
mod run;
mod soak;
mod summary;
mod tally;
mod test;
mod tools;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::Exit;
use crate::workspace::Workspace;

#[derive(Parser)]
#[command(
    name = "xtask",
    bin_name = "cargo xtask",
    about = "The chores of mkey",
    after_help = "Exit status: 0 all well; 1 something failed; 2 wrong usage; 3 something could \
                  not be done here (with CI set in the environment that is a failure, 1)."
)]
struct Cli {
    #[command(subcommand)]
    command: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run every test, part by part
    Test(test::Args),
    /// Install the Debian packages that the tests use and this machine lacks
    Setup(packages::Args),
    /// Make the packages that users install: a tarball and a Debian package
    Dist(dist::Args),
    /// Run commands in virtual machines that have a kernel's RDMA device
    Vm(vm::Args),
    /// Count instructions and compare them with the committed limits
    Gates(gates::Args),
    /// Measure the costs beside their bare references, on a quiet machine
    Perf(perf::Args),
    /// Change the checked code in small ways; a change that no test notices is an error
    Mutants(mutants::Args),
    /// Let random servers and clients share a device that fails, and watch every use of memory
    Soak(soak::Args),
    /// Run the fuzz targets
    Fuzz(fuzz::Args),
    /// Run the tests of the crates that hand out memory under AddressSanitizer
    Asan(asan::Args),
    /// Ask whether a dependency has a published advisory
    Audit(audit::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match chore(cli.command) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            Exit::Failed.into()
        }
    }
}

fn chore(chore: Chore) -> anyhow::Result<Exit> {
    let workspace = Workspace::here()?;
    match chore {
        Chore::Test(args) => test::run(&workspace, &args),
        Chore::Setup(args) => packages::run(&args),
        Chore::Dist(args) => dist::run(&workspace, &args),
        Chore::Vm(args) => vm::run(&workspace, args),
        Chore::Gates(args) => gates::run(&workspace, &args),
        Chore::Perf(args) => perf::run(&workspace, &args),
        Chore::Mutants(args) => mutants::run(&workspace, &args),
        Chore::Soak(args) => soak::run(&workspace, &args),
        Chore::Fuzz(args) => fuzz::run(&workspace, &args),
        Chore::Asan(args) => asan::run(&workspace, &args),
        Chore::Audit(args) => audit::run(&workspace, &args),
    }
}
