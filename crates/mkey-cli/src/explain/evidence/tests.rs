use super::*;

const BASE: u64 = 0x7f00_0000_0000;

fn asked(length: u64, access: Option<Rights>) -> Asked {
    Asked { range: Some((BASE, length)), access }
}

fn area(length: u64) -> Area {
    Area { range: BASE..BASE + length, read: true, write: true, page: 4096, ..Area::default() }
}

fn process(area: Area) -> Process {
    Process {
        pid: 1,
        memlock: Some(64 << 10),
        map_count: 100,
        max_map_count: Some(65_530),
        areas: vec![area],
        ..Process::default()
    }
}

fn verdict(kind: Check, process: &Process, asked: &Asked) -> Verdict {
    for lang in [Lang::En, Lang::Zh] {
        let (verdict, text) = check(kind, process, asked, lang);
        assert_eq!(text.is_empty(), verdict == Verdict::Open, "{kind:?} {text}");
    }
    check(kind, process, asked, Lang::En).0
}

#[test]
fn rights_and_ranges() {
    let healthy = process(area(4096));
    let write = Some(Rights::REMOTE_WRITE);
    assert_eq!(verdict(Check::Rights, &healthy, &asked(4096, write)), Verdict::Found);
    assert_eq!(
        verdict(Check::Rights, &healthy, &asked(4096, Some(Rights::REMOTE_READ))),
        Verdict::RuledOut
    );
    assert_eq!(verdict(Check::Rights, &healthy, &asked(4096, None)), Verdict::Open);
    assert_eq!(verdict(Check::Wraps, &healthy, &asked(u64::MAX, None)), Verdict::Found);
    assert_eq!(verdict(Check::Wraps, &healthy, &asked(4096, None)), Verdict::RuledOut);
    assert_eq!(verdict(Check::Empty, &healthy, &asked(0, None)), Verdict::Found);
    assert_eq!(verdict(Check::Empty, &healthy, &asked(1 << 60, None)), Verdict::Found);
    assert_eq!(verdict(Check::Empty, &healthy, &asked(4096, None)), Verdict::RuledOut);
}

/// An address and a length that run past the end say so at every cause that looks at pages.
#[test]
fn a_range_that_wraps_is_no_question_of_pages() {
    let wraps = Asked { range: Some((u64::MAX - 0xfff, 2 << 20)), access: None };
    let process = process(area(4096));
    for kind in [
        Check::HugeSplit,
        Check::MemlockZero,
        Check::Memlock,
        Check::Unmapped,
        Check::ProtNone,
        Check::ReadOnly,
        Check::DeviceMemory,
        Check::SharedFile,
        Check::HugePool,
        Check::SecretMemory,
    ] {
        for (lang, part) in [(Lang::En, "beyond 2^64"), (Lang::Zh, "超过 2^64")] {
            let (verdict, text) = check(kind, &process, &wraps, lang);
            assert!(verdict == Verdict::RuledOut && text.contains(part), "{kind:?} {text}");
        }
    }
    assert_eq!(verdict(Check::Wraps, &process, &wraps), Verdict::Found);
}

#[test]
fn locked_memory_as_the_kernel_counts_it() {
    let mut process = process(area(1 << 20));
    process.pinned = 60 << 10;
    assert_eq!(verdict(Check::Memlock, &process, &asked(4096, None)), Verdict::RuledOut);
    assert_eq!(verdict(Check::Memlock, &process, &asked(4097, None)), Verdict::Found);
    assert_eq!(verdict(Check::Memlock, &process, &Asked::default()), Verdict::Possible);
    process.pinned = 64 << 10;
    assert_eq!(verdict(Check::Memlock, &process, &Asked::default()), Verdict::Found);
    process.ipc_lock = true;
    assert_eq!(verdict(Check::Memlock, &process, &asked(1 << 20, None)), Verdict::RuledOut);
    process.ipc_lock = false;
    process.ipc_lock_elsewhere = true;
    let (_, text) = check(Check::Memlock, &process, &asked(1 << 20, None), Lang::En);
    assert!(text.contains("another user namespace") && text.contains("asked for 1 MiB"), "{text}");
    assert_eq!(verdict(Check::MemlockZero, &process, &asked(1, None)), Verdict::RuledOut);
    process.memlock = Some(0);
    assert_eq!(verdict(Check::MemlockZero, &process, &asked(1, None)), Verdict::Found);
    process.memlock = None;
    assert_eq!(verdict(Check::Memlock, &process, &asked(1 << 40, None)), Verdict::RuledOut);
}

