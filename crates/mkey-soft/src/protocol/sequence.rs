//! Sequence numbers: counted on without end inside, 24 bits on the wire.

use mkey_wire::u24::Psn;

/// A packet's place among all of its direction.
pub(crate) type Sequence = u64;

/// Where counting begins for a first number on the wire: far enough from 0 that numbers before it
/// can be told.
pub(crate) fn begin(psn: Psn) -> Sequence {
    (1 << 24) + u64::from(psn.get())
}

/// The number on the wire.
pub(crate) fn on_wire(sequence: Sequence) -> Psn {
    Psn::wrapping(sequence as u32)
}

/// The sequence number nearest to `reference` that is `psn` on the wire. Of two that are equally
/// far it is the earlier one.
pub(crate) fn nearest(reference: Sequence, psn: Psn) -> Sequence {
    reference.saturating_add_signed(i64::from(psn.past(on_wire(reference))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_the_wire_wrap_and_sequences_do_not() {
        let psn = Psn::wrapping;
        let last = begin(psn(0xff_ffff));
        assert_eq!((on_wire(last), on_wire(last + 1)), (psn(0xff_ffff), psn(0)));
        assert_eq!(nearest(last, psn(0)), last + 1);
        assert_eq!(nearest(last + 1, psn(0xff_ffff)), last);
        assert_eq!(nearest(last, psn(0x7f_fffe)), last + 0x7f_ffff, "the farthest ahead");
        assert_eq!(nearest(last, psn(0x7f_ffff)), last - 0x80_0000, "the farthest behind");
        assert_eq!(nearest(begin(psn(0)), psn(0)), begin(psn(0)));
    }
}
