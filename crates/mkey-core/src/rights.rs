//! Access rights of registrations, windows and queue pairs, with the numbers of the verbs.

use crate::error::Reason;
use bitflags::bitflags;
use core::fmt;

bitflags! {
    /// What may be done to memory, and how it is registered. The values are those of
    /// `enum ibv_access_flags`. Local read is always on and has no bit.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Rights: u32 {
        /// The owner's work requests may write here (receive, landing of READ and atomics).
        const LOCAL_WRITE = 1;
        /// A peer may RDMA WRITE here.
        const REMOTE_WRITE = 1 << 1;
        /// A peer may RDMA READ from here.
        const REMOTE_READ = 1 << 2;
        /// A peer may perform atomics here.
        const REMOTE_ATOMIC = 1 << 3;
        /// Windows may be bound to this region.
        const MW_BIND = 1 << 4;
        /// Addresses count from 0 at the start.
        const ZERO_BASED = 1 << 5;
        /// Pages are not pinned; they fault in when touched.
        const ON_DEMAND = 1 << 6;
        /// On-demand memory lies in huge pages.
        const HUGETLB = 1 << 7;
        /// A peer may flush to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// A peer may flush to persistence.
        const FLUSH_PERSISTENT = 1 << 9;
        /// A hint that the device may reorder its writes; bits 20 to 29 are optional.
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Rights {
    /// Bits that a device which does not know them drops silently (rule R-REG-03).
    pub const OPTIONAL_BITS: u32 = 0x3ff << 20;
    /// The rights that let a peer in.
    pub const REMOTE: Rights = Rights::REMOTE_WRITE
        .union(Rights::REMOTE_READ)
        .union(Rights::REMOTE_ATOMIC)
        .union(Rights::FLUSH_GLOBAL)
        .union(Rights::FLUSH_PERSISTENT);
    /// The rights that a region over a file descriptor's memory may have (rule R-REG-23).
    pub const DMA_BUF: Rights = Rights::LOCAL_WRITE
        .union(Rights::REMOTE_WRITE)
        .union(Rights::REMOTE_READ)
        .union(Rights::REMOTE_ATOMIC)
        .union(Rights::RELAXED_ORDERING);
    /// The rights for which the memory itself must be writable (rule R-REG-10).
    pub const NEED_WRITABLE: Rights = Rights::LOCAL_WRITE
        .union(Rights::REMOTE_WRITE)
        .union(Rights::REMOTE_ATOMIC)
        .union(Rights::MW_BIND);

    /// Reads the bits of `enum ibv_access_flags`: optional bits that are not known are dropped
    /// (R-REG-03), others refused with EINVAL (R-REG-02).
    pub fn from_verbs(bits: u32) -> Result<Self, Reason> {
        let unknown = bits & !Self::all().bits() & !Self::OPTIONAL_BITS;
        if unknown != 0 {
            return Err(Reason::UnknownRights { bits: unknown });
        }
        Ok(Self::from_bits_truncate(bits))
    }

    /// Refuses combinations that no registration may have: remote write or remote atomic without
    /// local write (R-REG-01), and bits that were made up.
    pub fn validate(self) -> Result<Self, Reason> {
        if self.intersects(Self::REMOTE_WRITE | Self::REMOTE_ATOMIC)
            && !self.contains(Self::LOCAL_WRITE)
        {
            return Err(Reason::InvalidRights { rights: self });
        }
        Self::from_verbs(self.bits())
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            f.write_str("local read only")
        } else {
            bitflags::parser::to_writer(self, f)
        }
    }
}

/// What one access wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Want {
    /// Read by the owner's own work request, through an lkey.
    LocalRead,
    /// Written by the owner's own work request, through an lkey.
    LocalWrite,
    /// Read by a peer, through an rkey.
    RemoteRead,
    /// Written by a peer, through an rkey.
    RemoteWrite,
    /// Read and written at once by a peer, through an rkey.
    RemoteAtomic,
}

impl Want {
    /// The right this access needs; none for a local read (R-REG-05).
    #[inline]
    pub const fn right(self) -> Rights {
        match self {
            Want::LocalRead => Rights::empty(),
            Want::LocalWrite => Rights::LOCAL_WRITE,
            Want::RemoteRead => Rights::REMOTE_READ,
            Want::RemoteWrite => Rights::REMOTE_WRITE,
            Want::RemoteAtomic => Rights::REMOTE_ATOMIC,
        }
    }

    /// Whether the key is an rkey.
    #[inline]
    pub const fn is_remote(self) -> bool {
        !matches!(self, Want::LocalRead | Want::LocalWrite)
    }

    /// Whether memory changes.
    #[inline]
    pub const fn writes(self) -> bool {
        !matches!(self, Want::LocalRead | Want::RemoteRead)
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Want::LocalRead => "local read",
            Want::LocalWrite => "local write",
            Want::RemoteRead => "remote read",
            Want::RemoteWrite => "remote write",
            Want::RemoteAtomic => "remote atomic",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_reg_01_remote_change_needs_local_write() {
        for right in [Rights::REMOTE_WRITE, Rights::REMOTE_ATOMIC] {
            assert!(
                matches!(right.validate(), Err(Reason::InvalidRights { rights }) if rights == right)
            );
            assert_eq!((right | Rights::LOCAL_WRITE).validate(), Ok(right | Rights::LOCAL_WRITE));
        }
        assert_eq!(Rights::REMOTE_READ.validate(), Ok(Rights::REMOTE_READ));
    }

    #[test]
    fn r_reg_02_unknown_bits_are_refused() {
        assert_eq!(Rights::from_verbs(1 << 15 | 1), Err(Reason::UnknownRights { bits: 1 << 15 }));
    }

    #[test]
    fn r_reg_03_optional_bits_are_dropped() {
        assert_eq!(Rights::from_verbs(1 | 1 << 25), Ok(Rights::LOCAL_WRITE));
        assert_eq!(Rights::from_verbs(1 << 20), Ok(Rights::RELAXED_ORDERING));
    }
}
