//! The requester: the send queue. Work requests are executed in order, on the thread that posts
//! them where nothing stands in the way; the head of the queue waits for answers, receives and
//! revocations, all others behind it. Rules R-LOC, R-ORD, R-INV-11.

use super::post;
use super::responder::{MAX_MESSAGE, Undone, settle};
use super::stored::Stored;
use super::wait::{Tries, Wait, answer_time, receiver_time};
use super::{After, Qp};
use crate::completion::{Cq, CreditAccount, CreditOf};
use crate::core::{find_qp, with_executor};
use crate::memory::{self, Atomic, Cursor, Failed, Party, Source};
use crate::message::{Answer, Ask, Datagram, Nak, NakCode, Request, Words};
use crate::sync::lock;
use mkey_core::data_plane::PostError;
use mkey_core::device::{MwKind, RefusedBy};
use mkey_core::engine::{Access, Change, Executor, Progress};
use mkey_core::error::{Error, Object, Reason};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpAttr, QpKind, QpState};
use mkey_core::refusal::{KeyKind, ManageRefusal, Refusal};
use mkey_core::rights::Want;
use mkey_core::status::{WcOpcode, WcStatus};
use mkey_core::work::{Completion, Payload, RemoteAddr, SendFlags, SendOp, SendWr, Sge, UdDest};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The send side's state.
#[derive(Debug)]
pub(crate) struct Sq {
    /// The attributes; `state` and `rights` are in the gate.
    pub(super) attr: QpAttr,
    queue: VecDeque<Stored>,
    wait: Option<Wait>,
    /// `None`: the head was not tried yet.
    tries: Option<Tries>,
    /// SQD was asked for; one event when the head is done.
    pub(super) draining: bool,
    /// Work requests that are done, counted on and on.
    finished: u32,
    /// Of those, how many the program knows of by its polls; the others take up slots still.
    known: Arc<AtomicU32>,
    account: CreditAccount,
    link: Option<Link>,
}

/// The peer as it was found.
#[derive(Debug)]
struct Link {
    qp: Arc<Qp>,
    epoch: u32,
}

/// What became of a work request.
enum Outcome {
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
    /// Boxed, as it is rare and large.
    Pending(Box<Change>),
}

impl Sq {
    pub(super) fn new(cq: &Cq) -> Self {
        let known = Arc::new(AtomicU32::new(0));
        Self {
            attr: super::attributes::fresh(),
            queue: VecDeque::new(),
            wait: None,
            tries: None,
            draining: false,
            finished: 0,
            account: cq.open_account(known.clone()),
            known,
            link: None,
        }
    }

    /// Work requests that take up a slot.
    #[inline]
    fn taken(&self) -> u32 {
        let posted = self.finished.wrapping_add(self.queue.len() as u32);
        posted.wrapping_sub(self.known.load(Ordering::Acquire))
    }

    /// Whether the head of the queue has begun and is not done.
    pub(super) fn busy(&self) -> bool {
        self.wait.is_some()
    }
}

