//! What a thread keeps of a cache: its uses of each registration, and what finds them by address.
//!
//! The counts stay when the thread ends, as others may hold what it took; a later thread takes them
//! over with all they say.

use super::core::Core;
use super::fences::Fences;
use super::held::Entry;
use super::lines::{Line, Newest};
use super::registrar::Registrar;
use super::slab::Slab;
use super::span::{Span, rights_serve};
use super::table::{self, Table};
use super::uses::Uses;
use crate::keep::Counted;
use mkey_core::key::{Key, Lkey, Rkey};
use mkey_core::rights::Rights;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// One thread's view of one registration: one cache line, all that a hit looks at. It serves one
/// place after another.
#[repr(align(64))]
pub(super) struct Use<R: Registrar> {
    pub(super) uses: Uses,
    rights: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    lkey: AtomicU32,
    rkey: AtomicU32,
    /// The place's number.
    index: AtomicU32,
    /// Its own.
    pub(super) number: u32,
    /// The place; null: none.
    entry: AtomicPtr<Entry<R>>,
    local: NonNull<Local<R>>,
}

// SAFETY: the pointers are to objects that are `Sync` and that outlive whoever may follow them:
// the entry all uses of it, the local its `Use`s.
unsafe impl<R: Registrar> Send for Use<R> {}
// SAFETY: as above; the rest are atomics.
unsafe impl<R: Registrar> Sync for Use<R> {}

/// A thread's part of a cache.
pub(super) struct Local<R: Registrar> {
    /// The token of the thread that owns it; 0: none.
    owner: AtomicUsize,
    fences: Fences,
    /// Uses found without the cache's lock. Written by the owner.
    hits: AtomicU64,
    core_id: u64,
    core: Weak<Core<R>>,
    uses: Slab<Use<R>>,
    /// Touched by the owner only; of a local that never has one, under the cache's lock.
    finds: UnsafeCell<Finds<R>>,
}

/// What finds a use by address: most lie where the address leads, the others are noted.
struct Finds<R: Registrar> {
    newest: Newest<R>,
    noted: Table,
}

// SAFETY: `finds` is touched by the owning thread only, and passes from one owner to the next by
// release and acquire of `owner`, or under the cache's lock only. The rest is `Sync`.
unsafe impl<R: Registrar> Send for Local<R> {}
// SAFETY: as above.
unsafe impl<R: Registrar> Sync for Local<R> {}

/// A thread's way to the caches it has used.
struct Here {
    /// The last cache used, and its local.
    core: Cell<u64>,
    local: Cell<*const ()>,
}

/// A local of whatever kind of cache.
trait Attached {
    /// The number of its cache, while there is one.
    fn core_id(&self) -> Option<u64>;
    fn pointer(&self) -> *const ();
    fn detach(&self);
}

thread_local! {
    static HERE: Here = const { Here { core: Cell::new(0), local: Cell::new(std::ptr::null()) } };
    static ATTACHED: RefCell<AllAttached> = const { RefCell::new(AllAttached(Vec::new())) };
}

/// The locals of this thread; kept in memory for as long as it may touch them.
struct AllAttached(Vec<Arc<dyn Attached>>);

impl Drop for AllAttached {
    fn drop(&mut self) {
        HERE.with(|here| here.core.set(0));
        self.0.iter().for_each(|local| local.detach());
    }
}

