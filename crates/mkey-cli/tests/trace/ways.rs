//! How a program is run, and where what is told goes.

use crate::c::{build_short, build_with};
use crate::common::run;
use crate::mkey_trace;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("../c/job.c");

#[test]
fn a_program_without_verbs_runs_as_without_and_is_told_of() {
    let (code, stdout, stderr) =
        run(mkey_trace(&["--"]).args(["sh", "-c", "echo out; echo err >&2; exit 3"]));
    assert_eq!((code, &*stdout), (3, "out\n"));
    assert_eq!(
        stderr,
        "err\nmkey: no RDMA device was opened, or it could not be recorded: \
         sh -c echo out; echo err >&2; exit 3; exit 3\n"
    );
    let (_, _, stderr) = run(&mut mkey_trace(&["sh", "-c", "kill -TERM $$"]));
    assert!(stderr.ends_with("; signal 15\n"), "{stderr}");
}

#[test]
fn what_can_not_be_run_is_told() {
    let (code, _, stderr) = run(&mut mkey_trace(&["no-such-program-anywhere"]));
    assert_eq!((code, &*stderr), (127, "mkey: no-such-program-anywhere: no such program\n"));
    let (code, _, stderr) = run(&mut mkey_trace(&["/etc/passwd"]));
    assert_eq!(code, 126, "{stderr}");
    let (code, _, stderr) = run(&mut mkey_trace(&[""; 0]));
    assert_eq!((code, &*stderr), (2, "mkey: of which program? (see mkey trace --help)\n"));
    let (code, _, stderr) = run(&mut mkey_trace(&["--", "--odd"]));
    assert!(code == 2 && stderr.contains("--odd: there is no such option"), "{stderr}");
    let (code, _, stderr) = run(mkey_trace(&["--devices", "0"]).arg("true"));
    assert_eq!(code, 2, "{stderr}");
}

#[test]
fn a_static_program_can_not_be_recorded_and_that_is_told() {
    let test = "a_static_program_can_not_be_recorded_and_that_is_told";
    let Some(program) = build_with(test, "int main(void) { return 4; }\n", &["-static"]) else {
        return;
    };
    let (code, _, stderr) = run(mkey_trace(&["--"]).arg(program.path()));
    assert_eq!(code, 4, "{stderr}");
    let lines: Vec<_> = stderr.lines().collect();
    let [before, after] = &*lines else { panic!("{stderr}") };
    assert!(before.contains("it is linked statically"), "{before}");
    assert!(after.contains("no RDMA device was opened") && after.contains("statically"), "{after}");
}

#[test]
fn outputs_that_could_not_be_written_are_refused_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let file = folder.path().join("file");
    let (ran_path, file) = (ran.to_str().unwrap(), file.to_str().unwrap());
    for (arguments, expected) in [
        (vec!["--json", "/no/such/folder/x"], 1),
        (vec!["--html", "-"], 2),
        (vec!["--json", "-", "--report", "-"], 2),
        (vec!["--json", file, "--output", file], 2),
        (vec!["--limit", "1k"], 2),
        (vec!["--duration", "0s"], 2),
        (vec!["--read", "/no/such/recording", "--json", "-"], 2),
    ] {
        let (code, stdout, stderr) = run(mkey_trace(&arguments).args(["touch", ran_path]));
        assert_eq!((code, &*stdout), (expected, ""), "{arguments:?}: {stderr}");
        assert!(!ran.exists() && !stderr.is_empty());
    }
}

#[test]
fn signals_reach_the_program_and_the_report_follows() {
    let test = "signals_reach_the_program_and_the_report_follows";
    let Some(program) = build_short(test, SOURCE) else { return };
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("json");
    let mut command = mkey_trace(&["--json", json.to_str().unwrap()]);
    command.arg(program.path()).arg("waits").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line != "waits\n" {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0);
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!((child.wait().unwrap().code(), &*rest), (Some(5), "ends\n"));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert!(report["report"].is_object() && report["advice"].is_object());
}

