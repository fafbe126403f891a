//! A range of memory with the rights that it has, or is asked to have.

use super::error::CacheError;
use mkey_core::address::{HostAddr, HostRange};
use mkey_core::error::{Error, Reason};
use mkey_core::rights::Rights;
use std::ops::Range;

/// Rights and flags that a registration must share with the request, not merely include: they
/// change how the memory is accessed, not only by whom.
const EXACT: Rights = Rights::RELAXED_ORDERING.union(Rights::ON_DEMAND).union(Rights::HUGETLB);

/// `[start, end)`, not empty, with rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) rights: Rights,
}

impl Span {
    /// What is registered for a request: whole pages of `page` bytes, a power of two.
    pub(super) fn around(
        address: usize,
        len: usize,
        rights: Rights,
        page: usize,
    ) -> Result<Self, CacheError> {
        let refused = |reason| {
            let arguments = format!("{len} bytes from {address:#x}, {rights}");
            Err(CacheError::Register(Error::new("cache_get", arguments, reason)))
        };
        if let Err(reason) = rights.validate() {
            return refused(reason);
        }
        if rights.contains(Rights::ZERO_BASED) {
            // The registration starts at the page, so its address 0 would not be the caller's.
            let (what, value) = ("access", u64::from(rights.bits()));
            let allowed = "any but ZERO_BASED: the cache registers whole pages";
            return refused(Reason::Argument { what, value, allowed });
        }
        if len == 0 {
            let allowed = "at least one byte";
            return refused(Reason::Argument { what: "length", value: 0, allowed });
        }
        let mask = page - 1;
        let end = address.checked_add(len).and_then(|end| end.checked_add(mask));
        let Some(end) = end else {
            let (address, length) = (HostAddr(address as u64), len as u64);
            return refused(Reason::Wraps { address, length });
        };
        Ok(Self { start: address & !mask, end: end & !mask, rights })
    }

    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(super) fn host(&self) -> HostRange {
        HostRange { start: HostAddr(self.start as u64), len: self.len() as u64 }
    }

    /// Whether a registration of this serves a request for `wanted`.
    pub(super) fn serves(&self, wanted: &Span) -> bool {
        self.start <= wanted.start
            && wanted.end <= self.end
            && rights_serve(self.rights.bits(), wanted.rights.bits())
    }

    pub(super) fn overlaps(&self, range: &Range<usize>) -> bool {
        self.start < range.end && range.start < self.end
    }
}

/// Whether rights include those wanted, and agree exactly in what must be exact.
#[inline]
pub(super) fn rights_serve(has: u32, wanted: u32) -> bool {
    (has ^ wanted) & (wanted | EXACT.bits()) == 0
}
