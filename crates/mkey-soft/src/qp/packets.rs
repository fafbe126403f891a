//! The responder of a queue pair whose peer is reached by a link: packets in, replies out.

use super::flight::Route;
use super::responder::Undone;
use super::{After, Connection, Qp};
use crate::core::with_executor;
use crate::link::{Inbound, Port, Unsent};
use crate::memory::{self, Missed, Source};
use crate::message::{Answer, Ask, Datagram, Nak, Part, Request};
use crate::protocol::{Admit, Answered, Piece, Reply, Responder};
use crate::sync::lock;
use mkey_core::address::IoAddr;
use mkey_core::device::Gid;
use mkey_core::engine::Executor;
use mkey_core::event::AsyncEvent;
use mkey_core::key::{Key, Rkey};
use mkey_core::queue_pair::{QpAttr, QpKind, QpState};
use mkey_core::rights::Want;
use mkey_core::work::RemoteAddr;
use mkey_wire::body::Body;
use mkey_wire::request::{self, Send, Tail, Write};
use mkey_wire::syndrome::{NakCode, Syndrome};
use mkey_wire::timer::RnrTimer;
use mkey_wire::u24::{Psn, Qpn};
use mkey_wire::{bth, reth};
use std::sync::atomic::Ordering;

/// What a queue pair has to do after packets have come for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Todo {
    replies: bool,
    sends: bool,
}

impl Todo {
    pub(crate) const ALL: Self = Self { replies: true, sends: true };
    const REPLY: Self = Self { replies: true, sends: false };
    pub(super) const SEND: Self = Self { replies: false, sends: true };

    /// Both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { replies: self.replies || other.replies, sends: self.sends || other.sends }
    }
}

/// The state of a responder on a link, from RTR to RESET.
#[derive(Debug)]
pub(super) struct Listening {
    machine: Responder,
    peer: (Gid, u32),
    /// Which of the peer's connections is heard: that of the first packet. Replies say so, too: an
    /// answer to a former connection's packet must not be taken for one to this connection's.
    connection: Option<u32>,
    mtu: u32,
    /// The way of replies, once a packet has come.
    back: Option<Route>,
}

impl Listening {
    /// With the attributes of a queue pair in RTR.
    pub(super) fn new(kind: QpKind, attr: &QpAttr) -> Self {
        let psn = Psn::wrapping(attr.rq_psn);
        Self {
            machine: Responder::new(kind == QpKind::Rc, psn, attr.max_dest_rd_atomic),
            peer: peer(attr),
            connection: None,
            mtu: attr.path_mtu,
            back: None,
        }
    }

    /// The queue pair was given another address of the same peer.
    pub(super) fn set(&mut self, attr: &QpAttr) {
        self.peer = peer(attr);
        self.back = None;
    }
}

/// Whom a queue pair is connected to.
pub(super) fn peer(attr: &QpAttr) -> (Gid, u32) {
    (attr.ah.unwrap_or_default().gid, attr.dest_qp_num)
}

/// Whether a packet belongs to the connection whose packets are heard. If it is not known which that
/// is, this one tells.
pub(super) fn belongs(heard: &mut Option<u32>, packet: Option<u32>) -> bool {
    match (*heard, packet) {
        (Some(heard), Some(packet)) => heard == packet,
        (None, Some(_)) => {
            *heard = packet;
            true
        }
        (_, None) => true,
    }
}

impl Qp {
    /// A packet has come for this queue pair.
    pub(crate) fn arrive(
        &self,
        executor: &mut Executor,
        inbound: &Inbound<'_>,
        after: &mut After,
    ) -> Todo {
        let sends = self.xrc.as_ref().map(|end| end.is_send());
        match (&inbound.repr.body, self.kind) {
            (Body::RcRequest(request), QpKind::Rc) | (Body::UcRequest(request), QpKind::Uc)
                if self.xrc.is_none() =>
            {
                self.hear_request(executor, inbound, request, None, after)
            }
            (Body::XrcRequest { srq, request }, QpKind::Rc) if sends == Some(false) => {
                self.hear_request(executor, inbound, request, Some(srq.get()), after)
            }
            (Body::RcResponse(response), QpKind::Rc) if self.xrc.is_none() => {
                self.hear_response(executor, inbound, response, after)
            }
            (Body::XrcResponse(response), QpKind::Rc) if sends == Some(true) => {
                self.hear_response(executor, inbound, response, after)
            }
            (&Body::UdSend { deth, imm }, QpKind::Ud) => {
                self.hear_datagram(executor, inbound, deth.source_qp, deth.qkey, imm, after);
                Todo::default()
            }
            _ => Todo::default(),
        }
    }