#[test]
fn after_its_time_the_report_is_there_and_the_program_goes_on() {
    let test = "after_its_time_the_report_is_there_and_the_program_goes_on";
    let Some(program) = build_short(test, SOURCE) else { return };
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut command = mkey_trace(&["--duration", "300ms", "--output", trace.to_str().unwrap()]);
    command.arg(program.path()).arg("waits").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The report's end is not known, but its first words are after the recording was written.
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    assert!(line.contains("goes on; what it does from now on is not recorded"), "{line}");
    line.clear();
    err.read_line(&mut line).unwrap();
    let text = fs::read_to_string(&trace).unwrap();
    assert!(text.lines().next().unwrap().contains("\"end\":\"--duration\""), "{text}");
    assert!(child.try_wait().unwrap().is_none(), "the program goes on");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!((child.wait().unwrap().code(), &*out), (Some(5), "begins\nwaits\nends\n"));
}

#[test]
fn saved_recordings_are_reported_alone_and_as_one_job() {
    let test = "saved_recordings_are_reported_alone_and_as_one_job";
    let Some(program) = build_short(test, SOURCE) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (one, both) = (folder.path().join("one"), folder.path().join("both"));
    let (one, both) = (one.to_str().unwrap(), both.to_str().unwrap());
    run(mkey_trace(&["--output", one]).arg(program.path()));
    let read = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mkey"));
        run(command.arg("trace").args(arguments).stdin(Stdio::null()))
    };
    let (code, stdout, stderr) = read(&["--read", one]);
    assert_eq!((code, &*stderr), (0, ""));
    assert!(!stdout.is_empty());
    let (code, stdout, stderr) =
        read(&["--read", one, "--read", one, "--output", both, "--json", "-"]);
    assert_eq!((code, &*stderr), (0, ""));
    assert!(serde_json::from_str::<serde_json::Value>(&stdout).is_ok());
    let count = |path: &str, kind: &str| {
        let text = fs::read_to_string(path).unwrap();
        text.lines().filter(|line| line.starts_with(&format!("{{\"{kind}\""))).count()
    };
    for kind in ["process", "region", "call", "stack", "queue", "remote"] {
        assert!(count(one, kind) > 0, "{kind}");
        assert_eq!(count(both, kind), 2 * count(one, kind), "{kind}");
    }
    assert_eq!(count(both, "job"), 1);
    // What is read is not written to.
    let (code, _, stderr) = read(&["--read", one, "--output", one]);
    assert!(code == 2 && stderr.contains("this is what is read"), "{stderr}");
    fs::write(both, "no recording\n").unwrap();
    let (code, _, stderr) = read(&["--read", both]);
    assert_eq!((code, stderr), (1, format!("mkey: {both}: this is no recording of mkey trace\n")));
}

/// Nothing is left behind, and what was left by a killed one is removed by the next.
#[test]
fn the_folder_is_removed() {
    let test = "the_folder_is_removed";
    let Some(program) = build_short(test, SOURCE) else { return };
    let folder_of = |command: &mut Command| {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        (child, out, line.trim().to_owned())
    };
    let shell = ["sh", "-c", "echo $MKEY_TRACE; read x; exec \"$0\" \"$@\""];
    let mut command = mkey_trace(&shell);
    let (mut child, _, folder) = folder_of(command.arg(program.path()).stdin(Stdio::piped()));
    assert!(std::path::Path::new(&folder).is_dir());
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert!(std::path::Path::new(&folder).is_dir());
    let mut command = mkey_trace(&["sh", "-c", "echo $MKEY_TRACE"]);
    let (mut child, _, second) = folder_of(&mut command);
    child.wait().unwrap();
    assert!(second != folder && !second.is_empty());
    assert!(!std::path::Path::new(&folder).exists(), "{folder}");
    assert!(!std::path::Path::new(&second).exists(), "{second}");
}