#[test]
fn mappings() {
    let ask = asked(8192, Some(Rights::LOCAL_WRITE));
    let checks = [
        Check::Unmapped,
        Check::ProtNone,
        Check::ReadOnly,
        Check::DeviceMemory,
        Check::SharedFile,
        Check::SecretMemory,
    ];
    let healthy = process(area(8192));
    assert!(checks.iter().all(|kind| verdict(*kind, &healthy, &ask) == Verdict::RuledOut));
    assert!(checks.iter().all(|kind| verdict(*kind, &healthy, &Asked::default()) == Verdict::Open));
    let mut hole = healthy.clone();
    hole.gaps.push(BASE + 4096..BASE + 8192);
    assert_eq!(verdict(Check::Unmapped, &hole, &ask), Verdict::Found);
    let none = process(Area { read: false, write: false, ..area(8192) });
    assert_eq!(verdict(Check::ProtNone, &none, &ask), Verdict::Found);
    let read_only = process(Area { write: false, ..area(8192) });
    assert_eq!(verdict(Check::ReadOnly, &read_only, &ask), Verdict::Found);
    assert_eq!(verdict(Check::ReadOnly, &read_only, &asked(8192, None)), Verdict::Possible);
    assert_eq!(
        verdict(Check::ReadOnly, &read_only, &asked(8192, Some(Rights::REMOTE_READ))),
        Verdict::RuledOut
    );
    let device = process(Area { flags: vec!["rd".to_owned(), "pf".to_owned()], ..area(8192) });
    assert_eq!(verdict(Check::DeviceMemory, &device, &ask), Verdict::Found);
    let file = |kind: &str| {
        process(Area {
            shared: true,
            path: "/f".to_owned(),
            file_system: Some(kind.to_owned()),
            ..area(8192)
        })
    };
    assert_eq!(verdict(Check::SharedFile, &file("ext4"), &ask), Verdict::Found);
    assert_eq!(verdict(Check::SharedFile, &file("ext4"), &asked(8192, None)), Verdict::Possible);
    assert_eq!(
        verdict(Check::SharedFile, &file("ext4"), &asked(8192, Some(Rights::empty()))),
        Verdict::RuledOut
    );
    assert_eq!(verdict(Check::SharedFile, &file("tmpfs"), &ask), Verdict::RuledOut);
    let secret = process(Area { path: "/secretmem (deleted)".to_owned(), ..area(8192) });
    assert_eq!(verdict(Check::SecretMemory, &secret, &ask), Verdict::Found);
}

#[test]
fn huge_pages() {
    let huge = Area {
        page: 2 << 20,
        flags: vec!["ht".to_owned()],
        huge_free: Some(0),
        huge_present: 2 << 20,
        ..area(4 << 20)
    };
    let mut process = process(huge);
    let torn = asked((2 << 20) + 4096, None);
    assert_eq!(verdict(Check::HugeSplit, &process, &asked(2 << 20, None)), Verdict::RuledOut);
    assert_eq!(verdict(Check::HugeSplit, &process, &torn), Verdict::Possible);
    process.fork_safe = Some(true);
    assert_eq!(verdict(Check::HugeSplit, &process, &torn), Verdict::Found);
    process.huge_safe = true;
    assert_eq!(verdict(Check::HugeSplit, &process, &torn), Verdict::RuledOut);
    assert_eq!(verdict(Check::HugePool, &process, &torn), Verdict::Found);
    process.areas[0].huge_free = Some(5);
    assert_eq!(verdict(Check::HugePool, &process, &torn), Verdict::Possible);
    process.areas[0].huge_present = 4 << 20;
    assert_eq!(verdict(Check::HugePool, &process, &torn), Verdict::RuledOut);
}

#[test]
fn mappings_near_their_limit() {
    let mut process = process(area(4096));
    let ask = Asked::default();
    for (count, expected) in
        [(100, Verdict::RuledOut), (60_000, Verdict::Possible), (65_529, Verdict::Found)]
    {
        process.map_count = count;
        assert_eq!(verdict(Check::VmaLimit, &process, &ask), expected, "{count}");
    }
    process.max_map_count = None;
    assert_eq!(verdict(Check::VmaLimit, &process, &ask), Verdict::Open);
}
