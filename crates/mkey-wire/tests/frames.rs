//! Packets in frames: what is around them, written into captures and read from them.

mod common;

use std::time::Duration;

use common::Record;
use mkey_wire::body::Body;
use mkey_wire::bth::Fields;
use mkey_wire::error::{Error, Header, Reason};
use mkey_wire::ethernet;
use mkey_wire::frame::Frame;
use mkey_wire::packet::{Packet, Repr};
use mkey_wire::pcap::{LinkType, Writer};
use mkey_wire::request::{Request, Send, Tail};
use mkey_wire::u24::{Psn, Qpn};
use mkey_wire::udp_ip::{self, Ip};
use mkey_wire::{ipv4, ipv6, udp};
use proptest::prelude::*;

fn around(version: u8) -> udp_ip::Repr {
    let ip = match version {
        4 => Ip::V4(ipv4::Repr::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into())),
        _ => {
            let addresses = ["fd00::1", "fd00::2"].map(|address| address.parse().expect("one"));
            Ip::V6(ipv6::Repr::new(addresses[0], addresses[1]))
        }
    };
    udp_ip::Repr { ip, udp: udp::Repr { source_port: 0xc001, checksum: 0 } }
}

fn packet(around: &udp_ip::Repr) -> Vec<u8> {
    let fields = Fields::new(Qpn::wrapping(0x11), Psn::wrapping(1));
    let body = Body::RcRequest(Request::Send(Send::Only(Tail::Plain)));
    let packet = Packet::sealed(Repr { fields, body }, b"hello", around).expect("a packet");
    let mut bytes = vec![0; packet.buffer_len()];
    packet.emit(&mut bytes).expect("it fits");
    bytes
}

/// A frame without Ethernet.
fn raw(around: &udp_ip::Repr) -> Vec<u8> {
    let datagram = packet(around);
    let headers = around.headers(datagram.len()).expect("a datagram");
    [headers.ip_bytes(), headers.udp(), &datagram].concat()
}

fn on_ethernet(tag: Option<u16>, version: u8) -> Vec<u8> {
    let ethertype = if version == 4 { ethernet::IPV4 } else { ethernet::IPV6 };
    let repr = ethernet::Repr { destination: [2; 6], source: [4; 6], tag, ethertype };
    let mut bytes = vec![0; repr.buffer_len()];
    repr.emit(&mut bytes).expect("it fits");
    [bytes, raw(&around(version))].concat()
}

#[test]
fn frames_of_both_link_types_and_both_versions_of_ip() {
    for version in [4, 6] {
        let around = around(version);
        let bytes = raw(&around);
        let frame = Frame::parse(LinkType::Raw, &bytes).expect("RoCEv2");
        let datagram = packet(&around);
        let expected = Frame { ethernet: None, around, datagram: &datagram, missing: 0 };
        assert_eq!(frame, expected);
        assert_eq!(frame.icrc(), frame.packet().ok().map(|packet| packet.icrc));

        for tag in [None, Some(0x6007)] {
            let bytes = on_ethernet(tag, version);
            let frame = Frame::parse(LinkType::Ethernet, &bytes).expect("RoCEv2");
            let header = frame.ethernet.expect("an Ethernet header");
            assert_eq!((header.tag, header.source), (tag, [4; 6]));
            assert_eq!(Frame { ethernet: None, ..frame }, expected);
        }
    }
}

#[test]
fn what_follows_the_datagram_is_no_part_of_it() {
    for version in [4, 6] {
        let bytes = on_ethernet(None, version);
        let filled = [&bytes[..], &[0; 7]].concat();
        assert_eq!(
            Frame::parse(LinkType::Ethernet, &filled),
            Frame::parse(LinkType::Ethernet, &bytes)
        );
    }
}

#[test]
fn what_was_not_captured_is_counted() {
    for version in [4, 6] {
        let around = around(version);
        let (bytes, datagram) = (raw(&around), packet(&around));
        let before = bytes.len() - datagram.len();
        for captured in 0..=datagram.len() {
            let frame = Frame::parse(LinkType::Raw, &bytes[..before + captured]).expect("headers");
            assert_eq!(frame.datagram, &datagram[..captured]);
            assert_eq!(frame.missing, datagram.len() - captured);
            assert_eq!(frame.icrc().is_some(), frame.missing == 0);
        }
        for captured in 0..before {
            let error = Frame::parse(LinkType::Raw, &bytes[..captured]).expect_err("cut");
            assert!(matches!(error.reason, Reason::Short { .. }), "{error}");
        }
    }
}

