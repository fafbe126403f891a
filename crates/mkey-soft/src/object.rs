//! Protection domains and address handles: who belongs to whom.

use mkey_core::device::AhAttr;
use mkey_core::refusal::PdId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Pd {
    pub(crate) id: PdId,
}

impl Pd {
    /// Whether anything belongs to it (R-REG-16): every member holds it, besides the table.
    pub(crate) fn has_members(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
    }
}

/// Membership of one object in a protection domain. Taken while the table of domains is locked, so
/// that no domain is freed meanwhile.
#[derive(Debug)]
pub(crate) struct PdUse(Arc<Pd>);

impl PdUse {
    pub(crate) fn new(pd: &Arc<Pd>) -> Self {
        Self(pd.clone())
    }

    #[inline]
    pub(crate) fn id(&self) -> PdId {
        self.0.id
    }
}

/// An address handle.
#[derive(Debug)]
pub(crate) struct Ah {
    pub(crate) pd: PdUse,
    pub(crate) attr: AhAttr,
}

/// An object that others may use, which keeps it from being destroyed.
pub(crate) trait Used {
    /// How many use it.
    fn users(&self) -> &AtomicU32;
}

/// One use of an object. Taken while the table of such objects is locked, so that it is not
/// destroyed meanwhile.
#[derive(Debug)]
pub(crate) struct Use<T: Used>(Arc<T>);

impl<T: Used> Use<T> {
    pub(crate) fn new(object: &Arc<T>) -> Self {
        object.users().fetch_add(1, Ordering::AcqRel);
        Self(object.clone())
    }

    pub(crate) fn object(&self) -> Arc<T> {
        self.0.clone()
    }
}

impl<T: Used> Drop for Use<T> {
    fn drop(&mut self) {
        self.0.users().fetch_sub(1, Ordering::AcqRel);
    }
}
