//! The file of one traced process.
//!
//! A page with the [`Header`], then records, each at a multiple of [`ALIGN`] bytes. A record begins with
//! a [`Head`]; its kind is written last, so that one of kind 0 is not whole. Room that was taken and not
//! written to is zeros: a reader goes on at the next multiple. Records are named by their offset in the
//! file, divided by [`ALIGN`] (a [`Slot`]); 0 is none.
//!
//! Counters in [`Mr`], [`Thread`], [`Queue`], [`Remote`], [`Window`] and [`Finding`] are counted in place
//! while the process runs. All numbers are in the machine's own byte order: the file does not leave it.

#![allow(missing_docs, reason = "fields that say what they are by their names")]

mod read;

pub use read::{File, Kind, NotRaw, Record, Records};

use bytemuck::{Pod, Zeroable};

/// What a file begins with.
pub const MAGIC: [u8; 8] = *b"mkeyraw\x01";
/// Bytes of the header.
pub const HEADER: usize = 4096;
/// Where records may begin.
pub const ALIGN: usize = 64;
/// Bytes of a stack that are copied at most.
pub const STACK: usize = 16 << 10;

/// A record, by its offset in the file divided by [`ALIGN`]; 0: none.
pub type Slot = u32;

/// The first page.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// The process, and the one that it was forked from.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// CLOCK_MONOTONIC at the beginning, ns.
    pub began: u64,
    /// CLOCK_REALTIME at the same time, ns.
    pub began_real: u64,
    /// CLOCK_MONOTONIC when the process ended by `exit`, ns; 0: it did not, or not yet.
    pub ended: u64,
    /// Bytes of the file that were taken, the header with them.
    pub used: u64,
    /// Bytes that the file may have.
    pub limit: u64,
    /// Records that found no room.
    pub lost: u64,
    /// Calls recorded, and what recording them took beyond the calls themselves, ns.
    pub calls: u64,
    /// See `calls`.
    pub calls_overhead: u64,
    /// What following one work request from its post to its completion takes, as measured in this process
    /// at its beginning, in thousandths of a nanosecond.
    pub post_overhead: u64,
    /// CPU time of the process when it ended by `exit`, ns.
    pub cpu: u64,
    /// Regions and windows that found no place in the tables: what was done with them is not counted.
    pub unfollowed: u64,
    /// What reading `/proc/self/smaps` took ([`Maps`]), ns; not in `calls_overhead`.
    pub maps_overhead: u64,
    /// The program's path, cut to fit, ended by a zero.
    pub program: [u8; 512],
    /// Its arguments, each ended by a zero, cut to fit.
    pub arguments: [u8; 2048],
    /// Zeros.
    pub rest: [u8; HEADER - 112 - 512 - 2048],
}

/// What each record begins with.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Head {
    /// Bytes of the record, this head with it: a multiple of [`ALIGN`].
    pub len: u32,
    /// A [`kind`]; 0: not written to its end.
    pub kind: u16,
    /// Zero.
    pub zero: u16,
}

/// Kinds of records.
pub mod kind {
    #![allow(missing_docs, reason = "each is named as its record")]
    pub const CALL: u16 = 1;
    pub const MR: u16 = 2;
    pub const STACK: u16 = 3;
    pub const MODULE: u16 = 4;
    pub const THREAD: u16 = 5;
    pub const QUEUE: u16 = 6;
    pub const REMOTE: u16 = 7;
    pub const DEVICE: u16 = 8;
    pub const FINDING: u16 = 9;
    pub const WINDOW: u16 = 10;
    pub const FAILURE: u16 = 11;
    pub const MAPS: u16 = 12;
}

