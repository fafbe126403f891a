//! Whole packets: the bytes of every opcode, what is refused, and that reading and writing undo
//! each other.

use mkey_wire::body::Body;
use mkey_wire::bth::Fields;
use mkey_wire::error::{Error, Header, Reason};
use mkey_wire::icrc;
use mkey_wire::opcode::Opcode;
use mkey_wire::packet::{self, MAX_HEADER_LEN, Packet, Repr};
use mkey_wire::request::{Request, Send, Tail, Write};
use mkey_wire::response::{ReadResponse, Response};
use mkey_wire::syndrome::Syndrome;
use mkey_wire::u24::{Msn, Psn, Qpn};
use mkey_wire::udp_ip::{self, Ip};
use mkey_wire::{aeth, atomic_eth, deth, feth, ipv4, ipv6, reth, udp};
use proptest::prelude::*;

const RETH: &[u8] = &[
    0x00, 0x00, 0x7f, 0xaa, 0xbb, 0xcc, 0x10, 0x00, 0x12, 0x34, 0x56, 0x78, 0x00, 0x00, 0x20, 0x00,
];
const ATOMIC: &[u8] = &[
    0x00, 0x00, 0x7f, 0xaa, 0xbb, 0xcc, 0x10, 0x00, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 3,
    0, 0, 0, 0, 0, 0, 0, 5,
];
const AETH: &[u8] = &[0x1f, 0x00, 0x00, 0x2a];
const ORIGINAL: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8];
const IMM: &[u8] = &[0xde, 0xad, 0xbe, 0xef];
const IETH: &[u8] = &[0x12, 0x34, 0x56, 0x79];
const FETH: &[u8] = &[0, 0, 0, 0x12];
const DETH: &[u8] = &[0x11, 0x11, 0x11, 0x11, 0x00, 0x00, 0x01, 0x23];
const XRCETH: &[u8] = &[0x00, 0x00, 0x04, 0x56];

fn reth() -> reth::Repr {
    reth::Repr { address: 0x7faa_bbcc_1000, rkey: 0x1234_5678, length: 0x2000 }
}

fn atomic() -> atomic_eth::Repr {
    atomic_eth::Repr { address: 0x7faa_bbcc_1000, rkey: 0x1234_5678, swap_or_add: 3, compare: 5 }
}

fn aeth() -> aeth::Repr {
    aeth::Repr { syndrome: Syndrome::from_byte(0x1f), msn: Msn::wrapping(42) }
}

const IMM_DATA: u32 = 0xdead_beef;
const INV_KEY: u32 = 0x1234_5679;

/// The low bits of the opcode, the headers in their order, and what they say.
fn requests() -> Vec<(u8, Vec<&'static [u8]>, Request)> {
    let feth = feth::Repr { placement: 2, selectivity: 1 };
    vec![
        (0x00, vec![], Request::Send(Send::First)),
        (0x01, vec![], Request::Send(Send::Middle)),
        (0x02, vec![], Request::Send(Send::Last(Tail::Plain))),
        (0x03, vec![IMM], Request::Send(Send::Last(Tail::Imm(IMM_DATA)))),
        (0x04, vec![], Request::Send(Send::Only(Tail::Plain))),
        (0x05, vec![IMM], Request::Send(Send::Only(Tail::Imm(IMM_DATA)))),
        (0x06, vec![RETH], Request::Write(Write::First(reth()))),
        (0x07, vec![], Request::Write(Write::Middle)),
        (0x08, vec![], Request::Write(Write::Last(None))),
        (0x09, vec![IMM], Request::Write(Write::Last(Some(IMM_DATA)))),
        (0x0a, vec![RETH], Request::Write(Write::Only(reth(), None))),
        (0x0b, vec![RETH, IMM], Request::Write(Write::Only(reth(), Some(IMM_DATA)))),
        (0x0c, vec![RETH], Request::Read(reth())),
        (0x13, vec![ATOMIC], Request::CompareSwap(atomic())),
        (0x14, vec![ATOMIC], Request::FetchAdd(atomic())),
        (0x16, vec![IETH], Request::Send(Send::Last(Tail::Inv(INV_KEY)))),
        (0x17, vec![IETH], Request::Send(Send::Only(Tail::Inv(INV_KEY)))),
        (0x1c, vec![FETH, RETH], Request::Flush(feth, reth())),
        (0x1d, vec![RETH], Request::AtomicWrite(reth())),
    ]
}

