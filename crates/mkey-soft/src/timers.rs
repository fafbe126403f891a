//! Timers: driven by the program's own posts and polls, and by the thread of the process
//! ([`crate::driver`]).

use crate::clock::Clock;
use crate::core::Core;
use crate::driver::Driver;
use crate::qp::Qp;
use crate::sync::{Turns, lock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

const NEVER: u64 = u64::MAX;
/// Of so many calls of [`Timers::fire_now_and_then`] one looks at the clock.
const CALLS: u32 = 16;

/// The deadlines of a device.
#[derive(Debug)]
pub(crate) struct Timers {
    clock: Arc<dyn Clock>,
    /// The earliest deadline in nanoseconds, for a look without the lock.
    next: AtomicU64,
    turns: Turns,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By time and the queue pair's serial number.
    due: BTreeMap<(u64, u32), Weak<Qp>>,
    closed: bool,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER - 1).min(NEVER - 1)
}

impl Timers {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            next: AtomicU64::new(NEVER),
            turns: Turns::default(),
            state: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Has the queue pair look at its work at `when`.
    pub(crate) fn set(&self, when: Duration, qp: &Qp, core: &Arc<Core>) {
        let mut state = lock(&self.state);
        state.due.insert((nanos(when), qp.id.0), qp.weak());
        self.refresh(&state);
        if self.clock.is_virtual() || state.closed {
            return;
        }
        drop(state);
        // Without a thread, timers fire late: at the program's next post or poll.
        if let Some(driver) = Driver::get() {
            driver.join(core);
            driver.hurry(when.saturating_sub(self.now()));
        }
    }

    fn refresh(&self, state: &State) {
        let next = state.due.first_key_value().map_or(NEVER, |(&(when, _), _)| when);
        self.next.store(next, Ordering::Release);
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Duration> {
        let next = self.next.load(Ordering::Acquire);
        (next != NEVER).then(|| Duration::from_nanos(next))
    }

    /// Fires what is due, from a thread that calls this again soon: the clock is not looked at each time.
    /// A thread that waits for deadlines is woken by each, whoever polls.
    #[inline(always)]
    pub(crate) fn fire_now_and_then(&self) {
        if self.next.load(Ordering::Relaxed) != NEVER
            && (self.turns.has_turn(CALLS) || self.clock.is_virtual())
        {
            self.fire(self.now());
        }
    }

    /// Fires what is due by `now`.
    pub(crate) fn fire(&self, now: Duration) {
        let now_nanos = nanos(now);
        if self.next.load(Ordering::Acquire) > now_nanos {
            return;
        }
        // Each only once per call, so that work which is due again at once does not keep us here.
        let mut state = lock(&self.state);
        let mut fired = Vec::new();
        while let Some(entry) = state.due.first_entry() {
            if entry.key().0 > now_nanos {
                break;
            }
            fired.push(entry.remove());
        }
        self.refresh(&state);
        drop(state);
        for qp in fired {
            if let Some(qp) = qp.upgrade() {
                qp.on_timer(now);
            }
        }
    }

    /// Ends it: nothing fires any more.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.due.clear();
        self.refresh(&state);
    }
}
