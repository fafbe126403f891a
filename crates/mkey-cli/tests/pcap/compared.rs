//! Each figure of the summary, computed once more from what tshark says of the same packets, by a model
//! that keeps everything.

use crate::trace::{
    A, B, LITTLE, Sent, ack, answer, cnp, data, ethernet, pcap, read, reth, send, write,
};
use crate::tshark::{Row, rows};
use crate::{common, preloaded};
use mkey_wire::body::Body;
use mkey_wire::request::{Request, Write};
use mkey_wire::syndrome::Syndrome;
use mkey_wire::u24::Qpn;
use mkey_wire::{atomic_eth, deth};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One direction.
#[derive(Debug, Default)]
struct Model {
    packets: u64,
    payload: u64,
    opcodes: BTreeMap<u64, (u64, u64)>,
    congested: u64,
    naks: BTreeMap<u64, u64>,
    not_ready: u64,
    acks: u64,
    requests: u64,
    /// The number behind the highest, not wrapped.
    next: Option<i64>,
    seen: BTreeSet<i64>,
    missing: BTreeSet<i64>,
    gaps: u64,
    left_out: u64,
    back_seen: u64,
    back_missing: u64,
    /// Uses and bytes by remote key.
    keys: BTreeMap<u64, (u64, BTreeSet<u64>)>,
    invalidated: u64,
    messages: u64,
}

/// Bytes of the headers behind the BTH, by the specification's table.
fn extended(opcode: u64) -> u64 {
    if opcode == 0x81 {
        return 16;
    }
    let transport = if opcode >> 5 == 3 { 8 } else { 0 };
    transport
        + match opcode & 0x1f {
            0x03 | 0x05 | 0x09 | 0x16 | 0x17 | 0x0d | 0x0f | 0x10 | 0x11 => 4,
            0x06 | 0x0a | 0x0c => 16,
            0x0b => 20,
            0x12 => 12,
            0x13 | 0x14 => 28,
            _ => 0,
        }
}

impl Model {
    fn see(&mut self, row: &Row, mtu: u64) {
        let opcode = row.number("infiniband.bth.opcode").unwrap();
        let pad = row.number("infiniband.bth.padcnt").unwrap();
        let payload = row.number("udp.length").unwrap() - 8 - 12 - extended(opcode) - pad - 4;
        self.packets += 1;
        self.payload += payload;
        let count = self.opcodes.entry(opcode).or_default();
        *count = (count.0 + 1, count.1 + payload);
        self.congested += u64::from(row.either("ip.dsfield.ecn", "ipv6.tclass.ecn") == "3");
        let operation = opcode & 0x1f;
        let ends = [2, 3, 4, 5, 8, 9, 10, 11, 12, 19, 20, 22, 23].contains(&operation);
        match (opcode >> 5, operation) {
            (0, 0x11) => match row.number("infiniband.aeth.syndrome").unwrap() {
                syndrome @ 0..0x20 => {
                    assert!(syndrome < 0x20);
                    self.acks += 1;
                }
                0x20..0x40 => self.not_ready += 1,
                syndrome => *self.naks.entry(syndrome).or_default() += 1,
            },
            (0, 0x0d..=0x12) => {}
            (0 | 1, _) => {
                if self.request(row, operation, mtu) {
                    self.messages += u64::from(ends);
                }
            }
            _ => self.messages += u64::from(ends && opcode != 0x81),
        }
    }

