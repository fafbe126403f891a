//! Registers memory that the program owns in a protection domain.

use super::registrar::Registrar;
use super::span::Span;
use crate::access::Access;
use crate::memory::Memory;
use crate::mr::Mr;
use crate::pd::{Pd, PdTag};
use mkey_core::error::{Error, Reason};
use mkey_core::key::{Lkey, Rkey};
use mkey_os::events::{WatchError, WatchGuard, Watcher};
use std::ptr::NonNull;

/// Registers in one protection domain, and has what it registers watched.
pub(super) struct InPd {
    pub(super) pd: Pd,
    /// Who tells that memory goes away, where that is asked for.
    pub(super) watcher: Option<&'static Watcher>,
}

/// Registered pages. In this order: deregistered first, watched no more then.
pub(super) struct Registered {
    mr: Mr,
    _watched: Option<WatchGuard>,
    may_stay: bool,
}

impl Registered {
    pub(super) fn pd(&self) -> PdTag {
        self.mr.pd().tag()
    }
}

/// Pages that are not the library's.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address range; who registered it answers for it.
unsafe impl Send for Pages {}
// SAFETY: as above; nothing is done through a reference.
unsafe impl Sync for Pages {}

// SAFETY: promised by the caller of `Cache::get` for as long as there are uses. Before and after,
// nobody has the keys: an idle registration of unmapped pages is not handed out again.
unsafe impl Memory for Pages {
    fn range(&self) -> (NonNull<u8>, usize) {
        (self.start, self.len)
    }
}

impl Registrar for InPd {
    type Registration = Registered;

    unsafe fn register(&self, span: &Span) -> Result<Registered, Error> {
        let fail = |reason| Error::new("cache_get", span.host(), reason);
        // Watched first: what goes away from now on is heard of.
        let watched = match self.watcher.map(|watcher| watcher.watch(span.start..span.end)) {
            None => None,
            Some(Ok(guard)) => Some(guard),
            Some(Err(WatchError::Unmapped { .. })) => {
                return Err(fail(Reason::NotMapped { range: span.host() }));
            }
            // This kind of memory reports nothing: registered for one request.
            Some(Err(_)) => None,
        };
        let may_stay = self.watcher.is_none() || watched.is_some();
        let start = std::ptr::with_exposed_provenance_mut(span.start);
        let Some(start) = NonNull::new(start) else {
            return Err(fail(Reason::NotMapped { range: span.host() }));
        };
        let access = Access::from_rights(span.rights)?;
        let pages = Pages { start, len: span.len() };
        let mr = Mr::builder(&self.pd).access(access).register(pages)?;
        Ok(Registered { mr, _watched: watched, may_stay })
    }

    fn hear_changes(&self) {
        if let Some(watcher) = self.watcher {
            watcher.wait_for_changes();
        }
    }

    fn keys(registration: &Registered) -> (Lkey, Rkey) {
        let info = registration.mr.info();
        (info.lkey, info.rkey)
    }

    fn may_stay(registration: &Registered) -> bool {
        registration.may_stay
    }
}
