//! The recorder: what runs within the traced process.
//!
//! A process has one, from the first device that it opens on, if the environment names a folder
//! ([`FOLDER`]). Nothing here allocates from the program's heap once it has begun, starts a thread, takes
//! a signal or says anything; what finds no room is counted.

mod begin;
mod calls;
mod count;
mod finding;
mod lock;
mod log;
mod maps;
mod memory;
mod modules;
mod queue;
mod received;
mod regions;
mod remotes;
mod ring;
mod spans;
mod stack;
pub mod table;
#[cfg(test)]
mod tests;
mod thread;
mod windows;

pub use queue::Queue;

use crate::raw::{self, Op, Slot, Verb, Wrong};
use rustix::time::{ClockId, clock_gettime};
use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Acquire};

/// The environment variable that names the folder for the files of the processes of a job.
pub const FOLDER: &str = "MKEY_TRACE";
/// The one that names how many bytes a file may have.
pub const LIMIT: &str = "MKEY_TRACE_LIMIT";

/// The beginning of a call: times are taken.
#[derive(Clone, Copy, Debug)]
pub struct Entered {
    /// CLOCK_MONOTONIC, ns.
    pub begin: u64,
    /// CPU time of the thread, ns; `u64::MAX`: not read.
    pub cpu: u64,
}

/// A call that has returned.
#[derive(Clone, Copy, Debug)]
pub struct Called {
    /// What was called.
    pub verb: Verb,
    /// 0, or what it failed with.
    pub errno: i32,
    /// The device ([`Recorder::device`]).
    pub device: Slot,
    /// Made or ended: the object's address. What it was made of.
    pub object: u64,
    /// See `object`.
    pub parent: u64,
    /// Memory named, and its rights.
    pub addr: u64,
    /// See `addr`.
    pub len: u64,
    /// See `addr`.
    pub iova: u64,
    /// See `addr`.
    pub access: u32,
    /// Keys, of regions and windows.
    pub lkey: u32,
    /// See `lkey`.
    pub rkey: u32,
    /// See [`crate::raw::Call::detail`].
    pub detail: u32,
}

/// What a queue is made for.
#[derive(Clone, Copy, Debug)]
pub struct QueueInit {
    /// The device.
    pub device: Slot,
    /// The domain, by its address.
    pub pd: u64,
    /// The queue pair's or shared receive queue's address.
    pub object: u64,
    /// The number; 0 for a shared receive queue.
    pub number: u32,
    /// `ibv_qp_type`; 0 for a shared receive queue.
    pub kind: u32,
    /// Work requests that may be posted to send, and to receive (0: none, or a shared queue's).
    pub sends: u32,
    /// See `sends`.
    pub recvs: u32,
    /// Entries of each, at most.
    pub send_entries: u32,
    /// See `send_entries`.
    pub recv_entries: u32,
}

/// A work request.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// Its number.
    pub id: u64,
    /// What it does.
    pub op: Op,
    /// Whether it makes a completion when it succeeds (always so for receives).
    pub signaled: bool,
    /// Inline: the entries name no key and are not in flight.
    pub inlined: bool,
    /// A SEND that invalidates a key of the peer.
    pub invalidates: bool,
    /// The memory.
    pub entries: Entries<'a>,
    /// The peer's key and address.
    pub remote: Option<(u32, u64)>,
}

/// Memory that a work request names.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Address and length.
    pub addr: u64,
    /// See `addr`.
    pub len: u32,
    /// The key.
    pub lkey: u32,
}

/// Memory that a work request names, as it lies in the program: `ibv_sge` is an [`Entry`].
pub type Entries<'a> = &'a [Entry];

/// The recorder of this process.
pub struct Recorder {
    log: log::Log,
    stacks: stack::Stacks,
    regions: regions::Regions,
    windows: windows::Windows,
    queues: queue::Queues,
    findings: finding::Findings,
    received: received::Received,
    remotes: table::Table,
    making_remote: lock::Spin<()>,
    looks: maps::Looks,
    /// What threads count in that found no room for a record.
    no_thread: log::Placed<raw::Thread>,
    /// What [`Recorder::enter`] takes, ns.
    entering: AtomicU64,
    /// Time spent looking through what is in flight, ns.
    searched: AtomicU64,
}

/// A call that takes less, ns, is on the CPU all the time: see [`crate::raw::Call::cpu`].
const SHORT: u64 = 4000;

static CURRENT: AtomicPtr<Recorder> = AtomicPtr::new(null_mut());

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    /// The recorder, if it has begun. One load.
    #[inline]
    pub fn current() -> Option<&'static Self> {
        // SAFETY: it is null or was kept for ever.
        unsafe { CURRENT.load(Acquire).as_ref() }
    }

    /// A call begins.
    #[inline]
    pub fn enter(&self) -> Entered {
        let cpu = clock(ClockId::ThreadCPUTime);
        let begin = now();
        thread::enters(begin);
        Entered { begin, cpu }
    }

    /// A call has just returned: as [`Recorder::enter`], but the clock is read first, so that reading the
    /// CPU time is not taken for a part of the call; and of a short call that, which takes longer than the
    /// rest of the recorder, is not read at all.
    #[inline]
    pub fn leave(&self) -> Entered {
        let begin = now();
        // One that this call made in turn may have entered since; then the call is seen to be longer.
        let short = begin.saturating_sub(thread::entered()) < SHORT;
        Entered { begin, cpu: if short { u64::MAX } else { clock(ClockId::ThreadCPUTime) } }
    }

    /// A poll of the calling thread found so many.
    #[inline]
    pub fn polled(&self, found: u32) {
        let thread = thread::here(self);
        thread::bump(thread.word::<{ offset_of!(raw::Thread, polls) }>(), 1);
        if found == 0 {
            thread::bump(thread.word::<{ offset_of!(raw::Thread, empty) }>(), 1);
        } else {
            thread::bump(thread.word::<{ offset_of!(raw::Thread, completions) }>(), found.into());
        }
    }

    /// A poll that had found some before found one more.
    #[inline]
    pub fn polled_further(&self) {
        let thread = thread::here(self);
        thread::bump(thread.word::<{ offset_of!(raw::Thread, completions) }>(), 1);
    }

    /// The program is about to give memory back: `FreedRegistered` for a block of the heap, else
    /// `UnmappedRegistered`. A few nanoseconds where no registered memory is near.
    ///
    /// Found are a region that a block contains whole, and any that a mapping overlaps; if work in flight
    /// names what goes it is `GoneInFlight` instead, also where a block is only a part of a region.
    #[inline]
    pub fn gone(&self, addr: u64, len: u64, how: Wrong) {
        if self.regions.spans.near(addr, len)
            && let Some(_inside) = thread::Inside::enter()
        {
            self.gone_near(addr, len, how);
        }
    }
}

/// CLOCK_MONOTONIC, ns.
#[inline]
fn now() -> u64 {
    clock(ClockId::Monotonic)
}

#[inline]
fn clock(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// A key of a device, as a key of a table.
#[inline]
fn key(device: Slot, key: u32) -> u64 {
    u64::from(device) << 32 | u64::from(key)
}