fn responses() -> Vec<(u8, Vec<&'static [u8]>, Response)> {
    vec![
        (0x0d, vec![AETH], Response::Read(ReadResponse::First(aeth()))),
        (0x0e, vec![], Response::Read(ReadResponse::Middle)),
        (0x0f, vec![AETH], Response::Read(ReadResponse::Last(aeth()))),
        (0x10, vec![AETH], Response::Read(ReadResponse::Only(aeth()))),
        (0x11, vec![AETH], Response::Acknowledge(aeth())),
        (
            0x12,
            vec![AETH, ORIGINAL],
            Response::AtomicAcknowledge { aeth: aeth(), original: 0x0102_0304_0506_0708 },
        ),
    ]
}

/// Every opcode, its extended headers, and what they say.
fn every_opcode() -> Vec<(u8, Vec<u8>, Body)> {
    let srq = Qpn::wrapping(0x456);
    let deth = deth::Repr { qkey: 0x1111_1111, source_qp: Qpn::wrapping(0x123) };
    let mut all = vec![
        (0x64, DETH.to_vec(), Body::UdSend { deth, imm: None }),
        (0x65, [DETH, IMM].concat(), Body::UdSend { deth, imm: Some(IMM_DATA) }),
        (0x81, vec![0; 16], Body::Cnp),
    ];
    for (code, headers, request) in requests() {
        let headers = headers.concat();
        if code < 0x0c {
            all.push((0x20 | code, headers.clone(), Body::UcRequest(request)));
        }
        let with_queue = [XRCETH, &headers].concat();
        all.push((0xa0 | code, with_queue, Body::XrcRequest { srq, request }));
        all.push((code, headers, Body::RcRequest(request)));
    }
    for (code, headers, response) in responses() {
        let headers = headers.concat();
        all.push((0xa0 | code, headers.clone(), Body::XrcResponse(response)));
        all.push((code, headers, Body::RcResponse(response)));
    }
    all
}

fn fields() -> Fields {
    Fields {
        solicited: true,
        ack_request: true,
        ..Fields::new(Qpn::wrapping(0x11), Psn::wrapping(0xab_cdef))
    }
}

/// The bytes of a packet with the headers `extended` and this payload.
fn datagram(opcode: u8, extended: &[u8], payload: &[u8]) -> Vec<u8> {
    let (flags, pad): (u8, &[u8]) = match payload.len() % 4 {
        0 => (0x80, &[]),
        1 => (0xb0, &[0, 0, 0]),
        2 => (0xa0, &[0, 0]),
        _ => (0x90, &[0]),
    };
    let bth = [opcode, flags, 0xff, 0xff, 0, 0, 0, 0x11, 0x80, 0xab, 0xcd, 0xef];
    [&bth, extended, payload, pad, &[0x0d, 0xf0, 0xad, 0x0b]].concat()
}

/// A payload that the opcode may have.
fn payload_of(opcode: u8) -> &'static [u8] {
    match opcode & 0x1f {
        _ if opcode == 0x81 => &[],
        0x0c | 0x11..=0x14 | 0x1c => &[],
        0x1d => &[8; 8],
        _ => b"payload",
    }
}

