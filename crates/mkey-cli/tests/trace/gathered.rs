//! What is recorded of a program that does known things.

use crate::c::{Built, build_short};
use crate::common::run;
use crate::mkey_trace;
use mkey_trace::format::{Call, Pages, Recording};
use std::path::Path;

const SOURCE: &str = include_str!("../c/job.c");

fn build(test: &str) -> Option<Built> {
    build_short(test, SOURCE)
}

/// Runs it so; its status, standard output and recording.
fn recorded(program: &Path, what: &str) -> (i32, String, Recording) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    let mut command = mkey_trace(&["--output", file.to_str().unwrap()]);
    let (status, stdout, stderr) = run(command.arg(program).arg(what));
    let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{error}\n{stderr}"));
    let recording = Recording::read(&*bytes).unwrap();
    (status, stdout, recording)
}

fn calls<'r>(recording: &'r Recording, verb: &str) -> Vec<&'r Call> {
    recording.calls.iter().filter(|call| call.verb == verb).collect()
}

/// The functions of the program at a stack, innermost first.
fn functions(recording: &Recording, stack: u32) -> Vec<&str> {
    let stack = Recording::by_id(&recording.stacks, stack).unwrap();
    assert!(!stack.cut, "{stack:#?}");
    let own = stack.frames.iter().filter(|frame| frame.module == "program");
    own.filter_map(|frame| frame.function.as_deref()).filter(|name| *name != "_start").collect()
}

/// What the program does before it ends in one way or another, by one process.
fn assert_registrations(recording: &Recording, process: u32) {
    let of = |call: &&&Call| call.process == process;
    let registered = calls(recording, "ibv_reg_mr");
    let registered: Vec<_> = registered.iter().filter(of).collect();
    let lengths: Vec<_> = registered.iter().map(|call| (call.len, call.errno == 0)).collect();
    let big = 4 << 20;
    let expected =
        [(4096, true), (big, true), (big, true), (big, true), (big, true), (4096, false)];
    assert_eq!(lengths, expected);
    let regions: Vec<_> = recording.regions.iter().filter(|r| r.process == process).collect();
    assert_eq!(regions.len(), 5, "one of each that did not fail");
    assert!(regions[1..].iter().all(|region| region.addr == regions[1].addr));
    assert_eq!(regions[0].addr % 4096, 0);
    assert_eq!((regions[0].access & 7, regions[4].access & 7), (1, 3));
    assert_eq!((regions[0].writes, regions[4].writes), (5, 0));
    assert_eq!(functions(recording, regions[0].reg_stack), ["register_small", "main"]);
    assert_eq!(functions(recording, regions[4].reg_stack), ["register_big", "main"]);
    assert_eq!(functions(recording, regions[1].dereg_stack), ["main"]);
    let ended: Vec<_> = regions[1..].iter().map(|region| region.to.is_some()).collect();
    assert_eq!(ended, [true, true, true, false]);
    for region in &regions {
        assert!(region.to.is_none_or(|to| region.from <= to));
        assert_eq!(region.in_flight, 0);
    }
    // The peer is in the same process.
    let remote = recording.remotes.iter().find(|remote| remote.process == process).unwrap();
    assert_eq!((remote.writes, remote.region), (5, Some(regions[4].id)));
    let posted: u64 = recording
        .threads
        .iter()
        .filter(|thread| thread.process == process)
        .map(|thread| thread.posts)
        .sum();
    assert_eq!(posted, 5);
}

#[test]
fn what_a_program_registers_is_recorded_with_its_places() {
    let Some(program) = build("what_a_program_registers_is_recorded_with_its_places") else {
        return;
    };
    let (status, stdout, recording) = recorded(&program.path(), "");
    assert_eq!((status, &*stdout), (5, "begins\nends\n"));
    assert_eq!(recording.job.end, "exit 5");
    let [process] = &*recording.processes else { panic!("{:#?}", recording.processes) };
    assert!(process.exited && process.ended.is_some() && process.lost == 0);
    assert_eq!(process.calls, recording.calls.len() as u64);
    let [device] = &*recording.devices else { panic!("{:#?}", recording.devices) };
    assert!(device.soft && device.name == "mkey0");
    assert_registrations(&recording, 1);
    assert_eq!(calls(&recording, "ibv_dereg_mr").len(), 4);
    assert_eq!(calls(&recording, "ibv_create_qp").len(), 2);
    // 4 MiB that the program wrote to, and memory of its own file that it has not: at the end what it has
    // of mappings is known in any case.
    assert!(matches!(recording.regions[4].pages, Pages::Small | Pages::Thp));
    let (start, end) = recording.regions[4].mapping.unwrap();
    assert!(start <= recording.regions[4].addr && end - start >= 4 << 20);
    assert!(recording.calls.iter().all(|call| call.end <= recording.job.wall));
}

#[test]
fn a_killed_program_loses_nothing_that_it_did() {
    let Some(program) = build("a_killed_program_loses_nothing_that_it_did") else { return };
    for (what, signal) in [("killed", 9), ("crashed", 11)] {
        let (status, stdout, recording) = recorded(&program.path(), what);
        // By the signal itself.
        assert_eq!((status, &*stdout), (-1, "begins\n"), "{what}");
        assert_eq!(recording.job.end, format!("signal {signal}"));
        let [process] = &*recording.processes else { panic!("{:#?}", recording.processes) };
        assert!(!process.exited, "{what}");
        assert_registrations(&recording, 1);
        assert_eq!(recording.regions[0].to, None);
    }
}

#[test]
fn children_are_processes_of_the_job() {
    let Some(program) = build("children_are_processes_of_the_job") else { return };
    let (status, _, recording) = recorded(&program.path(), "fork");
    assert_eq!(status, 5);
    let [parent, child] = &*recording.processes else { panic!("{:#?}", recording.processes) };
    assert_eq!(child.parent, parent.pid);
    assert!(parent.began < child.began && child.exited && parent.exited);
    assert_registrations(&recording, 1);
    let own: Vec<_> = recording.regions.iter().filter(|region| region.process == 2).collect();
    assert_eq!(own.len(), 1);
    assert_eq!(functions(&recording, own[0].reg_stack), ["register_small", "main"]);
}

#[test]
fn what_takes_a_program_s_place_is_a_process_of_its_own() {
    let Some(program) = build("what_takes_a_program_s_place_is_a_process_of_its_own") else {
        return;
    };
    let (status, stdout, recording) = recorded(&program.path(), "exec");
    assert_eq!((status, &*stdout), (5, "begins\nbegins\nends\n"));
    let [before, after] = &*recording.processes else { panic!("{:#?}", recording.processes) };
    assert_eq!(before.pid, after.pid);
    assert!(!before.exited && before.ended == Some(after.began) && after.exited);
    assert_eq!(after.arguments.last().unwrap(), "again");
    assert_registrations(&recording, 1);
    assert_registrations(&recording, 2);
}
