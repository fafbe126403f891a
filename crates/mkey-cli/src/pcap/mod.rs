//! `mkey pcap`: what RDMA traffic a capture holds, and what went wrong in it.
//!
//! From the bytes up: [`mod@file`] (records), [`mod@frame`] (what is around a packet), [`packet`] (what is looked
//! at of it), [`stream`] (one direction of a queue pair) with its [`sequence`] numbers, [`waiting`]
//! requests and remote [`keys`], [`flows`] (all directions, and which two belong together), [`mod@analyse`]
//! (the whole capture). Then [`report`], its [`verdict`], and the [`text`].
//!
//! Memory does not grow with the capture: all that is kept has a bound, and a bound that was reached is
//! told with what it makes of the figures.

pub mod analyse;
pub mod file;
pub mod flows;
pub mod frame;
pub mod keys;
pub mod packet;
pub mod report;
pub mod sequence;
pub mod stream;
pub mod text;
pub mod verdict;
pub mod waiting;

use crate::bench::export;
use crate::bench::outputs;
use crate::exit::End;
use crate::input::{Opened, open};
use crate::model::check::printable;
use analyse::{Options, analyse};
use clap::Args;
use file::Capture;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::Report;
use std::io::IsTerminal;
use std::path::PathBuf;

/// Which capture, and what of it.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey pcap trace.pcap                     the summary
  mkey pcap trace.pcapng --top 3           of three pairs, those with trouble first
  mkey pcap --json - trace.pcap | jq '.pairs[].verdict[].text'
  tcpdump -i eth0 -w - -c 100000 udp port 4791 | mkey pcap -
  zcat trace.pcap.gz | mkey pcap -
  mkey run --capture a.pcap ib_write_bw 10.0.0.1; mkey pcap a.pcap")]
pub struct PcapArgs {
    /// The capture, pcap or pcapng; "-" is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Show at most so many pairs
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,

    /// UDP port that RoCEv2 packets are sent to
    #[arg(long, value_name = "PORT", default_value_t = mkey_wire::udp::ROCE_PORT,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// Check no ICRC: for captures taken before the NIC wrote them. A packet with a wrong one is followed no
    /// further otherwise
    #[arg(long)]
    pub no_icrc: bool,

    /// Write all figures as JSON to FILE; "-" is standard output, without the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Reads a capture and says what is in it.
///
/// # Errors
/// [`End`]: how the run ended before it was done. `Failed` for a file that can not be read to its end: what
/// was read until there is given out first.
pub fn run(args: &PcapArgs) -> Result<(), End> {
    let name = match args.file.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => printable(&args.file.display().to_string()),
    };
    if args.file.as_os_str() == "-" && std::io::stdin().is_terminal() {
        let why = "a capture on standard input, please; mkey pcap --help has examples";
        return Err(End::Usage(why.to_owned()));
    }
    outputs::check_apart([("--json", args.json.as_deref())], &args.file)?;
    let Opened { bytes, length } = open(&args.file, &name)?;
    let mut capture =
        Capture::new(bytes).map_err(|damage| End::failed(format!("{name}: {damage}")))?;
    let options = Options { port: args.port, check_icrc: !args.no_icrc };
    let bar = progress(length);
    let (totals, flows) = analyse(&mut capture, options, |done| bar.set_position(done));
    bar.finish_and_clear();
    let report = Report::new(name.clone(), totals, &flows);
    let written = match &args.json {
        Some(path) => export::write(path, &export::json(&report)?),
        None => Ok(()),
    };
    let to_stdout = args.json.as_deref().is_some_and(export::is_stdout);
    let printed = match to_stdout {
        true => Ok(()),
        false => crate::cli::print(text::text(&report, args.top).as_bytes()),
    };
    // A reader that went away is no failure, a file that is damaged is one.
    if let (Some(damage), Err(End::ClosedPipe) | Ok(())) = (&report.damage, &printed) {
        written.and(Err(End::failed(format!("{name}: {damage}"))))
    } else {
        written.and(printed)
    }
}

/// A bar over the bytes of the file; on a terminal only, on standard error.
fn progress(length: u64) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(8);
    let bar = match length {
        0 => ProgressBar::with_draw_target(None, target),
        length => ProgressBar::with_draw_target(Some(length), target),
    };
    let template = match length {
        0 => "{bytes}, {binary_bytes_per_sec}",
        _ => "{bar:30} {percent:>3} %  {binary_bytes_per_sec}",
    };
    // A template that did not parse would leave the default style.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
