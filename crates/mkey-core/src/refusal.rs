//! Why an access or a memory-management operation was not allowed.
//!
//! A NIC tells its user one status; here the exact reason is kept beside that status, so that tools
//! can say it in words.

use crate::address::{HostRange, IoAddr};
use crate::key::Key;
use crate::rights::{Rights, Want};
use crate::status::WcStatus;
use core::fmt;
use core::time::Duration;

/// The serial number of a protection domain. Never reused by a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PdId(pub u32);

/// The serial number of a queue pair. Unlike a QP number it is never reused by a device, so that a
/// window of a destroyed queue pair can not pass to a new one (R-MWU-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct QpId(pub u32);

/// What the program did to pages under a live registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DetachCause {
    /// `munmap`, or a mapping placed over it.
    Unmapped,
    /// `madvise(MADV_DONTNEED)`, `MADV_REMOVE` and their like.
    Discarded,
    /// `mremap`.
    Moved,
}

impl fmt::Display for DetachCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unmapped => "unmapped",
            Self::Discarded => "discarded",
            Self::Moved => "moved",
        })
    }
}

/// What a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum KeyKind {
    /// A memory region.
    Region = 1,
    /// A memory window of type 1.
    Window1 = 2,
    /// A memory window of type 2B.
    Window2 = 3,
    /// A fast-registration region.
    FastMr = 4,
    /// The null region: reads give zeros, writes vanish.
    Null = 5,
}

impl KeyKind {
    pub(crate) const fn from_u8(value: u8) -> Option<Self> {
        match value {
            1 => Some(Self::Region),
            2 => Some(Self::Window1),
            3 => Some(Self::Window2),
            4 => Some(Self::FastMr),
            5 => Some(Self::Null),
            _ => None,
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Region => "memory region",
            Self::Window1 => "type 1 memory window",
            Self::Window2 => "type 2 memory window",
            Self::FastMr => "fast-registration region",
            Self::Null => "null memory region",
        })
    }
}

/// Why an access through a key was refused. Rules: sections R-KEY, R-RA, R-LOC, R-MWU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// No object has this index.
    UnknownIndex {
        /// The key offered.
        key: Key,
    },
    /// The index is in use, but the key was made anew since, or never was this one.
    StaleVariant {
        /// The key offered.
        key: Key,
        /// What the index names now.
        kind: KeyKind,
    },
    /// A local key was offered where a remote key is needed.
    LkeyAsRkey {
        /// The key offered.
        key: Key,
    },
    /// A remote key was offered where a local key is needed.
    RkeyAsLkey {
        /// The key offered.
        key: Key,
    },
    /// The key is right, but nothing is registered or bound behind it now.
    NotValid {
        /// The key offered.
        key: Key,
        /// What it names.
        kind: KeyKind,
    },
    /// The key belongs to another protection domain than the queue pair.
    OtherPd {
        /// The key offered.
        key: Key,
        /// The key's domain.
        key_pd: PdId,
        /// The queue pair's domain.
        qp_pd: PdId,
    },
    /// The type 2 window is bound for another queue pair.
    OtherQp {
        /// The key offered.
        key: Key,
        /// The queue pair that it was bound on.
        key_qp: QpId,
        /// The queue pair that the access came by.
        qp: QpId,
    },
    /// The key does not grant this kind of access.
    RightMissing {
        /// The key offered.
        key: Key,
        /// What was wanted.
        want: Want,
        /// What is granted.
        has: Rights,
    },
    /// The access starts before the registered range.
    BeforeStart {
        /// The key offered.
        key: Key,
        /// First byte of the range.
        start: IoAddr,
        /// First byte of the access.
        address: IoAddr,
        /// By how many bytes.
        by: u64,
    },
    /// The access ends past the registered range.
    PastEnd {
        /// The key offered.
        key: Key,
        /// First byte of the range.
        start: IoAddr,
        /// Length of the range in bytes.
        length: u64,
        /// First byte of the access.
        address: IoAddr,
        /// By how many bytes.
        by: u64,
    },
    /// The program has unmapped, discarded or moved these pages under the registration.
    Detached {
        /// The key offered.
        key: Key,
        /// The pages that are gone, as far as the access meets them.
        range: HostRange,
        /// What happened to them.
        cause: DetachCause,
        /// When, since the device was opened.
        when: Duration,
    },
    /// The pages could not be faulted in: not mapped, or not writable (R-ODP-04); or the memory
    /// behind a pinned registration could not be touched.
    NotPresent {
        /// The key offered.
        key: Key,
        /// The host range that was tried.
        range: HostRange,
    },
    /// An atomic's address is not a multiple of 8 (R-AT-02).
    Misaligned {
        /// The address.
        address: IoAddr,
    },
}

impl Refusal {
    /// The status of a requester's completion when its own lkey was refused, or of a receive whose
    /// buffer was refused (R-LOC-01 to 06).
    pub const fn local_status(&self) -> WcStatus {
        WcStatus::LocProtErr
    }

