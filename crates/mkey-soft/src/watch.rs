//! Unmap, discard and move events: how a device learns that the program has taken registered pages
//! away.
//!
//! One watcher serves all devices of the process, as a mapping can be watched once only. Its thread
//! may neither allocate nor wait, so it only notes the event; a second thread marks the pages in
//! the engines. From before an event is read until its pages are marked, [`Watch::busy`] is true,
//! and no access touches memory: whatever the thread that unmapped does next finds them marked.

use crate::core::Core;
use crate::sync::lock;
use mkey_core::address::{HostAddr, HostRange};
use mkey_core::engine::Progress;
use mkey_core::refusal::DetachCause;
use mkey_os::events::{Event, EventKind, InHand, Unavailable, WatchError, WatchGuard, Watcher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};

/// Events noted and not yet marked; more than that are taken together.
const NOTED: usize = 1024;

/// The events of the process.
#[derive(Debug)]
pub(crate) struct Watch {
    watcher: Watcher,
    in_hand: InHand,
    notes: Arc<Notes>,
}

/// What the watcher's thread leaves for the marking thread.
#[derive(Debug)]
struct Notes {
    /// Events noted and not yet marked.
    pending: AtomicU64,
    ring: Mutex<Ring>,
    noted: Condvar,
    devices: Mutex<Vec<Weak<Core>>>,
}

#[derive(Debug)]
struct Ring {
    events: Box<[(HostRange, DetachCause)]>,
    first: usize,
    len: usize,
}

const NOTHING: (HostRange, DetachCause) =
    (HostRange { start: HostAddr(0), len: 0 }, DetachCause::Unmapped);

/// The process's watcher, started by the first that asks.
pub(crate) fn watch() -> Result<&'static Watch, &'static Unavailable> {
    static WATCH: OnceLock<Result<Watch, Unavailable>> = OnceLock::new();
    WATCH.get_or_init(Watch::start).as_ref()
}

impl Watch {
    fn start() -> Result<Self, Unavailable> {
        let ring = Ring { events: vec![NOTHING; NOTED].into_boxed_slice(), first: 0, len: 0 };
        let notes = Arc::new(Notes {
            pending: AtomicU64::new(0),
            ring: Mutex::new(ring),
            noted: Condvar::new(),
            devices: Mutex::default(),
        });
        let for_sink = notes.clone();
        let watcher = Watcher::new(move |event| for_sink.note(event))?;
        let for_thread = notes.clone();
        let thread = std::thread::Builder::new().name("mkey-soft marks".to_owned());
        // Without the thread every event would stop all accesses for ever.
        thread.spawn(move || for_thread.mark_all()).map_err(|error| Unavailable {
            source: mkey_os::error::OsError {
                call: "clone",
                errno: mkey_os::error::Errno::from_io_error(&error)
                    .unwrap_or(mkey_os::error::Errno::AGAIN),
            },
        })?;
        Ok(Self { in_hand: watcher.in_hand(), watcher, notes })
    }

    /// Whether an event has been read whose pages are not marked yet.
    #[inline(always)]
    pub(crate) fn busy(&self) -> bool {
        self.in_hand.is_raised() || self.notes.pending.load(Ordering::Acquire) != 0
    }

    /// Waits until all events that were read are marked. No guard may be held.
    #[cold]
    pub(crate) fn wait(&self) {
        while self.busy() {
            std::thread::yield_now();
        }
    }

    /// Has a device's pages marked from now on.
    pub(crate) fn join(&self, core: &Arc<Core>) {
        let mut devices = lock(&self.notes.devices);
        devices.retain(|device| device.strong_count() > 0);
        devices.push(Arc::downgrade(core));
    }