/// A call of a verb of the control path.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Call {
    pub head: Head,
    /// CLOCK_MONOTONIC when it was entered and when it had returned, ns.
    pub begin: u64,
    /// See `begin`.
    pub end: u64,
    /// CPU time of the thread between them, ns; `u64::MAX`: not measured. A call of less than 4 us is taken
    /// to have been on the CPU throughout: no thread is put to sleep and woken in less.
    pub cpu: u64,
    /// Work requests that the thread had posted before.
    pub posts: u64,
    /// The object made or ended, and what it was made of (pd of an mr, context of a pd), as the program
    /// knows them (their addresses).
    pub object: u64,
    /// See `object`.
    pub parent: u64,
    /// Address, length, I/O virtual address.
    pub addr: u64,
    /// See `addr`.
    pub len: u64,
    /// See `addr`.
    pub iova: u64,
    /// A [`Verb`].
    pub verb: u16,
    pub zero: u16,
    /// 0, or the errno.
    pub errno: i32,
    /// Rights (`enum ibv_access_flags`).
    pub access: u32,
    pub lkey: u32,
    pub rkey: u32,
    /// The [`Stack`]; the [`Thread`]; the [`Device`]; the [`Mr`], where there is one.
    pub stack: Slot,
    pub thread: Slot,
    pub device: Slot,
    pub mr: Slot,
    /// Of its verb: `ibv_qp_type`, number of entries, new state, advice, kind of window..
    pub detail: u32,
    pub rest: [u32; 18],
}

/// The verbs of the control path.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    OpenDevice = 1,
    CloseDevice,
    AllocPd,
    DeallocPd,
    RegMr,
    RegMrIova,
    RegDmabufMr,
    RegDmMr,
    NullMr,
    ReregMr,
    DeregMr,
    AdviseMr,
    AllocMw,
    BindMw,
    DeallocMw,
    CreateCq,
    DestroyCq,
    CreateQp,
    ModifyQp,
    DestroyQp,
    CreateSrq,
    DestroySrq,
}

impl Verb {
    /// All, with the names of the functions.
    pub const NAMES: &[(Self, &str)] = &[
        (Self::OpenDevice, "ibv_open_device"),
        (Self::CloseDevice, "ibv_close_device"),
        (Self::AllocPd, "ibv_alloc_pd"),
        (Self::DeallocPd, "ibv_dealloc_pd"),
        (Self::RegMr, "ibv_reg_mr"),
        (Self::RegMrIova, "ibv_reg_mr_iova"),
        (Self::RegDmabufMr, "ibv_reg_dmabuf_mr"),
        (Self::RegDmMr, "ibv_reg_dm_mr"),
        (Self::NullMr, "ibv_alloc_null_mr"),
        (Self::ReregMr, "ibv_rereg_mr"),
        (Self::DeregMr, "ibv_dereg_mr"),
        (Self::AdviseMr, "ibv_advise_mr"),
        (Self::AllocMw, "ibv_alloc_mw"),
        (Self::BindMw, "ibv_bind_mw"),
        (Self::DeallocMw, "ibv_dealloc_mw"),
        (Self::CreateCq, "ibv_create_cq"),
        (Self::DestroyCq, "ibv_destroy_cq"),
        (Self::CreateQp, "ibv_create_qp"),
        (Self::ModifyQp, "ibv_modify_qp"),
        (Self::DestroyQp, "ibv_destroy_qp"),
        (Self::CreateSrq, "ibv_create_srq"),
        (Self::DestroySrq, "ibv_destroy_srq"),
    ];

    /// The verb of a number.
    pub fn of(number: u16) -> Option<Self> {
        Self::NAMES.iter().map(|(verb, _)| *verb).find(|verb| *verb as u16 == number)
    }

    /// The function's name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(verb, _)| *verb == self).map_or("?", |(_, name)| name)
    }
}

/// Rights of `enum ibv_access_flags` that say what the address of a region is.
pub mod access {
    /// Its addresses begin at 0.
    pub const ZERO_BASED: u32 = 1 << 5;
    /// Its pages are not pinned.
    pub const ON_DEMAND: u32 = 1 << 6;
}

/// What a region's memory was named for in work requests.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Source of a SEND.
    Send,
    /// Source of an RDMA WRITE.
    Write,
    /// Destination of an RDMA READ or an atomic (needs LOCAL_WRITE).
    Read,
    /// Destination of a receive (needs LOCAL_WRITE).
    Recv,
    /// A window was bound to it (needs MW_BIND).
    Bind,
}

/// Kinds of [`Use`].
pub const USES: usize = 5;