#[test]
fn the_bytes_of_every_opcode() {
    let all = every_opcode();
    let mut opcodes: Vec<u8> = all.iter().map(|(opcode, ..)| *opcode).collect();
    opcodes.sort_unstable();
    let defined: Vec<u8> = (0..=u8::MAX).filter(|b| Opcode::from_byte(*b).is_some()).collect();
    assert_eq!(opcodes, defined);

    for (opcode, extended, body) in all {
        let payload = payload_of(opcode);
        let bytes = datagram(opcode, &extended, payload);
        let packet = Packet { repr: Repr { fields: fields(), body }, payload, icrc: 0x0bad_f00d };
        assert_eq!(Packet::parse(&bytes), Ok(packet), "{opcode:#x}");
        assert_eq!(packet.repr.header_len(), 12 + extended.len(), "{opcode:#x}");
        assert!(packet.repr.header_len() <= MAX_HEADER_LEN);
        let mut buffer = vec![0xff; packet.buffer_len()];
        assert_eq!(packet.emit(&mut buffer), Ok(bytes.len()), "{opcode:#x}");
        assert_eq!(buffer, bytes, "{opcode:#x}");
    }
}

#[test]
fn headers_are_read_without_what_follows_them() {
    for (opcode, extended, body) in every_opcode() {
        let bytes = datagram(opcode, &extended, payload_of(opcode));
        let headers = &bytes[..12 + extended.len()];
        let repr = Repr { fields: fields(), body };
        assert_eq!(Repr::parse(headers), Ok((repr, &[][..])), "{opcode:#x}");
    }
}

#[test]
fn a_packet_that_is_cut_anywhere_is_refused() {
    for (opcode, extended, body) in every_opcode() {
        let bytes = datagram(opcode, &extended, payload_of(opcode));
        for length in 0..12 + extended.len() + 4 {
            let error = Packet::parse(&bytes[..length]).expect_err("cut");
            let Reason::Short { needed, have } = error.reason else { panic!("{error}") };
            assert!(have < needed && have <= length, "{opcode:#x} {length}: {error}");
        }
        // Writing it fails in the same places.
        let packet =
            Packet { repr: Repr { fields: fields(), body }, payload: payload_of(opcode), icrc: 0 };
        for length in 0..bytes.len() {
            let error = packet.emit(&mut vec![0; length]).expect_err("no room");
            assert!(matches!(error.reason, Reason::Short { .. }), "{opcode:#x} {length}: {error}");
        }
    }
}

#[test]
fn the_header_that_is_cut_is_named() {
    let cut = |opcode, extended: &[u8], length: usize| {
        Packet::parse(&datagram(opcode, extended, &[])[..length]).expect_err("cut").header
    };
    let bare = [0; 64];
    assert_eq!(cut(0x04, &[], 11), Header::Bth);
    assert_eq!(cut(0x04, &[], 15), Header::Icrc);
    assert_eq!(cut(0x64, DETH, 19), Header::Deth);
    assert_eq!(cut(0xa4, XRCETH, 15), Header::Xrceth);
    assert_eq!(cut(0x0a, RETH, 27), Header::Reth);
    assert_eq!(cut(0x0b, &bare, 31), Header::ImmDt);
    assert_eq!(cut(0x17, IETH, 15), Header::Ieth);
    assert_eq!(cut(0x13, ATOMIC, 39), Header::AtomicEth);
    assert_eq!(cut(0x11, AETH, 15), Header::Aeth);
    assert_eq!(cut(0x12, &bare, 23), Header::AtomicAckEth);
    assert_eq!(cut(0x1c, FETH, 15), Header::Feth);
    assert_eq!(cut(0x1c, &bare, 31), Header::Reth);
    assert_eq!(cut(0x81, &bare, 27), Header::Cnp);
}

