//! The objects of one kind in a protection domain, to be taken and given back.

use super::{Lease, Object};
use crate::pd::Pd;
use crate::sync::lock;
use event_listener::{Event, IntoNotification, Listener, listener};
use mkey_core::device::MwKind;
use mkey_core::error::{Error, Reason, Result};
use mkey_core::key::Rkey;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Indices that are remembered as doubtful: no more than rest at a device that hands the oldest out
/// first, so that a storm of forced ends does not make all that it has left doubtful.
const DOUBTS: usize = 1024;
/// How many objects are put aside at most in a search for one of another index.
const MOST_DOUBTFUL: usize = 8;

/// What kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Windows of type 2.
    Window,
    /// Fast registrations of up to so many entries.
    FastMr(u32),
}

/// The objects of one kind. Those that are idle are freed with the [`Closing`] of it.
pub(crate) struct Leases {
    pd: Pd,
    kind: Kind,
    max: u32,
    pub(super) counters: Counters,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    /// Given out last in, first out: what was used last is in the caches.
    idle: Vec<Arc<Lease>>,
    allocated: u32,
    in_use: u32,
    most_in_use: u32,
    closed: bool,
    /// Who waits, in the order in which they are served.
    waiting: VecDeque<(u64, Arc<Event>)>,
    next_ticket: u64,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) begun: AtomicU64,
    pub(crate) revoked: AtomicU64,
    pub(crate) by_peer: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) flushed: AtomicU64,
    pub(crate) kept: AtomicU64,
    pub(crate) renewed: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) exhausted: AtomicU64,
}

pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn count(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// How many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauges {
    pub(crate) allocated: u64,
    pub(crate) in_use: u64,
    pub(crate) most_in_use: u64,
}

impl Leases {
    pub(crate) fn pd(&self) -> &Pd {
        &self.pd
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What one is for, in words.
    pub(crate) fn what(&self) -> &'static str {
        match self.kind {
            Kind::Window => "grant",
            Kind::FastMr(_) => "fast registration",
        }
    }

    /// Slices of one.
    pub(super) fn entries(&self) -> usize {
        match self.kind {
            Kind::Window => 1,
            Kind::FastMr(entries) => entries as usize,
        }
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let shelf = lock(&self.shelf);
        Gauges {
            allocated: shelf.allocated.into(),
            in_use: shelf.in_use.into(),
            most_in_use: shelf.most_in_use.into(),
        }
    }

    /// Takes one, or fails at once.
    ///
    /// # Errors
    /// `Exhausted`; as the device refuses to allocate another.
    pub(crate) fn take(self: &Arc<Self>) -> Result<Arc<Lease>> {
        if let Some(lease) = self.try_take(None)? {
            return Ok(lease);
        }
        bump(&self.counters.exhausted);
        let what = match self.kind {
            Kind::Window => "pool of windows",
            Kind::FastMr(_) => "pool of fast registrations",
        };
        let reason = Reason::Exhausted { what, asked: 1, free: 0, limit: self.max.into() };
        Err(Error::new("take", self.what(), reason))
    }

    /// Takes one, in turn, as soon as there is one.
    ///
    /// # Errors
    /// `TimedOut`; as the device refuses to allocate another.
    pub(crate) fn take_within(self: &Arc<Self>, timeout: Duration) -> Result<Arc<Lease>> {
        if let Some(lease) = self.try_take(None)? {
            return Ok(lease);
        }
        let end = Instant::now().checked_add(timeout);
        let place = self.queue();
        loop {
            listener!(place.event => listener);
            if let Some(lease) = self.try_take(Some(place.ticket))? {
                return Ok(lease);
            }
            match end {
                None => listener.wait(),
                Some(end) if listener.wait_deadline(end).is_some() => {}
                Some(_) => {
                    bump(&self.counters.exhausted);
                    let reason = Reason::TimedOut { after: timeout };
                    return Err(Error::new("take", self.what(), reason));
                }
            }
        }
    }

    /// Takes one, in turn, as soon as there is one. A future that is dropped leaves the queue.
    ///
    /// # Errors
    /// As the device refuses to allocate another.
    pub(crate) async fn taken(self: &Arc<Self>) -> Result<Arc<Lease>> {
        if let Some(lease) = self.try_take(None)? {
            return Ok(lease);
        }
        let place = self.queue();
        loop {
            let listener = place.event.listen();
            if let Some(lease) = self.try_take(Some(place.ticket))? {
                return Ok(lease);
            }
            listener.await;
        }
    }

