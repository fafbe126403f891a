//! What requester and responder say to each other, as values: executed inline where both are in
//! one process.

use crate::memory::Source;
use mkey_core::device::{Gid, RefusedBy};
use mkey_core::key::Key;
use mkey_core::refusal::Refusal;
use mkey_core::work::RemoteAddr;
use mkey_wire::syndrome::NakCode;
use std::fmt;

/// A SEND or WRITE on the way from a requester to a responder, or a part of one.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) ask: Ask,
    /// Bytes that travel with it.
    pub(crate) length: u64,
    pub(crate) part: Part,
    pub(crate) source: Source<'a>,
    /// The receiver's completion is a solicited event.
    pub(crate) solicited: bool,
    /// Datagrams: who sends, and with which queue key.
    pub(crate) datagram: Option<Datagram>,
}

/// Which part of its message a request is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Bytes that came before.
    pub(crate) before: u64,
    /// Bytes of the whole. Of a SEND that comes in parts only the last tells.
    pub(crate) total: u64,
    /// Whether the message ends with it.
    pub(crate) last: bool,
}

impl Part {
    /// A whole message.
    #[inline]
    pub(crate) fn whole(length: u64) -> Self {
        Self { before: 0, total: length, last: true }
    }
}

/// The addresses of an unreliable datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    pub(crate) from: Gid,
    pub(crate) to: Gid,
    pub(crate) src_qp: u32,
    pub(crate) qkey: u32,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
}

/// What is asked. An address is that of the whole message, and what follows the bytes comes with the
/// last part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Send { imm: Option<u32>, invalidate: Option<Key> },
    Write { remote: RemoteAddr, imm: Option<u32> },
}

/// How a responder answers.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Done.
    Ack,
    /// Refused.
    Nak(Nak),
    /// No receive was posted: try again after the time of this 5-bit code.
    NotReady(u8),
    /// Nothing: the request was dropped, and may be sent again.
    Dropped,
    /// Nothing, and sending it again would not help: the responder failed on it (class J).
    Silence,
    /// The request's own bytes could not be read: the requester's fault, nothing more was sent.
    Unsent(Refusal),
}

/// A negative acknowledgement. Over a wire only the code would travel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nak {
    pub(crate) code: NakCode,
    pub(crate) why: Option<RefusedBy>,
    /// Its entry in the responder's log.
    pub(crate) number: u32,
}

impl Nak {
    /// One that is not about a key or a right.
    pub(crate) fn bare(code: NakCode) -> Self {
        Self { code, why: None, number: 0 }
    }
}

/// A request in words, for the log of refusals.
pub(crate) struct Words<'a> {
    pub(crate) what: &'a str,
    pub(crate) length: u64,
    pub(crate) remote: Option<RemoteAddr>,
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.what, self.length)?;
        match self.remote {
            Some(remote) => write!(f, " at {} with rkey {}", remote.address, remote.rkey),
            None => Ok(()),
        }
    }
}
