//! How much a port's network takes.

use super::datagram::address;
use crate::options::{Link, SoftOptions};
use mkey_core::device::Gid;
use nix::ifaddrs::getifaddrs;
use std::fs;
use std::net::IpAddr;

/// Bytes of payload of a packet, as there are (`enum ibv_mtu`).
pub(crate) const SIZES: [u32; 5] = [4096, 2048, 1024, 512, 256];
const MOST: u32 = SIZES[0];
/// Bytes of headers, at most.
const HEADERS: u32 = 80;

/// The MTU of a port that is opened so: what is asked for, or as much as the network of its address
/// takes.
pub(crate) fn of(options: &SoftOptions) -> u32 {
    let by_udp = matches!(options.link, Link::Auto | Link::Udp) && !options.clock.is_virtual();
    let given = options.mtu.or_else(|| interface(options.gid).filter(|_| by_udp));
    given.unwrap_or(MOST)
}

/// The MTU for RoCEv2 on the interface that has a port's address.
fn interface(gid: Gid) -> Option<u32> {
    let wanted = address(gid);
    let name = getifaddrs().ok()?.find_map(|interface| {
        let address = interface.address?;
        let found = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => IpAddr::V4(v4.ip()),
            (_, Some(v6)) => IpAddr::V6(v6.ip()),
            _ => return None,
        };
        (found == wanted).then_some(interface.interface_name)
    })?;
    let mtu = fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?;
    Some(fitting(mtu.trim().parse().ok()?))
}

/// The largest MTU of RoCEv2 whose packets fit an interface.
fn fitting(interface: u32) -> u32 {
    let fits = |mtu: &u32| mtu + HEADERS <= interface;
    SIZES.into_iter().find(fits).unwrap_or(256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::gid_of;
    use std::net::Ipv4Addr;

    #[test]
    fn packets_fit_the_interface() {
        assert_eq!(
            [65_536, 9000, 4176, 4175, 1500, 576].map(fitting),
            [4096, 4096, 4096, 2048, 1024, 256]
        );
        assert_eq!(interface(gid_of(Ipv4Addr::LOCALHOST.into())), Some(4096));
        assert_eq!(interface(gid_of(Ipv4Addr::new(192, 0, 2, 1).into())), None);
    }
}