    /// Allocates until there are `count`.
    ///
    /// # Errors
    /// As the device refuses.
    pub(crate) fn prepare(self: &Arc<Self>, count: u32) -> Result<()> {
        let mut taken = Vec::new();
        for _ in 0..count.min(self.max) {
            taken.extend(self.try_take(None)?);
        }
        lock(&self.shelf).most_in_use = 0;
        taken.into_iter().for_each(|lease| self.put(lease));
        Ok(())
    }

    /// One, if it is the turn of `ticket`, or nobody waits.
    fn try_take(self: &Arc<Self>, ticket: Option<u64>) -> Result<Option<Arc<Lease>>> {
        let mut shelf = lock(&self.shelf);
        let first = shelf.waiting.front().map(|(ticket, _)| *ticket);
        if first != ticket {
            return Ok(None);
        }
        let lease = shelf.idle.pop();
        if lease.is_none() {
            if shelf.allocated >= self.max {
                return Ok(None);
            }
            shelf.allocated += 1;
        }
        if ticket.is_some() {
            shelf.waiting.pop_front();
        }
        shelf.in_use += 1;
        shelf.most_in_use = shelf.most_in_use.max(shelf.in_use);
        let next = self.next(&shelf);
        drop(shelf);
        wake(next);
        match lease {
            Some(lease) => Ok(Some(lease)),
            None => self.grow().map(Some),
        }
    }

    /// Another object, which has been counted already.
    #[cold]
    fn grow(self: &Arc<Self>) -> Result<Arc<Lease>> {
        match self.allocate() {
            Ok((object, key)) => {
                let lease = Arc::new(Lease::new(self.clone(), object, key));
                self.register(key, &lease);
                let mut shelf = lock(&self.shelf);
                // So that giving back allocates nothing.
                let room = (shelf.allocated as usize).saturating_sub(shelf.idle.len());
                shelf.idle.reserve(room);
                Ok(lease)
            }
            Err(error) => {
                self.gone(false);
                Err(error)
            }
        }
    }

    /// An idle one comes back.
    pub(super) fn put(&self, lease: Arc<Lease>) {
        let mut shelf = lock(&self.shelf);
        shelf.in_use -= 1;
        if shelf.closed {
            shelf.allocated -= 1;
            drop(shelf);
            return drop(lease);
        }
        shelf.idle.push(lease);
        let next = self.next(&shelf);
        drop(shelf);
        wake(next);
    }

    /// One that was in use is no more; `kept`: the device has it still.
    pub(super) fn gone(&self, kept: bool) {
        let mut shelf = lock(&self.shelf);
        shelf.in_use -= 1;
        if !kept {
            shelf.allocated -= 1;
        }
        let next = self.next(&shelf);
        drop(shelf);
        wake(next);
    }

    /// Who is served next, if that is possible now.
    fn next(&self, shelf: &Shelf) -> Option<Arc<Event>> {
        let room = !shelf.idle.is_empty() || shelf.allocated < self.max;
        shelf.waiting.front().filter(|_| room).map(|(_, event)| event.clone())
    }

