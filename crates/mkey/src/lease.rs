//! What windows and fast registrations have in common: an object of the device whose key is made
//! valid and invalid by posted work.
//!
//! ```text
//!   idle -> prepared -> live -> ending -> over -> idle
//!              |          |        |
//!              v          +--------+--> lost: freed at the device, never used again
//!            idle
//! ```
//!
//! * Slices are kept from `prepared` until the end is confirmed: by the completion of the
//!   invalidation (R-INV-02), by a receive whose completion says that the peer invalidated the key
//!   (R-INV-12), or by the device having freed the object (R-MWU-11).
//! * Any doubt (a bind that failed, a flush, a queue pair that is gone, a wait that took too long)
//!   ends in `lost`: the object is freed, which ends its grant for certain, and only then are the
//!   slices let go. It is not used again, since work of its past may still be in some queue.
//! * An object has one handle. It is idle again when that is gone *and* its end is confirmed.
//! * A variant of a key is given out once, whether it is posted or not: after [`MOST_USES`] the
//!   object is freed and another allocated in its place, which gives it another index. The variants
//!   of an index would come round otherwise, and a peer that kept a key of long ago would find it
//!   valid.

mod handle;
mod leases;
#[cfg(all(test, not(loom)))]
mod model;

pub(crate) use handle::{Begin, Leased};
pub(crate) use leases::{Closing, Counters, Kind, Leases, Remotes, bump, count};

use crate::qp;
use crate::slice::Slice;
use crate::sync::lock;
use crate::work::{Hook, Work};
use event_listener::{Event, IntoNotification};
use mkey_core::device::{MrHandle, MwHandle};
use mkey_core::error::{Error, Reason, Result};
use mkey_core::key::Rkey;
use mkey_core::status::WcStatus;
use mkey_core::work::{SendFlags, SendOp, Sge};
use smallvec::SmallVec;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Keys that an object gives before another takes its place: of 256 variants, the one that it was
/// allocated with is never valid.
const MOST_USES: u8 = 255;

/// What a work request of the library's own is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make the key valid: bind a window, or register fast.
    Begin,
    /// Make it invalid.
    End,
}

/// How a grant or a fast registration came to its end. In each case no access by its key touches
/// the memory any more, and the slices have been let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Invalidated by this side, and a completion has confirmed it (R-INV-02).
    Revoked,
    /// Invalidated by the peer's SEND_WITH_INV (R-INV-12).
    ByPeer,
    /// Freed at the device, since the end was not confirmed: it is not used again (R-MWU-11).
    Dropped {
        /// How its own work request failed, if that is why.
        status: Option<WcStatus>,
    },
    /// Nothing was posted.
    Unused,
}

/// One object.
pub(crate) struct Lease {
    leases: Arc<Leases>,
    /// Slices of a fast mapping that are out.
    views: AtomicU32,
    /// Somebody may wait for the end.
    event: Event,
    state: Mutex<State>,
}

struct State {
    /// `None`: freed.
    object: Option<Object>,
    /// The key as the device has it, once all that was posted is done.
    key: Rkey,
    /// The key of the latest handle, and what the device had before.
    given: Rkey,
    before: Rkey,
    /// Keys given so far.
    uses: u8,
    /// Counts the objects' handles: hooks of earlier ones are known by it.
    turn: u32,
    phase: Phase,
    /// There is a handle.
    handled: bool,
    /// Somebody waits for the event.
    awaited: bool,
    /// The beginning is known to be done.
    begun: bool,
    /// The end is wanted, but the queue was full: to be posted when the beginning is known to be
    /// done.
    late: bool,
    /// The peer has invalidated the key while the end was being posted.
    by_peer: bool,
    /// The queue pair of the latest handle.
    qp: Weak<qp::Inner>,
    slices: SmallVec<[Slice; 1]>,
    /// The scatter list's room while there is no handle.
    entries: Vec<Sge>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    Window(MwHandle),
    FastMr(MrHandle),
}

#[derive(Clone, Debug)]
enum Phase {
    Idle,
    Prepared,
    Live,
    /// The invalidation is posted.
    Ending,
    /// The end is confirmed, or being forced; the slices are being let go.
    Closing,
    Over(Ended),
    /// The device would not free it: the slices stay for ever.
    Kept(Error),
}

/// Whether a work request of a lease is to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posting {
    Post,
    /// There is nothing left to do.
    Skip,
}

type Guard<'a> = MutexGuard<'a, State>;

impl Lease {
    fn new(leases: Arc<Leases>, object: Object, key: Rkey) -> Self {
        let entries = Vec::with_capacity(leases.entries());
        let mut slices = SmallVec::new();
        slices.reserve(entries.capacity());
        let state = State {
            object: Some(object),
            key,
            given: key,
            before: key,
            uses: 0,
            turn: 0,
            phase: Phase::Idle,
            handled: false,
            awaited: false,
            begun: false,
            late: false,
            by_peer: false,
            qp: Weak::new(),
            slices,
            entries,
        };
        Self { leases, views: AtomicU32::new(0), event: Event::new(), state: Mutex::new(state) }
    }

