//! The responder: what a queue pair does with its peer's requests. Rules R-RA, R-LOC-06 to 08,
//! R-AT, R-INV-12 to 16, R-ERR-02 to 05.

use super::{After, Connection, Qp};
use crate::link::{Envelope, datagram};
use crate::memory::{self, Atomic, Cursor, Failed, Missed, Party, Site, Source};
use crate::message::{Answer, Ask, Datagram, Nak, Part, Request, Words};
use crate::payload::Bytes;
use crate::receive::{Receive, Ring};
use crate::sync::lock;
use mkey_core::data_plane::PostError;
use mkey_core::device::{Gid, RefusedBy};
use mkey_core::engine::{Access, Change, Executor, Progress, atomic_alignment};
use mkey_core::error::{Error, Object, Reason};
use mkey_core::event::AsyncEvent;
use mkey_core::key::{Key, Rkey};
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::refusal::{PdId, Refusal};
use mkey_core::rights::Want;
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::{Completion, RecvWr, RemoteAddr, Sge};
use mkey_wire::body::Body;
use mkey_wire::packet::Repr;
use mkey_wire::syndrome::NakCode;
use mkey_wire::u24::{Psn, Qpn};
use mkey_wire::udp_ip::{self, Ip};
use mkey_wire::{bth, deth, ipv6, udp};

/// The longest message (R-RA-12).
pub(super) const MAX_MESSAGE: u64 = 1 << 31;
/// The routing header before a datagram.
const GRH: u64 = 40;

/// The receive side's state.
#[derive(Debug)]
pub(crate) struct Rq {
    pub(super) ring: Ring,
    /// A receive whose message never came to its end; the next message takes it.
    pub(super) begun: Option<Box<Receive>>,
    /// The peer whose requests are taken.
    pub(super) peer: (Gid, u32),
    pub(super) qkey: u32,
    pub(super) min_rnr_timer: u8,
}

impl Rq {
    pub(super) fn new(depth: u32, max_sge: u32) -> Self {
        Self {
            ring: Ring::new(depth, max_sge),
            begun: None,
            peer: (Gid::default(), 0),
            qkey: 0,
            min_rnr_timer: 0,
        }
    }
}

/// A READ or atomic that was not done.
#[derive(Debug)]
pub(super) enum Undone {
    Nak(Nak),
    /// The bytes could not be put where the requester wants them: its own fault (R-LOC-04).
    Landing(Refusal),
    /// The responder ended in the middle.
    Ended,
}

impl Qp {
    /// Posts a chain to the receive queue.
    pub(crate) fn post_recv(&self, chain: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.core.pump_now_and_then();
        let mut after = After::default();
        let mut rq = lock(&self.rq);
        let mut result = Ok(());
        for (posted, wr) in chain.iter().enumerate() {
            if let Err(reason) = self.take(&mut rq, wr, &mut after) {
                let arguments = format_args!("qp {:#08x}, wr_id {:#x}", self.num, wr.wr_id);
                let error = Error::new("post_recv", arguments, reason);
                result = Err(PostError { posted, error });
                break;
            }
        }
        drop(rq);
        after.run();
        result
    }

    fn take(&self, rq: &mut Rq, wr: &RecvWr<'_>, after: &mut After) -> Result<(), Reason> {
        if self.srq.is_some() || self.xrc.is_some() {
            let on = "a queue pair that takes its receives from a shared queue";
            return Err(Reason::NotHere { operation: "a receive queue", on });
        }
        let view = self.gate.view();
        if view.destroyed() {
            return Err(Reason::UnknownHandle { object: Object::Qp, handle: self.handle.0 });
        }
        if view.state() == QpState::Reset {
            return Err(Reason::QpState { state: view.state() });
        }
        rq.ring.push(wr)?;
        if view.state() == QpState::Err {
            self.flush_receives(rq, after);
        }
        Ok(())
    }