    #[cold]
    fn queue(&self) -> Place<'_> {
        bump(&self.counters.waits);
        let event = Arc::new(Event::new());
        let mut shelf = lock(&self.shelf);
        let ticket = shelf.next_ticket;
        shelf.next_ticket += 1;
        shelf.waiting.push_back((ticket, event.clone()));
        Place { leases: self, ticket, event }
    }

    /// Another object, by an index of which no completion of long ago may speak.
    pub(super) fn allocate(&self) -> Result<(Object, Rkey)> {
        let mut doubtful = Vec::new();
        let found = loop {
            match self.allocate_any() {
                Ok((object, key))
                    if doubtful.len() < MOST_DOUBTFUL && self.pd.remotes().is_doubtful(key) =>
                {
                    doubtful.push((object, key));
                }
                // Rather one of those than none.
                Err(error) => break doubtful.pop().ok_or(error),
                made => break made,
            }
        };
        for (object, key) in doubtful {
            if let Err(error) = self.free(object, key) {
                self.pd.device().failed_drop(&error);
            }
        }
        found
    }

    fn allocate_any(&self) -> Result<(Object, Rkey)> {
        let (control, pd) = (self.pd.device().control(), self.pd.handle());
        match self.kind {
            Kind::Window => {
                let info = control.alloc_mw(pd, MwKind::Type2)?;
                Ok((Object::Window(info.handle), info.rkey))
            }
            Kind::FastMr(entries) => {
                let info = control.alloc_fast_mr(pd, entries)?;
                Ok((Object::FastMr(info.handle), info.rkey))
            }
        }
    }

    /// Has the device free one, ending what it grants (R-MWU-11, R-FR-17).
    pub(super) fn free(&self, object: Object, key: Rkey) -> Result<()> {
        self.pd.remotes().remove(key);
        let control = self.pd.device().control();
        match object {
            Object::Window(handle) => control.dealloc_mw(handle),
            Object::FastMr(handle) => control.dereg_mr(handle),
        }
    }

    /// Has the lease hear of it when a peer invalidates its key.
    pub(super) fn register(&self, key: Rkey, lease: &Arc<Lease>) {
        self.pd.remotes().insert(key, Arc::downgrade(lease));
    }
}

fn wake(event: Option<Arc<Event>>) {
    if let Some(event) = event {
        event.notify(1.additional());
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("kind", &self.kind).field("max", &self.max).finish()
    }
}

/// A place in the queue of those who wait.
struct Place<'a> {
    leases: &'a Leases,
    ticket: u64,
    event: Arc<Event>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut shelf = lock(&self.leases.shelf);
        let Some(at) = shelf.waiting.iter().position(|(ticket, _)| *ticket == self.ticket) else {
            return;
        };
        shelf.waiting.remove(at);
        let next = self.leases.next(&shelf);
        drop(shelf);
        wake(next);
    }
}

/// The owner of a set of objects: when it is dropped, those that are idle are freed, and the others
/// as they come back.
#[derive(Debug)]
pub(crate) struct Closing(Arc<Leases>);

impl Closing {
    pub(crate) fn new(pd: &Pd, kind: Kind, max: u32) -> Self {
        let (pd, counters, shelf) = (pd.clone(), Counters::default(), Mutex::default());
        Self(Arc::new(Leases { pd, kind, max, counters, shelf }))
    }

    pub(crate) fn leases(&self) -> &Arc<Leases> {
        &self.0
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let mut shelf = lock(&self.0.shelf);
        shelf.closed = true;
        let idle = std::mem::take(&mut shelf.idle);
        shelf.allocated = shelf.allocated.saturating_sub(idle.len() as u32);
        drop(shelf);
        drop(idle);
    }
}

/// The objects of a protection domain that a peer may invalidate, by the index of their key.
#[derive(Debug, Default)]
pub(crate) struct Remotes(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    leases: HashMap<u32, Weak<Lease>>,
    /// Indices of objects whose end was forced: the peer may have ended them before, and the
    /// completion that says so may be polled much later. It is not to be taken for one of another
    /// object that has the index, and with it the key, by then. The latest ones, in order.
    doubtful: VecDeque<u32>,
    /// The most that there have been at a time.
    most: usize,
}

impl Remotes {
    fn insert(&self, key: Rkey, lease: Weak<Lease>) {
        let found = &mut *lock(&self.0);
        let count = found.leases.len() + 1;
        if count > found.most {
            // Half of it stays empty, so that renewing keys never makes it grow.
            found.leases.reserve(count);
            found.most = count;
        }
        found.leases.insert(key.0.index(), lease);
    }

    fn remove(&self, key: Rkey) {
        let removed = lock(&self.0).leases.remove(&key.0.index());
        drop(removed);
    }

    /// The end of the object of this key was forced.
    pub(super) fn doubt(&self, key: Rkey) {
        let doubtful = &mut lock(&self.0).doubtful;
        if doubtful.len() >= DOUBTS {
            doubtful.pop_front();
        }
        doubtful.push_back(key.0.index());
    }

    fn is_doubtful(&self, key: Rkey) -> bool {
        lock(&self.0).doubtful.contains(&key.0.index())
    }

    pub(crate) fn find(&self, key: Rkey) -> Option<Arc<Lease>> {
        lock(&self.0).leases.get(&key.0.index())?.upgrade()
    }
}
