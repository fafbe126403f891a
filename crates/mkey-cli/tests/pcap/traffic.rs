//! What is made of traffic: pairs, verdicts, times, refusals, bounds.

use crate::trace::{
    A, B, LITTLE, Sent, ack, answer, at, cnp, data, of, pcap, read, report, reth, send, write,
};
use mkey_cli::pcap::flows::MOST_STREAMS;
use mkey_cli::pcap::keys::MOST_RANGES;
use mkey_cli::pcap::report::{Direction, Pair, Report};
use mkey_wire::body::Body;
use mkey_wire::request::{Request, Send, Tail};
use mkey_wire::syndrome::Syndrome;
use mkey_wire::u24::Qpn;
use mkey_wire::{deth, udp};

fn only(report: &Report) -> &Pair {
    assert_eq!(report.pairs.len(), 1, "{report:?}");
    &report.pairs[0]
}

/// The direction of a pair that `who` sends.
fn from<'p>(pair: &'p Pair, who: (&str, u32)) -> &'p Direction {
    let of = |direction: &&Direction| direction.from.to_string() == who.0;
    pair.directions.iter().find(of).unwrap()
}

fn says(pair: &Pair, code: &str) -> String {
    let found = pair.verdict.iter().find(|finding| finding.code == code);
    found.unwrap_or_else(|| panic!("no {code} in {:?}", pair.verdict)).text.clone()
}

fn codes(pair: &Pair) -> Vec<&str> {
    pair.verdict.iter().map(|finding| finding.code).collect()
}

#[test]
fn two_directions_are_paired_by_the_number_that_an_answer_names() {
    // Three connections between the same hosts, their numbers far apart.
    let mut packets = Vec::new();
    for n in 0..3 {
        let (a, b, psn) = ((A.0, 0x100 + n), (B.0, 0x200 + n), n * 5000);
        packets.extend([send(a, b, psn), send(a, b, psn + 1)]);
    }
    for n in (0..3).rev() {
        packets.push(ack((B.0, 0x200 + n), (A.0, 0x100 + n), n * 5000 + 1));
    }
    let report = of(&packets);
    assert_eq!(report.pairs.len(), 3);
    for pair in &report.pairs {
        let (there, back) = (from(pair, A), from(pair, B));
        assert_eq!(there.to_qp - 0x200, back.to_qp - 0x100);
        assert_eq!((there.from_qp, back.from_qp), (Some(back.to_qp), Some(there.to_qp)));
        assert_eq!(pair.paired_by, Some("the numbers that answers name"));
        assert_eq!((codes(pair), there.unanswered), (vec!["well"], Some(0)));
    }
}

#[test]
fn where_several_wait_for_a_number_linuxs_source_port_tells_or_none_is_taken() {
    let pairs = [(0x100, 0x200), (0x101, 0x201)];
    let packets = |port: fn(u32, u32) -> u16| {
        let mut packets: Vec<Sent> =
            pairs.iter().map(|(a, b)| send((A.0, *a), (B.0, *b), 0)).collect();
        packets.extend(pairs.iter().map(|(a, b)| ack((B.0, *b), (A.0, *a), 0)));
        for (sent, (a, b)) in packets.iter_mut().zip(pairs.iter().cycle()) {
            sent.source_port = port(*a, *b);
        }
        packets
    };
    let told = of(&packets(|a, b| udp::source_port(0, Qpn::wrapping(a), Qpn::wrapping(b))));
    assert_eq!(told.pairs.len(), 2, "{told:?}");
    for pair in &told.pairs {
        assert_eq!(from(pair, A).to_qp - 0x200, from(pair, B).to_qp - 0x100);
    }
    let not_told = of(&packets(|_, _| 0xc123));
    assert_eq!(not_told.pairs.len(), 4, "no guess is made");
    assert!(not_told.pairs.iter().all(|pair| pair.paired_by.is_none()));
}

#[test]
fn datagrams_name_both_queue_pairs() {
    let datagram = |from: (&str, u32), to: (&str, u32)| {
        let deth = deth::Repr { qkey: 1, source_qp: Qpn::wrapping(from.1) };
        Sent::new(from, to, 9, Body::UdSend { deth, imm: None }).payload(10)
    };
    let other = (A.0, 0x12);
    let report = of(&[datagram(A, B), datagram(other, B), datagram(B, A), datagram(B, other)]);
    assert_eq!(report.pairs.len(), 2);
    for pair in &report.pairs {
        assert_eq!((pair.transport, pair.directions.len()), ("UD", 2));
        assert_eq!(from(pair, A).from_qp, Some(from(pair, B).to_qp));
    }
}

