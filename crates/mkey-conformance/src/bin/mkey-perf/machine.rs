//! The processors, and what else uses them.

use anyhow::{Context, Result, ensure};
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;

/// The processors that this process may use, the last one first: the first of a machine has most
/// of its interrupts.
pub fn cpus() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("sched_getaffinity")?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).rev().collect();
    ensure!(!cpus.is_empty(), "this process may use no processor");
    Ok(cpus)
}

/// Pins the calling thread, and those that it starts from now on, to processors.
pub fn pin_to(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set).with_context(|| format!("sched_setaffinity to {cpus:?}"))
}

/// Bytes of memory that could be had without swapping.
pub fn available_memory() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.context("/proc/meminfo has no MemAvailable")? * 1024)
}

/// Bytes of memory that this process has in use.
pub fn resident() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/statm").context("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    Ok(pages.context("/proc/self/statm has no second field")? * page_size() as u64)
}

/// Ticks of processor time that this process has used, in any of its threads.
pub fn own_ticks() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    // The name, in brackets, may hold anything.
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: Vec<u64> = fields.split_whitespace().skip(11).take(2).flat_map(str::parse).collect();
    ensure!(ticks.len() == 2, "/proc/self/stat has no times");
    Ok(ticks.iter().sum())
}

/// What the processors have been used for up to some moment.
#[derive(Clone, Copy)]
pub struct Load {
    all: u64,
    busy: u64,
    own: u64,
}

impl Load {
    /// Up to now.
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
        let line = line.context("/proc/stat has no line of all processors")?;
        // What guests use is in the first two as well.
        let ticks: Vec<u64> = line.split_whitespace().take(8).flat_map(str::parse).collect();
        ensure!(ticks.len() >= 5, "/proc/stat has {} times", ticks.len());
        let all = ticks.iter().sum();
        Ok(Self { all, busy: all - ticks[3] - ticks[4], own: own_ticks()? })
    }

    /// How many processors others have kept busy since then; `None` if that is too short a time to
    /// tell.
    pub fn others(self) -> Result<Option<f64>> {
        let now = Self::now()?;
        let ticks = now.all.saturating_sub(self.all);
        if ticks < clock_ticks_per_second() / 2 {
            return Ok(None);
        }
        let busy = now.busy.saturating_sub(self.busy);
        let others = busy.saturating_sub(now.own.saturating_sub(self.own));
        let cpus = std::thread::available_parallelism().map_or(1, usize::from).max(online());
        Ok(Some(others as f64 / ticks as f64 * cpus as f64))
    }
}

fn online() -> usize {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count()
}
