//! Ethernet, as captures have it around RoCEv2: with or without a tag (802.1Q).

use crate::bytes::{append, get, split};
use crate::error::{Error, Header};

/// Its length in bytes without a tag.
pub const LEN: usize = 14;

/// Bytes of a tag, with the EtherType behind it.
pub const TAG_LEN: usize = 4;

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType that says that a tag follows.
const TAGGED: u16 = 0x8100;

/// A view of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    header: &'a [u8; LEN],
    tag: Option<&'a [u8; TAG_LEN]>,
}

impl<'a> Packet<'a> {
    /// The header at the start of `bytes`, with its tag if it has one, and what follows it.
    ///
    /// # Errors
    /// `Short`.
    pub fn new_checked(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        let (header, rest) = split(Header::Ethernet, bytes)?;
        let mut packet = Self { header, tag: None };
        if packet.ethertype() != TAGGED {
            return Ok((packet, rest));
        }
        let (tag, rest) = split(Header::Ethernet, rest)?;
        packet.tag = Some(tag);
        Ok((packet, rest))
    }

    /// Destination address.
    pub fn destination(&self) -> [u8; 6] {
        get::<0, _, _>(self.header)
    }

    /// Source address.
    pub fn source(&self) -> [u8; 6] {
        get::<6, _, _>(self.header)
    }

    /// The tag's control information: 3 bits of priority, drop eligible, 12 bits of VLAN.
    pub fn tag(&self) -> Option<u16> {
        self.tag.map(|tag| u16::from_be_bytes(get::<0, _, _>(tag)))
    }

    /// EtherType of what follows.
    pub fn ethertype(&self) -> u16 {
        u16::from_be_bytes(match self.tag {
            Some(tag) => get::<2, _, _>(tag),
            None => get::<12, _, _>(self.header),
        })
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Destination address.
    pub destination: [u8; 6],
    /// Source address.
    pub source: [u8; 6],
    /// The tag's control information: 3 bits of priority, drop eligible, 12 bits of VLAN.
    pub tag: Option<u16>,
    /// EtherType of what follows.
    pub ethertype: u16,
}

impl Repr {
    /// Reads the header.
    pub fn parse(packet: &Packet<'_>) -> Self {
        Self {
            destination: packet.destination(),
            source: packet.source(),
            tag: packet.tag(),
            ethertype: packet.ethertype(),
        }
    }

    /// Its length in bytes.
    pub const fn buffer_len(&self) -> usize {
        if self.tag.is_some() { LEN + TAG_LEN } else { LEN }
    }

    /// Writes the header to the start of `buffer`.
    ///
    /// # Errors
    /// `Short` (`buffer` is written in part then).
    pub fn emit(&self, mut buffer: &mut [u8]) -> Result<(), Error> {
        let mut put = |bytes: &[u8]| append(Header::Ethernet, &mut buffer, bytes);
        put(&self.destination)?;
        put(&self.source)?;
        if let Some(tag) = self.tag {
            put(&TAGGED.to_be_bytes())?;
            put(&tag.to_be_bytes())?;
        }
        put(&self.ethertype.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;

    const BYTES: [u8; LEN] = [0xff, 1, 2, 3, 4, 5, 0x52, 0x54, 0, 0, 0, 1, 0x86, 0xdd];
    const TAGGED_BYTES: [u8; LEN + TAG_LEN] =
        [0xff, 1, 2, 3, 4, 5, 0x52, 0x54, 0, 0, 0, 1, 0x81, 0x00, 0x60, 0x07, 0x08, 0x00];

    fn repr() -> Repr {
        let (destination, source) = ([0xff, 1, 2, 3, 4, 5], [0x52, 0x54, 0, 0, 0, 1]);
        Repr { destination, source, tag: None, ethertype: IPV6 }
    }

    #[test]
    fn bytes_and_value() {
        // Priority 3, VLAN 7.
        let tagged = Repr { tag: Some(0x6007), ethertype: IPV4, ..repr() };
        for (bytes, repr) in [(&BYTES[..], repr()), (&TAGGED_BYTES[..], tagged)] {
            let (packet, rest) = Packet::new_checked(bytes).expect("all of it");
            assert!(rest.is_empty());
            assert_eq!(Repr::parse(&packet), repr);
            let mut buffer = vec![0; repr.buffer_len()];
            repr.emit(&mut buffer).expect("it fits");
            assert_eq!(buffer, bytes);
        }
    }

    #[test]
    fn a_header_that_is_cut_is_refused() {
        let short = |needed, have| {
            Err(Error { header: Header::Ethernet, reason: Reason::Short { needed, have } })
        };
        assert_eq!(Packet::new_checked(&BYTES[..13]), short(LEN, 13));
        assert_eq!(Packet::new_checked(&TAGGED_BYTES[..17]), short(TAG_LEN, 3));
        assert_eq!(repr().emit(&mut [0; 13]), short(2, 1).map(|(_, _): (Packet, &[u8])| ()));
    }
}
