//! The requester of a queue pair whose peer is reached by a link: work requests in flight.

use super::exchange::{Outcome, atomic_write_fits, sends_bytes, total};
use super::packets::{Todo, belongs, fields};
use super::requester::Sq;
use super::wait::Wait;
use super::{After, Qp};
use crate::link::{Envelope, Inbound, Outbound, Path, Unsent};
use crate::memory::{self, Cursor, Failed, Missed, Source};
use crate::message::{self, Ask};
use crate::payload::Bytes;
use crate::protocol::{
    Ending, Heard, Kind, Message, Next, Outgoing, Patience, Requester, Transport,
};
use crate::sync::lock;
use mkey_core::engine::{Executor, Progress};
use mkey_core::queue_pair::{QpAttr, QpKind, QpState};
use mkey_core::rights::Want;
use mkey_core::status::WcStatus;
use mkey_core::work::{Payload, RemoteAddr, SendFlags, SendOp, SendWr};
use mkey_wire::body::Body;
use mkey_wire::packet::Repr;
use mkey_wire::request::{Request, Send, Tail, Write};
use mkey_wire::response::Response;
use mkey_wire::timer::ack_timeout;
use mkey_wire::u24::{Psn, Qpn};
use mkey_wire::{atomic_eth, deth, reth, udp};
use std::sync::Arc;
use std::time::Duration;

/// A peer of this host that is there and does not get round to looking at what it was sent has not lost
/// it: no tries are used up for so long.
const LYING: Duration = Duration::from_secs(5);

/// A path, and what packets on it say about themselves.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) path: Arc<dyn Path>,
    peer: u32,
    envelope: Envelope,
}

impl Route {
    /// The connection that its packets are of.
    fn connection(&self) -> Option<u32> {
        self.envelope.connection
    }

    /// A packet without payload.
    pub(super) fn outbound(&self, body: Body, psn: Psn) -> Outbound {
        let repr = Repr { fields: fields(self.peer, psn), body };
        Outbound { repr, length: 0, envelope: self.envelope, damage: None }
    }
}

/// The state of a requester on a link, from its first message to RESET.
#[derive(Debug)]
pub(super) struct Flight {
    machine: Requester,
    route: Route,
    /// The earliest time for which a timer is set.
    timer: Option<Duration>,
    /// The path's mark behind what was sent last.
    mark: u64,
    /// Since when the peer has not looked at what it was sent.
    lying: Option<Duration>,
}

impl Flight {
    /// Waits longer for a peer that has not lost anything, but has no time for it.
    fn be_patient(&mut self, now: Duration) {
        if !self.machine.is_overdue(now) {
            return;
        }
        if !self.route.path.leaves_lying(self.mark) {
            self.lying = None;
        } else if now.saturating_sub(*self.lying.get_or_insert(now)) < LYING {
            self.machine.wait_longer(now);
        }
    }

    /// The queue pair was given other attributes.
    pub(super) fn set(&mut self, attr: &QpAttr) {
        self.machine.set(patience(attr), u32::from(attr.max_rd_atomic));
    }

    /// Whether a message has begun and is not done.
    pub(super) fn busy(&self) -> bool {
        self.machine.busy()
    }

    /// The way, the peer's number, and which connection it is.
    pub(super) fn leads(&self) -> (&dyn Path, u32, Option<u32>) {
        (&*self.route.path, self.route.peer, self.route.connection())
    }

    /// A work request was added to the queue.
    pub(super) fn push(&mut self, wr: &SendWr<'_>) {
        let length = match wr.payload {
            Payload::Inline(bytes) => bytes.len() as u64,
            Payload::Sges(sges) => total(sges),
        };
        let (kind, length) = match wr.op {
            SendOp::Read(_) => (Kind::Read, length),
            // Answered as a READ of nothing.
            SendOp::AtomicWrite(_) => (Kind::Read, 0),
            SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => (Kind::Atomic, length),
            SendOp::BindMw(_) | SendOp::BindMw1(_) | SendOp::RegMr(_) => {
                (Kind::Local { alone: false }, 0)
            }
            SendOp::LocalInv(_) => (Kind::Local { alone: true }, 0),
            _ => (Kind::Data, length),
        };
        let fence = wr.flags.contains(SendFlags::FENCE);
        self.machine.push(Message { kind, length, fence });
    }
}

