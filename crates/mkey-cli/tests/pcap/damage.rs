//! Files that are cut, damaged, or none: where, and what was read until there. And any bytes at all.

use crate::trace::{
    A, B, LITTLE, Order, enhanced, ethernet, interface, pcap, report, section, send,
};
use mkey_cli::pcap::analyse::{Options, analyse};
use mkey_cli::pcap::file::{Capture, LONGEST};
use mkey_cli::pcap::report::Report;
use mkey_cli::pcap::text;
use proptest::prelude::*;
use std::io::{self, Read};

fn classic() -> Vec<u8> {
    let frames: Vec<_> = (1..4).map(|psn| (psn, send(A, B, psn as u32).ethernet())).collect();
    pcap(LITTLE, true, 1, &frames)
}

fn next_generation() -> Vec<u8> {
    let frames = (1..4).map(|psn| enhanced(LITTLE, 0, psn, &send(A, B, psn as u32).ethernet()));
    [section(LITTLE), interface(LITTLE, 1, &[])].into_iter().chain(frames).flatten().collect()
}

#[test]
fn a_file_that_is_cut_anywhere_is_read_to_the_last_whole_frame() {
    for (file, head) in [(classic(), 24), (next_generation(), 28 + 20)] {
        let record = (file.len() - head) / 3;
        for kept in head..=file.len() {
            let seen = report(&file[..kept]);
            let whole = (kept - head) / record;
            assert_eq!(seen.frames.roce, whole as u64, "{kept}");
            let at = head + whole * record;
            match seen.damage {
                None => assert_eq!(kept, at),
                Some(damage) => {
                    assert!(kept > at, "{kept}: {damage}");
                    assert_eq!(damage.offset, at as u64);
                    assert!(damage.what.starts_with("the file is cut: "), "{damage}");
                    assert_eq!(seen.verdict[0].code, "damaged-file");
                }
            }
        }
    }
}

#[test]
fn lengths_that_can_not_be_are_told_with_their_offset() {
    let mut file = classic();
    let second = 24 + (file.len() - 24) / 3;
    file[second + 8..second + 12].copy_from_slice(&(LONGEST as u32 + 1).to_le_bytes());
    let seen = report(&file);
    assert_eq!(seen.frames.roce, 1);
    let damage = seen.damage.unwrap();
    assert_eq!(damage.offset, second as u64);
    assert!(damage.what.contains("claims 16777217 bytes"), "{damage}");

    let second = 48 + (next_generation().len() - 48) / 3;
    for length in [0_u32, 11, 13, u32::MAX, LONGEST as u32 + 4] {
        let mut file = next_generation();
        file[second + 4..second + 8].copy_from_slice(&length.to_le_bytes());
        let seen = report(&file);
        assert_eq!((seen.frames.roce, seen.damage.unwrap().offset), (1, second as u64), "{length}");
    }
    // More captured than the block holds.
    let mut file = next_generation();
    file[second + 20..second + 24].copy_from_slice(&4000_u32.to_le_bytes());
    let seen = report(&file);
    let damage = seen.damage.unwrap();
    assert_eq!((seen.frames.roce, damage.offset), (1, second as u64));
    assert!(damage.what.contains("contradict"), "{damage}");
}

fn refused(file: &[u8]) -> String {
    match Capture::new(file) {
        Ok(_) => panic!("taken for a capture"),
        Err(damage) => damage.to_string(),
    }
}

#[test]
fn what_is_no_capture_is_refused_with_what_it_may_be() {
    assert_eq!(refused(b""), "at byte 0: the file is empty");
    assert_eq!(refused(b"abc"), "at byte 0: no capture: 3 bytes");
    assert_eq!(refused(&[7; 100]), "at byte 0: neither pcap nor pcapng");
    assert_eq!(refused(&classic()[..23]), "at byte 0: the header is cut: 23 of 24 bytes");
    assert!(refused(&[&[0x1f, 0x8b][..], &[0; 50]].concat()).contains("zcat FILE | mkey pcap -"));
}

/// An input that gives little at once, is interrupted, and fails in the end.
struct Slow<'f> {
    file: &'f [u8],
    calls: usize,
}

impl Read for Slow<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.calls += 1;
        if self.calls.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.file.is_empty() {
            return Err(io::Error::other("the cable was pulled"));
        }
        let count = self.file.len().min(into.len()).min(7);
        into[..count].copy_from_slice(&self.file[..count]);
        self.file = &self.file[count..];
        Ok(count)
    }
}

#[test]
fn an_input_in_small_pieces_is_read_whole_and_its_error_told() {
    for file in [classic(), next_generation()] {
        let mut capture = Capture::new(Slow { file: &file, calls: 0 }).unwrap();
        let (totals, _) = analyse(&mut capture, Options::default(), |_| {});
        assert_eq!(totals.roce.all.packets, 3);
        let damage = totals.damage.unwrap();
        assert_eq!(
            (damage.offset, damage.what.as_str()),
            (file.len() as u64, "the cable was pulled")
        );
    }
}

#[test]
fn frames_longer_than_what_is_read_at_once() {
    let long = vec![0_u8; 1 << 20];
    let frames = [
        (1, long.clone()),
        (2, send(A, B, 1).ethernet()),
        (3, long),
        (4, send(A, B, 2).ethernet()),
    ];
    let seen = report(&pcap(LITTLE, true, 1, &frames));
    assert_eq!((seen.frames.all, seen.frames.roce, seen.damage), (4, 2, None));
}

fn digest(file: &[u8]) {
    let Ok(mut capture) = Capture::new(file) else { return };
    let (totals, flows) =
        analyse(&mut capture, Options { check_icrc: false, ..Options::default() }, |_| {});
    let report = Report::new("any".to_owned(), totals, &flows);
    assert!(report.file_bytes <= file.len() as u64);
    let _ = (text::text(&report, 2), serde_json::to_vec(&report).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_behind_a_header_do_not_make_it_panic(
        next: bool,
        big: bool,
        link in prop_oneof![Just(1_u16), Just(101), Just(113), Just(276)],
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        let order = Order { big };
        let head = match next {
            true => [section(order), interface(order, link, &[])].concat(),
            false => pcap(order, true, u32::from(link), &[]),
        };
        digest(&[head, bytes.clone()].concat());
        digest(&bytes);
    }

    #[test]
    fn any_frames_do_not_make_it_panic(
        link in prop_oneof![Just(1_u32), Just(101), Just(113), Just(276)],
        frames in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..90)), 0..20),
    ) {
        digest(&pcap(LITTLE, true, link, &frames));
    }

    #[test]
    fn changed_packets_do_not_make_it_panic(
        psns in prop::collection::vec(0..20_u32, 1..20),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        kept in any::<prop::sample::Index>(),
    ) {
        let frames: Vec<_> = psns.iter().map(|psn| (u64::from(*psn), ethernet(&[], send(A, B, *psn).ip()))).collect();
        let mut file = pcap(LITTLE, true, 1, &frames);
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        file.truncate(kept.index(file.len()) + 1);
        digest(&file);
    }
}
