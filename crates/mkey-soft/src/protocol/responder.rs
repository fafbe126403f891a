//! The responder: which packets are to be carried out, and what is replied.

use super::packet::{Operation, Part, Request, Syndrome};
use super::replies::{ReadReply, Replies, Reply};
use super::sequence::{Sequence, begin, nearest};
use mkey_core::work::RemoteAddr;
use std::collections::VecDeque;

/// One direction of a connection, as its responder sees it.
#[derive(Debug)]
pub(crate) struct Responder {
    /// Whether anything is acknowledged (RC, not UC).
    reliable: bool,
    /// The next packet.
    expected: Sequence,
    /// Messages that are done, 24 bits.
    msn: u32,
    /// The message that has begun and not ended.
    current: Option<Current>,
    /// That packets are missing was told.
    told: bool,
    /// What was read and changed last, for who asks once more.
    kept: VecDeque<Kept>,
    most_kept: usize,
    /// The request that ended all, and how it was answered.
    refused: Option<(Sequence, Syndrome)>,
    replies: Replies,
}

#[derive(Clone, Copy, Debug)]
enum Current {
    Send { done: u64 },
    Write { remote: RemoteAddr, total: u32, done: u64 },
}

#[derive(Clone, Copy, Debug)]
enum Kept {
    Read { first: Sequence, end: Sequence },
    Atomic { at: Sequence, original: u64 },
}

/// What is to be done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admit {
    /// Nothing: there may be something to reply.
    Nothing,
    /// The packet breaks the rules of the protocol: to be answered as an invalid request, with an
    /// event (R-ERR-04, R-RA-13, R-RA-14).
    Invalid,
    /// To be carried out: a SEND, of which so many bytes have come.
    Send {
        before: u64,
    },
    /// To be carried out: a WRITE to `remote` of `total` bytes, of which so many have come.
    Write {
        remote: RemoteAddr,
        total: u32,
        before: u64,
    },
    /// To be carried out, as the request says.
    Read,
    Atomic,
}

/// How it was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Done,
    /// An atomic: what was there before.
    Original(u64),
    /// It was refused.
    Nak(Syndrome),
    /// Not done, and to be sent again without being asked.
    Dropped,
}

impl Responder {
    pub(crate) fn new(reliable: bool, psn: u32, max_reads: u8) -> Self {
        Self {
            reliable,
            expected: begin(psn),
            msn: 0,
            current: None,
            told: false,
            kept: VecDeque::new(),
            most_kept: usize::from(max_reads),
            refused: None,
            replies: Replies::default(),
        }
    }

    /// What is to be done with a request that came with so many bytes of payload, over a link of
    /// this MTU. Unless it is nothing, [`Responder::answered`] follows.
    pub(crate) fn admit(&mut self, request: &Request, payload: u64, mtu: u32) -> Admit {
        let sequence = nearest(self.expected, request.psn);
        if !self.reliable {
            return self.admit_unreliable(request, sequence, payload, mtu);
        }
        if sequence < self.expected {
            self.duplicate(request, sequence, mtu);
            return Admit::Nothing;
        }
        if sequence > self.expected {
            if !self.told {
                self.told = true;
                self.replies.nak(self.expected, Syndrome::Gap, self.msn);
            }
            return Admit::Nothing;
        }
        self.told = false;
        self.in_order(request, payload, mtu)
    }

    /// UC: a message of which a part is missing is dropped, and the next one that begins is taken.
    fn admit_unreliable(
        &mut self,
        request: &Request,
        sequence: Sequence,
        payload: u64,
        mtu: u32,
    ) -> Admit {
        let first = part(&request.operation).is_some_and(|part| part.first);
        if first {
            self.current = None;
        } else if sequence != self.expected || self.current.is_none() {
            (self.current, self.expected) = (None, sequence + 1);
            return Admit::Nothing;
        }
        self.expected = sequence;
        match self.in_order(request, payload, mtu) {
            Admit::Invalid | Admit::Read | Admit::Atomic => {
                (self.current, self.expected) = (None, sequence + 1);
                Admit::Nothing
            }
            admit => admit,
        }
    }

    fn in_order(&self, request: &Request, payload: u64, mtu: u32) -> Admit {
        let Some(part) = part(&request.operation) else {
            // Only messages in parts carry a payload.
            if self.current.is_some() || payload > 0 {
                return Admit::Invalid;
            }
            return match request.operation {
                Operation::Read { .. } => Admit::Read,
                _ => Admit::Atomic,
            };
        };
        let mtu = u64::from(mtu);
        let fits = match part {
            Part { last: false, .. } => payload == mtu,
            Part { first: true, last: true } => payload <= mtu,
            Part { first: false, last: true } => (1..=mtu).contains(&payload),
        };
        if !fits {
            return Admit::Invalid;
        }
        match (request.operation, self.current) {
            (Operation::Send { .. }, None) if part.first => Admit::Send { before: 0 },
            (Operation::Send { .. }, Some(Current::Send { done })) if !part.first => {
                Admit::Send { before: done }
            }
            (Operation::Write { target: Some((remote, total)), .. }, None) if part.first => {
                write(remote, total, 0, payload, part)
            }
            (Operation::Write { .. }, Some(Current::Write { remote, total, done }))
                if !part.first =>
            {
                write(remote, total, done, payload, part)
            }
            _ => Admit::Invalid,
        }
    }

