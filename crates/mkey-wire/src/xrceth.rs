//! XRC extended transport header: the shared receive queue that an XRC request takes its receive
//! from (annex A14). It follows the BTH of every XRC request; responses have none.

use crate::bytes::{get, put, split};
use crate::error::{Error, Header};
use crate::u24::Qpn;

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
        split(Header::Xrceth, bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// The number of the shared receive queue.
    pub fn srq(&self) -> Qpn {
        Qpn::from_be_bytes(get::<1, _, _>(self.0))
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// The number of the shared receive queue.
    pub srq: Qpn,
}

impl Repr {
    /// Reads the header.
    pub fn parse(packet: &Packet<'_>) -> Self {
        Self { srq: packet.srq() }
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header.
    pub fn emit(&self, buffer: &mut [u8; LEN]) {
        put::<0, _, _>(buffer, [0]);
        put::<1, _, _>(buffer, self.srq.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_value() {
        let repr = Repr { srq: Qpn::wrapping(0x01_0203) };
        let mut buffer = [0xff; LEN];
        repr.emit(&mut buffer);
        assert_eq!(buffer, [0x00, 0x01, 0x02, 0x03]);
        assert_eq!(repr.buffer_len(), LEN);
        // The first byte is reserved, and not looked at.
        let (packet, rest) = Packet::new_checked(&[0xff, 0x01, 0x02, 0x03]).expect("4 bytes");
        assert!(rest.is_empty());
        assert_eq!(Repr::parse(&packet), repr);
    }
}
