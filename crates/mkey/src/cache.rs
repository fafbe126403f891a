//! A cache of registrations of memory that the program owns.

mod core;
mod error;
mod failures;
mod gate;
mod held;
mod hub;
mod index;
mod lines;
mod local;
mod pages;
mod registrar;
mod slab;
mod span;
mod state;
mod stats;
mod sync;
mod table;
#[cfg(test)]
mod tests;
mod uses;

pub use error::CacheError;
pub use stats::CacheStats;

use crate::access::Access;
use crate::fences::{self, Fences};
use crate::keep::Hold;
use crate::pd::Pd;
use crate::slice::Slice;
use gate::Gate;
use hub::Subscription;
use mkey_core::address::{HostAddr, HostRange, IoAddr};
use mkey_core::error::{Error, Reason};
use mkey_core::key::Lkey;
use pages::{InPd, Registered};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a cache learns that registered memory has gone. [`fmt::Display`] gives the mode's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invalidation {
    /// `explicit`: the program tells, by [`Cache::invalidate`], before it unmaps, discards or
    /// moves memory that may be registered. What it does not tell leaves a stale registration: the
    /// NIC goes on using the old pages.
    Explicit,
    /// `events`: the operating system tells ([`mkey_os::events`]). Memory that reports nothing
    /// (private mappings of files, mappings of devices) is registered anew for each request
    /// ([`CacheStats::unwatched`]). Swapping, migration and copy-on-write are not reported. A
    /// discard (`MADV_DONTNEED`) is reported just before it happens: a request for the same memory
    /// by another thread at that very moment may keep the old pages. So may one for memory that
    /// got the place of what another thread's `munmap`, which has not returned, takes away: if the
    /// thread that asks was served by the old registration before.
    Events,
    /// `off`: nothing is kept; each request registers, and its last use deregisters.
    Off,
}

impl fmt::Display for Invalidation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Explicit => "explicit",
            Self::Events => "events",
            Self::Off => "off",
        })
    }
}

/// Registrations of memory that the program owns, kept for the next request.
///
/// A request is served by a registration of its protection domain that contains its range, has at
/// least its rights, and agrees exactly in ordering and on-demand paging. Otherwise the pages
/// around it are registered, with just the rights asked for: rights are never raised in passing, as
/// memory may be mapped read-only. Threads that want the same at a time wait for one registration.
/// A registration that a later one contains is given up.
///
/// # What it costs
/// A request served again on the same thread takes no lock and writes no cache line that threads
/// share. All else takes the cache's lock; registering and deregistering happen without it.
///
/// # When memory goes away
/// See [`Invalidation`]. With events, a request that starts after `munmap` has returned is never
/// served by a registration from before, and a thread's first request for a registration not even
/// while another thread is in `munmap`. The event thread notes the range and no more; the next
/// request, or [`Cache::maintain`], ends the registrations in it. Until then their pages stay
/// pinned ([`CacheStats::queued_bytes`]). A registration in use is deregistered when its last use
/// is dropped, on the thread that does so.
///
/// # Limits
/// Past a limit on count or bytes, and when the device has no room (`ENOMEM`), idle registrations
/// are given up, those first that were not used lately; if there are none, [`CacheError`].
///
/// Dropping the cache ends all registrations; those in use live on.
pub struct Cache {
    core: Arc<core::Core<InPd>>,
    invalidation: Invalidation,
    page: usize,
    _events: Option<Subscription>,
}

/// How to build a [`Cache`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct CacheBuilder<'a> {
    pd: &'a Pd,
    invalidation: Invalidation,
    max_count: Option<u64>,
    max_bytes: u64,
    page_size: usize,
    failure_life: Duration,
}

