//! Keys: 24 bits of index, 8 bits of variant (rule R-KEY-01).

use core::fmt;

/// The number of keys an engine can have live at a time: index 0 is never handed out.
pub const MAX_KEYS: u32 = (1 << 24) - 1;

/// A key as it travels in work requests and on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Key(pub u32);

impl Key {
    /// Joins a 24-bit index and a variant. Higher bits of `index` are dropped.
    #[inline]
    pub const fn new(index: u32, variant: u8) -> Self {
        Self(index << 8 | variant as u32)
    }

    /// The index into the protection table, 24 bits.
    #[inline]
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// The low 8 bits, which change each time the key is made anew.
    #[inline]
    pub const fn variant(self) -> u8 {
        self.0 as u8
    }

    /// The same index with another variant.
    #[inline]
    pub const fn with_variant(self, variant: u8) -> Self {
        Self(self.0 & !0xff | variant as u32)
    }

    /// The next key of the same index, as `ibv_inc_rkey` makes it: the variant grows by one modulo
    /// 256, the index stays (rule R-KEY-06).
    #[inline]
    pub const fn next(self) -> Self {
        self.with_variant(self.variant().wrapping_add(1))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

macro_rules! key_role {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub Key);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

key_role! {
    /// The key by which the owner's work requests name registered memory.
    Lkey
}

key_role! {
    /// The key by which a peer names registered memory.
    Rkey
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_key_01_index_and_variant() {
        let key = Key::new(0x00ab_cdef, 0x42);
        assert_eq!((key.0, key.index(), key.variant()), (0xabcd_ef42, 0xabcdef, 0x42));
    }

    #[test]
    fn r_key_06_next_wraps_within_the_variant() {
        assert_eq!(Key(0x1234_56ff).next(), Key(0x1234_5600));
        assert_eq!(Key(u32::MAX).next(), Key(0xffff_ff00));
        assert_eq!(Key(0x1234_5600).next(), Key(0x1234_5601));
    }
}