    /// Does what packets made possible or necessary.
    pub(crate) fn go_on(&self, executor: &mut Executor, todo: Todo, after: &mut After) {
        if todo.replies
            && let Some(listening) = &mut *lock(&self.listening)
        {
            self.reply(listening, executor, after);
            self.owes.store(false, Ordering::Relaxed);
        }
        if todo.sends {
            let now = self.core.timers.now();
            self.resume(&mut lock(&self.sq), executor, now, after);
        }
    }

    /// Whether something that the program may have seen is not answered yet.
    #[inline(always)]
    pub(super) fn owes(&self) -> bool {
        // Relaxed: what made the program see it, a completion, was stored after this.
        self.owes.load(Ordering::Relaxed)
    }

    /// Says what is owed to the peer still: the program may have seen what came, and end the queue pair,
    /// before whoever took it in has answered.
    pub(super) fn last_replies(&self) {
        if self.core.port.as_ref().is_some_and(Port::is_of_this_process) {
            let mut after = After::default();
            with_executor(|executor| self.go_on(executor, Todo::REPLY, &mut after));
            after.run();
        }
    }

    fn hear_request(
        &self,
        executor: &mut Executor,
        inbound: &Inbound<'_>,
        request: &request::Request,
        srq: Option<u32>,
        after: &mut After,
    ) -> Todo {
        let mut listening = lock(&self.listening);
        let Some(listening) = &mut *listening else { return Todo::default() };
        let (view, fields) = (self.gate.view(), &inbound.repr.fields);
        if listening.peer.0 != inbound.from
            || !belongs(&mut listening.connection, inbound.envelope.connection)
        {
            return Todo::default();
        }
        if !view.receives() {
            if view.state() == QpState::Err && !view.destroyed() {
                listening.machine.after_failure(fields.psn);
            }
            return Todo::REPLY;
        }
        if view.state() == QpState::Rtr && self.gate.establish() {
            self.core.events.push(AsyncEvent::CommEst(self.handle));
        }
        if listening.back.is_none() {
            listening.back = self.back(inbound, listening.peer.1);
        }
        let (through, mtu) =
            (self.gate.connection(view.epoch()), inbound.mtu.unwrap_or(listening.mtu));
        let length = inbound.payload.len() as u64;
        if self.kind == QpKind::Rc {
            self.owes.store(true, Ordering::Relaxed);
        }
        let admit = listening.machine.admit(fields.psn, request, length, mtu);
        let answered = match admit {
            Admit::Nothing => return Todo::REPLY,
            Admit::Again(reth) => {
                if self.may_replay(&reth)
                    && let Some(domain) = self.domain_of(srq)
                {
                    listening.machine.replay(fields.psn, reth, mtu, domain);
                }
                return Todo::REPLY;
            }
            _ if self.enter(srq).is_none() => answered(self.no_such_queue(after)),
            Admit::Invalid => {
                self.fail_responder(AsyncEvent::QpReqErr(self.handle), after);
                Answered::Nak(Syndrome::Nak(NakCode::InvalidRequest))
            }
            Admit::Send { before } => {
                let (imm, invalidate, last) = match request {
                    request::Request::Send(Send::Last(tail) | Send::Only(tail)) => match *tail {
                        Tail::Plain => (None, None, true),
                        Tail::Imm(imm) => (Some(imm), None, true),
                        Tail::Inv(rkey) => (None, Some(Key(rkey)), true),
                    },
                    _ => (None, None, false),
                };
                let part = Part { before, total: before + length, last };
                self.carry_out(
                    executor,
                    through,
                    inbound,
                    Ask::Send { imm, invalidate },
                    part,
                    after,
                )
            }
            Admit::Write { reth, before } => {
                let (imm, last) = match request {
                    request::Request::AtomicWrite(_) => (None, true),
                    request::Request::Write(Write::Last(imm) | Write::Only(_, imm)) => (*imm, true),
                    _ => (None, false),
                };
                let part = Part { before, total: u64::from(reth.length), last };
                let ask = Ask::Write { remote: remote(&reth), imm };
                let answered = self.carry_out(executor, through, inbound, ask, part, after);
                if let (Answered::Done, 0, Some(back)) = (&answered, before, &listening.back) {
                    let from = (listening.peer.1, listening.connection);
                    self.lend(executor, through, inbound, from, remote(&reth), &*back.path);
                }
                answered
            }
            Admit::Whole => self.carry_out_whole(executor, through, request, after),
        };
        listening.machine.answered(fields, request, length, mtu, self.domain(), answered);
        if let request::Request::Read(_) = request {
            // Now, as far as there is room: what is asked next may change what was read.
            self.reply(listening, executor, after);
        }
        Todo::REPLY
    }

