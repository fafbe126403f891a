//! What the grants of a protection domain are made of, and how many there are.

use crate::lease::{Closing, Counters, Kind, bump, count};
use crate::pd::Pd;
use crate::sync::lock;
use mkey_core::error::{Error, Reason, Result};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// What grants are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GrantPolicy {
    /// Windows of type 2: bound on the data path, tied to one queue pair (R-MWU-03).
    #[default]
    Window,
    /// Fast registrations: made on the data path, but every queue pair of the protection domain can
    /// use the key. One domain per peer keeps peers apart.
    FastMr,
    /// A memory region for each grant: a registration on the data path, with its cost, and a key
    /// that every queue pair of the protection domain can use. The peer can not end it.
    MrPerGrant,
    /// No grants.
    Refuse,
}

impl fmt::Display for GrantPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Window => "type 2 memory windows",
            Self::FastMr => "fast registrations",
            Self::MrPerGrant => "a memory region per grant",
            Self::Refuse => "no grants",
        })
    }
}

/// How the grants of a protection domain are made: [`Pd::set_grants`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct GrantOptions {
    policy: GrantPolicy,
    otherwise: GrantPolicy,
    max: u32,
    ready: u32,
}

impl Default for GrantOptions {
    fn default() -> Self {
        let (policy, otherwise) = (GrantPolicy::Window, GrantPolicy::Refuse);
        Self { policy, otherwise, max: 1024, ready: 0 }
    }
}

impl GrantOptions {
    /// Made of this: windows unless told otherwise.
    pub fn policy(mut self, policy: GrantPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Made of that where the device does not offer the first: refused unless told otherwise. What
    /// is in force: [`Grants::policy`].
    pub fn otherwise(mut self, policy: GrantPolicy) -> Self {
        self.otherwise = policy;
        self
    }

    /// Grants at a time: 1024 unless told otherwise.
    pub fn max(mut self, grants: u32) -> Self {
        self.max = grants;
        self
    }

    /// Windows allocated at once, not when they are needed: none unless told otherwise.
    pub fn ready(mut self, windows: u32) -> Self {
        self.ready = windows;
        self
    }
}

/// What the grants of a protection domain are made of. Cheap to clone; the windows are freed when
/// the last clone is gone, those included that queue pairs keep which have granted. Keep one for as
/// long as windows shall be ready and counts go on.
#[derive(Clone, Debug)]
#[must_use = "the windows are freed, and counts begin anew, when the last clone is gone"]
pub struct Grants {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) source: Source,
    pub(super) max: u32,
    pub(super) pd: Pd,
}

#[derive(Debug)]
pub(super) enum Source {
    Leases(Closing, GrantPolicy),
    Regions(Regions),
    Refuse,
}

/// Counts of grants that are regions of their own.
#[derive(Debug, Default)]
pub(super) struct Regions {
    pub(super) counters: Counters,
    in_use: AtomicU64,
    most_in_use: AtomicU64,
}

/// Counts and gauges of the grants of a protection domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantStats {
    /// Windows (or what the policy has instead) at the device.
    pub allocated: u64,
    /// Of these, prepared, live, or waiting for the confirmation of their end.
    pub in_use: u64,
    /// The most in use at a time.
    pub most_in_use: u64,
    /// Grants begun: their binding was posted.
    pub binds: u64,
    /// Ended by this side.
    pub revoked: u64,
    /// Ended by the peer's SEND_WITH_INV.
    pub revoked_by_peer: u64,
    /// Ended by freeing the window, as no confirmation came in time.
    pub timed_out: u64,
    /// Windows freed as their end was in doubt: these, and those that errors met.
    pub lost: u64,
    /// Windows that the device would not free, with the slices behind them.
    pub kept: u64,
    /// Windows replaced, as their key had no variant left.
    pub renewed: u64,
    /// Waits for a window.
    pub waits: u64,
    /// Refused, or timed out, as all were in use.
    pub exhausted: u64,
}

impl Grants {
    /// The policy in force.
    pub fn policy(&self) -> GrantPolicy {
        match &self.inner.source {
            Source::Leases(_, policy) => *policy,
            Source::Regions(_) => GrantPolicy::MrPerGrant,
            Source::Refuse => GrantPolicy::Refuse,
        }
    }

