//! Grants: a slice, opened to the peer of one queue pair for as long as it takes.
//!
//! ```no_run
//! # use mkey::{Cq, Mr, PeerAccess, Qp, Work};
//! # use std::time::Duration;
//! # fn serve(mr: &Mr, qp: &Qp, cq: &Cq) -> Result<(), Box<dyn std::error::Error>> {
//! let slice = mr.slice(0..4096)?;
//! let grant = slice.prepare_grant(qp, PeerAccess::READ)?;
//! let key = grant.remote_key().to_bytes();
//! // One post: the window is bound before the message that carries its key is sent.
//! qp.post(&[grant.bind(), Work::send_inline(&key)]).map_err(|refused| refused.error)?;
//! // The peer reads, and answers; then nobody can, and the slice may be used again.
//! grant.revoke().wait_polling(cq, Duration::from_secs(1), |_other| {})?;
//! # Ok(())
//! # }
//! ```

mod ending;
mod options;
mod region;

pub use ending::Ending;
pub(crate) use ending::Means;
pub(crate) use options::PdGrants;
pub use options::{GrantOptions, GrantPolicy, GrantStats, Grants};

use crate::access::PeerAccess;
use crate::lease::{Begin, Ended, Lease, Leased};
use crate::qp::Qp;
use crate::remote::RemoteKey;
use crate::slice::Slice;
use crate::work::Work;
use mkey_core::data_plane::PostError;
use mkey_core::device::Capability;
use mkey_core::error::{Error, Reason, Result};
use mkey_core::key::Rkey;
use mkey_core::rights::Rights;
use options::Source;
use region::RegionGrant;
use std::sync::Arc;
use std::time::Duration;

impl Slice {
    /// Opens exactly this slice to the peer of `qp`, and to no other (R-MWU-03): a window of type 2
    /// is bound to it, after all earlier READs of the queue pair (R-ORD-01) and before whatever is
    /// posted there later (R-ORD-02), so that the key may go out in the next message.
    ///
    /// Binding and the message in one post: [`Slice::prepare_grant`].
    ///
    /// # Errors
    /// As [`Slice::prepare_grant`]; as [`Qp::post`] refuses.
    pub fn grant(&self, qp: &Qp, access: PeerAccess) -> Result<Grant> {
        let grant = self.prepare_grant(qp, access)?;
        match qp.post(&[grant.bind()]) {
            Ok(()) => Ok(grant),
            Err(PostError { error, .. }) => Err(error),
        }
    }

    /// Makes a grant ready, to be posted with [`Grant::bind`]. One that is dropped unposted has no
    /// effect.
    ///
    /// # Errors
    /// Before the device is asked: `RightMissing` (the region lacks `MW_BIND`, or LOCAL_WRITE for
    /// changes by the peer: R-MW-13, R-MW-14), `OtherPd`, `Argument` for a slice that is empty
    /// (R-MW-28) or of 4 GiB and more; `Exhausted` where all windows are in use; `Unsupported` by
    /// policy ([`GrantPolicy`]); `TableFull`.
    pub fn prepare_grant(&self, qp: &Qp, access: PeerAccess) -> Result<Grant> {
        let grants = self.grantable(qp, access)?;
        match &grants.inner.source {
            Source::Leases(leases, _) => self.prepare(qp, access, grants, leases.leases().take()?),
            Source::Regions(_) | Source::Refuse => self.region(grants, access),
        }
    }

    /// As [`Slice::prepare_grant`], and waits for a window, in turn. Windows come free as
    /// completions are polled: another thread does that.
    ///
    /// # Errors
    /// As [`Slice::prepare_grant`], but `TimedOut` where none came free. A grant that is made of
    /// regions of its own does not wait.
    pub fn prepare_grant_within(
        &self,
        qp: &Qp,
        access: PeerAccess,
        timeout: Duration,
    ) -> Result<Grant> {
        let grants = self.grantable(qp, access)?;
        match &grants.inner.source {
            Source::Leases(leases, _) => {
                self.prepare(qp, access, grants, leases.leases().take_within(timeout)?)
            }
            Source::Regions(_) | Source::Refuse => self.region(grants, access),
        }
    }

    /// As [`Slice::prepare_grant`], and waits for a window, in turn. Any async runtime will do; a
    /// future that is dropped leaves the queue.
    ///
    /// # Errors
    /// As [`Slice::prepare_grant`].
    pub async fn prepare_grant_async(&self, qp: &Qp, access: PeerAccess) -> Result<Grant> {
        let grants = self.grantable(qp, access)?;
        match &grants.inner.source {
            Source::Leases(leases, _) => {
                self.prepare(qp, access, grants, leases.leases().taken().await?)
            }
            Source::Regions(_) | Source::Refuse => self.region(grants, access),
        }
    }

