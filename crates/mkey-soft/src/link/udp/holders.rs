//! Who has a UDP port already.

use std::fs;
use std::net::SocketAddr;

/// Whether a process of this user has a port of an address. If that can not be told, nobody has.
pub(super) fn is_ours(place: SocketAddr) -> bool {
    let table = if place.is_ipv4() { "/proc/self/net/udp" } else { "/proc/self/net/udp6" };
    let table = fs::read_to_string(table).unwrap_or_default();
    let (place, user) = (in_table(place), rustix::process::geteuid().as_raw());
    table.lines().skip(1).filter_map(entry).any(|holder| holder == (place.as_str(), user))
}

/// The local address and the user of a line of the table.
fn entry(line: &str) -> Option<(&str, u32)> {
    let mut words = line.split_ascii_whitespace();
    Some((words.nth(1)?, words.nth(5)?.parse().ok()?))
}

/// A port of an address as the table has it: words of 4 bytes as this processor reads them.
fn in_table(place: SocketAddr) -> String {
    let bytes = match place {
        SocketAddr::V4(v4) => v4.ip().octets().to_vec(),
        SocketAddr::V6(v6) => v6.ip().octets().to_vec(),
    };
    let (words, _) = bytes.as_chunks();
    let words: String =
        words.iter().map(|&word| format!("{:08X}", u32::from_ne_bytes(word))).collect();
    format!("{words}:{:04X}", place.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

    #[test]
    fn who_has_a_port_is_found() {
        for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let holder = UdpSocket::bind((address, 0)).unwrap();
            let place = holder.local_addr().unwrap();
            assert!(is_ours(place), "{place}");
            assert!(!is_ours(SocketAddr::new(Ipv4Addr::new(127, 87, 0, 9).into(), place.port())));
        }
    }
}
