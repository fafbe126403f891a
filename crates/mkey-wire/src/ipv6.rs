//! IPv6, as far as RoCEv2 needs it: 40 bytes with UDP right behind (annex A17).

use std::net::Ipv6Addr;

use crate::bytes::{get, put, split};
use crate::error::{Error, Header};
use crate::ipv4::UDP;

/// Its length in bytes.
pub const LEN: usize = 40;

/// A view of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a>(&'a [u8; LEN]);

impl<'a> Packet<'a> {
    /// The header at the start of `bytes`, and what follows it.
    ///
    /// # Errors
    /// `Short`.
    pub fn new_checked(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        split(Header::Ipv6, bytes).map(|(header, rest)| (Self(header), rest))
    }

    fn first(&self) -> u32 {
        u32::from_be_bytes(get::<0, _, _>(self.0))
    }

    /// Version, 4 bits.
    pub fn version(&self) -> u8 {
        self.0[0] >> 4
    }

    /// Traffic class: 6 bits of DSCP, 2 of ECN.
    pub fn traffic_class(&self) -> u8 {
        (self.first() >> 20) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        self.first() & 0xf_ffff
    }

    /// Bytes behind this header.
    pub fn payload_length(&self) -> u16 {
        u16::from_be_bytes(get::<4, _, _>(self.0))
    }

    /// The number of the protocol behind it.
    pub fn next_header(&self) -> u8 {
        self.0[6]
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.0[7]
    }

    /// Source address.
    pub fn source(&self) -> Ipv6Addr {
        get::<8, 16, _>(self.0).into()
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv6Addr {
        get::<24, 16, _>(self.0).into()
    }
}

/// The header of a RoCEv2 packet as a value, but for its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Traffic class: 6 bits of DSCP, 2 of ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits; higher ones are not written.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

impl Repr {
    /// A header with nothing special: traffic class and flow label 0, hop limit 64.
    pub const fn new(source: Ipv6Addr, destination: Ipv6Addr) -> Self {
        Self { source, destination, traffic_class: 0, flow_label: 0, hop_limit: 64 }
    }

    /// Reads the header.
    ///
    /// # Errors
    /// `Unexpected`: another version, something else than UDP behind.
    pub fn parse(packet: &Packet<'_>) -> Result<Self, Error> {
        let unexpected = |field, value| Err(Header::Ipv6.unexpected(field, u64::from(value)));
        if packet.version() != 6 {
            return unexpected("version", packet.version());
        }
        if packet.next_header() != UDP {
            return unexpected("next header", packet.next_header());
        }
        Ok(Self {
            source: packet.source(),
            destination: packet.destination(),
            traffic_class: packet.traffic_class(),
            flow_label: packet.flow_label(),
            hop_limit: packet.hop_limit(),
        })
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header of an IP packet with `payload_length` bytes behind it.
    pub fn emit(&self, payload_length: u16, buffer: &mut [u8; LEN]) {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        put::<0, _, _>(buffer, first.to_be_bytes());
        put::<4, _, _>(buffer, payload_length.to_be_bytes());
        put::<6, _, _>(buffer, [UDP, self.hop_limit]);
        put::<8, _, _>(buffer, self.source.octets());
        put::<24, _, _>(buffer, self.destination.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;
    use proptest::prelude::*;

    const BYTES: [u8; LEN] = [
        0x62, 0x34, 0x56, 0x78, 0x00, 0x18, 0x11, 0x40, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0x01, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02,
    ];

    #[test]
    fn bytes_and_value() {
        let (packet, rest) = Packet::new_checked(&BYTES).expect("40 bytes");
        assert!(rest.is_empty());
        assert_eq!(packet.payload_length(), 24);
        let repr = Repr {
            traffic_class: 0x23,
            flow_label: 0x45678,
            ..Repr::new("fd00::1".parse().expect("one"), "fd00::2".parse().expect("one"))
        };
        assert_eq!(Repr::parse(&packet), Ok(repr));
        let mut buffer = [0xff; LEN];
        repr.emit(24, &mut buffer);
        assert_eq!(buffer, BYTES[..repr.buffer_len()]);
    }

    #[test]
    fn what_rocev2_does_not_have_is_refused() {
        for (at, byte, field, value) in [(0, 0x45, "version", 4), (6, 44, "next header", 44)] {
            let mut bytes = BYTES;
            bytes[at] = byte;
            let (packet, _) = Packet::new_checked(&bytes).expect("40 bytes");
            let reason = Reason::Unexpected { field, value };
            assert_eq!(Repr::parse(&packet), Err(Error { header: Header::Ipv6, reason }));
        }
    }

    proptest! {
        #[test]
        fn parse_undoes_emit(
            addresses: [u128; 2],
            traffic_class: u8,
            flow_label in 0_u32..1 << 20,
            hop_limit: u8,
            length: u16,
        ) {
            let [source, destination] = addresses.map(Ipv6Addr::from);
            let repr = Repr { source, destination, traffic_class, flow_label, hop_limit };
            let mut buffer = [0xff; LEN];
            repr.emit(length, &mut buffer);
            let (packet, _) = Packet::new_checked(&buffer).expect("40 bytes");
            prop_assert_eq!(Repr::parse(&packet), Ok(repr));
            prop_assert_eq!(packet.payload_length(), length);
        }
    }
}
