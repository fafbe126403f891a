//! Fast registration: scattered slices under one key, without a registration on the data path.

use crate::access::Access;
use crate::grant::{Ending, Means};
use crate::keep::Hold;
use crate::lease::{Begin, Closing, Ended, Kind, Lease, Leased, count};
use crate::pd::Pd;
use crate::qp::Qp;
use crate::remote::RemoteKey;
use crate::slice::Slice;
use crate::work::Work;
use mkey_core::address::IoAddr;
use mkey_core::data_plane::PostError;
use mkey_core::device::Capability;
use mkey_core::error::{Error, Reason, Result};
use mkey_core::key::{Lkey, Rkey};
use mkey_core::rights::Rights;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// A pool of fast registrations. Cheap to clone.
///
/// Each is used by one mapping at a time and is used again only when its end was confirmed; one
/// that an error met is freed. Used 255 times it is replaced, so that no key comes round.
#[derive(Clone, Debug)]
pub struct FastMrPool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    closing: Closing,
    entries: u32,
    pd: Pd,
}

impl FastMrPool {
    /// How to make a pool.
    pub fn builder(pd: &Pd) -> FastMrPoolBuilder<'_> {
        let most = pd.device().capabilities().max_fast_mr_entries;
        FastMrPoolBuilder { pd, entries: most.min(64), max: 1024, ready: 0 }
    }

    /// Slices that one mapping takes.
    pub fn entries(&self) -> u32 {
        self.inner.entries
    }

    /// Joins slices under one key, in this order, and posts that on `qp`: whatever is posted there
    /// later may use it (R-FR-12).
    ///
    /// # Errors
    /// As [`FastMrPool::prepare`]; as [`Qp::post`] refuses.
    pub fn map(&self, qp: &Qp, slices: &[Slice], access: Access) -> Result<FastMapping> {
        let mapping = self.prepare(qp, slices, access)?;
        match qp.post(&[mapping.register()]) {
            Ok(()) => Ok(mapping),
            Err(PostError { error, .. }) => Err(error),
        }
    }

    /// Makes a mapping ready, to be posted with [`FastMapping::register`]. One that is dropped
    /// unposted has no effect.
    ///
    /// # Errors
    /// Before the device is asked, what it could not map: `Argument` (no slices, more than
    /// [`FastMrPool::entries`], 4 GiB and more in all, rights that a fast registration can not
    /// have), `OtherPd`, `RightMissing` (local write: the mapping can not allow what a slice does
    /// not), `NotHere` (a slice of another mapping); copy then ([`gather`]). `Exhausted` where all
    /// are in use; `TableFull`.
    pub fn prepare(&self, qp: &Qp, slices: &[Slice], access: Access) -> Result<FastMapping> {
        let length = self.mappable(qp, slices, access)?;
        self.prepared(qp, slices, access, length, self.inner.closing.leases().take()?)
    }

    /// As [`FastMrPool::prepare`], and waits until one is idle, in turn. They become so as
    /// completions are polled: another thread does that.
    ///
    /// # Errors
    /// As [`FastMrPool::prepare`], but `TimedOut` where none came free.
    pub fn prepare_within(
        &self,
        qp: &Qp,
        slices: &[Slice],
        access: Access,
        timeout: Duration,
    ) -> Result<FastMapping> {
        let length = self.mappable(qp, slices, access)?;
        let lease = self.inner.closing.leases().take_within(timeout)?;
        self.prepared(qp, slices, access, length, lease)
    }

    /// As [`FastMrPool::prepare`], and waits until one is idle, in turn. Any async runtime will do;
    /// a future that is dropped leaves the queue.
    ///
    /// # Errors
    /// As [`FastMrPool::prepare`].
    pub async fn prepare_async(
        &self,
        qp: &Qp,
        slices: &[Slice],
        access: Access,
    ) -> Result<FastMapping> {
        let length = self.mappable(qp, slices, access)?;
        let lease = self.inner.closing.leases().taken().await?;
        self.prepared(qp, slices, access, length, lease)
    }

    /// Counts and gauges.
    pub fn stats(&self) -> FastMrStats {
        let leases = self.inner.closing.leases();
        let (gauges, counters) = (leases.gauges(), leases.counters());
        FastMrStats {
            allocated: gauges.allocated,
            in_use: gauges.in_use,
            most_in_use: gauges.most_in_use,
            entries: self.inner.entries.into(),
            mapped: count(&counters.begun),
            released: count(&counters.revoked),
            released_by_peer: count(&counters.by_peer),
            timed_out: count(&counters.timed_out),
            lost: count(&counters.lost),
            flushed: count(&counters.flushed),
            kept: count(&counters.kept),
            renewed: count(&counters.renewed),
            waits: count(&counters.waits),
            exhausted: count(&counters.exhausted),
        }
    }

    /// What a device would find out by an error of the queue pair; the bytes in all.
    fn mappable(&self, qp: &Qp, slices: &[Slice], access: Access) -> Result<u64> {
        let reason = match self.unmappable(qp, slices, access) {
            Ok(length) => return Ok(length),
            Err(reason) => reason,
        };
        Err(Error::new("map", format_args!("{} slices, {access}", slices.len()), reason))
    }

    fn unmappable(
        &self,
        qp: &Qp,
        slices: &[Slice],
        access: Access,
    ) -> std::result::Result<u64, Reason> {
        let most = self.inner.entries as usize;
        if slices.is_empty() || slices.len() > most {
            let (value, allowed) = (slices.len() as u64, "1 to the entries of the pool");
            return Err(Reason::Argument { what: "number of slices", value, allowed });
        }
        let rights = access.rights();
        if !MAPPABLE.contains(rights) {
            let (value, allowed) = (rights.bits().into(), "local write, remote rights, ordering");
            return Err(Reason::Argument { what: "rights", value, allowed });
        }
        let pd = self.inner.pd.tag();
        if qp.pd().tag() != pd {
            return Err(Reason::OtherPd);
        }
        let needed = rights & Rights::LOCAL_WRITE;
        let mut length = 0u64;
        for slice in slices {
            if slice.pd != pd {
                return Err(Reason::OtherPd);
            }
            if slice.mapped {
                let on = "the slice of a fast mapping, or memory of a file";
                return Err(Reason::NotHere { operation: "a fast mapping", on });
            }
            if !slice.rights.contains(needed) {
                return Err(Reason::RightMissing { missing: needed });
            }
            length = length.saturating_add(slice.len as u64);
        }
        let most = self.inner.pd.device().capabilities().max_mr_size.min(u32::MAX.into());
        if length == 0 || length > most {
            let allowed = "1 byte to 4 GiB - 1 and the device's max_mr_size";
            return Err(Reason::Argument { what: "length in all", value: length, allowed });
        }
        Ok(length)
    }

    fn prepared(
        &self,
        qp: &Qp,
        slices: &[Slice],
        access: Access,
        length: u64,
        lease: Arc<Lease>,
    ) -> Result<FastMapping> {
        let first = slices.first().map_or(IoAddr(0), |slice| slice.iova);
        let zero_based = self.inner.pd.device().capabilities().fast_mr_zero_based;
        // Counted from the first slice's address, where the device can and that leaves room.
        let iova = first.checked_add(length).filter(|_| !zero_based).map_or(IoAddr(0), |_| first);
        let begin = Begin::Register { iova, rights: access.rights() };
        let leased = Leased::prepare(lease, qp, slices, begin)?;
        let remote = RemoteKey { key: Rkey(leased.key()), address: iova, length };
        Ok(FastMapping { leased, remote, access })
    }
}