    /// A SEND or RDMA WRITE. The caller has seen that the connection holds; it may end at any time.
    #[inline]
    pub(super) fn handle_request(
        &self,
        executor: &mut Executor,
        through: Connection<'_>,
        request: &mut Request<'_>,
        after: &mut After,
    ) -> Answer {
        match request.ask {
            Ask::Write { remote, imm: None } => {
                match self.write(executor, through, remote, request, true, after) {
                    Ok(()) => Answer::Ack,
                    Err(answer) => answer,
                }
            }
            Ask::Write { remote, imm: Some(imm) } => {
                self.write_imm(executor, through, remote, imm, request, after)
            }
            Ask::Send { imm, invalidate } => {
                self.send(executor, through, imm, invalidate, request, after)
            }
        }
    }

    /// Places the bytes of a WRITE. `alone`: no receive is tied to it, so a violation makes an
    /// event (R-ERR-02, R-ERR-03).
    #[inline]
    fn write(
        &self,
        executor: &mut Executor,
        through: Connection<'_>,
        remote: RemoteAddr,
        request: &mut Request<'_>,
        alone: bool,
        after: &mut After,
    ) -> Result<(), Answer> {
        if !self.gate.view().allows(Want::RemoteWrite) {
            return Err(self.no_right(through, request, remote, after));
        }
        let Part { before, total, .. } = request.part;
        if total == 0 {
            return Ok(());
        }
        if total > MAX_MESSAGE {
            return Err(self.too_long(after));
        }
        let piece = [memory::remote_piece(remote, total as u32)];
        let target = Cursor::new(self.party(through, self.domain(), Want::RemoteWrite), &piece);
        if before == 0
            && request.length < total
            && let Err(refusal) = target.check(executor, total)
        {
            return Err(self.violation(total, remote, refusal, alone, after));
        }
        let mut target = if before == 0 { target } else { target.skip(before) };
        memory::transfer(executor, &mut request.source, &mut target, request.length).map_err(
            |failed| match failed {
                Failed::Source(refusal) => Answer::Unsent(refusal),
                Failed::Target(refusal) => self.violation(total, remote, refusal, alone, after),
                Failed::Ended => Answer::Dropped,
            },
        )
    }

    /// A WRITE whose bytes all lie in one chunk of one entry, which the queue pair allows: the
    /// shortest way, of the same effect as [`Qp::handle_request`].
    #[inline]
    pub(super) fn write_chunk(
        &self,
        executor: &mut Executor,
        through: Connection<'_>,
        pd: PdId,
        source: &Site<'_>,
        remote: RemoteAddr,
        after: &mut After,
    ) -> Answer {
        let length = source.access.length;
        let access = Access {
            key: remote.rkey.0,
            pd,
            qp: self.id,
            address: remote.address,
            length,
            want: Want::RemoteWrite,
        };
        let target = Site { core: &self.core, access, through: Some(through) };
        match memory::chunk(executor, source, &target) {
            Ok(()) => Answer::Ack,
            Err(Failed::Source(refusal)) => Answer::Unsent(refusal),
            Err(Failed::Target(refusal)) => self.violation(length, remote, refusal, true, after),
            Err(Failed::Ended) => Answer::Dropped,
        }
    }