#[test]
fn a_loss_before_the_capture_and_one_behind_it() {
    let before = of(&[
        send(A, B, 1),
        send(A, B, 3),
        answer(B, A, 2, Syndrome::from_byte(0x60)),
        send(A, B, 2),
        send(A, B, 3),
        ack(B, A, 3),
    ]);
    let pair = only(&before);
    let numbers = from(pair, A).requests;
    assert_eq!((numbers.retransmissions, numbers.retransmissions_of_unseen), (2, 1));
    assert_eq!((numbers.gaps, numbers.missing, numbers.never_seen), (1, 1, 0));
    let text = says(pair, "sent-again");
    assert!(text.starts_with("2 of 4 request packets from 192.0.2.1 were sent again"), "{text}");
    assert!(
        text.contains("1 had been lost between 192.0.2.1 and where this was captured"),
        "{text}"
    );
    assert!(text.contains("192.0.2.2 had missed them and asked for all from there on"), "{text}");
    // Each message has a time, that which came late, too.
    assert_eq!(from(pair, A).latency[0].count, 3);

    // Here the capture has all of it.
    let behind = of(&[
        send(A, B, 1),
        send(A, B, 2),
        answer(B, A, 1, Syndrome::from_byte(0x60)),
        send(A, B, 1),
        send(A, B, 2),
        ack(B, A, 2),
    ]);
    let text = says(only(&behind), "sent-again");
    assert!(
        text.contains("192.0.2.2 said once that packets were missing: loss on the way"),
        "{text}"
    );

    // A timeout of 67 ms.
    let packets = [send(A, B, 1), send(A, B, 1), ack(B, A, 1)];
    let timeout = at([1, 67_001, 67_003].into_iter().zip(&packets));
    let pair = only(&timeout);
    assert_eq!(from(pair, A).requests.retransmissions, 1);
    assert!(says(pair, "sent-again").contains("no answer had come in time"));
    // The time is that from the first sending.
    let latency = &from(pair, A).latency[0];
    assert_eq!(latency.count, 1);
    assert!((66_000_000..68_500_000).contains(&latency.p50), "{latency:?}");
}

#[test]
fn what_comes_twice_at_once_is_a_duplicate() {
    let packets = [send(A, B, 1), send(A, B, 1), ack(B, A, 1), send(A, B, 2), send(A, B, 2)];
    let report = at([1, 2, 3, 10, 112].into_iter().zip(&packets));
    let numbers = from(only(&report), A).requests;
    assert_eq!((numbers.duplicates, numbers.retransmissions, numbers.packets), (1, 1, 4));
    let both: Vec<Sent> = (0..20).map(|n| send(A, B, n / 2)).collect();
    assert!(says(only(&of(&both)), "duplicates").contains("captured at two places"));
}

#[test]
fn what_is_overtaken_is_not_sent_again() {
    let report = of(&[send(A, B, 1), send(A, B, 3), send(A, B, 2), ack(B, A, 3)]);
    let numbers = from(only(&report), A).requests;
    assert_eq!((numbers.reordered, numbers.retransmissions, numbers.never_seen), (1, 0, 0));
    assert_eq!(codes(only(&report)), ["reordered"]);
}

#[test]
fn a_receiver_that_is_not_ready() {
    let report = of(&[
        send(A, B, 1),
        answer(B, A, 1, Syndrome::from_byte(0x2c)),
        send(A, B, 1),
        ack(B, A, 1),
    ]);
    let pair = only(&report);
    assert_eq!(from(pair, B).naks.receiver_not_ready, 1);
    assert!(says(pair, "receiver-not-ready").contains("192.0.2.2 was not ready once"));
    assert!(says(pair, "sent-again").contains("192.0.2.2 was not ready once"));
}

#[test]
fn a_refused_request_is_told_with_its_key_address_and_length() {
    let report = of(&[
        send(A, B, 1),
        ack(B, A, 1),
        write(A, B, 2, reth(0x2be, 0x7f00_0000_1000, 64)),
        answer(B, A, 2, Syndrome::from_byte(0x62)),
    ]);
    let pair = only(&report);
    let refusal = &from(pair, B).refused[0];
    assert_eq!(refusal.rkey.as_deref(), Some("0x2be"));
    assert_eq!((refusal.psn, refusal.length), (2, Some(64)));
    assert_eq!(
        says(pair, "remote-access-error"),
        "192.0.2.2 refused 1 request by remote access error: rkey 0x2be, address 0x7f0000001000, 64 bytes; see mkey explain 10"
    );
    assert_eq!(from(pair, A).unanswered, Some(0), "a refusal is an answer");
    assert!(report.verdict[0].text.contains("trouble in 1 of 1 pair"), "{:?}", report.verdict);
}

