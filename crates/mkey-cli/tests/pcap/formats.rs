//! Files and frames: byte orders, times, link types, and what is around a packet.

use crate::trace::{
    A, B, LITTLE, Order, block, enhanced, ethernet, interface, kind, pcap, report, section, send,
};
use mkey_cli::pcap::report::Report;

/// A congestion notification captured on a ConnectX-4 Lx: `test/contrib/roce.uts` of scapy.
const CNP: [u8; 74] = [
    0xe4, 0x1d, 0x2d, 0xab, 0x2b, 0xc2, 0x7c, 0xfe, 0x90, 0x64, 0x3b, 0x32, 0x08, 0x00, 0x45, 0xc2,
    0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11, 0x01, 0x0a, 0x00,
    0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, 0x81, 0x00, 0xff, 0xff, 0x40, 0x00,
    0x01, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0xfd, 0x00, 0x2a,
];

#[test]
fn a_capture_in_bytes() {
    // Big-endian, microseconds, Ethernet.
    let head = [
        0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1, //
        0x65, 0x43, 0x21, 0x01, 0, 1, 0x02, 0x03, 0, 0, 0, 74, 0, 0, 0, 74,
    ];
    let report = report(&[&head[..], &CNP].concat());
    assert_eq!((report.frames.all, report.frames.roce, report.packets.cnps), (1, 1, 1));
    assert_eq!(report.packets.icrc.right, 1);
    assert_eq!((report.packets.ip_bytes, report.packets.payload_bytes), (60, 0));
    assert_eq!(report.file_bytes, 24 + 16 + 74);
    let pair = &report.pairs[0];
    let there = &pair.directions[0];
    assert_eq!((pair.transport, pair.directions.len()), ("CNP", 1));
    assert_eq!(
        (there.from.to_string(), there.to.to_string()),
        ("10.0.17.1".into(), "10.0.18.1".into())
    );
    assert_eq!((there.to_qp, there.cnps), (0x118, 1));
}

fn two() -> [Vec<u8>; 2] {
    [send(A, B, 1).ip(), send(A, B, 2).ip()]
}

/// Two packets that lie 2500 ns apart, or 3000 or so where the file is not as exact.
fn check(report: &Report, apart: u64, what: &str) {
    assert_eq!((report.frames.all, report.frames.roce), (2, 2), "{what}");
    assert_eq!(report.packets.icrc.right, 2, "{what}");
    assert_eq!(report.nanoseconds, Some(apart), "{what}");
    assert_eq!(report.damage, None, "{what}");
    let there = &report.pairs[0].directions[0];
    assert_eq!((there.packets, there.requests.gaps, there.to_qp), (2, 0, B.1), "{what}");
}

const TIMES: [u64; 2] = [1_700_000_000_000_001_500, 1_700_000_000_000_004_000];

#[test]
fn classic_captures_of_both_byte_orders_and_both_units() {
    for (big, nano) in [(false, false), (false, true), (true, false), (true, true)] {
        let frames: Vec<_> = TIMES.into_iter().zip(two().map(|ip| ethernet(&[], ip))).collect();
        let file = pcap(Order { big }, nano, 1, &frames);
        check(&report(&file), if nano { 2500 } else { 3000 }, &format!("{big} {nano}"));
    }
}

/// What is in front of IP, by link type.
fn framed(link: u16, ip: Vec<u8>) -> Vec<u8> {
    match link {
        1 => ethernet(&[], ip),
        113 => [&[0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0][..], &kind(&ip).to_be_bytes(), &ip]
            .concat(),
        276 => [&kind(&ip).to_be_bytes()[..], &[0; 18], &ip].concat(),
        _ => ip,
    }
}

#[test]
fn link_types() {
    let v6 = [("fd00::1", 1), ("fd00::2", 2)];
    for link in [1, 12, 14, 101, 113, 228, 229, 276] {
        let file = |ips: [Vec<u8>; 2]| {
            let frames: Vec<_> = TIMES.into_iter().zip(ips.map(|ip| framed(link, ip))).collect();
            pcap(LITTLE, true, u32::from(link), &frames)
        };
        check(&report(&file(two())), 2500, &format!("link type {link}"));
        let seen = report(&file([1, 2].map(|psn| send(v6[0], v6[1], psn).ip())));
        assert_eq!((seen.frames.roce, seen.packets.icrc.right), (2, 2), "link type {link}");
        assert_eq!(seen.pairs[0].directions[0].from.to_string(), "fd00::1");
    }
    let unknown = report(&pcap(LITTLE, true, 105, &[(1, two()[0].clone())]));
    assert_eq!((unknown.frames.unknown_link, unknown.frames.unknown_link_type), (1, Some(105)));
    assert!(unknown.verdict[0].text.contains("link type 105"), "{:?}", unknown.verdict);
}

