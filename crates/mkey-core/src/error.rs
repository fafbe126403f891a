//! Why a verb failed: the verb, its arguments, the errno, and a stable code for `mkey explain`.

use crate::address::{HostAddr, HostRange, IoAddr};
use crate::device::Capability;
use crate::queue_pair::QpState;
use crate::refusal::ManageRefusal;
use crate::rights::Rights;
use core::fmt;

/// A failed verb.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{verb}({arguments}): {reason} [{}, {}]", .reason.code(), Errno(.reason.errno()))]
pub struct Error {
    /// The verb, by its libibverbs name without the `ibv_`.
    pub verb: &'static str,
    /// The arguments that matter, in words.
    pub arguments: Box<str>,
    /// What went wrong.
    pub reason: Reason,
}

impl Error {
    /// An error of `verb` with its arguments.
    pub fn new(verb: &'static str, arguments: impl fmt::Display, reason: Reason) -> Self {
        Self { verb, arguments: arguments.to_string().into_boxed_str(), reason }
    }

    /// The errno that the verbs report for it.
    pub fn errno(&self) -> i32 {
        self.reason.errno()
    }

    /// The stable code, as in `MK0012`.
    pub fn code(&self) -> Code {
        self.reason.code()
    }
}

/// Shorthand.
pub type Result<T> = core::result::Result<T, Error>;

/// A stable code of an error, shown as `MK0012`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MK{:04}", self.0)
    }
}

/// An object kind, for messages about handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "see what they are displayed as")]
pub enum Object {
    Pd,
    Mr,
    Mw,
    Cq,
    Srq,
    Qp,
    Ah,
    CompChannel,
    Dm,
    Xrcd,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pd => "protection domain",
            Self::Mr => "memory region",
            Self::Mw => "memory window",
            Self::Cq => "completion queue",
            Self::Srq => "shared receive queue",
            Self::Qp => "queue pair",
            Self::Ah => "address handle",
            Self::CompChannel => "completion channel",
            Self::Dm => "device memory",
            Self::Xrcd => "XRC domain",
        })
    }
}

