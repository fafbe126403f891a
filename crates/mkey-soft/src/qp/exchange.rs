//! Carrying out one work request: the exchange with the peer, or the operation on the protection
//! tables. Rules R-LOC, R-MW, R-INV, R-FR as the requester sees them.

use super::post;
use super::requester::Sq;
use super::responder::{MAX_MESSAGE, Undone};
use super::{After, Connection, Qp};
use crate::core::find_qp;
use crate::link::{Path, Port};
use crate::memory::{self, Atomic, Cursor, Failed, Party, Site, Source};
use crate::message::{Answer, Ask, Datagram, Nak, Part, Request, Words};
use crate::payload::Bytes;
use crate::protocol::refusal_status;
use crate::sync::lock;
use mkey_core::device::{MwKind, RefusedBy};
use mkey_core::engine::{Access, Change, Executor, Progress};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpKind, QpState};
use mkey_core::refusal::{KeyKind, ManageRefusal, Refusal};
use mkey_core::rights::Want;
use mkey_core::status::WcStatus;
use mkey_core::work::{Payload, RemoteAddr, SendFlags, SendOp, SendWr, Sge, UdDest};
use std::sync::Arc;

/// The peer as it was found.
#[derive(Debug)]
pub(super) struct Link {
    qp: Arc<Qp>,
    epoch: u32,
}

impl Link {
    fn connection(&self) -> Connection<'_> {
        self.qp.gate.connection(self.epoch)
    }
}

/// What became of a work request.
pub(super) enum Outcome {
    /// Done; bytes read.
    Done(u32),
    Failed {
        status: WcStatus,
        vendor_err: u32,
    },
    NoAnswer {
        resend: bool,
    },
    NotReady(u8),
    /// The peer is not in this process; it is reached by this path.
    Path(Arc<dyn Path>),
    /// There is no room on the path now.
    NoRoom,
    /// Boxed, as it is rare and large.
    Pending(Box<Change>),
}

impl Qp {
    /// Tries to carry a work request out.
    #[inline]
    pub(super) fn attempt(
        &self,
        sq: &mut Sq,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        after: &mut After,
    ) -> Outcome {
        if let Some(outcome) = self.manage(wr) {
            return outcome;
        }
        if self.kind == QpKind::Ud {
            return self.send_datagram(sq, executor, wr, after);
        }
        let Some(link) = self.reach(sq) else { return self.unreachable(sq, executor, wr) };
        let outcome = self.exchange(&link, executor, wr, after);
        sq.link = Some(link);
        outcome
    }

    /// Carries out what concerns this side's protection tables only; `None` if it is none of that.
    #[inline]
    pub(super) fn manage(&self, wr: &SendWr<'_>) -> Option<Outcome> {
        let engine = &self.core.engine;
        let change = match wr.op {
            SendOp::BindMw(bind) => engine.bind(self.scope(), &bind, MwKind::Type2),
            SendOp::BindMw1(bind) => engine.bind(self.scope(), &bind, MwKind::Type1),
            SendOp::LocalInv(key) => engine.invalidate(self.scope(), key),
            // Remote rights without local write are refused, as for any registration (R-FR-13).
            SendOp::RegMr(reg) if reg.rights.validate().is_err() => {
                Err(ManageRefusal::Rights { rights: reg.rights })
            }
            SendOp::RegMr(reg) => engine.fast_register(self.scope(), &reg),
            _ => return None,
        };
        Some(match change {
            Ok(mut change) => match engine.finish(&mut change) {
                Progress::Quiet => Outcome::Done(0),
                Progress::Pending => Outcome::Pending(Box::new(change)),
            },
            Err(refusal) => self.not_managed(wr, refusal),
        })
    }

    #[cold]
    fn not_managed(&self, wr: &SendWr<'_>, refusal: ManageRefusal) -> Outcome {
        let window = match wr.op {
            SendOp::BindMw(_) | SendOp::BindMw1(_) => true,
            SendOp::LocalInv(_) => names_window(&refusal),
            _ => false,
        };
        let words = Words { what: post::name(&wr.op), length: 0, remote: None };
        let vendor_err = self.core.refuse(self.num, &words, RefusedBy::Manage(refusal));
        Outcome::Failed { status: refusal.status(window), vendor_err }
    }

    /// The peer, if the connection holds: it exists, takes messages, and takes ours.
    #[inline]
    fn reach(&self, sq: &mut Sq) -> Option<Link> {
        if let Some(link) = sq.link.take() {
            let view = link.qp.gate.view();
            if view.epoch() == link.epoch && view.state() == QpState::Rts && view.receives() {
                return Some(link);
            }
        }
        let found = self.find_peer(sq);
        sq.met |= found.is_some();
        found
    }

