//! How the two ends of a connection meet, again and again.

use crate::watch::Seen;
use mkey::Endpoint;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where two threads meet to connect. Each connection is a round.
#[derive(Default)]
pub struct Link {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The latest round that somebody wants.
    wanted: u64,
    offers: [Option<(u64, Endpoint)>; 2],
    ready: [u64; 2],
    closed: bool,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Somebody wants another round.
    Again,
    /// The other one has left.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Server = 0,
    Client = 1,
}

impl End {
    fn other(self) -> usize {
        1 - self as usize
    }
}

impl Link {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The round that is wanted.
    pub fn wanted(&self) -> u64 {
        self.state().wanted
    }

    /// The connection of `round` is no good.
    pub fn broken(&self, round: u64) {
        let mut state = self.state();
        state.wanted = state.wanted.max(round + 1);
        self.changed.notify_all();
    }

    /// One end leaves for good.
    pub fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Offers an endpoint; the other's.
    pub fn offer(
        &self,
        end: End,
        round: u64,
        endpoint: Endpoint,
        seen: &Seen,
    ) -> Result<Endpoint, Missed> {
        self.state().offers[end as usize] = Some((round, endpoint));
        seen.step("waiting for the other end's endpoint");
        self.wait(round, |state| {
            state.offers[end.other()].filter(|(theirs, _)| *theirs == round).map(|(_, at)| at)
        })
    }

    /// This end is connected; returns when the other is.
    pub fn ready(&self, end: End, round: u64, seen: &Seen) -> Result<(), Missed> {
        self.state().ready[end as usize] = round;
        seen.step("waiting for the other end to be connected");
        self.wait(round, |state| (state.ready[end.other()] == round).then_some(()))
    }

    fn wait<T>(&self, round: u64, ready: impl Fn(&State) -> Option<T>) -> Result<T, Missed> {
        self.changed.notify_all();
        let mut state = self.state();
        loop {
            if let Some(ready) = ready(&state) {
                return Ok(ready);
            }
            if state.wanted > round {
                return Err(Missed::Again);
            }
            if state.closed {
                return Err(Missed::Closed);
            }
            let waited = self.changed.wait_timeout(state, Duration::from_secs(1));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
