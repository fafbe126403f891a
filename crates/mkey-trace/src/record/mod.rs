//! The recorder: what runs within the traced process.
//!
//! A process has one, from the first device that it opens on, if the environment names a folder
//! ([`FOLDER`]). Nothing here allocates from the program's heap once it has begun, starts a thread, takes
//! a signal or says anything; what finds no room is counted.

use crate::raw::{Op, Slot, Use, Verb, Wrong};

/// The environment variable that names the folder for the files of the processes of a job.
pub const FOLDER: &str = "MKEY_TRACE";
/// The one that names how many bytes a file may have.
pub const LIMIT: &str = "MKEY_TRACE_LIMIT";

/// The recorder of this process.
#[derive(Debug)]
pub struct Recorder {}

/// The beginning of a call: times are taken.
#[derive(Clone, Copy, Debug)]
pub struct Entered {
    /// CLOCK_MONOTONIC, ns.
    pub begin: u64,
    /// CPU time of the thread, ns.
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

/// A queue whose work is followed. Never freed; used again for others.
#[derive(Debug)]
pub struct Queue {}

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

impl Recorder {
    /// The recorder, which begins now if it has not. `None`: nothing is to be recorded, or could be.
    /// Cheap once it has begun.
    pub fn begin() -> Option<&'static Self> {
        None
    }

    /// The recorder, if it has begun. One load.
    #[inline]
    pub fn current() -> Option<&'static Self> {
        None
    }

    /// The process ends by `exit`.
    pub fn end(&self) {}

    /// In a forked child, at once: it has recorded nothing.
    pub fn forked() {}

    /// A call begins.
    #[inline]
    pub fn enter(&self) -> Entered {
        Entered { begin: 0, cpu: 0 }
    }

    /// A call has just returned: as [`Recorder::enter`], but the clock is read first, so that reading the
    /// CPU time is not taken for a part of the call.
    #[inline]
    pub fn leave(&self) -> Entered {
        self.enter()
    }

    /// It has returned: notes it with its place in the program. `left` is what [`Recorder::leave`]
    /// gives, taken right after the call.
    pub fn called(&self, entered: Entered, left: Entered, call: &Called) {
        let _ = (entered, left, call);
    }

    /// A device that was opened, by the address of its context.
    pub fn device(&self, object: u64, name: &[u8], guid: u64, soft: bool) -> Slot {
        let _ = (object, name, guid, soft);
        0
    }

    /// A queue from now on.
    pub fn queue(&self, init: &QueueInit) -> Option<&'static Queue> {
        let _ = init;
        None
    }

    /// The device's local key was invalidated, or the peer's, by work (for windows and fast registration).
    pub fn invalidated(&self, device: Slot, rkey: u32) {
        let _ = (device, rkey);
    }

    /// A window was bound, by the verb or by work: its address, its key from now on, the region's lkey.
    pub fn bound(&self, device: Slot, window: u64, rkey: u32, lkey: u32, len: u64) {
        let _ = (device, window, rkey, lkey, len);
    }

    /// A poll of the calling thread found so many.
    #[inline]
    pub fn polled(&self, found: u32) {
        let _ = found;
    }

    /// The program is about to give memory back: `FreedRegistered` for a block of the heap, else
    /// `UnmappedRegistered`. A few nanoseconds where no registered memory is near.
    #[inline]
    pub fn gone(&self, addr: u64, len: u64, how: Wrong) {
        let _ = (addr, len, how);
    }
}

impl Queue {
    /// Work is about to be posted: it is noted before the device may complete it.
    #[inline]
    pub fn post(&self, recorder: &Recorder, work: &Work<'_>) {
        let _ = (recorder, work, Use::Send);
    }

    /// The last `count` of what this thread has just noted were not taken by the device. `recv`: of the
    /// receive queue.
    pub fn not_posted(&self, recorder: &Recorder, count: u32, recv: bool) {
        let _ = (recorder, count, recv);
    }

    /// A completion: of work with this number and all unsignaled work before it. `recv`: it is one of
    /// a receive. Status as in `enum ibv_wc_status`.
    #[inline]
    pub fn completed(&self, recorder: &Recorder, id: u64, recv: bool, status: u32, vendor: u32) {
        let _ = (recorder, id, recv, status, vendor);
    }

    /// How many in flight come before the oldest that has this number, of the receive queue or of the
    /// send queue. `None`: there is none. A completion in error does not say which of them it is of.
    #[cold]
    pub fn awaits(&self, id: u64, recv: bool) -> Option<u32> {
        let _ = (id, recv);
        None
    }

    /// The queue was reset, or is destroyed: nothing is in flight any more.
    pub fn reset(&self, recorder: &Recorder) {
        let _ = recorder;
    }

    /// It was destroyed.
    pub fn end(&'static self, recorder: &Recorder) {
        let _ = recorder;
    }
}
