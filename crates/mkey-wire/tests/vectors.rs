//! Public packets with their ICRC, from the tests of scapy (`test/contrib/roce.uts`).

use mkey_wire::body::Body;
use mkey_wire::bth::Fields;
use mkey_wire::frame::Frame;
use mkey_wire::icrc::{self, Icrc};
use mkey_wire::packet::{Packet, Repr};
use mkey_wire::pcap::LinkType;
use mkey_wire::request::{Request, Send, Tail};
use mkey_wire::u24::{Psn, Qpn};
use mkey_wire::udp_ip::{self, Ip};
use mkey_wire::{ipv4, udp};

/// A congestion notification captured on a ConnectX-4 Lx.
const CNP: [u8; 74] = [
    0xe4, 0x1d, 0x2d, 0xab, 0x2b, 0xc2, 0x7c, 0xfe, 0x90, 0x64, 0x3b, 0x32, 0x08, 0x00, 0x45, 0xc2,
    0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11, 0x01, 0x0a, 0x00,
    0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, 0x81, 0x00, 0xff, 0xff, 0x40, 0x00,
    0x01, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0xfd, 0x00, 0x2a,
];

#[test]
fn a_congestion_notification_of_a_nic() {
    let frame = Frame::parse(LinkType::Ethernet, &CNP).expect("RoCEv2");
    let packet = frame.packet().expect("a packet");
    let fields = Fields { becn: true, ..Fields::new(Qpn::wrapping(0x118), Psn::wrapping(0)) };
    assert_eq!(packet.repr, Repr { fields, body: Body::Cnp });
    assert_eq!(packet.icrc.to_le_bytes(), [0x82, 0xfd, 0x00, 0x2a]);
    assert_eq!(frame.icrc(), Some(packet.icrc));
    assert_eq!(Packet::sealed(packet.repr, &[], &frame.around), Ok(packet));
    let mut bytes = [0xff; 32];
    assert_eq!(packet.emit(&mut bytes), Ok(32));
    assert_eq!(bytes, CNP[42..]);
}

#[test]
fn a_send_on_an_unreliable_connection() {
    let ip = ipv4::Repr {
        tos: 1,
        ident: 1144,
        ..ipv4::Repr::new([192, 168, 0, 7].into(), [192, 168, 0, 7].into())
    };
    let udp = udp::Repr { source_port: 49152, checksum: 0xaca2 };
    let around = udp_ip::Repr { ip: Ip::V4(ip), udp };
    let fields =
        Fields { migration: true, ..Fields::new(Qpn::wrapping(211), Psn::wrapping(13_571_856)) };
    let body = Body::UcRequest(Request::Send(Send::Only(Tail::Plain)));
    let payload = *b"F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P";
    let packet = Packet::sealed(Repr { fields, body }, &payload, &around).expect("a packet");
    assert_eq!(packet.icrc.to_le_bytes(), [0x78, 0xf3, 0x53, 0xf3]);

    let mut bytes = [0xff; 36];
    assert_eq!(packet.emit(&mut bytes), Ok(36));
    let bth = [0x24, 0x60, 0xff, 0xff, 0x00, 0x00, 0x00, 0xd3, 0x00, 0xcf, 0x17, 0x10];
    assert_eq!(bytes[..12], bth);
    assert_eq!(bytes[12..30], payload);
    assert_eq!(bytes[30..], [0, 0, 0x78, 0xf3, 0x53, 0xf3]);
    // The checksum of the IP header is scapy's, too.
    let headers = around.headers(36).expect("a datagram");
    assert_eq!(headers.ip_bytes()[10..12], [0xb4, 0xd5]);
    assert_eq!(icrc::of_datagram(&headers, &bytes), Some(packet.icrc));
}

#[test]
fn the_pieces_that_it_is_computed_over_do_not_matter() {
    let frame = Frame::parse(LinkType::Ethernet, &CNP).expect("RoCEv2");
    let around = frame.around.headers(frame.datagram.len()).expect("a datagram");
    let (bth, rest) = frame.datagram.split_first_chunk().expect("a BTH");
    let covered = &rest[..16];
    for size in 1..=16 {
        let mut icrc = Icrc::new(&around, bth);
        covered.chunks(size).for_each(|piece| icrc.update(piece));
        assert_eq!(icrc.finish().to_le_bytes(), [0x82, 0xfd, 0x00, 0x2a], "pieces of {size}");
    }
}

#[test]
fn what_changes_on_the_way_does_not_change_it_and_all_else_does() {
    let frame = Frame::parse(LinkType::Ethernet, &CNP).expect("RoCEv2");
    let icrc = frame.icrc().expect("whole");
    // Type of service, time to live, checksums, congestion bits: bytes of the frame.
    let free = [15, 22, 24, 25, 40, 41, 46];
    // Bytes that a frame must have to be RoCEv2 at all.
    let fixed = [14, 16, 17, 20, 21, 23, 36, 37, 38, 39];
    for at in (14..70).filter(|at| !fixed.contains(at)) {
        let mut changed = CNP;
        changed[at] ^= 0x01;
        let frame = Frame::parse(LinkType::Ethernet, &changed).expect("RoCEv2");
        assert_eq!(frame.icrc() == Some(icrc), free.contains(&at), "byte {at}");
    }
}

#[test]
fn a_datagram_without_room_for_headers_and_icrc_has_none() {
    let frame = Frame::parse(LinkType::Ethernet, &CNP).expect("RoCEv2");
    let around = frame.around.headers(15).expect("a datagram");
    assert_eq!(icrc::of_datagram(&around, &frame.datagram[..15]), None);
    let Ip::V4(ip) = frame.around.ip else { panic!("over IPv4") };
    assert_eq!(icrc::ident_of(ip, frame.around.udp, &frame.datagram[..15]), Ok(None));
    let around = frame.around.headers(16).expect("a datagram");
    assert!(icrc::of_datagram(&around, &frame.datagram[..16]).is_some());
}
