//! What keeps registered memory in place while somebody may use it.
//!
//! A count, not an owner: memory regions are counted by their `Arc`, blocks of a pool by a number
//! beside the pool, so that taking and giving back one allocates nothing.

use std::fmt;
use std::ptr::NonNull;

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

/// One hold: cloning counts, dropping lets go.
pub(crate) struct Hold(NonNull<dyn Counted>);

// SAFETY: `Counted` is `Send + Sync`, and holds may be let go by any thread.
unsafe impl Send for Hold {}
// SAFETY: as above; all that `&Hold` allows is counting.
unsafe impl Sync for Hold {}

impl Hold {
    /// Takes over a hold that has been counted already.
    ///
    /// # Safety
    /// One hold of `counted` is the new value's, and `counted` stays where it is while held.
    pub(crate) unsafe fn from_counted(counted: NonNull<dyn Counted>) -> Self {
        Self(counted)
    }

    fn counted(&self) -> &dyn Counted {
        // SAFETY: the object stays while this hold is counted.
        unsafe { self.0.as_ref() }
    }

    /// Whether this is the only hold.
    pub(crate) fn is_only(&self) -> bool {
        self.counted().is_only()
    }
}

impl Clone for Hold {
    #[inline]
    fn clone(&self) -> Self {
        self.counted().acquire();
        Self(self.0)
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this hold was counted, and ends here.
        unsafe { self.counted().release() }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}
