//! `mkey config`: RoCEv2 without loss, from the switch to the host, as text to review.
//!
//! * [`marking`]: what all have to agree on. [`vendor`], [`syntax`]: who understands what.
//! * [`mod@switch`], [`nic`], [`host`]: what is printed, as a [`recipe`].
//! * [`mod@check`]: a host's marking beside the configuration of a switch.
//!
//! It changes nothing, and prints no command that no source vouches for.

pub mod check;
pub mod host;
pub mod marking;
pub mod nic;
pub mod recipe;
pub mod switch;
pub mod syntax;
pub mod vendor;

use crate::bench::export;
use crate::cli::print;
use crate::exit::End;
use clap::{Args, Subcommand};
use recipe::{Comments, Recipe};
use std::path::PathBuf;
use syntax::Syntax;

/// What to configure.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey config switch --vendor eos --ports Ethernet1,Ethernet2
  mkey config nic --driver mlx5 --netdev eth2 --device mlx5_0
  mkey config host --hugepages 2MiB=16GiB --memlock unlimited
  mkey config check --host --switch running-config.txt")]
pub struct ConfigArgs {
    /// What
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// What `mkey config` can print.
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print a lossless class for RoCE for a switch
    ///
    /// Each line says how sure it is that it exists and where that was read; each block how to
    /// verify it. Values that depend on the model are comments marked TUNE. Inconsistent inputs are
    /// refused with the reason (exit code 2). For seven vendors; for Dell, Juniper and Ruijie too
    /// little is known for sure.
    Switch(WithJson<switch::SwitchArgs>),
    /// Print the marking for a host's NIC, as a script
    Nic(WithJson<nic::NicArgs>),
    /// Print huge pages and locked memory for a host, as files
    ///
    /// For /etc/sysctl.d, /etc/security/limits.d, a systemd drop-in, and the kernel's command line.
    Host(WithJson<host::HostArgs>),
    /// Compare the marking of a host with the saved configuration of a switch
    ///
    /// Exit codes: 0 nothing contradicts, 1 something does, 2 asked for wrongly, 3 no comparison could be
    /// made: the file can not be read, or is no configuration of this vendor, or the result can not be
    /// written.
    Check(check::CheckArgs),
}

/// Arguments, and where the result goes for programs.
#[derive(Args, Clone, Debug)]
pub struct WithJson<T: Args> {
    /// What to configure
    #[command(flatten)]
    pub args: T,

    /// Write it as JSON to FILE; "-" is standard output, without the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Prints what was asked for.
///
/// # Errors
/// [`End`]: how the run ended before it was done.
pub fn run(args: &ConfigArgs) -> Result<(), End> {
    const SHELL: Comments = Comments { start: "#", within: true };
    match &args.command {
        ConfigCommand::Switch(with) => {
            let vendor = with.args.vendor;
            let recipe = switch::recipe(&with.args).map_err(|wrong| refused(&wrong))?;
            put(&recipe, &vendor.syntax(), vendor.comments(), &with.json)
        }
        ConfigCommand::Nic(with) => {
            let recipe = nic::recipe(&with.args).map_err(|wrong| refused(&wrong))?;
            put(&recipe, &nic::syntax(with.args.driver), SHELL, &with.json)
        }
        ConfigCommand::Host(with) => {
            let recipe = host::recipe(&with.args).map_err(|wrong| refused(&wrong))?;
            let syntax = Syntax::new(include_str!("syntax/host.txt"));
            put(&recipe, &syntax, SHELL, &with.json)
        }
        ConfigCommand::Check(args) => check::run(args),
    }
}

fn refused(wrong: &[String]) -> End {
    End::Usage(format!("inconsistent, so nothing is printed:\n  {}", wrong.join("\n  ")))
}

fn put(
    recipe: &Recipe,
    syntax: &Syntax,
    comments: Comments,
    json: &Option<PathBuf>,
) -> Result<(), End> {
    let document = recipe.document(syntax)?;
    if let Some(path) = json {
        export::write(path, &export::json(&document)?)?;
        if export::is_stdout(path) {
            return Ok(());
        }
    }
    print(recipe::text(&document, comments).as_bytes())
}
