//! `mkey pcap`: what RDMA traffic a capture holds, and what went wrong in it.
//!
//! From the bytes up: [`mod@file`] (records), [`mod@frame`] (what is around a packet), [`packet`] (what is looked
//! at of it), [`stream`] (one direction of a queue pair) with its [`sequence`] numbers, [`waiting`]
//! requests and remote [`keys`], [`flows`] (all directions, and which two belong together), [`mod@analyse`]
//! (the whole capture). [`live`]: standard input, until it ends or Ctrl-C. Then [`report`], its [`verdict`], and the [`text`].
//!
//! Memory does not grow with the capture: all that is kept has a bound, and a bound that was reached is
//! told with what it makes of the figures.

pub mod analyse;
pub mod file;
pub mod flows;
pub mod frame;
pub mod keys;
pub mod live;
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
use live::Live;
use report::Report;
use signal_hook::consts::SIGINT;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which capture, and what of it.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey pcap trace.pcap                     the summary
  mkey pcap trace.pcapng --top 3           of three pairs, those with trouble first
  mkey pcap --json - trace.pcap | jq '.pairs[].verdict[].text'
  tcpdump -i eth0 -w - udp port 4791 | mkey pcap -    until Ctrl-C
  zcat trace.pcap.gz | mkey pcap -
  mkey run --capture a.pcap ib_write_bw 10.0.0.1; mkey pcap a.pcap")]
pub struct PcapArgs {
    /// The capture, pcap or pcapng; "-" is standard input, which Ctrl-C ends: the report is of what had
    /// come until then. A second Ctrl-C ends at once
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
    let standard_input = args.file.as_os_str() == "-";
    let plain = match standard_input {
        true => "standard input".to_owned(),
        false => args.file.display().to_string(),
    };
    let name = printable(&plain);
    if standard_input && std::io::stdin().is_terminal() {
        let why = "a capture on standard input, please; mkey pcap --help has examples";
        return Err(End::Usage(why.to_owned()));
    }
    outputs::check_apart([("--json", args.json.as_deref())], &args.file)?;
    let stopped = Arc::new(AtomicBool::new(false));
    let Opened { bytes, length } = if standard_input {
        let live = Live::new(Arc::clone(&stopped)).map_err(|error| End::output(&name, &error))?;
        Opened { bytes: Box::new(live), length: 0 }
    } else {
        open(&args.file, &name)?
    };
    let mut capture =
        Capture::new(bytes).map_err(|damage| match stopped.load(Ordering::Relaxed) {
            true => End::Signal(SIGINT),
            false => End::failed(format!("{name}: {damage}")),
        })?;
    let options = Options { port: args.port, check_icrc: !args.no_icrc };
    let bar = progress(length);
    let (mut totals, flows) = analyse(&mut capture, options, |done| bar.set_position(done));
    bar.finish_and_clear();
    if stopped.load(Ordering::Relaxed) {
        // Where it stops in a frame, nothing is wrong with the capture.
        totals.damage.take_if(|damage| damage.what.starts_with("the file is cut"));
        // If standard error is closed there is nobody to tell.
        let _ = writeln!(io::stderr(), "mkey: stopped; this is of what had come until then");
    }
    let mut report = Report::new(plain, totals, &flows);
    let bytes = args.file.as_os_str().as_bytes();
    report.file_name_bytes = args.file.to_str().is_none().then(|| bytes.to_vec());
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
