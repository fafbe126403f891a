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
