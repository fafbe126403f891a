//! UDP, as far as RoCEv2 needs it: the port, and the port that packets come from.

use crate::bytes::{get, put, split};
use crate::error::{Error, Header};
use crate::u24::Qpn;

/// Its length in bytes.
pub const LEN: usize = 8;

/// The port that RoCEv2 packets are sent to (annex A17).
pub const ROCE_PORT: u16 = 4791;

/// A view of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a>(&'a [u8; LEN]);

impl<'a> Packet<'a> {
    /// The header at the start of `bytes`, and what follows it.
    ///
    /// # Errors
    /// `Short`.
    pub fn new_checked(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        split(Header::Udp, bytes).map(|(header, rest)| (Self(header), rest))
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes(get::<0, _, _>(self.0))
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes(get::<2, _, _>(self.0))
    }

    /// Bytes of the datagram, this header included.
    pub fn length(&self) -> u16 {
        u16::from_be_bytes(get::<4, _, _>(self.0))
    }

    /// The checksum; 0 if there is none.
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes(get::<6, _, _>(self.0))
    }
}

/// The header of a RoCEv2 packet as a value, but for its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source port.
    pub source_port: u16,
    /// The checksum; 0 if there is none.
    pub checksum: u16,
}

impl Repr {
    /// Reads the header.
    ///
    /// # Errors
    /// `Unexpected`: another port than RoCEv2's.
    pub fn parse(packet: &Packet<'_>) -> Result<Self, Error> {
        match packet.destination_port() {
            ROCE_PORT => {
                Ok(Self { source_port: packet.source_port(), checksum: packet.checksum() })
            }
            other => Err(Header::Udp.unexpected("destination port", u64::from(other))),
        }
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        LEN
    }

    /// Writes the header of a datagram of `length` bytes, this header included.
    pub fn emit(&self, length: u16, buffer: &mut [u8; LEN]) {
        put::<0, _, _>(buffer, self.source_port.to_be_bytes());
        put::<2, _, _>(buffer, ROCE_PORT.to_be_bytes());
        put::<4, _, _>(buffer, length.to_be_bytes());
        put::<6, _, _>(buffer, self.checksum.to_be_bytes());
    }
}

/// The source port of packets between two queue pairs: 0xc000 and above. All packets of a flow
/// have one port, so that they take one way through the network, and other flows have others, so
/// that they spread.
///
/// It comes from the flow label (20 bits) or, where that is 0, from the numbers of the queue
/// pairs, in either order: the rule of Linux (`rdma_get_udp_sport`).
pub const fn source_port(flow_label: u32, local: Qpn, remote: Qpn) -> u16 {
    let label = match flow_label & 0xf_ffff {
        0 => {
            let product = local.get() as u64 * remote.get() as u64;
            let folded = product ^ product >> 20;
            (folded ^ folded >> 40) as u32 & 0xf_ffff
        }
        label => label,
    };
    (label & 0x3fff ^ label >> 14) as u16 | 0xc000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;

    #[test]
    fn bytes_and_value() {
        let bytes = [0xc0, 0x12, 0x12, 0xb7, 0x00, 0x18, 0xab, 0xcd, 0xee];
        let (packet, rest) = Packet::new_checked(&bytes).expect("8 bytes");
        assert_eq!((rest, packet.length()), (&[0xee][..], 24));
        let repr = Repr { source_port: 0xc012, checksum: 0xabcd };
        assert_eq!(Repr::parse(&packet), Ok(repr));
        let mut buffer = [0xff; LEN];
        repr.emit(24, &mut buffer);
        assert_eq!(buffer, bytes[..repr.buffer_len()]);
    }

    #[test]
    fn another_port_is_not_rocev2() {
        let bytes = [0xc0, 0x12, 0x00, 0x35, 0x00, 0x18, 0x00, 0x00];
        let (packet, _) = Packet::new_checked(&bytes).expect("8 bytes");
        let reason = Reason::Unexpected { field: "destination port", value: 53 };
        assert_eq!(Repr::parse(&packet), Err(Error { header: Header::Udp, reason }));
    }

    #[test]
    fn source_ports_spread_by_flow_label_or_queue_pairs() {
        let port =
            |label, local, remote| source_port(label, Qpn::wrapping(local), Qpn::wrapping(remote));
        assert_eq!(port(0x1234, 1, 2), 0xc000 | 0x1234);
        // The 6 high bits are folded into the low ones.
        assert_eq!(port(0xf_ffff, 1, 2), 0xc000 | (0x3fff ^ 0x3f));
        assert_eq!(port(0, 17, 18), 0xc000 | (17 * 18));
        assert_eq!(port(0, 18, 17), port(0, 17, 18));
        // The product 0xffff_fe00_0001 folds to the label 0xf_ff1e, and that to 0x3f1e ^ 0x3f.
        assert_eq!(port(0, 0xff_ffff, 0xff_ffff), 0xc000 | 0x3f21);
        // Bits above the label's 20 are not looked at.
        assert_eq!(port(0xfff0_0000, 17, 18), port(0, 17, 18));
    }
}
