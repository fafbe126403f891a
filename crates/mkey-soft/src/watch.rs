//! Unmap, discard and move events: how a device learns that the program has taken registered pages
//! away.
//!
//! One sink of the process's watcher serves all devices. It may neither allocate nor wait for others
//! who do, so it only notes the event; a thread of its own marks the pages in the engines. The
//! accesses of all engines are paused, and those running drained, before an event is read, and go
//! on when its pages are marked: whatever the thread that unmapped does next finds no access on its
//! way.

use crate::core::{Core, executors};
use crate::drain::drain_all;
use crate::sync::lock;
use mkey_core::address::{HostAddr, HostRange};
use mkey_core::refusal::DetachCause;
use mkey_os::events::{Event, EventKind, Sink, Unavailable, WatchError, WatchGuard, Watcher};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};

/// Events noted and not yet marked; more than that are taken together.
const NOTED: usize = 1 << 14;

/// The events of the process.
#[derive(Debug)]
pub(crate) struct Watch {
    watcher: &'static Watcher,
    notes: &'static Notes,
}

/// What the watcher's thread leaves for the marking thread.
#[derive(Debug)]
struct Notes {
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

/// The devices' ear, opened by the first that asks.
pub(crate) fn watch() -> Result<&'static Watch, &'static Unavailable> {
    static WATCH: OnceLock<Result<Watch, Unavailable>> = OnceLock::new();
    WATCH.get_or_init(Watch::start).as_ref()
}

impl Watch {
    fn start() -> Result<Self, Unavailable> {
        let watcher = mkey_os::events::process().map_err(|error| *error)?;
        let ring = Ring { events: vec![NOTHING; NOTED].into_boxed_slice(), first: 0, len: 0 };
        // Lives as long as the watcher, which is as long as the process.
        let notes: &'static Notes = Box::leak(Box::new(Notes {
            ring: Mutex::new(ring),
            noted: Condvar::new(),
            devices: Mutex::default(),
        }));
        // A forked child whose parent has started the watcher hears nothing.
        if watcher.is_here() {
            // The thread comes first: without it every event would stop all accesses for ever.
            let thread = mkey_os::quiet_thread::spawn("mkey-soft marks", || notes.mark_all());
            thread.map_err(|error| Unavailable {
                source: mkey_os::error::OsError {
                    call: "clone",
                    errno: mkey_os::error::Errno::from_io_error(&error)
                        .unwrap_or(mkey_os::error::Errno::AGAIN),
                },
            })?;
            watcher.add_sink(notes);
        }
        Ok(Self { watcher, notes })
    }

    /// Has a device's pages marked from now on.
    pub(crate) fn join(&self, core: &Arc<Core>) {
        // In a forked child there are no events, and the parent's threads may hold the lock for
        // ever.
        if !self.watcher.is_here() {
            return;
        }
        let mut devices = lock(&self.notes.devices);
        devices.retain(|device| device.strong_count() > 0);
        devices.push(Arc::downgrade(core));
    }

    /// Watches the mappings of a range. On return, what was at the place before is marked.
    pub(crate) fn over(&self, range: HostRange) -> Result<WatchGuard, WatchError> {
        let start = range.start.0 as usize;
        let guard = self.watcher.watch(start..start.saturating_add(range.len as usize));
        marked();
        guard
    }
}

/// Waits until all changes that have begun are marked, as whoever has just mapped memory may have
/// got the place of what went.
pub(crate) fn settled(core: &Core) {
    if let Some(watch) = core.watch.get() {
        watch.watcher.wait_for_changes();
    }
    marked();
}

/// Waits until all events that were read before are marked: without any, costs one load.
#[inline]
pub(crate) fn marked() {
    while executors().paused() {
        std::thread::yield_now();
    }
}

impl Sink for Notes {
    fn before_read(&self) {
        executors().pause();
        drain_all();
    }

    fn event(&self, event: &Event) {
        self.note(event);
    }

    fn after_read(&self) {
        executors().resume();
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
        if lock(&self.ring).push(range, cause) {
            // Until the pages are marked.
            executors().pause();
        }
        self.noted.notify_one();
    }

