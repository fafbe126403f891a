//! `mkey bench`: what each registration strategy costs on this machine.
//!
//! * [`args`]: what is asked. [`memory`]: how much fits. [`mend`]: what is not allowed here, and
//!   the command that would allow it.
//! * [`measure`]: samples, batches, budgets. [`arena`]: memory; [`link`]: the two queue pairs;
//!   [`rows`]: one strategy each.
//! * [`report`]: the figures; [`mechanisms`] and [`claims`] are made from them. [`text`] and
//!   [`table`] print them, [`export`] writes JSON and CSV.

pub mod arena;
pub mod args;
pub mod claims;
pub mod error;
pub mod export;
#[cfg(test)]
pub(crate) mod fake;
pub mod link;
pub mod measure;
pub mod mechanisms;
pub mod memory;
pub mod mend;
pub mod plan;
pub mod progress;
pub mod report;
pub mod rows;
#[cfg(test)]
pub(crate) mod sample;
pub mod stop;
pub mod table;
pub mod text;
pub mod units;

use crate::device;
use crate::exit::End;
use arena::Arena;
use args::BenchArgs;
use error::RowError;
use mkey_core::data_plane::DataPlane;
use mkey_os::mapping::PageKind;
use report::{DeviceFacts, IoShape, Machine, MemoryFacts, Missing, Report};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Instant;

/// Bytes of one I/O.
const IO_BYTES: u64 = 64 << 10;
/// Bytes that I/Os go over: within the last-level cache, so that what a strategy adds shows beside
/// the copy and does not drown in memory latency.
const WORKING_SET: u64 = 8 << 20;

/// Measures, and writes what was asked for.
///
/// # Errors
/// [`End`]: how the run ended before it was done.
pub fn run(args: &BenchArgs) -> Result<(), End> {
    check_outputs(args)?;
    let report = if args.device == device::SOFTWARE { software(args)? } else { real(args)? };
    let to_stdout = |path: &std::path::PathBuf| export::is_stdout(path);
    if let Some(path) = &args.json {
        export::write(path, &export::json(&report)?)?;
    }
    if let Some(path) = &args.csv {
        export::write(path, &export::csv(&report)?)?;
    }
    if !args.json.as_ref().is_some_and(to_stdout) && !args.csv.as_ref().is_some_and(to_stdout) {
        crate::cli::print(text::report(&report).as_bytes())?;
    }
    if report.rows.iter().all(|row| row.figures().is_none()) {
        return Err(End::failed("not one row could be measured"));
    }
    Ok(())
}

/// Measures the software RNIC.
fn software(args: &BenchArgs) -> Result<Report, End> {
    let stop = stop::Stop::on_signals().map_err(End::failed)?;
    let pin = args.pin.unwrap_or(args::Pin::Kernel);
    let device = device::open_software(pin.mode(), args.command_cost).map_err(End::failed)?;
    let mut report = measure_device(args, &*device, &stop).map_err(ended)?;
    // What was asked for may have been refused: known only after the registrations.
    device.pin_mode().name().clone_into(&mut report.device.pin);
    Ok(report)
}

/// Measures a real device.
fn real(args: &BenchArgs) -> Result<Report, End> {
    if args.pin.is_some() || !args.command_cost.is_zero() {
        let software = device::SOFTWARE;
        return Err(End::Usage(format!("--pin and --command-cost are for {software} only")));
    }
    let device = device::open_real(&args.device).map_err(|error| {
        End::Usage(format!("no device {:?}: {error}; there are:\n{}", args.device, device::list()))
    })?;
    let stop = stop::Stop::on_signals().map_err(End::failed)?;
    measure_device(args, &*device, &stop).map_err(ended)
}

/// How a measurement that was not done ends the run.
fn ended(error: RowError) -> End {
    match error {
        RowError::Stopped(signal) => End::Signal(signal),
        error => End::failed(error),
    }
}

