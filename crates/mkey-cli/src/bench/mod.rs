//! `mkey bench`: what each registration strategy costs on this machine.
//!
//! * [`args`]: what is asked, [`sizes`] in what words. [`memory`]: how much fits. [`mend`]: what is
//!   not allowed here, and the command that would allow it.
//! * [`measure`]: samples, batches, budgets. [`arena`]: memory, [`populate`] brings it in; [`link`]:
//!   the two queue pairs; [`rows`]: one strategy each.
//! * [`report`]: the figures; [`mechanisms`] and [`claims`] are made from them. [`text`] and
//!   [`table`] print them, [`outputs`] writes what was asked for, as JSON and CSV
//!   by [`export`]; [`facts`]: what they were taken on.
//! * [`registration`]: `mkey bench registration`.
//! * [`storage`]: `mkey bench storage`; [`tensor`]: `mkey bench tensor`.

pub mod arena;
pub mod args;
pub mod claims;
pub mod error;
pub mod export;
pub mod facts;
#[cfg(test)]
pub(crate) mod fake;
pub mod link;
pub mod measure;
pub mod mechanisms;
pub mod memory;
pub mod mend;
pub mod outputs;
pub mod plan;
pub mod populate;
pub mod progress;
pub mod registration;
pub mod report;
pub mod rows;
#[cfg(test)]
pub(crate) mod sample;
pub mod sizes;
pub mod stop;
pub mod storage;
pub mod table;
pub mod tensor;
pub mod text;
pub mod units;

use crate::device;
use crate::exit::End;
use crate::html;
use arena::Arena;
use args::BenchArgs;
use error::RowError;
use mkey_core::data_plane::DataPlane;
use mkey_os::mapping::PageKind;
use report::{IoShape, MemoryFacts, Missing, Report};
use std::io::{self, Write};
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
    match &args.command {
        Some(args::BenchCommand::Registration(args)) => registration::run(args),
        Some(args::BenchCommand::Storage(args)) => storage::run(args),
        Some(args::BenchCommand::Tensor(args)) => tensor::run(args),
        None => strategies(args),
    }
}

/// The bench without a further word.
fn strategies(args: &BenchArgs) -> Result<(), End> {
    args.outputs.check_with(&args.html)?;
    let report = if args.device == device::SOFTWARE { software(args)? } else { real(args)? };
    let written = args.outputs.write(&report, || export::csv(&report), || text::report(&report));
    // A page that can not be written does not keep the tables back.
    html::write(&args.html, || html::bench::page(&report))?;
    written?;
    judge("row", report.rows.iter().map(|row| row.outcome.missing()))
}

/// Measures the software RNIC.
fn software(args: &BenchArgs) -> Result<Report, End> {
    let stop = stop::Stop::on_signals().map_err(End::failed)?;
    let pin = args.pin.unwrap_or(args::Pin::Kernel);
    let device = device::open_software(pin.mode(), args.command_cost, true).map_err(End::failed)?;
    let mut report = measure_device(args, &*device, &stop).map_err(ended)?;
    // What was asked for may have been refused: known only after the registrations.
    device.pin_mode().name().clone_into(&mut report.device.pin);
    Ok(report)
}

/// Measures a real device.
fn real(args: &BenchArgs) -> Result<Report, End> {
    let device = device::open_measured(&args.device, args.pin, args.command_cost)?;
    let stop = stop::Stop::on_signals().map_err(End::failed)?;
    measure_device(args, &*device, &stop).map_err(ended)
}

/// How a run ends, by what its rows lack: `None` where they were measured.
///
/// # Errors
/// `Failed` if not one was measured, or the device failed at one of them.
pub(crate) fn judge<'m>(
    what: &str,
    rows: impl Iterator<Item = Option<&'m Missing>>,
) -> Result<(), End> {
    let rows: Vec<_> = rows.collect();
    if rows.iter().all(Option::is_some) {
        return Err(End::failed(format!("not one {what} could be measured")));
    }
    let mut failed = rows.iter().flatten().filter(|missing| missing.failed);
    match failed.next() {
        None => Ok(()),
        Some(first) => {
            let all = failed.count() + 1;
            Err(End::failed(format!("{all} of {} {what}s failed: {}", rows.len(), first.what)))
        }
    }
}

/// How a measurement that was not done ends the run.
pub(crate) fn ended(error: RowError) -> End {
    match error {
        RowError::Stopped(signal) => End::Signal(signal),
        error => End::failed(error),
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
    link::check_port(device, &source)?;
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
    let mut rows = rows?;
    let mut missing = fit.limits;
    missing.extend(fit.unpinnable);
    for row in &mut rows {
        if let report::Outcome::NotMeasured(missing) = &mut row.outcome {
            mend::on_device(missing, device.name());
        }
    }
    let mut report = Report {
        schema: report::SCHEMA,
        mkey: env!("CARGO_PKG_VERSION").to_owned(),
        device: facts::device(device, args.pin),
        machine: facts::machine(clock),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_failed_ends_the_run_as_failed_and_one_that_is_not_offered_does_not() {
        let lacks = Missing::plain("not offered");
        let failed = Missing { failed: true, ..Missing::plain("flushed") };
        assert_eq!(judge("row", [None, Some(&lacks)].into_iter()), Ok(()));
        let rows = [None, Some(&lacks), Some(&failed), Some(&failed)];
        let end = End::Failed("2 of 4 rows failed: flushed".to_owned());
        assert_eq!(judge("row", rows.into_iter()), Err(end));
        let end = End::Failed("not one row could be measured".to_owned());
        assert_eq!(judge("row", [Some(&lacks)].into_iter()), Err(end));
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
