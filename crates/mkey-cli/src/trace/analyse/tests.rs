//! Whole reports of recordings made by hand.

use super::code::Code;
use super::findings::Severity;
use super::sample::{Builder, REMOTE_WRITE};
use super::{Report, grid, text::text};
use crate::html;
use crate::lang::{Lang, columns};
use mkey_trace::format::*;
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;

/// A server that registers for each request, with every kind of thing to be found.
pub fn server() -> Recording {
    let mut builder = Builder::new();
    let (io, setup, cleanup) =
        (builder.place("do_io", 42), builder.place("setup", 10), builder.place("cleanup", 77));
    builder.recording.job.wall = 1_000_000_000;
    builder.recording.threads[0].posts = 1_000;
    for n in 0..200u64 {
        let begin = 10_000_000 + n * 4_000_000;
        let region = builder.region(0x10_0000, 65536, begin, 900_000 + n * 500, io);
        (region.sends, region.pages) = (1, Pages::Thp);
        builder.recording.calls.last_mut().unwrap().posts = n * 5;
        builder.dereg(begin + 2_000_000, 300_000, io).posts = n * 5 + 5;
    }
    for n in 0..8u64 {
        let region = builder.region(0x4000_0000 + n * 8192, 4096, 1000 + n * 2000, 1500, setup);
        (region.recvs, region.pages, region.mapping) =
            (3, Pages::Huge2M, Some((0x4000_0000, 0x4020_0000)));
        builder.dereg(990_000_000 + n * 2000, 800, cleanup);
    }
    let region = builder.region(0x8000_0000, 4 << 20, 5_000_000, 1_100_000, setup);
    region.access = REMOTE_WRITE;
    builder.region(0x9000_0000, 2 << 20, 7_000_000, 700_000, setup);
    builder.call("ibv_reg_mr", 8_000_000, 4000, setup).errno = 12;
    builder.call("ibv_create_qp", 1, 90_000, setup);
    let recording = &mut builder.recording;
    recording.processes[0].calls = recording.calls.len() as u64;
    recording.processes[0].calls_overhead = 60_000;
    recording.processes[0].post_overhead = 11.5;
    recording.queues.push(Queue {
        id: 1,
        process: 1,
        device: 1,
        number: 0x11,
        kind: "RC".to_owned(),
        posted: [("send".to_owned(), 1_000)].into(),
        completed: 1_000,
        ..Queue::default()
    });
    recording.windows.push(Window { id: 1, process: 1, kind: 2, binds: 3, ..Window::default() });
    recording.counters.push(Counter {
        device: "mkey0".to_owned(),
        name: "page_faults".to_owned(),
        before: 1,
        after: 6,
    });
    for n in 0..=20u64 {
        recording.samples.push(Sample {
            process: 1,
            at: n * 50_000_000,
            pinned: (n % 3 + 1) << 20,
            cpu: n * 20_000_000,
            posts: n * 50,
            ..Sample::default()
        });
    }
    for (status, times) in [(10, 1), (5, 31)] {
        recording.failures.push(Failure {
            process: 1,
            queue: 1,
            at: 900_000_000,
            status,
            times,
            ..Failure::default()
        });
    }
    recording.findings.push(Finding {
        process: 1,
        at: 100_000_000,
        wrong: Wrong::FreedRegistered,
        region: Some(1),
        addr: 0x10_0000,
        len: 65536,
        stack: cleanup,
        before: io,
        times: 3,
        ..Finding::default()
    });
    builder.recording
}

fn page(report: &Report) -> String {
    html::page::render(&html::trace::page(report)).unwrap()
}

fn codes(report: &Report) -> Vec<Code> {
    report.findings.iter().map(|finding| finding.code).collect()
}

