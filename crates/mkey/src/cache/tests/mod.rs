//! Tests of the cache against a registrar that does as it is told.

mod invalidation;
mod limits;
mod lines;
mod model;
mod requests;
mod threads;

use super::core::{Config, Core};
use super::error::CacheError;
use super::fences::Fences;
use super::held::Held;
use super::registrar::Registrar;
use super::span::Span;
use mkey_core::error::{Error, Reason};
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::rights::Rights;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub(super) const PAGE: usize = 4096;
pub(super) const READ: Rights = Rights::empty();
pub(super) const WRITE: Rights = Rights::LOCAL_WRITE;

/// What the registrar is told, and what it has done.
#[derive(Default)]
pub(super) struct World {
    inner: Mutex<Inner>,
    made: AtomicU64,
    /// Milliseconds.
    clock: AtomicU64,
}

type Hook = Box<dyn Fn(&Span) + Send + Sync>;

#[derive(Default)]
struct Inner {
    alive: BTreeMap<u64, Span>,
    /// Most alive at a time.
    peak: usize,
    /// What the next registrations fail with.
    fails: VecDeque<Reason>,
    /// ENOMEM beyond.
    room: Option<usize>,
    /// Runs inside a registration.
    hook: Option<Arc<Hook>>,
}

impl World {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Registrations that were made.
    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }

    /// Those that there are: by number, in the order in which they were made.
    pub(super) fn alive(&self) -> BTreeMap<u64, Span> {
        self.lock().alive.clone()
    }

    pub(super) fn is_alive(&self, id: u64) -> bool {
        self.lock().alive.contains_key(&id)
    }

    pub(super) fn peak(&self) -> usize {
        self.lock().peak
    }

    pub(super) fn fail(&self, reason: Reason) {
        self.lock().fails.push_back(reason);
    }

    pub(super) fn room(&self, room: usize) {
        self.lock().room = Some(room);
    }

    pub(super) fn hook(&self, hook: impl Fn(&Span) + Send + Sync + 'static) {
        self.lock().hook = Some(Arc::new(Box::new(hook)));
    }

    /// Stops registrations in their middle: the first end hears of each, and each goes on by a
    /// word to the second.
    pub(super) fn stop_registrations(&self) -> (Receiver<()>, Sender<()>) {
        let (entered, inside) = channel();
        let (go, goes) = channel::<()>();
        let goes = Mutex::new(goes);
        self.hook(move |_| {
            entered.send(()).expect("heard");
            goes.lock().expect("lock").recv().expect("told");
        });
        (inside, go)
    }

    pub(super) fn unhook(&self) {
        self.lock().hook = None;
    }

    pub(super) fn pass(&self, milliseconds: u64) {
        self.clock.fetch_add(milliseconds, Ordering::SeqCst);
    }
}

pub(super) struct Fake(pub(super) Arc<World>);

pub(super) struct Registration {
    pub(super) id: u64,
    pub(super) span: Span,
    world: Arc<World>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        assert!(self.world.lock().alive.remove(&self.id).is_some(), "deregistered twice");
    }
}

impl Registrar for Fake {
    type Registration = Registration;

    unsafe fn register(&self, span: &Span) -> Result<Registration, Error> {
        let hook = self.0.lock().hook.clone();
        if let Some(hook) = hook {
            hook(span);
        }
        let mut inner = self.0.lock();
        let full = inner.room.is_some_and(|room| inner.alive.len() >= room);
        let full = full.then(no_memory);
        if let Some(reason) = inner.fails.pop_front().or(full) {
            return Err(Error::new("reg_mr", span.host(), reason));
        }
        let id = self.0.made.fetch_add(1, Ordering::SeqCst) + 1;
        inner.alive.insert(id, *span);
        inner.peak = inner.peak.max(inner.alive.len());
        Ok(Registration { id, span: *span, world: Arc::clone(&self.0) })
    }

    fn hear_changes(&self) {}

    fn keys(registration: &Registration) -> (Lkey, Rkey) {
        let key = registration.id as u32;
        (Lkey(Key(key)), Rkey(Key(!key)))
    }

    fn may_stay(_: &Registration) -> bool {
        true
    }
}

pub(super) fn no_memory() -> Reason {
    Reason::System { call: "pin", errno: mkey_core::error::errno::ENOMEM }
}

pub(super) fn fault(span: &Span) -> Reason {
    Reason::NotMapped { range: span.host() }
}

/// A cache and its world.
pub(super) struct Bench {
    pub(super) world: Arc<World>,
    pub(super) cache: Arc<Core<Fake>>,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(super) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let world = Arc::<World>::default();
        let clock = Arc::clone(&world);
        let mut config = Config {
            keeps: true,
            max_count: u64::MAX,
            max_bytes: u64::MAX,
            page: PAGE,
            failure_life: Duration::from_millis(10),
            clock: Box::new(move || Duration::from_millis(clock.clock.load(Ordering::SeqCst))),
            fences: Fences::choose(),
        };
        change(&mut config);
        let cache = Core::new(Fake(Arc::clone(&world)), Arc::default(), config);
        Self { world, cache }
    }

    /// The pages `[page, page + pages)`.
    pub(super) fn get(
        &self,
        page: usize,
        pages: usize,
        rights: Rights,
    ) -> Result<Held<Fake>, CacheError> {
        self.bytes(page * PAGE, pages * PAGE, rights)
    }

    pub(super) fn bytes(
        &self,
        address: usize,
        len: usize,
        rights: Rights,
    ) -> Result<Held<Fake>, CacheError> {
        // SAFETY: the registrar touches no memory.
        let held = unsafe { self.cache.get(address, len, rights) }?;
        self.check(&held);
        let span = registration(&held).span;
        assert!(span.start <= address && address + len <= span.end);
        Ok(held)
    }

    /// What is in use is registered, and is what its view says.
    pub(super) fn check(&self, held: &Held<Fake>) {
        let registration = registration(held);
        assert!(self.world.is_alive(registration.id), "used after deregistration");
        assert_eq!(held.used().span(), registration.span);
        assert_eq!(held.used().keys(), Fake::keys(registration));
    }

    /// Ends the cache: nothing is left.
    pub(super) fn close(self) {
        self.cache.close();
        let stats = self.cache.stats();
        assert_eq!((stats.registered, stats.registered_bytes), (0, 0));
        assert_eq!((stats.invalid_in_use, stats.invalid_in_use_bytes), (0, 0));
        assert_eq!(stats.registrations, stats.deregistrations);
        assert!(self.world.alive().is_empty(), "leaked: {:?}", self.world.alive());
    }
}

pub(super) fn registration(held: &Held<Fake>) -> &Registration {
    held.registration().expect("registered while in use")
}

pub(super) fn id(held: &Held<Fake>) -> u64 {
    registration(held).id
}
