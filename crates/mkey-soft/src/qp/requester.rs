//! The requester: the send queue. Work requests are executed in order, on the thread that posts
//! them where nothing stands in the way; the head of the queue waits for answers, receives and
//! revocations, all others behind it. Rules R-LOC, R-ORD, R-INV-11.

use super::exchange::{Link, Outcome};
use super::flight::{Flight, patience};
use super::post;
use super::responder::settle;
use super::stored::Stored;
use super::wait::Wait;
use super::{After, Qp};
use crate::completion::{Cq, CreditAccount, CreditOf};
use crate::core::with_executor;
use crate::protocol::Tries;
use crate::sync::lock;
use mkey_core::data_plane::PostError;
use mkey_core::engine::{Executor, Progress};
use mkey_core::error::{Error, Object, Reason};
use mkey_core::event::AsyncEvent;
use mkey_core::queue_pair::{QpAttr, QpKind, QpState};
use mkey_core::status::WcStatus;
use mkey_core::work::{Completion, SendFlags, SendWr};
use mkey_wire::timer::RnrTimer;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The send side's state.
#[derive(Debug)]
pub(crate) struct Sq {
    /// The attributes; `state` and `rights` are in the gate.
    pub(super) attr: QpAttr,
    pub(super) queue: VecDeque<Stored>,
    pub(super) wait: Option<Wait>,
    /// `None`: the head was not tried yet.
    tries: Option<Tries>,
    /// SQD was asked for; one event when the head is done.
    pub(super) draining: bool,
    /// Work requests that are done, counted on and on.
    finished: u32,
    /// Of those, how many the program knows of by its polls; the others take up slots still.
    known: Arc<AtomicU32>,
    account: CreditAccount,
    pub(super) link: Option<Link>,
    /// The peer was found in this process.
    pub(super) met: bool,
    /// The requester of packets, once the peer was found to be somewhere else.
    pub(super) flight: Option<Box<Flight>>,
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
            met: false,
            flight: None,
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
        self.wait.is_some() || self.flight.as_ref().is_some_and(|flight| flight.busy())
    }
}

