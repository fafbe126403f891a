//! Datagram extended transport header: who sends a datagram, and with which queue key.

use crate::bytes::{get, put, split};
use crate::error::{Error, Header};
use crate::u24::Qpn;

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
        split(Header::Deth, bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Queue key: must be the receiving queue pair's.
    pub fn qkey(&self) -> u32 {
        u32::from_be_bytes(get::<0, _, _>(self.0))
    }

    /// The queue pair that sends.
    pub fn source_qp(&self) -> Qpn {
        Qpn::from_be_bytes(get::<5, _, _>(self.0))
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Queue key: must be the receiving queue pair's.
    pub qkey: u32,
    /// The queue pair that sends.
    pub source_qp: Qpn,
}

impl Repr {
    /// Reads the header.
    pub fn parse(packet: &Packet<'_>) -> Self {
        Self { qkey: packet.qkey(), source_qp: packet.source_qp() }
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header.
    pub fn emit(&self, buffer: &mut [u8; LEN]) {
        put::<0, _, _>(buffer, self.qkey.to_be_bytes());
        put::<4, _, _>(buffer, [0]);
        put::<5, _, _>(buffer, self.source_qp.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_value() {
        // The queue key and the queue pair of connection management.
        let repr = Repr { qkey: 0x8001_0000, source_qp: Qpn::wrapping(1) };
        let mut buffer = [0xff; LEN];
        repr.emit(&mut buffer);
        assert_eq!(buffer, [0x80, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01]);
        assert_eq!(repr.buffer_len(), LEN);
        // Byte 4 is reserved, and not looked at.
        buffer[4] = 0xff;
        let (packet, rest) = Packet::new_checked(&buffer).expect("8 bytes");
        assert!(rest.is_empty());
        assert_eq!(Repr::parse(&packet), repr);
    }
}
