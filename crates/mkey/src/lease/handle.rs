//! The handle of a lease: from being taken to being given back.

use super::{BEGIN_FLAGS, Ended, Lease, Phase, Step, View};
use crate::cq::Cq;
use crate::qp::{self, Qp};
use crate::slice::Slice;
use crate::sync::lock;
use crate::work::{Hook, Work};
use event_listener::{Listener, listener};
use mkey_core::address::IoAddr;
use mkey_core::error::Result;
use mkey_core::key::{Key, Rkey};
use mkey_core::rights::Rights;
use mkey_core::work::{BindMw, Completion, RegMr, SendOp, Sge};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How the key becomes valid.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begin {
    /// By binding a window of type 2 to the only slice.
    Bind(Rights),
    /// By fast registration of the slices, counted from `iova` on.
    Register { iova: IoAddr, rights: Rights },
}

/// A lease in use. Dropping it ends what it began.
pub(crate) struct Leased {
    lease: Arc<Lease>,
    turn: u32,
    begin: Begin,
    /// The key that it begins with.
    new: Key,
    old: Key,
    /// What is bound, or the scatter list.
    entries: Vec<Sge>,
    /// The peer was asked to end it, so that an invalidation of our own could come second.
    pub(crate) awaits_peer: bool,
}

impl Leased {
    /// Makes an idle lease ready. The slices are kept from now on.
    ///
    /// # Errors
    /// A slice of 4 GiB and more: one work request can not name it.
    pub(crate) fn prepare(
        lease: Arc<Lease>,
        qp: &Qp,
        slices: &[Slice],
        begin: Begin,
    ) -> Result<Self> {
        let mut state = lock(&lease.state);
        let (old, new) = (state.key.0, state.given.0.next());
        (state.given, state.before) = (Rkey(new), Rkey(old));
        state.uses += 1;
        state.phase = Phase::Prepared;
        state.handled = true;
        if !std::ptr::eq(state.qp.as_ptr(), Arc::as_ptr(&qp.inner)) {
            state.qp = Arc::downgrade(&qp.inner);
        }
        let (turn, entries) = (state.turn, std::mem::take(&mut state.entries));
        state.slices.extend(slices.iter().cloned());
        drop(state);
        let awaits_peer = false;
        let mut leased = Self { lease, turn, begin, new, old, entries, awaits_peer };
        for slice in slices {
            leased.entries.push(slice.sge()?);
        }
        Ok(leased)
    }

    /// The key that is valid once the beginning is posted.
    pub(crate) fn key(&self) -> Key {
        self.new
    }

