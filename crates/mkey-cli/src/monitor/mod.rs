//! `mkey monitor`: what registration and the network do on this host, as it goes on.
//!
//! * [`sample`]: one look at everything, and two compared. [`files`], [`kernel`]: where it is read and
//!   asked. [`pinned`], [`ports`]: processes; devices. [`told`]: what could not be read says why.
//! * [`mod@counter`]: counters and their rates. [`known`]: what they mean. [`judge`]: what is worth a
//!   look, and what explains it.
//!   [`unread`]: what could not be read.
//! * [`view`]: the tables. [`text`] prints them, [`screen`] shows them, [`serve`] is for Prometheus.

pub mod counter;
pub mod files;
pub mod judge;
pub mod kernel;
pub mod known;
pub mod pinned;
pub mod ports;
pub mod sample;
pub mod screen;
pub mod serve;
pub mod text;
pub mod told;
pub mod unread;
pub mod view;

use crate::cli::print;
use crate::exit::End;
use crate::lang::{Lang, LangArg};
use clap::Args;
use sample::{Host, Sample};
use serde::Serialize;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// What to watch, and how it is shown.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  mkey monitor                              a dashboard; q leaves it, ? shows its keys
  mkey monitor --once                       the same as text: two looks a second apart
  mkey monitor --device mlx5_0 --interval 5s
  mkey monitor --once --json | jq '.findings'
  mkey monitor --json > log                 a line of JSON every second
  mkey monitor --prometheus 127.0.0.1:9180  OpenMetrics at http://127.0.0.1:9180/metrics")]
pub struct MonitorArgs {
    /// The RDMA device to watch; all if none is named
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,

    /// Time between two looks, as in 500ms or 5s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub interval: Duration,

    /// Look twice, print it as text, and end
    #[arg(long)]
    pub once: bool,

    /// Print JSON: one object with --once, else one object a line at every look
    #[arg(long)]
    pub json: bool,

    /// Serve OpenMetrics at this address (GET /metrics) until a signal ends it; port 0 takes a free
    /// one. The address is printed. Who can reach it sees names of processes
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["once", "json"])]
    pub prometheus: Option<SocketAddr>,

    /// Show at most so many processes and regions in each table
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub top: u16,

    /// Read /proc and /sys below DIR instead, as gathered from another host. What it can not hold
    /// (objects, regions, statistics of interfaces) is read from mkey-monitor.json there
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,

    /// The language
    #[command(flatten)]
    pub lang: LangArg,
}

/// What is written as JSON.
#[derive(Debug, Serialize)]
struct Report<'s> {
    #[serde(flatten)]
    sample: &'s Sample,
    findings: Vec<judge::Finding>,
}

/// Watches.
///
/// # Errors
/// [`End`]: how the run ended before it was done; [`End::Usage`] for a device that is not there.
pub fn run(args: &MonitorArgs) -> Result<(), End> {
    let lang = args.lang.lang();
    let no_root = |error| End::Usage(format!("{}: {error}", args.root.display()));
    let mut host = Host::new(&args.root, args.device.as_deref()).map_err(no_root)?;
    check(args, &host)?;
    if let Some(address) = args.prometheus {
        return serve::run(address, host, args.interval);
    }
    let begun = Instant::now();
    if args.once {
        let sample = looked_twice(&mut host, args.interval, begun);
        return if args.json {
            let report = Report { sample: &sample, findings: judge::findings(&sample, lang) };
            print(&crate::bench::export::json(&report)?)
        } else {
            print(text::report(&sample, args.top.into(), lang).as_bytes())
        };
    }
    if args.json {
        return lines(&mut host, args.interval, begun, lang);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let why = "the dashboard needs a terminal; --once prints it as text, --json for programs, \
                   --prometheus serves it";
        return Err(End::Usage(why.to_owned()));
    }
    screen::run(host, args.interval, args.top.into(), lang)
}

/// A device that is asked for has to be there.
fn check(args: &MonitorArgs, host: &Host) -> Result<(), End> {
    let Some(wanted) = &args.device else { return Ok(()) };
    let names: Vec<String> =
        ports::names(host.files()).iter().map(|name| files::shown(name)).collect();
    if names.contains(wanted) {
        return Ok(());
    }
    let there = if names.is_empty() { "no RDMA device".to_owned() } else { names.join(", ") };
    Err(End::Usage(format!("no device {wanted:?} here; the kernel has: {there}")))
}

fn looked_twice(host: &mut Host, interval: Duration, begun: Instant) -> Sample {
    let first = host.look(begun.elapsed());
    thread::sleep(interval.saturating_sub(begun.elapsed()));
    let mut second = host.look(begun.elapsed());
    second.compare(&first);
    second
}

/// A line of JSON at every look but the first.
fn lines(host: &mut Host, interval: Duration, begun: Instant, lang: Lang) -> Result<(), End> {
    let mut before = host.look(begun.elapsed());
    let mut due = interval;
    loop {
        thread::sleep(due.saturating_sub(begun.elapsed()));
        // After a stop, such as of the whole system, what was missed is not made up for.
        due = due.max(begun.elapsed()).saturating_add(interval);
        let mut now = host.look(begun.elapsed());
        now.compare(&before);
        let report = Report { sample: &now, findings: judge::findings(&now, lang) };
        print(&crate::bench::export::json_line(&report)?)?;
        before = now;
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    // Each look reads a few hundred files.
    if interval < Duration::from_millis(100) || interval > Duration::from_secs(24 * 60 * 60) {
        return Err("from 100ms to 1day, please".to_owned());
    }
    Ok(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        assert_eq!(parse_interval("500ms"), Ok(Duration::from_millis(500)));
        for odd in ["0s", "99ms", "2days", "1", ""] {
            assert!(parse_interval(odd).is_err(), "{odd}");
        }
    }
}
