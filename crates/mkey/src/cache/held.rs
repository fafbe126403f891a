//! A place of a registration, and a use of it.

use super::local::Use;
use super::registrar::Registrar;
use super::uses::Shared;
use crate::keep::Counted;
use std::cell::UnsafeCell;
use std::ptr::NonNull;

/// A registration's place. It stays where it is, for one registration after another.
pub(super) struct Entry<R: Registrar> {
    /// Uses of threads that do not own the counts.
    pub(super) shared: Shared,
    /// Written under the lock while nobody has a use; read by who has one.
    registration: UnsafeCell<Option<R::Registration>>,
}

// SAFETY: `registration` is written only while nobody has a use, see there.
unsafe impl<R: Registrar> Sync for Entry<R> {}

impl<R: Registrar> Entry<R> {
    pub(super) fn new() -> Self {
        Self { shared: Shared::new(), registration: UnsafeCell::new(None) }
    }

    /// Puts another registration, or none, in the place.
    ///
    /// # Safety
    /// Nobody has a use of it, nor gets one meanwhile.
    pub(super) unsafe fn replace(&self, by: Option<R::Registration>) -> Option<R::Registration> {
        // SAFETY: nobody reads it.
        unsafe { std::mem::replace(&mut *self.registration.get(), by) }
    }

    /// The registration.
    ///
    /// # Safety
    /// The caller has a use of it.
    pub(super) unsafe fn registration(&self) -> Option<&R::Registration> {
        // SAFETY: nobody writes while there are uses.
        unsafe { (*self.registration.get()).as_ref() }
    }
}

/// A use of a registration: keeps it registered.
pub(super) struct Held<R: Registrar>(NonNull<Use<R>>);

// SAFETY: a use may be given back by any thread.
unsafe impl<R: Registrar> Send for Held<R> {}
// SAFETY: by reference it is read only.
unsafe impl<R: Registrar> Sync for Held<R> {}

impl<R: Registrar> Held<R> {
    /// One that has been counted already.
    #[inline]
    pub(super) fn taken(used: &Use<R>) -> Self {
        Self(NonNull::from(used))
    }

    pub(super) fn used(&self) -> &Use<R> {
        // SAFETY: a use keeps its memory.
        unsafe { self.0.as_ref() }
    }

    pub(super) fn registration(&self) -> Option<&R::Registration> {
        // SAFETY: this is a use.
        unsafe { self.used().entry().registration() }
    }

    /// The use as a pointer, not given back.
    pub(super) fn into_counted(self) -> NonNull<dyn Counted> {
        let used = self.0;
        std::mem::forget(self);
        used
    }
}

impl<R: Registrar> Clone for Held<R> {
    fn clone(&self) -> Self {
        self.used().acquire();
        Self(self.0)
    }
}

impl<R: Registrar> Drop for Held<R> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this use is given back once, here.
        unsafe { self.0.as_ref().release() }
    }
}