/// What a mapping may allow; windows can not lie on one.
const MAPPABLE: Rights = Rights::REMOTE_READ
    .union(Rights::REMOTE_WRITE)
    .union(Rights::REMOTE_ATOMIC)
    .union(Rights::LOCAL_WRITE)
    .union(Rights::RELAXED_ORDERING);

/// Slices under one key, until that is released, the peer ends it, or it is dropped. The slices are
/// kept until the end is confirmed.
#[derive(Debug)]
#[must_use = "a mapping that is dropped is released"]
pub struct FastMapping {
    leased: Leased,
    remote: RemoteKey,
    access: Access,
}

impl FastMapping {
    /// Bytes.
    pub fn len(&self) -> u64 {
        self.remote.length
    }

    /// Never: a mapping has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.remote.length == 0
    }

    /// What a peer needs. The key is new for each mapping.
    ///
    /// # Errors
    /// `RightMissing` if it was mapped local-only.
    pub fn remote_key(&self) -> Result<RemoteKey> {
        if self.access.is_exposed() {
            return Ok(self.remote);
        }
        let reason = Reason::RightMissing { missing: Rights::REMOTE };
        Err(Error::new("remote_key", format_args!("{}", self.access), reason))
    }

    /// All of it, for work requests of this process: one entry instead of many. It has no address
    /// in the process, so its bytes are read and written by the slices that were mapped. The
    /// mapping is not ended as long as it lives; work that is posted with it counts.
    pub fn slice(&self) -> Slice {
        let Self { leased, remote, access } = self;
        Slice {
            start: NonNull::dangling(),
            len: remote.length as usize,
            iova: remote.address,
            lkey: Lkey(leased.key()),
            rkey: access.is_exposed().then_some(remote.key),
            rights: access.rights(),
            pd: leased.pd(),
            private: false,
            mapped: true,
            hold: Hold::mapping(leased.view()),
        }
    }

    /// The work request that makes the key valid: to be posted, once, on the queue pair that the
    /// mapping was made for, before its first use. It makes no completion, unless it fails, and
    /// with it the queue pair.
    pub fn register(&self) -> Work<'_> {
        self.leased.begin()
    }

    /// The work request that ends the mapping (LOCAL_INV), for a chain; [`FastMapping::release`]
    /// posts it alone. Of several in a chain the last may be signaled for all
    /// ([`Work::unsignaled`]). Where the mapping has ended already, nothing is posted; where a
    /// [`FastMapping::slice`] of it is out, posting is refused with `StillUsed`.
    pub fn invalidate(&self) -> Work<'_> {
        self.leased.end()
    }

    /// Posts the end of the mapping, and returns what tells when that is done. Where it can not be
    /// posted (the queue pair is gone, or its queue full), the registration is freed instead:
    /// slower, and done on return.
    ///
    /// # Errors
    /// The mapping, and `StillUsed` while a [`FastMapping::slice`] of it is out.
    #[expect(clippy::result_large_err, reason = "it is the mapping, given back")]
    pub fn release(self) -> std::result::Result<Ending, (Self, Error)> {
        if self.leased.is_viewed() {
            let reason = Reason::StillUsed { what: "fast mapping" };
            let error = Error::new("release", format_args!("{:?}", self.leased), reason);
            return Err((self, error));
        }
        self.leased.revoke();
        Ok(Ending::new(Means::Leased(self.leased)))
    }

    /// The peer was asked to end the mapping by SEND_WITH_INV: returns what tells when it has. If
    /// that is dropped before, the registration is freed.
    pub fn await_peer(mut self) -> Ending {
        self.leased.awaits_peer = true;
        Ending::new(Means::Leased(self.leased))
    }

    /// How it ended, if it has: the peer may end it at any time, if it has the key.
    ///
    /// # Errors
    /// As [`Ending::abandon`].
    pub fn ended(&self) -> Result<Option<Ended>> {
        self.leased.ended()
    }
}