#[test]
fn tags() {
    for tags in [&[0x8100][..], &[0x88a8, 0x8100], &[0x9100, 0x8100, 0x8100]] {
        let frames: Vec<_> = TIMES.into_iter().zip(two().map(|ip| ethernet(tags, ip))).collect();
        check(&report(&pcap(LITTLE, true, 1, &frames)), 2500, &format!("{tags:x?}"));
    }
    let endless = ethernet(&[0x8100; 64], two()[0].clone());
    assert_eq!(report(&pcap(LITTLE, true, 1, &[(1, endless)])).frames.other, 1);
}

#[test]
fn pcapng_with_interfaces_of_their_own_link_types_and_clocks() {
    for big in [false, true] {
        let order = Order { big };
        let offset = if big { 1_000_i64.to_be_bytes() } else { 1_000_i64.to_le_bytes() };
        let file = [
            section(order),
            // Names, which are of no interest.
            block(order, 4, &[0; 4]),
            interface(order, 101, &[(2, b"any name"), (9, &[9])]),
            interface(order, 1, &[(9, &[0x80 | 20]), (14, &offset)]),
            interface(order, 113, &[]),
            enhanced(order, 0, 2_000_000_000_500, &two()[0]),
            // 2^-20 seconds: 1000 s + 1000 s + 3 ticks = 2861 ns.
            enhanced(order, 1, (1_000 << 20) + 3, &ethernet(&[], two()[1].clone())),
        ]
        .concat();
        check(&report(&file), 2861 - 500, &format!("{big}"));
        // Microseconds unless an interface says otherwise; and one that the file does not have.
        let more = [
            file.clone(),
            enhanced(order, 2, 2_000_000_004, &framed(113, two()[1].clone())),
            enhanced(order, 3, 1, &two()[0]),
        ]
        .concat();
        let seen = report(&more);
        assert_eq!((seen.frames.roce, seen.frames.unknown_link), (3, 1));
        assert_eq!(seen.nanoseconds, Some(4000 - 500));
        // A section of the other byte order begins anew.
        let other = Order { big: !big };
        let both = [
            file,
            section(other),
            interface(other, 1, &[(9, &[9])]),
            enhanced(other, 0, 2_000_000_000_900, &ethernet(&[], send(A, B, 3).ip())),
        ]
        .concat();
        let seen = report(&both);
        assert_eq!((seen.frames.all, seen.frames.roce, seen.frames.unknown_link), (3, 3, 0));
        assert_eq!(seen.damage, None);
    }
}

#[test]
fn simple_packets_have_no_time() {
    let ip = two()[0].clone();
    let body = [&LITTLE.u32(ip.len() as u32)[..], &ip].concat();
    let file = [section(LITTLE), interface(LITTLE, 101, &[]), block(LITTLE, 3, &body)].concat();
    let seen = report(&file);
    assert_eq!((seen.frames.roce, seen.packets.icrc.right, seen.nanoseconds), (1, 1, None));
}

#[test]
fn options_of_ipv4_and_extension_headers_of_ipv6_leave_the_icrc_unchecked() {
    let mut v4 = two()[0].clone();
    v4.splice(20..20, [1, 1, 1, 1]);
    v4[0] = 0x46;
    let length = v4.len() as u16;
    v4[2..4].copy_from_slice(&length.to_be_bytes());
    let mut v6 = send(("fd00::1", 1), ("fd00::2", 2), 1).ip();
    // Hop by hop, then destination options of 16 bytes, then UDP.
    let extensions = [&[60, 0, 1, 4, 0, 0, 0, 0][..], &[17, 1], &[0; 14]].concat();
    v6.splice(40..40, extensions);
    v6[6] = 0;
    let length = v6.len() as u16 - 40;
    v6[4..6].copy_from_slice(&length.to_be_bytes());
    let seen = report(&pcap(LITTLE, true, 101, &[(1, v4), (2, v6)]));
    assert_eq!((seen.frames.roce, seen.packets.icrc.not_checkable), (2, 2));
    assert_eq!(seen.packets.icrc.wrong, 0);
}

