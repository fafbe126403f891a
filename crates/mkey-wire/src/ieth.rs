//! Invalidate extended transport header: the key that a SEND with invalidate ends.

use crate::bytes::split;
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
        split(Header::Ieth, bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// The responder's remote key that is to be invalidated.
    pub fn rkey(&self) -> u32 {
        u32::from_be_bytes(*self.0)
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The responder's remote key that is to be invalidated.
    pub rkey: u32,
}

impl Repr {
    /// Reads the header.
    pub fn parse(packet: &Packet<'_>) -> Self {
        Self { rkey: packet.rkey() }
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header.
    pub fn emit(&self, buffer: &mut [u8; LEN]) {
        *buffer = self.rkey.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_value() {
        let (packet, rest) = Packet::new_checked(&[0x00, 0x00, 0x21, 0x3f]).expect("4 bytes");
        assert!(rest.is_empty());
        let repr = Repr { rkey: 0x213f };
        assert_eq!(Repr::parse(&packet), repr);
        let mut buffer = [0xff; LEN];
        repr.emit(&mut buffer);
        assert_eq!(buffer, [0x00, 0x00, 0x21, 0x3f]);
        assert_eq!(repr.buffer_len(), LEN);
    }
}
