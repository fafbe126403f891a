//! Where there is no more room.

use super::*;
use crate::raw::{ALIGN, HEADER, Header};
use std::collections::BTreeSet;

#[test]
fn a_full_file_loses_records_and_says_how_many() {
    let traced = traced_within(300_000);
    for number in 1..5000 {
        traced.reg(number, 0x7000_0000, 4096);
    }
    let bytes = traced.bytes();
    let file = File::parse(&bytes).unwrap();
    let header = file.header();
    assert!(
        header.used <= header.limit
            && header.limit <= 300_000
            && bytes.len() as u64 == header.limit
    );
    let written =
        file.records().filter(|(_, r)| matches!(r, Record::Call(_) | Record::Mr(_))).count();
    // Its stack may be lost, once for each call.
    let lost = header.lost as usize;
    assert!(written + lost >= 2 * 4999 && written > 500 && lost > 8000, "{written} {lost}");
    assert_eq!(header.calls, 4999);
    // Everything else goes on.
    let queue = traced.recorder.queue(&traced.init(8, 8));
    assert!(queue.is_none());
    traced.recorder.polled(0);
    (1..5000).for_each(|number| traced.dereg(number));
}

#[test]
fn records_are_read_back_as_they_were_written_across_chunks() {
    let traced = traced_within(64 << 20);
    for number in 1..=20_000 {
        traced.reg(number, 0x1000_0000 + u64::from(number) * 4096, 4096);
    }
    let bytes = traced.bytes();
    let file = File::parse(&bytes).unwrap();
    assert!(file.header().used > 7 << 20, "it has come into a second chunk");
    let mrs = traced.mrs();
    assert_eq!(mrs.len(), 20_000);
    for (mr, number) in mrs.iter().zip(1..) {
        assert_eq!((mr.addr, mr.lkey), (0x1000_0000 + u64::from(number) * 4096, lkey(number)));
        let call: Call = file.get(mr.reg).unwrap();
        assert_eq!((call.addr, call.lkey, call.object), (mr.addr, mr.lkey, object(number)));
        assert_eq!(file.get::<Mr>(call.mr).unwrap().lkey, mr.lkey);
        assert!(call.end >= call.begin && call.device == traced.device);
    }
    // One place in the program: one stack, however often.
    let stacks =
        traced.all(|r| if let Record::Stack(s, bytes) = r { Some((s, bytes.len())) } else { None });
    assert!(stacks.len() < 20, "{}", stacks.len());
    assert_eq!(stacks.iter().map(|(s, _)| s.times).sum::<u64>(), 20_000);
    assert!(stacks.iter().all(|(s, len)| s.bytes as usize == *len && *len > 256 && s.epoch == 1));
    let modules = traced.all(|r| {
        let Record::Module(module, name) = r else { return None };
        Some((module, String::from_utf8(name.to_vec()).unwrap()))
    });
    let ip = stacks[0].0.ip;
    let own = modules.iter().find(|(m, _)| m.start <= ip && ip < m.end).unwrap();
    assert_eq!(std::path::Path::new(&own.1), std::env::current_exe().unwrap());
}

/// As after `chroot` or `setuid`, or where no number is left.
#[test]
fn a_file_that_can_not_be_opened_again_is_written_on() {
    let traced = traced_within(64 << 20);
    let path = files(traced.folder.path()).remove(0);
    let moved = path.with_extension("moved");
    std::fs::rename(&path, &moved).unwrap();
    // Another one by its name is not taken for it.
    std::fs::write(&path, []).unwrap();
    (1..=20_000).for_each(|number| traced.reg(number, u64::from(number) << 12, 4096));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    let bytes = std::fs::read(&moved).unwrap();
    let header = File::parse(&bytes).unwrap().header();
    assert_eq!((header.calls, header.lost), (20_000, 0));
    assert!(header.used > 7 << 20, "it has come into a second chunk");
}

#[test]
fn thousands_of_threads_each_have_a_record_and_nothing_is_lost() {
    const THREADS: usize = 2000;
    let traced = traced_within(64 << 20);
    let queue = traced.queue(60_000, 0);
    traced.reg(1, 0x7000_0000, 1 << 20);
    for group in 0..THREADS / 100 {
        std::thread::scope(|scope| {
            for number in 0..100 {
                let (traced, number) = (&traced, (group * 100 + number) as u32 + 2);
                std::thread::Builder::new()
                    .stack_size(64 << 10)
                    .spawn_scoped(scope, move || {
                        traced.reg(number, 0x8000_0000 + u64::from(number) * 4096, 4096);
                        for id in 0..10 {
                            traced.post(queue, Op::Send, id, &[(0x7000_0000, 8, 1)]);
                            traced.recorder.polled(id as u32 & 1);
                        }
                        traced.recorder.gone(0x8000_0000, 1, Wrong::UnmappedRegistered);
                        traced.dereg(number);
                    })
                    .unwrap();
            }
        });
    }
    let threads = traced.all(|r| if let Record::Thread(thread) = r { Some(thread) } else { None });
    assert_eq!(threads.len(), THREADS + 1);
    let of_them: Vec<_> = threads.iter().filter(|t| t.posts > 0).collect();
    assert_eq!(of_them.len(), THREADS);
    assert!(of_them.iter().all(|t| (t.posts, t.polls, t.empty, t.completions) == (10, 10, 5, 5)));
    assert_eq!(threads.iter().map(|t| t.tid).collect::<BTreeSet<_>>().len(), threads.len());
    let mrs = traced.mrs();
    assert_eq!(mrs.len(), THREADS + 1);
    assert_eq!((mrs[0].uses[0], in_flight(&mrs[0])), (10 * THREADS as u64, 10 * THREADS as u64));
    assert!(mrs[1..].iter().all(|mr| mr.dereg != 0));
    let bytes = traced.bytes();
    let header: Header = File::parse(&bytes).unwrap().header();
    assert_eq!((header.lost, header.unfollowed, header.calls), (0, 0, 2 * THREADS as u64 + 1));
    assert_eq!(traced.wrongs(), []);
}

#[test]
fn many_regions_on_little_room_are_counted_as_not_followed() {
    // No more than the table takes: each beyond is told of.
    let traced = traced_within(512 << 20);
    for number in 1..=regions::MOST as u32 + 10 {
        let mut call = traced.blank(Verb::RegMr, u64::from(number) * 64);
        (call.addr, call.len, call.lkey) = (u64::from(number) << 12, 4096, number);
        traced.call(call);
    }
    let mut header = vec![0; HEADER];
    let file = std::fs::File::open(&files(traced.folder.path())[0]).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut header, 0).unwrap();
    let header = File::parse(&header).unwrap().header();
    assert_eq!((header.unfollowed, header.lost), (10, 0));
    assert!(header.used > (regions::MOST * 6 * ALIGN) as u64);
}

/// As `exec` has it: the process is the same, its memory is not.
#[test]
fn a_process_that_begins_again_has_another_file() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        Recorder::create(folder.path(), 1 << 20).unwrap();
    }
    let pid = std::process::id();
    let names: Vec<_> = (0..3).map(|n| folder.path().join(format!("{pid}-{n}.raw"))).collect();
    assert_eq!(files(folder.path()), names);
    assert!(Recorder::create(&folder.path().join("none"), 1 << 20).is_err());
}