#[test]
fn a_length_that_the_opcode_does_not_have_is_refused() {
    let refused = |opcode, extended: &[u8], payload: &[u8]| {
        let error = Packet::parse(&datagram(opcode, extended, payload)).expect_err("wrong length");
        assert_eq!(error.header, Header::Payload);
        error.reason
    };
    for (opcode, extended, _) in every_opcode() {
        match opcode & 0x1f {
            _ if opcode == 0x81 => {
                let reason = Reason::Payload { expected: 0, have: 4 };
                assert_eq!(refused(opcode, &extended, &[0; 4]), reason);
            }
            0x0c | 0x11..=0x14 | 0x1c => {
                let reason = Reason::Payload { expected: 0, have: 1 };
                assert_eq!(refused(opcode, &extended, &[0; 1]), reason, "{opcode:#x}");
            }
            0x1d => {
                let reason = Reason::Payload { expected: 8, have: 7 };
                assert_eq!(refused(opcode, &extended, &[0; 7]), reason);
                let reason = Reason::Payload { expected: 8, have: 0 };
                assert_eq!(refused(opcode, &extended, &[]), reason);
            }
            _ => {
                let empty = datagram(opcode, &extended, &[]);
                assert_eq!(Packet::parse(&empty).map(|packet| packet.payload.len()), Ok(0));
            }
        }
    }
    // The same holds for writing.
    let repr = Repr { fields: fields(), body: Body::RcRequest(Request::Read(reth())) };
    let reason = Reason::Payload { expected: 0, have: 8 };
    let refused = Err(Error { header: Header::Payload, reason });
    assert_eq!(repr.emit(8, &mut [0; 64]), refused);
}

#[test]
fn a_pad_that_does_not_fit_is_refused() {
    let mut bytes = datagram(0x04, &[], &[]);
    bytes[1] |= 0x30;
    let refused = |reason| Err(Error { header: Header::Payload, reason });
    assert_eq!(Packet::parse(&bytes), refused(Reason::Pad { pad: 3, have: 0 }));
    let mut bytes = datagram(0x04, &[], &[1, 2, 3, 4]);
    bytes.remove(12);
    assert_eq!(Packet::parse(&bytes), refused(Reason::Unaligned { length: 3 }));
    // Three bytes of pad may be all there is but one.
    let mut bytes = datagram(0x04, &[], &[1, 2, 3, 4]);
    bytes[1] |= 0x30;
    assert_eq!(Packet::parse(&bytes).map(|packet| packet.payload), Ok(&[1][..]));
}

#[test]
fn an_unreliable_connection_has_send_and_write_only() {
    for (code, _, request) in requests() {
        let repr = Repr { fields: fields(), body: Body::UcRequest(request) };
        let payload = repr.body.payload_len().unwrap_or(4);
        let written = repr.emit(payload, &mut [0; 64]);
        if code < 0x0c {
            assert_eq!(written, Ok(repr.header_len()));
        } else {
            let reason = Reason::Unexpected { field: "opcode", value: u64::from(0x20 | code) };
            assert_eq!(written, Err(Error { header: Header::Bth, reason }));
        }
    }
}

#[test]
fn a_sealed_packet_has_the_icrc_of_its_bytes() {
    let v4 = Ip::V4(ipv4::Repr::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into()));
    let addresses = ["fd00::1", "fd00::2"].map(|address| address.parse().expect("an address"));
    let v6 = Ip::V6(ipv6::Repr::new(addresses[0], addresses[1]));
    for (opcode, _, body) in every_opcode() {
        for ip in [v4, v6] {
            let around = udp_ip::Repr { ip, udp: udp::Repr { source_port: 0xc001, checksum: 0 } };
            let repr = Repr { fields: fields(), body };
            let packet = Packet::sealed(repr, payload_of(opcode), &around).expect("a packet");
            let mut bytes = vec![0; packet.buffer_len()];
            packet.emit(&mut bytes).expect("it fits");
            let headers = around.headers(bytes.len()).expect("a datagram");
            assert_eq!(icrc::of_datagram(&headers, &bytes), Some(packet.icrc), "{opcode:#x}");
            if let Ip::V4(ip) = ip {
                let elsewhere = ipv4::Repr { ident: 7, ..ip };
                assert_eq!(icrc::ident_of(elsewhere, around.udp, &bytes), Ok(Some(0)));
            }
        }
    }
}

