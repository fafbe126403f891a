//! Range arithmetic that can not wrap (R-KEY-09).

/// How an access lies to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Within, this far from the start.
    Within(u64),
    /// Starts this many bytes before it.
    Before(u64),
    /// Ends this many bytes past it.
    Past(u64),
}

/// Whether `[address, address + length)` lies in `[start, start + size)`, without ever computing
/// the end of either.
#[inline(always)]
pub(super) const fn fit(start: u64, size: u64, address: u64, length: u64) -> Fit {
    let Some(offset) = address.checked_sub(start) else { return Fit::Before(start - address) };
    let Some(room) = size.checked_sub(length) else {
        return Fit::Past((length - size).saturating_add(offset));
    };
    if offset > room { Fit::Past(offset - room) } else { Fit::Within(offset) }
}

/// Whether `[address, address + length)` runs past the end of the address space. A range that
/// ends exactly at 2^64 does.
#[inline]
pub(super) const fn wraps(address: u64, length: u64) -> bool {
    address.checked_add(length).is_none()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn r_key_09_borders() {
        assert_eq!(fit(100, 50, 100, 50), Fit::Within(0));
        assert_eq!(fit(100, 50, 149, 1), Fit::Within(49));
        assert_eq!(fit(100, 50, 99, 1), Fit::Before(1));
        assert_eq!(fit(100, 50, 150, 1), Fit::Past(1));
        assert_eq!(fit(100, 50, 101, 50), Fit::Past(1));
        assert_eq!(fit(100, 50, 100, 51), Fit::Past(1));
        assert_eq!(fit(100, 50, 150, 0), Fit::Within(50));
        assert_eq!(fit(0x1000, 0x1000, u64::MAX - 7, 16), Fit::Past(u64::MAX - 7 - 0x2000 + 16));
        assert_eq!(fit(u64::MAX - 15, 15, u64::MAX - 15, u64::MAX), Fit::Past(u64::MAX - 15));
        assert_eq!(fit(0, u64::MAX, u64::MAX, 0), Fit::Within(u64::MAX));
        assert_eq!(fit(0, u64::MAX, u64::MAX, 1), Fit::Past(1));
    }

    #[test]
    fn wraps_at_the_end_of_the_address_space() {
        assert!(wraps(u64::MAX, 1));
        assert!(!wraps(u64::MAX, 0));
        assert!(!wraps(u64::MAX - 1, 1));
    }

    fn near_edges() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            0..64u64,
            (0..64u64).prop_map(|n| u64::MAX - n),
            (0..64u64).prop_map(|n| (1 << 63) - 32 + n),
        ]
    }

    proptest! {
        #[test]
        fn r_key_09_agrees_with_wide_arithmetic(
            start in near_edges(), size in near_edges(), address in near_edges(), length in near_edges(),
        ) {
            let wide = |x: u64| u128::from(x);
            let expected = if address < start {
                Fit::Before(start - address)
            } else {
                let over = (wide(address) + wide(length)).saturating_sub(wide(start) + wide(size));
                match over {
                    0 => Fit::Within(address - start),
                    over => Fit::Past(u64::try_from(over).unwrap_or(u64::MAX)),
                }
            };
            prop_assert_eq!(fit(start, size, address, length), expected);
        }
    }
}
