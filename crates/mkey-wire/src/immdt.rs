//! Immediate data: 4 bytes for the receiver's completion.

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
        split(Header::ImmDt, bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// The data, as a number.
    pub fn data(&self) -> u32 {
        u32::from_be_bytes(*self.0)
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The data, as a number.
    pub data: u32,
}

impl Repr {
    /// Reads the header.
    pub fn parse(packet: &Packet<'_>) -> Self {
        Self { data: packet.data() }
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header.
    pub fn emit(&self, buffer: &mut [u8; LEN]) {
        *buffer = self.data.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_value() {
        let (packet, rest) = Packet::new_checked(&[0xde, 0xad, 0xbe, 0xef]).expect("4 bytes");
        assert!(rest.is_empty());
        let repr = Repr { data: 0xdead_beef };
        assert_eq!(Repr::parse(&packet), repr);
        let mut buffer = [0; LEN];
        repr.emit(&mut buffer);
        assert_eq!(buffer, [0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(repr.buffer_len(), LEN);
    }
}
