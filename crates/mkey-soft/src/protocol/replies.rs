//! What a responder has to say, in order.

use super::packet::{Part, Syndrome};
use super::sequence::{Sequence, on_wire};
use mkey_core::address::IoAddr;
use mkey_core::work::RemoteAddr;
use std::collections::VecDeque;

/// Replies that wait at most; a peer that asks for more before it takes these does not keep to what
/// was agreed on.
const MOST: usize = 512;

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Ack {
        psn: u32,
        syndrome: Syndrome,
        msn: u32,
    },
    /// `length` bytes from `remote` on.
    Read {
        psn: u32,
        part: Part,
        remote: RemoteAddr,
        length: u32,
        msn: u32,
    },
    Atomic {
        psn: u32,
        original: u64,
        msn: u32,
    },
}

/// What waits to be sent.
#[derive(Debug, Default)]
pub(super) struct Replies(VecDeque<Waiting>);

#[derive(Debug)]
enum Waiting {
    Ack { sequence: Sequence, syndrome: Syndrome, msn: u32 },
    Read(ReadReply),
    Atomic { sequence: Sequence, original: u64, msn: u32 },
}

/// A READ that is being answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadReply {
    pub(super) first: Sequence,
    pub(super) remote: RemoteAddr,
    pub(super) length: u32,
    /// Bytes that were sent.
    pub(super) done: u32,
    pub(super) mtu: u32,
    pub(super) msn: u32,
}

impl ReadReply {
    fn next(&self) -> Reply {
        let left = self.length.saturating_sub(self.done);
        let address = IoAddr(self.remote.address.0.wrapping_add(u64::from(self.done)));
        Reply::Read {
            psn: on_wire(self.first + u64::from(self.done / self.mtu)),
            part: Part { first: self.done == 0, last: left <= self.mtu },
            remote: RemoteAddr { address, ..self.remote },
            length: left.min(self.mtu),
            msn: self.msn,
        }
    }
}

impl Replies {
    /// All up to this is done. One that waits already is told by the same packet.
    pub(super) fn ack(&mut self, upto: Sequence, msn: u32) {
        if let Some(Waiting::Ack { sequence, syndrome: Syndrome::Ack, msn: last }) =
            self.0.back_mut()
        {
            if *sequence <= upto {
                (*sequence, *last) = (upto, msn);
            }
            return;
        }
        self.push(Waiting::Ack { sequence: upto, syndrome: Syndrome::Ack, msn });
    }

    pub(super) fn nak(&mut self, sequence: Sequence, syndrome: Syndrome, msn: u32) {
        self.push(Waiting::Ack { sequence, syndrome, msn });
    }

    pub(super) fn read(&mut self, read: ReadReply) {
        self.push(Waiting::Read(read));
    }

    pub(super) fn atomic(&mut self, sequence: Sequence, original: u64, msn: u32) {
        self.push(Waiting::Atomic { sequence, original, msn });
    }

    fn push(&mut self, reply: Waiting) {
        if self.0.len() < MOST {
            self.0.push_back(reply);
        }
    }

    /// The next packet.
    pub(super) fn next(&self) -> Option<Reply> {
        Some(match *self.0.front()? {
            Waiting::Ack { sequence, syndrome, msn } => {
                Reply::Ack { psn: on_wire(sequence), syndrome, msn }
            }
            Waiting::Atomic { sequence, original, msn } => {
                Reply::Atomic { psn: on_wire(sequence), original, msn }
            }
            Waiting::Read(ref read) => read.next(),
        })
    }

    /// It was sent.
    pub(super) fn sent(&mut self) {
        if let Some(Waiting::Read(read)) = self.0.front_mut() {
            read.done = read.done.saturating_add(read.mtu);
            if read.done < read.length {
                return;
            }
        }
        self.0.pop_front();
    }

    /// The READ that is next can not be gone on with: where it stands.
    pub(super) fn break_off(&mut self) -> Option<Sequence> {
        match self.0.pop_front()? {
            Waiting::Read(read) => {
                self.0.clear();
                Some(read.first + u64::from(read.done / read.mtu))
            }
            other => {
                self.0.push_front(other);
                None
            }
        }
    }
}