pub(super) fn patience(attr: &QpAttr) -> Patience {
    Patience {
        answers: attr.retry_cnt,
        receivers: attr.rnr_retry,
        timeout: ack_timeout(attr.timeout),
    }
}

impl Qp {
    /// The route to a peer by a path, for packets of whatever connection `like` says.
    pub(super) fn route(&self, path: Arc<dyn Path>, peer: u32, like: &Envelope) -> Route {
        let source_port = udp::source_port(0, Qpn::wrapping(self.num), Qpn::wrapping(peer));
        Route { path, peer, envelope: Envelope { source_port, ..*like } }
    }

    /// From now on the queue's messages go by this path.
    pub(super) fn take_off(&self, sq: &mut Sq, path: Arc<dyn Path>) {
        let ah = sq.attr.ah.unwrap_or_default();
        let like = Envelope {
            traffic_class: ah.traffic_class,
            hop_limit: ah.hop_limit,
            connection: Some(self.gate.view().epoch()),
            ..Envelope::default()
        };
        let transport = Transport {
            reliable: self.kind == QpKind::Rc,
            mtu: path.mtu().unwrap_or(sq.attr.path_mtu).max(1),
            psn: Psn::wrapping(sq.attr.sq_psn),
            window: path.window().max(1),
        };
        let reads = u32::from(sq.attr.max_rd_atomic);
        let mut flight = Flight {
            machine: Requester::new(transport, patience(&sq.attr), reads),
            route: self.route(path, sq.attr.dest_qp_num, &like),
            timer: None,
            mark: 0,
            lying: None,
        };
        for stored in &sq.queue {
            flight.push(&stored.wr());
        }
        sq.flight = Some(Box::new(flight));
    }

    /// All that is queued ends: nothing of it goes out any more. An RC queue pair is in ERR then;
    /// others may be made to go on, in sequence.
    pub(super) fn land_all(&self, sq: &mut Sq) {
        match self.kind {
            QpKind::Rc => sq.flight = None,
            _ => {
                if let Some(flight) = &mut sq.flight {
                    flight.machine.clear();
                }
            }
        }
    }

    /// Goes on with the messages in flight, as far as that gets.
    pub(super) fn fly(
        &self,
        sq: &mut Sq,
        executor: &mut Executor,
        now: Duration,
        after: &mut After,
    ) {
        let Some(mut flight) = sq.flight.take() else { return };
        if flight.timer.is_some_and(|timer| timer <= now) {
            flight.timer = None;
        }
        flight.be_patient(now);
        flight.machine.on_time(now);
        let ended = self.fly_on(sq, &mut flight, executor, now, after);
        flight.route.path.flush();
        if let Some((status, vendor_err)) = ended {
            sq.flight = Some(flight);
            self.land_all(sq);
            if let Some(head) = sq.queue.pop_front() {
                self.give_up(sq, &head.wr(), status, vendor_err, after);
            }
            return;
        }
        if let Some(deadline) = flight.machine.deadline()
            && flight.timer.is_none_or(|timer| deadline < timer)
        {
            flight.timer = Some(deadline);
            self.core.timers.set(deadline, self, &self.core);
        }
        sq.flight = Some(flight);
    }

