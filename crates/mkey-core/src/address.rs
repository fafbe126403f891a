//! Addresses, each kind its own type, so that one is never taken for another.

use core::fmt;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The address `bytes` further on, or `None` past the end of the address space.
            #[inline]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(address) => Some(Self(address)),
                    None => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

address! {
    /// A virtual address of the process that owns the memory: where the bytes are.
    HostAddr
}

address! {
    /// An address as work requests name it: it counts from a registration's I/O virtual address
    /// (the host address, unless the registration chose another; an offset if zero-based).
    IoAddr
}

/// A range of host memory, `[start, start + len)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HostRange {
    /// First byte.
    pub start: HostAddr,
    /// Length in bytes.
    pub len: u64,
}

impl HostRange {
    /// The range of `len` bytes from `start`, or `None` where its end would wrap around.
    #[inline]
    pub const fn new(start: HostAddr, len: u64) -> Option<Self> {
        match start.0.checked_add(len) {
            Some(_) => Some(Self { start, len }),
            None => None,
        }
    }

    /// The part shared with `other`, if there is any.
    pub fn intersect(&self, other: &HostRange) -> Option<HostRange> {
        let start = self.start.0.max(other.start.0);
        let end =
            (self.start.0.saturating_add(self.len)).min(other.start.0.saturating_add(other.len));
        (start < end).then(|| HostRange { start: HostAddr(start), len: end - start })
    }
}

impl fmt::Display for HostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}, {:#x})", self.start.0, self.start.0.saturating_add(self.len))
    }
}
