//! As in a container: an ordinary user, 8 MiB of locked memory, and a filter of system calls like Docker's,
//! which denies io_uring and userfaultfd among others.

use crate::c::build;
use crate::in_container::become_confined;
use crate::library;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Set in the child: the program that it becomes.
const PROGRAM: &str = "MKEY_TEST_CONFINED_PROGRAM";
/// And where `mkey` is that runs it.
const MKEY: &str = "MKEY_TEST_CONFINED_MKEY";
/// Bytes.
const MEMLOCK: u64 = 8 << 20;
/// The longest message of the program as it is, and as its two sides can register it under that limit.
const LONGEST: [&str; 2] = ["#define MOST (8u << 20)", "#define MOST (3u << 20)"];

/// What the filter is there for.
const DENIED: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#define DENIED(call) (syscall(call, 0, 0, 0, 0, 0, 0) == -1 && errno == EPERM)
int main(void) {
	printf("%d %d %d %d\n", DENIED(SYS_io_uring_setup), DENIED(SYS_io_uring_register),
	       DENIED(SYS_userfaultfd), geteuid() != 0);
	return 0;
}
"#;

fn become_program(program: &str) -> ! {
    let mut mkey = Command::new(std::env::var(MKEY).unwrap());
    become_confined(mkey.args(["run", "--only", "--refusals", "-", program]), MEMLOCK)
}

#[test]
fn every_byte_arrives_in_a_container_too() {
    let test = "every_byte_arrives_in_a_container_too";
    if let Ok(program) = std::env::var(PROGRAM) {
        become_program(&program);
    }
    let Some(denied) = build(test, DENIED) else { return };
    let source = include_str!("../c/every_byte.c");
    assert!(source.contains(LONGEST[0]));
    let Some(program) = build(test, &source.replace(LONGEST[0], LONGEST[1])) else { return };
    let folder = tempfile::tempdir().unwrap();
    // The other user must reach them.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        fs::copy(from, &to).unwrap();
        to
    };
    let tests = copy(&std::env::current_exe().unwrap(), "tests");
    let mkey = copy(Path::new(env!("CARGO_BIN_EXE_mkey")), "mkey");
    let library = copy(library(), "libmkey_preload.so");
    let confined = |program: &Path| {
        let mut command = Command::new(&tests);
        command.args(["--exact", "confined::every_byte_arrives_in_a_container_too", "--nocapture"]);
        command.env(PROGRAM, program).env(MKEY, &mkey).env("MKEY_PRELOAD", &library);
        command.env_remove("XDG_RUNTIME_DIR").current_dir("/");
        let (code, stdout, stderr) = crate::ended(&mut command);
        assert_eq!(code, 0, "{stdout}\n{stderr}");
        // The runner of the tests has begun to write, too.
        (stdout.lines().last().unwrap_or_default().to_owned(), stderr)
    };
    let (said, _) = confined(&copy(&denied.path(), "denied"));
    assert_eq!(said, "1 1 1 1", "io_uring and userfaultfd are denied, and this is not root");

    let (said, stderr) = confined(&copy(&program.path(), "every_byte"));
    let cases: u64 = said.strip_suffix(" cases").unwrap().parse().unwrap();
    assert!(cases > 3000, "{cases}");
    let refused = |words: &str| stderr.lines().filter(|line| line.contains(words)).count();
    assert_eq!(refused("ends 1 bytes past the range"), 4, "{stderr}");
    assert_eq!(refused("starts 1 bytes before the range"), 4, "{stderr}");
    assert_eq!(refused("no registration has index"), 8, "{stderr}");
}