    /// The key that was offered, if there was one.
    pub const fn key(&self) -> Option<Key> {
        match *self {
            Refusal::UnknownIndex { key }
            | Refusal::StaleVariant { key, .. }
            | Refusal::LkeyAsRkey { key }
            | Refusal::RkeyAsLkey { key }
            | Refusal::NotValid { key, .. }
            | Refusal::OtherPd { key, .. }
            | Refusal::OtherQp { key, .. }
            | Refusal::RightMissing { key, .. }
            | Refusal::BeforeStart { key, .. }
            | Refusal::PastEnd { key, .. }
            | Refusal::Detached { key, .. }
            | Refusal::NotPresent { key, .. } => Some(key),
            Refusal::Misaligned { .. } => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::UnknownIndex { key } => {
                write!(f, "key {key}: no registration has index {:#x}", key.index())
            }
            Refusal::StaleVariant { key, kind } => write!(
                f,
                "key {key}: index {:#x} is a {kind}, but its variant is not {:#04x} (any more)",
                key.index(),
                key.variant()
            ),
            Refusal::LkeyAsRkey { key } => {
                write!(f, "key {key} is a local key; a peer needs the rkey")
            }
            Refusal::RkeyAsLkey { key } => {
                write!(f, "key {key} is a remote key; a local entry needs the lkey")
            }
            Refusal::NotValid { key, kind } => {
                write!(f, "key {key}: the {kind} is not registered or bound at this moment")
            }
            Refusal::OtherPd { key, key_pd, qp_pd } => write!(
                f,
                "key {key} belongs to protection domain {}, the queue pair to {}",
                key_pd.0, qp_pd.0
            ),
            Refusal::OtherQp { key, key_qp, qp } => write!(
                f,
                "key {key}: the window was bound on queue pair #{}, the access came by #{}",
                key_qp.0, qp.0
            ),
            Refusal::RightMissing { key, want, has } => {
                write!(f, "key {key}: {want} wanted, granted is {has}")
            }
            Refusal::BeforeStart { key, start, address, by } => write!(
                f,
                "key {key}: access at {address} starts {by} bytes before the range, which begins at {start}"
            ),
            Refusal::PastEnd { key, start, length, address, by } => write!(
                f,
                "key {key}: access at {address} ends {by} bytes past the range of {length} bytes from {start}"
            ),
            Refusal::Detached { key, range, cause, when } => write!(
                f,
                "key {key}: pages {range} were {cause} by the program {when:?} after the device was opened, while registered"
            ),
            Refusal::NotPresent { key, range } => {
                write!(f, "key {key}: memory {range} is not mapped for this access")
            }
            Refusal::Misaligned { address } => {
                write!(f, "atomic at {address}: the address must be a multiple of 8")
            }
        }
    }
}

/// Why binding, invalidating or fast registration was refused. Rules: R-MW, R-INV, R-FR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ManageRefusal {
    /// The key does not name a live object of this queue pair's domain.
    Key(Refusal),
    /// The key names something that this operation does not apply to.
    WrongKind {
        /// The key offered.
        key: Key,
        /// What it names.
        kind: KeyKind,
    },
    /// Already bound or registered; it must be invalidated first (R-MW-27, R-FR-07).
    NotFree {
        /// The key offered.
        key: Key,
    },
    /// Another thread is changing this object right now.
    Busy {
        /// The key offered.
        key: Key,
    },
    /// The region behind lacks this right (R-MW-13, R-MW-14; R-FR over local keys).
    ParentLacks {
        /// The region's key.
        key: Key,
        /// What is missing.
        missing: Rights,
    },
    /// The region is zero-based, windows of type 1 can not lie on it (R-MW-08).
    ZeroBasedParent {
        /// The region's key.
        key: Key,
    },
    /// These rights can not be granted here (R-MW-19, R-FR-13).
    Rights {
        /// The rights asked for.
        rights: Rights,
    },
    /// A window of type 2 can not be empty (R-MW-28).
    Empty,
    /// An address range that wraps around the end of the address space.
    Wraps {
        /// First byte.
        address: IoAddr,
        /// Length in bytes.
        length: u64,
    },
    /// More scatter entries than the object was allocated for, or none at all.
    Entries {
        /// How many were given.
        given: usize,
        /// The most there may be.
        most: u32,
    },
    /// Windows are bound to it (R-INV-09).
    Held {
        /// The key offered.
        key: Key,
        /// How many.
        by: u32,
    },
}

impl ManageRefusal {
    /// The status of the work request's completion: D-BIND for windows; the operation error that
    /// drivers give for the rest (R-FR-07, R-INV-07). `bind_or_window` says that the request was a
    /// bind or the key named a window.
    pub const fn status(&self, bind_or_window: bool) -> WcStatus {
        if bind_or_window { WcStatus::MwBindErr } else { WcStatus::LocQpOpErr }
    }
}

impl fmt::Display for ManageRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(refusal) => refusal.fmt(f),
            Self::WrongKind { key, kind } => {
                write!(f, "key {key} names a {kind}, to which this operation does not apply")
            }
            Self::NotFree { key } => write!(f, "key {key} is in force; invalidate it first"),
            Self::Busy { key } => write!(f, "key {key} is being changed by another thread"),
            Self::ParentLacks { key, missing } => {
                write!(f, "the region of key {key} lacks {missing}")
            }
            Self::ZeroBasedParent { key } => {
                write!(f, "the region of key {key} is zero-based, type 1 windows can not lie on it")
            }
            Self::Rights { rights } => write!(f, "rights {rights} can not be granted here"),
            Self::Empty => f.write_str("a type 2 window can not be empty"),
            Self::Wraps { address, length } => {
                write!(f, "{length} bytes from {address} wrap around the address space")
            }
            Self::Entries { given, most } => {
                write!(f, "{given} scatter entries given, 1 to {most} are possible")
            }
            Self::Held { key, by } => {
                write!(f, "{by} windows or fast registrations hold key {key}")
            }
        }
    }
}

impl From<Refusal> for ManageRefusal {
    fn from(refusal: Refusal) -> Self {
        Self::Key(refusal)
    }
}