#[test]
fn what_no_datagram_holds_is_not_sealed() {
    let around = udp_ip::Repr {
        ip: Ip::V4(ipv4::Repr::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into())),
        udp: udp::Repr { source_port: 0xc001, checksum: 0 },
    };
    let body = Body::RcRequest(Request::Send(Send::First));
    let repr = Repr { fields: fields(), body };
    let reason = Reason::Long { length: 65_552, most: 65_507 };
    let error = Error { header: Header::Ipv4, reason };
    assert_eq!(Packet::sealed(repr, &[0; 65_536], &around), Err(error));
    let wrong = Repr { body: Body::RcResponse(Response::Acknowledge(aeth())), ..repr };
    let reason = Reason::Payload { expected: 0, have: 1 };
    let error = Error { header: Header::Payload, reason };
    assert_eq!(Packet::sealed(wrong, &[0], &around), Err(error));
}

#[test]
fn pads_fill_up_to_four_bytes() {
    for length in 0..64 {
        assert_eq!(packet::pad(length).len(), packet::pad_len(length));
        assert!((length + packet::pad_len(length)).is_multiple_of(4));
        assert!(packet::pad_len(length) < 4);
    }
}

fn any_qpn() -> impl Strategy<Value = Qpn> {
    any::<u32>().prop_map(Qpn::wrapping)
}

fn any_reth() -> impl Strategy<Value = reth::Repr> {
    any::<(u64, u32, u32)>().prop_map(|(address, rkey, length)| reth::Repr {
        address,
        rkey,
        length,
    })
}

fn any_aeth() -> impl Strategy<Value = aeth::Repr> {
    any::<(u8, u32)>().prop_map(|(syndrome, msn)| aeth::Repr {
        syndrome: Syndrome::from_byte(syndrome),
        msn: Msn::wrapping(msn),
    })
}

fn any_atomic() -> impl Strategy<Value = atomic_eth::Repr> {
    any::<(u64, u32, u64, u64)>().prop_map(|(address, rkey, swap_or_add, compare)| {
        atomic_eth::Repr { address, rkey, swap_or_add, compare }
    })
}

fn any_send() -> impl Strategy<Value = Send> {
    let tail = prop_oneof![
        Just(Tail::Plain),
        any::<u32>().prop_map(Tail::Imm),
        any::<u32>().prop_map(Tail::Inv)
    ];
    prop_oneof![
        Just(Send::First),
        Just(Send::Middle),
        tail.clone().prop_map(Send::Last),
        tail.prop_map(Send::Only)
    ]
}