/// How to make a pool of fast registrations.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct FastMrPoolBuilder<'a> {
    pd: &'a Pd,
    entries: u32,
    max: u32,
    ready: u32,
}

impl FastMrPoolBuilder<'_> {
    /// Slices that one mapping takes: 64 unless told otherwise, or what the device takes.
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = entries;
        self
    }

    /// Mappings at a time: 1024 unless told otherwise.
    pub fn max(mut self, mappings: u32) -> Self {
        self.max = mappings;
        self
    }

    /// Allocated at once, not when they are needed: none unless told otherwise.
    pub fn ready(mut self, mappings: u32) -> Self {
        self.ready = mappings;
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// `Unsupported` where the device has no fast registration; `Argument` for more entries than
    /// it takes; `TableFull`.
    pub fn build(self) -> Result<FastMrPool> {
        let Self { pd, entries, max, ready } = self;
        let most = pd.device().capabilities().max_fast_mr_entries;
        let reason = if most == 0 {
            Reason::Unsupported { capability: Capability::FastMr }
        } else if entries == 0 || entries > most {
            let (value, allowed) = (entries.into(), "1 to the device's max_fast_mr_entries");
            Reason::Argument { what: "entries", value, allowed }
        } else {
            let closing = Closing::new(pd, Kind::FastMr(entries), max);
            closing.leases().prepare(ready)?;
            return Ok(FastMrPool { inner: Arc::new(Inner { closing, entries, pd: pd.clone() }) });
        };
        Err(Error::new("alloc_mr", format_args!("{entries} of {most} entries"), reason))
    }
}

/// Counts and gauges of a pool of fast registrations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FastMrStats {
    /// At the device.
    pub allocated: u64,
    /// Of these, prepared, mapped, or waiting for the confirmation of their end.
    pub in_use: u64,
    /// The most in use at a time.
    pub most_in_use: u64,
    /// Slices that one takes.
    pub entries: u64,
    /// Mappings begun: their registration was posted.
    pub mapped: u64,
    /// Ended by this side; used again since, or ready for it.
    pub released: u64,
    /// Ended by the peer's SEND_WITH_INV.
    pub released_by_peer: u64,
    /// Ended by freeing the registration, as no confirmation came in time.
    pub timed_out: u64,
    /// Freed as their end was in doubt: these, and those that errors met.
    pub lost: u64,
    /// Of these, those whose work was flushed as their queue pair failed or was destroyed.
    pub flushed: u64,
    /// Those that the device would not free, with the slices behind them.
    pub kept: u64,
    /// Replaced, as their key had no variant left.
    pub renewed: u64,
    /// Waits for an idle one.
    pub waits: u64,
    /// Refused, or timed out, as all were in use.
    pub exhausted: u64,
}

/// The way around what can not be mapped: copies the slices, one after the other, into the start of
/// `into`; that part of it.
///
/// # Errors
/// `OutOfRange` if it is too short, before anything is copied; as [`Slice::copy_from`].
pub fn gather(from: &[Slice], into: &Slice) -> Result<Slice> {
    let length = from.iter().fold(0usize, |sum, slice| sum.saturating_add(slice.len));
    let all = into.part(..length)?;
    let mut done = 0;
    for slice in from {
        all.part(done..)?.copy_from(slice)?;
        done += slice.len;
    }
    Ok(all)
}

/// The way back: copies the start of `from` into the slices, one after the other.
///
/// # Errors
/// `OutOfRange` if it is too short, before anything is copied; as [`Slice::copy_from`].
pub fn scatter(from: &Slice, into: &[Slice]) -> Result<()> {
    let length = into.iter().fold(0usize, |sum, slice| sum.saturating_add(slice.len));
    let all = from.part(..length)?;
    let mut done = 0;
    for slice in into {
        slice.copy_from(&all.part(done..done + slice.len)?)?;
        done += slice.len;
    }
    Ok(())
}
