//! The arguments of `mkey replay`.

use super::rounds::Speed;
use super::strategy::Strategy;
use crate::bench::args::{Pin, parse_cost, parse_time};
use crate::bench::memory;
use crate::bench::sizes::parse_bytes;
use crate::bench::units::size;
use crate::device;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Which recording, and how it is played.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey trace --output run.trace -- ./server
  mkey replay run.trace                              every strategy on the software RNIC
  mkey replay run.trace --device mlx5_0              the same on a device of this machine
  mkey replay run.trace --strategy cache,pool        these two, against as-recorded
  mkey replay run.trace --command-cost 16us          with a declared firmware command
  mkey replay run.trace --speed recorded             with the pauses of the program
  mkey replay run.trace --json - | jq '.rows[]'      all figures, for a regression benchmark")]
pub struct ReplayArgs {
    /// A recording of `mkey trace --output`; \"-\" is standard input
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// The device to play it on; `mkey devices` lists them
    #[arg(long, value_name = "NAME", default_value = device::SOFTWARE)]
    pub device: String,

    /// Strategies: all, or some of as-recorded, once, cache, pool, bounce, huge, mw, frmr. What
    /// others are compared with, as-recorded, is always among them
    #[arg(long, value_name = "NAMES", default_value = "all", value_delimiter = ',',
          value_parser = parse_strategy)]
    pub strategy: Vec<Chosen>,

    /// The process to play, by its number in the recording or its process id [default: all, one
    /// after the other]
    #[arg(long, value_name = "N")]
    pub process: Option<u32>,

    /// When calls are made
    #[arg(long, value_enum, default_value = "asap")]
    pub speed: Speed,

    /// Time for all replays, as in 5s or 1min; each strategy is played three times at least, and
    /// once at the speed of the recording
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub time: Duration,

    /// Memory to use at most for buffers, as in 4GiB; 8 MiB at least. What does not fit is not
    /// played, and counted [default: what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub memory: Option<u64>,

    /// Declared time of one device command, as in 16us; added to each registration and
    /// deregistration
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_cost)]
    pub command_cost: Duration,

    /// How the software RNIC pins pages [default: kernel]
    #[arg(long, value_enum)]
    pub pin: Option<Pin>,

    /// Write all figures as JSON to FILE; "-" is standard output, without the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// What `--strategy` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// All of them.
    All,
    /// This one.
    One(Strategy),
}

/// With less, the least pool does not fit beside the memory of the program and that on huge pages.
const LEAST_MEMORY: u64 = 8 << 20;

fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes < LEAST_MEMORY => Err(format!(
            "{} are too little: at least {} are needed",
            size(bytes),
            size(LEAST_MEMORY)
        )),
        bytes => Ok(bytes),
    }
}

fn parse_strategy(text: &str) -> Result<Chosen, String> {
    match text {
        "all" => Ok(Chosen::All),
        name => Strategy::from_str(name, true).map(Chosen::One).map_err(|_| {
            let names: Vec<&str> = Strategy::ALL.iter().map(|strategy| strategy.name()).collect();
            format!("all, or some of {}", names.join(", "))
        }),
    }
}

impl ReplayArgs {
    /// The strategies asked for, each once, `as-recorded` first.
    pub fn strategies(&self) -> Vec<Strategy> {
        let all = self.strategy.contains(&Chosen::All);
        let asked = |strategy: &Strategy| {
            *strategy == Strategy::AsRecorded || self.strategy.contains(&Chosen::One(*strategy))
        };
        Strategy::ALL.into_iter().filter(|strategy| all || asked(strategy)).collect()
    }

    /// Bytes of memory that may be used.
    pub fn room(&self) -> u64 {
        let free = memory::fit(1 << 50, &memory::bounds()).bytes;
        self.memory.map_or(free, |asked| asked.min(free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept_to_the_byte_and_too_little_is_refused() {
        #[derive(Debug, clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: ReplayArgs,
        }
        use clap::Parser;
        let of = |memory: &str| Cli::try_parse_from(["mkey", "t", "--memory", memory]);
        for few in ["0", "1", "4KiB", "8388607"] {
            let error = of(few).unwrap_err().to_string();
            assert!(error.contains("at least 8 MiB are needed"), "{error}");
        }
        for bytes in [8 << 20, (9 << 20) + 1] {
            assert_eq!(of(&format!("{bytes}")).unwrap().args.room(), bytes);
        }
    }

    #[test]
    fn strategies_are_each_once_with_what_they_are_compared_with() {
        #[derive(Debug, clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: ReplayArgs,
        }
        use clap::Parser;
        let of = |words: &[&str]| Cli::try_parse_from([&["mkey", "t"], words].concat());
        let strategies = |words: &[&str]| of(words).unwrap().args.strategies();
        assert_eq!(strategies(&[]), Strategy::ALL);
        let some = [Strategy::AsRecorded, Strategy::Cache, Strategy::Mw];
        assert_eq!(strategies(&["--strategy", "mw,cache,mw"]), some);
        assert!(of(&["--strategy", "none"]).unwrap_err().to_string().contains("bounce"));
    }
}