impl Qp {
    /// Posts a chain to the send queue.
    #[inline]
    pub(crate) fn post_send(&self, chain: &[SendWr<'_>]) -> Result<(), PostError> {
        self.core.pump();
        let mut after = After::default();
        let mut failed = None;
        with_executor(|executor| {
            let mut sq = lock(&self.sq);
            for (posted, wr) in chain.iter().enumerate() {
                if let Err(reason) = self.post_one(&mut sq, executor, wr, &mut after) {
                    failed = Some(Box::new((posted, reason)));
                    break;
                }
            }
        });
        after.run();
        match failed {
            None => Ok(()),
            Some(failed) => Err(self.post_error(chain, *failed)),
        }
    }

    #[cold]
    fn post_error(&self, chain: &[SendWr<'_>], (posted, reason): (usize, Reason)) -> PostError {
        let (name, wr_id) = chain.get(posted).map_or(("", 0), |wr| (post::name(&wr.op), wr.wr_id));
        let arguments = format_args!("qp {:#08x}, {name}, wr_id {wr_id:#x}", self.num);
        PostError { posted, error: Error::new("post_send", arguments, reason) }
    }

    #[inline]
    fn post_one(
        &self,
        sq: &mut Sq,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        after: &mut After,
    ) -> Result<(), Reason> {
        let view = self.gate.view();
        let state = view.state();
        if view.destroyed() {
            return Err(Reason::UnknownHandle { object: Object::Qp, handle: self.handle.0 });
        }
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(Reason::QpState { state });
        }
        self.check_form(executor, wr)?;
        if sq.taken() >= self.limits.max_send_wr {
            return Err(Reason::QueueFull { depth: self.limits.max_send_wr });
        }
        if state == QpState::Rts && sq.queue.is_empty() {
            match self.attempt(sq, executor, wr, after) {
                Outcome::Done(bytes) => self.succeed(sq, wr, bytes, after),
                outcome => self.not_done(sq, outcome, Err(wr), after),
            }
        } else {
            sq.queue.push_back(Stored::new(wr));
            self.flush_sends(sq, after);
        }
        Ok(())
    }

    /// What follows when a work request is not done at the first try.
    #[cold]
    fn not_done(
        &self,
        sq: &mut Sq,
        outcome: Outcome,
        head: Result<Stored, &SendWr<'_>>,
        after: &mut After,
    ) {
        let now = self.core.timers.now();
        let wr = match &head {
            Ok(stored) => stored.wr(),
            Err(wr) => **wr,
        };
        match self.wait_for(sq, outcome, now) {
            Ok(wait) => {
                let stored = match head {
                    Ok(stored) => stored,
                    Err(wr) => Stored::new(wr),
                };
                sq.queue.push_front(stored);
                sq.wait = Some(wait);
            }
            Err((status, vendor_err)) => self.give_up(sq, &wr, status, vendor_err, after),
        }
    }

    /// Sets the timer for what the head waits for; or how it ends, if it has no tries left.
    fn wait_for(
        &self,
        sq: &mut Sq,
        outcome: Outcome,
        now: Duration,
    ) -> Result<Wait, (WcStatus, u32)> {
        let QpAttr { retry_cnt, rnr_retry, timeout, .. } = sq.attr;
        let tries = sq.tries.get_or_insert(Tries { answer: retry_cnt, receiver: rnr_retry });
        let (wait, until) = match outcome {
            Outcome::Failed { status, vendor_err } => return Err((status, vendor_err)),
            Outcome::NoAnswer { resend } => {
                let until = answer_time(timeout).map(|time| now.saturating_add(time));
                (Wait::Answer { until, resend }, until)
            }
            Outcome::NotReady(code) => {
                // The responder has answered: what it did not answer before is forgiven.
                tries.answer = retry_cnt;
                if rnr_retry != 7 {
                    match tries.receiver.checked_sub(1) {
                        Some(left) => tries.receiver = left,
                        None => return Err((WcStatus::RnrRetryExcErr, 0)),
                    }
                }
                let until = now.saturating_add(receiver_time(code));
                (Wait::Receiver { until }, Some(until))
            }
            Outcome::Pending(change) => (Wait::Quiet(change), Some(now)),
            // Not a reason to wait.
            Outcome::Done(_) => return Err((WcStatus::Success, 0)),
        };
        if let Some(until) = until {
            self.core.timers.set(until, self, &self.core);
        }
        Ok(wait)
    }

    /// Goes on with the queue from its head, as far as it gets by `now`.
    pub(super) fn resume(
        &self,
        sq: &mut Sq,
        executor: &mut Executor,
        now: Duration,
        after: &mut After,
    ) {
        loop {
            let state = self.state();
            if !(state == QpState::Rts || state == QpState::Sqd && sq.busy()) {
                break;
            }
            let mut done = None;
            match sq.wait.take() {
                None => {}
                Some(Wait::Quiet(mut change)) => match self.core.engine.finish(&mut change) {
                    Progress::Quiet => done = Some(Outcome::Done(0)),
                    Progress::Pending => {
                        self.core.timers.set(now, self, &self.core);
                        sq.wait = Some(Wait::Quiet(change));
                        return;
                    }
                },
                Some(Wait::Answer { until, resend }) => {
                    if until.is_none_or(|until| until > now) {
                        sq.wait = Some(Wait::Answer { until, resend });
                        return;
                    }
                    let tries = sq.tries.get_or_insert_default();
                    match tries.answer.checked_sub(1) {
                        Some(left) => tries.answer = left,
                        None => {
                            let (status, vendor_err) = (WcStatus::RetryExcErr, 0);
                            done = Some(Outcome::Failed { status, vendor_err });
                        }
                    }
                    if done.is_none() && !resend {
                        done = Some(Outcome::NoAnswer { resend });
                    }
                }
                Some(Wait::Receiver { until }) if until > now => {
                    sq.wait = Some(Wait::Receiver { until });
                    return;
                }
                Some(Wait::Receiver { .. }) => {}
            }
            let Some(head) = sq.queue.pop_front() else { break };
            let outcome = match done {
                Some(outcome) => outcome,
                None => self.attempt(sq, executor, &head.wr(), after),
            };
            match outcome {
                Outcome::Done(bytes) => self.succeed(sq, &head.wr(), bytes, after),
                outcome => {
                    self.not_done(sq, outcome, Ok(head), after);
                    if sq.busy() {
                        return;
                    }
                }
            }
        }
        if sq.draining && self.state() == QpState::Sqd && !sq.busy() {
            sq.draining = false;
            self.core.events.push(AsyncEvent::SqDrained(self.handle));
        }
    }

    /// A work request is done.
    #[inline]
    fn succeed(&self, sq: &mut Sq, wr: &SendWr<'_>, bytes: u32, after: &mut After) {
        sq.tries = None;
        sq.finished = sq.finished.wrapping_add(1);
        if self.limits.signal_all || wr.flags.contains(SendFlags::SIGNALED) {
            let completion = Completion {
                byte_len: bytes,
                ..self.bare(wr.wr_id, WcStatus::Success, opcode(&wr.op))
            };
            let credit = CreditOf { account: sq.account, done: sq.finished };
            self.complete_send(&completion, credit, after);
        }
    }

    /// A work request ends in an error: always with a completion (R-LOC-13).
    fn end_in_error(
        &self,
        sq: &mut Sq,
        wr: &SendWr<'_>,
        status: WcStatus,
        vendor_err: u32,
        after: &mut After,
    ) {
        sq.tries = None;
        sq.finished = sq.finished.wrapping_add(1);
        let completion = Completion { vendor_err, ..self.bare(wr.wr_id, status, opcode(&wr.op)) };
        let credit = CreditOf { account: sq.account, done: sq.finished };
        self.complete_send(&completion, credit, after);
    }

    /// The head has failed, and the send queue with it: an RC queue pair goes to ERR, another one
    /// to SQE.
    fn give_up(
        &self,
        sq: &mut Sq,
        wr: &SendWr<'_>,
        status: WcStatus,
        vendor_err: u32,
        after: &mut After,
    ) {
        self.end_in_error(sq, wr, status, vendor_err, after);
        let mut rq = lock(&self.rq);
        if self.kind == QpKind::Rc {
            self.fail_receives(&mut rq, after);
        } else {
            self.gate.change(|view| match view.state() {
                QpState::Rts | QpState::Sqd => view.with_state(QpState::Sqe),
                _ => view,
            });
        }
        drop(rq);
        self.flush_sends(sq, after);
    }

    /// Ends all that is queued, if the queue pair is in an error state.
    pub(super) fn flush_sends(&self, sq: &mut Sq, after: &mut After) {
        if !matches!(self.state(), QpState::Err | QpState::Sqe) {
            return;
        }
        self.let_changes_end(sq);
        sq.draining = false;
        while let Some(stored) = sq.queue.pop_front() {
            self.end_in_error(sq, &stored.wr(), WcStatus::WrFlushErr, 0, after);
        }
    }

    /// A revocation that has begun takes effect also if its work request is flushed or dropped;
    /// else its object would stay unusable.
    fn let_changes_end(&self, sq: &mut Sq) {
        if let Some(Wait::Quiet(mut change)) = sq.wait.take() {
            settle(&self.core.engine, &mut change);
        }
    }

    /// Forgets all that is queued, without completions (RESET, destruction).
    pub(super) fn drop_sends(&self, sq: &mut Sq) {
        self.let_changes_end(sq);
        sq.queue.clear();
        (sq.tries, sq.draining, sq.finished, sq.link) = (None, false, 0, None);
        self.send_cq.close_account(sq.account);
        sq.known = Arc::new(AtomicU32::new(0));
        sq.account = self.send_cq.open_account(sq.known.clone());
    }

    /// Closes the send queue for good.
    pub(super) fn close_sends(&self, sq: &mut Sq) {
        self.drop_sends(sq);
        self.send_cq.close_account(sq.account);
    }

    /// Tries to carry a work request out.
    #[inline]
    fn attempt(
        &self,
        sq: &mut Sq,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        after: &mut After,
    ) -> Outcome {
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
            _ if self.kind == QpKind::Ud => return self.send_datagram(sq, executor, wr, after),
            _ => {
                let Some(link) = self.reach(sq) else { return self.unreachable(executor, wr) };
                let outcome = self.exchange(&link.qp, executor, wr, after);
                sq.link = Some(link);
                return outcome;
            }
        };
        match change {
            Ok(mut change) => match engine.finish(&mut change) {
                Progress::Quiet => Outcome::Done(0),
                Progress::Pending => Outcome::Pending(Box::new(change)),
            },
            Err(refusal) => self.not_managed(wr, refusal),
        }
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
        self.find_peer(sq)
    }

