//! `--direct`: a sender writes by itself into memory that its peer lends.

use crate::c::{build, build_short};
use crate::{mkey_run, succeeds};
use std::process::Stdio;

/// The target is stopped meanwhile, so that nobody but the sender can have written. Then it ends
/// registrations and queue pairs in the middle of WRITEs, and no byte may come after that.
#[test]
fn a_sender_writes_to_a_process_that_is_stopped_and_not_after_the_end() {
    let test = "a_sender_writes_to_a_process_that_is_stopped_and_not_after_the_end";
    let Some(program) = build_short(test, include_str!("../c/direct.c")) else { return };
    let mut command = mkey_run(&["--only", "--direct"]);
    assert_eq!(succeeds(command.arg(program.path())), "well\n");
    // The same program shows that it is this option which does it.
    let mut command = mkey_run(&["--only"]);
    assert_eq!(succeeds(command.arg(program.path()).arg("without")), "well\n");
}

/// Other memory that takes the place of what is unmapped under a registration is not written to either.
#[test]
fn memory_that_was_unmapped_is_lent_no_more() {
    let test = "memory_that_was_unmapped_is_lent_no_more";
    let Some(program) = build_short(test, include_str!("../c/direct.c")) else { return };
    let facts = succeeds(&mut mkey_run::<&str>(&[]));
    if facts.contains("stale registrations are not detected") {
        return crate::common::skipped(test, "userfaultfd is not allowed here");
    }
    let mut command = mkey_run(&["--only", "--direct"]);
    assert_eq!(succeeds(command.arg(program.path()).arg("unmap")), "well\n");
}

#[test]
fn every_byte_arrives_by_it_too() {
    let test = "every_byte_arrives_by_it_too";
    let Some(program) = build(test, include_str!("../c/every_byte.c")) else { return };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let side = |role: &str| {
        let mut command = mkey_run(&["--only", "--direct"]);
        command.arg(program.path()).args([role, &port.to_string()]);
        command
    };
    let server = side("listen").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let client = crate::ended(&mut side("127.0.0.1"));
    let server = server.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&server.stdout).into_owned();
    let errors = String::from_utf8_lossy(&server.stderr);
    assert!(server.status.success() && client.0 == 0, "{words}\n{errors}\n{client:?}");
    assert_eq!(words, client.1, "both have gone through the same cases");
}

/// What is not sent can be neither lost nor shown.
#[test]
fn it_goes_with_neither_faults_nor_a_capture() {
    for other in [["--faults", "loss=1%"], ["--capture", "/nowhere/a.pcap"]] {
        let mut command = mkey_run(&["--direct"]);
        let (code, _, stderr) = crate::ended(command.args(other).arg("true"));
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains("--direct") && stderr.contains(other[0]), "{stderr}");
    }
}
