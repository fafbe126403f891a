//! The objects that programs hold: structures of the verbs with what is ours behind them.
//!
//! They keep nothing of the device, which goes when it is closed. Their own memory is never given back,
//! only used again for objects of the same kind, oldest first. So a
//! program that goes on using what it has destroyed meets an errno and not a crash of ours.
//!
//! An object bears the number of the opening of the device that it belongs to. Closing the device
//! takes that number away and thereby ends all of them at once; so does `fork` in the child.

use crate::boundary::{EINVAL, Errno, NOT_HERE, Verb};
use crate::context::{Context, Open};
use crate::{devices, fork};
use mkey_sys::types::ibv_context;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A kind of object.
///
/// # Safety
/// `Base` begins with a pointer to the `ibv_context` that the object belongs to.
pub(crate) unsafe trait Kind: Send + Sync + Sized + 'static {
    /// What the program sees.
    type Base: 'static;

    /// Objects of this kind that were ended and may be used again.
    fn spares() -> &'static Spares<Self>;
}

/// An object of a kind.
#[repr(C)]
pub(crate) struct Object<K: Kind> {
    base: UnsafeCell<K::Base>,
    /// The opening that it belongs to; 0: it has ended.
    opening: AtomicU32,
    own: UnsafeCell<Option<K>>,
}

// SAFETY: `own` is written before the object is shown to anybody and left alone until it has ended and
// all other objects that ended before were used again; who uses an object then breaks the verbs' own
// rule. `base` is C's: both sides write single fields of it, through pointers.
unsafe impl<K: Kind> Sync for Object<K> {}
// SAFETY: as above.
unsafe impl<K: Kind> Send for Object<K> {}

impl<K: Kind> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("opening", &self.opening).finish_non_exhaustive()
    }
}

/// Ended objects of a kind.
pub(crate) struct Spares<K: Kind>(Mutex<VecDeque<&'static Object<K>>>);

/// So many ended objects rest before the first of them is used again.
const REST: usize = 64;

impl<K: Kind> Spares<K> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// The one that has rested longest. Never waits: after `fork` nobody may be there to unlock.
    fn take(&self) -> Option<&'static Object<K>> {
        let mut spares = self.0.try_lock().ok()?;
        if spares.len() > REST { spares.pop_front() } else { None }
    }

    fn put(&self, object: &'static Object<K>) {
        if let Ok(mut spares) = self.0.try_lock() {
            spares.push_back(object);
        }
    }
}

impl<K: Kind> Object<K> {
    /// A new object of an opened device.
    pub(crate) fn new(opening: u32, base: K::Base, own: K) -> &'static Self {
        match K::spares().take() {
            Some(object) => {
                // SAFETY: it has ended and rested, so nobody reads it.
                unsafe {
                    object.base.get().write(base);
                    *object.own.get() = Some(own);
                }
                object.opening.store(opening, Ordering::Release);
                object
            }
            None => Box::leak(Box::new(Self {
                base: UnsafeCell::new(base),
                opening: AtomicU32::new(opening),
                own: UnsafeCell::new(Some(own)),
            })),
        }
    }

    /// What the program holds.
    pub(crate) fn base(&self) -> *mut K::Base {
        self.base.get()
    }

    /// Whether it has not ended.
    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        let opening = self.opening.load(Ordering::Acquire);
        // SAFETY: a kind's base begins with the pointer to its context.
        let context = unsafe { *self.base.get().cast::<*mut ibv_context>() };
        opening != 0 && opening == Context::of(context).opening() && !fork::inherited(opening)
    }

    /// Ends it.
    pub(crate) fn end(&'static self) {
        if self.opening.swap(0, Ordering::AcqRel) != 0 {
            K::spares().put(self);
        }
    }

    /// What is ours of it.
    #[inline]
    pub(crate) fn own(&self) -> Option<&K> {
        // SAFETY: written before the object was shown, and not again while it is live.
        unsafe { (*self.own.get()).as_ref() }
    }

    /// The object of this kind that belongs to this context and has not ended, if that is what the
    /// pointer points to.
    ///
    /// # Safety
    /// The pointer is null or points to an object of libibverbs' kind, ours or a real one.
    #[inline]
    pub(crate) unsafe fn beside<B>(
        context: &'static Context,
        base: *mut B,
    ) -> Option<&'static Self> {
        // SAFETY: all objects begin with the pointer to their context.
        let own = unsafe { base.cast::<*mut ibv_context>().as_ref() }?;
        if !ptr::eq(*own, context.base()) {
            return None;
        }
        // SAFETY: it belongs to a context of ours, so it was made here.
        unsafe { Self::live(base) }
    }

    /// The object of this kind, if that is what the pointer points to and it has not ended.
    ///
    /// # Safety
    /// The pointer is null or points to an object of this kind that was made here.
    #[inline]
    pub(crate) unsafe fn live<B>(base: *mut B) -> Option<&'static Self> {
        // SAFETY: the caller's; objects are never freed.
        let object = unsafe { base.cast::<Self>().as_ref() }?;
        object.is_live().then_some(object)
    }
}