    #[cold]
    fn find_peer(&self, sq: &Sq) -> Option<Link> {
        let qp = find_qp(sq.attr.ah?.gid, sq.attr.dest_qp_num)?;
        let rq = lock(&qp.rq);
        let view = qp.gate.view();
        let ours = rq.peer == (self.core.options.gid, self.num) && qp.kind == self.kind;
        drop(rq);
        if !ours || !view.receives() {
            return None;
        }
        if view.state() == QpState::Rtr && qp.gate.establish() {
            qp.core.events.push(AsyncEvent::CommEst(qp.handle));
        }
        Some(Link { epoch: view.epoch(), qp })
    }

    /// Nobody answers. What is wrong on this side shows all the same.
    #[cold]
    fn unreachable(&self, executor: &mut Executor, wr: &SendWr<'_>) -> Outcome {
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
    fn source<'a>(&'a self, wr: &SendWr<'a>) -> (Source<'a>, u64) {
        match wr.payload {
            Payload::Inline(bytes) => (Source::Bytes(bytes), bytes.len() as u64),
            Payload::Sges(sges) => {
                let party = self.own_memory(Want::LocalRead);
                (Source::Memory(Cursor::new(party, sges)), total(sges))
            }
        }
    }

    #[inline]
    fn own_memory(&self, want: Want) -> Party<'_> {
        Party { core: &self.core, pd: self.pd, qp: self.id, want }
    }

    fn check_source(
        &self,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        source: &Source<'_>,
        length: u64,
    ) -> Result<(), Outcome> {
        match source {
            Source::Bytes(_) => Ok(()),
            Source::Memory(cursor) => cursor
                .make_ready(executor, length)
                .map_err(|refusal| self.own_fault(wr, length, refusal)),
        }
    }

    /// This side's memory did not allow it: D-LOC.
    #[cold]
    fn own_fault(&self, wr: &SendWr<'_>, length: u64, refusal: Refusal) -> Outcome {
        let words = Words { what: post::name(&wr.op), length, remote: None };
        let vendor_err = self.core.refuse(self.num, &words, RefusedBy::Access(refusal));
        Outcome::Failed { status: refusal.local_status(), vendor_err }
    }

    /// One request to the peer and its answer.
    #[inline]
    fn exchange(
        &self,
        peer: &Qp,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        after: &mut After,
    ) -> Outcome {
        if let (SendOp::Write(remote), Payload::Sges(&[sge])) = (wr.op, wr.payload)
            && (1..=memory::CHUNK).contains(&u64::from(sge.length))
            && peer.gate.view().allows(Want::RemoteWrite)
        {
            let source = Access {
                key: sge.lkey.0,
                pd: self.pd,
                qp: self.id,
                address: sge.address,
                length: u64::from(sge.length),
                want: Want::LocalRead,
            };
            return match peer.write_chunk(executor, &self.core, &source, remote, after) {
                Answer::Ack => Outcome::Done(0),
                answer => self.answered(peer, wr, source.length, answer),
            };
        }
        let ask = match wr.op {
            SendOp::Write(remote) => Ask::Write { remote, imm: None },
            SendOp::WriteImm(remote, imm) => Ask::Write { remote, imm: Some(imm) },
            SendOp::SendImm(imm) => Ask::Send { imm: Some(imm), invalidate: None },
            SendOp::SendInv(key) => Ask::Send { imm: None, invalidate: Some(key.0) },
            SendOp::Read(remote) => return self.read(peer, executor, wr, remote, after),
            SendOp::FetchAdd { remote, add } => {
                let operation = Atomic::FetchAdd { add };
                return self.atomic(peer, executor, wr, remote, operation, after);
            }
            SendOp::CompareSwap { remote, compare, swap } => {
                let operation = Atomic::CompareSwap { compare, swap };
                return self.atomic(peer, executor, wr, remote, operation, after);
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
        let mut request = Request { ask, length, source, solicited, datagram: None };
        match peer.handle_request(executor, &mut request, after) {
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
        let status = match nak.code {
            NakCode::InvalidRequest => WcStatus::RemInvReqErr,
            NakCode::RemoteAccess => WcStatus::RemAccessErr,
            NakCode::RemoteOperation => WcStatus::RemOpErr,
        };
        let vendor_err = match nak.why {
            Some(why) if !Arc::ptr_eq(&self.core, &peer.core) => {
                let words = Words { what: post::name(&wr.op), length, remote: remote(&wr.op) };
                self.core.refuse(peer.num, &words, why)
            }
            _ => nak.number,
        };
        Outcome::Failed { status, vendor_err }
    }

    fn read(
        &self,
        peer: &Qp,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        remote: RemoteAddr,
        after: &mut After,
    ) -> Outcome {
        let Payload::Sges(sges) = wr.payload else { return Outcome::Done(0) };
        let length = total(sges);
        let mut landing = Cursor::new(self.own_memory(Want::LocalWrite), sges);
        match peer.handle_read(executor, remote, length, &mut landing, after) {
            Ok(()) => Outcome::Done(length as u32),
            Err(Undone::Landing(refusal)) => self.own_fault(wr, length, refusal),
            Err(Undone::Nak(nak)) => self.refused(peer, wr, length, &nak),
        }
    }

    fn atomic(
        &self,
        peer: &Qp,
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
        match peer.handle_atomic(executor, remote, operation, after) {
            Ok(old) => {
                let old = old.to_ne_bytes();
                let mut landing = Cursor::new(self.own_memory(Want::LocalWrite), sges);
                match memory::transfer(executor, &mut Source::Bytes(&old), &mut landing, 8) {
                    Ok(()) => Outcome::Done(8),
                    Err(Failed::Source(refusal) | Failed::Target(refusal)) => {
                        self.own_fault(wr, 8, refusal)
                    }
                }
            }
            Err(Undone::Landing(refusal)) => self.own_fault(wr, 8, refusal),
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
        if length > u64::from(crate::device::MTU) {
            return Outcome::Failed { status: WcStatus::LocLenErr, vendor_err: 0 };
        }
        if let Err(outcome) = self.check_source(executor, wr, &source, length) {
            return outcome;
        }
        let Some(peer) = find_qp(ah.gid, qp_num).filter(|peer| peer.kind == QpKind::Ud) else {
            return Outcome::Done(0);
        };
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
        let mut request = Request {
            ask: Ask::Send { imm, invalidate: None },
            length,
            source,
            solicited: wr.flags.contains(SendFlags::SOLICITED),
            datagram: Some(datagram),
        };
        match peer.handle_request(executor, &mut request, after) {
            Answer::Unsent(refusal) => self.own_fault(wr, length, refusal),
            _ => Outcome::Done(0),
        }
    }
}

#[inline]
fn total(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}

fn sends_bytes(op: &SendOp<'_>) -> bool {
    !matches!(op, SendOp::Read(_) | SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. })
}

fn remote(op: &SendOp<'_>) -> Option<RemoteAddr> {
    match *op {
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) | SendOp::Read(remote) => Some(remote),
        SendOp::FetchAdd { remote, .. } | SendOp::CompareSwap { remote, .. } => Some(remote),
        _ => None,
    }
}

#[inline]
fn opcode(op: &SendOp<'_>) -> WcOpcode {
    match op {
        SendOp::Write(_) | SendOp::WriteImm(..) => WcOpcode::RdmaWrite,
        SendOp::Read(_) => WcOpcode::RdmaRead,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
        SendOp::CompareSwap { .. } => WcOpcode::CompSwap,
        SendOp::BindMw(_) | SendOp::BindMw1(_) => WcOpcode::BindMw,
        SendOp::LocalInv(_) => WcOpcode::LocalInv,
        SendOp::RegMr(_) => WcOpcode::RegMr,
        _ => WcOpcode::Send,
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
