//! Waiting for the accesses that run: before memory goes, and before a queue pair has ended.
//!
//! A peer's access opens its memory, which other threads can see, and then looks once more whether
//! the connection that lets it in holds ([`crate::memory`]). Who ends a connection changes the gate
//! of the queue pair and then waits for the accesses that are open: each that is not waited for comes
//! so late that it sees the change.

use crate::core::{Core, executors};
use crate::link::lease;
use crate::options::Stale;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An access that runs for so long is taken to be stopped, as by a signal handler on its thread.
/// The handler may be the one that asks, or may wait for it (a collector that stops the world):
/// then it is not waited for any longer, or both would wait for ever.
const STOPPED: Duration = Duration::from_millis(500);

/// Times that accesses were not waited for to the end.
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);

/// How many times memory went or a queue pair ended although an access was running, which may go on.
pub(crate) fn given_up() -> u64 {
    GIVEN_UP.load(Ordering::Relaxed)
}

/// Waits until the accesses of all devices that are running now have ended: whatever memory they
/// use. Allocates nothing and takes no lock.
pub(crate) fn drain_all() {
    settle_leases();
    let mut patience = Patience::new();
    if !executors().drain_while(|| patience.is_left()) {
        GIVEN_UP.fetch_add(1, Ordering::Relaxed);
    }
}

/// A peer's own copies are waited for no longer than accesses here: it may be stopped, too, and in the
/// same way wait for this process.
fn settle_leases() {
    let mut patience = Patience::new();
    if !lease::settle_within(|| patience.is_left()) {
        GIVEN_UP.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until no access to the device's memory runs that was let in by a connection which has ended
/// before this call. Not to be called with a lock held that an access may wait for.
pub(crate) fn drain_ended(core: &Core) {
    settle_leases();
    let mut running = core.engine.running();
    let mut patience = Patience::new();
    while !running.ended() {
        if !patience.is_left() {
            GIVEN_UP.fetch_add(1, Ordering::Relaxed);
            break;
        }
    }
    if core.options.stale == Stale::Nic {
        core.registrations.await_pinned();
    }
}

/// How long accesses are waited for: most have ended in microseconds.
struct Patience {
    begun: Option<Instant>,
}

impl Patience {
    fn new() -> Self {
        Self { begun: None }
    }

    /// Lets others run for a moment; whether it is worth to look again.
    fn is_left(&mut self) -> bool {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        std::thread::yield_now();
        begun.elapsed() < STOPPED
    }
}
