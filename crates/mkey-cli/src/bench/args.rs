//! The arguments of `mkey bench`.

use super::outputs::Outputs;
use super::registration::args::RegistrationArgs;
use super::sizes::parse_bytes;
use super::storage::args::StorageArgs;
use super::tensor::args::TensorArgs;
use crate::device;
use clap::{Args, Subcommand, ValueEnum};
use mkey_soft::PinMode;
use std::path::PathBuf;
use std::time::Duration;

/// What to measure, how long, and where the figures go.
#[derive(Args, Clone, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  mkey bench                      the tables
  sudo mkey bench                 the same with huge pages reserved for the while
  mkey bench --command-cost 16us  add a declared firmware command to each registration
  mkey bench --json run.json      the tables, and all figures in a file
  mkey bench --csv - > run.csv    one line a row, nothing else on standard output
  mkey bench --device mlx5_0      a device of this machine
  mkey bench --memory 64MiB --time 5s  a quick look
  mkey bench --html run.html      the tables, and a page with plots to show
  mkey bench registration         what registering costs by size and page
  mkey bench storage --bs 4k,128k what a storage target's I/O costs, in fio's words
  mkey bench tensor               what registering large buffers costs that are pushed to a peer
  mkey bench | less -S            on a terminal of less than 120 columns"
)]
pub struct BenchArgs {
    /// Something else to measure
    #[command(subcommand)]
    pub command: Option<BenchCommand>,

    /// The device to measure; `mkey devices` lists them
    #[arg(long, value_name = "NAME", default_value = device::SOFTWARE)]
    pub device: String,

    /// Memory to register, as in 64MiB or 1GiB; less is used, and said, where it does not fit
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    pub memory: u64,

    /// Time for all measurements, as in 5s or 1min; each row is measured at least once
    #[arg(long, value_name = "TIME", default_value = "40s", value_parser = parse_time)]
    pub time: Duration,

    /// Declared time of one device command, as in 16us; added to each registration,
    /// deregistration and allocation of windows and fast-registration regions, never to posted
    /// work. Rows are then marked "simulated"
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

    /// Write a page with tables and plots to FILE
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What else can be measured.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure what registering and deregistering cost, by size and page
    ///
    /// A sweep over sizes on each kind of page, with the device's own terms where it can tell
    /// them, and with --stages the kernel's. Huge pages are reserved where the user may, and given
    /// back at the end, also after Ctrl-C.
    Registration(Box<RegistrationArgs>),
    /// Measure what a storage target's I/O costs by each strategy, in fio's words
    ///
    /// An initiator asks, a target moves the data by RDMA between its disk in memory and the
    /// initiator's buffer, both in this process, over the software RNIC unless `--device` names
    /// another: no NIC is needed and no figure is that of a NIC that was not measured. Every I/O is checked.
    Storage(Box<StorageArgs>),
    /// Measure the share of registration when large buffers are pushed again and again
    ///
    /// Buffers are pushed to a peer by RDMA WRITE, cold and warm, both in this process, over
    /// the software RNIC unless `--device` names another: no NIC is needed and no figure is that of
    /// a NIC that was not measured. Huge pages are reserved where
    /// the user may, and given back at the end, also after Ctrl-C.
    Tensor(Box<TensorArgs>),
}

/// How pages of registered memory are held in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pin {
    /// Pinned by the kernel, as for a NIC (io_uring registered buffers); where it refuses, mlock,
    /// then none, and the output says so
    Kernel,
    /// Locked: resident while mapped
    Mlock,
    /// Not held
    None,
}

impl Pin {
    /// The device's word for it.
    pub fn mode(self) -> PinMode {
        match self {
            Self::Kernel => PinMode::Kernel,
            Self::Mlock => PinMode::Mlock,
            Self::None => PinMode::None,
        }
    }

    /// Its name in outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Mlock => "mlock",
            Self::None => "none",
        }
    }
}

/// The least memory that rows can be told apart with.
const LEAST_MEMORY: u64 = 2 << 20;

fn parse_size(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes @ LEAST_MEMORY.. if bytes <= 1 << 40 => Ok(bytes),
        _ => Err("between 2MiB and 1TiB, please".to_owned()),
    }
}

/// The values asked for, each once, in the order of their declaration; all if none was.
pub(crate) fn chosen<T: ValueEnum + PartialEq>(asked: &[T]) -> Vec<T> {
    let is_asked = |value: &&T| asked.is_empty() || asked.contains(value);
    T::value_variants().iter().filter(is_asked).cloned().collect()
}

/// The time of a measurement.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time < Duration::from_millis(100) || time > Duration::from_secs(24 * 3600) {
        return Err("between 100ms and 1day, please".to_owned());
    }
    Ok(time)
}

/// The declared time of a device command.
pub(crate) fn parse_cost(text: &str) -> Result<Duration, String> {
    let cost = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    // The row that registers for each I/O takes two commands for each of 128 I/Os, several times:
    // with much more than this the bench would take minutes, whatever its time is.
    if cost > Duration::from_millis(10) {
        return Err("10ms at most, please: no device command takes longer".to_owned());
    }
    Ok(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("2097152"), Ok(2 << 20));
        for bad in ["", "x", "1", "0", "-1GiB", "2TiB", "99999999999999999999GiB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(parse_time("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_time("1min"), Ok(Duration::from_secs(60)));
        for bad in ["", "5", "0s", "1ms", "99999days", "-1s"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn command_costs() {
        assert_eq!(parse_cost("16us"), Ok(Duration::from_micros(16)));
        assert_eq!(parse_cost("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(parse_cost("0s"), Ok(Duration::ZERO));
        assert_eq!(parse_cost("1ms 500us"), Ok(Duration::from_micros(1500)));
        for bad in ["", "16", "1s", "11ms", "us", "-1us", "999999999999999999999us"] {
            assert!(parse_cost(bad).is_err(), "{bad}");
        }
    }
}
