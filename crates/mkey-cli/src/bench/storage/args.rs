//! The arguments of `mkey bench storage`: fio's words.

use crate::bench::args::{Pin, chosen, parse_cost};
use crate::bench::outputs::Outputs;
use crate::bench::sizes::parse_bytes;
use crate::device;
use clap::{Args, ValueEnum};
use std::time::Duration;

/// What I/O to do, by which strategies, how long, and where the figures go.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey bench storage                                  4 KiB random reads, all strategies
  mkey bench storage --rw randwrite --bs 4k,128k      two block sizes, each measured on its own
  mkey bench storage --rw randrw --iodepth 32 --numjobs 2 --runtime 10
  mkey bench storage --command-cost 16us              registrations as dear as a NIC's
  mkey bench storage --strategy grant,static          these two, side by side
  mkey bench storage --json - | jq '.rows[]'          the figures for programs
  mkey bench storage --csv - > storage.csv            one line a row")]
pub struct StorageArgs {
    /// The device to measure; `mkey devices` lists them
    #[arg(long, value_name = "NAME", default_value = device::SOFTWARE)]
    pub device: String,

    /// The pattern of I/O
    #[arg(long, value_enum, default_value_t = Pattern::Randread)]
    pub rw: Pattern,

    /// Block sizes, as in 4k or 4k,128k (k is 1024); a multiple of 512, each measured on its own
    #[arg(
        long, value_name = "SIZE", value_delimiter = ',', default_value = "4k",
        value_parser = parse_block
    )]
    pub bs: Vec<u64>,

    /// I/Os in flight, for each job
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub iodepth: u32,

    /// Jobs: threads with an initiator, a target and a disk of their own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub numjobs: u32,

    /// Time for each strategy and block size, as in 10 (seconds), 500ms or 1min
    #[arg(long, value_name = "TIME", default_value = "3", value_parser = parse_runtime)]
    pub runtime: Duration,

    /// The disk of each job, in memory, as in 64m; rounded down to a power of two of blocks
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = parse_disk)]
    pub size: u64,

    /// Strategies to measure; all unless told otherwise
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    pub strategy: Vec<Name>,

    /// Declared time of one device command, as in 16us; added to each registration, deregistration
    /// and allocation of windows and fast-registration regions, never to posted work. Rows are then
    /// marked "simulated"
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_cost)]
    pub command_cost: Duration,

    /// How the software RNIC pins pages [default: kernel]
    #[arg(long, value_enum)]
    pub pin: Option<Pin>,

    /// Where the figures go
    #[command(flatten)]
    pub outputs: Outputs,
}

impl StorageArgs {
    /// The strategies asked for, each once, in the order of the table.
    pub fn strategies(&self) -> Vec<Name> {
        chosen(&self.strategy)
    }

    /// The block sizes asked for, each once, in the order given.
    pub fn block_sizes(&self) -> Vec<u64> {
        let mut sizes = Vec::with_capacity(self.bs.len());
        for size in &self.bs {
            if !sizes.contains(size) {
                sizes.push(*size);
            }
        }
        sizes
    }
}

/// A pattern of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Random reads
    Randread,
    /// Random writes
    Randwrite,
    /// Reads and writes, half of each
    Randrw,
}

impl Pattern {
    /// Its name in fio.
    pub fn name(self) -> &'static str {
        match self {
            Self::Randread => "randread",
            Self::Randwrite => "randwrite",
            Self::Randrw => "randrw",
        }
    }
}

/// A way to let the target access the initiator's buffer of one I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Name {
    /// One registration that lives long, its key known to the peer for good: unsafe, the baseline
    Static,
    /// Register and deregister the buffer of each I/O, which nothing else pins
    MrPerIo,
    /// The same where another registration pins the buffer already
    MrPerIoPinned,
    /// The registration cache
    Cache,
    /// Copy through buffers of a pool that is registered once
    Bounce,
    /// A fast registration for each I/O, invalidated by the target
    Frmr,
    /// A grant for each I/O: a type 2 window, invalidated by the target
    Grant,
}

