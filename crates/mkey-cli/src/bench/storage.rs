//! `mkey bench storage`: what a storage target's I/O costs by each registration strategy, in fio's
//! words.
//!
//! * [`args`]: what is asked. [`plan`]: all rows in turns; [`team`]: the threads of a strategy.
//! * [`job`]: an initiator with I/Os in flight and its [`target`], each a [`side`] of a connection;
//!   [`capsule`]: what they say to each other. [`disk`], [`order`], [`content`]: what is read and
//!   written, so that a byte which did not move is found out.
//! * [`strategy`]: how the buffer of one I/O is opened to the target.
//! * [`report`]: the figures; [`aims`] what they are to be; [`text`] and [`export`] write them.

pub mod aims;
pub mod args;
pub mod capsule;
pub mod content;
pub mod disk;
pub mod export;
pub mod job;
pub mod order;
pub mod plan;
pub mod report;
#[cfg(test)]
pub(crate) mod sample;
pub mod side;
pub mod strategy;
pub mod target;
pub mod team;
pub mod text;

use super::progress::Progress;
use super::report::Missing;
use super::stop::Stop;
use super::units::size;
use super::{ended, facts, judge, memory};
use crate::device::Opened;
use crate::exit::End;
use args::{Name, StorageArgs};
use mkey::PageKind;
use report::{Report, Workload};
use std::io;
use std::time::Instant;

/// Measures, and writes what was asked for.
///
/// # Errors
/// [`End`]: how the run ended before it was done.
pub fn run(args: &StorageArgs) -> Result<(), End> {
    args.outputs.check_with(&None)?;
    check_blocks(args, args.size)?;
    let start = Instant::now();
    let (fitted, missing, unpinnable) = fit(args);
    if let Some(limit) = missing.last() {
        super::warn(&mut io::stderr(), args.size, limit);
        check_blocks(args, fitted)?;
    }
    let stop = Stop::on_signals().map_err(End::failed)?;
    let opened = Opened::open(&args.device, args.pin, args.command_cost)?;
    let device = &opened.device;
    side::check_port(device).map_err(ended)?;
    let progress = Progress::new(plan::steps(args));
    let plan = plan::Plan { device, args, size: fitted, stop: &stop, progress: &progress };
    let rows = match &unpinnable {
        Some(why) => Ok(unmeasured(args, why)),
        None => plan::measure(&plan),
    };
    progress.finish();
    let rows = rows.map_err(ended)?;
    let mut report = Report {
        schema: report::SCHEMA,
        mkey: env!("CARGO_PKG_VERSION").to_owned(),
        device: facts::device(&**device.control(), args.pin),
        machine: facts::machine(super::measure::clock_cost()),
        workload: Workload {
            rw: args.rw.name().to_owned(),
            iodepth: u64::from(args.iodepth),
            numjobs: u64::from(args.numjobs),
            runtime: args.runtime.as_secs_f64(),
            size: fitted,
            rounds: u64::from(plan::rounds(args.runtime)),
        },
        command_cost_ns: super::measure::nanoseconds(args.command_cost),
        rows,
        aims: Vec::new(),
        missing,
        seconds: 0.0,
    };
    // What was asked for may have been refused: known only after the registrations.
    if let Some(pin) = opened.pin_mode() {
        pin.name().clone_into(&mut report.device.pin);
    }
    report.missing.extend(unpinnable);
    report.aims = aims::of(&report);
    report.seconds = (start.elapsed().as_secs_f64() * 10.0).round() / 10.0;
    args.outputs.write(&report, || export::csv(&report), || text::report(&report))?;
    judge("row", report.rows.iter().map(|row| row.outcome.missing()))
}

fn unmeasured(args: &StorageArgs, why: &Missing) -> Vec<report::Row> {
    let rows = |bs| move |name: Name| plan::not_measured(name, bs, why.clone());
    args.block_sizes()
        .into_iter()
        .flat_map(|bs| args.strategies().into_iter().map(rows(bs)))
        .collect()
}

/// Refuses disks of so few blocks that I/Os in flight would meet in one.
fn check_blocks(args: &StorageArgs, disk: u64) -> Result<(), End> {
    let depth = u64::from(args.iodepth);
    for bs in args.block_sizes() {
        let blocks = disk / bs;
        if blocks < depth.saturating_mul(2) {
            return Err(End::Usage(format!(
                "a disk of {} has {blocks} blocks of {}, fewer than two for each of the {depth} \
                 I/Os in flight: a larger --size or a smaller --iodepth, please",
                size(disk),
                size(bs)
            )));
        }
    }
    Ok(())
}

/// How large each disk can be, what keeps it below what was asked for, and why nothing of use may
/// be pinned.
fn fit(args: &StorageArgs) -> (u64, Vec<Missing>, Option<Missing>) {
    let jobs = u64::from(args.numjobs);
    let largest = args.block_sizes().into_iter().max().unwrap_or(0);
    let page = PageKind::Base.size() as u64;
    let buffers = largest.next_multiple_of(page).saturating_mul(u64::from(args.iodepth));
    // Each strategy has its buffers; bounce and the pinned row have them twice.
    let beside = buffers.saturating_mul(args.strategies().len() as u64 + 2).saturating_mul(jobs);
    let all = args.size.saturating_mul(jobs).saturating_add(beside);
    let fit = memory::fit(all, &memory::bounds());
    if fit.limits.is_empty() {
        return (args.size, Vec::new(), fit.unpinnable);
    }
    let each = fit.bytes.saturating_sub(beside) / jobs.max(1);
    (each.min(args.size), fit.limits, fit.unpinnable)
}