/// Who an object belongs to.
pub(crate) enum Whose<T> {
    /// To us, and it is in use.
    Ours(T),
    /// To the parent of this process, which was forked since.
    Parents,
    /// To nobody any more, or it is no object at all.
    Nobodys(Errno),
    /// To the real libibverbs.
    Real,
}

impl<T> Whose<T> {
    /// What an operation of ours goes on with, which none but objects of ours in use are meant for.
    pub(crate) fn ours(self) -> Verb<T> {
        match self {
            Self::Ours(found) => Ok(found),
            Self::Nobodys(errno) => Err(errno),
            Self::Parents => Err(NOT_HERE),
            Self::Real => Err(EINVAL),
        }
    }
}

/// An object that is ours, and in use.
pub(crate) struct Found<K: Kind> {
    pub(crate) object: &'static Object<K>,
    pub(crate) open: Arc<Open>,
    own: &'static K,
}

impl<K: Kind> Deref for Found<K> {
    type Target = K;

    fn deref(&self) -> &K {
        self.own
    }
}

/// Looks whose an object is.
///
/// # Safety
/// The pointer is null or points to an object of libibverbs' kind, ours or a real one.
pub(crate) unsafe fn whose<K: Kind, B>(base: *mut B) -> Whose<Found<K>> {
    if base.is_null() {
        return Whose::Nobodys(EINVAL);
    }
    // SAFETY: all objects begin with the pointer to their context.
    let context = unsafe { *base.cast::<*mut ibv_context>() };
    // SAFETY: a context as libibverbs has it.
    match unsafe { whose_context(context) } {
        Whose::Ours(found) => {
            // SAFETY: it belongs to a context of ours.
            let object = unsafe { Object::<K>::live(base) };
            match object.and_then(|object| Some((object, object.own()?))) {
                Some((object, own)) => Whose::Ours(Found { object, open: found, own }),
                None => Whose::Nobodys(EINVAL),
            }
        }
        Whose::Parents => Whose::Parents,
        Whose::Nobodys(errno) => Whose::Nobodys(errno),
        Whose::Real => Whose::Real,
    }
}

/// An object of this very opening; EINVAL for whatever else it is.
///
/// # Safety
/// As for [`whose`].
pub(crate) unsafe fn of<K: Kind, B>(open: &Arc<Open>, base: *mut B) -> Verb<Found<K>> {
    // SAFETY: the caller's.
    match unsafe { whose::<K, B>(base) } {
        Whose::Ours(found) if Arc::ptr_eq(&found.open, open) => Ok(found),
        _ => Err(EINVAL),
    }
}

/// The same of a context.
///
/// # Safety
/// The pointer is null or points to a context, ours or a real one.
pub(crate) unsafe fn whose_context(context: *mut ibv_context) -> Whose<Arc<Open>> {
    if context.is_null() {
        return Whose::Nobodys(EINVAL);
    }
    // SAFETY: a context has a device.
    let device = unsafe { ptr::read(&raw const (*context).device) };
    if !devices::is_ours(device) {
        return Whose::Real;
    }
    let context = Context::of(context);
    let opening = context.opening();
    if fork::inherited(opening) {
        return Whose::Parents;
    }
    // Of one that is closed the lock is left alone: a thread of the parent's may have had it.
    match (opening != 0).then(|| context.open()).flatten() {
        Some(open) => Whose::Ours(open),
        None => Whose::Nobodys(EINVAL),
    }
}

/// The same for what only looks at a device, which a forked child may do with its parent's.
///
/// # Safety
/// As for [`whose_context`].
pub(crate) unsafe fn readable(context: *mut ibv_context) -> Whose<Arc<Open>> {
    // SAFETY: the caller's.
    match unsafe { whose_context(context) } {
        // Another thread may have been about to close it when the process was forked.
        Whose::Parents => match Context::of(context).open_unless_locked() {
            Some(Some(open)) => Whose::Ours(open),
            Some(None) => Whose::Nobodys(EINVAL),
            None => Whose::Parents,
        },
        whose => whose,
    }
}
