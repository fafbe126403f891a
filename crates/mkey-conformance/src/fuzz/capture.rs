//! Arbitrary bytes as capture files.

use mkey_cli::pcap::analyse::{Options, analyse};
use mkey_cli::pcap::file::Capture;
use mkey_cli::pcap::flows::MOST_STREAMS;
use mkey_cli::pcap::report::{Direction, Report};
use mkey_cli::pcap::text;

pub fn file(data: &[u8]) {
    // What has no right ICRC is followed no further, so that is tried without looking at them, too.
    for check_icrc in [true, false] {
        let Ok(mut capture) = Capture::new(data) else { return };
        let options = Options { check_icrc, ..Options::default() };
        let (totals, flows) = analyse(&mut capture, options, |_| {});
        consistent(&Report::new("any".to_owned(), totals, &flows), data.len() as u64);
    }
}

fn consistent(report: &Report, length: u64) {
    assert!(report.file_bytes <= length);
    assert!(report.frames.captured_bytes <= length);
    let frames = &report.frames;
    let kinds = frames.roce + frames.other + frames.fragments + frames.cut_headers;
    assert_eq!(frames.all, kinds + frames.unknown_link + frames.malformed);
    let icrc = report.packets.icrc;
    assert_eq!(report.packets.packets, icrc.right + icrc.wrong + icrc.not_checkable);
    let by_opcode: u64 = report.opcodes.iter().map(|count| count.packets).sum();
    assert_eq!(report.packets.packets, by_opcode);
    let directions = report.pairs.iter().flat_map(|pair| &pair.directions);
    assert!(directions.clone().count() <= MOST_STREAMS);
    let followed: u64 = directions.clone().map(|direction| direction.packets).sum();
    assert!(followed <= report.packets.packets);
    directions.for_each(numbers);
    let shown = text::text(report, usize::MAX);
    assert!(shown.ends_with('\n'));
    assert!(serde_json::to_vec(report).is_ok());
}

fn numbers(direction: &Direction) {
    for numbers in [direction.requests, direction.read_data] {
        assert!(numbers.retransmissions >= numbers.retransmissions_of_unseen);
        let again = numbers.retransmissions + numbers.duplicates + numbers.reordered;
        assert!(again + numbers.gaps + numbers.restarts <= numbers.packets);
        assert!(numbers.never_seen <= numbers.missing);
    }
    assert!(direction.acks_repeated <= direction.acks);
}