/// A memory region, from its registration on. One that `ibv_rereg_mr` gives other memory or other keys
/// ends there, and another begins by the same [`Call`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Mr {
    pub head: Head,
    pub addr: u64,
    pub len: u64,
    pub iova: u64,
    /// Rights (`enum ibv_access_flags`), as last set.
    pub access: u32,
    pub lkey: u32,
    pub rkey: u32,
    /// The [`Device`], the [`Call`] that registered it, the one that ended it (0: none did).
    pub device: Slot,
    pub reg: Slot,
    pub dereg: Slot,
    /// How it was made: the [`Verb`].
    pub verb: u16,
    pub zero: [u16; 3],
    /// Named by so many entries of work requests, by [`Use`].
    pub uses: [u64; USES],
    /// Of these, so many are complete.
    pub done: u64,
    /// Entries that named its key and reached beyond it.
    pub outside: u64,
    /// The domain that it belongs to, as the program knows it.
    pub pd: u64,
    /// The sides of queues that named it first in work to send, and in receives: they count by themselves,
    /// each under its lock, without atomic operations, of which each takes as long as the rest. [`File`]
    /// adds these to `uses` and `done`.
    pub owners: [u64; 2],
    /// See `owners`; without binds.
    pub own_uses: [u64; USES - 1],
    /// See `owners`.
    pub own_done: [u64; 2],
}

/// Registers and the top of a stack; the bytes come after it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Stack {
    pub head: Head,
    /// Instruction, stack and frame pointer; the link register, where there is one.
    pub ip: u64,
    pub sp: u64,
    pub fp: u64,
    pub lr: u64,
    /// Which list of modules it goes with ([`Module::epoch`]).
    pub epoch: u32,
    /// Bytes that come after this, which were at `sp`.
    pub bytes: u32,
    /// Times that it was met.
    pub times: u64,
    pub rest: u64,
}

/// A file whose code was mapped; its name comes after, ended by a zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Module {
    pub head: Head,
    /// Which list it belongs to: when libraries are loaded or unloaded a new list is written whole.
    pub epoch: u32,
    /// Bytes of the name.
    pub name: u32,
    /// What is added to the file's own addresses.
    pub bias: u64,
    /// Where its code begins and ends in memory.
    pub start: u64,
    pub end: u64,
    pub rest: [u64; 3],
}

/// A thread that has called verbs. Counted by the thread itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Thread {
    pub head: Head,
    pub tid: u32,
    pub zero: u32,
    pub name: [u8; 16],
    /// Work requests posted (to send and shared or own receive queues).
    pub posts: u64,
    /// Polls, those of them that found nothing, completions that they found.
    pub polls: u64,
    pub empty: u64,
    pub completions: u64,
}

/// A queue pair or shared receive queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Queue {
    pub head: Head,
    /// As the program knows it.
    pub object: u64,
    /// The number; of a shared receive queue 0.
    pub number: u32,
    /// `ibv_qp_type`; 0 for a shared receive queue.
    pub kind: u32,
    pub device: Slot,
    /// Whether following what is in flight was given up (1), as more was than its depth.
    pub lost: u32,
    /// Posted, by operation: send, write, read, atomic, bind, local invalidate, receive, other.
    pub posted: [u64; 8],
    /// Of them inline; with an invalidation of the peer's key.
    pub inlined: u64,
    pub invalidations: u64,
    /// Completed; in error. In the file those of receives are in `received` alone, since each is counted
    /// under its own lock; [`File`] adds them to `completed`.
    pub completed: u64,
    pub failed: u64,
    /// The domain that it belongs to.
    pub pd: u64,
    /// Completed receives.
    pub received: u64,
    pub rest: [u64; 6],
}

/// Operations of [`Queue::posted`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Send,
    Write,
    Read,
    Atomic,
    Bind,
    LocalInv,
    Recv,
    Other,
}