    /// WRITE with immediate data: the receive is looked for before the key (R-RA-01, R-RA-15, 16).
    fn write_imm(
        &self,
        executor: &mut Executor,
        connection: Connection<'_>,
        remote: RemoteAddr,
        imm: u32,
        request: &mut Request<'_>,
        after: &mut After,
    ) -> Answer {
        if !self.gate.view().allows(Want::RemoteWrite) {
            return self.no_right(connection, request, remote, after);
        }
        let mut rq = lock(&self.rq);
        if !connection.holds() {
            return Answer::Dropped;
        }
        let Some(receive) = self.next_receive(&mut rq) else { return self.not_ready(&rq) };
        drop(rq);
        let length = request.part.total;
        let solicited = request.solicited;
        let written = self.write(executor, connection, remote, request, false, after);
        let mut rq = lock(&self.rq);
        let refused = matches!(written, Err(Answer::Nak(_))) && connection.failed();
        if !connection.holds() && !refused {
            // In ERR it is flushed like those that waited; a new connection has no use for it.
            if connection.failed() {
                self.receive_error(&receive, WcStatus::WrFlushErr, 0, after);
            }
            return Answer::Dropped;
        }
        match written {
            Ok(()) => {
                let opcode = WcOpcode::RecvRdmaWithImm;
                let completion = Completion {
                    byte_len: length as u32,
                    imm: Some(imm),
                    ..self.bare(receive.wr_id, WcStatus::Success, opcode)
                };
                self.complete_receive(&completion, solicited, after);
                Answer::Ack
            }
            Err(Answer::Unsent(refusal)) => {
                rq.begun = Some(Box::new(receive));
                Answer::Unsent(refusal)
            }
            Err(Answer::Nak(nak)) => {
                self.receive_error(&receive, WcStatus::LocAccessErr, nak.number, after);
                self.fail_receives(&mut rq, after);
                Answer::Nak(nak)
            }
            Err(answer) => {
                // UC: the message is dropped; a receive of its own waits for the next one, one of
                // a shared queue is used up (R-RA-17).
                if self.srq.is_some() {
                    self.receive_error(&receive, WcStatus::RemAccessErr, 0, after);
                } else {
                    rq.begun = Some(Box::new(receive));
                }
                answer
            }
        }
    }

    /// SEND, with immediate data or invalidation.
    fn send(
        &self,
        executor: &mut Executor,
        through: Connection<'_>,
        imm: Option<u32>,
        invalidate: Option<Key>,
        request: &mut Request<'_>,
        after: &mut After,
    ) -> Answer {
        let mut rq = lock(&self.rq);
        if !through.holds() {
            return Answer::Dropped;
        }
        if let Some(datagram) = &request.datagram
            && datagram.qkey != rq.qkey
        {
            return Answer::Dropped;
        }
        let Part { before, last, .. } = request.part;
        let receive = match before {
            0 => self.next_receive(&mut rq),
            _ => rq.begun.take().map(|begun| *begun),
        };
        let Some(receive) = receive else { return self.not_ready(&rq) };
        let header = if self.kind == QpKind::Ud { GRH } else { 0 };
        let upto = before + request.length;
        if upto > MAX_MESSAGE || upto + header > receive.room() {
            return self.too_short(&mut rq, receive, after);
        }
        let pd = self.srq.as_ref().map_or_else(|| self.domain(), |srq| srq.pd);
        let mut target = Cursor::new(self.party(through, pd, Want::LocalWrite), receive.sges());
        if before > 0 {
            target = target.skip(before);
        }
        let mut placed = Ok(());
        if let Some(datagram) = &request.datagram {
            let grh = routing_header(datagram, request.length, imm.is_some());
            placed =
                memory::transfer(executor, &mut Source::Bytes(Bytes::of(&grh)), &mut target, GRH);
        }
        let placed = placed.and_then(|()| {
            memory::transfer(executor, &mut request.source, &mut target, request.length)
        });
        match placed {
            Ok(()) => {}
            Err(Failed::Source(refusal)) => {
                rq.begun = Some(Box::new(receive));
                return Answer::Unsent(refusal);
            }
            // The queue pair ends with this side locked, so not now.
            Err(Failed::Ended) => return Answer::Dropped,
            Err(Failed::Target(refusal)) => {
                let why = RefusedBy::Access(refusal);
                let words =
                    Words { what: "receive of a SEND", length: request.length, remote: None };
                let number = self.core.refuse(self.num, &words, why);
                self.receive_error(&receive, WcStatus::LocProtErr, number, after);
                self.fail_receives(&mut rq, after);
                return self.nak(NakCode::RemoteOperational, Some(why), number);
            }
        }
        if !last {
            rq.begun = Some(Box::new(receive));
            return Answer::Ack;
        }
        if let Some(key) = invalidate {
            match self.core.engine.invalidate(self.scope(), key) {
                Ok(mut change) => settle(&self.core.engine, &mut change),
                Err(refusal) => {
                    // Class J (R-INV-14): the receive fails, and nothing is answered.
                    let words = Words {
                        what: "invalidation by a SEND",
                        length: request.length,
                        remote: None,
                    };
                    let why = RefusedBy::Manage(refusal);
                    let number = self.core.refuse(self.num, &words, why);
                    self.receive_error(&receive, WcStatus::LocQpOpErr, number, after);
                    self.fail_receives(&mut rq, after);
                    return Answer::Silence;
                }
            }
        }
        let completion = Completion {
            byte_len: (upto + header) as u32,
            imm,
            invalidated: invalidate.map(Rkey),
            src_qp: request.datagram.map_or(0, |datagram| datagram.src_qp),
            has_grh: header > 0,
            ..self.bare(receive.wr_id, WcStatus::Success, WcOpcode::Recv)
        };
        self.complete_receive(&completion, request.solicited, after);
        Answer::Ack
    }