    /// Whether it was not seen before.
    fn request(&mut self, row: &Row, operation: u64, mtu: u64) -> bool {
        self.requests += 1;
        let psn = row.number("infiniband.bth.psn").unwrap() as i64;
        let length = row.number("infiniband.reth.dmalen");
        let takes = match operation {
            0x0c => length.unwrap().div_ceil(mtu).max(1) as i64,
            _ => 1,
        };
        let next = self.next.unwrap_or(psn);
        // The nearest number that is the same modulo 2^24.
        let behind = (psn - next).rem_euclid(1 << 24);
        let number = next + if behind >= 1 << 23 { behind - (1 << 24) } else { behind };
        if number > next {
            self.gaps += 1;
            self.left_out += (number - next) as u64;
            self.missing.extend(next..number);
        }
        let mut first = true;
        if number < next {
            first = self.missing.remove(&number);
            if first {
                self.back_missing += 1;
            } else {
                assert!(self.seen.contains(&number), "{row:?}");
                self.back_seen += 1;
            }
        }
        self.seen.extend(number..number + takes);
        self.next = Some(next.max(number + takes));
        if first && let Some(rkey) = row.number("infiniband.reth.r_key") {
            let (uses, bytes) = self.keys.entry(rkey).or_default();
            *uses += 1;
            let address = row.number("infiniband.reth.va").unwrap();
            bytes.extend(address..address + length.unwrap_or(8));
        }
        if first && row.has("infiniband.ieth") {
            self.invalidated += 1;
        }
        first
    }
}

type Key = (String, String, u64, Option<u64>);

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} of {value}"))
}