/// What went wrong in a verb. Codes are stable: a variant keeps its number for ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Rights that exclude each other (R-REG-01).
    #[error("rights {rights}: remote write and remote atomic need local write")]
    InvalidRights {
        /// The rights asked for.
        rights: Rights,
    },
    /// Bits that are no rights (R-REG-02).
    #[error("unknown access bits {bits:#x}")]
    UnknownRights {
        /// The bits that are not known.
        bits: u32,
    },
    /// The device can not do it.
    #[error("the device does not offer {capability}{}", instead(.capability))]
    Unsupported {
        /// What it lacks.
        capability: Capability,
    },
    /// `address + length` runs past 2^64 (R-REG-07).
    #[error("{length} bytes from {address} wrap around the address space")]
    Wraps {
        /// First byte.
        address: HostAddr,
        /// Length in bytes.
        length: u64,
    },
    /// Host address and I/O address differ within the page (R-REG-11).
    #[error(
        "host address {address} and I/O address {iova} differ in their offset within the page; they must agree there"
    )]
    PageOffset {
        /// The host address.
        address: HostAddr,
        /// The I/O address.
        iova: IoAddr,
    },
    /// Not mapped, or not readable (R-REG-08).
    #[error("memory {range} is not mapped")]
    NotMapped {
        /// The range asked for.
        range: HostRange,
    },
    /// Mapped without write permission although the rights need it (R-REG-10).
    #[error("memory {range} is mapped read-only, but the rights need it writable")]
    NotWritable {
        /// The range asked for.
        range: HostRange,
    },
    /// Mapped shared from a file of a disk: the kernel holds no such pages in place (R-REG-08).
    #[error(
        "memory {range} is a shared mapping of a file, whose pages can not be pinned for writing; use a memory file (memfd), map it private, or register it on-demand"
    )]
    SharedFile {
        /// The range asked for.
        range: HostRange,
    },
    /// The locked-memory limit does not allow it (R-REG-09).
    #[error(
        "{needed} bytes more would pass the locked-memory limit: {limit} bytes, {used} in use; raise RLIMIT_MEMLOCK (prlimit) or grant CAP_IPC_LOCK"
    )]
    MemlockLimit {
        /// Bytes asked for, whole 4 KiB pages.
        needed: u64,
        /// Bytes that the process has pinned.
        used: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The process may not lock memory at all (R-REG-09).
    #[error(
        "the process may not lock memory: RLIMIT_MEMLOCK is 0 and CAP_IPC_LOCK is absent; raise the one (prlimit) or grant the other"
    )]
    MemlockForbidden,
    /// No more objects of this kind.
    #[error(
        "the device has no room for another {object}: {most} are in use; destroy some, or share them"
    )]
    TableFull {
        /// The kind.
        object: Object,
        /// The limit.
        most: u64,
    },
    /// A handle that names nothing, or no more (R-ERR-10).
    #[error("no {object} has handle {handle:#x}")]
    UnknownHandle {
        /// The kind.
        object: Object,
        /// The handle's number.
        handle: u64,
    },
    /// Others depend on it (R-REG-16, R-MWU-10).
    #[error("{object} in use: {by}")]
    InUse {
        /// The kind.
        object: Object,
        /// What holds it, in words.
        by: Box<str>,
    },
    /// Objects of different protection domains.
    #[error("the objects belong to different protection domains")]
    OtherPd,
    /// The queue pair's state does not allow it (R-ORD-08, R-ORD-09).
    #[error("the queue pair is in state {state}{}", way_on(*.state))]
    QpState {
        /// Its state.
        state: QpState,
    },
    /// A queue pair may not go from here to there.
    #[error("a queue pair can not go from {from} to {to}{}", .missing.map(|m| format!(" without {m}")).unwrap_or_default())]
    QpTransition {
        /// Its state.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// The attribute that is missing, if that is why.
        missing: Option<&'static str>,
    },
    /// The queue is full (R-ORD-10).
    #[error(
        "the queue holds its {depth} work requests already; poll completions to make room (unsignaled \
         work makes room with the completion of later signaled work)"
    )]
    QueueFull {
        /// How many it holds.
        depth: u32,
    },
    /// More scatter/gather entries than the queue takes (R-ORD-11).
    #[error("{given} scatter/gather entries given, the queue takes {most}")]
    TooManySges {
        /// How many were given.
        given: usize,
        /// How many it takes.
        most: u32,
    },
    /// More inline bytes than the queue takes.
    #[error("{given} inline bytes given, the queue takes {most}")]
    TooMuchInline {
        /// How many were given.
        given: usize,
        /// How many it takes.
        most: u32,
    },
    /// An argument has a value that it may not have.
    #[error("{what} may not be {value:#x}: {allowed}")]
    Argument {
        /// The argument.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What is allowed, in words.
        allowed: &'static str,
    },
    /// The operation does not exist for this kind of queue pair or object.
    #[error("{operation} does not exist on {on}")]
    NotHere {
        /// The operation.
        operation: &'static str,
        /// Where it was tried.
        on: &'static str,
    },
    /// A range outside the memory region (R-ODP-13).
    #[error("{length} bytes from {address} are not within the memory region")]
    OutOfRange {
        /// First byte.
        address: IoAddr,
        /// Length in bytes.
        length: u64,
    },
    /// A right that the memory region does not have (R-ODP-12).
    #[error("the memory region {}", lacks(*.missing))]
    RightMissing {
        /// What is missing.
        missing: Rights,
    },
    /// Memory pinned for reading only can not become writable without a new translation (R-RRG-06).
    #[error("the pages were pinned for reading only; making them writable needs a new translation")]
    PinnedReadOnly,
    /// A memory-management operation that was refused at once.
    #[error("{0}")]
    Refused(ManageRefusal),
    /// A key that names no memory region (R-ODP-09).
    #[error("no on-demand memory region has lkey {key}")]
    UnknownLkey {
        /// The key.
        key: crate::key::Key,
    },
    /// The completion queue overran; completions were lost.
    #[error(
        "the completion queue has overrun its {depth} entries: completions are lost; make it deeper, or poll more often"
    )]
    CqOverrun {
        /// Its depth.
        depth: u32,
    },
    /// A pool, cache or limit of the library has no room left.
    #[error("the {what} has no room for {asked}: {free} free, limit {limit}")]
    Exhausted {
        /// What is full.
        what: &'static str,
        /// What was asked for, in its unit.
        asked: u64,
        /// What is free, in the same unit.
        free: u64,
        /// The limit in force, in the same unit.
        limit: u64,
    },
    /// Something did not come in the time allowed.
    #[error("not within {} ms", .after.as_millis())]
    TimedOut {
        /// The time allowed.
        after: core::time::Duration,
    },
    /// Peers may access the memory, so that it can not be lent as a slice.
    #[error("the memory was registered for peers to access; it can be read and written, not lent")]
    Exposed,
    /// Posted work, a grant or another slice still uses it.
    #[error("{what} is still in use: by posted work, a grant or another slice")]
    StillUsed {
        /// What is in use.
        what: &'static str,
    },
    /// A queue pair, a grant or a registration that has ended.
    #[error("the {what} has ended")]
    Ended {
        /// What has ended.
        what: &'static str,
    },
    /// A work request failed.
    #[error("{what} failed: {status}")]
    WorkFailed {
        /// What it was to do.
        what: &'static str,
        /// How it ended.
        status: crate::status::WcStatus,
    },
    /// Rights that memory of a file descriptor can not be registered with (R-REG-23).
    #[error(
        "a file descriptor's memory can not be registered with {rights}: only with {}",
        Rights::DMA_BUF
    )]
    UnfitRights {
        /// Those that are too much.
        rights: Rights,
    },
    /// Offset into the file and I/O address differ within the page (R-REG-24).
    #[error(
        "offset {offset:#x} into the file and I/O address {iova} differ in their offset within the page; they must agree there"
    )]
    FileOffset {
        /// Offset of the first byte.
        offset: u64,
        /// The I/O address asked for.
        iova: IoAddr,
    },
    /// A range that the file does not have (R-REG-25).
    #[error("{length} bytes from offset {offset:#x} are not within the {size} bytes of the file")]
    OutsideFile {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        length: u64,
        /// The size of the file in bytes.
        size: u64,
    },
    /// There is no such device, or none that this process can open.
    #[error("{why}")]
    NoDevice {
        /// Why, and what mends it, in words.
        why: Box<str>,
    },
    /// The device failed, or was removed while it was open.
    #[error("the device failed or was removed; close it, and open it again when it is back")]
    DeviceGone,
    /// The operating system refused.
    #[error("{call} failed")]
    System {
        /// The system call.
        call: &'static str,
        /// Its errno.
        errno: i32,
    },
}