#[test]
fn other_traffic_and_lengths_that_contradict_each_other_are_refused() {
    let refused = |version, at: usize, byte, header, field, value| {
        let mut bytes = on_ethernet(None, version);
        bytes[at] = byte;
        let error = Frame::parse(LinkType::Ethernet, &bytes).expect_err("refused");
        assert_eq!(error, Error { header, reason: Reason::Unexpected { field, value } });
    };
    refused(4, 13, 0x06, Header::Ethernet, "EtherType", 0x0806);
    refused(4, 23, 6, Header::Ipv4, "protocol", 6);
    refused(6, 20, 58, Header::Ipv6, "next header", 58);
    refused(4, 37, 0xb8, Header::Udp, "destination port", 4792);
    // The UDP header says 32 bytes, the IP header what makes 32 behind it.
    refused(4, 39, 7, Header::Udp, "length", 7);
    refused(4, 39, 33, Header::Ipv4, "length behind the header", 32);
    refused(4, 17, 53, Header::Ipv4, "length behind the header", 33);
    refused(4, 17, 19, Header::Ipv4, "length behind the header", 0);
    refused(6, 19, 33, Header::Ipv6, "length behind the header", 33);
    // Without Ethernet, what is of no version is taken for version 4.
    let mut bytes = raw(&around(4));
    bytes[0] = 0x15;
    let error = Frame::parse(LinkType::Raw, &bytes).expect_err("version 1");
    let reason = Reason::Unexpected { field: "version and header length", value: 0x15 };
    assert_eq!(error, Error { header: Header::Ipv4, reason });
    let error = Frame::parse(LinkType::Raw, &[]).expect_err("nothing");
    assert_eq!(error.reason, Reason::Short { needed: 20, have: 0 });
}

#[test]
fn headers_say_at_most_what_their_length_fields_hold() {
    for (version, header, most) in [(4, Header::Ipv4, 65_507), (6, Header::Ipv6, 65_527)] {
        let around = around(version);
        assert!(around.headers(most).is_ok());
        let long = |length| Error { header, reason: Reason::Long { length, most } };
        assert_eq!(around.headers(most + 1), Err(long(most + 1)));
        assert_eq!(around.headers(1 << 20), Err(long(1 << 20)));
        assert_eq!(around.checksum(&[&vec![0; most + 1]]), Err(long(most + 1)));
    }
}

#[test]
fn captured_headers_are_those_that_were_written() {
    for version in [4, 6] {
        let headers = around(version).headers(100).expect("a datagram");
        assert_eq!(udp_ip::Headers::captured(*headers.ip(), *headers.udp()), headers);
    }
}

#[test]
fn a_checksum_makes_the_sum_of_all_that_it_covers_all_ones() {
    for version in [4, 6] {
        let around = around(version);
        let datagram = packet(&around);
        let whole = around.checksum(&[&datagram]).expect("a datagram");
        for split in 0..=datagram.len() {
            let (head, tail) = datagram.split_at(split);
            assert_eq!(around.checksum(&[head, tail]), Ok(whole), "split at {split}");
        }
        // RFC 768: over source, destination, protocol, length, header, data.
        let udp = udp::Repr { checksum: whole, ..around.udp };
        let headers = udp_ip::Repr { udp, ..around }.headers(datagram.len()).expect("a datagram");
        let addresses = match headers.ip() {
            Ip::V4(bytes) => &bytes[12..],
            Ip::V6(bytes) => &bytes[8..],
        };
        let length = [0, 17, 0, (datagram.len() + 8) as u8];
        let covered = [addresses, &length, headers.udp(), &datagram].concat();
        let words = covered.chunks(2).map(|word| match word {
            [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
            _ => panic!("an odd length"),
        });
        assert_eq!(words.sum::<u32>() % 0xffff, 0);
    }
}

#[test]
fn a_checksum_is_never_written_as_none() {
    // One in 2^16 datagrams has the checksum 0, which is written as 0xffff.
    let around = around(6);
    let written = (0..=u16::MAX).map(|word| around.checksum(&[&word.to_be_bytes()]));
    let mut all_ones = 0;
    for checksum in written {
        let checksum = checksum.expect("a datagram");
        assert_ne!(checksum, 0);
        all_ones += usize::from(checksum == u16::MAX);
    }
    assert_eq!(all_ones, 1);
}

#[test]
fn a_capture_is_read_by_others_as_it_was_written() {
    for link in [LinkType::Raw, LinkType::Ethernet] {
        let mut capture = Writer::new(Vec::new(), link).expect("memory");
        let frames = [raw(&around(4)), raw(&around(6)), Vec::new()];
        for (at, frame) in (1..).zip(&frames) {
            let (head, tail) = frame.split_at(frame.len() / 3);
            capture.write(Duration::new(at, 999_999_999), &[head, tail]).expect("memory");
        }
        let (read_link, records) = common::read(&capture.into_inner());
        assert_eq!(read_link, link as i32);
        let expected = (1..).zip(&frames).map(|(seconds, frame)| Record {
            seconds,
            fraction: 999_999_999,
            length: frame.len(),
            bytes: frame.clone(),
        });
        assert!(records.into_iter().eq(expected));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        link in prop_oneof![Just(LinkType::Raw), Just(LinkType::Ethernet)],
        bytes in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let _ = Frame::parse(link, &bytes);
    }

    #[test]
    fn no_change_of_a_frame_makes_it_panic(
        tag: Option<u16>,
        version in prop_oneof![Just(4_u8), Just(6)],
        changes in prop::collection::vec((0_usize..120, any::<u8>()), 1..4),
        length in 0_usize..120,
    ) {
        let mut bytes = on_ethernet(tag, version);
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(length);
        if let Ok(frame) = Frame::parse(LinkType::Ethernet, &bytes) {
            prop_assert!(frame.datagram.len() + frame.missing <= usize::from(u16::MAX));
            let _ = (frame.packet(), frame.icrc());
        }
    }
}
