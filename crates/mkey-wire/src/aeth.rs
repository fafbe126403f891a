//! Acknowledge extended transport header: how a request went, and how far the responder is.

use crate::bytes::{get, put, split};
use crate::error::{Error, Header};
use crate::syndrome::Syndrome;
use crate::u24::Msn;

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
        split(Header::Aeth, bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Acknowledged, not ready, or refused.
    pub fn syndrome(&self) -> Syndrome {
        Syndrome::from_byte(self.0[0])
    }

    /// Message sequence number.
    pub fn msn(&self) -> Msn {
        Msn::from_be_bytes(get::<1, _, _>(self.0))
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Acknowledged, not ready, or refused.
    pub syndrome: Syndrome,
    /// Message sequence number.
    pub msn: Msn,
}

impl Repr {
    /// Reads the header.
    pub fn parse(packet: &Packet<'_>) -> Self {
        Self { syndrome: packet.syndrome(), msn: packet.msn() }
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header.
    pub fn emit(&self, buffer: &mut [u8; LEN]) {
        put::<0, _, _>(buffer, [self.syndrome.byte()]);
        put::<1, _, _>(buffer, self.msn.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syndrome::{Credits, NakCode};
    use crate::timer::RnrTimer;

    #[test]
    fn bytes_and_value() {
        for (syndrome, byte) in [
            (Syndrome::Ack(Credits::UNLIMITED), 0x1f),
            (Syndrome::RnrNak(RnrTimer::from_code(12)), 0x2c),
            (Syndrome::Nak(NakCode::RemoteAccess), 0x62),
            (Syndrome::Reserved(0x80), 0x80),
        ] {
            let bytes = [byte, 0x00, 0x01, 0x02];
            let (packet, rest) = Packet::new_checked(&bytes).expect("4 bytes");
            assert!(rest.is_empty());
            let repr = Repr { syndrome, msn: Msn::wrapping(0x102) };
            assert_eq!(Repr::parse(&packet), repr);
            let mut buffer = [0xff; LEN];
            repr.emit(&mut buffer);
            assert_eq!(buffer, bytes[..repr.buffer_len()]);
        }
    }
}
