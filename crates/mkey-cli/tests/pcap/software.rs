//! Captures of the project's own software RNIC, whose links lose, double, reorder and damage packets.

use crate::common;
use crate::compared::compare;
use crate::preloaded::{has, mkey_run};
use mkey_wire::frame::Frame;
use mkey_wire::pcap::LinkType;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

#[path = "../links/pcap.rs"]
mod frames;
#[path = "../links/process.rs"]
#[allow(dead_code, reason = "part of it is for network namespaces")]
mod process;

const PATIENCE: Duration = Duration::from_secs(120);
/// Both sides are on this host.
const ADDRESSES: [&str; 2] = ["127.0.0.1", "127.0.0.2"];

/// Pairs of programs take turns, across all processes of a test run: they take the same port. Held
/// meanwhile.
fn turn() -> File {
    let path = std::env::temp_dir().join("mkey-tests-two-processes.lock");
    // It may be there already, as another user's: to lock it, reading is enough.
    let _ = OpenOptions::new().append(true).create(true).open(&path);
    let file = File::open(path).unwrap();
    file.lock().unwrap();
    file
}

/// Runs a program of two sides; the captures of both.
fn captured(folder: &Path, program: &[&str], faults: &str) -> [PathBuf; 2] {
    let paths = ["a", "b"].map(|side| folder.join(format!("{side}.pcap")));
    captured_to([&paths[0], &paths[1]], program, faults, "udp");
    paths
}

