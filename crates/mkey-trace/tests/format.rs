//! Recordings are read as they were written, and what is no recording is refused in words.

use mkey_trace::format::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const DOCUMENT: &str = include_str!("../../../docs/trace-format.md");

/// The lines in the document's blocks of JSON.
fn examples() -> Vec<&'static str> {
    let blocks = DOCUMENT.split("```json\n").skip(1);
    blocks.flat_map(|block| block.split("```").next().unwrap().lines()).collect()
}

#[test]
fn the_document_s_examples_are_a_recording() {
    let text = examples().join("\n");
    let recording = Recording::read(text.as_bytes()).unwrap();
    let mut written = Vec::new();
    recording.write(&mut written).unwrap();
    // The order and the spelling of this page are those of what is written.
    assert_eq!(String::from_utf8(written).unwrap().trim(), text);
}

#[test]
fn the_document_tells_of_each_kind_and_each_field() {
    let mut kinds = BTreeSet::new();
    for example in examples() {
        let line: Line = serde_json::from_str(example).unwrap();
        let kind = line.kind().unwrap_or_else(|| panic!("{example}"));
        kinds.insert(kind);
        let section = DOCUMENT.split(&format!("\n### {kind}\n")).nth(1).unwrap();
        let section = section.split("\n### ").next().unwrap().split("```json").next().unwrap();
        let value: serde_json::Value = serde_json::from_str(example).unwrap();
        for field in value[kind].as_object().unwrap().keys() {
            // What names others is told of for all of them.
            let common = ["id", "process", "device", "thread", "name"].contains(&field.as_str())
                || field.ends_with("stack")
                || ["from", "to"].contains(&field.as_str());
            assert!(common || section.contains(&format!("`{field}`")), "{kind}: {field}");
        }
    }
    let all = [
        "job", "process", "device", "thread", "stack", "region", "queue", "window", "remote",
        "call", "sample", "failure", "finding", "counter",
    ];
    assert_eq!(kinds, all.into_iter().collect());
    let version = format!("**version {VERSION}**");
    assert!(DOCUMENT.contains(&version), "{version}");
    for wrong in [
        Wrong::DeregInFlight,
        Wrong::KeyAfterDereg,
        Wrong::FreedRegistered,
        Wrong::UnmappedRegistered,
        Wrong::GoneInFlight,
        Wrong::ReceivedTwice,
        Wrong::Outside,
    ] {
        let name = serde_json::to_string(&wrong).unwrap().replace('"', "`");
        assert!(DOCUMENT.contains(&name), "{name}");
    }
    for pages in [
        Pages::Unknown,
        Pages::Small,
        Pages::Thp,
        Pages::Huge2M,
        Pages::Huge1G,
        Pages::Shared,
        Pages::File,
        Pages::Device,
        Pages::None,
    ] {
        let name = serde_json::to_string(&pages).unwrap().replace('"', "`");
        assert!(DOCUMENT.contains(&name), "{name}");
    }
}

const JOB: &str = r#"{"job":{"version":1,"by":"","command":[],"host":"","cpu":"","processors":1,"kernel":"","began":0,"wall":0,"end":""}}"#;
const PROCESS: &str = r#"{"process":{"id":1,"pid":1,"parent":0,"arguments":[],"began":0,"exited":true,"calls":0,"calls_overhead":0,"post_overhead":0,"lost":0}}"#;

fn why(lines: &[&str]) -> String {
    Recording::read(lines.join("\n").as_bytes()).unwrap_err().to_string()
}

#[test]
fn what_is_named_has_to_be_there() {
    let sample = |process| {
        format!(
            r#"{{"sample":{{"process":{process},"at":0,"pinned":0,"resident":0,"cpu":0,"posts":0}}}}"#
        )
    };
    assert!(Recording::read([JOB, PROCESS, &sample(1)].join("\n").as_bytes()).is_ok());
    assert_eq!(why(&[JOB, PROCESS, &sample(2)]), "line 3: there is no process 2");
    assert_eq!(why(&[JOB, PROCESS, &sample(0)]), "line 3: there is no process 0");
    // It comes first.
    assert_eq!(why(&[JOB, &sample(1), PROCESS]), "line 2: there is no process 1");
    let second = PROCESS.replace("\"id\":1", "\"id\":3");
    assert_eq!(
        why(&[JOB, PROCESS, &second]),
        "line 3: process 3 comes where process 2 is the next"
    );
    let call = r#"{"call":{"process":1,"device":0,"thread":0,"verb":"ibv_reg_mr","begin":0,"end":0,"errno":0,"region":7,"addr":0,"len":0,"access":0,"stack":0,"posts":0,"detail":0}}"#;
    assert_eq!(why(&[JOB, PROCESS, call]), "line 3: there is no region 7");
    let call = call.replace("\"region\":7", "\"region\":null");
    assert!(Recording::read([JOB, PROCESS, &call].join("\n").as_bytes()).is_ok());
    let call = call.replace("\"stack\":0", "\"stack\":4294967295");
    assert_eq!(why(&[JOB, PROCESS, &call]), "line 3: there is no stack 4294967295");
}

