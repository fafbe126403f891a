//! The arguments of `mkey bench tensor`.

use crate::bench::args::{Pin, chosen, parse_cost};
use crate::bench::outputs::Outputs;
use crate::bench::sizes::{Sizes, parse_bytes, parse_sizes};
use crate::device;
use clap::{Args, ValueEnum};
use std::time::Duration;

/// Which buffers to push, by which strategies, how often, and where the figures go.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey bench tensor                             64 MiB to 2 GiB, all strategies
  mkey bench tensor --sizes 64MiB,1GiB          these two
  mkey bench tensor --sizes 64MiB..512MiB --iterations 10
  mkey bench tensor --strategy cache,on-demand  these two, side by side
  mkey bench tensor --command-cost 16us         registrations as dear as a NIC's
  sudo mkey bench tensor                        with huge pages reserved for the while
  mkey bench tensor --json - | jq '.rows[]'     the figures for programs")]
pub struct TensorArgs {
    /// The device to measure; `mkey devices` lists them
    #[arg(long, value_name = "NAME", default_value = device::SOFTWARE)]
    pub device: String,

    /// Sizes of the buffer, as in 64MiB,1GiB; A..B doubles from A to B. Those that do not fit are
    /// left out, and the output says why
    #[arg(
        long, value_name = "SIZES", default_value = "64MiB..2GiB",
        value_parser = |text: &str| parse_sizes(text, parse_size)
    )]
    pub sizes: Sizes,

    /// How often each buffer is pushed cold, and warm after that
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub iterations: u32,

    /// Bytes of one RDMA WRITE, as in 1MiB; a multiple of 4 KiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_chunk)]
    pub chunk: u64,

    /// Strategies to measure; all unless told otherwise
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    pub strategy: Vec<Name>,

    /// Declared time of one device command, as in 16us; added to each registration and
    /// deregistration, never to posted work. Rows are then marked "simulated"
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_cost)]
    pub command_cost: Duration,

    /// How the software RNIC pins pages [default: kernel]
    #[arg(long, value_enum)]
    pub pin: Option<Pin>,

    /// Reserve no huge pages; use those that are free
    #[arg(long)]
    pub no_reserve: bool,

    /// Where the figures go
    #[command(flatten)]
    pub outputs: Outputs,
}

impl TensorArgs {
    /// The strategies asked for, each once, in the order of the table.
    pub fn strategies(&self) -> Vec<Name> {
        chosen(&self.strategy)
    }
}

/// A way to have the buffer registered when it is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Register before each push, deregister after it
    Register,
    /// The registration cache
    Cache,
    /// A buffer of a pool on huge pages, registered before there was anything to push
    Pool,
    /// A registration without pinned pages: they fault in as they are pushed
    OnDemand,
}

impl Name {
    /// Its name on the command line and for programs.
    pub fn id(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Cache => "cache",
            Self::Pool => "pool",
            Self::OnDemand => "on-demand",
        }
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Register => "MR for each push",
            Self::Cache => "cache",
            Self::Pool => "pool",
            Self::OnDemand => "on-demand paging",
        }
    }

    /// Whether it pins the buffer.
    pub fn pins(self) -> bool {
        self != Self::OnDemand
    }
}

/// The least and the most that a buffer may have.
const LEAST: u64 = 2 << 20;
const MOST: u64 = 1 << 40;

fn parse_size(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes @ LEAST..=MOST if bytes.is_multiple_of(LEAST) => Ok(bytes),
        _ => Err("a multiple of 2MiB from 2MiB to 1TiB, please".to_owned()),
    }
}

fn parse_chunk(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes @ 4096..=0x4000_0000 if bytes.is_multiple_of(4096) => Ok(bytes),
        _ => Err("a multiple of 4KiB from 4KiB to 1GiB, please".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: TensorArgs,
    }

    fn parse(arguments: &[&str]) -> Result<TensorArgs, clap::Error> {
        Line::try_parse_from([&["tensor"], arguments].concat()).map(|line| line.args)
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_range_doubles() {
        let sizes = |text| parse(&["--sizes", text]).unwrap().sizes.0;
        assert_eq!(sizes("64MiB..512MiB"), [64 * MIB, 128 * MIB, 256 * MIB, 512 * MIB]);
        assert_eq!(sizes("64m..200m"), [64 * MIB, 128 * MIB]);
        assert_eq!(sizes("1g,64m,64m..128m"), [64 * MIB, 128 * MIB, 1024 * MIB]);
        assert_eq!(parse(&[]).unwrap().sizes.0.last(), Some(&(2048 * MIB)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for arguments in [
            ["--sizes", ""],
            ["--sizes", "1m"],
            ["--sizes", "3m"],
            ["--sizes", "2t"],
            ["--sizes", "128m..64m"],
            ["--sizes", "64m.."],
            ["--iterations", "0"],
            ["--chunk", "1k"],
            ["--chunk", "5000"],
            ["--strategy", "hope"],
            ["--command-cost", "1s"],
        ] {
            assert!(parse(&arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn ids_are_the_words_of_the_command_line() {
        for name in Name::value_variants() {
            assert_eq!(name.to_possible_value().unwrap().get_name(), name.id());
        }
        let args = parse(&["--strategy", "on-demand,register"]).unwrap();
        assert_eq!(args.strategies(), [Name::Register, Name::OnDemand]);
    }
}
