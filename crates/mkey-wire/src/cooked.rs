//! Linux's header of captured packets (`LINKTYPE_LINUX_SLL`), as tcpdump.org lays it out: it stands where
//! a link's own would, and says who captured the packet.

use crate::bytes::split as split_header;
use crate::error::{Error, Header};
use crate::ethernet;

/// Bytes of the header.
pub const LEN: usize = 16;

/// Who captured a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Its receiver: it was for the host that captured it.
    Received,
    /// Its sender.
    Sent,
}

const TO_US: u16 = 0;
const BY_US: u16 = 4;
/// The kind of a device without addresses (`ARPHRD_NONE`).
const NO_ADDRESS: u16 = 0xfffe;

impl Way {
    /// That of a packet type; `None` of what was for another host, or for all.
    pub fn of(packet_type: u16) -> Option<Self> {
        match packet_type {
            TO_US => Some(Self::Received),
            BY_US => Some(Self::Sent),
            _ => None,
        }
    }
}

/// The header of an IP packet.
pub fn header(way: Way, packet: &[u8]) -> [u8; LEN] {
    let packet_type = match way {
        Way::Received => TO_US,
        Way::Sent => BY_US,
    };
    let kind = match packet.first().map(|byte| byte >> 4) {
        Some(6) => ethernet::IPV6,
        _ => ethernet::IPV4,
    };
    let mut header = [0; LEN];
    // An address of no bytes, and the eight that it has room in, are between.
    let words = [packet_type, NO_ADDRESS, 0, 0, 0, 0, 0, kind].map(u16::to_be_bytes);
    header.as_chunks_mut().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word);
    header
}

/// The EtherType that a header names, and what follows it.
///
/// # Errors
/// `Short` if the header is cut.
pub fn split(bytes: &[u8]) -> Result<(u16, &[u8]), Error> {
    let (header, rest) = split_header::<LEN>(Header::Cooked, bytes)?;
    let [.., high, low] = *header;
    Ok((u16::from_be_bytes([high, low]), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_header() {
        let sent = [0, 4, 0xff, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0];
        assert_eq!(header(Way::Sent, &[0x45]), sent);
        let received = [0, 0, 0xff, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x86, 0xdd];
        assert_eq!(header(Way::Received, &[0x60]), received);
        assert_eq!(split(&[&received[..], &[1]].concat()), Ok((0x86dd, &[1][..])));
        assert!(split(&received[..15]).is_err());
        assert_eq!([0, 1, 4].map(Way::of), [Some(Way::Received), None, Some(Way::Sent)]);
    }
}