impl Cache {
    /// How to cache registrations in a protection domain: `explicit` unless told otherwise.
    pub fn builder(pd: &Pd) -> CacheBuilder<'_> {
        CacheBuilder {
            pd,
            invalidation: Invalidation::Explicit,
            max_count: None,
            max_bytes: u64::MAX,
            page_size: rustix::param::page_size(),
            failure_life: Duration::from_millis(1),
        }
    }

    /// A registration of `len` bytes from `ptr` with at least the rights of `access`.
    ///
    /// # Errors
    /// [`CacheError::Register`]: `Argument` for a length of 0, `Wraps` past the end of the address
    /// space, or as the device refuses (`NotMapped`, `NotWritable`, `MemlockLimit`, ...): also
    /// when another thread asked for the same at the time, or for a moment after it did
    /// ([`CacheBuilder::remember_failures`]). [`CacheError::Count`], [`CacheError::Bytes`]: a
    /// limit, and nothing idle.
    ///
    /// # Safety
    /// While the result, a clone or a slice of it lives (posted work counts): the bytes stay
    /// mapped, and no Rust reference to them is live while work requests or peers may write them,
    /// no exclusive one while they may read them. The same holds for the rest of the pages around
    /// them, as far as a peer may have the remote key or a slice reaches.
    /// With `explicit`: [`Cache::invalidate`] is called before memory that was asked for is
    /// unmapped, discarded or moved.
    #[inline]
    pub unsafe fn get(
        &self,
        ptr: *const u8,
        len: usize,
        access: Access,
    ) -> Result<Cached, CacheError> {
        let start = ptr.expose_provenance();
        // SAFETY: as promised by the caller.
        let held = unsafe { self.core.get(start, len, access.rights()) }?;
        Ok(Cached { held, start, len })
    }

    /// Ends all registrations that overlap the range of `len` bytes from `ptr`: no later request
    /// is served by one, and those not in use are deregistered on return.
    pub fn invalidate(&self, ptr: *const u8, len: usize) {
        let start = ptr.addr();
        self.core.invalidate(start..start.saturating_add(len));
    }

    /// Ends all registrations; forgets all failures.
    pub fn flush(&self) {
        self.core.invalidate(0..usize::MAX);
    }

    /// Does what waits for the next request: ends the registrations whose memory has gone. For
    /// programs that may make no request for long.
    pub fn maintain(&self) {
        self.core.maintain();
    }

    /// How it learns that memory has gone.
    pub fn invalidation(&self) -> Invalidation {
        self.invalidation
    }

    /// The protection domain.
    pub fn pd(&self) -> &Pd {
        &self.core.registrar.pd
    }

    /// Counts and gauges.
    pub fn stats(&self) -> CacheStats {
        self.core.stats()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.core.close();
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        f.debug_struct("Cache")
            .field("invalidation", &format_args!("{}", self.invalidation))
            .field("page_size", &self.page)
            .field("registered", &stats.registered)
            .field("registered_bytes", &stats.registered_bytes)
            .finish_non_exhaustive()
    }
}

