//! Numbers of 24 bits: queue pairs, and sequence numbers with their arithmetic.

use std::fmt;

/// Defines a number of 24 bits.
macro_rules! u24 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The number, if 24 bits hold it.
            pub const fn new(number: u32) -> Option<Self> {
                if number < 1 << 24 { Some(Self(number)) } else { None }
            }

            /// The number modulo 2^24.
            pub const fn wrapping(number: u32) -> Self {
                Self(number & 0xff_ffff)
            }

            /// The number, below 2^24.
            pub const fn get(self) -> u32 {
                self.0
            }

            pub(crate) const fn from_be_bytes([a, b, c]: [u8; 3]) -> Self {
                Self(u32::from_be_bytes([0, a, b, c]))
            }

            pub(crate) const fn to_be_bytes(self) -> [u8; 3] {
                let [_, a, b, c] = self.0.to_be_bytes();
                [a, b, c]
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// The arithmetic of sequence numbers, which are compared around the circle of 2^24.
macro_rules! serial {
    ($name:ident) => {
        impl $name {
            /// The number `count` further, modulo 2^24.
            #[must_use]
            pub const fn plus(self, count: u32) -> Self {
                Self::wrapping(self.0.wrapping_add(count))
            }

            /// The number `count` back, modulo 2^24.
            #[must_use]
            pub const fn minus(self, count: u32) -> Self {
                Self::wrapping(self.0.wrapping_sub(count))
            }

            /// How far this number is past `other`, the shorter way around: from -2^23, which
            /// stands for both ways being equally long, to 2^23 - 1.
            pub const fn past(self, other: Self) -> i32 {
                // Bit 23 of the difference is its sign.
                (self.0.wrapping_sub(other.0) << 8) as i32 >> 8
            }

            /// Whether this number comes before `other`, the shorter way around.
            pub const fn is_before(self, other: Self) -> bool {
                self.past(other) < 0
            }
        }
    };
}

u24! {
    /// The number of a queue pair, or of a shared receive queue (XRC).
    Qpn
}

u24! {
    /// A packet sequence number. It has no order but around the circle: [`Psn::past`],
    /// [`Psn::is_before`].
    Psn
}
serial!(Psn);

u24! {
    /// A message sequence number: how many messages a responder has completed, modulo 2^24.
    Msn
}
serial!(Msn);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_has_24_bits() {
        assert_eq!(Qpn::new(0xff_ffff).map(Qpn::get), Some(0xff_ffff));
        assert_eq!(Qpn::new(0x100_0000), None);
        assert_eq!(Qpn::wrapping(0x1200_0003).get(), 3);
        assert_eq!(Qpn::wrapping(0xa1_b2c3).to_be_bytes(), [0xa1, 0xb2, 0xc3]);
        assert_eq!(Qpn::from_be_bytes([0xa1, 0xb2, 0xc3]).to_string(), "10597059");
    }

    #[test]
    fn sequence_numbers_wrap() {
        let last = Psn::wrapping(0xff_ffff);
        assert_eq!(last.plus(1), Psn::wrapping(0));
        assert_eq!(Psn::wrapping(0).minus(1), last);
        assert_eq!(Psn::wrapping(2).past(last), 3);
        assert_eq!(last.past(Psn::wrapping(2)), -3);
        assert!(last.is_before(Psn::wrapping(0)));
        assert!(!Psn::wrapping(0).is_before(Psn::wrapping(0)));
        assert_eq!(Msn::wrapping(0xff_ffff).plus(2), Msn::wrapping(1));
        // Half way around: before each other, as by the signed comparison that NICs do.
        assert_eq!(Psn::wrapping(0x80_0000).past(Psn::wrapping(0)), -0x80_0000);
        assert_eq!(Psn::wrapping(0x7f_ffff).past(Psn::wrapping(0)), 0x7f_ffff);
    }

    proptest! {
        #[test]
        fn past_undoes_plus_within_half_the_circle(start: u32, by in -0x80_0000_i32..0x80_0000) {
            let start = Psn::wrapping(start);
            let end = match u32::try_from(by) {
                Ok(on) => start.plus(on),
                Err(_) => start.minus(by.unsigned_abs()),
            };
            prop_assert_eq!(end.past(start), by);
            prop_assert_eq!(end.is_before(start), by < 0);
        }
    }
}