impl Name {
    /// Its name on the command line and for programs.
    pub fn id(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::MrPerIo => "mr-per-io",
            Self::MrPerIoPinned => "mr-per-io-pinned",
            Self::Cache => "cache",
            Self::Bounce => "bounce",
            Self::Frmr => "frmr",
            Self::Grant => "grant",
        }
    }

    /// Its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Static => "static MR (unsafe)",
            Self::MrPerIo => "MR for each I/O",
            Self::MrPerIoPinned => "MR per I/O, pinned",
            Self::Cache => "cache",
            Self::Bounce => "copy through pool",
            Self::Frmr => "FRMR pool",
            Self::Grant => "grant (MW type 2)",
        }
    }
}

/// The smallest step of a disk.
const SECTOR: u64 = 512;
/// The largest block.
const LARGEST_BLOCK: u64 = 16 << 20;

fn parse_block(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes @ SECTOR..=LARGEST_BLOCK if bytes.is_multiple_of(SECTOR) => Ok(bytes),
        _ => Err("a multiple of 512 from 512 to 16m, please".to_owned()),
    }
}

fn parse_disk(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes @ 0x10_0000..=0x100_0000_0000 => Ok(bytes),
        _ => Err("between 1m and 1t, please".to_owned()),
    }
}

fn parse_runtime(text: &str) -> Result<Duration, String> {
    let time = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?,
        Err(_) => humantime::parse_duration(text).map_err(|error| error.to_string())?,
    };
    if time < Duration::from_millis(50) || time > Duration::from_secs(24 * 3600) {
        return Err("between 50ms and 1day, please".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: StorageArgs,
    }

    fn parse(arguments: &[&str]) -> Result<StorageArgs, clap::Error> {
        Line::try_parse_from([&["storage"], arguments].concat()).map(|line| line.args)
    }

    #[test]
    fn fio_s_words() {
        let args = parse(&[
            "--rw",
            "randrw",
            "--bs",
            "4k,128k,4k",
            "--iodepth",
            "8",
            "--numjobs",
            "2",
            "--runtime",
            "0.2",
            "--size",
            "16m",
        ])
        .unwrap();
        assert_eq!(args.rw, Pattern::Randrw);
        assert_eq!(args.block_sizes(), [4 << 10, 128 << 10]);
        assert_eq!((args.iodepth, args.numjobs, args.size), (8, 2, 16 << 20));
        assert_eq!(args.runtime, Duration::from_millis(200));
        assert_eq!(parse(&["--runtime", "1min"]).unwrap().runtime, Duration::from_secs(60));
        assert_eq!(parse(&["--rw=randwrite"]).unwrap().rw.name(), "randwrite");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for arguments in [
            ["--bs", "0"],
            ["--bs", "1000"],
            ["--bs", "32m"],
            ["--bs", "4x"],
            ["--bs", ""],
            ["--bs", "99999999999999999999k"],
            ["--bs", "18446744073709551615g"],
            ["--iodepth", "0"],
            ["--iodepth", "1025"],
            ["--numjobs", "0"],
            ["--runtime", "0"],
            ["--runtime", "-1"],
            ["--runtime", "NaN"],
            ["--runtime", "1e30"],
            ["--rw", "read"],
            ["--strategy", "hope"],
            ["--size", "1k"],
            ["--command-cost", "1s"],
        ] {
            assert!(parse(&arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn strategies_are_those_asked_for_in_the_order_of_the_table() {
        assert_eq!(parse(&[]).unwrap().strategies(), Name::value_variants());
        let args = parse(&["--strategy", "grant,static,grant"]).unwrap();
        assert_eq!(args.strategies(), [Name::Static, Name::Grant]);
    }

    #[test]
    fn ids_are_the_words_of_the_command_line() {
        for name in Name::value_variants() {
            let word = name.to_possible_value().unwrap();
            assert_eq!(word.get_name(), name.id());
        }
    }
}
