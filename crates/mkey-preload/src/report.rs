//! Findings: refused accesses, and memory that was never given back. Told as they come, a line each.
//!
//! In words to a file or standard error, as `mkey run --refusals` asks; and to a file that `mkey run
//! --check` reads when the program has ended, as `KIND<tab>WORDS`. `refused`: an access. `leaked`:
//! memory that was registered still when its device was closed or the program ended. `end` is no
//! finding: a process has come to its end, and what was left is among the lines.

use crate::context::Open;
use crate::fork;
use crate::settings::settings;
use mkey_core::device::{MrHandle, RefusalReport};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Write, stderr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Registrations by opening and handle, and where they are: kept only for a report.
#[derive(Debug, Default)]
struct Known {
    regions: BTreeMap<(u32, u64), (u64, u64)>,
    /// Names of the devices by opening.
    openings: BTreeMap<u32, String>,
}

static KNOWN: Mutex<Known> =
    Mutex::new(Known { regions: BTreeMap::new(), openings: BTreeMap::new() });

fn known() -> Option<MutexGuard<'static, Known>> {
    settings().reports().then(|| KNOWN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A device was opened.
pub(crate) fn opened(open: &Open) {
    if let Some(mut known) = known() {
        known.openings.insert(open.number, open.listed.text.clone());
    }
}

/// A device is closed.
pub(crate) fn closed(open: &Arc<Open>) {
    if let Some(mut known) = known() {
        leaks(&mut known, open.number, "the device was closed");
    }
}

/// Memory is registered, or registered elsewhere from now on.
pub(crate) fn registered(open: &Open, handle: MrHandle, address: u64, length: u64) {
    if let Some(mut known) = known() {
        known.regions.insert((open.number, handle.0), (address, length));
    }
}

/// Memory is not registered any more.
pub(crate) fn deregistered(open: &Open, handle: MrHandle) {
    if let Some(mut known) = known() {
        known.regions.remove(&(open.number, handle.0));
    }
}

/// An access was refused.
pub(crate) fn refused(report: &RefusalReport) {
    let RefusalReport { qp_num, request, refusal, .. } = report;
    tell("refused", &format!("{request}, asked of queue pair {qp_num:#08x}: {refusal}"));
}

/// Tells of what is left of an opening, and forgets it.
fn leaks(known: &mut Known, opening: u32, when: &str) {
    let name = known.openings.remove(&opening).unwrap_or_default();
    let later = known.regions.split_off(&(opening + 1, 0));
    let left = known.regions.split_off(&(opening, 0));
    known.regions.extend(later);
    for (address, length) in left.into_values() {
        tell(
            "leaked",
            &format!("{length} bytes at {address:#x} on {name} were registered still when {when}"),
        );
    }
}

/// Tells of a finding.
fn tell(kind: &str, words: &str) {
    static WORDS: OnceLock<Option<File>> = OnceLock::new();
    let told = WORDS.get_or_init(|| match settings().refusals.as_ref()? {
        path if path == "-" => stderr().as_fd().try_clone_to_owned().ok().map(File::from),
        path => open(path),
    });
    line(told, &format!("mkey: {kind}: {words}\n"));
    note(kind, words);
}

/// Notes a line for `mkey run`.
fn note(kind: &str, words: &str) {
    static NOTES: OnceLock<Option<File>> = OnceLock::new();
    let notes = NOTES.get_or_init(|| open(settings().findings.as_ref()?));
    line(notes, &format!("{kind}\t{words}\n"));
}

fn open(path: &OsString) -> Option<File> {
    OpenOptions::new().append(true).create(true).open(path).ok()
}

/// Writes a line at once: another process may write to the same file.
fn line(file: &Option<File>, line: &str) {
    if let Some(mut file) = file.as_ref() {
        // Where nothing can be written nobody can be told.
        let _ = file.write_all(line.as_bytes());
    }
}

/// Called when the program ends, after its own handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    crate::boundary::plain((), || {
        // A program that opened nothing has nothing to tell, and a forked child has its parent's.
        if !fork::opened_here() {
            return;
        }
        let Some(mut known) = known() else { return };
        let openings: Vec<u32> = known.openings.keys().copied().collect();
        for opening in openings.into_iter().filter(|&opening| !fork::inherited(opening)) {
            leaks(&mut known, opening, "the program ended");
        }
        note("end", &format!("process {}", std::process::id()));
    });
}