#[test]
fn what_is_no_recording_is_refused() {
    let not_one = "this is no recording of mkey trace";
    for text in ["", "\n\n", "{}", "[1]", "\u{0}\u{1}", "{\"process\":{}}", "{\"job\":{}}"] {
        assert_eq!(why(&[text]), not_one, "{text:?}");
    }
    assert_eq!(why(&[&"x".repeat(LONGEST + 10)]), not_one);
    assert_eq!(
        why(&[r#"{"job":{"version":2}}"#]),
        "its format is version 2, this mkey reads version 1"
    );
    assert_eq!(why(&[JOB, JOB]), "line 2: another job begins; a file holds one");
    let long = why(&[JOB, &"x".repeat(LONGEST + 1)]);
    assert_eq!(long, "line 2 is longer than 16777216 bytes");
    // A line of a kind that is known has to be as that kind is; one that was cut is told.
    let cut = why(&[JOB, &PROCESS[..40]]);
    assert!(cut.starts_with("line 2: EOF"), "{cut}");
    let other = why(&[JOB, r#"{"process":{"id":1}}"#]);
    assert!(other.starts_with("line 2: missing field"), "{other}");
}

#[test]
fn what_a_later_release_adds_is_passed_over() {
    let kind = r#"{"weather":{"id":1,"at":[1,2,{"x":null}]}}"#;
    let field = PROCESS.replace("\"pid\":1", "\"pid\":1,\"mood\":{\"a\":[1]}");
    let beside = PROCESS.replace("\"id\":1", "\"id\":2").replace("}}", "},\"also\":[]}");
    let text = [JOB, "", kind, &field, " \t", &beside, kind].join("\n");
    let recording = Recording::read(text.as_bytes()).unwrap();
    assert_eq!(recording.processes.len(), 2);
    let line: Line = serde_json::from_str(kind).unwrap();
    let kept: serde_json::Value = serde_json::from_str(kind).unwrap();
    assert_eq!(line, Line::Other(kept));
}

#[test]
fn calls_are_sorted_by_their_beginning() {
    let call = |begin| Call { process: 1, begin, end: begin, ..Call::default() };
    let recording = Recording {
        job: Job { version: VERSION, ..Job::default() },
        processes: vec![Process { id: 1, ..Process::default() }],
        calls: vec![call(5), call(2), call(9)],
        ..Recording::default()
    };
    let mut bytes = Vec::new();
    recording.write(&mut bytes).unwrap();
    let read = Recording::read(&*bytes).unwrap();
    assert_eq!(read.calls.iter().map(|call| call.begin).collect::<Vec<_>>(), [2, 5, 9]);
}

prop_compose! {
    fn any_process()(
        pid: u32, parent: u32, arguments in proptest::collection::vec(".{0,8}", 0..3),
        began: u64, ended: Option<u64>, exited: bool, cpu: Option<u64>, calls: u64,
        overhead in 0.0..1e6f64, lost: u64
    ) -> Process {
        Process {
            id: 1, pid, parent, arguments, began, ended, exited, cpu, calls,
            calls_overhead: calls / 2, post_overhead: overhead, lost,
        }
    }
}

prop_compose! {
    fn any_frame()(
        module in ".{0,6}", offset: u64, function in proptest::option::of(".{0,9}"),
        file in proptest::option::of(".{0,9}"), line: Option<u32>
    ) -> Frame {
        Frame { module, offset, function, file, line }
    }
}

prop_compose! {
    fn any_region()(
        origin in proptest::sample::select(vec![
            Origin::Memory, Origin::OnDemand, Origin::Implicit, Origin::Dmabuf,
            Origin::DeviceMemory, Origin::Null,
        ]),
        pages in proptest::sample::select(vec![
            Pages::Unknown, Pages::Small, Pages::Thp, Pages::Huge2M, Pages::Huge1G, Pages::Shared,
            Pages::File, Pages::Device, Pages::None,
        ]),
        numbers: [u64; 9], keys: [u32; 4], mapping: Option<(u64, u64)>, to: Option<u64>,
        stacks in (0u32..2, 0u32..2)
    ) -> Region {
        let [addr, len, from, sends, writes, reads, recvs, binds, outside] = numbers;
        let [pd, lkey, rkey, access] = keys;
        Region {
            id: 1, process: 1, device: 1, pd, origin, addr, len, lkey, rkey, access, pages, mapping,
            from, to, reg_stack: stacks.0, dereg_stack: stacks.1, sends, writes, reads, recvs,
            binds, outside, in_flight: sends / 2,
        }
    }
}

prop_compose! {
    fn any_recording()(
        words in proptest::collection::vec(".{0,12}", 6), process in any_process(),
        frames in proptest::collection::vec(any_frame(), 0..4), region in any_region(),
        posted in proptest::collection::btree_map("[a-z]{1,6}", any::<u64>(), 0..4),
        begins in proptest::collection::vec((any::<u64>(), any::<Option<u64>>(), any::<i32>()), 0..5),
        numbers: [u64; 8], which: Option<bool>, flag: bool
    ) -> Recording {
        let [a, b, c, d, e, f, g, h] = numbers;
        let region_id = which.map(|_| 1);
        let mut calls: Vec<_> = begins.iter().map(|(begin, cpu, errno)| Call {
            process: 1, device: 1, thread: 1, verb: words[0].clone(), begin: *begin, end: a,
            cpu: *cpu, errno: *errno, region: region_id, addr: b, len: c, access: d as u32,
            stack: 1, posts: e, detail: f as u32,
        }).collect();
        calls.sort_by_key(|call| call.begin);
        Recording {
            job: Job {
                version: VERSION, by: words[1].clone(), command: words.clone(),
                host: words[2].clone(), cpu: words[3].clone(), processors: a as u32,
                kernel: words[4].clone(), began: b, wall: c, end: words[5].clone(), command_cost: (a % 2 == 0).then_some(b),
            },
            processes: vec![process],
            devices: vec![Device {
                id: 1, process: 1, name: words[0].clone(), guid: words[1].clone(), soft: flag,
            }],
            threads: vec![Thread {
                id: 1, process: 1, tid: a as u32, name: words[2].clone(), posts: b, polls: c,
                empty: d, completions: e,
            }],
            stacks: vec![Stack { id: 1, frames, cut: flag }],
            regions: vec![region],
            queues: vec![Queue {
                id: 1, process: 1, device: 0, number: a as u32, kind: words[3].clone(), posted,
                inlined: b, invalidations: c, completed: d, failed: e, followed: flag,
            }],
            windows: vec![Window {
                id: 1, process: 1, device: 1, kind: 2, binds: a, unbinds: b, invalidations: c,
                from: d, to: which.map(|_| e), alloc_stack: 1,
            }],
            remotes: vec![Remote {
                process: 1, device: 1, rkey: a as u32, region: region_id, writes: b, reads: c,
                atomics: d,
            }],
            calls,
            samples: vec![Sample {
                process: 1, at: a, pinned: b, resident: c, cpu: d, posts: e,
            }],
            failures: vec![Failure {
                process: 1, queue: 1, at: a, status: b as u32, vendor: c as u32, times: d,
            }],
            findings: vec![Finding {
                process: 1, at: f, wrong: Wrong::GoneInFlight, region: region_id, queue: region_id,
                addr: g, len: h, key: a as u32, stack: 1, before: 0, times: b,
            }],
            counters: vec![Counter {
                device: words[4].clone(), name: words[5].clone(), before: g, after: h,
            }],
        }
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read(recording in any_recording()) {
        let mut bytes = Vec::new();
        recording.write(&mut bytes).unwrap();
        prop_assert_eq!(Recording::read(&*bytes).unwrap(), recording);
    }

    /// Wherever it is damaged, it is refused with the line, or read.
    #[test]
    fn damage_is_no_panic(recording in any_recording(), at: prop::sample::Index, byte: u8, cut: bool) {
        let mut bytes = Vec::new();
        recording.write(&mut bytes).unwrap();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        let _ = Recording::read(&*bytes);
    }
}
