//! Packets as datagrams: with their ICRC, which covers the addresses.

use super::{Envelope, Fill, Outbound, Unsent};
use crate::payload::Room;
use mkey_core::device::Gid;
use mkey_wire::icrc::{self, Icrc};
use mkey_wire::udp_ip::{self, Ip};
use mkey_wire::{bth, ipv4, ipv6, udp};
use std::net::{IpAddr, Ipv6Addr};

/// The address of a port.
pub(crate) fn address(gid: Gid) -> IpAddr {
    Ipv6Addr::from(gid.0).to_canonical()
}

/// What is around a packet between two ports, as an unconnected socket sends it; `None` if one has
/// an IPv4 address and the other one of IPv6.
pub(crate) fn around(from: Gid, to: Gid, envelope: &Envelope) -> Option<udp_ip::Repr> {
    let Envelope { traffic_class, hop_limit, source_port, .. } = *envelope;
    let ip = match (address(from), address(to)) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            Ip::V4(ipv4::Repr { tos: traffic_class, ttl: hop_limit, ..ipv4::Repr::new(from, to) })
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            Ip::V6(ipv6::Repr { traffic_class, hop_limit, ..ipv6::Repr::new(from, to) })
        }
        _ => return None,
    };
    Some(udp_ip::Repr { ip, udp: udp::Repr { source_port, checksum: 0 } })
}

/// Adds a whole packet to `buffer`, filled and with its ICRC. On an error nothing is added.
pub(crate) fn emit(
    packet: &Outbound,
    around: &udp_ip::Repr,
    fill: &mut Fill<'_>,
    buffer: &mut Vec<u8>,
) -> Result<(), Unsent> {
    let start = buffer.len();
    let total = packet.repr.buffer_len(packet.length);
    buffer.resize(start + total, 0);
    let written = emit_into(packet, around, fill, buffer.get_mut(start..).unwrap_or_default());
    if written.is_err() {
        buffer.truncate(start);
    }
    written
}

/// Makes room into a whole packet, filled and with its ICRC, whatever was there before. There is as much
/// of it as the packet is long.
pub(crate) fn emit_into(
    packet: &Outbound,
    around: &udp_ip::Repr,
    fill: &mut Fill<'_>,
    room: &mut [u8],
) -> Result<(), Unsent> {
    write(packet, around, fill, room).ok_or(Unsent::Unfilled)
}

/// Puts a packet between other headers: its ICRC is made to fit them, unless the packet is damaged.
pub(crate) fn put_between(other: &udp_ip::Repr, around: &udp_ip::Repr, packet: &mut [u8]) {
    let icrc = |around: &udp_ip::Repr, packet: &[u8]| {
        icrc::of_datagram(&around.headers(packet.len()).ok()?, packet).map(u32::to_le_bytes)
    };
    let (before, after) = (icrc(around, packet), icrc(other, packet));
    if let Some(checksum) = packet.last_chunk_mut::<{ icrc::LEN }>()
        && before == Some(*checksum)
        && let Some(after) = after
    {
        *checksum = after;
    }
}

fn write(
    packet: &Outbound,
    around: &udp_ip::Repr,
    fill: &mut Fill<'_>,
    buffer: &mut [u8],
) -> Option<()> {
    let headers = around.headers(buffer.len()).ok()?;
    let (covered, checksum) = buffer.split_last_chunk_mut::<{ icrc::LEN }>()?;
    let at = packet.repr.emit(packet.length, covered).ok()?;
    let (payload, pad) = covered.get_mut(at..)?.split_at_mut_checked(packet.length)?;
    pad.fill(0);
    if !fill(Room::of(payload)) {
        return None;
    }
    let (bth, rest) = covered.split_first_chunk::<{ bth::LEN }>()?;
    let mut icrc = Icrc::new(&headers, bth);
    icrc.update(rest);
    *checksum = icrc.finish().to_le_bytes();
    if let Some(bit) = packet.damage {
        let at = bit as usize % (8 * buffer.len().max(1));
        if let Some(byte) = buffer.get_mut(at / 8) {
            *byte ^= 1 << (at % 8);
        }
    }
    Some(())
}