    /// Sends what can be sent; how the first message has failed, if it has.
    fn fly_on(
        &self,
        sq: &mut Sq,
        flight: &mut Flight,
        executor: &mut Executor,
        now: Duration,
        after: &mut After,
    ) -> Option<(WcStatus, u32)> {
        loop {
            while let Some(ended) = flight.machine.take_ended() {
                match ended {
                    Ok(()) => self.succeed_first(sq, after),
                    Err(Ending { status, vendor_err }) => return Some((status, vendor_err)),
                }
            }
            let state = self.state();
            let hold = state == QpState::Sqd;
            if !(state == QpState::Rts || hold && flight.machine.busy()) {
                return None;
            }
            let next = flight.machine.next(now, hold);
            let (Next::Local(message) | Next::Packet(Outgoing { message, .. })) = next else {
                return None;
            };
            let place = message.wrapping_sub(flight.machine.front()) as usize;
            let head = sq.queue.get(place)?;
            let wr = head.wr();
            let failed = match next {
                Next::Packet(out) => match self.send_packet(flight, executor, &wr, &out) {
                    Ok(()) => {
                        flight.machine.sent(now);
                        flight.mark = flight.route.path.mark();
                        None
                    }
                    Err(Outcome::NoRoom) => {
                        flight.machine.blocked(now);
                        self.wait_for_room();
                        return None;
                    }
                    Err(outcome) => Some(outcome),
                },
                _ => match self.work_here(sq.wait.take(), &wr) {
                    Outcome::Done(_) => {
                        flight.machine.executed(message);
                        None
                    }
                    Outcome::Pending(change) => {
                        self.core.timers.set(now, self, &self.core);
                        sq.wait = Some(Wait::Quiet(change));
                        return None;
                    }
                    outcome => Some(outcome),
                },
            };
            if let Some(Outcome::Failed { status, vendor_err }) = failed {
                flight.machine.fail(message, Ending { status, vendor_err });
            }
        }
    }

    /// Sends a datagram to the queue pair of this number.
    pub(super) fn ship(
        &self,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        request: message::Request<'_>,
        to: u32,
        path: Arc<dyn Path>,
    ) -> Outcome {
        let message::Request { ask, length, mut source, solicited, datagram, .. } = request;
        let (Ask::Send { imm, .. }, Some(datagram)) = (ask, datagram) else {
            return Outcome::Done(0);
        };
        let like = Envelope {
            traffic_class: datagram.traffic_class,
            hop_limit: datagram.hop_limit,
            ..Envelope::default()
        };
        let deth = deth::Repr { qkey: datagram.qkey, source_qp: Qpn::wrapping(self.num) };
        let route = self.route(path, to, &like);
        // Nobody looks at the sequence of datagrams.
        let mut outbound = route.outbound(Body::UdSend { deth, imm }, Psn::default());
        outbound.length = length as usize;
        outbound.repr.fields.solicited = solicited;
        let sent = self.send_filled(&*route.path, &outbound, executor, &mut source, (wr, length));
        route.path.flush();
        sent.map_or_else(|outcome| outcome, |()| Outcome::Done(0))
    }

