//! A recording of what the processes of a job have written.
//!
//! * [`process`]: one process' file. [`stacks`]: its call stacks. [`remotes`]: whose the keys are that peers
//!   named.

pub mod process;
pub mod remotes;
pub mod stacks;
#[cfg(test)]
mod tests;

use super::symbols::Files;
use super::watch::Seen;
use mkey_trace::format::{Counter, Job, Recording};
use mkey_trace::raw::{File, HEADER, Header, MAGIC, Record};
use remotes::Remotes;
use stacks::Stacks;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// A recording that is being put together.
#[derive(Default)]
pub struct Assembly {
    recording: Recording,
    /// CLOCK_MONOTONIC when the job began.
    began: u64,
    files: Files,
    stacks: Stacks,
    remotes: Remotes,
    /// What could not be read, in words.
    untold: Vec<String>,
}

/// What the processes wrote, put together.
#[derive(Debug, Default)]
pub struct Assembled {
    /// All that could be read.
    pub recording: Recording,
    /// What could not be, in words.
    pub untold: Vec<String>,
}

/// Puts the files of a job together, which began at `began` (CLOCK_MONOTONIC, ns), with what was seen of
/// the processes from outside.
pub fn assemble(
    job: Job,
    began: u64,
    paths: &[PathBuf],
    mut seen: BTreeMap<PathBuf, Seen>,
    counters: Vec<Counter>,
) -> Assembled {
    let mut assembly = Assembly { began, ..Assembly::default() };
    assembly.recording.job = job;
    assembly.recording.counters = counters;
    // One after the other: what is read of one is given back before the next.
    let mut headers: Vec<_> = paths.iter().filter_map(|path| Some((header(path)?, path))).collect();
    headers.sort_by_key(|(header, path)| (header.began, path.as_path()));
    for (at, (header, path)) in headers.iter().enumerate() {
        let seen = seen.remove(path.as_path()).unwrap_or_default();
        // What another program took the place of by `exec` ended then.
        let next = headers.get(at + 1..).unwrap_or_default();
        let replaced = next.iter().find(|(next, _)| took_over(header, next, seen.gone));
        let replaced = replaced.map(|(next, _)| next.began);
        if let Err(why) = assembly.add(path, &seen, replaced) {
            assembly.untold.push(format!("what process {} wrote: {why}", header.pid));
        }
    }
    assembly.remotes.resolve(&mut assembly.recording);
    assembly.recording.calls.sort_by_key(|call| call.begin);
    Assembled { recording: assembly.recording, untold: assembly.untold }
}

/// Whether the second process is what `exec` made of the first, as far as these tell: of several PID namespaces, or
/// after its number was given away again, another has its number too.
fn took_over(first: &Header, second: &Header, gone: Option<u64>) -> bool {
    let same = (first.pid, first.parent) == (second.pid, second.parent);
    same && first.ended == 0 && gone.is_none_or(|gone| gone >= second.began)
}

/// The first page; `None` if the file is none of a process.
fn header(path: &Path) -> Option<Header> {
    let mut bytes = Vec::with_capacity(HEADER);
    std::fs::File::open(path).ok()?.take(HEADER as u64).read_to_end(&mut bytes).ok()?;
    let header: Header = bytemuck::pod_read_unaligned(bytes.get(..HEADER)?);
    (header.magic == MAGIC).then_some(header)
}

impl Assembly {
    fn add(&mut self, path: &Path, seen: &Seen, replaced: Option<u64>) -> Result<(), String> {
        let used = header(path).map_or(HEADER as u64, |header| header.used.max(HEADER as u64));
        let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
        // What was taken of it, not all that it may have.
        let mut bytes = Vec::new();
        file.take(used).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        let file = File::parse(&bytes).map_err(|error| error.to_string())?;
        // What goes on calling was not replaced: the other only has the same number.
        let goes_on = |at: &u64| {
            file.records()
                .any(|(_, record)| matches!(record, Record::Call(call) if call.begin > *at))
        };
        self.process(&file, seen, replaced.filter(|at| !goes_on(at)));
        match used - (bytes.len() as u64).min(used) {
            0 => Ok(()),
            missing => Err(format!("it was cut: {missing} bytes of its end are missing")),
        }
    }

    /// A time of the job.
    fn since(&self, time: u64) -> u64 {
        time.saturating_sub(self.began)
    }
}

/// The next `id` of a list.
fn next<T>(list: &[T]) -> u32 {
    u32::try_from(list.len().saturating_add(1)).unwrap_or(u32::MAX)
}