#[test]
fn a_server_that_registers_for_each_request_gets_just_its_findings() {
    let report = Report::of(&server());
    assert_eq!(
        codes(&report),
        [
            Code::FailedWork,
            Code::DataPath,
            Code::Repeated,
            Code::Unused,
            Code::FreedRegistered,
            Code::FailedCalls,
            Code::Leaked,
            Code::WindowKept,
            Code::Small,
            Code::Rights,
            Code::PageFaults,
        ]
    );
    let of = |code: Code| report.findings.iter().find(|finding| finding.code == code).unwrap();
    // 200 registrations with 200 deregistrations, the first registration before any post.
    assert_eq!(of(Code::DataPath).count, 398);
    assert_eq!(of(Code::Repeated).count, 199);
    let registered: u64 = (0..200).map(|n| 900_000 + n * 500).sum();
    assert_eq!(of(Code::Repeated).ns, registered + 200 * 300_000 - 900_000 - 300_000);
    assert_eq!((of(Code::Leaked).count, of(Code::Unused).count), (2, 1));
    assert_eq!((of(Code::Rights).count, report.held.maybe_used_by_peer.regions), (200, 1));
    assert_eq!(of(Code::DataPath).sites.first[0].place.at, "do_io main.c:42");
    assert_eq!(report.small.regions, 8);
    assert!(report.findings.windows(2).all(|two| two[0].severity <= two[1].severity));
}

