//! Waiting for room, the same for threads and for futures.

use super::error::PoolError;
use super::queue::Ticket;
use super::record::Idle;
use super::shared::{Need, Refused, Shared};
use event_listener::Event;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What became of a request that may wait.
pub(super) enum Next<'a> {
    /// A block at once.
    Got(Idle),
    /// A place in the queue.
    Wait(Waiting<'a>),
}

/// A place in the queue; dropping it leaves.
pub(super) struct Waiting<'a> {
    shared: &'a Shared,
    ticket: Ticket,
    event: Arc<Event>,
    need: Need,
}

impl Shared {
    /// Allocates, or joins the queue.
    pub(super) fn allocate_or_queue(&self, need: &Need) -> Result<Next<'_>, PoolError> {
        match self.acquire(need, None) {
            Ok(idle) => return Ok(Next::Got(idle)),
            Err(Refused { error, hopeless: true }) => return Err(self.failed(error)),
            Err(_) => {}
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        let (ticket, event) = state.queue.join(need.room);
        // What rests in magazines goes to who waits, and what comes back meanwhile does not rest.
        self.recall(&mut state);
        drop(state);
        Ok(Next::Wait(Waiting { shared: self, ticket, event, need: *need }))
    }
}

impl Waiting<'_> {
    /// What tells that another try may succeed. Listen before the try.
    pub(super) fn event(&self) -> &Event {
        &self.event
    }

    /// Tries; `None` if it has to wait on.
    pub(super) fn turn(&self) -> Option<Result<Idle, PoolError>> {
        let Self { shared, ticket, need, .. } = self;
        if !shared.lock().queue.admits(Some(*ticket)) {
            return None;
        }
        match shared.acquire(need, Some(*ticket)) {
            Ok(idle) => Some(Ok(idle)),
            Err(Refused { error, hopeless: true }) => Some(Err(shared.failed(error))),
            Err(_) => None,
        }
    }

    /// The error of one that waits no longer.
    pub(super) fn timed_out(&self, waited: Duration) -> PoolError {
        let shortage = self.shared.shortage(&self.shared.lock(), &self.need);
        self.shared.failed(PoolError::TimedOut { waited, shortage })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.queue.leave(self.ticket);
        let next = state.queue.first();
        if next.is_none() && !state.closed {
            self.shared.hot().recall.lower();
        }
        drop(state);
        if let Some((_, event)) = next {
            event.notify(1);
        }
    }
}
