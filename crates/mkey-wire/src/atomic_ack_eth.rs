//! Atomic acknowledge extended transport header: what an atomic returns.

use crate::bytes::{get, put, split};
use crate::error::{Error, Header};

/// Its length in bytes.
pub const LEN: usize = 8;

/// A view of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a>(&'a [u8; LEN]);

impl<'a> Packet<'a> {
    /// The header at the start of `bytes`, and what follows it.
    ///
    /// # Errors
    /// `Short`.
    pub fn new_checked(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        split(Header::AtomicAckEth, bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// What was there before.
    pub fn original(&self) -> u64 {
        u64::from_be_bytes(get::<0, _, _>(self.0))
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// What was there before.
    pub original: u64,
}

impl Repr {
    /// Reads the header.
    pub fn parse(packet: &Packet<'_>) -> Self {
        Self { original: packet.original() }
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header.
    pub fn emit(&self, buffer: &mut [u8; LEN]) {
        put::<0, _, _>(buffer, self.original.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_value() {
        let bytes = [0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08];
        let (packet, rest) = Packet::new_checked(&bytes).expect("8 bytes");
        assert!(rest.is_empty());
        let repr = Repr { original: 0x0102_0304_0506_0708 };
        assert_eq!(Repr::parse(&packet), repr);
        let mut buffer = [0xff; LEN];
        repr.emit(&mut buffer);
        assert_eq!(buffer, bytes[..repr.buffer_len()]);
    }
}