    /// Sends a packet with bytes of a work request's, of whose whole length is told where they are refused.
    fn send_filled(
        &self,
        path: &dyn Path,
        outbound: &Outbound,
        executor: &mut Executor,
        source: &mut Source<'_>,
        (wr, length): (&SendWr<'_>, u64),
    ) -> Result<(), Outcome> {
        let mut missed = None;
        let sent = path.send(outbound, &mut |room| {
            missed = memory::gather(executor, source, room).err();
            missed.is_none()
        });
        match (sent, missed) {
            (Ok(()), _) => Ok(()),
            (Err(Unsent::Unfilled), Some(Missed::Refused(refusal))) => {
                Err(self.own_fault(wr, length, refusal))
            }
            (Err(Unsent::Full | Unsent::Unfilled), _) => Err(Outcome::NoRoom),
        }
    }

    /// A bind, invalidation or fast registration: begins it, or goes on with it.
    fn work_here(&self, wait: Option<Wait>, wr: &SendWr<'_>) -> Outcome {
        if let Some(Wait::Quiet(mut change)) = wait {
            return match self.core.engine.finish(&mut change) {
                Progress::Quiet => Outcome::Done(0),
                Progress::Pending => Outcome::Pending(change),
            };
        }
        self.manage(wr).unwrap_or(Outcome::Done(0))
    }

    fn send_packet(
        &self,
        flight: &Flight,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        out: &Outgoing,
    ) -> Result<(), Outcome> {
        let (source, length) = self.source(wr);
        if out.first {
            self.check_own(executor, wr, &source, length, out)?;
        }
        let mut source = match source {
            Source::Memory(cursor) if out.offset > 0 => Source::Memory(cursor.skip(out.offset)),
            Source::Bytes(bytes) => Source::Bytes(bytes.split(out.offset as usize).1),
            source => source,
        };
        let (request, payload) = request(wr, out, length);
        let body = match (&self.xrc, self.kind) {
            (Some(_), _) => {
                Body::XrcRequest { srq: Qpn::wrapping(wr.srq.unwrap_or_default()), request }
            }
            (None, QpKind::Uc) => Body::UcRequest(request),
            (None, _) => Body::RcRequest(request),
        };
        let mut outbound = flight.route.outbound(body, out.psn);
        outbound.length = payload;
        let fields = &mut outbound.repr.fields;
        fields.ack_request = out.wants_ack;
        fields.solicited = out.last && wr.flags.contains(SendFlags::SOLICITED);
        self.send_filled(&*flight.route.path, &outbound, executor, &mut source, (wr, length))
    }

    /// What is wrong with a work request on this side shows before its first packet goes out. What a
    /// single packet carries is looked at when it is filled.
    fn check_own(
        &self,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        source: &Source<'_>,
        length: u64,
        out: &Outgoing,
    ) -> Result<(), Outcome> {
        match wr.op {
            // R-AT-04: nothing is asked of the peer then.
            SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } if length != 8 => {
                Err(Outcome::Failed { status: WcStatus::LocLenErr, vendor_err: 0 })
            }
            SendOp::AtomicWrite(remote) => atomic_write_fits(wr, remote)
                .map_err(|status| Outcome::Failed { status, vendor_err: 0 }),
            op if sends_bytes(&op) && !out.last => self.check_source(executor, wr, source, length),
            _ => Ok(()),
        }
    }

    /// A response has come for this queue pair. What it ends, the program sees before anything that came
    /// after it: the peer has answered before it asked.
    pub(super) fn hear_response(
        &self,
        executor: &mut Executor,
        inbound: &Inbound<'_>,
        response: &Response,
        after: &mut After,
    ) -> Todo {
        let mut sq = lock(&self.sq);
        let sq = &mut *sq;
        let Some(mut flight) = sq.flight.take() else { return Todo::default() };
        let todo = self.heed(sq, &mut flight, executor, inbound, response);
        while flight.machine.take_done() {
            self.succeed_first(sq, after);
        }
        sq.flight = Some(flight);
        todo
    }

    fn succeed_first(&self, sq: &mut Sq, after: &mut After) {
        if let Some(head) = sq.queue.pop_front() {
            let wr = head.wr();
            self.succeed(sq, &wr, bytes_read(&wr), after);
        }
    }

    fn heed(
        &self,
        sq: &mut Sq,
        flight: &mut Flight,
        executor: &mut Executor,
        inbound: &Inbound<'_>,
        response: &Response,
    ) -> Todo {
        if sq.attr.ah.is_none_or(|ah| ah.gid != inbound.from)
            || !belongs(&mut flight.route.connection(), inbound.envelope.connection)
        {
            return Todo::default();
        }
        let (psn, now) = (inbound.repr.fields.psn, self.core.timers.now());
        flight.lying = None;
        let heard = flight.machine.hear(psn, response, inbound.payload.len() as u64, now);
        let (Heard::Land { message, .. } | Heard::Word { message, .. }) = heard else {
            return Todo::SEND;
        };
        let place = message.wrapping_sub(flight.machine.front()) as usize;
        let Some(stored) = sq.queue.get(place) else { return Todo::SEND };
        let wr = stored.wr();
        let landed = match heard {
            Heard::Land { .. } if matches!(wr.op, SendOp::AtomicWrite(_)) => Ok(()),
            Heard::Land { offset, .. } => self.land(executor, &wr, offset, inbound.payload),
            Heard::Word { original, .. } => {
                self.land(executor, &wr, 0, Bytes::of(&original.to_ne_bytes()))
            }
            Heard::Nothing => Ok(()),
        };
        if let Err(Outcome::Failed { status, vendor_err }) = landed {
            flight.machine.fail(message, Ending { status, vendor_err });
        }
        Todo::SEND
    }