    #[cold]
    fn find_peer(&self, sq: &Sq) -> Option<Link> {
        if self.core.port.as_ref().is_some_and(Port::carries_all) {
            return None;
        }
        let qp = find_qp(sq.attr.ah?.gid, sq.attr.dest_qp_num)?;
        let rq = lock(&qp.rq);
        let view = qp.gate.view();
        let ends = [&self.xrc, &qp.xrc].map(|end| end.as_ref().map(|end| end.is_send()));
        let fits = qp.kind == self.kind && matches!(ends, [None, None] | [Some(true), Some(false)]);
        let ours = rq.peer == (self.core.options.gid, self.num) && fits;
        drop(rq);
        if !ours || !view.receives() {
            return None;
        }
        if view.state() == QpState::Rtr && qp.gate.establish() {
            qp.core.events.push(AsyncEvent::CommEst(qp.handle));
        }
        Some(Link { epoch: view.epoch(), qp })
    }

    /// The path to a peer that is not in this process. A peer that was here once stays here, until
    /// the connection is made anew.
    fn path(&self, sq: &Sq) -> Option<Arc<dyn Path>> {
        if sq.met {
            return None;
        }
        self.core.port.as_ref()?.path(&self.core, sq.attr.ah?.gid, sq.attr.dest_qp_num, true)
    }

    /// Nobody here answers. What is wrong on this side shows all the same.
    #[cold]
    fn unreachable(&self, sq: &Sq, executor: &mut Executor, wr: &SendWr<'_>) -> Outcome {
        if let Some(path) = self.path(sq) {
            return Outcome::Path(path);
        }
        let (source, length) = self.source(wr);
        if sends_bytes(&wr.op)
            && let Err(outcome) = self.check_source(executor, wr, &source, length)
        {
            return outcome;
        }
        match self.kind {
            QpKind::Rc => Outcome::NoAnswer { resend: true },
            _ => Outcome::Done(0),
        }
    }