    /// An RDMA READ: gives the bytes to the requester's landing place.
    pub(super) fn handle_read(
        &self,
        executor: &mut Executor,
        through: Connection<'_>,
        remote: RemoteAddr,
        length: u64,
        landing: &mut Cursor<'_>,
        after: &mut After,
    ) -> Result<(), Undone> {
        self.admit_read(through, remote, length, after)?;
        let piece = [memory::remote_piece(remote, length as u32)];
        let mut source = self.read_source(through, self.domain(), &piece);
        match memory::transfer(executor, &mut source, landing, length) {
            Ok(()) => Ok(()),
            Err(Failed::Target(refusal)) => Err(Undone::Landing(refusal)),
            Err(Failed::Ended) => Err(Undone::Ended),
            Err(Failed::Source(refusal)) => Err(self.no_reading(length, remote, refusal, after)),
        }
    }

    /// Whether the queue pair takes a READ of this length.
    #[inline]
    pub(super) fn admit_read(
        &self,
        through: Connection<'_>,
        remote: RemoteAddr,
        length: u64,
        after: &mut After,
    ) -> Result<(), Undone> {
        self.may_read(through, Want::RemoteRead, "RDMA READ", length, remote, after)?;
        if length > MAX_MESSAGE {
            self.fail_responder(AsyncEvent::QpAccessErr(self.handle), after);
            return Err(Undone::Nak(Nak::bare(NakCode::InvalidRequest)));
        }
        Ok(())
    }

