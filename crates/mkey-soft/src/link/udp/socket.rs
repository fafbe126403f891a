//! A UDP socket as RoCEv2 needs it: unconnected, so that its IPv4 packets have identification 0 and
//! may not be fragmented, which the ICRC covers; and shared by the processes that have its address.

use crate::not_inherited::NotInherited;
use mkey_wire::udp::ROCE_PORT;
use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt as options;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes that the kernel is asked to keep for the receiver; it doubles them, for what it has around each
/// packet. Without privilege it gives no more than `net.core.rmem_max`.
///
/// Nothing holds a sender of UC and UD back, and what its receiver has not taken in when the buffer is full
/// is lost for good: so it holds what programs post at once (20 messages of 8 MiB), even if the receiver has
/// no processor meanwhile. It is a bound, and takes no memory itself; `net.ipv4.udp_mem` bounds all sockets.
const BUFFER: usize = 128 << 20;
/// The longest datagram, and the most that the kernel hands over at once.
pub(super) const LONGEST: usize = 65_535;
/// Of `linux/udp.h`.
const UDP_NO_CHECK6_RX: libc::c_int = 102;
/// How long a full send buffer is waited for.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// The socket.
#[derive(Debug)]
pub(super) struct Socket {
    fd: NotInherited,
    v4: bool,
    /// Whether the kernel cuts many packets out of one piece.
    segments: AtomicBool,
    /// Why it does not, although it had said so.
    uncut: OnceLock<nix::Error>,
}

/// The kernel does not cut packets out of one piece on the way that they were to take: not all network
/// devices let it. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Uncut;

/// Datagrams that were received at once, each of `segment` bytes but the last. One of no byte has a
/// segment of 1, so that what is received can be cut by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    pub(super) from: SocketAddr,
    pub(super) length: usize,
    pub(super) segment: usize,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

