//! The responder: which packets are to be carried out, and what is replied.

use super::replies::{ReadReply, Replies, Reply, packets};
use super::sequence::{Sequence, begin, nearest};
use mkey_core::refusal::PdId;
use mkey_wire::request::{Request, Send, Write};
use mkey_wire::syndrome::{NakCode, Syndrome};
use mkey_wire::u24::{Msn, Psn};
use mkey_wire::{bth, reth};
use std::collections::VecDeque;

/// One direction of a connection, as its responder sees it.
#[derive(Debug)]
pub(crate) struct Responder {
    /// Whether anything is acknowledged (RC, not UC).
    reliable: bool,
    /// The next packet.
    expected: Sequence,
    /// Messages that are done.
    msn: Msn,
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
    Send {
        done: u64,
    },
    /// The header is that of the whole.
    Write {
        reth: reth::Repr,
        done: u64,
    },
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
    /// A READ that was carried out before is asked for once more. If it may be read still,
    /// [`Responder::replay`] follows, and else nothing: the answer may have arrived long ago.
    Again(reth::Repr),
    /// The packet breaks the rules of the protocol: to be answered as an invalid request, with an
    /// event (R-ERR-04, R-RA-13, R-RA-14).
    Invalid,
    /// To be carried out: a SEND, of which so many bytes have come.
    Send { before: u64 },
    /// To be carried out: a WRITE, of which so many bytes have come; the header is that of the whole.
    Write { reth: reth::Repr, before: u64 },
    /// To be carried out: a READ or atomic, as the request says.
    Whole,
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
    pub(crate) fn new(reliable: bool, psn: Psn, max_reads: u8) -> Self {
        Self {
            reliable,
            expected: begin(psn),
            msn: Msn::default(),
            current: None,
            told: false,
            kept: VecDeque::new(),
            most_kept: usize::from(max_reads),
            refused: None,
            replies: Replies::default(),
        }
    }