/// The errno values that mkey reports, with Linux's numbers.
#[allow(missing_docs, reason = "the names are those of `errno.h`")]
pub mod errno {
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const EIO: i32 = 5;
    pub const EAGAIN: i32 = 11;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const EFAULT: i32 = 14;
    pub const EBUSY: i32 = 16;
    pub const ENODEV: i32 = 19;
    pub const EINVAL: i32 = 22;
    pub const EOPNOTSUPP: i32 = 95;
    pub const ETIMEDOUT: i32 = 110;
    /// The kernel's own "not supported", not meant for programs; some drivers let it out.
    pub const ENOTSUPP: i32 = 524;
}

/// What does it without a capability, as the end of a sentence; empty where nothing does.
fn instead(capability: &Capability) -> &'static str {
    match capability {
        Capability::OnDemand => "; register the memory without that right, which pins it",
        Capability::OnDemandImplicit => "; register ranges of it",
        Capability::Rereg => "; deregister, and register anew",
        Capability::NullMr => "; register memory that nobody reads",
        Capability::ZeroBased => "; count from the address of the memory",
        _ => "",
    }
}

impl Reason {
    /// The errno that the verbs report for it.
    pub const fn errno(&self) -> i32 {
        use errno::*;
        match self {
            Reason::Unsupported { .. } => EOPNOTSUPP,
            Reason::NotMapped { .. }
            | Reason::NotWritable { .. }
            | Reason::SharedFile { .. }
            | Reason::OutOfRange { .. } => EFAULT,
            Reason::MemlockLimit { .. }
            | Reason::TableFull { .. }
            | Reason::QueueFull { .. }
            | Reason::CqOverrun { .. }
            | Reason::Exhausted { .. } => ENOMEM,
            Reason::MemlockForbidden | Reason::OtherPd | Reason::RightMissing { .. } => EPERM,
            Reason::UnknownHandle { .. } | Reason::UnknownLkey { .. } => ENOENT,
            Reason::InUse { .. } | Reason::Exposed | Reason::StillUsed { .. } => EBUSY,
            Reason::TimedOut { .. } => ETIMEDOUT,
            Reason::WorkFailed { .. } | Reason::DeviceGone => EIO,
            Reason::NoDevice { .. } => ENODEV,
            Reason::PinnedReadOnly => EACCES,
            Reason::System { errno, .. } => *errno,
            _ => EINVAL,
        }
    }

