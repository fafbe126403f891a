//! Programs of mkey's own, in C.

use crate::namespaces::{Namespaces, in_namespace};
use crate::preloaded::mkey_run;
use crate::{c, namespaces, outlives};
use std::path::Path;
use std::process::{Command, Stdio};

/// `mkey run` of a program at one of two places.
fn at(both: &Namespaces, side: usize, program: &Path, arguments: &[&str]) -> Command {
    let mut command = mkey_run(&["--only", "--address", both.address(side, false)]);
    command.arg(program).args(arguments);
    in_namespace(both.name(side), &command)
}

/// Every operation, size and queue pair type, every byte looked at.
#[test]
fn every_byte_arrives_by_udp() {
    let test = "every_byte_arrives_by_udp";
    let Some(both) = namespaces(test, &[]) else { return };
    let Some(program) = c::build(test, include_str!("../c/every_byte.c")) else { return };
    let start = |side, arguments: &[&str]| {
        let mut command = at(&both, side, &program.path(), arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    // Each waits for the other, and for nothing without end.
    let server = start(0, &["listen", "18515"]);
    let client = start(1, &[both.address(0, false), "18515"]);
    let [server, client] = [server, client].map(|side| side.wait_with_output().unwrap());
    let words = String::from_utf8_lossy(&server.stdout).into_owned();
    assert!(server.status.success() && client.status.success(), "{server:?}\n{client:?}");
    assert_eq!(server.stdout, client.stdout, "both have gone through the same cases");
    assert!(words.ends_with(" cases\n"), "{words}");
}

/// Nothing tells the server but that no answer comes.
#[test]
fn a_server_outlives_a_hundred_clients_that_are_killed() {
    let test = "a_server_outlives_a_hundred_clients_that_are_killed";
    let Some(both) = namespaces(test, &[]) else { return };
    let Some(program) = c::build_short(test, outlives::PROGRAM) else { return };
    let path = program.path();
    let side = |side, arguments: &[&str]| at(&both, side, &path, arguments);
    outlives::kills(100, &side, both.address(0, false), 18515);
}