    fn mark_all(&self) {
        // Not to grow under the ring's lock, for which the watcher's thread waits: see the module.
        let mut events = Vec::with_capacity(NOTED);
        loop {
            let mut ring = lock(&self.ring);
            while ring.len == 0 {
                ring = self.noted.wait(ring).unwrap_or_else(PoisonError::into_inner);
            }
            // All at once: searching the tables takes long, whatever the number of events.
            events.extend(std::iter::from_fn(|| ring.pop()));
            drop(ring);
            let devices = lock(&self.devices).clone();
            for core in devices.iter().filter_map(Weak::upgrade) {
                mark(&core, &events);
            }
            events.drain(..).for_each(|_| executors().resume());
        }
    }
}

fn mark(core: &Core, events: &[(HostRange, DetachCause)]) {
    let met = core.engine.detach_all(events, core.age());
    if met > 0
        && let Some(listener) = &core.options.listener
    {
        for &(range, cause) in events {
            listener.detached(range, cause);
        }
    }
    for (range, _) in events {
        let start = range.start.0 as usize;
        core.registrations.pinner.detach(start..start.saturating_add(range.len as usize));
    }
}

impl Ring {
    /// Adds an event; false if it was taken together with the last one: because they touch, or
    /// because there is no room, and then the last one covers all that lies between the two.
    fn push(&mut self, range: HostRange, cause: DetachCause) -> bool {
        let capacity = self.events.len();
        let full = self.len >= capacity;
        if let Some(last) = self.len.checked_sub(1)
            && let Some(entry) = self.events.get_mut((self.first + last) % capacity.max(1))
        {
            let start = entry.0.start.0.min(range.start.0);
            let end = (entry.0.start.0 + entry.0.len).max(range.start.0 + range.len);
            let touch = end - start <= entry.0.len + range.len && entry.1 == cause;
            if touch || full {
                entry.0 = HostRange { start: HostAddr(start), len: end - start };
                return false;
            }
        }
        if let Some(entry) = self.events.get_mut((self.first + self.len) % capacity.max(1)) {
            *entry = (range, cause);
            self.len += 1;
        }
        true
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

    fn at(start: u64, len: u64) -> HostRange {
        HostRange { start: HostAddr(start), len }
    }

    #[test]
    fn events_that_touch_are_one() {
        let mut ring = Ring { events: vec![NOTHING; 4].into(), first: 0, len: 0 };
        assert!(ring.push(at(0x2000, 0x1000), DetachCause::Discarded));
        assert!(!ring.push(at(0x3000, 0x1000), DetachCause::Discarded));
        assert!(!ring.push(at(0x1000, 0x2000), DetachCause::Discarded));
        assert!(ring.push(at(0x4000, 0x1000), DetachCause::Unmapped));
        assert!(ring.push(at(0x9000, 0x1000), DetachCause::Unmapped));
        assert_eq!(ring.pop(), Some((at(0x1000, 0x3000), DetachCause::Discarded)));
        assert_eq!(ring.pop(), Some((at(0x4000, 0x1000), DetachCause::Unmapped)));
        assert_eq!(ring.pop(), Some((at(0x9000, 0x1000), DetachCause::Unmapped)));
        assert_eq!(ring.pop(), None);
    }

    #[test]
    fn a_full_ring_widens_its_last_event() {
        let mut ring = Ring { events: vec![NOTHING; 2].into(), first: 0, len: 0 };
        assert!(ring.push(at(0x1000, 0x1000), DetachCause::Moved));
        assert!(ring.push(at(0x9000, 0x1000), DetachCause::Unmapped));
        assert!(!ring.push(at(0x5000, 0x1000), DetachCause::Discarded));
        assert_eq!(ring.pop(), Some((at(0x1000, 0x1000), DetachCause::Moved)));
        assert_eq!(ring.pop(), Some((at(0x5000, 0x5000), DetachCause::Unmapped)));
        assert_eq!(ring.pop(), None);
        assert!(ring.push(at(0x2000, 0x1000), DetachCause::Moved));
        assert_eq!(ring.pop(), Some((at(0x2000, 0x1000), DetachCause::Moved)));
    }
}
