//! Rights as validated types: combinations that no registration may have can not be written.

use mkey_core::error::{Error, Result};
use mkey_core::rights::Rights;
use std::fmt;
use std::ops::BitOr;

/// Rights of a registration. Local-only by default; letting peers in is a step of its own, with a
/// name. What needs local write (R-REG-01) brings it along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access(Rights);

impl Access {
    /// Read and written by work requests of this process; nothing for peers.
    pub const fn local() -> Self {
        Self(Rights::LOCAL_WRITE)
    }

    /// Only read by work requests of this process: what memory mapped read-only can have.
    pub const fn local_read() -> Self {
        Self(Rights::empty())
    }

    /// Peers that have the key may RDMA READ.
    pub const fn remote_read(self) -> Self {
        self.with(Rights::REMOTE_READ)
    }

    /// Peers that have the key may RDMA WRITE; implies local write (R-REG-01).
    pub const fn remote_write(self) -> Self {
        self.with(Rights::REMOTE_WRITE.union(Rights::LOCAL_WRITE))
    }

    /// Peers that have the key may perform atomics; implies local write (R-REG-01).
    pub const fn remote_atomic(self) -> Self {
        self.with(Rights::REMOTE_ATOMIC.union(Rights::LOCAL_WRITE))
    }

    /// Windows may be bound to parts of it: what [`grant`](crate::Slice::grant) needs. Peers get
    /// nothing by that alone.
    pub const fn windows(self) -> Self {
        self.with(Rights::MW_BIND)
    }

    /// Pages are not pinned: they fault in when touched.
    pub const fn on_demand(self) -> Self {
        self.with(Rights::ON_DEMAND)
    }

    /// The device may reorder its writes, if it knows how to: only a message that comes later
    /// tells that data is there, not a poll of its last byte.
    pub const fn relaxed_ordering(self) -> Self {
        self.with(Rights::RELAXED_ORDERING)
    }

    /// The rights of the verbs.
    ///
    /// # Errors
    /// `InvalidRights` (R-REG-01), `UnknownRights` (R-REG-02).
    pub fn from_rights(rights: Rights) -> Result<Self> {
        let fail = |reason| Error::new("access", rights, reason);
        rights.validate().map(Self).map_err(fail)
    }

    /// As the verbs have them.
    pub const fn rights(self) -> Rights {
        self.0
    }

    /// Whether a peer that has the key may access the memory.
    pub const fn is_exposed(self) -> bool {
        self.0.intersects(Rights::REMOTE)
    }

    const fn with(self, more: Rights) -> Self {
        Self(self.0.union(more))
    }
}

impl Default for Access {
    fn default() -> Self {
        Self::local()
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a grant lets its peer do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAccess(Rights);

impl PeerAccess {
    /// RDMA READ.
    pub const READ: Self = Self(Rights::REMOTE_READ);
    /// RDMA WRITE.
    pub const WRITE: Self = Self(Rights::REMOTE_WRITE);
    /// Atomics.
    pub const ATOMIC: Self = Self(Rights::REMOTE_ATOMIC);
    /// All three: what queue pairs let by unless told otherwise, as the memory's own rights decide.
    pub const ALL: Self =
        Self(Rights::REMOTE_READ.union(Rights::REMOTE_WRITE).union(Rights::REMOTE_ATOMIC));

    /// As the verbs have them.
    pub const fn rights(self) -> Rights {
        self.0
    }

    /// The least rights of a registration of its own that grants this.
    pub(crate) const fn of_registration(self) -> Rights {
        if self.0.intersects(Rights::REMOTE_WRITE.union(Rights::REMOTE_ATOMIC)) {
            self.0.union(Rights::LOCAL_WRITE)
        } else {
            self.0
        }
    }
}

impl BitOr for PeerAccess {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for PeerAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
