//! Each thread's own magazines, pool by pool.

use super::magazine::Magazines;
use super::record::Record;
use super::shared::Shared;
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::{Arc, Weak};

/// The magazines of one thread for one pool.
pub(super) type Own = Magazines<Record>;

struct Entry {
    pool: u64,
    shared: Weak<Shared>,
    own: Arc<Own>,
}

/// All of a thread. When the thread ends, what rests goes back to the pools.
struct Owned(RefCell<Vec<Entry>>);

thread_local! {
    /// The pool used last, by its number, which no other pool ever gets, and its magazines, kept
    /// by the entry in `OWNED`.
    static LAST: Cell<(u64, *const Own)> = const { Cell::new((0, ptr::null())) };
    static OWNED: Owned = const { Owned(RefCell::new(Vec::new())) };
}

impl Drop for Owned {
    fn drop(&mut self) {
        LAST.set((0, ptr::null()));
        for entry in self.0.take() {
            if let Some(shared) = entry.shared.upgrade() {
                shared.retire(&entry.own);
            }
        }
    }
}

/// Lets `work` use the calling thread's magazines for the pool of this number, if it has some.
/// `work` must not come back here.
#[inline]
pub(super) fn with<R>(pool: u64, work: impl FnOnce(&Own) -> R) -> Option<R> {
    let (last, own) = LAST.get();
    if last == pool {
        // SAFETY: `own` is kept by the entry that it was taken from; entries go only with their
        // pool (then its number comes no more) or with the thread (then `LAST` was cleared).
        return Some(work(unsafe { &*own }));
    }
    with_other(pool, work)
}

#[cold]
fn with_other<R>(pool: u64, work: impl FnOnce(&Own) -> R) -> Option<R> {
    // A thread that is ending has none.
    let own = OWNED.try_with(|owned| {
        let entries = owned.0.borrow();
        entries.iter().find(|entry| entry.pool == pool).map(|entry| Arc::clone(&entry.own))
    });
    let own = own.ok().flatten()?;
    LAST.set((pool, Arc::as_ptr(&own)));
    Some(work(&own))
}

/// Gives the calling thread magazines for this pool, unless it is ending.
pub(super) fn enrol(pool: u64, shared: Weak<Shared>, own: &Arc<Own>) -> bool {
    let enrolled = OWNED.try_with(|owned| {
        let mut entries = owned.0.borrow_mut();
        entries.retain(|entry| entry.shared.strong_count() > 0);
        entries.push(Entry { pool, shared, own: Arc::clone(own) });
    });
    enrolled.is_ok()
}
