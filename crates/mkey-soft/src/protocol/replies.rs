//! What a responder has to say, in order.

use super::sequence::{Sequence, on_wire};
use mkey_core::refusal::PdId;
use mkey_wire::response::{ReadResponse, Response};
use mkey_wire::syndrome::{Credits, Syndrome};
use mkey_wire::u24::{Msn, Psn};
use mkey_wire::{aeth, reth};
use std::collections::VecDeque;

/// Replies that wait at most; a peer that asks for more before it takes these does not keep to what
/// was agreed on.
const MOST: usize = 512;

const DONE: Syndrome = Syndrome::Ack(Credits::UNLIMITED);

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) psn: Psn,
    pub(crate) response: Response,
    /// The bytes that it carries.
    pub(crate) bytes: Option<Piece>,
}

/// Bytes that are read when they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) reth: reth::Repr,
    /// Where the access is checked: as the request had it, which others have followed meanwhile.
    pub(crate) domain: PdId,
    /// They were asked for once more.
    pub(crate) again: bool,
}

/// What waits to be sent.
#[derive(Debug, Default)]
pub(super) struct Replies(VecDeque<Waiting>);

#[derive(Debug)]
enum Waiting {
    Ack { sequence: Sequence, aeth: aeth::Repr },
    Read(ReadReply),
    Atomic { sequence: Sequence, original: u64, msn: Msn },
}

/// A READ that is being answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadReply {
    pub(super) first: Sequence,
    pub(super) reth: reth::Repr,
    /// Bytes that were sent.
    pub(super) done: u32,
    pub(super) mtu: u32,
    pub(super) msn: Msn,
    pub(super) domain: PdId,
    pub(super) again: bool,
}

/// Sequence numbers that a READ takes.
pub(super) fn packets(reth: &reth::Repr, mtu: u32) -> u64 {
    u64::from(reth.length.div_ceil(mtu.max(1)).max(1))
}

impl ReadReply {
    /// The sequence number after its last.
    fn end(&self) -> Sequence {
        self.first + packets(&self.reth, self.mtu)
    }

    fn sequence(&self) -> Sequence {
        self.first + u64::from(self.done / self.mtu.max(1))
    }

    fn next(&self) -> Reply {
        let left = self.reth.length.saturating_sub(self.done);
        let address = self.reth.address.wrapping_add(u64::from(self.done));
        let aeth = aeth::Repr { syndrome: DONE, msn: self.msn };
        let response = match (self.done == 0, left <= self.mtu) {
            (true, true) => ReadResponse::Only(aeth),
            (true, false) => ReadResponse::First(aeth),
            (false, true) => ReadResponse::Last(aeth),
            (false, false) => ReadResponse::Middle,
        };
        let length = left.min(self.mtu);
        Reply {
            psn: on_wire(self.sequence()),
            response: Response::Read(response),
            bytes: Some(Piece {
                reth: reth::Repr { address, length, ..self.reth },
                domain: self.domain,
                again: self.again,
            }),
        }
    }
}

impl Replies {
    /// All up to this is done. One that waits already is told by the same packet.
    pub(super) fn ack(&mut self, upto: Sequence, msn: Msn) {
        if let Some(Waiting::Ack { sequence, aeth }) = self.0.back_mut()
            && aeth.syndrome == DONE
        {
            if *sequence <= upto {
                (*sequence, aeth.msn) = (upto, msn);
            }
            return;
        }
        self.nak(upto, DONE, msn);
    }

    pub(super) fn nak(&mut self, sequence: Sequence, syndrome: Syndrome, msn: Msn) {
        self.push(Waiting::Ack { sequence, aeth: aeth::Repr { syndrome, msn } });
    }

    pub(super) fn read(&mut self, read: ReadReply) {
        self.push(Waiting::Read(read));
    }

    /// A READ that is asked for once more: what waits of its answer is not waited for any more.
    pub(super) fn read_again(&mut self, read: ReadReply) {
        let overlaps = |waiting: &&mut Waiting| match waiting {
            Waiting::Read(known) => known.first < read.end() && read.first < known.end(),
            _ => false,
        };
        match self.0.iter_mut().find(overlaps) {
            Some(waiting) => *waiting = Waiting::Read(read),
            None => self.read(read),
        }
    }

    pub(super) fn atomic(&mut self, sequence: Sequence, original: u64, msn: Msn) {
        self.push(Waiting::Atomic { sequence, original, msn });
    }

    fn push(&mut self, reply: Waiting) {
        if self.0.len() < MOST {
            self.0.push_back(reply);
        }
    }

    /// The next packet.
    pub(super) fn next(&self) -> Option<Reply> {
        let (sequence, response) = match *self.0.front()? {
            Waiting::Read(ref read) => return Some(read.next()),
            Waiting::Ack { sequence, aeth } => (sequence, Response::Acknowledge(aeth)),
            Waiting::Atomic { sequence, original, msn } => {
                let aeth = aeth::Repr { syndrome: DONE, msn };
                (sequence, Response::AtomicAcknowledge { aeth, original })
            }
        };
        Some(Reply { psn: on_wire(sequence), response, bytes: None })
    }

    /// It was sent.
    pub(super) fn sent(&mut self) {
        if let Some(Waiting::Read(read)) = self.0.front_mut() {
            read.done = read.done.saturating_add(read.mtu);
            if read.done < read.reth.length {
                return;
            }
        }
        self.0.pop_front();
    }

    /// What is next is not said.
    pub(super) fn drop_front(&mut self) {
        self.0.pop_front();
    }

    /// The READ that is next can not be gone on with: where it stands. Nothing else is replied.
    pub(super) fn break_off(&mut self) -> Option<Sequence> {
        let Some(Waiting::Read(read)) = self.0.front() else { return None };
        let sequence = read.sequence();
        self.0.clear();
        Some(sequence)
    }
}
