//! Wireshark's dissector reads our captures, without complaint, and sees what we wrote.

use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use mkey_wire::body::Body;
use mkey_wire::bth::Fields;
use mkey_wire::packet::{Packet, Repr};
use mkey_wire::pcap::{LinkType, Writer};
use mkey_wire::request::{Request, Send, Tail, Write};
use mkey_wire::response::{ReadResponse, Response};
use mkey_wire::syndrome::{NakCode, Syndrome};
use mkey_wire::timer::RnrTimer;
use mkey_wire::u24::{Msn, Psn, Qpn};
use mkey_wire::udp_ip::{self, Ip};
use mkey_wire::{aeth, atomic_eth, deth, feth, ipv4, ipv6, reth, udp};

/// What is asked of each frame, one column each; the last two are complaints.
const COLUMNS: [&str; 18] = [
    "udp.length",
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.padcnt",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.deth.srcqp",
    "infiniband.reth.va",
    "infiniband.reth.dmalen",
    "infiniband.atomiceth.cmpdt",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.immdt",
    "infiniband.ieth",
    "_ws.malformed",
    "_ws.expert",
];

/// Packets of all opcodes that it knows, with what it must show in the columns from the source
/// queue pair on.
fn packets() -> Vec<(Body, Vec<u8>, [&'static str; 8])> {
    let reth = reth::Repr { address: 0x7f00_0000_1000, rkey: 0x1234, length: 9000 };
    let atomic =
        atomic_eth::Repr { address: 0x7f00_0000_1000, rkey: 0x1234, swap_or_add: 3, compare: 5 };
    let aeth = |syndrome| aeth::Repr { syndrome, msn: Msn::wrapping(42) };
    let ack = aeth(Syndrome::from_byte(31));
    let not_ready = aeth(Syndrome::RnrNak(RnrTimer::from_code(14)));
    let refused = aeth(Syndrome::Nak(NakCode::RemoteAccess));
    let deth = deth::Repr { qkey: 0x1111_1111, source_qp: Qpn::wrapping(0x123) };
    let (imm, inv) = (Tail::Imm(0xdead_beef), Tail::Inv(0x1234_5679));

    const NOTHING: [&str; 8] = [""; 8];
    const RETH: [&str; 8] = ["", "0x00007f0000001000", "9000", "", "", "", "", ""];
    const IMM: [&str; 8] = ["", "", "", "", "", "", "deadbeef", ""];
    const BOTH: [&str; 8] = ["", "0x00007f0000001000", "9000", "", "", "", "deadbeef", ""];
    const INV: [&str; 8] = ["", "", "", "", "", "", "", "12345679"];
    const ATOMIC: [&str; 8] = ["", "0x00007f0000001000", "", "5", "", "", "", ""];
    const ACK: [&str; 8] = ["", "", "", "", "31", "42", "", ""];
    const NOT_READY: [&str; 8] = ["", "", "", "", "46", "42", "", ""];
    const REFUSED: [&str; 8] = ["", "", "", "", "98", "42", "", ""];
    const DETH: [&str; 8] = ["0x00000123", "", "", "", "", "", "", ""];
    const DETH_IMM: [&str; 8] = ["0x00000123", "", "", "", "", "", "deadbeef", ""];

    let stream = [
        (Request::Send(Send::First), 256, NOTHING),
        (Request::Send(Send::Middle), 256, NOTHING),
        (Request::Send(Send::Last(Tail::Plain)), 13, NOTHING),
        (Request::Send(Send::Last(imm)), 14, IMM),
        (Request::Send(Send::Only(Tail::Plain)), 15, NOTHING),
        (Request::Send(Send::Only(imm)), 16, IMM),
        (Request::Write(Write::First(reth)), 256, RETH),
        (Request::Write(Write::Middle), 256, NOTHING),
        (Request::Write(Write::Last(None)), 1, NOTHING),
        (Request::Write(Write::Last(Some(0xdead_beef))), 2, IMM),
        (Request::Write(Write::Only(reth, None)), 3, RETH),
        (Request::Write(Write::Only(reth, Some(0xdead_beef))), 0, BOTH),
    ];
    let reliable = [
        (Request::Read(reth), 0, RETH),
        (Request::CompareSwap(atomic), 0, ATOMIC),
        (Request::FetchAdd(atomic), 0, ATOMIC),
        (Request::Send(Send::Last(inv)), 64, INV),
        (Request::Send(Send::Only(inv)), 65, INV),
    ];
    let answers = [
        (Response::Read(ReadResponse::First(ack)), 256, ACK),
        (Response::Read(ReadResponse::Middle), 256, NOTHING),
        (Response::Read(ReadResponse::Last(ack)), 7, ACK),
        (Response::Read(ReadResponse::Only(ack)), 8, ACK),
        (Response::Acknowledge(ack), 0, ACK),
        (Response::Acknowledge(not_ready), 0, NOT_READY),
        (Response::Acknowledge(refused), 0, REFUSED),
        (Response::AtomicAcknowledge { aeth: ack, original: 77 }, 0, ACK),
    ];
    let srq = Qpn::wrapping(0x456);
    let flush = Request::Flush(feth::Repr { placement: 1, selectivity: 0 }, reth);
    let others = [
        // Of these it knows no more than the BTH.
        (Body::XrcRequest { srq, request: Request::Write(Write::Only(reth, None)) }, 64, NOTHING),
        (Body::XrcResponse(Response::Acknowledge(ack)), 0, NOTHING),
        (Body::RcRequest(flush), 0, NOTHING),
        (Body::RcRequest(Request::AtomicWrite(reth)), 8, NOTHING),
        (Body::UdSend { deth, imm: None }, 33, DETH),
        (Body::UdSend { deth, imm: Some(0xdead_beef) }, 34, DETH_IMM),
        (Body::Cnp, 0, NOTHING),
    ];
    let rc = stream.into_iter().chain(reliable);
    rc.map(|(request, length, shown)| (Body::RcRequest(request), length, shown))
        .chain(stream.map(|(request, length, shown)| (Body::UcRequest(request), length, shown)))
        .chain(answers.map(|(answer, length, shown)| (Body::RcResponse(answer), length, shown)))
        .chain(others)
        .map(|(body, length, shown)| (body, vec![0xa5; length], shown))
        .collect()
}

fn around() -> [udp_ip::Repr; 2] {
    let v4 = ipv4::Repr::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let [source, destination] = ["fd00::1", "fd00::2"].map(|ip| ip.parse().expect("one"));
    let v6 = ipv6::Repr { flow_label: 0x12345, ..ipv6::Repr::new(source, destination) };
    let udp = udp::Repr { source_port: 0xc001, checksum: 0 };
    [udp_ip::Repr { ip: Ip::V4(v4), udp }, udp_ip::Repr { ip: Ip::V6(v6), udp }]
}

#[test]
fn tshark_sees_what_was_written_and_does_not_complain() {
    if Command::new("tshark").arg("--version").output().is_err() {
        return skip("tshark_sees_what_was_written_and_does_not_complain", "there is no tshark");
    }
    let mut capture = Writer::new(tempfile::NamedTempFile::new().expect("a file"), LinkType::Raw)
        .expect("a header");
    let mut expected = Vec::new();
    for around in around() {
        for (body, payload, shown) in packets() {
            let psn = Psn::wrapping(0xff_fff0).plus(expected.len() as u32);
            let fields = Fields {
                solicited: true,
                ack_request: true,
                ..Fields::new(Qpn::wrapping(0xabcdef), psn)
            };
            let packet = Packet::sealed(Repr { fields, body }, &payload, &around).expect("one");
            let mut bytes = vec![0; packet.buffer_len()];
            packet.emit(&mut bytes).expect("it fits");
            let udp = match around.ip {
                Ip::V4(_) => around.udp,
                Ip::V6(_) => udp::Repr {
                    checksum: around.checksum(&[&bytes]).expect("a datagram"),
                    ..around.udp
                },
            };
            let headers = udp_ip::Repr { udp, ..around }.headers(bytes.len()).expect("a datagram");
            let time = Duration::from_nanos(expected.len() as u64);
            capture.write(time, &[headers.ip_bytes(), headers.udp(), &bytes]).expect("a frame");

            let pad = (4 - payload.len() % 4) % 4;
            let mut row = vec![
                (bytes.len() + 8).to_string(),
                body.opcode().byte().to_string(),
                "1".into(),
                pad.to_string(),
                "65535".into(),
                "0xabcdef".into(),
                "1".into(),
                psn.to_string(),
            ];
            row.extend(shown.map(String::from));
            row.extend(["".into(), "".into()]);
            expected.push(row);
        }
    }
    assert_eq!(expected.len(), 88);

    let mut command = Command::new("tshark");
    let file = capture.into_inner();
    command.arg("-r").arg(file.path()).args(["-n", "-T", "fields", "-E", "occurrence=f"]);
    // It takes every short payload for some storage protocol's, ours and the kernel's.
    command.args(["--disable-protocol", "rpcordma"]);
    for wanted in ["ip.check_checksum", "udp.check_checksum"] {
        command.args(["-o", &format!("{wanted}:TRUE")]);
    }
    for column in COLUMNS {
        command.args(["-e", column]);
    }
    let output = command.output().expect("tshark starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), expected.len(), "{said}");
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!(row, expected);
    }
}

/// Notes that a test can not run here, and why. Fails where nobody reads such notes.
fn skip(test: &str, why: &str) {
    let line = format!("{test}: {why}");
    let Some(file) = std::env::var_os("XTASK_SKIPS") else { panic!("SKIPPED: {line}") };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
    writeln!(file.expect("the file for skips"), "{line}").expect("the file for skips");
}
