//! Every operation, size and queue pair type, every byte looked at.

use crate::c::build;
use crate::{mkey_run, succeeds};

#[test]
fn every_byte_of_every_operation_arrives_and_no_other_is_touched() {
    let test = "every_byte_of_every_operation_arrives_and_no_other_is_touched";
    let Some(program) = build(test, include_str!("../c/every_byte.c")) else { return };
    let mut command = mkey_run(&["--refusals", "-"]);
    let (code, stdout, stderr) = crate::ended(command.arg(program.path()));
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    let cases: u64 = stdout.trim().strip_suffix(" cases").unwrap().parse().unwrap();
    assert!(cases > 3000, "{cases}");
    // What the program wants refused is told of, once each: of two rounds and two directions.
    let refused = |words: &str| stderr.lines().filter(|line| line.contains(words)).count();
    assert_eq!(refused("ends 1 bytes past the range"), 4, "{stderr}");
    assert_eq!(refused("starts 1 bytes before the range"), 4, "{stderr}");
    assert_eq!(refused("no registration has index"), 8, "{stderr}");
    assert_eq!(stderr.lines().count(), 16, "{stderr}");
}

/// The program itself needs no mkey: without a device it says so.
#[test]
fn without_a_device_it_ends() {
    let Some(program) = build("without_a_device_it_ends", include_str!("../c/every_byte.c")) else {
        return;
    };
    if std::path::Path::new("/sys/class/infiniband").exists() {
        return crate::common::skipped("without_a_device_it_ends", "there is a real device here");
    }
    let (code, _, stderr) = crate::ended(&mut std::process::Command::new(program.path()));
    assert_eq!(code, 1);
    assert!(stderr.contains("no device"), "{stderr}");
    assert!(succeeds(&mut mkey_run(&[program.path()])).ends_with(" cases\n"));
}

/// By shared memory: the server, and a client that finds it by 127.0.0.1.
#[test]
fn every_byte_arrives_in_another_process_too() {
    let test = "every_byte_arrives_in_another_process_too";
    let Some(program) = build(test, include_str!("../c/every_byte.c")) else { return };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let side = |role: &str| {
        let mut command = mkey_run(&["--only"]);
        command.arg(program.path()).args([role, &port.to_string()]);
        command
    };
    // Each waits for the other, and for nothing without end.
    let server = side("listen")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let client = crate::ended(&mut side("127.0.0.1"));
    let server = server.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&server.stdout).into_owned();
    let errors = String::from_utf8_lossy(&server.stderr);
    assert!(server.status.success() && client.0 == 0, "{words}\n{errors}\n{client:?}");
    assert_eq!(words, client.1, "both have gone through the same cases");
    assert!(words.ends_with(" cases\n"), "{words}");
}
