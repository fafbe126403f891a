//! Receive queues, own and shared.

use crate::completion::Cq;
use crate::object::{PdUse, Use, Used};
use crate::sync::lock;
use crate::xrc::Xrcd;
use mkey_core::device::SrqHandle;
use mkey_core::error::{Object, Reason};
use mkey_core::refusal::PdId;
use mkey_core::work::{RecvWr, Sge};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

/// The most scatter/gather entries of one work request.
pub(crate) const MAX_SGE: usize = 32;

/// A receive work request, taken from its queue.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    count: usize,
    sges: [Sge; MAX_SGE],
}

impl Receive {
    pub(crate) fn sges(&self) -> &[Sge] {
        self.sges.get(..self.count).unwrap_or_default()
    }

    /// Bytes it has room for.
    pub(crate) fn room(&self) -> u64 {
        self.sges().iter().map(|sge| u64::from(sge.length)).sum()
    }
}

/// A ring of receive work requests.
#[derive(Debug)]
pub(crate) struct Ring {
    depth: u32,
    max_sge: u32,
    first: usize,
    len: usize,
    heads: Box<[(u64, u32)]>,
    sges: Box<[Sge]>,
}

impl Ring {
    /// A ring for `depth` work requests of up to `max_sge` entries each (at most [`MAX_SGE`]).
    pub(crate) fn new(depth: u32, max_sge: u32) -> Self {
        let (places, wide) = (depth as usize, max_sge as usize);
        Self {
            depth,
            max_sge,
            first: 0,
            len: 0,
            heads: vec![(0, 0); places].into_boxed_slice(),
            sges: vec![Sge::default(); places * wide].into_boxed_slice(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds one at the end.
    pub(crate) fn push(&mut self, wr: &RecvWr<'_>) -> Result<(), Reason> {
        if wr.sges.len() > self.max_sge as usize {
            return Err(Reason::TooManySges { given: wr.sges.len(), most: self.max_sge });
        }
        let full = Reason::QueueFull { depth: self.depth };
        if self.len >= self.depth as usize {
            return Err(full);
        }
        let place = (self.first + self.len) % self.depth as usize;
        let start = place * self.max_sge as usize;
        let (Some(head), Some(sges)) =
            (self.heads.get_mut(place), self.sges.get_mut(start..start + wr.sges.len()))
        else {
            return Err(full);
        };
        *head = (wr.wr_id, wr.sges.len() as u32);
        sges.copy_from_slice(wr.sges);
        self.len += 1;
        Ok(())
    }

    /// Takes the oldest.
    pub(crate) fn pop(&mut self) -> Option<Receive> {
        if self.len == 0 {
            return None;
        }
        let &(wr_id, count) = self.heads.get(self.first)?;
        let count = (count as usize).min(MAX_SGE);
        let start = self.first * self.max_sge as usize;
        let mut sges = [Sge::default(); MAX_SGE];
        sges.get_mut(..count)?.copy_from_slice(self.sges.get(start..start + count)?);
        self.first = (self.first + 1) % self.depth as usize;
        self.len -= 1;
        Some(Receive { wr_id, count, sges })
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        (self.first, self.len) = (0, 0);
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) handle: SrqHandle,
    /// Receives are checked in its domain, not in that of the queue pair.
    pub(crate) pd: PdId,
    /// Queue pairs that take from it.
    users: AtomicU32,
    /// Of an extended connection: what it is known by.
    pub(crate) xrc: Option<XrcHome>,
    state: Mutex<SrqState>,
}

/// What a shared receive queue of an XRC domain has of its own.
#[derive(Debug)]
pub(crate) struct XrcHome {
    /// Where completions of its receives go.
    pub(crate) cq: Arc<Cq>,
    domain: Arc<Xrcd>,
    /// End with `destroy_srq`.
    ties: Mutex<Option<(Use<Cq>, Use<Xrcd>)>>,
}

impl XrcHome {
    pub(crate) fn new(cq: Use<Cq>, domain: Use<Xrcd>) -> Self {
        Self { cq: cq.object(), domain: domain.object(), ties: Mutex::new(Some((cq, domain))) }
    }
}

#[derive(Debug)]
struct SrqState {
    ring: Ring,
    /// Falling below raises one event; 0: not armed.
    limit: u32,
    /// Membership in the domain; ends with `destroy_srq`.
    member: Option<PdUse>,
}

impl Srq {
    pub(crate) fn new(
        handle: SrqHandle,
        pd: PdUse,
        depth: u32,
        max_sge: u32,
        xrc: Option<XrcHome>,
    ) -> Arc<Self> {
        let (ring, limit, id) = (Ring::new(depth, max_sge), 0, pd.id());
        let state = Mutex::new(SrqState { ring, limit, member: Some(pd) });
        let srq = Arc::new(Self { handle, pd: id, users: AtomicU32::new(0), xrc, state });
        if let Some(home) = &srq.xrc {
            home.domain.enter(srq.number(), Arc::downgrade(&srq));
        }
        srq
    }

    /// The number by which messages name it: the handle's place, which is below 2^24.
    pub(crate) fn number(&self) -> u32 {
        self.handle.0 as u32 & 0xff_ffff
    }

    pub(crate) fn push(&self, wr: &RecvWr<'_>) -> Result<(), Reason> {
        let mut state = lock(&self.state);
        if state.member.is_none() {
            return Err(Reason::UnknownHandle { object: Object::Srq, handle: self.handle.0 });
        }
        state.ring.push(wr)
    }

    /// Ends the queue, whoever holds it still.
    pub(crate) fn retire(&self) {
        let mut state = lock(&self.state);
        state.ring.clear();
        state.member = None;
        drop(state);
        if let Some(home) = &self.xrc {
            home.domain.leave(self.number());
            lock(&home.ties).take();
        }
    }

    /// Takes the oldest; whether the queue fell below its limit by that.
    pub(crate) fn pop(&self) -> Option<(Receive, bool)> {
        let mut state = lock(&self.state);
        let receive = state.ring.pop()?;
        let below = (state.ring.len() as u64) < u64::from(state.limit);
        if below {
            state.limit = 0;
        }
        Some((receive, below))
    }

    /// Arms the limit event; whether the queue is below it already.
    pub(crate) fn arm(&self, limit: u32) -> Result<bool, Reason> {
        let mut state = lock(&self.state);
        if limit > state.ring.depth {
            return Err(Reason::Argument {
                what: "the limit of a shared receive queue",
                value: u64::from(limit),
                allowed: "at most its depth",
            });
        }
        let below = (state.ring.len() as u64) < u64::from(limit);
        state.limit = if below { 0 } else { limit };
        Ok(below)
    }
}

impl Srq {
    /// What it is armed with.
    pub(crate) fn limit(&self) -> u32 {
        lock(&self.state).limit
    }
}

impl Used for Srq {
    fn users(&self) -> &AtomicU32 {
        &self.users
    }
}
