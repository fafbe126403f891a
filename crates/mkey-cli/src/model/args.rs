//! The arguments of `mkey model`.

use crate::bench::args::parse_time;
use crate::bench::registration::args::SweepArgs;
use crate::bench::sizes::parse_bytes;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// What to fit, what to predict, and where it goes.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey model                               measure, fit, predict 64 GiB
  mkey model --predict 1GiB,256GiB,1TiB --pages 4KiB,2MiB
  mkey model --from sweep.json             fit what mkey bench registration --json wrote
  mkey bench registration --json - | mkey model --from -
  mkey model --command-cost 16us           with a declared firmware command
  mkey model --html model.html --json model.json")]
pub struct ModelArgs {
    /// Fit this sweep, which mkey bench registration --json or mkey model --json wrote, in place of
    /// measuring one; "-" is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "device", "sizes", "pages", "stages", "iommu", "command_cost", "pin", "no_reserve", "time",
    ])]
    pub from: Option<PathBuf>,

    /// Sizes to predict, as in 64GiB or 1GiB,1TiB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "64GiB",
          value_parser = parse_predicted)]
    pub predict: Vec<u64>,

    /// The sweep to measure
    #[command(flatten)]
    pub sweep: SweepArgs,

    /// Time for the sweep, as in 5s or 1min
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = parse_time)]
    pub time: Duration,

    /// Write the model and its sweep as JSON to FILE; "-" is standard output, without the tables
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a page with tables and plots to FILE
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

fn parse_predicted(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if (4 << 10..=1 << 50).contains(&bytes) {
        Ok(bytes)
    } else {
        Err("between 4KiB and 1PiB, please".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicted_sizes() {
        assert_eq!(parse_predicted("64GiB"), Ok(64 << 30));
        assert_eq!(parse_predicted("1PiB"), Ok(1 << 50));
        for bad in ["", "0", "1KiB", "2PiB", "x"] {
            assert!(parse_predicted(bad).is_err(), "{bad}");
        }
    }
}
