//! Row 10: a device that has nothing to do.

use super::Setup;
use crate::report::{Aim, Line, Unit};
use crate::station::{Station, memory};
use anyhow::{Context, Result};
use mkey_core::data_plane::{CompletionQueue, DataPlane};
use mkey_core::device::Device;
use mkey_os::mapping::PageKind;
use std::thread;
use std::time::{Duration, Instant};

/// How long it has nothing to do.
const TIME: Duration = Duration::from_secs(1);
/// What counts as nothing, in percent: what reading the clocks costs.
const NOTHING: f64 = 0.1;
const PAGE: usize = 4096;
const REGIONS: usize = 1000;

/// Row 10.
pub fn measure(_: &Setup) -> Result<Vec<Line>> {
    let bare = asleep()?;
    let station = Station::open()?;
    let mapping = memory(REGIONS * PAGE, PageKind::Base)?;
    let regions = (0..REGIONS).map(|page| station.register(&mapping, page * PAGE, PAGE));
    let _regions = regions.collect::<Result<Vec<_>>>()?;
    let channel = station.device.create_comp_channel()?;
    let cq = station.device.create_cq(16, Some(channel))?;
    station.device.cq(cq)?.request_notify(false)?;
    let share = asleep()?;
    let line = Line::new("idle, armed, 1000 regions", Aim::AtMost(NOTHING), Unit::Percent, share);
    Ok(vec![line.beside(format!("without a device: {bare:.3} %"))])
}

/// The share of one processor that the process uses while its main thread sleeps, in percent.
fn asleep() -> Result<f64> {
    let (start, before) = (Instant::now(), used()?);
    thread::sleep(TIME);
    let used = used()?.saturating_sub(before);
    Ok(100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64())
}

/// Processor time that the process has used, in all its threads.
fn used() -> Result<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds =
        u64::try_from(time.tv_sec).context("the processor's clock is before its start")?;
    Ok(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default()))
}
