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

/// Nothing holds a sender of UC back: what its receiver does not take in yet is kept for it. Without
/// privilege that is less.
#[test]
fn a_burst_is_kept_for_a_receiver_that_looks_at_nothing() {
    const LENGTH: usize = 4096;
    let (from, to) = (port("127.87.0.8"), port("127.87.0.9"));
    let unprivileged = {
        let other = std::net::UdpSocket::bind(("127.87.0.9", 0)).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&other, 1).is_err()
    };
    let holds = rustix::net::sockopt::socket_recv_buffer_size(&to.socket).unwrap();
    assert!(unprivileged || holds == 256 << 20, "{holds}");
    let path = from.path(to.gid, 5, true).unwrap();
    // The rest is for what the kernel has around each packet.
    let count = holds / 2 / LENGTH;
    for psn in 0..count {
        let packet = Outbound { length: LENGTH, ..packet(psn as u32, None) };
        let sent = path.send(&packet, &mut |mut room| {
            room.put(Bytes::of(&[7; LENGTH]));
            true
        });
        assert_eq!(sent, Ok(()));
    }
    path.flush();
    let mut buffer = vec![0; LONGEST];
    let arrived = std::iter::from_fn(|| to.socket.receive(&mut buffer));
    let arrived: usize = arrived.map(|it| it.length.div_ceil(it.segment)).sum();
    assert!(count > 0 && arrived == count, "{arrived} of {count}");
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

/// The bytes of a packet with a payload of 100 bytes between these ports.
fn sealed(psn: u32, from: Gid, to: Gid, source_port: u16) -> Vec<u8> {
    let envelope = Envelope { source_port, hop_limit: 64, ..Envelope::default() };
    let around = around(from, to, &envelope).unwrap();
    let mut bytes = Vec::new();
    let fill: &mut Fill<'_> = &mut |mut room| {
        room.put(Bytes::of(&[7; 100]));
        true
    };
    crate::link::datagram::emit(&packet(psn, None), &around, fill, &mut bytes).unwrap();
    bytes
}

/// Takes in all that is there: number, payload and sender of what is a packet.
fn taken_in(udp: &Udp) -> Vec<(u32, Vec<u8>, Gid)> {
    let mut all = Vec::new();
    while udp.receive(true, &mut |inbound| {
        assert_eq!(inbound.to, udp.gid);
        all.push((inbound.repr.fields.psn.get(), inbound.payload.to_vec(), inbound.from));
    }) {}
    all
}

/// Whatever a socket sends that is no whole packet of its own address reaches no queue pair, and does
/// not keep the next packet from it.
#[test]
fn garbage_truncated_and_spoofed_datagrams_are_passed_over() {
    let to = port("127.87.0.5");
    let socket = std::net::UdpSocket::bind(("127.87.0.6", 0)).unwrap();
    let source_port = socket.local_addr().unwrap().port();
    let (own, other) = (gid_of([127, 87, 0, 6].into()), gid_of([127, 87, 0, 7].into()));
    let send = |datagram: &[u8]| {
        socket.send_to(datagram, ("127.87.0.5", ROCE_PORT)).unwrap();
    };
    let right = sealed(1, own, to.gid, source_port);
    let expected = |psn| vec![(psn, vec![7; 100], own)];
    send(&right);
    assert_eq!(taken_in(&to), expected(1));
    let passed_over = |datagram: &[u8], why: &str| {
        send(datagram);
        assert_eq!(taken_in(&to), [], "{why}: {datagram:?}");
    };
    // Of no byte, too: the kernel hands it over as any other.
    for length in 0..right.len() {
        passed_over(&right[..length], "truncated");
    }
    // From the payload on, since some bits of the headers are for the switches to change.
    for bit in 12 * 8..right.len() * 8 {
        let mut damaged = right.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        passed_over(&damaged, "damaged");
    }
    passed_over(&sealed(2, other, to.gid, source_port), "another's address");
    passed_over(&sealed(2, own, other, source_port), "to another");
    passed_over(&sealed(2, own, to.gid, source_port ^ 1), "from another port");
    let mut random = fastrand::Rng::with_seed(1);
    for length in 0..300 {
        let garbage: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        passed_over(&garbage, "garbage");
    }
    send(&sealed(3, own, to.gid, source_port));
    assert_eq!(taken_in(&to), expected(3), "it goes on");
}

/// Of IPv6 the ICRC covers no identification, so that nothing is left open.
#[test]
fn a_packet_over_ipv6_is_intact_or_not() {
    let [from, to, other] = ["fd00::1", "fd00::2", "fd00::3"].map(|it| gid_of(it.parse().unwrap()));
    let bytes = sealed(1, from, to, 0xc000);
    let icrc = Packet::parse(&bytes).unwrap().icrc;
    let envelope = Envelope { source_port: 0xc000, hop_limit: 64, ..Envelope::default() };
    let between = |from, to| around(from, to, &envelope).unwrap();
    for index in [0, 1] {
        assert!(is_intact(&between(from, to), index, &bytes, icrc));
        assert!(!is_intact(&between(other, to), index, &bytes, icrc));
        assert!(!is_intact(&between(from, to), index, &bytes, icrc ^ 1));
    }
    assert!(around(from, gid_of(Ipv4Addr::LOCALHOST.into()), &envelope).is_none());
}