/// A number that no other living thread has.
#[inline]
fn token() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl<R: Registrar> Local<R> {
    pub(super) fn new(core_id: u64, core: Weak<Core<R>>, fences: Fences) -> Arc<Self> {
        Arc::new(Self {
            owner: AtomicUsize::new(0),
            fences,
            hits: AtomicU64::new(0),
            core_id,
            core,
            uses: Slab::new(),
            finds: UnsafeCell::new(Finds { newest: Newest::none(), noted: Table::new() }),
        })
    }

    #[inline]
    fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == token()
    }

    /// Takes it over for this thread if nobody owns it. Under the cache's lock.
    pub(super) fn adopt(&self) -> bool {
        let free = self.owner.load(Ordering::Acquire) == 0;
        if free {
            self.owner.store(token(), Ordering::Relaxed);
        }
        free
    }

    /// This thread's local of a cache, if it has been attached.
    #[inline]
    pub(super) fn here(core: &Core<R>) -> Option<&Self> {
        let local = HERE.with(|here| (here.core.get() == core.id).then(|| here.local.get()));
        match local {
            // SAFETY: noted for the cache of this number, so of this type; the cache keeps its
            // locals for as long as it lives.
            Some(local) => Some(unsafe { &*local.cast::<Self>() }),
            None => Self::here_again(core),
        }
    }

    #[cold]
    fn here_again(core: &Core<R>) -> Option<&Self> {
        ATTACHED
            .try_with(|attached| {
                let attached = attached.try_borrow().ok()?;
                let local = attached.0.iter().find(|local| local.core_id() == Some(core.id))?;
                Some(local.pointer())
            })
            .ok()
            .flatten()
            .map(|local| {
                HERE.with(|here| {
                    here.core.set(core.id);
                    here.local.set(local);
                });
                // SAFETY: as in `here`.
                unsafe { &*local.cast::<Self>() }
            })
    }

    /// Notes a local that this thread has adopted. False if the thread is ending.
    pub(super) fn attach(self: &Arc<Self>) -> bool {
        ATTACHED
            .try_with(|attached| {
                let Ok(mut attached) = attached.try_borrow_mut() else { return false };
                attached.0.retain(|local| local.core_id().is_some());
                attached.0.push(Arc::clone(self) as Arc<dyn Attached>);
                true
            })
            .unwrap_or(false)
    }

    /// Nobody owns it any more.
    pub(super) fn detach(&self) {
        self.owner.store(0, Ordering::Release);
    }

    /// A use of a registration that serves the request, if this thread has one noted. On the
    /// owning thread.
    #[inline]
    pub(super) fn hit(&self, address: usize, len: usize, rights: u32) -> Option<&Use<R>> {
        // SAFETY: the owning thread is here, and nothing called meanwhile changes it.
        let finds = unsafe { &*self.finds.get() };
        let found = match finds.newest.home(table::Key::page(address)) {
            Some(used) if used.serves(address, len, rights) => used,
            _ => self.search(finds, address, len, rights)?,
        };
        if !found.uses.take(self.fences) {
            found.late();
            return None;
        }
        self.hits.store(self.hits.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        Some(found)
    }

    #[inline(never)]
    fn search<'a>(
        &'a self,
        finds: &'a Finds<R>,
        address: usize,
        len: usize,
        rights: u32,
    ) -> Option<&'a Use<R>> {
        let (page, block) = (table::Key::page(address), table::Key::block(address));
        let Finds { newest, noted } = finds;
        // The block first: what large registrations are found by.
        let numbers = noted.first(block).into_iter().chain(noted.find(page));
        let numbered = numbers.chain(noted.find(block)).filter_map(|number| self.uses.get(number));
        newest.beside(page).into_iter().chain(numbered).find(|u| u.serves(address, len, rights))
    }

    /// Notes where a registration is to be found from `address`. On the owning thread.
    pub(super) fn note(&self, address: usize, used: &Use<R>) {
        let (start, end) = (used.start.load(Ordering::Relaxed), used.end.load(Ordering::Relaxed));
        let stale = |number| self.uses.get(number).is_none_or(|used| !used.uses.is_live());
        // SAFETY: the owning thread is here, and `stale` does not touch it.
        let finds = unsafe { &mut *self.finds.get() };
        let key = table::Key::best(address, start, end);
        if key != table::Key::page(address) || !finds.newest.is_near(used, key) {
            finds.noted.note(key, used.number, stale);
        }
    }

    /// The use of what is at a place, `of` all threads' uses of which it is one then, to be found
    /// from `address`. Under the cache's lock, on the owning thread if there is one. None past all
    /// numbers.
    pub(super) fn used(
        &self,
        (index, entry): (u32, &Entry<R>),
        address: usize,
        of: &mut Vec<Line<R>>,
    ) -> Option<&Use<R>> {
        // SAFETY: the owning thread is here, or there is none and the lock is held.
        let newest = unsafe { &mut (*self.finds.get()).newest };
        let key = table::Key::page(address);
        let own = |line: &&Line<R>| std::ptr::eq(line.used().local.as_ptr(), self);
        let is_live = of.iter().filter(own).any(|line| line.used().uses.is_live());
        // One that is out of the way stays there while it may be in use. There is another then.
        let fit = of.iter().filter(own).find(|line| {
            let used = line.used();
            newest.has(used) && (used.uses.is_live() || newest.is_near(used, key))
        });
        if let Some(line) = fit {
            // SAFETY: one of this local's lines, which stay with it.
            return Some(unsafe { line.0.as_ref() });
        }
        let used = newest.free(key, &self.uses, |number| Use::new(number, self))?;
        newest.count(used, 1);
        used.index.store(index, Ordering::Relaxed);
        used.entry.store(std::ptr::from_ref(entry).cast_mut(), Ordering::Relaxed);
        if !is_live {
            // What was at the place before has gone, and with it all uses of it: those that serve
            // the place now have none out.
            of.retain(|line| {
                let other = line.used();
                let goes = std::ptr::eq(other.local.as_ptr(), self);
                if goes {
                    used.uses.take_over(&other.uses);
                    other.entry.store(std::ptr::null_mut(), Ordering::Relaxed);
                    newest.count(other, -1);
                }
                !goes
            });
        }
        of.push(Line(NonNull::from(used)));
        Some(used)
    }

    pub(super) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }
}

