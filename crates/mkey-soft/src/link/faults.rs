//! A link made worse on purpose: packets that a device sends are lost, doubled, reordered, delayed
//! and damaged, as a seed decides.

mod settings;

pub use settings::{Faults, FaultsError};

use super::{Envelope, Fill, Outbound, Path, Unsent};
use crate::clock::Clock;
use crate::driver::Driver;
use crate::payload::{Bytes, Room};
use crate::sync::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A packet that is to be late is sent after the next one of its device, or after this time.
const LATE: Duration = Duration::from_millis(1);
const NEVER: u64 = u64::MAX;

/// The faults of one device.
#[derive(Debug)]
pub(crate) struct Weather {
    settings: Faults,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// When the next packet that is kept is due, in nanoseconds.
    due: AtomicU64,
}

#[derive(Debug)]
struct State {
    dice: Dice,
    /// By the time that they are due.
    kept: VecDeque<Kept>,
    /// Packets that are to be sent after the next one.
    late: Vec<Kept>,
}

/// A packet that is sent later.
#[derive(Debug)]
struct Kept {
    due: Duration,
    path: Arc<dyn Path>,
    packet: Outbound,
    payload: Vec<u8>,
}

/// What happens to one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fate {
    lost: bool,
    doubled: bool,
    late: bool,
    /// The bit that is turned over.
    damage: Option<u32>,
}

/// Pseudo-random numbers that are the same everywhere (SplitMix64).
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn falls(&mut self, per_million: u32) -> bool {
        self.next() % 1_000_000 < u64::from(per_million)
    }

    /// The same number of throws for each packet, so that one setting does not change what another
    /// does.
    fn fate(&mut self, settings: &Faults) -> Fate {
        let (lost, doubled) = (self.falls(settings.loss), self.falls(settings.duplication));
        let (late, damaged) = (self.falls(settings.reordering), self.falls(settings.corruption));
        let bit = self.next() as u32;
        Fate { lost, doubled, late, damage: damaged.then_some(bit) }
    }
}

impl Weather {
    pub(crate) fn new(settings: Faults, clock: Arc<dyn Clock>) -> Arc<Self> {
        let dice = Dice(settings.seed);
        let state = State { dice, kept: VecDeque::new(), late: Vec::new() };
        let due = AtomicU64::new(NEVER);
        Arc::new(Self { settings, clock, state: Mutex::new(state), due })
    }

    /// The same path in this weather.
    pub(crate) fn over(self: &Arc<Self>, path: Arc<dyn Path>) -> Arc<dyn Path> {
        Arc::new(Weathered { weather: self.clone(), path })
    }

    /// When there is something to send that was kept.
    pub(crate) fn next(&self) -> Option<Duration> {
        let due = self.due.load(Ordering::Acquire);
        (due != NEVER).then(|| Duration::from_nanos(due))
    }

    /// Sends what was kept until now; whether there was any.
    pub(crate) fn release(&self, now: Duration) -> bool {
        if self.next().is_none_or(|due| due > now) {
            return false;
        }
        let mut state = lock(&self.state);
        let late = std::mem::take(&mut state.late);
        let (over, later): (Vec<_>, Vec<_>) = late.into_iter().partition(|kept| kept.due <= now);
        state.late = later;
        state.kept.extend(over);
        let mut any = false;
        while let Some(kept) = state.kept.pop_front_if(|kept| kept.due <= now) {
            if kept.send() == Err(Unsent::Full) {
                state.kept.push_front(Kept { due: now + LATE, ..kept });
                break;
            }
            any = true;
        }
        self.note(&state);
        any
    }

    fn note(&self, state: &State) {
        let due = state.kept.iter().chain(&state.late).map(|kept| kept.due).min();
        let nanos = due.map_or(NEVER, |due| u64::try_from(due.as_nanos()).unwrap_or(NEVER - 1));
        self.due.store(nanos, Ordering::Release);
        if let Some(due) = due.filter(|_| !self.clock.is_virtual())
            && let Some(driver) = Driver::get()
        {
            driver.hurry(due.saturating_sub(self.clock.now()));
        }
    }
}

impl Kept {
    fn send(&self) -> Result<(), Unsent> {
        let sent = self.path.send(&self.packet, &mut |mut room: Room<'_>| {
            room.put(Bytes::of(&self.payload));
            true
        });
        self.path.flush();
        sent
    }
}

/// A path in bad weather.
#[derive(Debug)]
struct Weathered {
    weather: Arc<Weather>,
    path: Arc<dyn Path>,
}

impl Path for Weathered {
    fn mtu(&self) -> Option<u32> {
        self.path.mtu()
    }

    fn window(&self) -> u32 {
        self.path.window()
    }

    fn send(&self, packet: &Outbound, fill: &mut Fill<'_>) -> Result<(), Unsent> {
        let mut payload = vec![0; packet.length];
        if packet.length > 0 && !fill(Room::of(&mut payload)) {
            return Err(Unsent::Unfilled);
        }
        let mut state = lock(&self.weather.state);
        let fate = state.dice.fate(&self.weather.settings);
        if fate.lost {
            return Ok(());
        }
        let now = self.weather.clock.now();
        let delay = self.weather.settings.delay;
        let packet = Outbound { damage: fate.damage, ..*packet };
        let due = now.saturating_add(delay);
        let kept = Kept { due, path: self.path.clone(), packet, payload };
        if fate.late {
            state.late.push(Kept { due: due.saturating_add(LATE), ..kept });
            self.weather.note(&state);
            return Ok(());
        }
        // Those that were to be late are sent after it.
        let overtaken = std::mem::take(&mut state.late);
        let copies = if fate.doubled { 2 } else { 1 };
        let mut queue = Vec::with_capacity(copies + overtaken.len());
        if fate.doubled {
            queue.push(Kept {
                due,
                path: self.path.clone(),
                packet,
                payload: kept.payload.clone(),
            });
        }
        queue.push(kept);
        queue.extend(overtaken.into_iter().map(|kept| Kept { due, ..kept }));
        for kept in queue {
            // What finds no room waits with what is delayed.
            if !delay.is_zero() || !state.kept.is_empty() || kept.send() == Err(Unsent::Full) {
                state.kept.push_back(kept);
            }
        }
        self.weather.note(&state);
        Ok(())
    }

    fn flush(&self) {
        self.path.flush();
    }

    fn envelope(&self, envelope: &Envelope) -> Envelope {
        self.path.envelope(envelope)
    }
}

#[cfg(test)]
mod tests;
