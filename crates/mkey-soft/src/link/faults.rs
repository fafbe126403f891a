//! A link made worse on purpose: packets that a device sends are lost, doubled, reordered, delayed
//! and damaged, as a seed decides.

mod settings;

pub use settings::{Faults, FaultsError};

use super::{Envelope, Fill, Outbound, Path, Unsent};
use crate::clock::Clock;
use crate::driver::Driver;
use crate::payload::{Bytes, Room};
use crate::sync::lock;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A packet that is to be late is sent after the next one of its device, or after this time.
const LATE: Duration = Duration::from_millis(1);
/// Bytes that a device keeps to send them later. With more on its way, a path is full.
const MOST: usize = 32 << 20;
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
    /// By the time that they are due, and in the order in which they came.
    kept: BTreeMap<(Duration, u64), Kept>,
    count: u64,
    /// Packets that are to be sent after the next one.
    late: Vec<(Duration, Kept)>,
    /// Bytes of all of them.
    bytes: usize,
}

/// A packet that is sent later.
#[derive(Debug)]
struct Kept {
    lane: Arc<Lane>,
    packet: Outbound,
    payload: Vec<u8>,
}

/// A path, on which nothing overtakes what was sent before. Its numbers change with the state locked.
#[derive(Debug)]
struct Lane {
    path: Arc<dyn Path>,
    /// Packets that are kept for it, but for those that are to be late.
    kept: AtomicUsize,
    /// When the last of them is due, in nanoseconds.
    last: AtomicU64,
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
        let state = State { dice, kept: BTreeMap::new(), count: 0, late: Vec::new(), bytes: 0 };
        let due = AtomicU64::new(NEVER);
        Arc::new(Self { settings, clock, state: Mutex::new(state), due })
    }

    /// The same path in this weather.
    pub(crate) fn over(self: &Arc<Self>, path: Arc<dyn Path>) -> Arc<dyn Path> {
        let (kept, last) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(Weathered { weather: self.clone(), lane: Arc::new(Lane { path, kept, last }) })
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
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        for (due, kept) in state.late.extract_if(.., |(due, _)| *due <= now).collect::<Vec<_>>() {
            state.keep(due, kept);
        }
        // A path that is full holds nobody up but those behind on the same path.
        let mut full = HashSet::new();
        let later = state.kept.split_off(&(now + Duration::from_nanos(1), 0));
        let mut any = false;
        for ((_, number), kept) in std::mem::replace(&mut state.kept, later) {
            let lane = Arc::as_ptr(&kept.lane);
            if full.contains(&lane) || kept.send() == Err(Unsent::Full) {
                full.insert(lane);
                kept.lane.waits_until(now + LATE);
                state.kept.insert((now + LATE, number), kept);
                continue;
            }
            kept.lane.kept.fetch_sub(1, Ordering::Relaxed);
            state.bytes = state.bytes.saturating_sub(kept.bytes());
            any = true;
        }
        if !full.is_empty() {
            // What comes after that on the same paths is not to overtake it.
            let behind =
                |_: &(Duration, u64), kept: &mut Kept| full.contains(&Arc::as_ptr(&kept.lane));
            let behind: Vec<_> = state.kept.extract_if(..(now + LATE, 0), behind).collect();
            let again = behind.into_iter().map(|((_, number), kept)| ((now + LATE, number), kept));
            state.kept.extend(again);
        }
        self.note(state);
        any
    }

    fn note(&self, state: &State) {
        let first = state.kept.first_key_value().map(|(&(due, _), _)| due);
        let due = state.late.iter().map(|&(due, _)| due).chain(first).min();
        let nanos = due.map_or(NEVER, nanos);
        self.due.store(nanos, Ordering::Release);
        if let Some(due) = due.filter(|_| !self.clock.is_virtual())
            && let Some(driver) = Driver::get()
        {
            driver.hurry(due.saturating_sub(self.clock.now()));
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER - 1)
}