    /// A work request of this lease is about to be posted on `qp`, if this allows it. If it could
    /// not be posted: [`Lease::unposted`].
    pub(crate) fn posting(&self, hook: &Hook<'_>, qp: &qp::Inner) -> Result<Posting> {
        let mut state = lock(&self.state);
        let fail = |reason| Err(Error::new("post_send", self.leases.what(), reason));
        if state.turn != hook.turn {
            return fail(Reason::Ended { what: self.leases.what() });
        }
        if !std::ptr::eq(state.qp.as_ptr(), qp) {
            let on = "another queue pair than the one it was made for";
            return fail(Reason::NotHere { operation: self.leases.what(), on });
        }
        match (hook.step, &state.phase) {
            (Step::Begin, Phase::Prepared) => {
                state.phase = Phase::Live;
                state.key = state.given;
                bump(&self.leases.counters.begun);
                Ok(Posting::Post)
            }
            (Step::Begin, _) => fail(Reason::Ended { what: "preparation, which is posted once," }),
            (Step::End, Phase::Live) if self.views.load(Ordering::Acquire) > 0 => {
                fail(Reason::StillUsed { what: self.leases.what() })
            }
            (Step::End, Phase::Live) => {
                state.phase = Phase::Ending;
                Ok(Posting::Post)
            }
            (Step::End, Phase::Prepared) => {
                fail(Reason::NotHere { operation: "invalidation", on: "what was not posted" })
            }
            (Step::End, _) => Ok(Posting::Skip),
        }
    }

    /// It could not be posted after all.
    pub(crate) fn unposted(self: &Arc<Self>, hook: &Hook<'_>) {
        let mut state = lock(&self.state);
        match (hook.step, &state.phase) {
            (Step::Begin, Phase::Live) => {
                state.phase = Phase::Prepared;
                state.key = state.before;
                self.leases.counters.begun.fetch_sub(1, Ordering::Relaxed);
            }
            (Step::End, Phase::Ending) if state.by_peer => self.finish(state, Ended::ByPeer),
            (Step::End, Phase::Ending) => state.phase = Phase::Live,
            _ => {}
        }
    }

    /// A step's work request has completed, or was flushed. Called without any lock of the queues
    /// held.
    pub(crate) fn completed(self: &Arc<Self>, turn: u32, step: Step, status: WcStatus) {
        let mut state = lock(&self.state);
        let open = matches!(state.phase, Phase::Live | Phase::Ending);
        if state.turn != turn || !open {
            return;
        }
        match (step, status) {
            (Step::Begin, WcStatus::Success) => {
                state.begun = true;
                if state.late {
                    self.end(state);
                }
            }
            (Step::End, WcStatus::Success) => self.finish(state, Ended::Revoked),
            (_, status) => self.lose(state, Some(status)),
        }
    }

    /// The peer has invalidated `key` (SEND_WITH_INV).
    pub(crate) fn invalidated(self: &Arc<Self>, key: Rkey) {
        let mut state = lock(&self.state);
        match state.phase {
            Phase::Live if state.key == key => self.finish(state, Ended::ByPeer),
            // The posted invalidation is waited for: the object is not free before it.
            Phase::Ending if state.key == key => state.by_peer = true,
            _ => {}
        }
    }

    /// Posts the end of a live one. Where that is not possible, the device is made to free it. The
    /// caller has looked at the state under this lock: without it, the lease could end and be
    /// somebody else's meanwhile.
    fn end(self: &Arc<Self>, mut state: Guard<'_>) {
        match state.phase {
            Phase::Live if self.views.load(Ordering::Acquire) > 0 => return,
            Phase::Live => {}
            Phase::Prepared => return self.finish(state, Ended::Unused),
            _ => return,
        }
        let (key, turn) = (state.key.0, state.turn);
        let Some(qp) = state.qp.upgrade() else { return self.lose(state, None) };
        state.phase = Phase::Ending;
        drop(state);
        let hook = Hook { lease: self, step: Step::End, turn, claimed: true };
        let Err(failed) = qp.post(&[Work::own(SendOp::LocalInv(key), hook)]) else {
            // Its completion not waited for: taken out, for the tests that must notice.
            if cfg!(mkey_break_end) {
                self.finish(lock(&self.state), Ended::Revoked);
            }
            return;
        };
        let mut state = lock(&self.state);
        if state.turn != turn || !matches!(state.phase, Phase::Live) {
            return;
        }
        match failed.error.reason {
            Reason::QueueFull { .. } if !state.begun => state.late = true,
            _ => self.lose(state, None),
        }
    }