    /// The way by which a packet came, or to where it came from if it was passed on.
    fn back(&self, inbound: &Inbound<'_>, peer: u32) -> Option<Route> {
        let port = self.core.port.as_ref()?;
        let path = match (inbound.back)() {
            Some(path) => port.as_it_is(path, inbound.from),
            None => port.path(&self.core, inbound.from, peer, true)?,
        };
        Some(self.route(path, peer, &inbound.envelope))
    }

    /// A SEND or WRITE, or a part of one.
    fn carry_out(
        &self,
        executor: &mut Executor,
        through: Connection<'_>,
        inbound: &Inbound<'_>,
        ask: Ask,
        part: Part,
        after: &mut After,
    ) -> Answered {
        let mut request = Request {
            ask,
            length: inbound.payload.len() as u64,
            part,
            source: Source::Bytes(inbound.payload),
            solicited: inbound.repr.fields.solicited,
            datagram: None,
        };
        answered(self.handle_request(executor, through, &mut request, after))
    }

    /// A READ, whose bytes are read as they are sent, or an atomic. What stands in the way of a READ
    /// shows now, before what was asked after it is carried out.
    fn carry_out_whole(
        &self,
        executor: &mut Executor,
        through: Connection<'_>,
        request: &request::Request,
        after: &mut After,
    ) -> Answered {
        let done = match request {
            request::Request::Read(reth) => {
                let (at, length) = (remote(reth), u64::from(reth.length));
                self.admit_read(through, at, length, after).and_then(|()| {
                    let piece = [memory::remote_piece(at, reth.length)];
                    match self
                        .read_source(through, self.domain(), &piece)
                        .make_ready(executor, length)
                    {
                        Ok(()) => Ok(Answered::Done),
                        Err(refusal) => Err(self.no_reading(length, at, refusal, after)),
                    }
                })
            }
            request::Request::CompareSwap(atomic) | request::Request::FetchAdd(atomic) => {
                let at =
                    RemoteAddr { address: IoAddr(atomic.address), rkey: Rkey(Key(atomic.rkey)) };
                let operation = match request {
                    request::Request::CompareSwap(_) => memory::Atomic::CompareSwap {
                        compare: atomic.compare,
                        swap: atomic.swap_or_add,
                    },
                    _ => memory::Atomic::FetchAdd { add: atomic.swap_or_add },
                };
                self.handle_atomic(executor, through, at, operation, after).map(Answered::Original)
            }
            _ => return Answered::Dropped,
        };
        match done {
            Ok(answered) => answered,
            Err(Undone::Nak(nak)) => Answered::Nak(said(&nak)),
            Err(Undone::Ended | Undone::Landing(_)) => Answered::Dropped,
        }
    }

    fn hear_datagram(
        &self,
        executor: &mut Executor,
        inbound: &Inbound<'_>,
        src_qp: Qpn,
        qkey: u32,
        imm: Option<u32>,
        after: &mut After,
    ) {
        let view = self.gate.view();
        if !view.receives() {
            return;
        }
        let length = inbound.payload.len() as u64;
        let mut request = Request {
            ask: Ask::Send { imm, invalidate: None },
            length,
            part: Part::whole(length),
            source: Source::Bytes(inbound.payload),
            solicited: inbound.repr.fields.solicited,
            datagram: Some(Datagram {
                from: inbound.from,
                to: inbound.to,
                src_qp: src_qp.get(),
                qkey,
                traffic_class: inbound.envelope.traffic_class,
                hop_limit: inbound.envelope.hop_limit,
            }),
        };
        // What becomes of it nobody hears.
        let _ =
            self.handle_request(executor, self.gate.connection(view.epoch()), &mut request, after);
    }