    #[inline]
    pub(super) fn source<'a>(&'a self, wr: &SendWr<'a>) -> (Source<'a>, u64) {
        match wr.payload {
            Payload::Inline(bytes) => (Source::Bytes(Bytes::of(bytes)), bytes.len() as u64),
            Payload::Sges(sges) => {
                let party = self.own_memory(Want::LocalRead);
                (Source::Memory(Cursor::new(party, sges)), total(sges))
            }
        }
    }

    #[inline]
    pub(super) fn own_memory(&self, want: Want) -> Party<'_> {
        Party { core: &self.core, pd: self.pd, qp: self.id, want, through: None }
    }

    pub(super) fn check_source(
        &self,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        source: &Source<'_>,
        length: u64,
    ) -> Result<(), Outcome> {
        source.make_ready(executor, length).map_err(|refusal| self.own_fault(wr, length, refusal))
    }

    /// This side's memory did not allow it: D-LOC.
    #[cold]
    pub(super) fn own_fault(&self, wr: &SendWr<'_>, length: u64, refusal: Refusal) -> Outcome {
        let words = Words { what: post::name(&wr.op), length, remote: None };
        let vendor_err = self.core.refuse(self.num, &words, RefusedBy::Access(refusal));
        Outcome::Failed { status: refusal.local_status(), vendor_err }
    }

    /// One request to the peer and its answer.
    #[inline]
    fn exchange(
        &self,
        link: &Link,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        after: &mut After,
    ) -> Outcome {
        let (peer, connection) = (&*link.qp, link.connection());
        let Some(pd) = peer.enter(wr.srq) else {
            return self.answered(peer, wr, 0, peer.no_such_queue(after));
        };
        if let (SendOp::Write(remote), Payload::Sges(&[sge])) = (wr.op, wr.payload)
            && (1..=memory::CHUNK).contains(&u64::from(sge.length))
            && peer.gate.view().allows(Want::RemoteWrite)
        {
            let access = Access {
                key: sge.lkey.0,
                pd: self.pd,
                qp: self.id,
                address: sge.address,
                length: u64::from(sge.length),
                want: Want::LocalRead,
            };
            let source = Site { core: &self.core, access, through: None };
            return match peer.write_chunk(executor, connection, pd, &source, remote, after) {
                Answer::Ack => Outcome::Done(0),
                answer => self.answered(peer, wr, access.length, answer),
            };
        }
        let ask = match wr.op {
            SendOp::Write(remote) => Ask::Write { remote, imm: None },
            // 8 aligned bytes are copied as one word.
            SendOp::AtomicWrite(remote) => match atomic_write_fits(wr, remote) {
                Ok(()) => Ask::Write { remote, imm: None },
                Err(status) => return Outcome::Failed { status, vendor_err: 0 },
            },
            SendOp::WriteImm(remote, imm) => Ask::Write { remote, imm: Some(imm) },
            SendOp::SendImm(imm) => Ask::Send { imm: Some(imm), invalidate: None },
            SendOp::SendInv(key) => Ask::Send { imm: None, invalidate: Some(key.0) },
            SendOp::Read(remote) => return self.read(link, executor, wr, remote, after),
            SendOp::FetchAdd { remote, add } => {
                let operation = Atomic::FetchAdd { add };
                return self.atomic(link, executor, wr, remote, operation, after);
            }
            SendOp::CompareSwap { remote, compare, swap } => {
                let operation = Atomic::CompareSwap { compare, swap };
                return self.atomic(link, executor, wr, remote, operation, after);
            }
            _ => Ask::Send { imm: None, invalidate: None },
        };
        let (source, length) = self.source(wr);
        // A plain WRITE that the peer takes looks at the source first by itself. In all other
        // cases the source is looked at before anything reaches the peer (R-LOC-11).
        let plain = matches!(ask, Ask::Write { imm: None, .. }) && length <= MAX_MESSAGE;
        if !(plain && peer.gate.view().allows(Want::RemoteWrite))
            && let Err(outcome) = self.check_source(executor, wr, &source, length)
        {
            return outcome;
        }
        let solicited = wr.flags.contains(SendFlags::SOLICITED);
        let part = Part::whole(length);
        let mut request = Request { ask, length, part, source, solicited, datagram: None };
        match peer.handle_request(executor, connection, &mut request, after) {
            Answer::Ack => Outcome::Done(0),
            answer => self.answered(peer, wr, length, answer),
        }
    }

    #[cold]
    fn answered(&self, peer: &Qp, wr: &SendWr<'_>, length: u64, answer: Answer) -> Outcome {
        match answer {
            Answer::Ack => Outcome::Done(0),
            Answer::Nak(nak) => self.refused(peer, wr, length, &nak),
            Answer::NotReady(code) => Outcome::NotReady(code),
            Answer::Dropped if self.kind == QpKind::Rc => Outcome::NoAnswer { resend: true },
            Answer::Dropped => Outcome::Done(0),
            Answer::Silence if self.kind == QpKind::Rc => Outcome::NoAnswer { resend: false },
            Answer::Silence => Outcome::Done(0),
            Answer::Unsent(refusal) => self.own_fault(wr, length, refusal),
        }
    }

    /// The peer refused.
    #[cold]
    fn refused(&self, peer: &Qp, wr: &SendWr<'_>, length: u64, nak: &Nak) -> Outcome {
        let status = refusal_status(nak.code);
        let vendor_err = match nak.why {
            Some(why) if !Arc::ptr_eq(&self.core, &peer.core) => {
                let words = Words { what: post::name(&wr.op), length, remote: remote(&wr.op) };
                self.core.was_refused(peer.num, &words, why)
            }
            _ => nak.number,
        };
        Outcome::Failed { status, vendor_err }
    }

    fn read(
        &self,
        link: &Link,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        remote: RemoteAddr,
        after: &mut After,
    ) -> Outcome {
        let Payload::Sges(sges) = wr.payload else { return Outcome::Done(0) };
        let length = total(sges);
        let mut landing = Cursor::new(self.own_memory(Want::LocalWrite), sges);
        let (peer, connection) = (&*link.qp, link.connection());
        match peer.handle_read(executor, connection, remote, length, &mut landing, after) {
            Ok(()) => Outcome::Done(length as u32),
            Err(Undone::Landing(refusal)) => self.own_fault(wr, length, refusal),
            Err(Undone::Ended) => Outcome::NoAnswer { resend: true },
            Err(Undone::Nak(nak)) => self.refused(peer, wr, length, &nak),
        }
    }

    fn atomic(
        &self,
        link: &Link,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        remote: RemoteAddr,
        operation: Atomic,
        after: &mut After,
    ) -> Outcome {
        let Payload::Sges(sges) = wr.payload else { return Outcome::Done(0) };
        // R-AT-04: nothing is asked of the peer then.
        if total(sges) != 8 {
            return Outcome::Failed { status: WcStatus::LocLenErr, vendor_err: 0 };
        }
        let (peer, connection) = (&*link.qp, link.connection());
        match peer.handle_atomic(executor, connection, remote, operation, after) {
            Ok(old) => {
                let old = old.to_ne_bytes();
                let mut landing = Cursor::new(self.own_memory(Want::LocalWrite), sges);
                match memory::transfer(
                    executor,
                    &mut Source::Bytes(Bytes::of(&old)),
                    &mut landing,
                    8,
                ) {
                    Ok(()) => Outcome::Done(8),
                    Err(Failed::Source(refusal) | Failed::Target(refusal)) => {
                        self.own_fault(wr, 8, refusal)
                    }
                    Err(Failed::Ended) => Outcome::NoAnswer { resend: false },
                }
            }
            Err(Undone::Landing(refusal)) => self.own_fault(wr, 8, refusal),
            Err(Undone::Ended) => Outcome::NoAnswer { resend: true },
            Err(Undone::Nak(nak)) => self.refused(peer, wr, 8, &nak),
        }
    }

    /// A datagram: what becomes of it at the other end is not known here.
    fn send_datagram(
        &self,
        sq: &Sq,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        after: &mut After,
    ) -> Outcome {
        let Some((UdDest { qp_num, qkey, .. }, Some((ah_pd, ah)))) =
            wr.dest.map(|dest| (dest, self.core.ah(dest.ah)))
        else {
            // The address handle was destroyed after posting.
            return Outcome::Failed { status: WcStatus::LocQpOpErr, vendor_err: 0 };
        };
        if ah_pd != self.pd {
            return Outcome::Failed { status: WcStatus::LocQpOpErr, vendor_err: 0 };
        }
        let (source, length) = self.source(wr);
        if length > u64::from(self.core.mtu) {
            return Outcome::Failed { status: WcStatus::LocLenErr, vendor_err: 0 };
        }
        if let Err(outcome) = self.check_source(executor, wr, &source, length) {
            return outcome;
        }
        let imm = match wr.op {
            SendOp::SendImm(imm) => Some(imm),
            _ => None,
        };
        let datagram = Datagram {
            from: self.core.options.gid,
            to: ah.gid,
            src_qp: self.num,
            // A queue key with its highest bit set stands for the queue pair's own.
            qkey: if qkey >> 31 == 1 { sq.attr.qkey } else { qkey },
            traffic_class: ah.traffic_class,
            hop_limit: ah.hop_limit,
        };
        let port = self.core.port.as_ref();
        let peer = match port.is_some_and(Port::carries_all) {
            true => None,
            false => find_qp(ah.gid, qp_num),
        };
        let mut request = Request {
            ask: Ask::Send { imm, invalidate: None },
            length,
            part: Part::whole(length),
            source,
            solicited: wr.flags.contains(SendFlags::SOLICITED),
            datagram: Some(datagram),
        };
        let Some(peer) = peer else {
            let path = port.and_then(|port| port.path(&self.core, ah.gid, qp_num, false));
            return match path {
                Some(path) => self.ship(executor, wr, request, qp_num, path),
                None => Outcome::Done(0),
            };
        };
        if peer.kind != QpKind::Ud {
            return Outcome::Done(0);
        }
        let connection = peer.gate.connection(peer.gate.view().epoch());
        match peer.handle_request(executor, connection, &mut request, after) {
            Answer::Unsent(refusal) => self.own_fault(wr, length, refusal),
            _ => Outcome::Done(0),
        }
    }
}

