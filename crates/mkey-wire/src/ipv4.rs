//! IPv4, as far as RoCEv2 needs it: 20 bytes without options, UDP behind, not a fragment
//! (annex A17).

use std::net::Ipv4Addr;

use crate::bytes::{get, put, split};
use crate::checksum::Sum;
use crate::error::{Error, Header};

/// Its length in bytes.
pub const LEN: usize = 20;

/// The number of UDP among the protocols on IP.
pub(crate) const UDP: u8 = 17;

const VERSION_AND_LENGTH: u8 = 0x45;
const DONT_FRAGMENT: u16 = 0x4000;

/// A view of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a>(&'a [u8; LEN]);

impl<'a> Packet<'a> {
    /// The header at the start of `bytes`, and what follows its first 20 bytes.
    ///
    /// # Errors
    /// `Short`.
    pub fn new_checked(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        split(Header::Ipv4, bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Version and header length, 0x45 without options.
    pub fn version_and_length(&self) -> u8 {
        self.0[0]
    }

    /// Type of service: 6 bits of DSCP, 2 of ECN.
    pub fn tos(&self) -> u8 {
        self.0[1]
    }

    /// Bytes of the IP packet, this header included.
    pub fn total_length(&self) -> u16 {
        u16::from_be_bytes(get::<2, _, _>(self.0))
    }

    /// Identification.
    pub fn ident(&self) -> u16 {
        u16::from_be_bytes(get::<4, _, _>(self.0))
    }

    /// Flags (3 bits) and fragment offset (13 bits).
    pub fn flags_and_offset(&self) -> u16 {
        u16::from_be_bytes(get::<6, _, _>(self.0))
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.0[8]
    }

    /// The number of the protocol behind it.
    pub fn protocol(&self) -> u8 {
        self.0[9]
    }

    /// The checksum.
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes(get::<10, _, _>(self.0))
    }

    /// Source address.
    pub fn source(&self) -> Ipv4Addr {
        get::<12, _, _>(self.0).into()
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv4Addr {
        get::<16, _, _>(self.0).into()
    }
}

/// The header of a RoCEv2 packet as a value, but for its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Type of service: 6 bits of DSCP, 2 of ECN.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// Identification. The ICRC covers it.
    pub ident: u16,
    /// Not to be fragmented on the way. The ICRC covers it.
    pub dont_fragment: bool,
}

impl Repr {
    /// The header as an unconnected UDP socket with path MTU discovery sends it: identification
    /// 0, not to be fragmented.
    pub const fn new(source: Ipv4Addr, destination: Ipv4Addr) -> Self {
        Self { source, destination, tos: 0, ttl: 64, ident: 0, dont_fragment: true }
    }

    /// Reads the header. The checksum is not looked at: who captures a packet before the NIC has
    /// sent it may see none.
    ///
    /// # Errors
    /// `Unexpected`: another version, options, a fragment, something else than UDP behind.
    pub fn parse(packet: &Packet<'_>) -> Result<Self, Error> {
        let only = |field, value: u16, expected: &[u16]| {
            if expected.contains(&value) {
                return Ok(());
            }
            Err(Header::Ipv4.unexpected(field, u64::from(value)))
        };
        let first = u16::from(packet.version_and_length());
        only("version and header length", first, &[u16::from(VERSION_AND_LENGTH)])?;
        let fragment = packet.flags_and_offset();
        only("flags and fragment offset", fragment, &[0, DONT_FRAGMENT])?;
        only("protocol", u16::from(packet.protocol()), &[u16::from(UDP)])?;
        Ok(Self {
            source: packet.source(),
            destination: packet.destination(),
            tos: packet.tos(),
            ttl: packet.ttl(),
            ident: packet.ident(),
            dont_fragment: fragment == DONT_FRAGMENT,
        })
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header of an IP packet of `total_length` bytes, this header included.
    pub fn emit(&self, total_length: u16, buffer: &mut [u8; LEN]) {
        let fragment = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        put::<0, _, _>(buffer, [VERSION_AND_LENGTH, self.tos]);
        put::<2, _, _>(buffer, total_length.to_be_bytes());
        put::<4, _, _>(buffer, self.ident.to_be_bytes());
        put::<6, _, _>(buffer, fragment.to_be_bytes());
        put::<8, _, _>(buffer, [self.ttl, UDP, 0, 0]);
        put::<12, _, _>(buffer, self.source.octets());
        put::<16, _, _>(buffer, self.destination.octets());
        let mut sum = Sum::default();
        sum.update(buffer);
        put::<10, _, _>(buffer, sum.checksum().to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;
    use proptest::prelude::*;

    /// A congestion notification that a ConnectX-4 Lx sent: `test/contrib/roce.uts` of scapy.
    const BYTES: [u8; LEN] = [
        0x45, 0xc2, 0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11,
        0x01, 0x0a, 0x00, 0x12, 0x01,
    ];

    #[test]
    fn bytes_and_value() {
        let (packet, rest) = Packet::new_checked(&BYTES).expect("20 bytes");
        assert!(rest.is_empty());
        assert_eq!((packet.total_length(), packet.checksum()), (60, 0x9161));
        let repr = Repr {
            tos: 0xc2,
            ident: 0x718c,
            ..Repr::new([10, 0, 17, 1].into(), [10, 0, 18, 1].into())
        };
        assert_eq!(Repr::parse(&packet), Ok(repr));
        let mut buffer = [0xff; LEN];
        repr.emit(60, &mut buffer);
        assert_eq!(buffer, BYTES[..repr.buffer_len()]);
    }

    #[test]
    fn what_rocev2_does_not_have_is_refused() {
        for (at, byte, field, value) in [
            (0, 0x46, "version and header length", 0x46),
            (0, 0x65, "version and header length", 0x65),
            (6, 0x20, "flags and fragment offset", 0x2000),
            (6, 0xc0, "flags and fragment offset", 0xc000),
            (7, 0x01, "flags and fragment offset", 0x4001),
            (9, 6, "protocol", 6),
        ] {
            let mut bytes = BYTES;
            bytes[at] = byte;
            let (packet, _) = Packet::new_checked(&bytes).expect("20 bytes");
            let reason = Reason::Unexpected { field, value };
            assert_eq!(Repr::parse(&packet), Err(Error { header: Header::Ipv4, reason }));
        }
    }

    proptest! {
        #[test]
        fn parse_undoes_emit(
            addresses: [u32; 2],
            tos: u8,
            ttl: u8,
            ident: u16,
            dont_fragment: bool,
            length: u16,
        ) {
            let [source, destination] = addresses.map(Ipv4Addr::from);
            let repr = Repr { source, destination, tos, ttl, ident, dont_fragment };
            let mut buffer = [0xff; LEN];
            repr.emit(length, &mut buffer);
            let (packet, _) = Packet::new_checked(&buffer).expect("20 bytes");
            prop_assert_eq!(Repr::parse(&packet), Ok(repr));
            prop_assert_eq!(packet.total_length(), length);
            let mut sum = Sum::default();
            sum.update(&buffer);
            prop_assert_eq!(sum.checksum(), 0, "the sum with the checksum in it");
        }
    }
}
