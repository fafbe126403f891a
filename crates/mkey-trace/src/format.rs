//! The recording of a job, as it is kept: a file of JSON lines, each a [`Line`].
//!
//! The first line is the [`Job`], with the [`VERSION`] of the format. A line names others by their `id`,
//! which are counted by kind from 1 in the order of the lines, over the whole file; what a line names has
//! come before it. A device, thread or stack of 0 is one that is not known; nothing else may be named
//! by 0. Times are nanoseconds since the job began. Addresses are relative: of each process an
//! address is what it was there, less [`Process`]' own base, a multiple of 1 GiB, which is not told. No
//! byte of a program's memory is ever in it. A reader passes over kinds of lines and fields that it does
//! not know; what is taken away or changes its meaning has another version.
//!
//! [`Recording::write`] writes kinds in the order of [`Line`]; a reader takes them in any order in which
//! what is named comes first, so that a recording may be written, or cut, while it is made. A line has
//! at most [`LONGEST`] bytes.
//!
//! The same with an example of each line: `docs/trace-format.md`.

#![allow(missing_docs, reason = "fields that say what they are by their names")]

mod read;
mod write;

pub use read::Error;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the format.
pub const VERSION: u32 = 1;

/// Bytes that a line may have, its end not counted.
pub const LONGEST: usize = 16 << 20;

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first.
    Job(Job),
    /// A process that opened a device.
    Process(Process),
    /// A device that it opened.
    Device(Device),
    /// A thread that called verbs.
    Thread(Thread),
    /// A place in the program.
    Stack(Stack),
    /// Memory that was registered.
    Region(Region),
    /// A queue pair or shared receive queue.
    Queue(Queue),
    /// A memory window.
    Window(Window),
    /// A peer's key that requests named.
    Remote(Remote),
    /// A call of a verb.
    Call(Call),
    /// What a process had at a time.
    Sample(Sample),
    /// Work that completed in error.
    Failure(Failure),
    /// A mistake in the life of memory or keys.
    Finding(Finding),
    /// A counter of a device that moved during the job.
    Counter(Counter),
    /// Something else, of a later release.
    #[serde(untagged)]
    Other(serde_json::Value),
}

/// The job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// [`VERSION`].
    pub version: u32,
    /// What wrote it: `mkey 0.1.0`.
    pub by: String,
    /// The command line.
    pub command: Vec<String>,
    /// The host: its name, its CPU, how many processors, and the kernel.
    pub host: String,
    pub cpu: String,
    pub processors: u32,
    pub kernel: String,
    /// When it began, seconds since 1970.
    pub began: u64,
    /// How long it was watched, ns.
    pub wall: u64,
    /// How it ended, in words: `exit 0`, `signal 9`, `--duration`.
    pub end: String,
    /// Declared time of a device command, ns, by which software RNICs were slowed down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_cost: Option<u64>,
}

/// A process that opened a device. `exec` makes another one of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    pub id: u32,
    pub pid: u32,
    /// The process that it was forked from (by its number).
    pub parent: u32,
    pub arguments: Vec<String>,
    pub began: u64,
    /// When it ended; `None`: it did not before the recording did.
    pub ended: Option<u64>,
    /// Whether it ended by `exit`: what it left is known then.
    pub exited: bool,
    /// User and system time, ns, if known.
    pub cpu: Option<u64>,
    /// Calls recorded, and ns that recording took beyond them.
    pub calls: u64,
    pub calls_overhead: u64,
    /// ns to follow one work request, as measured in the process.
    pub post_overhead: f64,
    /// Records that found no room.
    pub lost: u64,
}

/// A device that a process opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    pub id: u32,
    pub process: u32,
    pub name: String,
    /// In hexadecimal, as `ibv_devinfo` shows it.
    pub guid: String,
    /// A software RNIC of mkey's.
    pub soft: bool,
}

/// A thread that called verbs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    pub id: u32,
    pub process: u32,
    pub tid: u32,
    pub name: String,
    /// Work requests posted, polls, polls that found nothing, completions found.
    pub posts: u64,
    pub polls: u64,
    pub empty: u64,
    pub completions: u64,
}

/// A place in the program: the frames of a call stack, innermost first, those of mkey left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    pub id: u32,
    pub frames: Vec<Frame>,
    /// Whether there were more than could be followed.
    pub cut: bool,
}

/// A frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame {
    /// The file that has the code, without its folder, and the address in it.
    pub module: String,
    pub offset: u64,
    /// If it has names and lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// Pages that memory is on.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// It was gone before it could be looked at.
    #[default]
    Unknown,
    /// 4 KiB pages of anonymous memory (heap, stack, `mmap`).
    Small,
    /// Transparent huge pages, for at least half of it.
    Thp,
    /// Reserved huge pages.
    Huge2M,
    /// The same of 1 GiB.
    Huge1G,
    /// Shared memory on small pages (`memfd`, `shm_open`, System V).
    Shared,
    /// A file.
    File,
    /// A device (`/dev/..`), or dma-buf.
    Device,
    /// None: the region has no memory of the process (on-demand for all of it, null, device memory).
    None,
}

/// How a region came to be.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `ibv_reg_mr` and the like.
    #[default]
    Memory,
    /// With ON_DEMAND.
    OnDemand,
    /// With ON_DEMAND, for all of the address space.
    Implicit,
    Dmabuf,
    DeviceMemory,
    Null,
}

