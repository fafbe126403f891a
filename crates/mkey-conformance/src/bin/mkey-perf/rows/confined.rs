//! Row 7: that registering what is pinned already makes no system call.
//!
//! A child process sets everything up, then lets the kernel kill it on any system call but the one
//! to exit, in any of its threads, and goes on registering. That the trap works is seen by a second
//! child, whose memory is not pinned: it must be killed.

use crate::report::{Aim, Line, Unit};
use crate::station::{Station, memory};
use anyhow::{Context, Result, bail};
use mkey_core::device::Device;
use mkey_os::mapping::PageKind;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};

const PAGE: usize = 4096;
const PAGES: usize = 512;
/// Pairs before and after the door is shut.
const PAIRS: usize = 10_000;

/// The line of the table: system calls of a pair.
pub fn line() -> Line {
    let (work, aim, unit) =
        ("system calls where the span is pinned", Aim::AtMost(0.0), Unit::Count);
    match measure() {
        Ok(calls) => Line::new(work, aim, unit, calls)
            .beside(format!("{PAIRS} pairs in a child that dies on any system call")),
        Err(error) => Line::not_measured(work, aim, unit, format!("{error:#}")),
    }
}

/// 0 if there are none, else 1 for some.
fn measure() -> Result<f64> {
    if !killed(run(false)?)? {
        bail!("a child that pins was not killed, so nothing is known about one that should not");
    }
    Ok(if killed(run(true)?)? { 1.0 } else { 0.0 })
}

fn run(pinned: bool) -> Result<ExitStatus> {
    let own = std::env::current_exe().context("current_exe")?;
    let mut child = Command::new(own);
    child.args(["--confined", if pinned { "true" } else { "false" }]);
    child.status().context("cannot start a child process")
}

fn killed(status: ExitStatus) -> Result<bool> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(false),
        (_, Some(libc::SIGSYS)) => Ok(true),
        _ => bail!("a child process ended with {status}"),
    }
}

/// The child process.
pub fn child(pinned: bool) -> Result<ExitCode> {
    let mapping = memory(PAGES * PAGE, PageKind::Base)?;
    let station = Station::open()?;
    let whole = pinned.then(|| station.register(&mapping, 0, PAGES * PAGE)).transpose()?;
    let spec = station.spec(&mapping, 8 * PAGE, PAGE)?;
    let pair = || -> Result<()> {
        // SAFETY: the mapping outlives the registration, which ends here.
        let region = unsafe { station.device.reg_mr(station.pd, &spec) }?;
        Ok(station.device.dereg_mr(region.handle)?)
    };
    for _ in 0..PAIRS {
        pair()?;
    }
    seccompiler::apply_filter_all_threads(&filter()?).context("seccomp")?;
    let well = (0..PAIRS).all(|_| pair().is_ok());
    std::mem::forget(whole);
    // SAFETY: ends the process at once, without the system calls that unmapping and writing would
    // be; nothing is left to be written.
    unsafe { libc::_exit(i32::from(!well)) }
}

/// Lets a process exit, and nothing else.
fn filter() -> Result<BpfProgram> {
    let allowed = BTreeMap::from([(libc::SYS_exit_group, Vec::new())]);
    let arch = std::env::consts::ARCH.try_into().context("seccomp on this processor")?;
    let filter =
        SeccompFilter::new(allowed, SeccompAction::KillProcess, SeccompAction::Allow, arch)
            .context("a seccomp filter")?;
    filter.try_into().context("a seccomp program")
}
