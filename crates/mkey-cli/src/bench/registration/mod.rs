//! `mkey bench registration`: what registering and deregistering cost, by size and page.
//!
//! * [`args`]: what is asked. [`sweep`]: sizes measured in rounds.
//! * [`stages`]: the kernel's own split; [`chains`]: its functions by driver.
//! * [`iommu`]: the same memory behind an IOMMU.
//! * [`report`]: the figures; [`text`] prints them, [`export`] writes CSV.

pub mod args;
pub mod chains;
pub mod export;
pub mod iommu;
pub mod report;
#[cfg(test)]
pub(crate) mod sample;
pub mod stages;
pub mod sweep;
#[cfg(test)]
mod tests;
pub mod text;

use super::args::Pin;
use super::error::RowError;
use super::progress::Progress;
use super::report::{Missing, Outcome};
use super::stop::Stop;
use super::{ended, facts, judge, measure, mend};
use crate::device;
use crate::exit::End;
use crate::html;
use args::{RegistrationArgs, SweepArgs};
use iommu::Mapper;
use mkey_core::device::Device;
use report::Sweep;
use std::io::{self, Write};
use std::time::Instant;
use sweep::{Beside, Context, Effort};

/// Measures, and writes what was asked for.
///
/// # Errors
/// [`End`]: how the run ended before it was done.
pub fn run(args: &RegistrationArgs) -> Result<(), End> {
    args.outputs.check_with(&args.html)?;
    let effort = args.samples.map_or(Effort::Time(args.time), Effort::Samples);
    let sweep = take(&args.sweep, effort)?;
    let written = args.outputs.write(&sweep, || export::csv(&sweep), || text::sweep(&sweep));
    // A page that can not be written does not keep the tables back.
    html::write(&args.html, || html::registration::page(&sweep))?;
    written?;
    judge("size", sweep.rows.iter().map(|row| row.outcome.missing()))
}

/// Opens the device and measures a sweep.
///
/// # Errors
/// [`End`]: how the run ended before it was done.
pub fn take(args: &SweepArgs, effort: Effort) -> Result<Sweep, End> {
    if args.device != device::SOFTWARE {
        let device = device::open_measured(&args.device, args.pin, args.command_cost)?;
        let stop = Stop::on_signals().map_err(End::failed)?;
        return measure_device(args, effort, &*device, &stop).map_err(ended);
    }
    let stop = Stop::on_signals().map_err(End::failed)?;
    let pin = args.pin.unwrap_or(Pin::Kernel);
    let device = device::open_software(pin.mode(), args.command_cost, true).map_err(End::failed)?;
    let mut sweep = measure_device(args, effort, &*device, &stop).map_err(ended)?;
    // What was asked for may have been refused: known only after the registrations.
    device.pin_mode().name().clone_into(&mut sweep.device.pin);
    Ok(sweep)
}

fn measure_device<D: Device>(
    args: &SweepArgs,
    effort: Effort,
    device: &D,
    stop: &Stop,
) -> Result<Sweep, RowError> {
    let start = Instant::now();
    let machine = facts::machine(measure::clock_cost());
    let driver = &device.capabilities().driver;
    let (stager, mut probes) = if args.stages {
        let (stager, probes) = stages::Stager::start(driver, &machine.kernel);
        (stager, Some(probes))
    } else {
        (None, None)
    };
    if let Some(missing) = probes.as_mut().and_then(|probes| probes.missing.as_mut()) {
        mend::on_device(missing, device.name());
        warn(missing);
    }
    let (mapper, mut iommu) = args.iommu.map(Mapper::open).unzip();
    let mapper = mapper.flatten();
    if let Some(missing) = iommu.as_ref().and_then(|iommu| iommu.missing.as_ref()) {
        warn(missing);
    }
    let progress = Progress::new(args.kinds().len());
    let context = Context { device, args, effort, stop, progress: &progress };
    let beside = Beside { stager: stager.as_ref(), mapper: mapper.as_ref() };
    let measured = context.measure(beside, probes.as_mut(), iommu.as_mut());
    progress.finish();
    let (mut rows, mut missing) = measured?;
    for row in &mut rows {
        if let Outcome::NotMeasured(missing) = &mut row.outcome {
            mend::on_device(missing, device.name());
        }
    }
    if let Some(missing) = probes.as_mut().and_then(|probes| probes.missing.as_mut()) {
        mend::on_device(missing, device.name());
    }
    missing.extend(probes.as_ref().and_then(|probes| probes.missing.clone()));
    missing.extend(iommu.as_ref().and_then(|iommu| iommu.missing.clone()));
    Ok(Sweep {
        schema: report::SCHEMA,
        mkey: env!("CARGO_PKG_VERSION").to_owned(),
        device: facts::device(device, args.pin),
        machine,
        command_cost_ns: sweep::command_ns(args),
        rows,
        probes,
        iommu,
        missing,
        seconds: (start.elapsed().as_secs_f64() * 10.0).round() / 10.0,
    })
}

/// Says, before the long measurement, what it will be without.
fn warn(missing: &Missing) {
    let command =
        missing.command.as_ref().map_or(String::new(), |command| format!("\n  {command}"));
    // If standard error is closed there is nobody to tell; the report says it again.
    let _ = writeln!(io::stderr(), "mkey: {}{command}", missing.what);
}
