//! Sequence numbers: counted on without end inside, 24 bits on the wire.

/// A packet's place among all of its direction.
pub(crate) type Sequence = u64;

const BITS: u64 = 1 << 24;

/// Where counting begins for a first number on the wire: far enough from 0 that numbers before it
/// can be told.
pub(crate) fn begin(psn: u32) -> Sequence {
    BITS + u64::from(psn) % BITS
}

/// The number on the wire.
pub(crate) fn on_wire(sequence: Sequence) -> u32 {
    (sequence % BITS) as u32
}

/// The sequence number nearest to `reference` that is `psn` on the wire. Of the two that are
/// equally far it is the earlier one.
pub(crate) fn nearest(reference: Sequence, psn: u32) -> Sequence {
    let ahead = u64::from(psn).wrapping_sub(reference) % BITS;
    if ahead < BITS / 2 {
        reference.saturating_add(ahead)
    } else {
        reference.saturating_sub(BITS - ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_the_wire_wrap_and_sequences_do_not() {
        let last = begin(0xff_ffff);
        assert_eq!((on_wire(last), on_wire(last + 1)), (0xff_ffff, 0));
        assert_eq!(nearest(last, 0), last + 1);
        assert_eq!(nearest(last + 1, 0xff_ffff), last);
        assert_eq!(nearest(last, 0x7f_fffe), last + 0x7f_ffff, "the farthest ahead");
        assert_eq!(nearest(last, 0x7f_ffff), last - 0x80_0000, "the farthest behind");
        assert_eq!(nearest(begin(0), 0), begin(0));
    }
}
