//! Packets that the kernel sent: each is read, its ICRC is right, and writing it gives its bytes.
//! `captures/README.md` says how they were captured.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use mkey_wire::body::Body;
use mkey_wire::error::{Error, Header, Reason};
use mkey_wire::frame::Frame;
use mkey_wire::icrc;
use mkey_wire::packet::{Packet, Repr};
use mkey_wire::pcap::LinkType;
use mkey_wire::request::{Request, Tail, Write};
use mkey_wire::response::{ReadResponse, Response};
use mkey_wire::syndrome::{Credits, NakCode, Syndrome};
use mkey_wire::timer::RnrTimer;
use mkey_wire::u24::{Psn, Qpn};
use mkey_wire::udp;
use mkey_wire::udp_ip::Ip;
use mkey_wire::{atomic_eth, reth};

const ALL: [&str; 4] = ["rxe-7.3", "nvmeof-rxe-6.1", "nvmeof-rxe-7.3", "cm-requests-rxe-6.1"];

fn capture(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/captures/{name}.pcap"));
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (link, records) = common::read(&bytes);
    assert_eq!(link, LinkType::Ethernet as i32);
    records.into_iter().map(|record| record.bytes).collect()
}

/// The RoCEv2 packets of a capture. Other traffic must be refused as that.
fn frames(capture: &[Vec<u8>]) -> Vec<Frame<'_>> {
    let mut frames = Vec::new();
    for bytes in capture {
        match Frame::parse(LinkType::Ethernet, bytes) {
            Ok(frame) => frames.push(frame),
            Err(Error { reason: Reason::Unexpected { field, value }, .. }) => {
                let (arp, icmp, icmpv6, hop_by_hop) = (0x0806, 1, 58, 0);
                let other = match field {
                    "EtherType" => [arp].contains(&value),
                    "protocol" => [icmp].contains(&value),
                    "next header" => [icmpv6, hop_by_hop].contains(&value),
                    _ => false,
                };
                assert!(other, "{field} {value:#x}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    frames
}

#[test]
fn every_whole_packet_is_read_and_written_as_the_same_bytes() {
    let mut counts = BTreeMap::new();
    for name in ALL {
        let capture = capture(name);
        for frame in frames(&capture).iter().filter(|frame| frame.missing == 0) {
            let packet = match frame.packet() {
                Ok(packet) => packet,
                Err(error) => {
                    // Sent on purpose, to see what the kernel does.
                    let reason = Reason::Unexpected { field: "version", value: 1 };
                    assert_eq!(error, Error { header: Header::Bth, reason }, "{name}");
                    *counts.entry("version 1").or_insert(0) += 1;
                    continue;
                }
            };
            let mut bytes = vec![0xff; packet.buffer_len()];
            assert_eq!(packet.emit(&mut bytes), Ok(frame.datagram.len()), "{name}: {packet:?}");
            assert_eq!(bytes, frame.datagram, "{name}: {packet:?}");
            *counts.entry(name).or_insert(0) += 1;
        }
    }
    let expected = [
        ("cm-requests-rxe-6.1", 5),
        ("nvmeof-rxe-6.1", 32),
        ("nvmeof-rxe-7.3", 32),
        ("rxe-7.3", 134),
        ("version 1", 1),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
}

#[test]
fn every_whole_packet_has_the_icrc_that_is_computed_but_the_one_that_was_sent_wrong() {
    let (mut right, mut wrong) = ([0, 0], 0);
    for name in ALL {
        let capture = capture(name);
        for frame in frames(&capture).iter().filter(|frame| frame.missing == 0) {
            let (_, carried) = frame.datagram.split_last_chunk().expect("an ICRC");
            if frame.icrc() == Some(u32::from_le_bytes(*carried)) {
                right[usize::from(matches!(frame.around.ip, Ip::V6(_)))] += 1;
            } else {
                assert_eq!(name, "cm-requests-rxe-6.1");
                wrong += 1;
            }
        }
    }
    assert_eq!((right, wrong), ([136, 67], 1), "right over IPv4 and IPv6, wrong");
}

#[test]
fn a_packet_sealed_anew_gets_the_icrc_that_the_kernel_gave_it() {
    let capture = capture("rxe-7.3");
    let mut sealed = 0;
    for frame in frames(&capture) {
        let packet = frame.packet().expect("whole");
        let anew = Packet::sealed(packet.repr, packet.payload, &frame.around);
        assert_eq!(anew, Ok(packet));
        sealed += 1;
    }
    assert_eq!(sealed, 134);
}

#[test]
fn the_identification_is_found_from_the_icrc_and_hardly_ever_one_for_a_damaged_packet() {
    let (mut found, mut noticed, mut unnoticed) = (0, 0, 0);
    for name in ALL {
        let capture = capture(name);
        for frame in frames(&capture).iter().filter(|frame| frame.missing == 0) {
            let Ip::V4(ip) = frame.around.ip else { continue };
            let ident = |datagram: &[u8]| {
                let unknown = mkey_wire::ipv4::Repr { ident: 0x5555, ..ip };
                icrc::ident_of(unknown, frame.around.udp, datagram).expect("a datagram")
            };
            if name == "cm-requests-rxe-6.1" && ident(frame.datagram).is_none() {
                continue;
            }
            assert_eq!(ident(frame.datagram), Some(ip.ident));
            for at in 5..frame.datagram.len() {
                let mut damaged = frame.datagram.to_vec();
                damaged[at] ^= 0x81;
                match ident(&damaged) {
                    None => noticed += 1,
                    Some(other) => {
                        assert_ne!(other, ip.ident, "damage at {at}");
                        unnoticed += 1;
                    }
                }
            }
            found += 1;
        }
    }
    assert_eq!(found, 136);
    // It is one in 2^16 by chance.
    assert!(noticed > 10_000 && unnoticed < 5, "noticed {noticed}, not {unnoticed}");
}

#[test]
fn a_packet_that_is_cut_shows_its_headers() {
    let mut opcodes = BTreeMap::new();
    for name in ["nvmeof-rxe-6.1", "nvmeof-rxe-7.3"] {
        let capture = capture(name);
        for frame in frames(&capture).iter().filter(|frame| frame.missing > 0) {
            assert_eq!(frame.icrc(), None);
            let (repr, rest) = Repr::parse(frame.datagram).expect("headers");
            let after = rest.len() + frame.missing;
            assert!(after > 4 && after.is_multiple_of(4));
            *opcodes.entry(repr.body.opcode().byte()).or_insert(0) += 1;
        }
    }
    let expected = [0x00, 0x01, 0x04, 0x06, 0x07, 0x08, 0x0a, 0x0d, 0x0e, 0x0f, 0x10];
    assert_eq!(opcodes, expected.map(|opcode| (opcode, 2)).into());
}

#[test]
fn the_kernel_says_what_it_was_asked_to() {
    let capture = capture("rxe-7.3");
    let frames = frames(&capture);
    for version in [4, 6] {
        let packets: Vec<_> = frames
            .iter()
            .filter(|frame| matches!(frame.around.ip, Ip::V4(_)) == (version == 4))
            .map(|frame| frame.packet().expect("whole"))
            .collect();
        assert_eq!(packets.len(), 67);
        let bodies: Vec<_> = packets.iter().map(|packet| packet.repr.body).collect();

        // One of each operation that a requester of the kernel's has, and of each answer.
        let mut opcodes: Vec<_> = bodies.iter().map(|body| body.opcode().byte()).collect();
        opcodes.sort_unstable();
        opcodes.dedup();
        let rc = (0x00..=0x14).chain([0x16, 0x17]);
        let expected: Vec<u8> = rc.chain(0x20..=0x2b).chain([0x64, 0x65]).collect();
        assert_eq!(opcodes, expected);

        let reth = |length| reth::Repr { address: 0x7f00_0000_1000, rkey: 0xa1b2_c3d4, length };
        let atomic = atomic_eth::Repr {
            address: 0x7f00_0000_1000,
            rkey: 0xa1b2_c3d4,
            swap_or_add: 0x2122_2324_2526_2728,
            compare: 0x1112_1314_1516_1718,
        };
        for request in [
            Request::Write(Write::Only(reth(33), None)),
            Request::Write(Write::First(reth(514))),
            Request::Read(reth(600)),
            Request::CompareSwap(atomic),
            Request::FetchAdd(atomic_eth::Repr {
                swap_or_add: atomic.compare,
                compare: 0,
                ..atomic
            }),
            Request::Send(mkey_wire::request::Send::Only(Tail::Inv(0xa1b2_c3d4))),
            Request::Send(mkey_wire::request::Send::Last(Tail::Inv(0xa1b2_c3d4))),
        ] {
            assert!(bodies.contains(&Body::RcRequest(request)), "{request:?}");
        }

        // Numbers of packets go around, and the second try has the same ones.
        let sent: Vec<_> = packets
            .iter()
            .filter(|packet| matches!(packet.repr.body, Body::RcRequest(_)))
            .map(|packet| packet.repr.fields.psn)
            .collect();
        let (first, again) = sent.split_at(sent.len() / 2);
        assert_eq!(first, again);
        assert_eq!(first.first(), Some(&Psn::wrapping(0xff_fffe)));
        let steps = first.windows(2).map(|pair| pair[1].past(pair[0]));
        // A READ of 600 bytes takes three numbers.
        assert_eq!(steps.clone().filter(|step| *step == 3).count(), 1);
        assert!(
            steps.clone().all(|step| [1, 3].contains(&step)),
            "{:?}",
            steps.collect::<Vec<_>>()
        );

        let syndromes: Vec<_> = bodies
            .iter()
            .filter_map(|body| match body {
                Body::RcResponse(Response::Acknowledge(aeth)) => Some(aeth.syndrome),
                _ => None,
            })
            .collect();
        let expected = [
            Syndrome::Ack(Credits::UNLIMITED),
            Syndrome::RnrNak(RnrTimer::from_code(14)),
            Syndrome::Nak(NakCode::PsnSequence),
            Syndrome::Nak(NakCode::RemoteAccess),
            Syndrome::Nak(NakCode::InvalidRequest),
        ];
        assert_eq!(syndromes, expected);

        // The region holds i * 7 mod 251 at i; 4 bytes of it were written before the atomics.
        let originals: Vec<_> = bodies
            .iter()
            .filter_map(|body| match body {
                Body::RcResponse(Response::AtomicAcknowledge { original, .. }) => Some(*original),
                _ => None,
            })
            .collect();
        let word = u64::from_le_bytes([b'm', b'k', b'e', b'y', 28, 35, 42, 49]);
        assert_eq!(originals, [word, word]);
        let only = packets
            .iter()
            .find(|packet| {
                matches!(packet.repr.body, Body::RcResponse(Response::Read(ReadResponse::Only(_))))
            })
            .expect("a READ of 5 bytes");
        assert_eq!(only.payload, [0, 7, 14, 21, 28]);
    }
}

#[test]
fn source_ports_are_those_that_the_kernel_chooses() {
    let capture = capture("rxe-7.3");
    let frames = frames(&capture);
    let peer = Qpn::wrapping(0xabc);
    for version in [4, 6] {
        let of = |wanted: fn(Body) -> bool| {
            let found = frames.iter().map(|frame| (frame, frame.packet().expect("whole").repr));
            let (frame, repr) = found
                .filter(|(frame, _)| matches!(frame.around.ip, Ip::V4(_)) == (version == 4))
                .find(|(_, repr)| wanted(repr.body))
                .expect("one");
            (frame.around.udp.source_port, repr.body)
        };
        // Datagrams say which queue pair sent them. The kernel counts up: before it were a
        // reliable and an unreliable connection, and a reliable one came after it.
        let (_, Body::UdSend { deth, .. }) = of(|body| matches!(body, Body::UdSend { .. })) else {
            panic!("no datagram");
        };
        let port =
            |ahead: u32| udp::source_port(0, Qpn::wrapping(deth.source_qp.get() + ahead - 2), peer);
        assert_eq!(of(|body| matches!(body, Body::RcRequest(_))).0, port(0));
        assert_eq!(of(|body| matches!(body, Body::UcRequest(_))).0, port(1));
        assert_eq!(of(|body| matches!(body, Body::RcResponse(_))).0, port(3));
    }
}