    /// The work request that makes the key valid.
    pub(crate) fn begin(&self) -> Work<'_> {
        let op = match self.begin {
            Begin::Bind(rights) => {
                let Sge { address, length, lkey } =
                    self.entries.first().copied().unwrap_or_default();
                let (mw, new_key, length) = (Rkey(self.old), Rkey(self.new), u64::from(length));
                SendOp::BindMw(BindMw { mw, new_key, mr: lkey, address, length, rights })
            }
            Begin::Register { iova, rights } => {
                SendOp::RegMr(RegMr { key: self.new, iova, rights, entries: &self.entries })
            }
        };
        Work::own(op, self.hook(Step::Begin)).flags(BEGIN_FLAGS)
    }

    /// The work request that makes it invalid.
    pub(crate) fn end(&self) -> Work<'_> {
        Work::own(SendOp::LocalInv(self.new), self.hook(Step::End))
    }

    fn hook(&self, step: Step) -> Hook<'_> {
        Hook { lease: &self.lease, step, turn: self.turn, claimed: false }
    }

    /// Posts the end, or has the device free the object where that can not be.
    pub(crate) fn revoke(&self) {
        self.lease.end(lock(&self.lease.state));
    }

    /// Whose it is.
    pub(crate) fn pd(&self) -> crate::pd::PdTag {
        self.lease.leases.pd().tag()
    }

    /// Keeps it from being ended.
    pub(crate) fn view(&self) -> View {
        View::new(&self.lease)
    }

    /// Whether slices of it are out.
    pub(crate) fn is_viewed(&self) -> bool {
        self.lease.views.load(Ordering::Acquire) > 0
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// As [`Leased::abandon`].
    pub(crate) fn ended(&self) -> Result<Option<Ended>> {
        self.look(false)
    }

    /// How it ended, if it has; with `waiting` the event is notified when it does.
    fn look(&self, waiting: bool) -> Result<Option<Ended>> {
        let mut state = lock(&self.lease.state);
        state.awaited |= waiting;
        match &state.phase {
            Phase::Over(how) => Ok(Some(*how)),
            Phase::Kept(error) => Err(error.clone()),
            // Nothing will come of a queue pair that is gone.
            Phase::Live if gone(&state.qp) && (self.awaits_peer || self.is_window()) => {
                self.lease.lose(state, None);
                self.outcome()
            }
            _ => Ok(None),
        }
    }

    fn is_window(&self) -> bool {
        matches!(self.begin, Begin::Bind(_))
    }

    fn outcome(&self) -> Result<Option<Ended>> {
        let mut state = lock(&self.lease.state);
        state.awaited = true;
        match &state.phase {
            Phase::Over(how) => Ok(Some(*how)),
            Phase::Kept(error) => Err(error.clone()),
            _ => Ok(None),
        }
    }

    /// Has the device free the object now, unless it has ended.
    ///
    /// # Errors
    /// As the device refuses: the peer may still have access, and the slices are kept for ever.
    pub(crate) fn abandon(&self) -> Result<Ended> {
        let state = lock(&self.lease.state);
        match state.phase {
            Phase::Live | Phase::Ending => {
                super::bump(&self.lease.leases.counters.timed_out);
                self.lease.lose(state, None);
            }
            Phase::Prepared => return Ok(Ended::Unused),
            _ => drop(state),
        }
        // Another thread may be about to end it.
        loop {
            listener!(self.lease.event => listener);
            if let Some(how) = self.outcome()? {
                return Ok(how);
            }
            listener.wait();
        }
    }

    /// Waits for the end, while another thread polls; has it forced after `timeout`.
    ///
    /// # Errors
    /// As [`Leased::abandon`].
    pub(crate) fn wait(&self, timeout: Duration) -> Result<Ended> {
        let Some(end) = Instant::now().checked_add(timeout) else { return self.wait_long() };
        loop {
            listener!(self.lease.event => listener);
            if let Some(how) = self.look(true)? {
                return Ok(how);
            }
            if listener.wait_deadline(end).is_none() {
                return self.abandon();
            }
        }
    }

    fn wait_long(&self) -> Result<Ended> {
        loop {
            listener!(self.lease.event => listener);
            if let Some(how) = self.look(true)? {
                return Ok(how);
            }
            listener.wait();
        }
    }

    /// As [`Leased::wait`], polling `cq` meanwhile.
    ///
    /// # Errors
    /// As [`Leased::abandon`]; of polling.
    pub(crate) fn wait_polling(
        &self,
        cq: &Cq,
        timeout: Duration,
        mut others: impl FnMut(Completion),
    ) -> Result<Ended> {
        let end = Instant::now().checked_add(timeout);
        let mut into = [Completion::BLANK; 16];
        loop {
            if let Some(how) = self.ended()? {
                return Ok(how);
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return self.abandon();
            }
            let over = || !matches!(self.ended(), Ok(None));
            let taken = cq.wait_or(&mut into, end, &over)?;
            into.iter().take(taken).copied().for_each(&mut others);
        }
    }

    /// Waits for the end, while another task polls.
    ///
    /// # Errors
    /// As [`Leased::abandon`].
    pub(crate) async fn until_ended(&self) -> Result<Ended> {
        loop {
            let listener = self.lease.event.listen();
            if let Some(how) = self.look(true)? {
                return Ok(how);
            }
            listener.await;
        }
    }
}

fn gone(qp: &Weak<qp::Inner>) -> bool {
    qp.strong_count() == 0
}

impl Drop for Leased {
    fn drop(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        let lease = &self.lease;
        let mut state = lock(&lease.state);
        state.handled = false;
        state.entries = entries;
        match state.phase {
            Phase::Prepared => lease.finish(state, Ended::Unused),
            Phase::Live if lease.views.load(Ordering::Acquire) > 0 => {}
            Phase::Live if self.awaits_peer => lease.lose(state, None),
            Phase::Live => lease.end(state),
            Phase::Over(_) => lease.settle(state),
            Phase::Idle | Phase::Ending | Phase::Closing | Phase::Kept(_) => {}
        }
    }
}

impl fmt::Debug for Leased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}
