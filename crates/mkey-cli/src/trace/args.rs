//! The arguments of `mkey trace`.

use crate::bench::export;
use crate::bench::outputs::{check_apart, check_output, same};
use crate::bench::sizes::parse_bytes;
use crate::exit::End;
use crate::lang::LangArg;
use crate::run::args::SoftArgs;
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to run, and what to make of it.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Standard output is the program's own, unless \"-\" is asked for. Signals are passed on to the program, and the
exit status is its own.

Examples:
  mkey trace ./server                       the report follows on standard error when it ends
  mkey trace --duration 30s ./server        after half a minute; the server goes on
  mkey trace --output job.trace ./server    the recording, to be read and replayed elsewhere
  mkey trace --json - --report /dev/null mpirun -n 4 ./job   all processes of a job
  mkey trace --read a.trace --read b.trace  the report of what two hosts have recorded
  mkey trace --devices 1 ./server           on a software RNIC, where there are real ones as well"
)]
pub struct TraceArgs {
    /// Software RNICs that the program finds: mkey0, mkey1, .. [default: 0 if this host has an RDMA
    /// device, else 1]
    #[arg(long, hide_env = true, env = "MKEY_DEVICES", value_name = "N", value_parser = clap::value_parser!(u8).range(0..=64))]
    pub devices: Option<u8>,

    /// What they are like.
    #[command(flatten)]
    pub soft: SoftArgs,

    /// Report after this time, such as 30s; the program goes on and is not watched any more. Until it ends
    /// each of its processes keeps the memory of its recording, at most --limit
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "read")]
    pub duration: Option<Duration>,

    /// Bytes that the recording of one process may take while it runs
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = limit)]
    pub limit: u64,

    /// Report on this recording of --output instead; given several times, on all of them as one job
    #[arg(long, value_name = "FILE", conflicts_with = "program")]
    pub read: Vec<PathBuf>,

    /// Write the recording to FILE, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Write the report to FILE instead of standard error; "-" is standard output
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Write the report as JSON to FILE; "-" is standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the report as a page with plots to FILE
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// The language of the report
    #[command(flatten)]
    pub lang: LangArg,

    /// The program and its arguments; what it starts is recorded, too
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<OsString>,
}

impl TraceArgs {
    /// Refuses outputs that could not be written, or not all of them, before anything is run or read.
    ///
    /// # Errors
    /// `Usage` for two outputs to one place, or one that is read; `Failed` for one that can not be written.
    pub fn check_outputs(&self) -> Result<(), End> {
        let outputs = [
            ("--output", &self.output),
            ("--report", &self.report),
            ("--json", &self.json),
            ("--html", &self.html),
        ];
        let named =
            || outputs.iter().filter_map(|(option, path)| Some((*option, path.as_deref()?)));
        let mut to_stdout = None;
        let mut before: Vec<(&str, &Path)> = Vec::new();
        for (option, path) in named() {
            if export::is_stdout(path) {
                match to_stdout.replace(option) {
                    _ if option == "--html" => {
                        return Err(End::Usage("--html needs the name of a file".to_owned()));
                    }
                    Some(other) => {
                        let why = format!("{other} and {option}: only one can be standard output");
                        return Err(End::Usage(why));
                    }
                    None => continue,
                }
            }
            if let Some((other, _)) = before.iter().find(|(_, other)| same(other, path)) {
                let path = path.display();
                return Err(End::Usage(format!("{other} and {option} are the same file: {path}")));
            }
            check_output(path).map_err(|error| End::output(path.display(), &error))?;
            before.push((option, path));
        }
        let all = || named().map(|(option, path)| (option, Some(path)));
        self.read.iter().try_for_each(|input| check_apart(all(), input))
    }
}

/// Time in words of units.
fn duration(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match time.is_zero() {
        true => Err("nothing would be recorded".to_owned()),
        false => Ok(time),
    }
}

/// Room for a header and some records, at the least.
fn limit(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 1 << 20;
    match parse_bytes(text)? {
        bytes if bytes < LEAST => Err("less than 1MiB holds next to nothing".to_owned()),
        bytes => Ok(bytes),
    }
}