fn any_write() -> impl Strategy<Value = Write> {
    prop_oneof![
        any_reth().prop_map(Write::First),
        Just(Write::Middle),
        any::<Option<u32>>().prop_map(Write::Last),
        (any_reth(), any::<Option<u32>>()).prop_map(|(reth, imm)| Write::Only(reth, imm)),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let feth = (0_u8..16, 0_u8..4)
        .prop_map(|(placement, selectivity)| feth::Repr { placement, selectivity });
    prop_oneof![
        any_send().prop_map(Request::Send),
        any_write().prop_map(Request::Write),
        any_reth().prop_map(Request::Read),
        any_atomic().prop_map(Request::CompareSwap),
        any_atomic().prop_map(Request::FetchAdd),
        (feth, any_reth()).prop_map(|(feth, reth)| Request::Flush(feth, reth)),
        any_reth().prop_map(Request::AtomicWrite),
    ]
}

fn any_response() -> impl Strategy<Value = Response> {
    let read = prop_oneof![
        any_aeth().prop_map(ReadResponse::First),
        Just(ReadResponse::Middle),
        any_aeth().prop_map(ReadResponse::Last),
        any_aeth().prop_map(ReadResponse::Only),
    ];
    prop_oneof![
        read.prop_map(Response::Read),
        any_aeth().prop_map(Response::Acknowledge),
        (any_aeth(), any::<u64>())
            .prop_map(|(aeth, original)| Response::AtomicAcknowledge { aeth, original }),
    ]
}

fn any_body() -> impl Strategy<Value = Body> {
    let stream = prop_oneof![
        any_send()
            .prop_filter("nothing invalidated", |send| {
                !matches!(send, Send::Last(Tail::Inv(_)) | Send::Only(Tail::Inv(_)))
            })
            .prop_map(Request::Send),
        any_write().prop_map(Request::Write),
    ];
    prop_oneof![
        any_request().prop_map(Body::RcRequest),
        any_response().prop_map(Body::RcResponse),
        stream.prop_map(Body::UcRequest),
        (any::<u32>(), any_qpn(), any::<Option<u32>>()).prop_map(|(qkey, source_qp, imm)| {
            Body::UdSend { deth: deth::Repr { qkey, source_qp }, imm }
        }),
        (any_qpn(), any_request()).prop_map(|(srq, request)| Body::XrcRequest { srq, request }),
        any_response().prop_map(Body::XrcResponse),
        Just(Body::Cnp),
    ]
}

fn any_repr() -> impl Strategy<Value = Repr> {
    (any::<[bool; 5]>(), any::<u16>(), any_qpn(), any::<u32>(), any_body()).prop_map(
        |([solicited, migration, fecn, becn, ack_request], pkey, dest_qp, psn, body)| {
            let psn = Psn::wrapping(psn);
            let fields =
                Fields { solicited, migration, pkey, fecn, becn, dest_qp, ack_request, psn };
            Repr { fields, body }
        },
    )
}

proptest! {
    #[test]
    fn parse_undoes_emit(
        repr in any_repr(),
        payload in prop::collection::vec(any::<u8>(), 0..64),
        icrc: u32,
    ) {
        let payload = match repr.body.payload_len() {
            Some(length) => vec![7; length],
            None => payload,
        };
        let packet = Packet { repr, payload: &payload, icrc };
        let mut bytes = vec![0xff; packet.buffer_len()];
        prop_assert_eq!(packet.emit(&mut bytes), Ok(bytes.len()));
        prop_assert_eq!(Packet::parse(&bytes), Ok(packet));
        prop_assert_eq!(Repr::parse(&bytes).map(|(repr, _)| repr), Ok(repr));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(packet) = Packet::parse(&bytes) {
            prop_assert!(Repr::parse(&bytes).is_ok());
            prop_assert_eq!(packet.buffer_len(), bytes.len());
        }
    }
}

#[test]
fn emit_undoes_parse_of_a_packet_with_any_byte_changed() {
    for (opcode, extended, _) in &every_opcode() {
        let whole = datagram(*opcode, extended, payload_of(*opcode));
        for (at, byte) in (0..whole.len()).flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte)))
        {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            let Ok(packet) = Packet::parse(&bytes) else { continue };
            let mut again = vec![0xff; bytes.len()];
            assert_eq!(packet.emit(&mut again), Ok(bytes.len()));
            // Reserved bits and pad are the only ones that may be lost, and nothing depends on them.
            assert_eq!(Packet::parse(&again), Ok(packet));
            // The byte may be the one that says how much of the end is pad, or which headers there
            // are, and so where bits are reserved.
            let pad = bytes.len() - 7..bytes.len() - 4;
            let mut differ = (0..bytes.len()).filter(|&place| again[place] != bytes[place]);
            let lost = differ.find(|place| *place != at && !pad.contains(place));
            assert!(lost.is_none() || at == 0, "{lost:?}: {bytes:x?} became {again:x?}");
        }
    }
}

#[test]
fn requests_and_responses_take_their_own_operations_only() {
    let mut responses = 0;
    for (code, operation) in (0..32).filter_map(|code| match Opcode::from_byte(code) {
        Some(Opcode::Rc(operation)) => Some((code, operation)),
        _ => None,
    }) {
        let bytes = [0; 64];
        assert_eq!(Request::parse(operation, &bytes).is_ok(), !operation.is_response());
        assert_eq!(Response::parse(operation, &bytes).is_ok(), operation.is_response());
        assert_eq!(operation.is_response(), (0x0d..=0x12).contains(&code));
        responses += usize::from(operation.is_response());
    }
    assert_eq!(responses, 6);
}