    /// The bytes of a READ.
    #[inline]
    pub(super) fn read_source<'a>(
        &'a self,
        through: Connection<'a>,
        domain: PdId,
        piece: &'a [Sge; 1],
    ) -> Source<'a> {
        Source::Memory(Cursor::new(self.party(through, domain, Want::RemoteRead), piece))
    }

    /// The memory itself may not be read so.
    #[cold]
    pub(super) fn no_reading(
        &self,
        length: u64,
        remote: RemoteAddr,
        refusal: Refusal,
        after: &mut After,
    ) -> Undone {
        self.fail_responder(AsyncEvent::QpAccessErr(self.handle), after);
        let why = RefusedBy::Access(refusal);
        let number = self.log("RDMA READ", length, remote, why);
        Undone::Nak(Nak { code: NakCode::RemoteAccess, why: Some(why), number })
    }

    /// An atomic: what was there before. Alignment is decided before the key (R-AT-02, R-AT-03).
    pub(super) fn handle_atomic(
        &self,
        executor: &mut Executor,
        through: Connection<'_>,
        remote: RemoteAddr,
        operation: Atomic,
        after: &mut After,
    ) -> Result<u64, Undone> {
        const WHAT: &str = "atomic";
        self.may_read(through, Want::RemoteAtomic, WHAT, 8, remote, after)?;
        let party = self.party(through, self.domain(), Want::RemoteAtomic);
        atomic_alignment(remote.address)
            .map_err(Missed::Refused)
            .and_then(|()| memory::atomic(executor, &party, remote, operation))
            .map_err(|missed| {
                let Missed::Refused(refusal) = missed else { return Undone::Ended };
                self.fail_responder(AsyncEvent::QpAccessErr(self.handle), after);
                let why = RefusedBy::Access(refusal);
                let number = self.log(WHAT, 8, remote, why);
                let code = match refusal {
                    Refusal::Misaligned { .. } => NakCode::InvalidRequest,
                    _ => NakCode::RemoteAccess,
                };
                Undone::Nak(Nak { code, why: Some(why), number })
            })
    }

    /// Whether the queue pair takes READs and atomics at all (R-RA-02, R-RA-20).
    #[inline]
    fn may_read(
        &self,
        through: Connection<'_>,
        want: Want,
        what: &'static str,
        length: u64,
        remote: RemoteAddr,
        after: &mut After,
    ) -> Result<(), Undone> {
        let view = self.gate.view();
        if view.allows(want) && view.reads() {
            return Ok(());
        }
        // A queue pair that has ended has no rights, but does not say so either.
        if !through.holds() {
            return Err(Undone::Ended);
        }
        if !view.allows(want) {
            self.fail_responder(AsyncEvent::QpReqErr(self.handle), after);
            let why = RefusedBy::QpRights { has: view.rights() };
            let number = self.log(what, length, remote, why);
            let code = NakCode::InvalidRequest;
            return Err(Undone::Nak(Nak { code, why: Some(why), number }));
        }
        self.fail_responder(AsyncEvent::QpAccessErr(self.handle), after);
        Err(Undone::Nak(Nak::bare(NakCode::InvalidRequest)))
    }

    #[inline]
    fn party<'a>(&'a self, through: Connection<'a>, pd: PdId, want: Want) -> Party<'a> {
        Party { core: &self.core, pd, qp: self.id, want, through: Some(through) }
    }

    /// The next receive, and the event of a shared queue that falls below its limit.
    fn next_receive(&self, rq: &mut Rq) -> Option<Receive> {
        if let Some(begun) = rq.begun.take() {
            return Some(*begun);
        }
        let named = self.named();
        let Some(srq) = self.srq.as_ref().or(named.as_ref()) else { return rq.ring.pop() };
        let (receive, below) = srq.pop()?;
        if below {
            self.core.events.push(AsyncEvent::SrqLimitReached(srq.handle));
        }
        Some(receive)
    }

    fn not_ready(&self, rq: &Rq) -> Answer {
        match self.kind {
            QpKind::Rc => Answer::NotReady(rq.min_rnr_timer),
            _ => Answer::Dropped,
        }
    }

    fn too_short(&self, rq: &mut Rq, receive: Receive, after: &mut After) -> Answer {
        if self.kind == QpKind::Rc {
            self.receive_error(&receive, WcStatus::LocLenErr, 0, after);
            self.fail_receives(rq, after);
            return Answer::Nak(Nak::bare(NakCode::InvalidRequest));
        }
        // Datagrams and UC messages that do not fit are dropped; a receive of a shared queue is
        // used up by that.
        if self.srq.is_some() {
            self.receive_error(&receive, WcStatus::RemInvReqErr, 0, after);
        } else {
            rq.begun = Some(Box::new(receive));
        }
        Answer::Dropped
    }

    /// A request of an extended connection names no shared receive queue of the domain.
    #[cold]
    pub(super) fn no_such_queue(&self, after: &mut After) -> Answer {
        self.fail_responder(AsyncEvent::QpReqErr(self.handle), after);
        Answer::Nak(Nak::bare(NakCode::InvalidRequest))
    }

    #[cold]
    fn too_long(&self, after: &mut After) -> Answer {
        if self.kind != QpKind::Rc {
            return Answer::Dropped;
        }
        self.fail_responder(AsyncEvent::QpAccessErr(self.handle), after);
        Answer::Nak(Nak::bare(NakCode::InvalidRequest))
    }

    /// The queue pair itself does not let the peer do this (R-RA-02).
    #[cold]
    fn no_right(
        &self,
        through: Connection<'_>,
        request: &Request<'_>,
        remote: RemoteAddr,
        after: &mut After,
    ) -> Answer {
        // A queue pair that has ended has no rights, but does not say so either.
        if !through.holds() {
            return Answer::Dropped;
        }
        let why = RefusedBy::QpRights { has: self.gate.view().rights() };
        let number = self.log("RDMA WRITE", request.length, remote, why);
        if self.kind == QpKind::Rc {
            self.fail_responder(AsyncEvent::QpReqErr(self.handle), after);
        }
        self.nak(NakCode::InvalidRequest, Some(why), number)
    }

    #[cold]
    fn violation(
        &self,
        length: u64,
        remote: RemoteAddr,
        refusal: Refusal,
        alone: bool,
        after: &mut After,
    ) -> Answer {
        let why = RefusedBy::Access(refusal);
        let number = self.log("RDMA WRITE", length, remote, why);
        if alone && self.kind == QpKind::Rc {
            self.fail_responder(AsyncEvent::QpAccessErr(self.handle), after);
        }
        self.nak(NakCode::RemoteAccess, Some(why), number)
    }

    /// A negative answer where the transport has any.
    fn nak(&self, code: NakCode, why: Option<RefusedBy>, number: u32) -> Answer {
        match self.kind {
            QpKind::Rc => Answer::Nak(Nak { code, why, number }),
            _ => Answer::Dropped,
        }
    }

    #[cold]
    fn log(&self, what: &'static str, length: u64, remote: RemoteAddr, why: RefusedBy) -> u32 {
        self.core.refuse(self.num, &Words { what, length, remote: Some(remote) }, why)
    }

    /// The responder goes into the error state.
    #[cold]
    pub(super) fn fail_responder(&self, event: AsyncEvent, after: &mut After) {
        self.fail_receives(&mut lock(&self.rq), after);
        self.core.events.push(event);
    }

    /// Puts the receive side into the error state; the send side follows after.
    pub(super) fn fail_receives(&self, rq: &mut Rq, after: &mut After) {
        if matches!(self.state(), QpState::Err | QpState::Reset) || self.gate.view().destroyed() {
            return;
        }
        self.gate.change(|view| view.with_state(QpState::Err));
        self.flush_receives(rq, after);
        if self.srq.is_some() {
            self.core.events.push(AsyncEvent::QpLastWqeReached(self.handle));
        }
        after.later().flush.extend(self.me.upgrade());
    }

    fn flush_receives(&self, rq: &mut Rq, after: &mut After) {
        let begun = rq.begun.take().map(|begun| *begun);
        for receive in begun.into_iter().chain(std::iter::from_fn(|| rq.ring.pop())) {
            self.receive_error(&receive, WcStatus::WrFlushErr, 0, after);
        }
    }
}

