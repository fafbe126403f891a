//! Queues that threads wait on: asynchronous events and completion events.

use crate::object::Used;
use crate::sync::lock;
use mkey_core::device::CqHandle;
use mkey_os::count_fd::CountFd;
use mkey_os::error::OsError;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A queue of events and the threads that wait for one.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct State<T> {
    events: VecDeque<T>,
    closed: bool,
    /// Counts the events for a program that polls.
    shown: Option<Arc<CountFd>>,
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State { events: VecDeque::new(), closed: false, shown: None }),
            arrived: Condvar::new(),
        }
    }
}

/// The queue was closed while it was empty.
#[derive(Debug)]
pub(crate) struct Closed;

impl<T> EventQueue<T> {
    pub(crate) fn push(&self, event: T) {
        let mut state = lock(&self.state);
        state.events.push_back(event);
        if let Some(shown) = &state.shown {
            shown.add();
        }
        drop(state);
        self.arrived.notify_one();
    }

    /// A descriptor that counts the events, from now on. Who takes an event takes one off it first,
    /// and may find that the event was forgotten meanwhile.
    pub(crate) fn shown(&self) -> Result<Arc<CountFd>, OsError> {
        let mut state = lock(&self.state);
        if let Some(shown) = &state.shown {
            return Ok(shown.clone());
        }
        let shown = Arc::new(CountFd::new(state.events.len() as u32)?);
        state.shown = Some(shown.clone());
        Ok(shown)
    }

    /// The next event: waits at most `timeout`, for ever without one.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<Option<T>, Closed> {
        let deadline = timeout.map(|timeout| Instant::now().checked_add(timeout));
        let mut state = lock(&self.state);
        loop {
            if let Some(event) = state.events.pop_front() {
                return Ok(Some(event));
            }
            if state.closed {
                return Err(Closed);
            }
            state = match deadline {
                // Without a timeout, or one too long to be told from for ever.
                None | Some(None) => {
                    self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner)
                }
                Some(Some(deadline)) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Drops the events that `stale` picks out.
    pub(crate) fn forget(&self, stale: impl Fn(&T) -> bool) {
        let mut state = lock(&self.state);
        let before = state.events.len();
        state.events.retain(|event| !stale(event));
        let forgotten = before - state.events.len();
        if let Some(shown) = &state.shown {
            // One that is not there any more is in the hands of who is about to look for it.
            for _ in 0..forgotten {
                shown.try_take();
            }
        }
    }

    /// Wakes all who wait, for good; the descriptor goes with whoever has it still.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.shown = None;
        drop(state);
        self.arrived.notify_all();
    }
}

/// A completion channel.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    pub(crate) events: EventQueue<CqHandle>,
    /// Completion queues on it.
    users: AtomicU32,
}

impl Used for Channel {
    fn users(&self) -> &AtomicU32 {
        &self.users
    }
}