impl CacheBuilder<'_> {
    /// How it learns that memory has gone.
    pub fn invalidation(mut self, invalidation: Invalidation) -> Self {
        self.invalidation = invalidation;
        self
    }

    /// At most so many registrations, those in use included. Unless told: what the device offers
    /// (`max_mr`).
    pub fn max_count(mut self, count: u64) -> Self {
        self.max_count = Some(count);
        self
    }

    /// At most so many bytes registered, those in use included. Unless told: no limit.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Rounds ranges to pages of so many bytes: a power of two, the system's page size at least,
    /// and no larger than the pages of the mappings asked for. Larger pages, fewer registrations.
    pub fn page_size(mut self, bytes: usize) -> Self {
        self.page_size = bytes;
        self
    }

    /// For how long the same request gets the same error again without asking the device, unless
    /// the memory is invalidated meanwhile. 1 ms unless told; 0 for not at all. An error that
    /// passes when others give something back (`ENOMEM`, `EAGAIN`, `EBUSY`) is not remembered.
    pub fn remember_failures(mut self, life: Duration) -> Self {
        self.failure_life = life;
        self
    }

    /// Builds it.
    ///
    /// # Errors
    /// `Argument` for a page size that is none; `System` where `events` are not to be had, with
    /// the command that would allow them: nothing is fallen back to.
    pub fn build(self) -> Result<Cache, Error> {
        let fail = |arguments: &dyn fmt::Display, reason| {
            Err(Error::new("cache_build", arguments, reason))
        };
        if !self.page_size.is_power_of_two() || self.page_size < rustix::param::page_size() {
            let value = self.page_size as u64;
            let allowed = "a power of two, the system's page size at least";
            return fail(
                &self.invalidation,
                Reason::Argument { what: "page size", value, allowed },
            );
        }
        let events = match self.invalidation {
            Invalidation::Events => match hub::subscribe() {
                Ok(events) => Some(events),
                Err(error) => {
                    let reason = Reason::System {
                        call: error.source.call,
                        errno: error.source.errno.raw_os_error(),
                    };
                    let what = format!("{}; to allow it: {}", self.invalidation, error.mend());
                    return fail(&what, reason);
                }
            },
            Invalidation::Explicit | Invalidation::Off => None,
        };
        let begin = Instant::now();
        let of_device = u64::from(self.pd.device().capabilities().max_mr);
        let config = core::Config {
            keeps: self.invalidation != Invalidation::Off,
            max_count: self.max_count.unwrap_or(of_device).min(of_device),
            max_bytes: self.max_bytes,
            page: self.page_size,
            failure_life: self.failure_life,
            clock: Box::new(move || begin.elapsed()),
            fences: Fences::choose(),
        };
        let gate = events.as_ref().map_or_else(Arc::<Gate>::default, Subscription::gate);
        let watcher = events.as_ref().map(Subscription::watcher);
        let registrar = InPd { pd: self.pd.clone(), watcher };
        tracing::debug!(invalidation = %self.invalidation, page_size = self.page_size, "cache");
        Ok(Cache {
            core: core::Core::new(registrar, gate, config),
            invalidation: self.invalidation,
            page: self.page_size,
            _events: events,
        })
    }
}

/// Memory that was asked for, registered for as long as this, a clone or a [`Slice`] of it lives:
/// also when the cache has invalidated the registration meanwhile, or is gone.
///
/// Cheapest dropped on the thread that asked for it; any thread may.
#[derive(Clone)]
pub struct Cached {
    held: held::Held<InPd>,
    start: usize,
    len: usize,
}

impl Cached {
    /// Bytes asked for.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// First byte asked for, as work requests count.
    #[inline]
    pub fn iova(&self) -> IoAddr {
        IoAddr(self.start as u64)
    }

    /// The registration's local key.
    #[inline]
    pub fn lkey(&self) -> Lkey {
        self.held.used().keys().0
    }

    /// What is registered, exactly: the pages around, or more.
    pub fn registered(&self) -> HostRange {
        self.held.used().span().host()
    }

    /// The bytes asked for, as work requests name them. Work posted with it keeps the
    /// registration.
    pub fn slice(&self) -> Slice {
        self.clone().into_slice()
    }

    /// The same, giving up this handle.
    pub fn into_slice(self) -> Slice {
        let Self { held, start, len } = self;
        let (used, iova) = (held.used(), IoAddr(start as u64));
        let (lkey, rkey) = used.keys();
        let rights = used.span().rights;
        let rkey = rights.intersects(mkey_core::rights::Rights::REMOTE).then_some(rkey);
        let pd = held.registration().map(Registered::pd).unwrap_or_default();
        // A registration is never at address 0.
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut(start));
        let start = start.unwrap_or(NonNull::dangling());
        // SAFETY: the use passes to the hold, and what counts it stays while it is used.
        let hold = unsafe { Hold::from_counted(held.into_counted()) };
        let (private, mapped) = (false, false);
        Slice { start, len, iova, lkey, rkey, rights, pd, private, mapped, hold }
    }
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.start..self.start.saturating_add(self.len);
        f.debug_struct("Cached")
            .field("range", &format_args!("{:#x}..{end:#x}", HostAddr(start as u64).0))
            .field("registered", &format_args!("{}", self.registered()))
            .field("lkey", &self.lkey())
            .finish_non_exhaustive()
    }
}
