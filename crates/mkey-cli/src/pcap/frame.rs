//! From a captured frame to the RoCE packet in it.

use mkey_wire::cooked::Way;
use mkey_wire::udp_ip::{Headers, Ip};
use mkey_wire::{ipv4, ipv6, udp};
use std::net::IpAddr;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A RoCE packet, or what is sent to its port.
    Roce(Datagram<'a>),
    /// A part of an IP packet. RoCE packets are not sent in parts.
    Fragment,
    /// Something else.
    Other,
    /// Something whose headers were not captured whole.
    Cut,
    /// A length that contradicts another, of a RoCE packet.
    Wrong(&'static str),
    /// It begins with something that is not known here.
    UnknownLink,
}

/// A RoCE packet, from BTH to ICRC, and what was around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Who sent it: an IP address, or the GID of RoCEv1.
    pub source: IpAddr,
    /// Whom it is for.
    pub destination: IpAddr,
    /// Explicit congestion notification, 2 bits: 3 is "congestion experienced".
    pub ecn: u8,
    /// Identification of IPv4; 0 of IPv6.
    pub ident: u16,
    /// UDP source port; `None` of RoCEv1.
    pub source_port: Option<u16>,
    /// The packet, as much of it as was captured.
    pub bytes: &'a [u8],
    /// Bytes at its end that were not captured.
    pub missing: usize,
    /// Bytes of the IP packet as it travelled.
    pub ip_len: u32,
    /// What its ICRC covers beside itself; `None` where that is not known: IPv4 with options, IPv6 with
    /// extension headers, RoCEv1.
    pub around: Option<Headers>,
    /// Who captured it, its sender or its receiver, where the capture says so.
    pub way: Option<Way>,
}

// Link types, as tcpdump.org lists them.
const ETHERNET: u16 = 1;
const RAW: [u16; 5] = [12, 14, 101, 228, 229];
const COOKED: u16 = 113;
const COOKED_2: u16 = 276;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ROCE_V1: u16 = 0x8915;
/// Tags: 802.1Q, 802.1ad, and what was used before it.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const MOST_TAGS: usize = 8;

const UDP: u8 = 17;
/// The number of a BTH in a GRH.
const BTH: u8 = 0x1b;
const MOST_EXTENSIONS: usize = 8;

/// Looks for a RoCE packet: UDP to `port`, or RoCEv1.
pub fn find(link: Option<u16>, bytes: &[u8], port: u16) -> Found<'_> {
    let inside = match link {
        Some(ETHERNET) => typed(bytes, 12, 14),
        Some(COOKED) => typed(bytes, 14, 16),
        Some(COOKED_2) => typed(bytes, 0, 20),
        Some(raw) if RAW.contains(&raw) => match bytes.first().map(|byte| byte >> 4) {
            Some(4) => Some((IPV4, bytes)),
            Some(6) => Some((IPV6, bytes)),
            Some(_) => return Found::Other,
            None => None,
        },
        _ => return Found::UnknownLink,
    };
    let Some((mut kind, mut inside)) = inside else { return Found::Cut };
    for _ in 0..MOST_TAGS {
        if !TAGS.contains(&kind) {
            break;
        }
        let Some(next) = typed(inside, 2, 4) else { return Found::Cut };
        (kind, inside) = next;
    }
    let found = match kind {
        IPV4 => in_ipv4(inside, port),
        IPV6 => in_ipv6(inside, port),
        ROCE_V1 => in_grh(inside),
        _ => Found::Other,
    };
    match found {
        Found::Roce(datagram) => Found::Roce(Datagram { way: way(link, bytes), ..datagram }),
        other => other,
    }
}

/// Who captured a frame, where its link type says so.
fn way(link: Option<u16>, bytes: &[u8]) -> Option<Way> {
    match link {
        Some(COOKED) => Way::of(u16::from_be_bytes(bytes.first_chunk().copied()?)),
        Some(COOKED_2) => Way::of(bytes.get(10).copied()?.into()),
        _ => None,
    }
}

/// The type at an offset, and what begins at another.
fn typed(bytes: &[u8], at: usize, behind: usize) -> Option<(u16, &[u8])> {
    let kind = bytes.get(at..)?.first_chunk().copied()?;
    Some((u16::from_be_bytes(kind), bytes.get(behind..)?))
}

