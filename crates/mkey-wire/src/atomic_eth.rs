//! Atomic extended transport header: the 8 bytes that an atomic is about, and its operands.

use crate::bytes::{get, put, split};
use crate::error::{Error, Header};

/// Its length in bytes.
pub const LEN: usize = 28;

/// A view of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a>(&'a [u8; LEN]);

impl<'a> Packet<'a> {
    /// The header at the start of `bytes`, and what follows it.
    ///
    /// # Errors
    /// `Short`.
    pub fn new_checked(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        split(Header::AtomicEth, bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Virtual address of the 8 bytes.
    pub fn address(&self) -> u64 {
        u64::from_be_bytes(get::<0, _, _>(self.0))
    }

    /// The responder's remote key.
    pub fn rkey(&self) -> u32 {
        u32::from_be_bytes(get::<8, _, _>(self.0))
    }

    /// What to put there, or to add.
    pub fn swap_or_add(&self) -> u64 {
        u64::from_be_bytes(get::<12, _, _>(self.0))
    }

    /// What must be there, for a compare and swap.
    pub fn compare(&self) -> u64 {
        u64::from_be_bytes(get::<20, _, _>(self.0))
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Virtual address of the 8 bytes.
    pub address: u64,
    /// The responder's remote key.
    pub rkey: u32,
    /// What to put there, or to add.
    pub swap_or_add: u64,
    /// What must be there, for a compare and swap.
    pub compare: u64,
}

impl Repr {
    /// Reads the header.
    pub fn parse(packet: &Packet<'_>) -> Self {
        Self {
            address: packet.address(),
            rkey: packet.rkey(),
            swap_or_add: packet.swap_or_add(),
            compare: packet.compare(),
        }
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header.
    pub fn emit(&self, buffer: &mut [u8; LEN]) {
        put::<0, _, _>(buffer, self.address.to_be_bytes());
        put::<8, _, _>(buffer, self.rkey.to_be_bytes());
        put::<12, _, _>(buffer, self.swap_or_add.to_be_bytes());
        put::<20, _, _>(buffer, self.compare.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_and_value() {
        let bytes = [
            0x00, 0x00, 0x7f, 0x01, 0x02, 0x03, 0x04, 0x08, 0xa1, 0xb2, 0xc3, 0xd4, 0x11, 0x12,
            0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
        ];
        let (packet, rest) = Packet::new_checked(&bytes).expect("28 bytes");
        assert!(rest.is_empty());
        let repr = Repr {
            address: 0x7f01_0203_0408,
            rkey: 0xa1b2_c3d4,
            swap_or_add: 0x1112_1314_1516_1718,
            compare: 0x2122_2324_2526_2728,
        };
        assert_eq!(Repr::parse(&packet), repr);
        let mut buffer = [0xff; LEN];
        repr.emit(&mut buffer);
        assert_eq!(buffer, bytes[..repr.buffer_len()]);
    }

    proptest! {
        #[test]
        fn emit_undoes_parse(bytes: [u8; LEN]) {
            let (packet, _) = Packet::new_checked(&bytes).expect("28 bytes");
            let mut buffer = [0xff; LEN];
            Repr::parse(&packet).emit(&mut buffer);
            prop_assert_eq!(buffer, bytes);
        }
    }
}
