//! Whether the machine is quiet enough to measure times.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// How much of the processors' time others may use, in percent of all of it.
const QUIET: f64 = 5.0;
/// How long one look takes.
const LOOK: Duration = Duration::from_secs(1);

/// Waits up to `patience` until the machine has been quiet for one look; an error says how busy
/// it still is.
pub fn wait(patience: Duration) -> Result<()> {
    let begun = Instant::now();
    let mut busy = look()?;
    while busy > QUIET && begun.elapsed() < patience {
        eprintln!("the machine is {busy:.0} % busy; waiting until it is quiet");
        busy = look()?;
    }
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    ensure!(
        busy <= QUIET,
        "the machine is {busy:.0} % busy (load {}), so that times would say little; stop what \
         runs beside, or measure all the same with --force",
        load.split(' ').next().unwrap_or_default()
    );
    Ok(())
}

/// The share of the processors' time that is used, in percent.
fn look() -> Result<f64> {
    let before = Times::now()?;
    thread::sleep(LOOK);
    Ok(Times::now()?.busy_since(before))
}

/// The processors' time since the start, in ticks.
#[derive(Clone, Copy)]
struct Times {
    idle: u64,
    all: u64,
}

impl Times {
    fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Self::read(&text).context("/proc/stat has no line of all processors")
    }

    /// Reads the line `cpu user nice system idle iowait irq softirq steal ...`.
    fn read(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // What guests use is in `user` and `nice` already.
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Self { idle, all: ticks.iter().sum() })
    }

    fn busy_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        let idle = self.idle.saturating_sub(before.idle);
        100.0 * all.saturating_sub(idle) as f64 / all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_share_is_what_is_neither_idle_nor_waiting() {
        let before = Times::read("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3\n").unwrap();
        let after = Times::read("cpu  140 0 60 940 60 0 0 0 0 0\ncpu0 1 2 3\n").unwrap();
        assert_eq!(after.busy_since(before), 25.0);
        assert_eq!(before.busy_since(before), 0.0);
    }

    #[test]
    fn a_file_of_another_form_is_refused() {
        assert!(Times::read("").is_none());
        assert!(Times::read("cpu  1 2").is_none());
        assert!(Times::read("cpu  1 2 3 x 5").is_none());
    }
}