    /// The stable code.
    pub const fn code(&self) -> Code {
        Code(match self {
            Reason::InvalidRights { .. } => 1,
            Reason::UnknownRights { .. } => 2,
            Reason::Unsupported { .. } => 3,
            Reason::Wraps { .. } => 4,
            Reason::PageOffset { .. } => 5,
            Reason::NotMapped { .. } => 6,
            Reason::NotWritable { .. } => 7,
            Reason::MemlockLimit { .. } => 8,
            Reason::MemlockForbidden => 9,
            Reason::TableFull { .. } => 10,
            Reason::UnknownHandle { .. } => 11,
            Reason::InUse { .. } => 12,
            Reason::OtherPd => 13,
            Reason::QpState { .. } => 14,
            Reason::QpTransition { .. } => 15,
            Reason::QueueFull { .. } => 16,
            Reason::TooManySges { .. } => 17,
            Reason::TooMuchInline { .. } => 18,
            Reason::Argument { .. } => 19,
            Reason::NotHere { .. } => 20,
            Reason::OutOfRange { .. } => 21,
            Reason::RightMissing { .. } => 22,
            Reason::PinnedReadOnly => 23,
            Reason::Refused(_) => 24,
            Reason::UnknownLkey { .. } => 25,
            Reason::CqOverrun { .. } => 26,
            Reason::System { .. } => 27,
            Reason::Exhausted { .. } => 28,
            Reason::TimedOut { .. } => 29,
            Reason::Exposed => 30,
            Reason::StillUsed { .. } => 31,
            Reason::Ended { .. } => 32,
            Reason::WorkFailed { .. } => 33,
            Reason::UnfitRights { .. } => 34,
            Reason::FileOffset { .. } => 35,
            Reason::OutsideFile { .. } => 36,
            Reason::SharedFile { .. } => 37,
            Reason::NoDevice { .. } => 38,
            Reason::DeviceGone => 39,
        })
    }
}

struct Errno(i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use errno::*;
        let name = match self.0 {
            EPERM => "EPERM",
            ENOENT => "ENOENT",
            EIO => "EIO",
            EAGAIN => "EAGAIN",
            ENOMEM => "ENOMEM",
            EACCES => "EACCES",
            EFAULT => "EFAULT",
            EBUSY => "EBUSY",
            ENODEV => "ENODEV",
            EINVAL => "EINVAL",
            EOPNOTSUPP => "EOPNOTSUPP",
            ETIMEDOUT => "ETIMEDOUT",
            ENOTSUPP => "ENOTSUPP",
            other => return write!(f, "errno {other}"),
        };
        f.write_str(name)
    }
}

/// What brings a queue pair to where work may be posted.
fn way_on(state: QpState) -> &'static str {
    match state {
        QpState::Reset | QpState::Init => "; connect it first",
        _ => "",
    }
}

/// What a region lacks, and the steps of its registration that would have given it.
fn lacks(missing: Rights) -> String {
    if missing == Rights::REMOTE {
        let steps = "remote_read(), remote_write() or remote_atomic()";
        return format!("is local-only: registered with {steps}, peers can reach it");
    }
    let steps = [
        (Rights::MW_BIND, "windows()"),
        (Rights::REMOTE_READ, "remote_read()"),
        (Rights::REMOTE_WRITE, "remote_write()"),
        (Rights::REMOTE_ATOMIC, "remote_atomic()"),
    ];
    let steps = steps.iter().filter(|(right, _)| missing.contains(*right));
    let steps: Vec<&str> = steps.map(|&(_, step)| step).collect();
    match steps.is_empty() {
        true => format!("lacks {missing}"),
        false => format!("lacks {missing}: register it with {}", steps.join(" and ")),
    }
}