    /// Counts and gauges.
    pub fn stats(&self) -> GrantStats {
        let (counters, allocated, in_use, most_in_use) = match &self.inner.source {
            Source::Leases(closing, _) => {
                let gauges = closing.leases().gauges();
                let counters = closing.leases().counters();
                (counters, gauges.allocated, gauges.in_use, gauges.most_in_use)
            }
            Source::Regions(regions) => {
                let in_use = count(&regions.in_use);
                (&regions.counters, in_use, in_use, count(&regions.most_in_use))
            }
            Source::Refuse => return GrantStats::default(),
        };
        GrantStats {
            allocated,
            in_use,
            most_in_use,
            binds: count(&counters.begun),
            revoked: count(&counters.revoked),
            revoked_by_peer: count(&counters.by_peer),
            timed_out: count(&counters.timed_out),
            lost: count(&counters.lost),
            kept: count(&counters.kept),
            renewed: count(&counters.renewed),
            waits: count(&counters.waits),
            exhausted: count(&counters.exhausted),
        }
    }

    fn new(pd: &Pd, options: &GrantOptions) -> Result<Self> {
        let capabilities = pd.device().capabilities();
        let able = |policy: &GrantPolicy| match policy {
            GrantPolicy::Window => capabilities.window2,
            GrantPolicy::FastMr => capabilities.max_fast_mr_entries > 0,
            GrantPolicy::MrPerGrant | GrantPolicy::Refuse => true,
        };
        let choices = [options.policy, options.otherwise];
        let policy = choices.into_iter().find(able).unwrap_or(GrantPolicy::Refuse);
        let leases = |kind| -> Result<Source> {
            let closing = Closing::new(pd, kind, options.max);
            closing.leases().prepare(options.ready)?;
            Ok(Source::Leases(closing, policy))
        };
        let source = match policy {
            GrantPolicy::Window => leases(Kind::Window)?,
            GrantPolicy::FastMr => leases(Kind::FastMr(1))?,
            GrantPolicy::MrPerGrant => Source::Regions(Regions::default()),
            GrantPolicy::Refuse => Source::Refuse,
        };
        Ok(Self { inner: Arc::new(Inner { source, max: options.max, pd: pd.clone() }) })
    }
}

impl Regions {
    pub(super) fn begin(&self, max: u32) -> Result<()> {
        let limit = u64::from(max);
        let more = |in_use| (in_use < limit).then_some(in_use + 1);
        match self.in_use.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(before) => {
                self.most_in_use.fetch_max(before + 1, Ordering::Relaxed);
                Ok(())
            }
            Err(_) => {
                bump(&self.counters.exhausted);
                let what = "number of grants";
                let reason = Reason::Exhausted { what, asked: 1, free: 0, limit };
                Err(Error::new("grant", "a memory region per grant", reason))
            }
        }
    }

    pub(super) fn end(&self) {
        self.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a protection domain knows of its grants.
#[derive(Debug, Default)]
pub(crate) struct PdGrants {
    options: GrantOptions,
    grants: Weak<Inner>,
}

impl Pd {
    /// How the grants of this domain are made from now on, before the first one is. Keep what is
    /// returned: [`GrantOptions::ready`] and [`GrantStats`] last as long as that, or a queue pair
    /// that has granted.
    ///
    /// # Errors
    /// `StillUsed` while a queue pair or a [`Grants`] keeps windows; as the device refuses the
    /// windows to be ready.
    pub fn set_grants(&self, options: GrantOptions) -> Result<Grants> {
        let mut state = lock(self.grant_state());
        if state.grants.strong_count() > 0 {
            let reason = Reason::StillUsed { what: "pool of windows" };
            return Err(Error::new("set_grants", format_args!("{options:?}"), reason));
        }
        let grants = Grants::new(self, &options)?;
        *state = PdGrants { options, grants: Arc::downgrade(&grants.inner) };
        Ok(grants)
    }

    /// What grants of this domain are made of. Made anew, with counts of 0, where nobody keeps it.
    ///
    /// # Errors
    /// As [`Pd::set_grants`].
    pub fn grants(&self) -> Result<Grants> {
        let mut state = lock(self.grant_state());
        if let Some(inner) = state.grants.upgrade() {
            return Ok(Grants { inner });
        }
        let grants = Grants::new(self, &state.options)?;
        state.grants = Arc::downgrade(&grants.inner);
        Ok(grants)
    }
}