#[test]
fn congestion_that_is_told_and_that_is_not() {
    let told = of(&[send(A, B, 1), ack(B, A, 1), send(A, B, 2).marked(), cnp(B, A)]);
    let pair = only(&told);
    assert_eq!((from(pair, A).congestion_experienced, from(pair, B).cnps), (1, 1));
    assert!(says(pair, "congestion").contains("1 of 2 packets from 192.0.2.1 were marked"));
    let not_told = of(&[send(A, B, 1), ack(B, A, 1), send(A, B, 2).marked()]);
    assert!(says(only(&not_told), "congestion-not-notified").contains("no CNP of 192.0.2.2"));
}

#[test]
fn marks_of_datagrams_are_told_without_a_claim_about_notifications() {
    let deth = deth::Repr { qkey: 1, source_qp: Qpn::wrapping(A.1) };
    let report = of(&[Sent::new(A, B, 9, Body::UdSend { deth, imm: None }).marked(), cnp(B, A)]);
    let datagrams = report.pairs.iter().find(|pair| pair.transport == "UD").unwrap();
    assert_eq!(codes(datagrams), ["congestion"]);
}

#[test]
fn two_queue_pairs_of_one_address_are_told_apart() {
    let (a, b) = ((A.0, 1), (A.0, 2));
    let report = of(&[send(a, b, 1), answer(b, a, 1, Syndrome::from_byte(0x61))]);
    let text = says(only(&report), "invalid-request");
    assert!(text.starts_with("192.0.2.1 QP 0x2 refused 1 request by invalid request"), "{text}");
}

#[test]
fn reads_take_as_many_numbers_as_their_answers_have_packets() {
    let target = reth(0x5, 0x1000, 5000);
    // The path MTU of 1024 is not known before the first answer.
    let clean = [
        read(A, B, 0xff_ffff, target),
        send(A, B, 4),
        data(B, A, 0xff_ffff, "first", 1024),
        data(B, A, 0, "middle", 1024),
        data(B, A, 1, "middle", 1024),
        data(B, A, 2, "middle", 1024),
        data(B, A, 3, "last", 904),
        ack(B, A, 4),
        read(A, B, 5, target),
        data(B, A, 5, "first", 1024),
    ];
    let report = of(&clean);
    let pair = only(&report);
    let there = from(pair, A);
    assert_eq!((there.requests.gaps, from(pair, B).read_data.gaps), (0, 0), "{report:?}");
    let counts: Vec<_> = there.latency.iter().map(|latency| (latency.of, latency.count)).collect();
    assert_eq!(counts, [("SEND, RDMA WRITE", 1), ("RDMA READ", 2)]);
    assert_eq!(codes(pair)[0], "well");

    // Now that it is known, what is missing behind a READ is seen.
    let more: Vec<Sent> = clean.into_iter().chain([send(A, B, 11)]).collect();
    assert_eq!(from(only(&of(&more)), A).requests.missing, 1);
}

#[test]
fn data_that_is_lost_and_asked_for_again() {
    let target = reth(0x5, 0x1000, 3072);
    let report = of(&[
        read(A, B, 10, target),
        data(B, A, 10, "first", 1024),
        data(B, A, 12, "last", 1024),
        read(A, B, 11, reth(0x5, 0x1400, 2048)),
        data(B, A, 11, "first", 1024),
        data(B, A, 12, "last", 1024),
        send(A, B, 13),
        ack(B, A, 13),
    ]);
    let pair = only(&report);
    assert_eq!(from(pair, A).requests.retransmissions, 1);
    let numbers = from(pair, B).read_data;
    assert_eq!((numbers.gaps, numbers.missing, numbers.never_seen), (1, 1, 0));
    assert_eq!((numbers.retransmissions, numbers.retransmissions_of_unseen), (2, 1));
    assert!(says(pair, "data-sent-again").starts_with("2 of 4 packets of data"));
    assert_eq!(from(pair, A).rkeys[0].reads, 1, "each READ counts once");
}