    /// Puts bytes of a READ, or the word of an atomic, where the work request wants them.
    fn land(
        &self,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        offset: u64,
        bytes: Bytes<'_>,
    ) -> Result<(), Outcome> {
        let Payload::Sges(sges) = wr.payload else { return Ok(()) };
        let (length, whole) = (bytes.len() as u64, total(sges));
        let landing = Cursor::new(self.own_memory(Want::LocalWrite), sges);
        if offset == 0
            && length < whole
            && let Err(refusal) = landing.check(executor, whole)
        {
            return Err(self.own_fault(wr, whole, refusal));
        }
        match memory::transfer(
            executor,
            &mut Source::Bytes(bytes),
            &mut landing.skip(offset),
            length,
        ) {
            Ok(()) | Err(Failed::Ended) => Ok(()),
            Err(Failed::Source(refusal) | Failed::Target(refusal)) => {
                Err(self.own_fault(wr, whole, refusal))
            }
        }
    }
}

/// Bytes that a finished work request has read.
fn bytes_read(wr: &SendWr<'_>) -> u32 {
    match (wr.op, wr.payload) {
        (SendOp::Read(_), Payload::Sges(sges)) => total(sges) as u32,
        (SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. }, _) => 8,
        _ => 0,
    }
}

/// What the packet says, and the bytes of payload that it has.
fn request(wr: &SendWr<'_>, out: &Outgoing, total: u64) -> (Request, usize) {
    let Outgoing { first, last, offset, .. } = *out;
    let range = |remote: RemoteAddr, offset: u64, length: u64| reth::Repr {
        address: remote.address.0.wrapping_add(offset),
        rkey: remote.rkey.0.0,
        // What is longer than can be said is refused by the peer all the same (R-RA-12).
        length: u32::try_from(length).unwrap_or(u32::MAX),
    };
    let write = |remote, imm| {
        Request::Write(match (first, last) {
            (true, true) => Write::Only(range(remote, 0, total), imm),
            (true, false) => Write::First(range(remote, 0, total)),
            (false, true) => Write::Last(imm),
            (false, false) => Write::Middle,
        })
    };
    let send = |tail| {
        Request::Send(match (first, last) {
            (true, true) => Send::Only(tail),
            (true, false) => Send::First,
            (false, true) => Send::Last(tail),
            (false, false) => Send::Middle,
        })
    };
    let word = |remote: RemoteAddr, swap_or_add, compare| atomic_eth::Repr {
        address: remote.address.0,
        rkey: remote.rkey.0.0,
        swap_or_add,
        compare,
    };
    let (request, payload) = match wr.op {
        SendOp::Write(remote) => (write(remote, None), out.length),
        SendOp::WriteImm(remote, imm) => (write(remote, Some(imm)), out.length),
        SendOp::SendImm(imm) => (send(Tail::Imm(imm)), out.length),
        SendOp::SendInv(key) => (send(Tail::Inv(key.0.0)), out.length),
        SendOp::Read(remote) => (Request::Read(range(remote, offset, out.length)), 0),
        SendOp::FetchAdd { remote, add } => (Request::FetchAdd(word(remote, add, 0)), 0),
        SendOp::CompareSwap { remote, compare, swap } => {
            (Request::CompareSwap(word(remote, swap, compare)), 0)
        }
        SendOp::AtomicWrite(remote) => (Request::AtomicWrite(range(remote, 0, 8)), 8),
        _ => (send(Tail::Plain), out.length),
    };
    (request, payload as usize)
}
