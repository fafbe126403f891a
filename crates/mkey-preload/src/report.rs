//! Findings: refused accesses, and memory that was never given back. Told as they come, a line each.
//!
//! In words to a file or standard error, as `mkey run --refusals` asks; and to a file that `mkey run
//! --check` reads when the program has ended, as `KIND<tab>WORDS`. `refused`: an access. `freed`: memory
//! that was registered and pinned when the program unmapped, discarded or moved it. `leaked`: memory that
//! was registered still when its device was closed or the program ended. `begin` and `end` are no
//! findings: a process has opened its first device, and has come to its end, so that what was left is
//! among the lines.

use crate::boundary::plain;
use crate::context::Open;
use crate::file::identity;
use crate::fork;
use crate::settings::settings;
use mkey_core::address::{HostAddr, HostRange};
use mkey_core::device::{Gid, MrChange, MrHandle, RefusalReport};
use mkey_core::refusal::DetachCause;
use mkey_core::rights::Rights;
use mkey_soft::Listener;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Write, stderr};
use std::net::Ipv6Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, Weak};

/// Registrations by opening and handle, and where they are: kept only for a report.
#[derive(Debug, Default)]
struct Known {
    regions: BTreeMap<(u32, u64), Region>,
    /// Those that are open.
    openings: BTreeMap<u32, Weak<Open>>,
}

/// A registration.
#[derive(Clone, Copy, Debug)]
struct Region {
    address: u64,
    length: u64,
    memory: Memory,
}

/// What is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Memory of the program that has to stay where it is.
    Pinned,
    /// Memory that may go, or that is none of the program's.
    Other,
}

impl Memory {
    /// Of memory of the program.
    pub(crate) fn of(rights: Rights) -> Self {
        if rights.contains(Rights::ON_DEMAND) { Self::Other } else { Self::Pinned }
    }
}

static KNOWN: Mutex<Known> =
    Mutex::new(Known { regions: BTreeMap::new(), openings: BTreeMap::new() });

/// What is known, if anybody is to be told.
fn known() -> Option<MutexGuard<'static, Known>> {
    static AROUND_FORK: Once = Once::new();
    if !settings().reports() {
        return None;
    }
    AROUND_FORK.call_once(|| {
        mkey_os::fork::around(before_fork, after_fork);
    });
    Some(lock())
}

fn lock() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Of a thread that forks: in the child nobody else would ever unlock it.
    static HELD: RefCell<Option<MutexGuard<'static, Known>>> = const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    plain((), || {
        let _ = HELD.try_with(|held| held.replace(Some(lock())));
    });
}

extern "C" fn after_fork() {
    plain((), || {
        let _ = HELD.try_with(|held| held.take());
    });
}

/// A device was opened.
pub(crate) fn opened(open: &Arc<Open>) {
    if let Some(mut known) = known() {
        known.openings.insert(open.number, Arc::downgrade(open));
        drop(known);
        let process = std::process::id();
        if BEGUN.swap(process, Ordering::Relaxed) != process {
            note("begin", &format!("process {process}"));
        }
    }
}

/// The process that has told of its first device; 0: none has. A forked child is another one.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// A device is closed.
pub(crate) fn closed(open: &Arc<Open>) {
    about_to_deregister(open);
    if let Some(mut known) = known() {
        known.openings.remove(&open.number);
        leaks(&mut known, open, "the device was closed");
    }
}

/// Memory is registered.
pub(crate) fn registered(open: &Open, handle: MrHandle, address: u64, length: u64, memory: Memory) {
    if let Some(mut known) = known() {
        known.regions.insert((open.number, handle.0), Region { address, length, memory });
    }
}

/// A registration was changed.
pub(crate) fn changed(open: &Open, handle: MrHandle, change: &MrChange) {
    if let Some(mut known) = known()
        && let Some(region) = known.regions.get_mut(&(open.number, handle.0))
    {
        if let Some((HostAddr(address), length)) = change.translation {
            (region.address, region.length) = (address, length);
        }
        if let Some(rights) = change.rights {
            region.memory = Memory::of(rights);
        }
    }
}

/// Memory will not be registered any more: what was taken away of it before is told of first.
pub(crate) fn about_to_deregister(open: &Open) {
    if settings().reports() {
        open.device.settle();
    }
}

/// Memory is not registered any more.
pub(crate) fn deregistered(open: &Open, handle: MrHandle) {
    if let Some(mut known) = known() {
        known.regions.remove(&(open.number, handle.0));
    }
}

/// Hears of an opened device.
#[derive(Debug)]
pub(crate) struct Ear {
    /// The number of the opening.
    pub(crate) opening: u32,
    /// The device's name.
    pub(crate) name: String,
}

impl Listener for Ear {
    fn refused(&self, report: &RefusalReport) {
        if !settings().reports() {
            return;
        }
        let RefusalReport { qp_num, request, refusal, .. } = report;
        tell("refused", &format!("{request}, asked of queue pair {qp_num:#08x}: {refusal}"));
    }