#[test]
fn another_connection_of_the_same_numbers_begins_anew() {
    let report = of(&[
        send(A, B, 1),
        ack(B, A, 1),
        send(A, B, 0x50_0000),
        ack(B, A, 0x50_0000),
        send(A, B, 0x50_0001),
        ack(B, A, 0x50_0001),
    ]);
    let pair = only(&report);
    let numbers = from(pair, A).requests;
    assert_eq!((numbers.restarts, numbers.gaps, numbers.retransmissions), (1, 0, 0));
    assert_eq!(from(pair, B).acks_repeated, 0);
    assert_eq!(codes(pair), ["well", "began-anew"]);
}

#[test]
fn messages_are_counted_once_and_by_what_they_end_with() {
    let place =
        |psn, body| Sent::new(A, B, psn, Body::RcRequest(Request::Send(body))).payload(1024);
    let report = of(&[
        place(1, Send::First),
        place(2, Send::Middle),
        place(3, Send::Last(Tail::Imm(7))),
        place(3, Send::Last(Tail::Imm(7))),
        place(4, Send::Only(Tail::Inv(0x99))),
        ack(B, A, 4),
    ]);
    let there = from(only(&report), A);
    let counts: Vec<_> = there.messages.iter().map(|kind| (kind.name, kind.count)).collect();
    assert_eq!(counts, [("SEND_WITH_IMM", 1), ("SEND_WITH_INV", 1)]);
    let key = &there.rkeys[0];
    assert_eq!((key.rkey.as_str(), key.invalidated, key.ranges.len()), ("0x99", 1, 0));
}

#[test]
fn bounds_that_are_reached_are_told() {
    let many: Vec<Sent> = (0..MOST_STREAMS as u32 + 3).map(|n| send(A, (B.0, n), 1)).collect();
    let report = of(&many);
    assert_eq!(report.pairs.len(), MOST_STREAMS);
    assert_eq!(report.packets.packets, MOST_STREAMS as u64 + 3);
    assert!(
        report.bounds[0].starts_with("3 packets are of more than 4096 directions"),
        "{:?}",
        report.bounds
    );

    let apart: Vec<Sent> = (0..MOST_RANGES as u64 + 1)
        .map(|n| write(A, B, n as u32, reth(1, n * 0x1000, 8)))
        .collect();
    let report = of(&apart);
    let key = &from(only(&report), A).rkeys[0];
    assert_eq!((key.ranges.len(), key.ranges_joined), (MOST_RANGES, true));
    assert!(
        report.bounds[0].starts_with("1 remote keys were used for more than"),
        "{:?}",
        report.bounds
    );
}

#[test]
fn no_traffic_and_no_right_icrc_are_told() {
    let nothing = report(&pcap(LITTLE, true, 1, &[]));
    assert!(nothing.verdict[0].text.starts_with("no RoCE packet"), "{:?}", nothing.verdict);
    let frames: Vec<_> = (1..4_u64)
        .map(|n| {
            let mut frame = send(A, B, n as u32).ethernet();
            let last = frame.len() - 1;
            frame[last] ^= 0x55;
            (n, frame)
        })
        .collect();
    let wrong = report(&pcap(LITTLE, true, 1, &frames));
    assert_eq!((wrong.packets.icrc.wrong, wrong.pairs.len()), (3, 0));
    assert!(wrong.verdict[0].text.contains("--no-icrc"), "{:?}", wrong.verdict);
}

#[test]
fn what_is_sent_again_after_the_clock_was_set_back_is_no_duplicate_and_the_clock_is_told() {
    const SECOND: u64 = 1_000_000;
    let packets = [send(A, B, 5), send(A, B, 6), send(A, B, 5), send(A, B, 6), ack(B, A, 6)];
    for (again, back) in [(9 * SECOND, 1), (11 * SECOND, 0)] {
        let times = [10 * SECOND, 10 * SECOND + 5, again, again + 5, again + 10];
        let report = at(times.into_iter().zip(&packets));
        let numbers = from(only(&report), A).requests;
        assert_eq!((numbers.duplicates, numbers.retransmissions), (0, 2), "{again}");
        assert_eq!(report.time_goes_back, back);
        let told = report.verdict.iter().find(|finding| finding.code == "time-goes-back");
        assert_eq!(told.is_some(), back > 0);
        assert!(told.is_none_or(|told| told.text.contains("goes back once")), "{told:?}");
    }
    // Queues of a card are out of order by less.
    let report =
        at([1000, 900, 2000].into_iter().zip(&[send(A, B, 1), send(A, B, 2), ack(B, A, 2)]));
    assert_eq!(report.time_goes_back, 0);
}
