//! Protection domains and address handles: who belongs to whom.

use mkey_core::device::AhAttr;
use mkey_core::error::Object;
use mkey_core::refusal::PdId;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const MEMBERS: [Object; 5] = [Object::Mr, Object::Mw, Object::Qp, Object::Srq, Object::Ah];

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Pd {
    pub(crate) id: PdId,
    members: [AtomicU32; MEMBERS.len()],
}

impl Pd {
    pub(crate) fn new(id: PdId) -> Self {
        Self { id, members: Default::default() }
    }

    fn count(&self, kind: Object) -> Option<&AtomicU32> {
        let place = MEMBERS.iter().position(|&member| member == kind)?;
        self.members.get(place)
    }

    /// What belongs to it, in words; `None` if nothing does (R-REG-16).
    pub(crate) fn members(&self) -> Option<String> {
        let mut words = String::new();
        for (kind, count) in MEMBERS.iter().zip(&self.members) {
            let count = count.load(Ordering::Acquire);
            if count > 0 {
                let comma = if words.is_empty() { "" } else { ", " };
                let plural = if count > 1 { "s" } else { "" };
                // Writing to a String does not fail.
                let _ = write!(words, "{comma}{count} {kind}{plural}");
            }
        }
        (!words.is_empty()).then_some(words)
    }
}

/// Membership of one object in a protection domain.
#[derive(Debug)]
pub(crate) struct PdUse {
    pd: Arc<Pd>,
    kind: Object,
}

impl PdUse {
    /// Taken while the table of domains is locked, so that no domain is freed meanwhile.
    pub(crate) fn new(pd: &Arc<Pd>, kind: Object) -> Self {
        if let Some(count) = pd.count(kind) {
            count.fetch_add(1, Ordering::AcqRel);
        }
        Self { pd: pd.clone(), kind }
    }

    #[inline]
    pub(crate) fn id(&self) -> PdId {
        self.pd.id
    }
}

impl Drop for PdUse {
    fn drop(&mut self) {
        if let Some(count) = self.pd.count(self.kind) {
            count.fetch_sub(1, Ordering::AcqRel);
        }
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