/// Compares all figures of a file whose path MTU is known. Gives its packets.
pub fn compare(capture: &Path, mtu: u64) -> u64 {
    let path = capture.to_str().unwrap();
    let (code, stdout, stderr) = common::run(&mut common::mkey(&["pcap", path, "--json", "-"]));
    assert_eq!((code, stderr.as_str()), (0, ""), "{path}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["bounds"], Value::Array(Vec::new()), "{path}");

    let mut models: BTreeMap<Key, Model> = BTreeMap::new();
    let rows = rows(capture);
    for row in &rows {
        let key = (
            row.either("ip.src", "ipv6.src"),
            row.either("ip.dst", "ipv6.dst"),
            row.number("infiniband.bth.destqp").unwrap(),
            row.number("infiniband.deth.srcqp"),
        );
        models.entry(key).or_default().see(row, mtu);
    }

    let sum = |of: fn(&Model) -> u64| models.values().map(of).sum::<u64>();
    assert_eq!(number(&report, "/packets/packets"), rows.len() as u64, "{path}");
    assert_eq!(number(&report, "/frames/roce"), rows.len() as u64, "{path}");
    assert_eq!(number(&report, "/packets/payload_bytes"), sum(|model| model.payload), "{path}");
    assert_eq!(number(&report, "/packets/congestion_experienced"), sum(|model| model.congested));
    let cnps = sum(|model| model.opcodes.get(&0x81).map_or(0, |count| count.0));
    assert_eq!(number(&report, "/packets/cnps"), cnps, "{path}");
    let mut opcodes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (opcode, count) in models.values().flat_map(|model| &model.opcodes) {
        let all = opcodes.entry(*opcode).or_default();
        *all = (all.0 + count.0, all.1 + count.1);
    }
    assert_eq!(by_opcode(&report), opcodes, "{path}");

    let mut directions = 0;
    for direction in report["pairs"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|pair| pair["directions"].as_array().unwrap())
    {
        directions += 1;
        let text = |name: &str| direction[name].as_str().unwrap().to_owned();
        let datagrams = direction["opcodes"].as_array().unwrap().iter();
        let datagrams =
            datagrams.map(|count| number(count, "/opcode")).any(|opcode| opcode >> 5 == 3);
        let source = datagrams.then(|| number(direction, "/from_qp"));
        let key = (text("from"), text("to"), number(direction, "/to_qp"), source);
        let model = models.get(&key).unwrap_or_else(|| panic!("{path}: {key:?}"));
        same(direction, model, &format!("{path}: {key:?}"));
    }
    assert_eq!(directions, models.len(), "{path}");
    rows.len() as u64
}

fn by_opcode(value: &Value) -> BTreeMap<u64, (u64, u64)> {
    let each = value["opcodes"].as_array().unwrap().iter();
    each.map(|count| {
        (number(count, "/opcode"), (number(count, "/packets"), number(count, "/payload_bytes")))
    })
    .collect()
}

fn same(direction: &Value, model: &Model, what: &str) {
    let of = |path: &str| number(direction, path);
    assert_eq!(of("/packets"), model.packets, "{what}");
    assert_eq!(of("/payload_bytes"), model.payload, "{what}");
    assert_eq!(by_opcode(direction), model.opcodes, "{what}");
    assert_eq!(of("/congestion_experienced"), model.congested, "{what}");
    assert_eq!(of("/cnps"), model.opcodes.get(&0x81).map_or(0, |count| count.0), "{what}");
    assert_eq!(of("/acks"), model.acks, "{what}");
    assert_eq!(of("/naks/receiver_not_ready"), model.not_ready, "{what}");
    for (name, syndrome) in [
        ("psn_sequence_error", 0x60),
        ("invalid_request", 0x61),
        ("remote_access_error", 0x62),
        ("remote_operational_error", 0x63),
        ("invalid_rd_request", 0x64),
    ] {
        let count = model.naks.get(&syndrome).copied().unwrap_or(0);
        assert_eq!(of(&format!("/naks/{name}")), count, "{what}: {name}");
    }
    assert_eq!(of("/requests/packets"), model.requests, "{what}");
    assert_eq!(of("/requests/gaps"), model.gaps, "{what}: gaps");
    assert_eq!(of("/requests/missing"), model.left_out, "{what}: missing");
    assert_eq!(of("/requests/never_seen"), model.missing.len() as u64, "{what}: never seen");
    let (again, unseen) =
        (of("/requests/retransmissions"), of("/requests/retransmissions_of_unseen"));
    assert_eq!(again - unseen + of("/requests/duplicates"), model.back_seen, "{what}: again");
    assert_eq!(unseen + of("/requests/reordered"), model.back_missing, "{what}: filled");
    assert_eq!(of("/requests/restarts"), 0, "{what}");
    let messages = direction["messages"].as_array().unwrap().iter();
    assert_eq!(messages.map(|kind| number(kind, "/count")).sum::<u64>(), model.messages, "{what}");

    let mut invalidated = 0;
    let mut used = BTreeMap::new();
    for key in direction["rkeys"].as_array().unwrap() {
        let rkey = u64::from_str_radix(&key["rkey"].as_str().unwrap()[2..], 16).unwrap();
        let uses =
            ["writes", "reads", "atomics", "flushes"].map(|name| key[name].as_u64().unwrap());
        invalidated += key["invalidated"].as_u64().unwrap();
        let ranges = key["ranges"].as_array().unwrap().iter();
        let bytes = ranges.map(|range| range["bytes"].as_u64().unwrap()).sum::<u64>();
        if uses.iter().sum::<u64>() > 0 {
            used.insert(rkey, (uses.iter().sum::<u64>(), bytes));
        }
    }
    let expected: BTreeMap<u64, (u64, u64)> = model
        .keys
        .iter()
        .map(|(rkey, (uses, bytes))| (*rkey, (*uses, bytes.len() as u64)))
        .collect();
    assert_eq!(used, expected, "{what}: rkeys");
    assert_eq!(invalidated, model.invalidated, "{what}: invalidated");
}

/// Traffic of the kernel's.
#[test]
fn the_kernels_traffic_is_as_tshark_says() {
    if !preloaded::has("the_kernels_traffic_is_as_tshark_says", "tshark") {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let nvme = here.join("tests/pcap/captures/nvmeof-rxe-6.1.pcap");
    assert_eq!(compare(&nvme, 4096), 1250);
    assert_eq!(compare(&here.join("../mkey-wire/tests/captures/rxe-7.3.pcap"), 256), 134);
}

/// All that the kernel's captures do not have: each negative acknowledgement, marks, notifications, what
/// is sent again around the wrap of the numbers, both versions of IP.
fn everything() -> Vec<Sent> {
    let mut all = Vec::new();
    for (a, b) in [(A, B), (("fd00::1", 0x31), ("fd00::2", 0x42))] {
        let psn = |by: u32| (0xff_fffc + by) & 0xff_ffff;
        let first = Body::RcRequest(Request::Write(Write::First(reth(7, 0x1000, 9000))));
        let atomic = atomic_eth::Repr { address: 0x8000, rkey: 9, swap_or_add: 1, compare: 2 };
        let deth = deth::Repr { qkey: 1, source_qp: Qpn::wrapping(a.1) };
        all.extend([
            send(a, b, psn(0)),
            ack(b, a, psn(0)),
            Sent::new(a, b, psn(1), first).payload(4096).marked(),
            Sent::new(a, b, psn(2), Body::RcRequest(Request::Write(Write::Middle))).payload(4096),
            Sent::new(a, b, psn(3), Body::RcRequest(Request::Write(Write::Last(None))))
                .payload(808),
            cnp(b, a),
            // 5 and 6 are lost; the numbers have wrapped.
            send(a, b, psn(4)),
            send(a, b, psn(7)),
            answer(b, a, psn(5), Syndrome::from_byte(0x60)),
            send(a, b, psn(5)).marked(),
            send(a, b, psn(6)),
            send(a, b, psn(7)),
            ack(b, a, psn(7)),
            send(a, b, psn(8)),
            answer(b, a, psn(8), Syndrome::from_byte(0x2c)),
            send(a, b, psn(8)),
            ack(b, a, psn(8)),
            read(a, b, psn(9), reth(8, 0x10_0000, 10_000)),
            data(b, a, psn(9), "first", 4096),
            data(b, a, psn(10), "middle", 4096),
            data(b, a, psn(11), "last", 1808),
            Sent::new(a, b, psn(12), Body::RcRequest(Request::FetchAdd(atomic))),
            Sent::new(a, b, psn(13), Body::RcRequest(Request::CompareSwap(atomic))),
            // The other way, each refusal.
            write(b, a, 100, reth(1, 0x5000, 64)),
            answer(a, b, 100, Syndrome::from_byte(0x61)),
            write(b, a, 101, reth(2, 0x6000, 64)),
            answer(a, b, 101, Syndrome::from_byte(0x62)),
            write(b, a, 102, reth(3, 0x7000, 64)),
            answer(a, b, 102, Syndrome::from_byte(0x63)),
            answer(a, b, 102, Syndrome::from_byte(0x64)),
            Sent::new(a, b, 3, Body::UdSend { deth, imm: None }).payload(61),
            Sent::new(a, b, 1, Body::UdSend { deth, imm: Some(5) }).payload(62),
            Sent::new(
                a,
                (b.0, 0x77),
                1,
                Body::UcRequest(Request::Write(Write::Only(reth(4, 0, 63), None))),
            )
            .payload(63),
            Sent::new(
                a,
                (b.0, 0x77),
                4,
                Body::UcRequest(Request::Write(Write::Only(reth(4, 99, 63), None))),
            )
            .payload(63),
        ]);
    }
    all
}

#[test]
fn made_traffic_is_as_tshark_says() {
    if !preloaded::has("made_traffic_is_as_tshark_says", "tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.pcap");
    let packets = everything();
    for (link, tags) in [(101, &[][..]), (1, &[]), (1, &[0x88a8, 0x8100])] {
        let frames: Vec<_> = (1..)
            .zip(&packets)
            .map(|(n, sent)| {
                (n * 1000, if link == 1 { ethernet(tags, sent.ip()) } else { sent.ip() })
            })
            .collect();
        std::fs::write(&path, pcap(LITTLE, true, link, &frames)).unwrap();
        assert_eq!(compare(&path, 4096), packets.len() as u64);
    }
}
