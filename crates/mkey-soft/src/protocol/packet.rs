//! What packets say, apart from their bytes.

use crate::memory::Atomic;
use mkey_core::key::Key;
use mkey_core::work::RemoteAddr;

/// Which part of its message a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) first: bool,
    pub(crate) last: bool,
}

impl Part {
    /// All of it.
    pub(crate) const ONLY: Self = Self { first: true, last: true };
}

/// A packet from a requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// 24 bits.
    pub(crate) psn: u32,
    pub(crate) wants_ack: bool,
    pub(crate) solicited: bool,
    pub(crate) operation: Operation,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// What ends a message, `imm` and `invalidate`, comes with the last part.
    Send {
        part: Part,
        imm: Option<u32>,
        invalidate: Option<Key>,
    },
    /// The place and the length of the whole come with the first part.
    Write {
        part: Part,
        target: Option<(RemoteAddr, u32)>,
        imm: Option<u32>,
    },
    Read {
        remote: RemoteAddr,
        length: u32,
    },
    Atomic {
        remote: RemoteAddr,
        operation: Atomic,
    },
}

/// A packet from a responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// All up to this number is done, or this one is not.
    Ack { psn: u32, syndrome: Syndrome },
    /// Bytes of a READ.
    Read { psn: u32 },
    /// What was there before an atomic.
    Atomic { psn: u32, original: u64 },
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syndrome {
    Ack,
    /// No receive was there; the 5-bit code of the time to wait.
    NotReady(u8),
    /// Packets before this one are missing.
    Gap,
    InvalidRequest,
    RemoteAccess,
    RemoteOperation,
}