    /// No finding: the program hears of it by a completion, which can not say why.
    fn unanswered(&self, qp_num: u32, peer: Gid, peer_qp: u32, why: &str) {
        let (name, peer) = (&self.name, Ipv6Addr::from(peer.0).to_canonical());
        say(&format!(
            "no answer: queue pair {qp_num:#08x} of {name} has had none from {peer}, queue pair \
             {peer_qp:#08x}: {why}"
        ));
    }

    fn detached(&self, gone: HostRange, cause: DetachCause) {
        let Some(known) = known() else { return };
        let own = (self.opening, 0)..(self.opening + 1, 0);
        for region in known.regions.range(own).map(|(_, region)| region) {
            let start = HostAddr(region.address);
            let range = HostRange { start, len: region.length };
            if region.memory == Memory::Pinned
                && let Some(HostRange { start, len }) = range.intersect(&gone)
            {
                let name = &self.name;
                tell(
                    "freed",
                    &format!(
                        "{len} bytes at {start} were {cause} while registered on {name}, as part of \
                         {} bytes at {:#x}",
                        region.length, region.address
                    ),
                );
            }
        }
    }
}

/// Tells of what is left of an opening, and forgets it.
fn leaks(known: &mut Known, open: &Open, when: &str) {
    let (opening, name) = (open.number, &open.listed.text);
    let later = known.regions.split_off(&(opening + 1, 0));
    let left = known.regions.split_off(&(opening, 0));
    known.regions.extend(later);
    for Region { address, length, .. } in left.into_values() {
        tell(
            "leaked",
            &format!("{length} bytes at {address:#x} on {name} were registered still when {when}"),
        );
    }
}

/// Tells of a finding.
fn tell(kind: &str, words: &str) {
    if settings().refusals.is_some() {
        say(&format!("{kind}: {words}"));
    }
    note(kind, words);
}

/// Says something where words were asked for, else on standard error.
fn say(words: &str) {
    static WORDS: OnceLock<Option<Lines>> = OnceLock::new();
    let told = WORDS.get_or_init(|| match settings().refusals.as_ref() {
        Some(path) if path != "-" => Lines::to_file(Path::new(path)),
        _ => Lines::to_standard_error(),
    });
    if let Some(told) = told {
        told.write(&format!("mkey: {words}\n"));
    }
}

/// Notes a line for `mkey run`.
fn note(kind: &str, words: &str) {
    static NOTES: OnceLock<Option<Lines>> = OnceLock::new();
    let notes = NOTES.get_or_init(|| Lines::to_file(Path::new(settings().findings.as_ref()?)));
    if let Some(notes) = notes {
        notes.write(&format!("{kind}\t{words}\n"));
    }
}

/// Where lines go.
///
/// Programs may close all descriptors that they do not know, and then the number is that of a file of
/// their own: nothing is written to a file that is not the one that was opened.
#[derive(Debug)]
struct Lines {
    file: File,
    identity: (libc::dev_t, libc::ino_t),
    /// `None`: standard error.
    path: Option<&'static Path>,
}

impl Lines {
    fn to_file(path: &'static Path) -> Option<Self> {
        match open(path) {
            Ok(file) => Self::of(file, Some(path)),
            Err(error) => {
                // Without standard error there is nobody to tell.
                let path = path.display();
                let _ = writeln!(stderr(), "mkey: findings can not be noted in {path}: {error}");
                None
            }
        }
    }

    fn to_standard_error() -> Option<Self> {
        Self::of(File::from(stderr().as_fd().try_clone_to_owned().ok()?), None)
    }

    fn of(file: File, path: Option<&'static Path>) -> Option<Self> {
        Some(Self { identity: identity(file.as_raw_fd())?, file, path })
    }

    /// Writes a line at once: another process may write to the same file. Where nothing can be written
    /// nobody can be told.
    fn write(&self, line: &str) {
        let is_here = |fd| identity(fd) == Some(self.identity);
        let _ = match self.path {
            _ if is_here(self.file.as_raw_fd()) => (&self.file).write_all(line.as_bytes()),
            Some(path) => open(path).and_then(|mut file| file.write_all(line.as_bytes())),
            None if is_here(libc::STDERR_FILENO) => stderr().write_all(line.as_bytes()),
            None => Ok(()),
        };
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Called when the program ends, after its own handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    plain((), || {
        // A program that opened nothing has nothing to tell, and a forked child has its parent's.
        if BEGUN.load(Ordering::Relaxed) != std::process::id() {
            return;
        }
        let Some(mut known) = known() else { return };
        let openings = std::mem::take(&mut known.openings);
        drop(known);
        let own = openings.into_iter().filter(|(opening, _)| !fork::inherited(*opening));
        for open in own.filter_map(|(_, open)| open.upgrade()) {
            about_to_deregister(&open);
            leaks(&mut lock(), &open, "the program ended");
        }
        note("end", &format!("process {}", std::process::id()));
    });
}