/// A key of a peer that requests named.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Remote {
    pub head: Head,
    pub rkey: u32,
    pub device: Slot,
    /// The lowest address named and the highest.
    pub low: u64,
    pub high: u64,
    pub writes: u64,
    pub reads: u64,
    pub atomics: u64,
    /// As [`Mr::owners`]; [`File`] adds its counters to the others.
    pub owner: u64,
    pub own_writes: u64,
    pub own_reads: u64,
    pub own_atomics: u64,
    pub rest: [u64; 5],
}

/// A device that was opened; its name comes after, ended by a zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Device {
    pub head: Head,
    /// The `ibv_context`.
    pub object: u64,
    /// Its GUID, in network order.
    pub guid: u64,
    /// Whether it is a software RNIC of mkey's (1).
    pub soft: u32,
    /// Bytes of the name.
    pub name: u32,
    pub rest: [u64; 4],
}

/// A memory window.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Window {
    pub head: Head,
    pub object: u64,
    /// 1 or 2.
    pub kind: u32,
    pub device: Slot,
    /// Binds, those of them of zero length, invalidations of its key by this process.
    pub binds: u64,
    pub unbinds: u64,
    pub invalidations: u64,
    /// The [`Call`] that allocated it, the one that freed it (0: none did).
    pub alloc: Slot,
    pub dealloc: Slot,
    /// The region that it was bound to last.
    pub mr: Slot,
    pub rkey: u32,
}

/// Work completed in error; the first of each status on each queue, the others counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Failure {
    pub head: Head,
    /// CLOCK_MONOTONIC of the first.
    pub at: u64,
    /// `enum ibv_wc_status`.
    pub status: u32,
    pub vendor: u32,
    pub queue: Slot,
    /// The [`Op`] of the first; `u32::MAX`: not known.
    pub op: u32,
    pub times: u64,
    pub rest: [u64; 3],
}

/// What was wrong with the life of memory or keys.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wrong {
    /// A region was deregistered while work that named it was in flight.
    DeregInFlight = 1,
    /// Work named a key after it was deregistered.
    KeyAfterDereg,
    /// Memory was freed while it was registered.
    FreedRegistered,
    /// Memory was unmapped, or mapped anew, while it was registered.
    UnmappedRegistered,
    /// Memory was freed or unmapped while work in flight named it.
    GoneInFlight,
    /// A receive was posted into memory that another receive in flight has.
    ReceivedTwice,
    /// Work reached beyond the region whose key it named.
    Outside,
}

impl Wrong {
    /// All.
    pub const ALL: [Self; 7] = [
        Self::DeregInFlight,
        Self::KeyAfterDereg,
        Self::FreedRegistered,
        Self::UnmappedRegistered,
        Self::GoneInFlight,
        Self::ReceivedTwice,
        Self::Outside,
    ];

    /// The one of a number.
    pub fn of(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|wrong| *wrong as u16 == number)
    }
}

/// A mistake in the life of memory or keys: the first of its kind at each region, the others counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Finding {
    pub head: Head,
    /// CLOCK_MONOTONIC of the first.
    pub at: u64,
    /// The memory meant.
    pub addr: u64,
    pub len: u64,
    /// The key named, if one was.
    pub key: u32,
    /// A [`Wrong`].
    pub wrong: u16,
    pub zero: u16,
    pub mr: Slot,
    pub queue: Slot,
    /// Where it was done, and where what it goes against was (the registration, the deregistration, the
    /// registration of what is in flight): two [`Stack`]s.
    pub stack: Slot,
    pub before: Slot,
    pub thread: Slot,
    pub rest: u32,
    pub times: u64,
    pub rests: [u64; 7],
}

/// The mappings that registered memory lies in (lines of `/proc/self/smaps`, cut to those), as text that
/// comes after.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Maps {
    pub head: Head,
    pub at: u64,
    pub bytes: u64,
    pub rest: [u64; 5],
}

const _: () = {
    assert!(size_of::<Header>() == HEADER);
    assert!(size_of::<Call>() == 3 * ALIGN);
    assert!(size_of::<Mr>() == 3 * ALIGN);
    assert!(size_of::<Queue>() == 3 * ALIGN);
    assert!(size_of::<Finding>() == 2 * ALIGN);
    assert!(size_of::<Remote>() == 2 * ALIGN);
};