#[test]
fn golden_texts() {
    let mut wrong = Vec::new();
    for (lang, name) in [(Lang::En, "server.en.txt"), (Lang::Zh, "server.zh.txt")] {
        let told = text(&Report::told(&server(), lang));
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/trace/analyse/golden").join(name);
        let golden = fs::read_to_string(&path).unwrap_or_default();
        if told != golden {
            let actual = std::env::temp_dir().join(name);
            fs::write(&actual, &told).unwrap();
            wrong.push(format!("{} is not what is told: {}", path.display(), actual.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_program_that_registers_once_is_left_in_peace() {
    let mut builder = Builder::new();
    let setup = builder.place("setup", 10);
    builder.recording.threads[0].posts = 1_000_000;
    builder.queue(1, "RC", &[("send", 1), ("recv", 999_999)]);
    builder.region(0, 1 << 30, 1_000_000, 30_000, setup).recvs = 1_000_000;
    builder.dereg(999_000_000, 5_000, setup).posts = 1_000_000;
    let report = Report::of(&builder.recording);
    assert_eq!(codes(&report), []);
    assert!(text(&report).contains("Nothing was found that is worth a change."));
}

#[test]
fn what_no_habit_explains_is_told_as_cost() {
    let mut builder = Builder::new();
    let setup = builder.place("setup", 10);
    builder.region(0, 1 << 30, 0, 60_000_000, setup).recvs = 1;
    builder.dereg(999_000_000, 5_000, setup);
    let report = Report::of(&builder.recording);
    assert_eq!(codes(&report), [Code::Cost]);
    assert_eq!((report.findings[0].count, report.findings[0].ns), (2, 60_005_000));
}

#[test]
fn nothing_recorded_is_a_report() {
    let report = Report::of(&Recording::default());
    assert_eq!(codes(&report), []);
    assert!(text(&report).contains("No memory was registered."));
    assert!(page(&report).contains("mkey trace"));
    assert!(serde_json::to_string(&report).is_ok());
}

#[test]
fn what_a_killed_process_left_is_told_as_not_known() {
    let mut recording = server();
    recording.processes[0].exited = false;
    recording.job.end = "signal 9".to_owned();
    let report = Report::of(&recording);
    assert!(!codes(&report).contains(&Code::Leaked));
    assert_eq!(report.held.open.regions, 2);
    let told = text(&report);
    assert!(told.contains("signal 9") && told.contains("did not end by exit"), "{told}");
}

#[test]
fn a_peer_in_the_same_recording_tells_which_remote_rights_were_used() {
    let mut builder = Builder::new();
    let client = builder.process(true);
    let place = builder.place("export", 5);
    builder.recording.threads[1].posts = 10;
    for addr in [0, 1 << 30] {
        builder.region(addr, 4096, 10, 1000, place).access = REMOTE_WRITE | 4;
        builder.dereg(900_000_000, 500, place);
    }
    builder.recording.remotes.push(Remote {
        process: client,
        device: 2,
        rkey: 3,
        region: Some(1),
        writes: 7,
        ..Remote::default()
    });
    builder.queue(1, "RC", &[]);
    builder.queue(client, "RC", &[("write", 7)]);
    let report = Report::of(&builder.recording);
    assert_eq!(codes(&report), [Code::Rights, Code::Unused]);
    assert_eq!(report.rights.excess.first[0].unused, ["REMOTE_READ"]);
    assert_eq!((report.held.unused.regions, report.rights.not_known), (1, 0));
    // Alone, nothing is said of either.
    builder.recording.remotes.clear();
    let report = Report::of(&builder.recording);
    assert_eq!(codes(&report), []);
    assert_eq!(report.held.maybe_used_by_peer.regions, 2);
}

#[test]
fn lost_records_are_told_first_of_what_is_no_error() {
    let mut builder = Builder::new();
    builder.recording.processes[0].lost = 12;
    let report = Report::of(&builder.recording);
    assert_eq!(codes(&report), [Code::Lost]);
    assert_eq!(report.findings[0].severity, Severity::Warning);
}

#[test]
fn lists_are_cut_and_what_is_cut_is_counted() {
    let mut builder = Builder::new();
    for line in 1..=500 {
        let place = builder.place("f", line);
        builder.region(u64::from(line) << 20, 4096, u64::from(line) * 100, 50, place);
        builder.call("ibv_reg_mr", 0, 1, place).errno = 12;
        let finding = Finding {
            process: 1,
            region: Some(line),
            stack: place,
            times: 1,
            ..Finding::default()
        };
        builder.recording.findings.push(finding);
    }
    let report = Report::of(&builder.recording);
    assert_eq!(report.registration.sites.count(), 500);
    assert_eq!((report.failures.calls.count(), report.lifetimes.count()), (500, 500));
    assert!(serde_json::to_string(&report).unwrap().len() < 200_000);
    let told = text(&report);
    assert!(told.contains("and 490 more") && told.lines().count() < 250, "{told}");
}

#[test]
fn names_from_a_program_are_escaped_and_control_nothing() {
    let mut recording = server();
    recording.job.command = vec!["<script>alert(1)</script>\u{1b}[31m\n".to_owned()];
    recording.devices[0].name = "a&b".to_owned();
    for frame in recording.stacks.iter_mut().flat_map(|stack| &mut stack.frames) {
        frame.function = Some("operator<< <std::vector<int>>\u{7}".to_owned());
    }
    let report = Report::of(&recording);
    assert!(text(&report).chars().all(|c| c == '\n' || !c.is_control()));
    let html = page(&report);
    assert!(!html.contains("<script"), "{html}");
}

/// Any recording: ids that name nothing, times that go backwards, sizes without end.
fn any_recording() -> impl Strategy<Value = Recording> {
    let number = || prop_oneof![0u64..5, Just(u64::MAX), Just(1 << 63), any::<u64>()];
    let id = || prop_oneof![0u32..4, Just(u32::MAX)];
    let verb = prop_oneof![
        Just("ibv_reg_mr"),
        Just("ibv_dereg_mr"),
        Just("ibv_rereg_mr"),
        Just("ibv_alloc_mw"),
        Just("x\u{0}"),
    ];
    let call = ((id(), id(), verb, number()), (number(), number(), id(), number()), any::<i32>());
    let call =
        call.prop_map(move |((process, thread, verb, begin), (end, len, region, posts), errno)| {
            Call {
                process,
                thread,
                device: process,
                verb: verb.to_owned(),
                begin,
                end,
                cpu: Some(end),
                errno: if errno % 3 == 0 { 0 } else { errno },
                region: Some(region),
                len,
                stack: region,
                posts,
                ..Call::default()
            }
        });
    let region = ((id(), number(), number()), (number(), number(), number()), any::<u32>());
    let region = region.prop_map(|((process, addr, len), (from, to, uses), access)| Region {
        process,
        device: process,
        addr,
        len,
        access,
        from,
        to: (to % 2 == 0).then_some(to),
        mapping: Some((0, u64::MAX)),
        sends: uses,
        binds: uses % 3,
        pages: if uses % 2 == 0 { Pages::Thp } else { Pages::Small },
        reg_stack: process,
        ..Region::default()
    });
    let sample = (id(), number(), number()).prop_map(|(process, at, n)| Sample {
        process,
        at,
        pinned: n,
        posts: n,
        cpu: n,
        ..Sample::default()
    });
    let process = (number(), number()).prop_map(|(began, n)| Process {
        began,
        ended: (n % 2 == 0).then_some(n),
        exited: n % 4 == 0,
        cpu: (n % 3 == 0).then_some(n),
        calls: n,
        calls_overhead: n,
        post_overhead: n as f64,
        lost: n,
        ..Process::default()
    });
    let thread = (id(), number()).prop_map(|(process, posts)| Thread {
        process,
        posts,
        ..Thread::default()
    });
    let finding = (id(), number()).prop_map(|(id, n)| Finding {
        process: id,
        region: Some(id),
        queue: Some(id),
        addr: n,
        len: n,
        times: n,
        ..Finding::default()
    });
    let window = (id(), number()).prop_map(|(kind, n)| Window {
        kind,
        binds: n,
        unbinds: n / 2,
        ..Window::default()
    });
    let failure = (any::<u32>(), number()).prop_map(|(status, times)| Failure {
        status: status % 30,
        vendor: status,
        times,
        queue: status % 3,
        ..Failure::default()
    });
    let remote = (id(), number()).prop_map(|(id, n)| Remote {
        region: (id > 0).then_some(id),
        writes: n,
        reads: n,
        ..Remote::default()
    });
    let lists = (
        prop::collection::vec(call, 0..12),
        prop::collection::vec(region, 0..8),
        prop::collection::vec(sample, 0..6),
        prop::collection::vec(process, 0..3),
        prop::collection::vec(thread, 0..3),
        prop::collection::vec(finding, 0..4),
        prop::collection::vec(window, 0..3),
        prop::collection::vec(failure, 0..4),
        prop::collection::vec(remote, 0..4),
    );
    (lists, number(), ".{0,20}").prop_map(|(lists, wall, name)| {
        let (calls, regions, samples, processes, threads, findings, windows, failures, remotes) =
            lists;
        let frame =
            Frame { module: name.clone(), function: Some(name.clone()), ..Frame::default() };
        Recording {
            job: Job { wall, command: vec![name], ..Job::default() },
            stacks: vec![Stack { id: 1, frames: vec![frame], cut: false }],
            calls,
            regions,
            samples,
            processes,
            threads,
            findings,
            windows,
            failures,
            remotes,
            ..Recording::default()
        }
    })
}

proptest! {
    #[test]
    fn whatever_is_recorded_is_reported(recording in any_recording()) {
        for lang in [Lang::En, Lang::Zh] {
            let report = Report::told(&recording, lang);
            for line in text(&report).lines() {
                prop_assert!(columns(line) <= grid::WIDTH, "{line}");
            }
            let html = page(&report);
            let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
            prop_assert!(roxmltree::Document::parse_with_options(&html, options).is_ok());
            prop_assert!(serde_json::to_string(&report).is_ok());
        }
    }
}

#[test]
fn a_million_calls_are_reported() {
    let mut builder = Builder::new();
    let places: Vec<u32> = (1..=50).map(|line| builder.place("io", line)).collect();
    builder.recording.threads[0].posts = 1_000_000;
    builder.queue(1, "RC", &[("send", 1_000_000)]);
    for n in 0..500_000u64 {
        let place = places[n as usize % places.len()];
        builder.region((n % 1000) << 16, 4096 << (n % 5), n * 2000, 700 + n % 90, place).sends = 1;
        builder.dereg(n * 2000 + 1000, 300, place).posts = n;
    }
    let began = std::time::Instant::now();
    let report = Report::of(&builder.recording);
    eprintln!("1 M calls, 500,000 regions: {:?}", began.elapsed());
    assert_eq!(report.registration.calls(), 1_000_000);
    assert_eq!((report.repeated.pieces, report.repeated.repeats), (1000, 499_000));
    assert_eq!(report.data_path.deregistrations, 499_999);
}
