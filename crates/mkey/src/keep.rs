//! What keeps registered memory in place while somebody may use it.
//!
//! A count, not an owner: memory regions are counted by their `Arc`, blocks of a pool by a number
//! beside the pool, so that taking and giving back one allocates nothing.

use crate::lease::View;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Something counted that keeps registered memory registered, mapped and not handed out again.
///
/// # Safety
/// From `acquire` until the matching `release` the object itself, the memory and its registration
/// stay. `is_only` answers true only if the caller's hold is the one there is.
pub(crate) unsafe trait Counted: Send + Sync {
    /// Counts one more hold. Called only by who has one.
    fn acquire(&self);
    /// Ends one hold.
    ///
    /// # Safety
    /// The caller has a hold and does not use the object after that.
    unsafe fn release(&self);
    /// Whether there is one hold, the caller's. What other holders did before they let go has
    /// happened then (acquire ordering).
    fn is_only(&self) -> bool;
}

/// Something in an `Arc` that keeps registered memory registered and mapped.
pub(crate) trait Shared: Send + Sync {
    /// Whether nothing but the `Arc` itself, which is the only one, leads to the memory.
    fn is_sole(&mut self) -> bool;
}

/// One hold: cloning counts, dropping lets go.
pub(crate) struct Hold(Kind);

#[derive(Clone)]
enum Kind {
    Shared(Arc<dyn Shared>),
    Counted(CountedHold),
    Mapping { _view: View },
}

struct CountedHold(NonNull<dyn Counted>);

// SAFETY: `Counted` is `Send + Sync`, and holds may be let go by any thread.
unsafe impl Send for CountedHold {}
// SAFETY: as above; all that `&CountedHold` allows is counting.
unsafe impl Sync for CountedHold {}

impl Hold {
    pub(crate) fn shared(shared: Arc<dyn Shared>) -> Self {
        Self(Kind::Shared(shared))
    }

    /// A hold of a fast mapping, which keeps what it maps.
    pub(crate) fn mapping(view: View) -> Self {
        Self(Kind::Mapping { _view: view })
    }

    /// Takes over a hold that has been counted already.
    ///
    /// # Safety
    /// One hold of `counted` is the new value's, and `counted` stays where it is while held.
    pub(crate) unsafe fn from_counted(counted: NonNull<dyn Counted>) -> Self {
        Self(Kind::Counted(CountedHold(counted)))
    }

    /// Whether this is the only hold, and nothing else leads to the memory. What other holders did
    /// before they let go has happened then.
    pub(crate) fn is_only(&mut self) -> bool {
        match &mut self.0 {
            // Not by the counts: between looking at two of them, a pointer may pass from one to
            // the other.
            Kind::Shared(shared) => Arc::get_mut(shared).is_some_and(Shared::is_sole),
            Kind::Counted(counted) => counted.get().is_only(),
            // The memory is that of other slices.
            Kind::Mapping { .. } => false,
        }
    }
}

impl Clone for Hold {
    #[inline]
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl CountedHold {
    fn get(&self) -> &dyn Counted {
        // SAFETY: the object stays while this hold is counted.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for CountedHold {
    #[inline]
    fn clone(&self) -> Self {
        self.get().acquire();
        Self(self.0)
    }
}

impl Drop for CountedHold {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this hold was counted, and ends here.
        unsafe { self.get().release() }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}
