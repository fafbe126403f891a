//! The access check: key, domain, queue pair, address, length, right wanted.
//!
//! Order (R-RA, R-KEY): index, then all 32 bits, then state, domain, queue pair, rights, range.

use super::entry::{Entry, Meta, State};
use super::range::{Fit, fit};
use crate::address::IoAddr;
use crate::key::Key;
use crate::refusal::{PdId, QpId, Refusal};
use crate::rights::Want;

/// One access to registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The key offered: an rkey if the access comes from a peer, else an lkey.
    pub key: Key,
    /// The domain of the queue pair that it comes by.
    pub pd: PdId,
    /// The queue pair that it comes by.
    pub qp: QpId,
    /// First byte, counted as the key's object counts.
    pub address: IoAddr,
    /// Length in bytes. Accesses of no bytes are allowed without a look at the key (R-RA-11,
    /// R-LOC-09): do not ask.
    pub length: u64,
    /// What is wanted.
    pub want: Want,
}

/// Checks an access whose use is published against the entry of its index, of which `meta` was
/// read after that. The distance from the first byte of the range, or the reason.
#[inline(always)]
pub(super) fn check(entry: &Entry, meta: Meta, access: &Access) -> Result<u64, Refusal> {
    let named =
        if access.want.is_remote() { meta.is_rkey(access.key) } else { meta.is_lkey(access.key) };
    if meta.state() != State::Valid || !named {
        return Err(unusable(meta, access.key, access.want.is_remote()));
    }
    let owner = entry.owner();
    if owner.pd() != access.pd {
        return Err(Refusal::OtherPd { key: access.key, key_pd: owner.pd(), qp_pd: access.pd });
    }
    if owner.qp() != QpId(0) && owner.qp() != access.qp {
        return Err(Refusal::OtherQp { key: access.key, key_qp: owner.qp(), qp: access.qp });
    }
    if !meta.rights().contains(access.want.right()) {
        return Err(Refusal::RightMissing {
            key: access.key,
            want: access.want,
            has: meta.rights(),
        });
    }
    let start = entry.base();
    match fit(start, entry.length(), access.address.0, access.length) {
        Fit::Within(offset) => Ok(offset),
        Fit::Before(by) => Err(Refusal::BeforeStart {
            key: access.key,
            start: IoAddr(start),
            address: access.address,
            by,
        }),
        Fit::Past(by) => Err(Refusal::PastEnd {
            key: access.key,
            start: IoAddr(start),
            length: entry.length(),
            address: access.address,
            by,
        }),
    }
}

/// Whether a plain region serves the access: then what [`check`] says of it, by fewer comparisons.
/// Where it says no, [`check`] has the reason, or the key names something else.
#[inline(always)]
pub(super) fn serves_plainly(entry: &Entry, meta: Meta, access: &Access) -> Option<u64> {
    let same = meta.is_plain_region_for(access.key, access.want);
    // A region is any queue pair's of its domain.
    if !same || entry.owner().pd() != access.pd {
        return None;
    }
    match fit(entry.base(), entry.length(), access.address.0, access.length) {
        Fit::Within(offset) => Some(offset),
        Fit::Before(_) | Fit::Past(_) => None,
    }
}

/// Why a key, offered as rkey (`remote`) or as lkey, names nothing that is in force.
#[cold]
pub(super) fn unusable(meta: Meta, key: Key, remote: bool) -> Refusal {
    if meta.state() == State::Empty {
        return Refusal::UnknownIndex { key };
    }
    match (remote, meta.is_lkey(key), meta.is_rkey(key)) {
        (true, _, true) | (false, true, _) => Refusal::NotValid { key, kind: meta.kind() },
        (true, true, false) => Refusal::LkeyAsRkey { key },
        (false, false, true) => Refusal::RkeyAsLkey { key },
        (_, false, false) => Refusal::StaleVariant { key, kind: meta.kind() },
    }
}

/// Atomics need addresses that are multiples of 8; this is decided before the key is looked at
/// (R-AT-02, R-AT-03).
pub fn atomic_alignment(address: IoAddr) -> Result<(), Refusal> {
    if address.0.is_multiple_of(8) { Ok(()) } else { Err(Refusal::Misaligned { address }) }
}
