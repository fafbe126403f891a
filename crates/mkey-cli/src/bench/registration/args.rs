//! The arguments of `mkey bench registration`.

use crate::bench::args::{Pin, parse_cost, parse_time};
use crate::bench::outputs::Outputs;
use crate::bench::sizes::{Sizes, parse_bytes, parse_sizes};
use crate::device;
use clap::{Args, ValueEnum};
use mkey_os::mapping::PageKind;
use std::path::PathBuf;
use std::time::Duration;

/// What to measure, how long, and where the figures go.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey bench registration                          4 KiB to 1 GiB on 4 KiB, transparent and 2 MiB pages
  sudo mkey bench registration --stages            the same with the kernel's own times
  sudo mkey bench registration --iommu 6           the same memory behind an IOMMU, by VFIO group 6
  mkey bench registration --sizes 1MiB..64MiB --pages 4KiB,2MiB --time 5s
  mkey bench registration --sizes 4KiB,1MiB --samples 1000
  mkey bench registration --command-cost 16us      with a declared firmware command
  mkey bench registration --html sweep.html --csv sweep.csv
  mkey bench registration --json - | mkey model --from -")]
pub struct RegistrationArgs {
    /// The sweep
    #[command(flatten)]
    pub sweep: SweepArgs,

    /// Time for all measurements, as in 5s or 1min; each size is measured at least three times
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    pub time: Duration,

    /// Registrations of each size, in place of a time
    #[arg(long, value_name = "N", conflicts_with = "time", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub samples: Option<u64>,

    /// Where the figures go
    #[command(flatten)]
    pub outputs: Outputs,

    /// Write a page with tables and plots to FILE
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What a sweep goes over.
#[derive(Args, Clone, Debug)]
pub struct SweepArgs {
    /// The device to measure; `mkey devices` lists them
    #[arg(long, value_name = "NAME", default_value = device::SOFTWARE)]
    pub device: String,

    /// Sizes: single ones, and ranges by powers of two, as in 4KiB..1GiB or 4KiB,64KiB,1GiB..8GiB.
    /// On each kind of page those of whole pages are measured
    #[arg(long, value_name = "SIZES", default_value = "4KiB..1GiB",
          value_parser = |text: &str| parse_sizes(text, parse_size))]
    pub sizes: Sizes,

    /// Kinds of pages: 4KiB, thp, 2MiB, 1GiB
    #[arg(
        long,
        value_name = "PAGES",
        value_enum,
        ignore_case = true,
        value_delimiter = ',',
        default_value = "4KiB,thp,2MiB"
    )]
    pub pages: Vec<Page>,

    /// Time the functions of the kernel that a registration runs through, by kprobes; needs root.
    /// Once more beside the other figures, since probes cost time themselves
    #[arg(long)]
    pub stages: bool,

    /// Map the same memory through the IOMMU of this VFIO group, too: the N of /dev/vfio/N, with
    /// its devices bound to vfio-pci; needs root
    #[arg(long, value_name = "GROUP")]
    pub iommu: Option<u32>,

    /// Declared time of one device command, as in 16us; added to each registration and
    /// deregistration. Rows are then marked "simulated"
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_cost)]
    pub command_cost: Duration,

    /// How the software RNIC pins pages [default: kernel]
    #[arg(long, value_enum)]
    pub pin: Option<Pin>,

    /// Reserve no huge pages; use those that are free
    #[arg(long)]
    pub no_reserve: bool,
}

/// A kind of pages, as it is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Page {
    /// Base pages
    #[value(name = "4KiB")]
    Base,
    /// Transparent huge pages of 2 MiB
    #[value(name = "thp")]
    Thp,
    /// Huge pages of 2 MiB from the pool
    #[value(name = "2MiB")]
    Huge2M,
    /// Huge pages of 1 GiB from the pool
    #[value(name = "1GiB")]
    Huge1G,
}

impl Page {
    /// The operating system's word for it.
    pub fn kind(self) -> PageKind {
        match self {
            Self::Base => PageKind::Base,
            Self::Thp => PageKind::Thp,
            Self::Huge2M => PageKind::Huge2M,
            Self::Huge1G => PageKind::Huge1G,
        }
    }
}

impl SweepArgs {
    /// The kinds of pages, each once.
    pub fn kinds(&self) -> Vec<PageKind> {
        let mut kinds = Vec::with_capacity(self.pages.len());
        for page in &self.pages {
            if !kinds.contains(&page.kind()) {
                kinds.push(page.kind());
            }
        }
        kinds
    }
}

/// The least and the most that can be registered at once here.
const SIZES: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 40;

fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if SIZES.contains(&bytes) {
        Ok(bytes)
    } else {
        Err("sizes are between 4KiB and 1TiB".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_samples_is_in_place_of_a_time() {
        #[derive(Debug, clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: RegistrationArgs,
        }
        use clap::Parser;
        let parsed = |words: &[&str]| Cli::try_parse_from([&["mkey"], words].concat());
        assert_eq!(parsed(&["--samples", "3"]).unwrap().args.samples, Some(3));
        assert_eq!(parsed(&["--time", "1s"]).unwrap().args.samples, None);
        let refused = parsed(&["--samples", "3", "--time", "1s"]).unwrap_err();
        assert_eq!(refused.kind(), clap::error::ErrorKind::ArgumentConflict);
    }

    #[test]
    fn ranges_and_single_sizes() {
        let parsed = |text| parse_sizes(text, parse_size).map(|sizes| sizes.0);
        assert_eq!(parsed("4KiB..32KiB"), Ok(vec![4096, 8192, 16384, 32768]));
        assert_eq!(parsed("1MiB,4KiB..10KiB,4KiB"), Ok(vec![4096, 8192, 1 << 20]));
        assert_eq!(parsed("3MiB"), Ok(vec![3 << 20]));
        assert_eq!(parsed("4KiB..1GiB").unwrap().len(), 19);
        assert_eq!(parsed("4KiB..1TiB").unwrap().len(), 29);
        for bad in ["", ",", "x", "1GiB..4KiB", "1", "2TiB", "4KiB..", "..", "4KiB..8KiB..1MiB"] {
            assert!(parse_sizes(bad, parse_size).is_err(), "{bad}");
        }
    }
}