/// Refuses what could not be written after the measurement.
fn check_outputs(args: &BenchArgs) -> Result<(), End> {
    let outputs = [&args.json, &args.csv].into_iter().flatten();
    let (to_stdout, files): (Vec<_>, Vec<_>) = outputs.partition(|path| export::is_stdout(path));
    if to_stdout.len() > 1 {
        return Err(End::Usage("only one of --json and --csv can be standard output".to_owned()));
    }
    for path in files {
        check_output(path).map_err(|error| End::output(path.display(), &error))?;
    }
    Ok(())
}

/// Whether a file could be written. One that is there stays as it is, and none is left behind: an
/// interrupted run has no report.
fn check_output(path: &Path) -> io::Result<()> {
    match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return opened.map(drop),
    }
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path),
        // A symbolic link to a file that is still to be made.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn measure_device<D: DataPlane>(
    args: &BenchArgs,
    device: &D,
    stop: &stop::Stop,
) -> Result<Report, RowError> {
    let start = Instant::now();
    let fit = memory::fit(args.memory, &memory::bounds());
    if let Some(limit) = fit.limits.last() {
        warn(&mut io::stderr(), args.memory, limit);
    }
    let io =
        IoShape { bytes: IO_BYTES, working_set: WORKING_SET.min(fit.bytes), depth: link::MOST };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let clock = measure::clock_cost();
    let source = Arena::map(IO_BYTES, PageKind::Base)?;
    source.fill(rows::SOURCE_BYTE);
    let progress = progress::Progress::new(plan::ROWS.len());
    let context = rows::Context {
        device,
        source: &source,
        memory: fit.bytes,
        io,
        threads: cores,
        clock,
        stop,
        progress: &progress,
    };
    let options = plan::Options {
        time: args.time,
        reserve: !args.no_reserve,
        simulated: !args.command_cost.is_zero(),
        limit: fit.limits.last().cloned(),
        unpinnable: fit.unpinnable.clone(),
    };
    let rows = plan::measure(&context, &options);
    progress.finish();
    let rows = rows?;
    let capabilities = device.capabilities();
    let mut missing = fit.limits;
    missing.extend(fit.unpinnable);
    let mut report = Report {
        schema: report::SCHEMA,
        mkey: env!("CARGO_PKG_VERSION").to_owned(),
        device: DeviceFacts {
            name: device.name().to_owned(),
            driver: capabilities.driver.clone(),
            software: capabilities.software,
            // The kernel pins for a real device.
            pin: args.pin.unwrap_or(args::Pin::Kernel).name().to_owned(),
            pin_asked: args.pin.unwrap_or(args::Pin::Kernel).name().to_owned(),
            notes: device.notes(),
        },
        machine: Machine {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpu: cpu_model(),
            cores,
            clock_ns: measure::nanoseconds(clock),
        },
        memory: MemoryFacts { asked: args.memory, bytes: fit.bytes },
        io,
        command_cost_ns: measure::nanoseconds(args.command_cost),
        rows,
        mechanisms: Vec::new(),
        claims: Vec::new(),
        missing,
        seconds: 0.0,
    };
    report.mechanisms = mechanisms::place(&report);
    report.claims = claims::beside(&report);
    report.seconds = (start.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    Ok(report)
}

/// Says, before the long measurement, that less memory is registered than was asked for.
fn warn(out: &mut impl Write, asked: u64, limit: &Missing) {
    let command = limit.command.as_ref().map_or(String::new(), |command| format!("\n  {command}"));
    // If standard error is closed there is nobody to tell; the report says it again.
    let _ = writeln!(out, "mkey: {} asked for: {}{command}", units::size(asked), limit.what);
}

fn cpu_model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checking_an_output_makes_no_file_and_changes_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        check_output(&path).unwrap();
        assert!(!path.exists());
        fs::write(&path, "earlier").unwrap();
        check_output(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "earlier");
        let nowhere = folder.path().join("none/run.json");
        assert_eq!(check_output(&nowhere).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn the_cap_is_said_with_its_command() {
        let mut out = Vec::new();
        warn(&mut out, 1 << 30, &Missing::with("8 MiB may be locked: 6 MiB are registered", "do"));
        let said = String::from_utf8(out).unwrap();
        assert_eq!(
            said,
            "mkey: 1 GiB asked for: 8 MiB may be locked: 6 MiB are registered\n  do\n"
        );
    }
}
