//! Captures of both ends of a connection in one file: each packet is there twice.

use crate::trace::{A, B, LITTLE, Sent, ack, pcap, report, send};
use mkey_cli::pcap::report::Report;
use mkey_wire::cooked::{self, Way};

/// Packets in Linux's header, each captured by one end at a time in microseconds.
fn of(packets: &[(u64, Way, Sent)]) -> Report {
    let frame = |(micro, way, sent): &(u64, Way, Sent)| {
        let ip = sent.ip();
        (micro * 1000, [&cooked::header(*way, &ip)[..], &ip].concat())
    };
    let frames: Vec<_> = packets.iter().map(frame).collect();
    report(&pcap(LITTLE, true, 113, &frames))
}

fn codes(report: &Report) -> Vec<&str> {
    assert_eq!(report.pairs.len(), 1);
    report.pairs[0].verdict.iter().map(|finding| finding.code).collect()
}

/// SENDs with their acknowledgements, each captured by both ends, the second so many microseconds late.
fn clean(late: u64, ends: [Way; 2]) -> Vec<(u64, Way, Sent)> {
    let mut all = Vec::new();
    for psn in 1..=500 {
        let at = u64::from(psn) * 100;
        for (way, late) in ends.into_iter().zip([0, late]) {
            all.push((at + late, way, send(A, B, psn)));
            all.push((at + late + 20, way, ack(B, A, psn)));
        }
    }
    all.sort_by_key(|(at, ..)| *at);
    all
}

#[test]
fn a_packet_that_both_ends_captured_is_one_however_late_the_other_is() {
    for late in [0, 30, 1_500, 20_000, 3_000_000] {
        for ends in [[Way::Sent, Way::Received], [Way::Received, Way::Sent]] {
            let report = of(&clean(late, ends));
            assert_eq!(codes(&report), ["well"], "{late} {ends:?}: {:?}", report.pairs[0].verdict);
            let frames = &report.frames;
            assert_eq!((frames.all, frames.roce, frames.roce_at_other_end), (2000, 1000, 1000));
            assert_eq!(report.packets.packets, 1000);
            let there = &report.pairs[0].directions[0];
            assert_eq!((there.requests.packets, there.requests.duplicates), (500, 0));
            assert_eq!(there.unanswered, Some(0), "{late}");
        }
    }
}

#[test]
fn what_is_sent_again_is_seen_with_both_ends_as_with_one() {
    let (sent, received) = (Way::Sent, Way::Received);
    // The first is lost on the way, or its answer.
    for first in [false, true] {
        let mut all = vec![(0, sent, send(A, B, 1))];
        if first {
            all.push((10, received, send(A, B, 1)));
        }
        all.extend([
            (50_000, sent, send(A, B, 1)),
            (51_000, received, send(A, B, 1)),
            (51_010, sent, ack(B, A, 1)),
            (52_000, received, ack(B, A, 1)),
        ]);
        let report = of(&all);
        let there = &report.pairs[0].directions[0];
        assert_eq!((there.requests.packets, there.requests.retransmissions), (2, 1));
        assert_eq!(report.frames.roce_at_other_end, 2 + u64::from(first));
        assert!(codes(&report).contains(&"sent-again"));
    }
}

#[test]
fn another_connection_that_the_other_end_captures_is_followed() {
    let mut all: Vec<_> =
        (1..=50).map(|psn| (u64::from(psn), Way::Sent, send(A, B, psn))).collect();
    all.extend((1..=50).map(|psn| {
        let at = 2_000_000 + u64::from(psn);
        (at, Way::Received, send(A, B, 0x50_0000 + psn))
    }));
    let report = of(&all);
    assert_eq!(report.frames.roce_at_other_end, 0);
    let requests = report.pairs[0].directions[0].requests;
    assert_eq!((requests.packets, requests.restarts), (100, 1));
}

#[test]
fn a_capture_without_ends_is_told_as_before() {
    let packets: Vec<_> = (1..=4).map(|psn| (u64::from(psn), send(A, B, psn))).collect();
    let frames = |way: u8| -> Vec<_> {
        let frame = |(micro, sent): &(u64, Sent)| {
            let ip = sent.ip();
            let mut header = cooked::header(Way::Sent, &ip);
            header[1] = way;
            (micro * 1000, [&header[..], &ip].concat())
        };
        packets.iter().map(frame).collect()
    };
    // Of another host: as a mirror port shows it.
    for others in [3, 1] {
        let report = report(&pcap(LITTLE, true, 113, &frames(others)));
        assert_eq!((report.frames.roce, report.frames.roce_at_other_end), (4, 0));
    }
}