    /// The end is confirmed.
    fn finish(self: &Arc<Self>, mut state: Guard<'_>, how: Ended) {
        state.phase = Phase::Closing;
        let mut slices = std::mem::take(&mut state.slices);
        drop(state);
        // Before anybody hears of the end. Their owners may do anything meanwhile.
        slices.clear();
        match how {
            Ended::Revoked => bump(&self.leases.counters.revoked),
            Ended::ByPeer => bump(&self.leases.counters.by_peer),
            _ => {}
        }
        let mut state = lock(&self.state);
        state.slices = slices;
        state.phase = Phase::Over(how);
        self.settle(state);
    }

    /// Nobody knows, or will know in time: the device frees the object, and with it ends what it
    /// grants.
    fn lose(self: &Arc<Self>, mut state: Guard<'_>, status: Option<WcStatus>) {
        state.phase = Phase::Closing;
        let slices = std::mem::take(&mut state.slices);
        let (object, key) = (state.object.take(), state.key);
        drop(state);
        self.leases.pd().remotes().doubt(key);
        let freed = object.map_or(Ok(()), |object| self.leases.free(object, key));
        let counters = &self.leases.counters;
        bump(&counters.lost);
        if status == Some(WcStatus::WrFlushErr) {
            bump(&counters.flushed);
        }
        let what = self.leases.what();
        let phase = match freed {
            Ok(()) => {
                tracing::debug!(what, ?status, "dropped: its end was not confirmed");
                drop(slices);
                Phase::Over(Ended::Dropped { status })
            }
            Err(error) => {
                self.leases.pd().device().failed_drop(&error);
                bump(&counters.kept);
                // The peer may still have access: memory, registration and domain stay for ever.
                std::mem::forget((slices, self.leases.clone()));
                Phase::Kept(error)
            }
        };
        let kept = matches!(phase, Phase::Kept(_));
        self.leases.gone(kept);
        let mut state = lock(&self.state);
        state.phase = phase;
        self.notify(state);
    }

    /// Tells who waits; gives the object back if its end is confirmed and its handle gone.
    fn settle(self: &Arc<Self>, mut state: Guard<'_>) {
        let fit = matches!(&state.phase, Phase::Over(how) if !matches!(how, Ended::Dropped { .. }));
        if state.handled || !fit || self.views.load(Ordering::Acquire) > 0 {
            return self.notify(state);
        }
        state.turn = state.turn.wrapping_add(1);
        (state.begun, state.late, state.by_peer) = (false, false, false);
        if state.uses < MOST_USES {
            state.phase = Phase::Idle;
            drop(state);
            self.leases.put(self.clone());
        } else {
            self.renew(state);
        }
    }

    /// Those who wait have registered before they looked, under the lock, and found nothing.
    fn notify(&self, mut state: Guard<'_>) {
        let awaited = std::mem::take(&mut state.awaited);
        drop(state);
        if awaited {
            self.event.notify(usize::MAX.relaxed());
        }
    }

    /// Another object takes the place of one whose key has no variant left.
    #[cold]
    fn renew(self: &Arc<Self>, mut state: Guard<'_>) {
        state.phase = Phase::Closing;
        let (object, key) = (state.object.take(), state.key);
        drop(state);
        if let Err(error) = object.map_or(Ok(()), |object| self.leases.free(object, key)) {
            self.leases.pd().device().failed_drop(&error);
            bump(&self.leases.counters.kept);
            // It stays in its domain.
            std::mem::forget(self.leases.clone());
            return self.leases.gone(true);
        }
        match self.leases.allocate() {
            Ok((object, key)) => {
                bump(&self.leases.counters.renewed);
                let mut state = lock(&self.state);
                (state.object, state.uses) = (Some(object), 0);
                (state.key, state.given) = (key, key);
                state.phase = Phase::Idle;
                drop(state);
                self.leases.register(key, self);
                self.leases.put(self.clone());
            }
            // Nothing is left behind: who takes one next asks the device again.
            Err(error) => {
                tracing::debug!(what = self.leases.what(), %error, "not replaced");
                self.leases.gone(false);
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(object) = state.object.take()
            && let Err(error) = self.leases.free(object, state.key)
        {
            self.leases.pd().device().failed_drop(&error);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        write!(f, "{} {} ({:?})", self.leases.what(), state.key, state.phase)
    }
}

/// What lets a slice of a fast mapping keep it.
pub(crate) struct View(Arc<Lease>);

impl View {
    fn new(lease: &Arc<Lease>) -> Self {
        lease.views.fetch_add(1, Ordering::Relaxed);
        Self(lease.clone())
    }
}

impl Clone for View {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if self.0.views.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let state = lock(&self.0.state);
        if state.handled || self.0.views.load(Ordering::Acquire) > 0 {
            return;
        }
        match state.phase {
            Phase::Live => self.0.end(state),
            Phase::Over(_) => self.0.settle(state),
            _ => {}
        }
    }
}

/// The flags of a beginning: after all earlier READs and atomics (R-ORD-01), and silent unless it
/// fails (R-MW-32).
const BEGIN_FLAGS: SendFlags = SendFlags::FENCE;