    fn duplicate(&mut self, request: &Request, sequence: Sequence, mtu: u32) {
        match request.operation {
            Operation::Send { .. } | Operation::Write { .. } => {
                self.replies.ack(self.expected - 1, self.msn);
            }
            Operation::Read { remote, length } => {
                let end = sequence + packets(length, mtu);
                let kept = self.kept.iter().any(|kept| {
                    matches!(*kept, Kept::Read { first, end: last } if first <= sequence && end <= last)
                });
                if kept {
                    let (first, msn) = (sequence, self.msn);
                    self.replies.read(ReadReply { first, remote, length, done: 0, mtu, msn });
                }
            }
            Operation::Atomic { .. } => {
                let original = self.kept.iter().find_map(|kept| match *kept {
                    Kept::Atomic { at, original } if at == sequence => Some(original),
                    _ => None,
                });
                if let Some(original) = original {
                    self.replies.atomic(sequence, original, self.msn);
                }
            }
        }
    }

    /// How a request was carried out that [`Responder::admit`] let in.
    pub(crate) fn answered(
        &mut self,
        request: &Request,
        payload: u64,
        mtu: u32,
        answered: Answered,
    ) {
        let sequence = self.expected;
        match answered {
            Answered::Nak(syndrome) => {
                // Until the request is sent again, what follows it is not missed.
                self.told = true;
                if !matches!(syndrome, Syndrome::NotReady(_)) {
                    (self.current, self.refused) = (None, Some((sequence, syndrome)));
                }
                self.replies.nak(sequence, syndrome, self.msn);
                return;
            }
            Answered::Dropped => {
                if !self.reliable {
                    (self.current, self.expected) = (None, sequence + 1);
                }
                return;
            }
            Answered::Done | Answered::Original(_) => {}
        }
        match request.operation {
            Operation::Read { remote, length } => {
                let end = sequence + packets(length, mtu);
                (self.expected, self.msn) = (end, (self.msn + 1) & 0xff_ffff);
                self.keep(Kept::Read { first: sequence, end });
                let (first, msn) = (sequence, self.msn);
                self.replies.read(ReadReply { first, remote, length, done: 0, mtu, msn });
                return;
            }
            Operation::Atomic { .. } => {
                (self.expected, self.msn) = (sequence + 1, (self.msn + 1) & 0xff_ffff);
                if let Answered::Original(original) = answered {
                    self.keep(Kept::Atomic { at: sequence, original });
                    self.replies.atomic(sequence, original, self.msn);
                }
                return;
            }
            Operation::Send { part, .. } => {
                let before = match self.current {
                    Some(Current::Send { done }) => done,
                    _ => 0,
                };
                self.current = (!part.last).then_some(Current::Send { done: before + payload });
            }
            Operation::Write { part, target, .. } => {
                let (remote, total, before) = match (self.current, target) {
                    (Some(Current::Write { remote, total, done }), _) => (remote, total, done),
                    (_, Some((remote, total))) => (remote, total, 0),
                    _ => (RemoteAddr::default(), 0, 0),
                };
                let done = before + payload;
                self.current = (!part.last).then_some(Current::Write { remote, total, done });
            }
        }
        self.expected = sequence + 1;
        if self.current.is_none() {
            self.msn = (self.msn + 1) & 0xff_ffff;
        }
        if self.reliable && request.wants_ack {
            self.replies.ack(sequence, self.msn);
        }
    }

    /// The queue pair has failed. Whoever sends the request again that it failed at is answered
    /// again, as the first answer may have been lost; nothing else is.
    pub(crate) fn after_failure(&mut self, request: &Request) {
        if let Some((sequence, syndrome)) = self.refused
            && nearest(self.expected, request.psn) == sequence
        {
            self.replies.nak(sequence, syndrome, self.msn);
        }
    }

    /// The next packet to be sent.
    pub(crate) fn next(&self) -> Option<Reply> {
        self.replies.next()
    }

    /// The packet of the last [`Responder::next`] has gone out.
    pub(crate) fn sent(&mut self) {
        self.replies.sent();
    }

    /// The bytes of the READ that [`Responder::next`] wants sent may not be read (any more).
    pub(crate) fn refuse_read(&mut self, syndrome: Syndrome) {
        if let Some(sequence) = self.replies.break_off() {
            self.refused = Some((sequence, syndrome));
            self.replies.nak(sequence, syndrome, self.msn);
        }
    }

    fn keep(&mut self, kept: Kept) {
        if self.kept.len() >= self.most_kept {
            self.kept.pop_front();
        }
        if self.kept.len() < self.most_kept {
            self.kept.push_back(kept);
        }
    }
}

/// A part of a WRITE fits if the last part, and only that, ends at the length that the first told
/// (R-RA-13).
fn write(remote: RemoteAddr, total: u32, before: u64, payload: u64, part: Part) -> Admit {
    let after = before + payload;
    let fits = if part.last { after == u64::from(total) } else { after < u64::from(total) };
    if fits { Admit::Write { remote, total, before } } else { Admit::Invalid }
}

/// The part of a message that comes in parts.
fn part(operation: &Operation) -> Option<Part> {
    match *operation {
        Operation::Send { part, .. } | Operation::Write { part, .. } => Some(part),
        Operation::Read { .. } | Operation::Atomic { .. } => None,
    }
}

/// Sequence numbers that a READ takes.
fn packets(length: u32, mtu: u32) -> u64 {
    u64::from(length.div_ceil(mtu.max(1)).max(1))
}