#[inline]
pub(super) fn total(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}

/// What an atomic write must be.
pub(super) fn atomic_write_fits(wr: &SendWr<'_>, remote: RemoteAddr) -> Result<(), WcStatus> {
    let length = match wr.payload {
        Payload::Inline(bytes) => bytes.len() as u64,
        Payload::Sges(sges) => total(sges),
    };
    match (length, remote.address.0 % 8) {
        (8, 0) => Ok(()),
        (8, _) => Err(WcStatus::RemInvReqErr),
        _ => Err(WcStatus::LocLenErr),
    }
}

pub(super) fn sends_bytes(op: &SendOp<'_>) -> bool {
    !matches!(op, SendOp::Read(_) | SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. })
}

fn remote(op: &SendOp<'_>) -> Option<RemoteAddr> {
    match *op {
        SendOp::Write(remote)
        | SendOp::WriteImm(remote, _)
        | SendOp::AtomicWrite(remote)
        | SendOp::Read(remote) => Some(remote),
        SendOp::FetchAdd { remote, .. } | SendOp::CompareSwap { remote, .. } => Some(remote),
        _ => None,
    }
}

/// Whether an invalidation was refused of a key that names a window (R-INV-03).
fn names_window(refusal: &ManageRefusal) -> bool {
    let kind = match refusal {
        ManageRefusal::Key(Refusal::StaleVariant { kind, .. } | Refusal::NotValid { kind, .. })
        | ManageRefusal::WrongKind { kind, .. } => *kind,
        ManageRefusal::Key(Refusal::OtherQp { .. }) => return true,
        _ => return false,
    };
    matches!(kind, KeyKind::Window1 | KeyKind::Window2)
}