#[test]
fn fragments_are_counted_and_not_parsed() {
    let mut first = two()[0].clone();
    first[6] |= 0x20;
    let mut later = two()[0].clone();
    later[7] = 3;
    let mut v6 = send(("fd00::1", 1), ("fd00::2", 2), 1).ip();
    v6.splice(40..40, [17, 0, 0, 1, 0, 0, 0, 9]);
    v6[6] = 44;
    let mut whole = v6.clone();
    whole[43] = 0;
    let length = (whole.len() as u16 - 40).to_be_bytes();
    whole[4..6].copy_from_slice(&length);
    let seen = report(&pcap(LITTLE, true, 101, &[(1, first), (2, later), (3, v6), (4, whole)]));
    assert_eq!((seen.frames.fragments, seen.frames.roce, seen.frames.all), (3, 1, 4));
}

#[test]
fn roce_v1() {
    let v6 = send(("fe80::1", 1), ("fe80::2", 2), 7).ip();
    let (header, datagram) = (&v6[..40], &v6[48..]);
    let mut header = header.to_vec();
    header[4..6].copy_from_slice(&(datagram.len() as u16).to_be_bytes());
    header[6] = 0x1b;
    let frame = [&[0; 12][..], &[0x89, 0x15], &header, datagram].concat();
    let seen = report(&pcap(LITTLE, true, 1, &[(1, frame)]));
    assert_eq!((seen.frames.roce, seen.frames.roce_v1, seen.packets.icrc.not_checkable), (1, 1, 1));
    let there = &seen.pairs[0].directions[0];
    assert_eq!((there.to_qp, there.payload_bytes, there.udp_source_port), (2, 64, None));
}

#[test]
fn other_traffic_and_what_is_malformed() {
    let mut port = two()[0].clone();
    port[23] ^= 1;
    let mut tcp = two()[0].clone();
    tcp[9] = 6;
    let mut opcode = two()[0].clone();
    opcode[28] = 0x55;
    let mut length = two()[0].clone();
    length[25] -= 1;
    let seen = report(&pcap(LITTLE, true, 101, &[(1, port), (2, tcp), (3, opcode), (4, length)]));
    assert_eq!((seen.frames.other, seen.frames.malformed, seen.frames.roce), (2, 2, 0));
    let first = seen.frames.first_malformed.unwrap();
    assert_eq!(first.offset, 24 + 2 * (16 + 108));
    assert_eq!(first.what, "BTH: opcode is 0x55, which no RoCEv2 packet has");
}

#[test]
fn what_a_snap_length_leaves_is_counted_in_full() {
    let whole = two()[0].clone();
    for kept in 0..=whole.len() {
        let mut file = pcap(LITTLE, true, 101, &[(1, whole[..kept].to_vec())]);
        let length = (whole.len() as u32).to_le_bytes();
        file[24 + 12..24 + 16].copy_from_slice(&length);
        let seen = report(&file);
        let counts = (seen.frames.roce, seen.frames.cut_headers, seen.frames.cut);
        let icrc = (seen.packets.icrc.right, seen.packets.icrc.not_checkable);
        if kept < 20 + 8 + 12 {
            assert_eq!(counts, (0, 1, 0), "{kept}");
            continue;
        }
        let is_whole = kept == whole.len();
        assert_eq!(counts, (1, 0, u64::from(!is_whole)), "{kept}");
        assert_eq!(icrc, (u64::from(is_whole), u64::from(!is_whole)), "{kept}");
        assert_eq!(seen.packets.payload_bytes, 64, "{kept}");
        assert_eq!(seen.pairs[0].directions[0].messages[0].count, 1);
    }
}

#[test]
fn frames_of_an_interface_that_is_not_described_are_told_so() {
    let file = [section(LITTLE), enhanced(LITTLE, 0, 1, &two()[0])].concat();
    let report = report(&file);
    assert_eq!((report.frames.unknown_link, report.frames.unknown_link_type), (1, None));
    let text = &report.verdict[0].text;
    assert!(text.contains("interface that the file does not describe"), "{text}");
}