/// Runs a program of two sides, each of which captures to a file.
fn captured_to(paths: [&Path; 2], program: &[&str], faults: &str, link: &str) {
    let _turn = turn();
    let start = |side: usize, more: &[&str]| -> Child {
        let path = paths[side].to_str().unwrap();
        let mut words = vec!["--link", link, "--address", ADDRESSES[side], "--capture", path];
        if !faults.is_empty() {
            words.extend(["--faults", faults]);
        }
        words.push("--");
        words.extend(program);
        words.extend(more);
        mkey_run(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut server = start(0, &[]);
    process::await_listener(&mut server, None, PATIENCE);
    let mut client = start(1, &["127.0.0.1"]);
    let until = Instant::now() + PATIENCE;
    let ends = [process::ended(&mut client, until), process::ended(&mut server, until)];
    // Where the last acknowledgement is lost, nobody is there to send it again.
    assert!(
        ends.contains(&Some(0)),
        "{ends:?}: {}{}",
        process::said(client),
        process::said(server)
    );
}

fn ready(test: &str) -> bool {
    has(test, "tshark") && has(test, "ibv_rc_pingpong") && has(test, "ibv_ud_pingpong")
}

fn report(path: &Path) -> Value {
    let arguments = ["pcap", path.to_str().unwrap(), "--json", "-"];
    let (code, stdout, stderr) = common::run(&mut common::mkey(&arguments));
    assert_eq!((code, stderr.as_str()), (0, ""));
    serde_json::from_str(&stdout).unwrap()
}

fn sum(report: &Value, path: &str) -> u64 {
    let pairs = report["pairs"].as_array().unwrap().iter();
    let directions = pairs.flat_map(|pair| pair["directions"].as_array().unwrap());
    directions.map(|direction| direction.pointer(path).and_then(Value::as_u64).unwrap()).sum()
}

fn codes(findings: &Value) -> Vec<&str> {
    findings.as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

#[test]
fn a_clean_link_is_found_clean_and_paired() {
    let test = "a_clean_link_is_found_clean_and_paired";
    if !ready(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (program, transport) in [
        (&["ibv_rc_pingpong", "-g", "0", "-n", "100", "-m", "1024"][..], "RC"),
        (&["ibv_ud_pingpong", "-g", "0", "-n", "100", "-s", "512"], "UD"),
    ] {
        for path in captured(folder.path(), program, "") {
            let packets = compare(&path, 1024);
            assert!(packets >= 200, "{packets}");
            let report = report(&path);
            let pairs = report["pairs"].as_array().unwrap();
            assert_eq!(pairs.len(), 1, "{report}");
            assert_eq!(pairs[0]["transport"], transport);
            assert_eq!(pairs[0]["directions"].as_array().unwrap().len(), 2);
            // A side that gets no processor for long enough is sent to again; nothing else may be.
            let again = sum(&report, "/requests/retransmissions") > 0;
            let expected = if again { "sent-again" } else { "well" };
            assert!(codes(&pairs[0]["verdict"]).iter().all(|code| *code == expected), "{report}");
            assert_eq!(sum(&report, "/requests/gaps"), 0, "{report}");
            assert_eq!(sum(&report, "/naks/psn_sequence_error"), 0, "{report}");
            assert_eq!(report["packets"]["icrc"]["right"], packets);
        }
    }
}

#[test]
fn both_sides_may_capture_to_one_file() {
    let test = "both_sides_may_capture_to_one_file";
    if !ready(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("both.pcap");
    for link in ["shm", "udp"] {
        let program = ["ibv_rc_pingpong", "-g", "0", "-n", "1000", "-m", "1024"];
        captured_to([&path, &path], &program, "", link);
        let report = report(&path);
        let count = |path: &str| report.pointer(path).and_then(Value::as_u64).unwrap();
        let (once, again) = (count("/frames/roce"), count("/frames/roce_at_other_end"));
        // The last acknowledgement may find nobody any more.
        assert!(again <= once && once - again <= 2 && again >= 4000, "{link}: {once}, {again}");
        assert_eq!(count("/frames/all"), once + again, "{link}");
        assert_eq!(sum(&report, "/requests/gaps"), 0, "{link}: {report}");
        assert_eq!(sum(&report, "/requests/duplicates"), 0, "{link}: {report}");
        // A side that gets no processor for long enough is sent to again.
        assert!(sum(&report, "/requests/retransmissions") < 20, "{link}: {report}");
        let pairs = report["pairs"].as_array().unwrap();
        assert_eq!(pairs.len(), 1, "{link}: {report}");
        // Answers are captured after what they answer.
        let unanswered = pairs[0]["directions"].as_array().unwrap().iter();
        assert!(unanswered.clone().all(|one| one["unanswered"] == 0), "{link}: {report}");
    }
}

#[test]
fn what_a_link_does_to_packets_is_found() {
    let test = "what_a_link_does_to_packets_is_found";
    if !ready(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = ["ibv_rc_pingpong", "-g", "0", "-n", "200", "-m", "1024"];
    let faults = "loss=2%,dup=2%,reorder=2%,seed=5";
    for path in captured(folder.path(), &program, faults) {
        compare(&path, 1024);
        let report = report(&path);
        assert!(sum(&report, "/requests/retransmissions") > 10, "{report}");
        assert!(sum(&report, "/requests/duplicates") > 10, "{report}");
        assert!(sum(&report, "/requests/gaps") > 10, "{report}");
        assert!(sum(&report, "/naks/psn_sequence_error") > 10, "{report}");
        let pairs = report["pairs"].as_array().unwrap();
        assert_eq!(pairs.len(), 1, "{report}");
        assert!(codes(&pairs[0]["verdict"]).contains(&"sent-again"), "{report}");
    }
}

#[test]
fn damaged_packets_have_a_wrong_icrc_and_are_followed_no_further() {
    let test = "damaged_packets_have_a_wrong_icrc_and_are_followed_no_further";
    if !ready(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = ["ibv_rc_pingpong", "-g", "0", "-n", "200", "-m", "1024"];
    let mut wrong_of_both = 0;
    for path in captured(folder.path(), &program, "corrupt=3%,seed=9") {
        let (mut right, mut wrong) = (0, 0);
        for bytes in frames::frames(&path) {
            let frame = Frame::parse(LinkType::Cooked, &bytes).unwrap();
            // What is damaged in its lengths is no packet any more.
            let Ok(packet) = frame.packet() else { continue };
            if frame.icrc() == Some(packet.icrc) {
                right += 1;
            } else {
                wrong += 1;
            }
        }
        let report = report(&path);
        let icrc = &report["packets"]["icrc"];
        assert_eq!((icrc["right"].as_u64(), icrc["wrong"].as_u64()), (Some(right), Some(wrong)));
        assert_eq!(report["pairs"].as_array().unwrap().len(), 1, "no pair is made of damage");
        wrong_of_both += wrong;
    }
    assert!(wrong_of_both > 10, "{wrong_of_both}");
}