impl State {
    /// Keeps a packet until it is due, or longer: until those before it on its path are.
    fn keep(&mut self, due: Duration, kept: Kept) {
        let due = match kept.lane.is_free() {
            true => due,
            false => due.max(Duration::from_nanos(kept.lane.last.load(Ordering::Relaxed))),
        };
        kept.lane.waits_until(due);
        kept.lane.kept.fetch_add(1, Ordering::Relaxed);
        self.count += 1;
        self.kept.insert((due, self.count), kept);
    }
}

impl Lane {
    /// Whether nothing is kept for it.
    fn is_free(&self) -> bool {
        self.kept.load(Ordering::Relaxed) == 0
    }

    fn waits_until(&self, due: Duration) {
        self.last.fetch_max(nanos(due), Ordering::Relaxed);
    }
}

impl Kept {
    /// What it takes up, about.
    fn bytes(&self) -> usize {
        self.payload.len() + size_of::<Self>()
    }

    fn send(&self) -> Result<(), Unsent> {
        let path = &self.lane.path;
        let sent = path.send(&self.packet, &mut |mut room: Room<'_>| {
            room.put(Bytes::of(&self.payload));
            true
        });
        path.flush();
        sent
    }
}

/// A path in bad weather.
#[derive(Debug)]
struct Weathered {
    weather: Arc<Weather>,
    lane: Arc<Lane>,
}

impl Path for Weathered {
    fn mtu(&self) -> Option<u32> {
        self.lane.path.mtu()
    }

    fn window(&self) -> u32 {
        self.lane.path.window()
    }

    fn send(&self, packet: &Outbound, fill: &mut Fill<'_>) -> Result<(), Unsent> {
        if lock(&self.weather.state).bytes >= MOST {
            return Err(Unsent::Full);
        }
        let mut payload = vec![0; packet.length];
        if packet.length > 0 && !fill(Room::of(&mut payload)) {
            return Err(Unsent::Unfilled);
        }
        let mut guard = lock(&self.weather.state);
        let state = &mut *guard;
        let fate = state.dice.fate(&self.weather.settings);
        if fate.lost {
            return Ok(());
        }
        let now = self.weather.clock.now();
        let delay = self.weather.settings.delay;
        let packet = Outbound { damage: fate.damage, ..*packet };
        let due = now.saturating_add(delay);
        let kept = Kept { lane: self.lane.clone(), packet, payload };
        if fate.late {
            state.bytes += kept.bytes();
            state.late.push((due.saturating_add(LATE), kept));
            self.weather.note(state);
            return Ok(());
        }
        // Those that were to be late are sent after it.
        let overtaken = std::mem::take(&mut state.late);
        let mut queue = Vec::with_capacity(2 + overtaken.len());
        if fate.doubled {
            let (lane, payload) = (self.lane.clone(), kept.payload.clone());
            queue.push(Kept { lane, packet, payload });
        }
        queue.push(kept);
        let own = queue.len();
        queue.extend(overtaken.into_iter().map(|(_, kept)| kept));
        for (at, kept) in queue.into_iter().enumerate() {
            // What finds no room waits with what is delayed.
            let waits =
                !delay.is_zero() || !kept.lane.is_free() || kept.send() == Err(Unsent::Full);
            match (waits, at < own) {
                (true, true) => state.bytes += kept.bytes(),
                (false, false) => state.bytes = state.bytes.saturating_sub(kept.bytes()),
                // It was not counted, or it goes on to be.
                (false, true) | (true, false) => {}
            }
            if waits {
                state.keep(due, kept);
            }
        }
        self.weather.note(state);
        Ok(())
    }

    fn mark(&self) -> u64 {
        // What is late goes out after others that were sent after it.
        u64::MAX
    }

    fn leaves_lying(&self, before: u64) -> bool {
        self.lane.path.leaves_lying(before)
    }

    fn flush(&self) {
        self.lane.path.flush();
    }

    fn envelope(&self, envelope: &Envelope) -> Envelope {
        self.lane.path.envelope(envelope)
    }
}

#[cfg(test)]
mod tests;
