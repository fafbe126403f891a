//! Timers: driven by the program's own posts and polls, and by one sleeping thread per device that
//! is started when the first deadline is set.

use crate::clock::Clock;
use crate::core::Core;
use crate::qp::Qp;
use crate::sync::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The thread looks at what is due at once no more often than this: the program's own posts and
/// polls come first.
const PATIENCE: Duration = Duration::from_micros(50);
const NEVER: u64 = u64::MAX;

/// The deadlines of a device.
#[derive(Debug)]
pub(crate) struct Timers {
    clock: Arc<dyn Clock>,
    /// The earliest deadline in nanoseconds, for a look without the lock.
    next: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By time and the queue pair's serial number.
    due: BTreeMap<(u64, u32), Weak<Qp>>,
    running: bool,
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
            state: Mutex::default(),
            changed: Condvar::new(),
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
        if state.running {
            drop(state);
            self.changed.notify_one();
        } else {
            let weak = Arc::downgrade(core);
            let thread = mkey_os::quiet_thread::spawn("mkey-soft timers", move || run(&weak));
            // Without a thread, timers fire late: at the program's next post or poll.
            state.running = thread.is_ok();
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

    /// Whether any deadline is set.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.next.load(Ordering::Relaxed) != NEVER
    }

    /// Fires what is due by `now`.
    pub(crate) fn fire(&self, now: Duration) {
        let now_nanos = nanos(now);
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

    /// Ends the thread.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.due.clear();
        self.refresh(&state);
        drop(state);
        self.changed.notify_all();
    }

    /// Sleeps until something is due; false once closed.
    fn sleep(&self) -> bool {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return false;
            }
            state = match state.due.first_key_value() {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some((&(when, _), _)) => {
                    let left = Duration::from_nanos(when).saturating_sub(self.now());
                    let wait = left.max(PATIENCE);
                    let state = self.changed.wait_timeout(state, wait);
                    let state = state.unwrap_or_else(PoisonError::into_inner).0;
                    let now = nanos(self.now());
                    if state.due.first_key_value().is_some_and(|(&(when, _), _)| when <= now) {
                        return !state.closed;
                    }
                    state
                }
            };
        }
    }
}

fn run(core: &Weak<Core>) {
    let Some(timers) = core.upgrade().map(|core| core.timers.clone()) else { return };
    while timers.sleep() {
        timers.fire(timers.now());
    }
}
