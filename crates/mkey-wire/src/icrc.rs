//! The invariant CRC: CRC-32, with Ethernet's polynomial, of all that no switch or router changes
//! on the way.
//!
//! It goes over eight bytes 0xff, which stand for InfiniBand's local route header, then the IP
//! header, the UDP header and the packet up to the ICRC. What may change on the way counts as ones:
//! of IPv4 type of service, time to live and checksum; of IPv6 traffic class, flow label and hop
//! limit; of UDP the checksum; of the BTH the byte with the congestion bits (annex A17). On the
//! wire it is one number with its low byte first.

mod ident;

pub use ident::ident_of;

use crate::udp_ip::{Headers, Ip};
use crate::{bth, ipv4, ipv6, udp};

/// Its length in bytes.
pub const LEN: usize = 4;

/// What stands for the local route header.
const ROUTE: usize = 8;

/// An ICRC in the making. What is sent need not lie in one piece.
#[derive(Clone, Debug)]
pub struct Icrc(crc32fast::Hasher);

impl Icrc {
    /// Begins with the headers of IP and UDP and the base transport header. The extended headers,
    /// the payload and its pad come next.
    pub fn new(around: &Headers, bth: &[u8; bth::LEN]) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        // One call for all of it: with so few bytes it is calls that cost.
        match around.ip() {
            Ip::V4(ip) => {
                const UDP: usize = ROUTE + ipv4::LEN;
                const BTH: usize = UDP + udp::LEN;
                let mut covered = [0xff; BTH + bth::LEN];
                covered[ROUTE..UDP].copy_from_slice(ip);
                covered[UDP..BTH].copy_from_slice(around.udp());
                covered[BTH..].copy_from_slice(bth);
                // Type of service, time to live, checksum; UDP checksum; congestion bits.
                for at in [ROUTE + 1, ROUTE + 8, ROUTE + 10, ROUTE + 11, UDP + 6, UDP + 7, BTH + 4]
                {
                    covered[at] = 0xff;
                }
                hasher.update(&covered);
            }
            Ip::V6(ip) => {
                const UDP: usize = ROUTE + ipv6::LEN;
                const BTH: usize = UDP + udp::LEN;
                let mut covered = [0xff; BTH + bth::LEN];
                covered[ROUTE..UDP].copy_from_slice(ip);
                covered[UDP..BTH].copy_from_slice(around.udp());
                covered[BTH..].copy_from_slice(bth);
                // Traffic class and flow label share their bytes with the version.
                covered[ROUTE] |= 0x0f;
                // The rest of them, hop limit; UDP checksum; congestion bits.
                for at in [ROUTE + 1, ROUTE + 2, ROUTE + 3, ROUTE + 7, UDP + 6, UDP + 7, BTH + 4] {
                    covered[at] = 0xff;
                }
                hasher.update(&covered);
            }
        }
        Self(hasher)
    }

    /// Goes on with `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The ICRC. It is written with [`u32::to_le_bytes`].
    pub fn finish(self) -> u32 {
        self.0.finalize()
    }
}

/// The ICRC that a whole datagram must have between the headers `around` it: of all but its last 4
/// bytes. `None` if it is too short to have a BTH and an ICRC.
pub fn of_datagram(around: &Headers, datagram: &[u8]) -> Option<u32> {
    let (bth, rest) = datagram.split_first_chunk()?;
    let (covered, _) = rest.split_last_chunk::<LEN>()?;
    let mut icrc = Icrc::new(around, bth);
    icrc.update(covered);
    Some(icrc.finish())
}
