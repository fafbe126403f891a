//! Flush extended transport header: how far, and how much, a FLUSH is to bring (annex A19).

use crate::bytes::{put, split};
use crate::error::{Error, Header};

/// Its length in bytes.
pub const LEN: usize = 4;

/// A view of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a>(&'a [u8; LEN]);

impl<'a> Packet<'a> {
    /// The header at the start of `bytes`, and what follows it.
    ///
    /// # Errors
    /// `Short`.
    pub fn new_checked(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        split(Header::Feth, bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Placement type, 4 bits: bit 0 to be seen by all, bit 1 to persist.
    pub fn placement(&self) -> u8 {
        self.0[3] & 0xf
    }

    /// Selectivity level, 2 bits: 0 the range of the RETH, 1 the whole region.
    pub fn selectivity(&self) -> u8 {
        self.0[3] >> 4 & 3
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Placement type, 4 bits: bit 0 to be seen by all, bit 1 to persist. Higher bits are not
    /// written.
    pub placement: u8,
    /// Selectivity level, 2 bits: 0 the range of the RETH, 1 the whole region. Higher bits are not
    /// written.
    pub selectivity: u8,
}

impl Repr {
    /// Reads the header.
    pub fn parse(packet: &Packet<'_>) -> Self {
        Self { placement: packet.placement(), selectivity: packet.selectivity() }
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header.
    pub fn emit(&self, buffer: &mut [u8; LEN]) {
        put::<0, _, _>(buffer, [0, 0, 0, self.placement & 0xf | (self.selectivity & 3) << 4]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_value() {
        let repr = Repr { placement: 2, selectivity: 1 };
        let mut buffer = [0xff; LEN];
        repr.emit(&mut buffer);
        assert_eq!(buffer, [0x00, 0x00, 0x00, 0x12]);
        assert_eq!(repr.buffer_len(), LEN);
        // The rest is reserved, and not looked at.
        let (packet, rest) = Packet::new_checked(&[0xff, 0xff, 0xff, 0xd2]).expect("4 bytes");
        assert!(rest.is_empty());
        assert_eq!(Repr::parse(&packet), repr);
    }
}