    /// What is to be done with a request that came with so many bytes of payload, over a link of
    /// this MTU. If it is to be carried out, [`Responder::answered`] follows.
    pub(crate) fn admit(&mut self, psn: Psn, request: &Request, payload: u64, mtu: u32) -> Admit {
        let sequence = nearest(self.expected, psn);
        if !self.reliable {
            return self.admit_unreliable(request, sequence, payload, mtu);
        }
        if sequence < self.expected {
            return self.duplicate(request, sequence, mtu);
        }
        if sequence > self.expected {
            if !self.told {
                self.told = true;
                self.replies.nak(self.expected, Syndrome::Nak(NakCode::PsnSequence), self.msn);
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
        if Part::of(request).is_some_and(|part| part.first) {
            self.current = None;
        } else if sequence != self.expected || self.current.is_none() {
            (self.current, self.expected) = (None, sequence + 1);
            return Admit::Nothing;
        }
        self.expected = sequence;
        match self.in_order(request, payload, mtu) {
            Admit::Invalid | Admit::Whole => {
                (self.current, self.expected) = (None, sequence + 1);
                Admit::Nothing
            }
            admit => admit,
        }
    }

    fn in_order(&self, request: &Request, payload: u64, mtu: u32) -> Admit {
        let Some(part) = Part::of(request) else {
            let fits = match *request {
                Request::Read(_) | Request::CompareSwap(_) | Request::FetchAdd(_) => payload == 0,
                // As a WRITE, but for what is answered.
                Request::AtomicWrite(reth) if payload == 8 && reth.length == 8 => {
                    reth.address.is_multiple_of(8)
                }
                _ => false,
            };
            return match (self.current, *request) {
                (None, Request::AtomicWrite(reth)) if fits => Admit::Write { reth, before: 0 },
                (None, _) if fits => Admit::Whole,
                _ => Admit::Invalid,
            };
        };
        let mtu = u64::from(mtu);
        let fits = match (part.first, part.last) {
            (_, false) => payload == mtu,
            (true, true) => payload <= mtu,
            (false, true) => (1..=mtu).contains(&payload),
        };
        if !fits {
            return Admit::Invalid;
        }
        match (request, self.current) {
            (Request::Send(_), None) if part.first => Admit::Send { before: 0 },
            (Request::Send(_), Some(Current::Send { done })) if !part.first => {
                Admit::Send { before: done }
            }
            (&Request::Write(Write::First(reth) | Write::Only(reth, _)), None) => {
                fits_whole(reth, 0, payload, part)
            }
            (Request::Write(_), Some(Current::Write { reth, done })) if !part.first => {
                fits_whole(reth, done, payload, part)
            }
            _ => Admit::Invalid,
        }
    }

    fn duplicate(&mut self, request: &Request, sequence: Sequence, mtu: u32) -> Admit {
        match request {
            Request::Send(_) | Request::Write(_) => self.replies.ack(self.expected - 1, self.msn),
            &Request::Read(reth) | &Request::AtomicWrite(reth) => {
                let reth = read_back(request, reth);
                let end = sequence + packets(&reth, mtu);
                let kept = self.kept.iter().any(|kept| {
                    matches!(*kept, Kept::Read { first, end: last } if first <= sequence && end <= last)
                });
                if kept {
                    return Admit::Again(reth);
                }
            }
            Request::CompareSwap(_) | Request::FetchAdd(_) => {
                let original = self.kept.iter().find_map(|kept| match *kept {
                    Kept::Atomic { at, original } if at == sequence => Some(original),
                    _ => None,
                });
                if let Some(original) = original {
                    self.replies.atomic(sequence, original, self.msn);
                }
            }
            Request::Flush(..) => {}
        }
        Admit::Nothing
    }

    /// A READ of [`Admit::Again`] is answered once more.
    pub(crate) fn replay(&mut self, psn: Psn, reth: reth::Repr, mtu: u32, domain: PdId) {
        let (first, msn) = (nearest(self.expected, psn), self.msn);
        self.replies.read_again(ReadReply { first, reth, done: 0, mtu, msn, domain, again: true });
    }

    /// How a request was carried out that [`Responder::admit`] let in, and in which domain.
    pub(crate) fn answered(
        &mut self,
        fields: &bth::Fields,
        request: &Request,
        payload: u64,
        mtu: u32,
        domain: PdId,
        answered: Answered,
    ) {
        let sequence = self.expected;
        match answered {
            Answered::Nak(syndrome) => {
                // Until the request is sent again, what follows it is not missed.
                self.told = true;
                if !matches!(syndrome, Syndrome::RnrNak(_)) {
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
        self.expected = sequence + 1;
        match (request, self.current) {
            (&Request::Read(reth) | &Request::AtomicWrite(reth), _) => {
                let reth = read_back(request, reth);
                let end = sequence + packets(&reth, mtu);
                (self.expected, self.msn) = (end, self.msn.plus(1));
                self.keep(Kept::Read { first: sequence, end });
                let (first, msn) = (sequence, self.msn);
                let read = ReadReply { first, reth, done: 0, mtu, msn, domain, again: false };
                self.replies.read(read);
                return;
            }
            (Request::CompareSwap(_) | Request::FetchAdd(_), _) => {
                self.msn = self.msn.plus(1);
                if let Answered::Original(original) = answered {
                    self.keep(Kept::Atomic { at: sequence, original });
                    self.replies.atomic(sequence, original, self.msn);
                }
                return;
            }
            (Request::Send(Send::First), _) => self.current = Some(Current::Send { done: payload }),
            (Request::Send(Send::Middle), Some(Current::Send { done })) => {
                self.current = Some(Current::Send { done: done + payload });
            }
            (&Request::Write(Write::First(reth)), _) => {
                self.current = Some(Current::Write { reth, done: payload });
            }
            (Request::Write(Write::Middle), Some(Current::Write { reth, done })) => {
                self.current = Some(Current::Write { reth, done: done + payload });
            }
            _ => (self.current, self.msn) = (None, self.msn.plus(1)),
        }
        if self.reliable && fields.ack_request {
            self.replies.ack(sequence, self.msn);
        }
    }

    /// The queue pair has failed. Whoever sends the request again that it failed at is answered
    /// again, as the first answer may have been lost; nothing else is.
    pub(crate) fn after_failure(&mut self, psn: Psn) {
        if let Some((sequence, syndrome)) = self.refused
            && nearest(self.expected, psn) == sequence
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
    pub(crate) fn refuse_read(&mut self, code: NakCode) {
        if let Some(sequence) = self.replies.break_off() {
            let syndrome = Syndrome::Nak(code);
            self.refused = Some((sequence, syndrome));
            self.replies.nak(sequence, syndrome, self.msn);
        }
    }

    /// The READ whose bytes [`Responder::next`] wants sent is answered no further.
    pub(crate) fn drop_read(&mut self) {
        self.replies.drop_front();
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

/// Which part of a message a packet carries.
#[derive(Clone, Copy)]
struct Part {
    first: bool,
    last: bool,
}

impl Part {
    /// That of a message which comes in parts.
    fn of(request: &Request) -> Option<Self> {
        match request {
            Request::Send(send) => Some(Self { first: send.begins(), last: send.ends() }),
            Request::Write(write) => Some(Self { first: write.begins(), last: write.ends() }),
            _ => None,
        }
    }
}

/// A part of a WRITE fits if the last part, and only that, ends at the length that the first told
/// (R-RA-13).
fn fits_whole(reth: reth::Repr, before: u64, payload: u64, part: Part) -> Admit {
    let (after, total) = (before + payload, u64::from(reth.length));
    let fits = if part.last { after == total } else { after < total };
    if fits { Admit::Write { reth, before } } else { Admit::Invalid }
}

/// What is answered to a READ, or to an atomic write: that is as to a READ of nothing.
fn read_back(request: &Request, reth: reth::Repr) -> reth::Repr {
    match request {
        Request::AtomicWrite(_) => reth::Repr { length: 0, ..reth },
        _ => reth,
    }
}
