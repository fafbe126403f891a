//! A packet as a capture holds it, with all that is around it.

use crate::error::{Error, Header};
use crate::packet::Packet;
use crate::pcap::LinkType;
use crate::udp_ip::{self, Ip};
use crate::{cooked, ethernet, icrc, ipv4, ipv6, udp};

/// A captured RoCEv2 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header of Ethernet, where the capture has it.
    pub ethernet: Option<ethernet::Repr>,
    /// The headers of IP and UDP.
    pub around: udp_ip::Repr,
    /// The packet, as much of it as was captured.
    pub datagram: &'a [u8],
    /// Bytes at its end that were not captured.
    pub missing: usize,
}

impl<'a> Frame<'a> {
    /// Reads what is around a packet.
    ///
    /// # Errors
    /// `Short` of a header that is cut; `Unexpected` of one that a RoCEv2 packet does not have,
    /// which is what other traffic gives.
    pub fn parse(link: LinkType, bytes: &'a [u8]) -> Result<Self, Error> {
        let (ethernet, bytes) = match link {
            LinkType::Ethernet => {
                let (packet, rest) = ethernet::Packet::new_checked(bytes)?;
                (Some(ethernet::Repr::parse(&packet)), rest)
            }
            LinkType::Raw => (None, bytes),
            LinkType::Cooked => match cooked::split(bytes)? {
                (ethernet::IPV4 | ethernet::IPV6, rest) => (None, rest),
                (other, _) => return Err(Header::Cooked.unexpected("EtherType", u64::from(other))),
            },
        };
        let ethertype = match (ethernet, bytes.first().map(|byte| byte >> 4)) {
            (Some(ethernet), _) => ethernet.ethertype,
            (None, Some(6)) => ethernet::IPV6,
            (None, _) => ethernet::IPV4,
        };
        let (ip, header, ip_payload_len, rest) = match ethertype {
            ethernet::IPV4 => {
                let (packet, rest) = ipv4::Packet::new_checked(bytes)?;
                let length = usize::from(packet.total_length()).checked_sub(ipv4::LEN);
                (Ip::V4(ipv4::Repr::parse(&packet)?), Header::Ipv4, length, rest)
            }
            ethernet::IPV6 => {
                let (packet, rest) = ipv6::Packet::new_checked(bytes)?;
                let length = Some(usize::from(packet.payload_length()));
                (Ip::V6(ipv6::Repr::parse(&packet)?), Header::Ipv6, length, rest)
            }
            other => return Err(Header::Ethernet.unexpected("EtherType", u64::from(other))),
        };
        let (packet, rest) = udp::Packet::new_checked(rest)?;
        let udp = udp::Repr::parse(&packet)?;
        let length = packet.length();
        // Both say how long the datagram is. What follows it in the frame is Ethernet's filling.
        let datagram_len = usize::from(length)
            .checked_sub(udp::LEN)
            .ok_or(Header::Udp.unexpected("length", u64::from(length)))?;
        if ip_payload_len != Some(usize::from(length)) {
            return Err(header.unexpected(
                "length behind the header",
                ip_payload_len.unwrap_or_default() as u64,
            ));
        }
        let missing = datagram_len.saturating_sub(rest.len());
        let datagram = rest.get(..datagram_len).unwrap_or(rest);
        Ok(Self { ethernet, around: udp_ip::Repr { ip, udp }, datagram, missing })
    }

    /// Splits the packet.
    ///
    /// # Errors
    /// Those of [`Packet::parse`]. Of a packet that is cut, [`packet::Repr::parse`] reads the
    /// headers.
    ///
    /// [`packet::Repr::parse`]: crate::packet::Repr::parse
    pub fn packet(&self) -> Result<Packet<'a>, Error> {
        Packet::parse(self.datagram)
    }

    /// The ICRC that the packet must have; `None` if it is cut, or too short for one.
    pub fn icrc(&self) -> Option<u32> {
        if self.missing > 0 {
            return None;
        }
        let around = self.around.headers(self.datagram.len()).ok()?;
        icrc::of_datagram(&around, self.datagram)
    }
}