/// Waits until a change has taken effect. Accesses are short and hold no lock, so this ends.
pub(crate) fn settle(engine: &mkey_core::engine::Engine, change: &mut Change) {
    let mut looks = 0u32;
    while engine.finish(change) == Progress::Pending {
        looks += 1;
        if looks < 64 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// The header that precedes a datagram in the receive buffer: as it is on the wire. Where both ports
/// have IPv4 addresses it is an IPv4 header in the last 20 bytes, as RoCEv2 has it.
fn routing_header(datagram: &Datagram, length: u64, imm: bool) -> [u8; GRH as usize] {
    let Datagram { traffic_class, hop_limit, .. } = *datagram;
    let envelope = Envelope { traffic_class, hop_limit, ..Envelope::default() };
    let deth = deth::Repr { qkey: datagram.qkey, source_qp: Qpn::wrapping(datagram.src_qp) };
    let packet = Repr {
        fields: bth::Fields::new(Qpn::default(), Psn::default()),
        body: Body::UdSend { deth, imm: imm.then_some(0) },
    };
    let length = packet.buffer_len(usize::try_from(length).unwrap_or(usize::MAX));
    let mut header = [0; GRH as usize];
    // Between an IPv4 address and one of IPv6 there is no wire, but both may be of one process.
    let around =
        datagram::around(datagram.from, datagram.to, &envelope).unwrap_or_else(|| udp_ip::Repr {
            ip: Ip::V6(ipv6::Repr {
                traffic_class,
                hop_limit,
                ..ipv6::Repr::new(datagram.from.0.into(), datagram.to.0.into())
            }),
            udp: udp::Repr { source_port: 0, checksum: 0 },
        });
    if let Ok(headers) = around.headers(length) {
        let ip = headers.ip_bytes();
        if let Some(place) = GRH.checked_sub(ip.len() as u64) {
            for (byte, value) in header.iter_mut().skip(place as usize).zip(ip) {
                *byte = *value;
            }
        }
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::gid_of;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    fn between(from: IpAddr, to: IpAddr) -> Datagram {
        let (from, to) = (gid_of(from), gid_of(to));
        Datagram { from, to, src_qp: 7, qkey: 1, traffic_class: 0x20, hop_limit: 63 }
    }

    /// BTH, DETH and ICRC, immediate data, and padding to words.
    const LENGTHS: [(u64, bool, u16); 4] =
        [(0, false, 24), (5, false, 24 + 8), (8, true, 24 + 4 + 8), (4096, false, 24 + 4096)];

    /// Programs tell by the checksum that it is an IPv4 header.
    #[test]
    fn the_header_of_a_datagram_is_that_of_ipv4() {
        let [from, to] = [1, 2].map(|host| Ipv4Addr::new(10, 0, 0, host));
        for (length, imm, transport) in LENGTHS {
            let header = routing_header(&between(from.into(), to.into()), length, imm);
            assert_eq!(header[..20], [0; 20]);
            let (ip, _) = mkey_wire::ipv4::Packet::new_checked(&header[20..]).unwrap();
            assert_eq!((ip.source(), ip.destination()), (from, to));
            assert_eq!((ip.tos(), ip.ttl(), ip.total_length()), (0x20, 63, 28 + transport));
            let words =
                header[20..].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
            let sum: u32 = words.sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum is right");
        }
    }

    #[test]
    fn the_header_of_a_datagram_is_that_of_ipv6() {
        let [from, to] = [1, 2].map(|host| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host));
        for (length, imm, transport) in LENGTHS {
            let header = routing_header(&between(from.into(), to.into()), length, imm);
            let (ip, _) = mkey_wire::ipv6::Packet::new_checked(&header).unwrap();
            assert_eq!((ip.source(), ip.destination()), (from, to));
            assert_eq!((ip.traffic_class(), ip.hop_limit()), (0x20, 63));
            assert_eq!(ip.payload_length(), 8 + transport);
        }
    }

    #[test]
    fn the_header_of_a_datagram_of_either_is_that_of_ipv6() {
        let from = Ipv4Addr::LOCALHOST;
        let header = routing_header(&between(from.into(), Ipv6Addr::LOCALHOST.into()), 8, false);
        let (ip, _) = mkey_wire::ipv6::Packet::new_checked(&header).unwrap();
        assert_eq!((ip.source(), ip.destination()), (from.to_ipv6_mapped(), Ipv6Addr::LOCALHOST));
    }
}
