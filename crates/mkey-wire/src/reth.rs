//! RDMA extended transport header: the memory that a WRITE, READ, FLUSH or ATOMIC WRITE is about.

use crate::bytes::{get, put, split};
use crate::error::{Error, Header};

/// Its length in bytes.
pub const LEN: usize = 16;

/// A view of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a>(&'a [u8; LEN]);

impl<'a> Packet<'a> {
    /// The header at the start of `bytes`, and what follows it.
    ///
    /// # Errors
    /// `Short`.
    pub fn new_checked(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        split(Header::Reth, bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Virtual address of the first byte.
    pub fn address(&self) -> u64 {
        u64::from_be_bytes(get::<0, _, _>(self.0))
    }

    /// The responder's remote key.
    pub fn rkey(&self) -> u32 {
        u32::from_be_bytes(get::<8, _, _>(self.0))
    }

    /// Bytes of the whole message.
    pub fn length(&self) -> u32 {
        u32::from_be_bytes(get::<12, _, _>(self.0))
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Virtual address of the first byte.
    pub address: u64,
    /// The responder's remote key.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub length: u32,
}

impl Repr {
    /// Reads the header.
    pub fn parse(packet: &Packet<'_>) -> Self {
        Self { address: packet.address(), rkey: packet.rkey(), length: packet.length() }
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header.
    pub fn emit(&self, buffer: &mut [u8; LEN]) {
        put::<0, _, _>(buffer, self.address.to_be_bytes());
        put::<8, _, _>(buffer, self.rkey.to_be_bytes());
        put::<12, _, _>(buffer, self.length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_and_value() {
        let bytes = [
            0x00, 0x00, 0x7f, 0x01, 0x02, 0x03, 0x04, 0x05, 0xa1, 0xb2, 0xc3, 0xd4, 0x00, 0x00,
            0x10, 0x00, 0xee,
        ];
        let (packet, rest) = Packet::new_checked(&bytes).expect("16 bytes");
        assert_eq!(rest, [0xee]);
        let repr = Repr { address: 0x7f01_0203_0405, rkey: 0xa1b2_c3d4, length: 4096 };
        assert_eq!(Repr::parse(&packet), repr);
        let mut buffer = [0xff; LEN];
        repr.emit(&mut buffer);
        assert_eq!(buffer, bytes[..repr.buffer_len()]);
    }

    proptest! {
        #[test]
        fn emit_undoes_parse(bytes: [u8; LEN]) {
            let (packet, _) = Packet::new_checked(&bytes).expect("16 bytes");
            let mut buffer = [0xff; LEN];
            Repr::parse(&packet).emit(&mut buffer);
            prop_assert_eq!(buffer, bytes);
        }
    }
}