impl<R: Registrar> Attached for Local<R> {
    fn core_id(&self) -> Option<u64> {
        (self.core.strong_count() > 0).then_some(self.core_id)
    }

    fn pointer(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    fn detach(&self) {
        Local::detach(self);
    }
}

impl<R: Registrar> Use<R> {
    fn new(number: u32, local: &Local<R>) -> Self {
        Self {
            uses: Uses::new(),
            rights: AtomicU32::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            lkey: AtomicU32::new(0),
            rkey: AtomicU32::new(0),
            index: AtomicU32::new(0),
            number,
            entry: AtomicPtr::new(std::ptr::null_mut()),
            local: NonNull::from(local),
        }
    }

    /// Whether it serves no place.
    pub(super) fn is_free(&self) -> bool {
        self.entry.load(Ordering::Relaxed).is_null()
    }

    #[inline]
    fn serves(&self, address: usize, len: usize, rights: u32) -> bool {
        let start = self.start.load(Ordering::Relaxed);
        let end = self.end.load(Ordering::Relaxed);
        // A length of 0 wraps to one that nothing contains.
        address >= start
            && address < end
            && len.wrapping_sub(1) < end - address
            && rights_serve(self.rights.load(Ordering::Relaxed), rights)
            && self.uses.is_live()
    }

    /// Says what the registration is. Under the cache's lock, while nobody has a use of it here.
    pub(super) fn describe(&self, span: &Span, (lkey, rkey): (Lkey, Rkey)) {
        self.start.store(span.start, Ordering::Relaxed);
        self.end.store(span.end, Ordering::Relaxed);
        self.rights.store(span.rights.bits(), Ordering::Relaxed);
        self.lkey.store(lkey.0.0, Ordering::Relaxed);
        self.rkey.store(rkey.0.0, Ordering::Relaxed);
    }

    /// The registered range and its rights. For who has a use.
    pub(super) fn span(&self) -> Span {
        Span {
            start: self.start.load(Ordering::Relaxed),
            end: self.end.load(Ordering::Relaxed),
            rights: Rights::from_bits_retain(self.rights.load(Ordering::Relaxed)),
        }
    }

    /// The registration's keys. For who has a use.
    #[inline]
    pub(super) fn keys(&self) -> (Lkey, Rkey) {
        let key = |key: &AtomicU32| Key(key.load(Ordering::Relaxed));
        (Lkey(key(&self.lkey)), Rkey(key(&self.rkey)))
    }

    /// # Safety
    /// The caller has a use.
    pub(super) unsafe fn entry(&self) -> &Entry<R> {
        // SAFETY: who has a use keeps the cache's memory, and this at its place.
        unsafe { &*self.entry.load(Ordering::Relaxed) }
    }

    /// A use was taken too late, and is given back.
    #[cold]
    fn late(&self) {
        // SAFETY: just taken, by this thread.
        unsafe { self.release() }
    }

    /// The last steps of a use that was given back when the registration had ended. `local` is in
    /// memory: the thread that owns it is here.
    #[cold]
    fn settle(local: &Local<R>, index: u32) {
        // Without a cache everything has been cleaned up.
        if let Some(core) = local.core.upgrade() {
            core.settle(index);
        }
    }

    #[cold]
    fn release_elsewhere(&self, local: &Local<R>) {
        // The use still counts here: it keeps the cache, and with it this memory. From the next
        // step on this handle does.
        let Some(core) = local.core.upgrade() else { return };
        // SAFETY: the caller has a use.
        unsafe { self.entry() }.shared.give();
        // It may serve another place by now, which no harm comes from: then what was here before
        // has gone.
        if !self.uses.is_live() {
            core.settle(self.index.load(Ordering::Relaxed));
        }
    }
}

// SAFETY: a registration is dropped only after `idle` has seen all uses given back, and the memory
// of the cache stays while there are uses (`State::keep`).
unsafe impl<R: Registrar> Counted for Use<R> {
    #[inline]
    fn acquire(&self) {
        // SAFETY: the caller has a use, which keeps the local.
        let local = unsafe { self.local.as_ref() };
        if local.is_mine() {
            self.uses.take_held();
        } else {
            // SAFETY: the caller has a use.
            unsafe { self.entry() }.shared.take();
        }
    }

    #[inline]
    unsafe fn release(&self) {
        // SAFETY: the caller's use keeps the local until it is given back. After that it is in
        // memory if this thread owns it (`ATTACHED`), and is not touched otherwise but with a
        // handle of the cache.
        let local = unsafe { self.local.as_ref() };
        if !local.is_mine() {
            self.release_elsewhere(local);
        } else if !self.uses.give(local.fences) {
            Self::settle(local, self.index.load(Ordering::Relaxed));
        }
    }

    fn is_only(&self) -> bool {
        // Not known without stopping all threads, so never claimed.
        false
    }
}