    /// Sends what the responder has to say, as far as there is room for it, and no more at a time than
    /// the path holds: a READ may be long, and others wait for the thread and its locks.
    fn reply(&self, listening: &mut Listening, executor: &mut Executor, after: &mut After) {
        let Listening { machine, back: Some(back), .. } = listening else { return };
        let mut room = back.path.window();
        while let Some(reply) = machine.next() {
            if room == 0 {
                if let Some(port) = &self.core.port {
                    port.take_turns(self.weak());
                }
                break;
            }
            room -= 1;
            let body = match &self.xrc {
                None => Body::RcResponse(reply.response),
                Some(_) => Body::XrcResponse(reply.response),
            };
            let mut outbound = back.outbound(body, reply.psn);
            outbound.length = reply.bytes.map_or(0, |bytes| bytes.reth.length as usize);
            let mut missed = None;
            let sent = back.path.send(&outbound, &mut |room| {
                if room.len() > 0 {
                    missed = self.read_out(executor, &reply, room).err();
                }
                missed.is_none()
            });
            match (sent, missed) {
                (Ok(()), _) => machine.sent(),
                (Err(Unsent::Full), _) => {
                    self.wait_for_room();
                    break;
                }
                (Err(Unsent::Unfilled), Some(Missed::Refused(refusal)))
                    if let Some(Piece { reth, again: false, .. }) = reply.bytes =>
                {
                    self.no_reading(u64::from(reth.length), remote(&reth), refusal, after);
                    machine.refuse_read(NakCode::RemoteAccess);
                }
                // What is asked for once more may have arrived long ago, and be nobody's by now.
                // The queue pair has ended, but how it did is to be told still.
                (Err(Unsent::Unfilled), _) => machine.drop_read(),
            }
        }
        back.path.flush();
    }

    /// Puts the bytes of a READ into a packet.
    fn read_out(
        &self,
        executor: &mut Executor,
        reply: &Reply,
        room: crate::payload::Room<'_>,
    ) -> Result<(), Missed> {
        let Some(Piece { reth, domain, again }) = reply.bytes else { return Ok(()) };
        if again && !self.may_replay(&reth) {
            return Err(Missed::Ended);
        }
        let through = self.gate.connection(self.gate.view().epoch());
        let piece = [memory::remote_piece(remote(&reth), reth.length)];
        memory::gather(executor, &mut self.read_source(through, domain, &piece), room)
    }

    /// Whether READs that were carried out before are answered once more.
    fn may_replay(&self, reth: &reth::Repr) -> bool {
        let view = self.gate.view();
        // An atomic write is answered as a READ of nothing.
        view.reads() && (reth.length == 0 || view.allows(Want::RemoteRead))
    }

    /// Has the queue pair go on when there is room on its paths.
    pub(super) fn wait_for_room(&self) {
        if let Some(port) = &self.core.port {
            port.block(self.weak());
        }
    }
}

fn answered(answer: Answer) -> Answered {
    match answer {
        Answer::Ack => Answered::Done,
        Answer::Nak(nak) => Answered::Nak(said(&nak)),
        Answer::NotReady(code) => Answered::Nak(Syndrome::RnrNak(RnrTimer::from_code(code))),
        // The payload is there, so it is never unsent.
        Answer::Dropped | Answer::Silence | Answer::Unsent(_) => Answered::Dropped,
    }
}

fn remote(reth: &reth::Repr) -> RemoteAddr {
    RemoteAddr { address: IoAddr(reth.address), rkey: Rkey(Key(reth.rkey)) }
}

fn said(nak: &Nak) -> Syndrome {
    Syndrome::Nak(nak.code)
}

/// The fields of a packet to the peer.
pub(super) fn fields(peer: u32, psn: Psn) -> bth::Fields {
    bth::Fields::new(Qpn::wrapping(peer), psn)
}