impl Socket {
    /// The socket of this address, at RoCEv2's port.
    ///
    /// # Errors
    /// Those of binding: the address is not of this host, or the port is another user's (or the
    /// kernel's).
    pub(super) fn open(address: IpAddr) -> io::Result<Self> {
        let v4 = address.is_ipv4();
        let family = if v4 { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        options::set_socket_reuseport(&fd, true)?;
        if options::set_socket_recv_buffer_size_force(&fd, BUFFER).is_err() {
            // As much as is given.
            let _ = options::set_socket_recv_buffer_size(&fd, BUFFER);
        }
        if v4 {
            options::set_ip_mtu_discover(&fd, options::Ipv4PathMtuDiscovery::DO)?;
            options::set_ip_recvtos(&fd, true)?;
            setsockopt(&fd, sockopt::Ipv4RecvTtl, &true)?;
        } else {
            options::set_ipv6_mtu_discover(&fd, options::Ipv6PathMtuDiscovery::DO)?;
            options::set_ipv6_recvtclass(&fd, true)?;
            setsockopt(&fd, sockopt::Ipv6RecvHopLimit, &true)?;
            receive_without_checksum(&fd)?;
        }
        // Older kernels lack it, and hand over each datagram by itself then.
        let _ = setsockopt(&fd, sockopt::UdpGroSegment, &true);
        rustix::net::bind(&fd, &SocketAddr::new(address, ROCE_PORT))?;
        let segments = setsockopt(&fd, sockopt::UdpGsoSegment, &0).is_ok();
        Ok(Self {
            fd: NotInherited::new(fd),
            v4,
            segments: AtomicBool::new(segments),
            uncut: OnceLock::new(),
        })
    }

    /// Whether many packets may be sent at once.
    pub(super) fn segments(&self) -> bool {
        self.segments.load(Ordering::Relaxed)
    }

    /// Why many packets can not be sent at once, although the kernel had said so.
    pub(super) fn trouble(&self) -> Option<String> {
        self.uncut.get().map(nix::Error::to_string)
    }

    /// Sends packets of `segment` bytes each, but for the last. What can not be sent is lost.
    pub(super) fn send(
        &self,
        to: IpAddr,
        packets: &[u8],
        segment: usize,
        traffic_class: u8,
        hop_limit: u8,
    ) -> Result<(), Uncut> {
        let to = SockaddrStorage::from(SocketAddr::new(to, ROCE_PORT));
        let (class, hops) = (i32::from(traffic_class), i32::from(hop_limit.max(1)));
        let size = segment as u16;
        let mut about = match self.v4 {
            true => vec![ControlMessage::Ipv4Tos(&traffic_class), ControlMessage::Ipv4Ttl(&hops)],
            false => vec![ControlMessage::Ipv6TClass(&class), ControlMessage::Ipv6HopLimit(&hops)],
        };
        if packets.len() > segment {
            about.push(ControlMessage::UdpGsoSegments(&size));
        }
        let (fd, bytes) = (self.fd.as_fd().as_raw_fd(), [IoSlice::new(packets)]);
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let mut sent = sendmsg(fd, &bytes, &about, flags, Some(&to));
        if matches!(sent, Err(nix::Error::EAGAIN | nix::Error::ENOBUFS)) {
            let mut writable = [PollFd::new(&self.fd, PollFlags::OUT)];
            let _ = poll(&mut writable, Some(&PATIENCE));
            sent = sendmsg(fd, &bytes, &about, flags, Some(&to));
        }
        match sent {
            Err(error @ (nix::Error::EIO | nix::Error::EINVAL)) if packets.len() > segment => {
                self.segments.store(false, Ordering::Relaxed);
                let _ = self.uncut.set(error);
                Err(Uncut)
            }
            // What else goes wrong is as if it were lost on the way.
            _ => Ok(()),
        }
    }

    /// What has arrived next, if there is something.
    pub(super) fn receive(&self, into: &mut [u8]) -> Option<Received> {
        let mut about = cmsg_space!(i32, i32, i32);
        let mut room = [IoSliceMut::new(into)];
        let flags = MsgFlags::MSG_DONTWAIT;
        // Errors that were reported for what was sent before are passed over.
        let message = (0..4).find_map(|_| {
            let (fd, about) = (self.fd.as_fd().as_raw_fd(), Some(&mut about[..]));
            match recvmsg::<SockaddrStorage>(fd, &mut room, about, flags) {
                Ok(message) => Some(Some(read(&message))),
                Err(nix::Error::EAGAIN) => Some(None),
                Err(_) => None,
            }
        });
        message.flatten().flatten()
    }
}

/// Takes packets by IPv6, too, whose UDP checksum is 0, as the kernel's soft-RoCE sends them: they have
/// their ICRC.
#[allow(unsafe_code)]
fn receive_without_checksum(fd: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let size = size_of_val(&on) as libc::socklen_t;
    let (level, option) = (libc::IPPROTO_UDP, UDP_NO_CHECK6_RX);
    // SAFETY: it reads an integer of that size.
    match unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const on).cast(), size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn read(message: &nix::sys::socket::RecvMsg<'_, '_, SockaddrStorage>) -> Option<Received> {
    let address = message.address?;
    let from = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => SocketAddr::V4((*v4).into()),
        (_, Some(v6)) => SocketAddr::V6((*v6).into()),
        _ => return None,
    };
    let length = message.bytes;
    let segment = length.max(1);
    let mut received = Received { from, length, segment, traffic_class: 0, hop_limit: 0 };
    for about in message.cmsgs().ok()? {
        match about {
            ControlMessageOwned::UdpGroSegments(size) => received.segment = size.max(1) as usize,
            ControlMessageOwned::Ipv4Tos(tos) => received.traffic_class = tos,
            ControlMessageOwned::Ipv6TClass(class) => received.traffic_class = class as u8,
            ControlMessageOwned::Ipv4Ttl(ttl) => received.hop_limit = ttl as u8,
            ControlMessageOwned::Ipv6HopLimit(hops) => received.hop_limit = hops as u8,
            _ => {}
        }
    }
    Some(received)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
