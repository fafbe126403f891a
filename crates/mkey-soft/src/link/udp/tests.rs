use super::*;
use mkey_wire::body::Body;
use mkey_wire::bth::Fields;
use mkey_wire::packet::Repr;
use mkey_wire::request::{Request, Send, Tail};
use mkey_wire::u24::{Psn, Qpn};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};

/// A packet with a payload of 100 bytes.
fn packet(psn: u32, damage: Option<u32>) -> Outbound {
    let fields = Fields::new(Qpn::wrapping(5), Psn::wrapping(psn));
    let body = Body::RcRequest(Request::Send(Send::Only(Tail::Plain)));
    let envelope = Envelope { hop_limit: 64, ..Envelope::default() };
    Outbound { repr: Repr { fields, body }, length: 100, envelope, damage }
}

/// What has arrived, in order, and whether its ICRC is right for a packet that was sent by itself.
fn arrived(udp: &Udp, from: Gid) -> Vec<(u32, bool)> {
    let mut all = Vec::new();
    let mut buffer = vec![0; LONGEST];
    while let Some(received) = udp.socket.receive(&mut buffer) {
        assert_eq!(received.length, received.segment, "it came by itself");
        let datagram = &buffer[..received.length];
        let source_port = received.from.port();
        let envelope = Envelope { source_port, hop_limit: 64, ..Envelope::default() };
        let around = around(from, udp.gid, &envelope).unwrap();
        let packet = Packet::parse(datagram).unwrap();
        let headers = around.headers(datagram.len()).unwrap();
        let right = icrc::of_datagram(&headers, datagram) == Some(packet.icrc);
        all.push((packet.repr.fields.psn.get(), right));
    }
    all
}

#[allow(unsafe_code)]
fn without_checksums(socket: &Socket) {
    let on: libc::c_int = 1;
    let (fd, size) = (socket.as_fd().as_raw_fd(), size_of_val(&on) as libc::socklen_t);
    let (level, option) = (libc::SOL_SOCKET, libc::SO_NO_CHECK);
    // SAFETY: it reads an integer of that size.
    let set = unsafe { libc::setsockopt(fd, level, option, (&raw const on).cast(), size) };
    assert_eq!(set, 0);
}

fn port(address: &str) -> Arc<Udp> {
    Udp::of(gid_of(address.parse().unwrap()), None).unwrap()
}

/// Where the kernel does not cut packets out of one piece, none is lost, and each is as it would be had
/// it been sent by itself from the start.
#[test]
fn packets_go_one_by_one_where_they_are_not_cut() {
    let (from, to) = (port("127.87.0.1"), port("127.87.0.2"));
    // Where UDP has no checksums, Linux cuts nothing.
    without_checksums(&from.socket);
    let path = from.path(to.gid, 5, true).unwrap();
    assert!(from.trouble().is_none());
    for (psn, damage) in [(1, None), (2, None), (3, Some(8 * 20)), (4, None)] {
        let sent = path.send(&packet(psn, damage), &mut |mut room| {
            room.put(Bytes::of(&[7; 100]));
            true
        });
        assert_eq!(sent, Ok(()));
    }
    path.flush();
    let trouble = from.trouble().expect("it is told");
    assert!(trouble.contains("one by one"), "{trouble}");
    assert_eq!(arrived(&to, from.gid), [(1, true), (2, true), (3, false), (4, true)]);
    // The next ones are not tried together.
    assert!(!from.socket.segments());
}

/// Whether a port can be had is told without a socket that takes packets from who has it.
#[test]
fn a_port_that_is_ours_is_not_opened_once_more() {
    let (address, other) = (Ipv4Addr::new(127, 87, 0, 3), Ipv4Addr::new(127, 87, 0, 4));
    // One that lets nobody in beside it: it would show.
    let _holder = std::net::UdpSocket::bind((address, ROCE_PORT)).unwrap();
    Udp::check(gid_of(address.into())).unwrap();
    Udp::check(gid_of(other.into())).unwrap();
    let nowhere = Udp::check(gid_of("192.0.2.1".parse().unwrap())).unwrap_err();
    assert_eq!(nowhere.kind(), io::ErrorKind::AddrNotAvailable);
}