    /// What a device would find out by an error of the queue pair.
    fn grantable<'a>(&self, qp: &'a Qp, access: PeerAccess) -> Result<&'a Grants> {
        let grants = qp.inner.grants()?;
        let binds = grants.policy() == GrantPolicy::Window;
        let needs = match (binds, access.of_registration().contains(Rights::LOCAL_WRITE)) {
            (true, true) => Rights::MW_BIND | Rights::LOCAL_WRITE,
            (true, false) => Rights::MW_BIND,
            (false, true) => Rights::LOCAL_WRITE,
            (false, false) => Rights::empty(),
        };
        let missing = needs - self.rights;
        let reason = if grants.policy() == GrantPolicy::Refuse {
            Reason::Unsupported { capability: Capability::Window2 }
        } else if self.pd != qp.pd().tag() {
            Reason::OtherPd
        } else if self.mapped {
            Reason::NotHere { operation: "a grant", on: "a fast mapping, or memory of a file" }
        } else if !missing.is_empty() {
            Reason::RightMissing { missing }
        } else if self.is_empty() || u32::try_from(self.len).is_err() {
            let (value, allowed) = (self.len as u64, "at least 1 byte and less than 4 GiB");
            Reason::Argument { what: "length", value, allowed }
        } else {
            return Ok(grants);
        };
        Err(Error::new("grant", format_args!("{access} on {self:?}"), reason))
    }

    fn prepare(
        &self,
        qp: &Qp,
        access: PeerAccess,
        grants: &Grants,
        lease: Arc<Lease>,
    ) -> Result<Grant> {
        let begin = match grants.policy() {
            GrantPolicy::FastMr => {
                Begin::Register { iova: self.iova, rights: access.of_registration() }
            }
            _ => Begin::Bind(access.rights()),
        };
        let leased = Leased::prepare(lease, qp, std::slice::from_ref(self), begin)?;
        let key = Rkey(leased.key());
        let remote = RemoteKey { key, address: self.iova, length: self.len as u64 };
        Ok(Grant { means: Means::Leased(leased), remote })
    }

    fn region(&self, grants: &Grants, access: PeerAccess) -> Result<Grant> {
        let region = RegionGrant::new(self, grants, access)?;
        let remote = RemoteKey { key: region.key(), address: self.iova, length: self.len as u64 };
        Ok(Grant { means: Means::Region(region), remote })
    }
}

/// One slice, open to the peer of one queue pair, until it is revoked, the peer ends it, or it is
/// dropped. The slice is kept until the end is *confirmed*: a request that timed out can not write
/// into a buffer that was given to the next one.
#[derive(Debug)]
#[must_use = "a grant that is dropped is revoked"]
pub struct Grant {
    means: Means,
    remote: RemoteKey,
}

impl Grant {
    /// What the peer needs. The key is new for each grant, and valid from its binding to its end.
    pub fn remote_key(&self) -> RemoteKey {
        self.remote
    }

    /// The work request that binds the window: to be posted, once, on the queue pair that the grant
    /// was made for, before the message that carries the key. It makes no completion, unless it
    /// fails, and with it the queue pair.
    pub fn bind(&self) -> Work<'_> {
        match &self.means {
            Means::Leased(leased) => leased.begin(),
            Means::Region(_) => Work::idle(),
        }
    }

    /// The work request that ends the grant (LOCAL_INV), for a chain; [`Grant::revoke`] posts it
    /// alone. Of several in a chain the last may be signaled for all:
    /// [`Work::unsignaled`]. Where the grant has ended already, nothing is posted.
    pub fn invalidate(&self) -> Work<'_> {
        match &self.means {
            Means::Leased(leased) => leased.end(),
            Means::Region(_) => Work::idle(),
        }
    }

    /// Posts the end of the grant, and returns what tells when that is done. Not for a grant that
    /// the peer may be ending at the same time ([`Grant::await_peer`]): invalidating twice is an
    /// error of the queue pair (R-INV-06).
    ///
    /// Where it can not be posted (the queue pair is gone, or its queue full), the window is freed
    /// instead: slower, and done on return.
    pub fn revoke(mut self) -> Ending {
        match &mut self.means {
            Means::Leased(leased) => leased.revoke(),
            Means::Region(region) => region.end(),
        }
        Ending::new(self.means)
    }

    /// The peer was asked to end the grant by SEND_WITH_INV: returns what tells when it has. If
    /// that is dropped before, the window is freed.
    pub fn await_peer(mut self) -> Ending {
        if let Means::Leased(leased) = &mut self.means {
            leased.awaits_peer = true;
        }
        Ending::new(self.means)
    }

    /// How it ended, if it has: the peer may end it at any time.
    ///
    /// # Errors
    /// As [`Ending::abandon`].
    pub fn ended(&self) -> Result<Option<Ended>> {
        self.means.ended()
    }
}
