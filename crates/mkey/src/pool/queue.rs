//! Who waits for room: first come, first served.
//!
//! Only the first may take, however small what the others want. Blocks are not handed over: the
//! first is woken when it may succeed, and takes for itself. So one that gives up, timed out or
//! dropped, has nothing to return; it leaves the queue and the next is woken.

use super::arena::Room;
use event_listener::Event;
use std::collections::VecDeque;
use std::sync::Arc;

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

struct Waiter {
    ticket: Ticket,
    room: Room,
    event: Arc<Event>,
}

/// The queue.
#[derive(Default)]
pub(super) struct Queue {
    waiters: VecDeque<Waiter>,
    next: u64,
}

impl Queue {
    /// Joins at the end. The event tells when to try again.
    pub(super) fn join(&mut self, room: Room) -> (Ticket, Arc<Event>) {
        let ticket = Ticket(self.next);
        self.next += 1;
        let event = Arc::new(Event::new());
        self.waiters.push_back(Waiter { ticket, room, event: Arc::clone(&event) });
        (ticket, event)
    }

    /// Leaves, from wherever it is.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.waiters.retain(|waiter| waiter.ticket != ticket);
    }

    /// Whether one with this ticket, or with none, may take now.
    pub(super) fn admits(&self, ticket: Option<Ticket>) -> bool {
        self.waiters.front().map(|first| first.ticket) == ticket
    }

    /// What the first wants.
    pub(super) fn first(&self) -> Option<(Room, Arc<Event>)> {
        self.waiters.front().map(|first| (first.room, Arc::clone(&first.event)))
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }
}
