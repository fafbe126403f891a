//! What a job's recording says of the host.

use super::nanoseconds;
use mkey_trace::format::{Job, VERSION};
use rustix::time::ClockId;

/// A job that begins now on this host.
pub fn job() -> Job {
    let system = rustix::system::uname();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Job {
        version: VERSION,
        by: concat!("mkey ", env!("CARGO_PKG_VERSION")).to_owned(),
        host: system.nodename().to_string_lossy().into_owned(),
        kernel: system.release().to_string_lossy().into_owned(),
        cpu: cpu().unwrap_or_default(),
        processors: u32::try_from(processors).unwrap_or(u32::MAX),
        began: nanoseconds(ClockId::Realtime) / 1_000_000_000,
        ..Job::default()
    }
}

fn cpu() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
