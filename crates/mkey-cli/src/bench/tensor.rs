//! `mkey bench tensor`: large buffers pushed to a peer again and again, and the share of the time
//! that their registration takes.
//!
//! * [`args`]: what is asked. [`plan`]: all rows. [`link`]: the two ends; [`strategy`]: how the
//!   buffer is registered.
//! * [`report`]: the figures; [`text`] and [`export`] write them.

pub mod args;
pub mod export;
pub mod link;
pub mod plan;
pub mod report;
#[cfg(test)]
pub(crate) mod sample;
pub mod strategy;
pub mod text;

use super::progress::Progress;
use super::stop::Stop;
use super::{ended, facts, judge, measure, memory};
use crate::device::Opened;
use crate::exit::End;
use args::TensorArgs;
use report::Report;
use std::time::Instant;

/// Measures, and writes what was asked for.
///
/// # Errors
/// [`End`]: how the run ended before it was done.
pub fn run(args: &TensorArgs) -> Result<(), End> {
    args.outputs.check_with(&None)?;
    let start = Instant::now();
    let stop = Stop::on_signals().map_err(End::failed)?;
    let opened = Opened::open(&args.device, args.pin, args.command_cost)?;
    let device = &opened.device;
    super::storage::side::check_port(device).map_err(ended)?;
    let progress = Progress::new(args.sizes.0.len().saturating_mul(args.strategies().len()));
    let bounds = memory::bounds();
    let plan = plan::Plan { device, args, bounds, stop: &stop, progress: &progress };
    let rows = plan::measure(&plan);
    progress.finish();
    let rows = rows.map_err(ended)?;
    let mut report = Report {
        schema: report::SCHEMA,
        mkey: env!("CARGO_PKG_VERSION").to_owned(),
        device: facts::device(&**device.control(), args.pin),
        machine: facts::machine(measure::clock_cost()),
        chunk: args.chunk,
        landing: link::landing(args.chunk),
        iterations: u64::from(args.iterations),
        command_cost_ns: measure::nanoseconds(args.command_cost),
        rows,
        seconds: (start.elapsed().as_secs_f64() * 10.0).round() / 10.0,
    };
    // What was asked for may have been refused: known only after the registrations.
    if let Some(pin) = opened.pin_mode() {
        pin.name().clone_into(&mut report.device.pin);
    }
    args.outputs.write(&report, || export::csv(&report), || text::report(&report))?;
    judge("row", report.rows.iter().map(|row| row.outcome.missing()))
}