/// Memory that was registered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Region {
    pub id: u32,
    pub process: u32,
    pub device: u32,
    /// Domains of a process are told apart by their number, from 1.
    pub pd: u32,
    pub origin: Origin,
    /// Relative to the process' base. Bytes.
    pub addr: u64,
    pub len: u64,
    pub lkey: u32,
    pub rkey: u32,
    /// Rights (`enum ibv_access_flags`), as last set.
    pub access: u32,
    pub pages: Pages,
    /// The mapping that it lies in, relative, if that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<(u64, u64)>,
    /// When registering returned; when deregistering began (`None`: never).
    pub from: u64,
    pub to: Option<u64>,
    /// Where it was registered and deregistered (stacks; 0: not known).
    pub reg_stack: u32,
    pub dereg_stack: u32,
    /// Entries of work requests that named it: as source of SEND and RDMA WRITE, as destination of RDMA
    /// READ and atomics, of receives; windows bound.
    pub sends: u64,
    pub writes: u64,
    pub reads: u64,
    pub recvs: u64,
    pub binds: u64,
    /// Entries that named its key and reached beyond it.
    pub outside: u64,
    /// In flight when the process ended.
    pub in_flight: u64,
}

/// A queue pair or shared receive queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    pub id: u32,
    pub process: u32,
    pub device: u32,
    pub number: u32,
    /// `RC`, `UC`, `UD`, `XRC_SEND`, `XRC_RECV`, `SRQ`, ..
    pub kind: String,
    /// Work requests by operation: `send`, `write`, `read`, `atomic`, `bind`, `local_inv`, `recv`, `other`.
    pub posted: BTreeMap<String, u64>,
    pub inlined: u64,
    /// SENDs that invalidated a key of the peer.
    pub invalidations: u64,
    pub completed: u64,
    pub failed: u64,
    /// What was in flight was followed to the end.
    pub followed: bool,
}

/// A memory window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    pub id: u32,
    pub process: u32,
    pub device: u32,
    /// 1 or 2.
    pub kind: u32,
    pub binds: u64,
    pub unbinds: u64,
    pub invalidations: u64,
    /// Allocated and freed at.
    pub from: u64,
    pub to: Option<u64>,
    pub alloc_stack: u32,
}

/// A peer's key that requests named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Remote {
    pub process: u32,
    pub device: u32,
    pub rkey: u32,
    /// The region of this recording that the key is of, if it is the only one that fits.
    pub region: Option<u32>,
    pub writes: u64,
    pub reads: u64,
    pub atomics: u64,
}

/// A call of a verb.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub process: u32,
    pub device: u32,
    pub thread: u32,
    /// The function: `ibv_reg_mr`.
    pub verb: String,
    pub begin: u64,
    pub end: u64,
    /// CPU time of the thread between them, ns, if measured.
    pub cpu: Option<u64>,
    /// 0, or what it failed with.
    pub errno: i32,
    /// The region that it made or ended.
    pub region: Option<u32>,
    /// Memory and rights that it named; relative.
    pub addr: u64,
    pub len: u64,
    pub access: u32,
    pub stack: u32,
    /// Work requests that the thread had posted before.
    pub posts: u64,
    /// By verb: `ibv_qp_type`, entries, new state, advice, kind of window.
    pub detail: u32,
}

/// What a process had at a time, as seen from outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub process: u32,
    pub at: u64,
    /// VmPin and VmRSS, bytes; CPU time so far, ns.
    pub pinned: u64,
    pub resident: u64,
    pub cpu: u64,
    /// Work requests posted so far, by all of its threads.
    pub posts: u64,
}

/// Work that completed in error: the first of each status on each queue, and how many there were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub process: u32,
    pub queue: u32,
    pub at: u64,
    /// `enum ibv_wc_status`, and what the device says besides.
    pub status: u32,
    pub vendor: u32,
    pub times: u64,
}

/// A mistake in the life of memory or keys: the first of its kind at each region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub process: u32,
    pub at: u64,
    pub wrong: Wrong,
    pub region: Option<u32>,
    pub queue: Option<u32>,
    /// Relative.
    pub addr: u64,
    pub len: u64,
    pub key: u32,
    /// Where it was done; where what it goes against was.
    pub stack: u32,
    pub before: u32,
    pub times: u64,
}

/// What was wrong.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Wrong {
    #[default]
    DeregInFlight,
    KeyAfterDereg,
    FreedRegistered,
    UnmappedRegistered,
    GoneInFlight,
    ReceivedTwice,
    Outside,
}

/// A counter of a device (sysfs `hw_counters`, netlink statistics) that moved during the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    pub device: String,
    pub name: String,
    pub before: u64,
    pub after: u64,
}

/// A recording, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    pub job: Job,
    pub processes: Vec<Process>,
    pub devices: Vec<Device>,
    pub threads: Vec<Thread>,
    pub stacks: Vec<Stack>,
    pub regions: Vec<Region>,
    pub queues: Vec<Queue>,
    pub windows: Vec<Window>,
    pub remotes: Vec<Remote>,
    /// By their beginning.
    pub calls: Vec<Call>,
    pub samples: Vec<Sample>,
    pub failures: Vec<Failure>,
    pub findings: Vec<Finding>,
    pub counters: Vec<Counter>,
}

impl Recording {
    /// The thing of an `id`: `self.regions[id - 1]`.
    pub fn by_id<T>(list: &[T], id: u32) -> Option<&T> {
        list.get((id as usize).checked_sub(1)?)
    }
}