impl Qp {
    /// Posts a chain to the send queue.
    #[inline]
    pub(crate) fn post_send(&self, chain: &[SendWr<'_>]) -> Result<(), PostError> {
        self.before_posting();
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
            if sq.flight.is_some() {
                self.resume(&mut sq, executor, self.core.timers.now(), &mut after);
            }
        });
        after.run();
        match failed {
            None => Ok(()),
            Some(failed) => Err(self.post_error(chain, *failed)),
        }
    }

    /// Posts a chain, or nothing of it: what can be refused is refused before the first has any effect.
    pub(crate) fn post_send_all<'a>(
        &self,
        chain: impl Iterator<Item = SendWr<'a>> + Clone,
    ) -> Result<(), PostError> {
        self.before_posting();
        let mut after = After::default();
        let mut failed = None;
        with_executor(|executor| {
            let mut sq = lock(&self.sq);
            let mut room = self.room(&sq);
            let refused = chain.clone().find_map(|wr| {
                let admitted = self.admit(executor, &wr, room);
                room = room.saturating_sub(1);
                admitted.err().map(|reason| (wr, reason))
            });
            if let Some((wr, reason)) = refused {
                failed = Some(self.post_error(&[wr], (0, reason)));
                return;
            }
            for wr in chain {
                self.take_send(&mut sq, executor, self.state(), &wr, &mut after);
            }
            if sq.flight.is_some() {
                self.resume(&mut sq, executor, self.core.timers.now(), &mut after);
            }
        });
        after.run();
        failed.map_or(Ok(()), Err)
    }

    /// A peer hears the answer to what it has asked before what the program does about it.
    #[inline]
    fn before_posting(&self) {
        self.core.pump_now_and_then();
        if self.core.port.is_some() && self.owes() {
            self.last_replies();
        }
    }

    /// Work requests that the send queue takes now.
    #[inline]
    fn room(&self, sq: &Sq) -> u32 {
        self.limits.max_send_wr.saturating_sub(sq.taken())
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
        let state = self.admit(executor, wr, self.room(sq))?;
        self.take_send(sq, executor, state, wr, after);
        Ok(())
    }

    /// Looks whether a work request may be posted to a queue with so much room; the queue pair's
    /// state.
    #[inline]
    fn admit(
        &self,
        executor: &mut Executor,
        wr: &SendWr<'_>,
        room: u32,
    ) -> Result<QpState, Reason> {
        let view = self.gate.view();
        let state = view.state();
        if view.destroyed() {
            return Err(Reason::UnknownHandle { object: Object::Qp, handle: self.handle.0 });
        }
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(Reason::QpState { state });
        }
        self.check_form(executor, wr)?;
        if room == 0 {
            return Err(Reason::QueueFull { depth: self.limits.max_send_wr });
        }
        Ok(state)
    }

    /// Takes a work request that may be posted.
    #[inline]
    fn take_send(
        &self,
        sq: &mut Sq,
        executor: &mut Executor,
        state: QpState,
        wr: &SendWr<'_>,
        after: &mut After,
    ) {
        if state == QpState::Rts && sq.queue.is_empty() && sq.flight.is_none() {
            match self.attempt(sq, executor, wr, after) {
                Outcome::Done(bytes) => self.succeed(sq, wr, bytes, after),
                outcome => self.not_done(sq, outcome, Err(wr), after),
            }
        } else if state == QpState::Rts
            && sq.queue.is_empty()
            && let Some(flight) = &sq.flight
            && self.write_direct(flight, executor, wr)
        {
            self.succeed(sq, wr, 0, after);
        } else {
            sq.queue.push_back(Stored::new(wr));
            if let Some(flight) = &mut sq.flight {
                flight.push(wr);
            }
            self.flush_sends(sq, after);
        }
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
        if let Outcome::Path(path) = outcome {
            sq.queue.push_front(head.unwrap_or_else(Stored::new));
            return self.take_off(sq, path);
        }
        let wr = match &head {
            Ok(stored) => stored.wr(),
            Err(wr) => **wr,
        };
        match self.wait_for(sq, outcome, now) {
            Ok(wait) => {
                sq.queue.push_front(head.unwrap_or_else(Stored::new));
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
        let patience = patience(&sq.attr);
        let tries = sq.tries.get_or_insert(Tries::all(&patience));
        let (wait, until) = match outcome {
            Outcome::Failed { status, vendor_err } => return Err((status, vendor_err)),
            Outcome::NoAnswer { resend } => {
                let until = patience.timeout.map(|time| now.saturating_add(time));
                (Wait::Answer { until, resend }, until)
            }
            Outcome::NotReady(code) => {
                if tries.receiver(&patience).is_err() {
                    return Err((WcStatus::RnrRetryExcErr, 0));
                }
                let until = now.saturating_add(RnrTimer::from_code(code).time());
                (Wait::Receiver { until }, Some(until))
            }
            Outcome::Pending(change) => (Wait::Quiet(change), Some(now)),
            Outcome::NoRoom => {
                self.wait_for_room();
                (Wait::Room, None)
            }
            // Not a reason to wait.
            Outcome::Done(_) | Outcome::Path(_) => return Err((WcStatus::Success, 0)),
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
        while sq.flight.is_none() {
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
                    let tries = sq.tries.get_or_insert(Tries::all(&patience(&sq.attr)));
                    if tries.answer().is_err() {
                        let (status, vendor_err) = (WcStatus::RetryExcErr, 0);
                        done = Some(Outcome::Failed { status, vendor_err });
                    }
                    if done.is_none() && !resend {
                        done = Some(Outcome::NoAnswer { resend });
                    }
                }
                Some(Wait::Receiver { until }) if until > now => {
                    sq.wait = Some(Wait::Receiver { until });
                    return;
                }
                Some(Wait::Receiver { .. } | Wait::Room) => {}
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
        self.fly(sq, executor, now, after);
        if sq.draining && self.state() == QpState::Sqd && !sq.busy() {
            sq.draining = false;
            self.core.events.push(AsyncEvent::SqDrained(self.handle));
        }
    }

    /// A work request is done.
    #[inline]
    pub(super) fn succeed(&self, sq: &mut Sq, wr: &SendWr<'_>, bytes: u32, after: &mut After) {
        sq.tries = None;
        sq.finished = sq.finished.wrapping_add(1);
        if self.limits.signal_all || wr.flags.contains(SendFlags::SIGNALED) {
            let completion = Completion {
                byte_len: bytes,
                ..self.bare(wr.wr_id, WcStatus::Success, wr.op.opcode())
            };
            self.complete_send(sq, &completion, after);
        }
    }

    /// Adds a completion of the send queue, which gives its slots back when it is polled.
    #[inline]
    fn complete_send(&self, sq: &Sq, completion: &Completion, after: &mut After) {
        let credit = CreditOf { account: sq.account, done: sq.finished };
        if self.send_cq.push(completion, Some(credit), false).is_err() {
            self.overran(&self.send_cq, after);
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
        let completion = Completion { vendor_err, ..self.bare(wr.wr_id, status, wr.op.opcode()) };
        self.complete_send(sq, &completion, after);
    }

    /// The head has failed, and the send queue with it: an RC queue pair goes to ERR, another one
    /// to SQE.
    pub(super) fn give_up(
        &self,
        sq: &mut Sq,
        wr: &SendWr<'_>,
        status: WcStatus,
        vendor_err: u32,
        after: &mut After,
    ) {
        if status == WcStatus::RetryExcErr {
            self.tell_unanswered(sq);
        }
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

    #[cold]
    fn tell_unanswered(&self, sq: &Sq) {
        let (Some(listener), Some(ah)) = (&self.core.options.listener, sq.attr.ah) else { return };
        let (gid, peer) = (ah.gid, sq.attr.dest_qp_num);
        let why = match &self.core.port {
            Some(port) if !sq.met => port.why_no_answer(gid, peer),
            _ => "it is in this process, and not connected with this one, or was destroyed"
                .to_owned(),
        };
        listener.unanswered(self.num, gid, peer, &why);
    }

    /// Ends all that is queued, if the queue pair is in an error state.
    pub(super) fn flush_sends(&self, sq: &mut Sq, after: &mut After) {
        if !matches!(self.state(), QpState::Err | QpState::Sqe) {
            return;
        }
        self.let_changes_end(sq);
        sq.draining = false;
        self.land_all(sq);
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
        (sq.met, sq.flight) = (false, None);
        self.send_cq.close_account(sq.account);
        sq.known = Arc::new(AtomicU32::new(0));
        sq.account = self.send_cq.open_account(sq.known.clone());
    }

    /// Closes the send queue for good.
    pub(super) fn close_sends(&self, sq: &mut Sq) {
        self.drop_sends(sq);
        self.send_cq.close_account(sq.account);
    }
}