fn in_ipv4(bytes: &[u8], port: u16) -> Found<'_> {
    let Ok((packet, _)) = ipv4::Packet::new_checked(bytes) else { return Found::Cut };
    let header_len = usize::from(packet.version_and_length() & 0xf) * 4;
    if packet.version_and_length() >> 4 != 4 || header_len < ipv4::LEN {
        return Found::Other;
    }
    // More fragments, or an offset.
    if packet.flags_and_offset() & 0x3fff != 0 {
        return Found::Fragment;
    }
    if packet.protocol() != UDP {
        return Found::Other;
    }
    let ip_len = usize::from(packet.total_length());
    let Some(inside) = bytes.get(header_len..) else { return Found::Cut };
    let Some(inside_len) = ip_len.checked_sub(header_len) else {
        return Found::Wrong("IPv4's length is less than its header's");
    };
    let ip = (header_len == ipv4::LEN).then(|| bytes.first_chunk().copied()).flatten().map(Ip::V4);
    let around = Around {
        source: packet.source().into(),
        destination: packet.destination().into(),
        ecn: packet.tos() & 3,
        ident: packet.ident(),
        ip_len: ip_len as u32,
        ip,
    };
    in_udp(inside, inside_len, around, port)
}

fn in_ipv6(bytes: &[u8], port: u16) -> Found<'_> {
    let Ok((packet, mut inside)) = ipv6::Packet::new_checked(bytes) else { return Found::Cut };
    if packet.version() != 6 {
        return Found::Other;
    }
    let mut inside_len = usize::from(packet.payload_length());
    let ip_len = (ipv6::LEN + inside_len) as u32;
    let mut next = packet.next_header();
    let mut extended = false;
    for _ in 0..MOST_EXTENSIONS {
        let length = match next {
            // Hop by hop, routing, destination; a fragment's header has a fixed length.
            0 | 43 | 60 => match inside {
                [_, units, ..] => (usize::from(*units) + 1) * 8,
                _ => return Found::Cut,
            },
            44 => match inside {
                [_, _, high, low, ..] if u16::from_be_bytes([*high, *low]) & 0xfff9 != 0 => {
                    return Found::Fragment;
                }
                _ => 8,
            },
            _ => break,
        };
        let (Some(after), Some(rest)) = (inside.first().copied(), inside.get(length..)) else {
            return Found::Cut;
        };
        let Some(left) = inside_len.checked_sub(length) else { return Found::Other };
        (next, inside, inside_len, extended) = (after, rest, left, true);
    }
    if next != UDP {
        return Found::Other;
    }
    let ip = if extended { None } else { bytes.first_chunk().copied().map(Ip::V6) };
    let around = Around {
        source: packet.source().into(),
        destination: packet.destination().into(),
        ecn: packet.traffic_class() & 3,
        ident: 0,
        ip_len,
        ip,
    };
    in_udp(inside, inside_len, around, port)
}

/// RoCEv1: a global route header, laid out as IPv6's, and the packet.
fn in_grh(bytes: &[u8]) -> Found<'_> {
    let Ok((packet, inside)) = ipv6::Packet::new_checked(bytes) else { return Found::Cut };
    if packet.version() != 6 || packet.next_header() != BTH {
        return Found::Other;
    }
    let length = usize::from(packet.payload_length());
    Found::Roce(Datagram {
        source: packet.source().into(),
        destination: packet.destination().into(),
        ecn: packet.traffic_class() & 3,
        ident: 0,
        source_port: None,
        bytes: inside.get(..length).unwrap_or(inside),
        missing: length.saturating_sub(inside.len()),
        ip_len: (ipv6::LEN + length) as u32,
        around: None,
        way: None,
    })
}

/// What IP says.
struct Around {
    source: IpAddr,
    destination: IpAddr,
    ecn: u8,
    ident: u16,
    ip_len: u32,
    ip: Option<Ip<[u8; ipv4::LEN], [u8; ipv6::LEN]>>,
}

/// `inside_len` is what IP says of its length as it travelled.
fn in_udp(inside: &[u8], inside_len: usize, around: Around, port: u16) -> Found<'_> {
    let Some((header, rest)) = inside.split_first_chunk::<{ udp::LEN }>() else {
        return Found::Cut;
    };
    let Ok((packet, _)) = udp::Packet::new_checked(header) else { return Found::Cut };
    if packet.destination_port() != port {
        return Found::Other;
    }
    let length = usize::from(packet.length());
    let Some(datagram_len) = length.checked_sub(udp::LEN) else {
        return Found::Wrong("UDP's length is less than its header's");
    };
    if length != inside_len {
        return Found::Wrong("UDP's length is another than what IP leaves for it");
    }
    let Around { source, destination, ecn, ident, ip_len, ip } = around;
    Found::Roce(Datagram {
        source,
        destination,
        ecn,
        ident,
        source_port: Some(packet.source_port()),
        bytes: rest.get(..datagram_len).unwrap_or(rest),
        missing: datagram_len.saturating_sub(rest.len()),
        ip_len,
        around: ip.map(|ip| Headers::captured(ip, *header)),
        way: None,
    })
}