    /// Watches the mappings of a range; `held`: it lies in memory that a live registration holds.
    /// On return, what was at the place before is marked.
    pub(crate) fn over(&self, range: HostRange, held: bool) -> Result<WatchGuard, WatchError> {
        let start = range.start.0 as usize;
        let range = start..start.saturating_add(range.len as usize);
        let guard = match held {
            true => self.watcher.watch_held(range),
            false => self.watcher.watch(range),
        };
        if self.busy() {
            self.wait();
        }
        guard
    }
}

impl Notes {
    /// On the watcher's thread: allocates nothing, and the ring's lock is held for moments only.
    fn note(&self, event: &Event) {
        let (start, end) = (event.range.start as u64, event.range.end as u64);
        let range = HostRange { start: HostAddr(start), len: end.saturating_sub(start) };
        let cause = match event.kind {
            EventKind::Unmapped => DetachCause::Unmapped,
            EventKind::Discarded => DetachCause::Discarded,
            EventKind::Moved { .. } => DetachCause::Moved,
        };
        self.pending.fetch_add(1, Ordering::AcqRel);
        if lock(&self.ring).push(range, cause) {
            // Taken together with another one.
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
        self.noted.notify_one();
    }

    fn mark_all(&self) {
        loop {
            let mut ring = lock(&self.ring);
            let (range, cause) = loop {
                match ring.pop() {
                    Some(event) => break event,
                    None => {
                        ring = self.noted.wait(ring).unwrap_or_else(PoisonError::into_inner);
                    }
                }
            };
            drop(ring);
            let devices = lock(&self.devices).clone();
            for core in devices.iter().filter_map(Weak::upgrade) {
                mark(&core, range, cause);
            }
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn mark(core: &Core, range: HostRange, cause: DetachCause) {
    let engine = &core.engine;
    let mut drain = engine.pause();
    while engine.drained(&mut drain) == Progress::Pending {
        std::thread::yield_now();
    }
    engine.detach(range, cause, core.age());
    let start = range.start.0 as usize;
    core.registrations.pinner.detach(start..start.saturating_add(range.len as usize));
    engine.resume();
}

impl Ring {
    /// Adds an event; true if there was no room and it was taken together with the last one, which
    /// then covers all that lies between the two.
    fn push(&mut self, range: HostRange, cause: DetachCause) -> bool {
        let capacity = self.events.len();
        let full = self.len >= capacity;
        let place = (self.first + self.len - usize::from(full)) % capacity.max(1);
        let Some(entry) = self.events.get_mut(place) else { return true };
        if full {
            let start = entry.0.start.0.min(range.start.0);
            let end = (entry.0.start.0 + entry.0.len).max(range.start.0 + range.len);
            entry.0 = HostRange { start: HostAddr(start), len: end - start };
        } else {
            *entry = (range, cause);
            self.len += 1;
        }
        full
    }

    fn pop(&mut self) -> Option<(HostRange, DetachCause)> {
        if self.len == 0 {
            return None;
        }
        let event = *self.events.get(self.first)?;
        self.first = (self.first + 1) % self.events.len().max(1);
        self.len -= 1;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_widens_its_last_event() {
        let mut ring = Ring { events: vec![NOTHING; 2].into(), first: 0, len: 0 };
        let at = |start, len| HostRange { start: HostAddr(start), len };
        assert!(!ring.push(at(0x1000, 0x1000), DetachCause::Moved));
        assert!(!ring.push(at(0x9000, 0x1000), DetachCause::Unmapped));
        assert!(ring.push(at(0x5000, 0x1000), DetachCause::Discarded));
        assert_eq!(ring.pop(), Some((at(0x1000, 0x1000), DetachCause::Moved)));
        assert_eq!(ring.pop(), Some((at(0x5000, 0x5000), DetachCause::Unmapped)));
        assert_eq!(ring.pop(), None);
        assert!(!ring.push(at(0x2000, 0x1000), DetachCause::Moved));
        assert_eq!(ring.pop(), Some((at(0x2000, 0x1000), DetachCause::Moved)));
    }
}
