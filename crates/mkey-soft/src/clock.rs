//! Where the device's time comes from.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A source of time, counted from when it was made. The state machines never read one: time is
/// handed to them.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time.
    fn now(&self) -> Duration;

    /// Whether time stands still until it is moved by hand. A device on such a clock starts no
    /// timer thread; [`SoftDevice::advance`](crate::SoftDevice::advance) fires its timers.
    fn is_virtual(&self) -> bool {
        false
    }

    /// Moves a virtual clock forward to `now`; a clock that moves by itself does nothing.
    fn advance_to(&self, now: Duration) {
        let _ = now;
    }
}

/// The monotonic clock of the system.
#[derive(Debug)]
pub struct RealClock(Instant);

impl RealClock {
    /// A clock that counts from now.
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A clock that is moved by hand. Several devices may share one.
#[derive(Debug, Default)]
pub struct VirtualClock(AtomicU64);

impl VirtualClock {
    /// A clock at zero.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn advance_to(&self, now: Duration) {
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_max(nanos, Ordering::AcqRel);
    }
}
