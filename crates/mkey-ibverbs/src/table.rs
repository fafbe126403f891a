//! Objects by handle. Handles count up and are never used twice, so that a stale or garbled one
//! names nothing (R-ERR-10).

use mkey_core::error::{Error, Object, Reason, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Objects of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    object: Object,
    next: AtomicU64,
    objects: RwLock<HashMap<u64, T>>,
}

impl<T> Table<T> {
    pub(crate) fn new(object: Object) -> Self {
        Self { object, next: AtomicU64::new(1), objects: RwLock::default() }
    }

    /// A handle for an object that is about to be made.
    pub(crate) fn handle(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// All objects, to look at.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, HashMap<u64, T>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// All objects, to change.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, HashMap<u64, T>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// All objects, to change, unless somebody has them.
    #[cfg(test)]
    pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, HashMap<u64, T>>> {
        self.objects.try_write().ok()
    }

    /// Keeps an object under a handle of this table.
    pub(crate) fn put(&self, handle: u64, object: T) {
        self.write().insert(handle, object);
    }

    /// Takes an object out.
    pub(crate) fn take(&self, verb: &'static str, handle: u64) -> Result<T> {
        self.write().remove(&handle).ok_or_else(|| self.unknown(verb, handle))
    }

    /// Takes all objects out.
    pub(crate) fn drain(&self) -> Vec<T> {
        self.write().drain().map(|(_, object)| object).collect()
    }

    /// The error for a handle that names nothing.
    #[cold]
    pub(crate) fn unknown(&self, verb: &'static str, handle: u64) -> Error {
        let reason = Reason::UnknownHandle { object: self.object, handle };
        Error::new(verb, format_args!("handle {handle:#x}"), reason)
    }
}

impl<T: Clone> Table<T> {
    /// The object with this handle.
    pub(crate) fn get(&self, verb: &'static str, handle: u64) -> Result<T> {
        self.read().get(&handle).cloned().ok_or_else(|| self.unknown(verb, handle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_err_10_a_handle_is_never_used_twice() {
        let table = Table::new(Object::Pd);
        let first = table.handle();
        table.put(first, 'a');
        assert_eq!(table.get("get", first), Ok('a'));
        assert_eq!(table.take("take", first), Ok('a'));
        let second = table.handle();
        table.put(second, 'b');
        for garbled in [0, first, u64::MAX] {
            let reason = table.get("get", garbled).unwrap_err().reason;
            assert_eq!(reason, Reason::UnknownHandle { object: Object::Pd, handle: garbled });
        }
    }
}
