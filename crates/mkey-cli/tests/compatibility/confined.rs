//! As in a container: an ordinary user, 8 MiB of locked memory, and a filter of system calls like
//! Docker's, which denies io_uring, userfaultfd, mbind and perf_event_open among others.

use crate::list::{LATENCY, PING_PONG, Program, Run, THROUGHPUT};
use crate::{has, library, page, pair};
use mkey_os::confine;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Set in the child: the program that it becomes.
const PROGRAM: &str = "MKEY_TEST_CONFINED_PROGRAM";
/// And its arguments, between spaces.
const ARGUMENTS: &str = "MKEY_TEST_CONFINED_ARGUMENTS";
/// Bytes.
const MEMLOCK: u64 = 8 << 20;

/// Gives up what a container does not have, and becomes the program.
fn become_confined(program: &str) -> ! {
    confine::limit_memlock(MEMLOCK).unwrap();
    if rustix::process::geteuid().is_root() {
        confine::become_user(confine::NOBODY).unwrap();
    }
    confine::docker_seccomp().unwrap();
    let arguments = std::env::var(ARGUMENTS).unwrap();
    let error = Command::new(program).args(arguments.split_whitespace()).exec();
    panic!("{program}: {error}");
}

/// What is left out: more memory than may be locked, what has to be reserved by root, and what differs
/// in nothing that is denied here.
fn is_confined(run: &Run) -> bool {
    let left_out = ["-a", "--use_hugepages", "-b", "-q", "XRC", "-D", "-I", "-A"];
    !run.options.split_whitespace().any(|word| left_out.contains(&word))
}

#[test]
fn in_a_container() {
    let test = "in_a_container";
    if let Ok(program) = std::env::var(PROGRAM) {
        become_confined(&program);
    }
    let programs: Vec<&Program> = [PING_PONG, THROUGHPUT, LATENCY].into_iter().flatten().collect();
    if !programs.iter().all(|program| has(test, program.name)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The other user must reach both.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let mkey = folder.path().join("mkey");
    fs::copy(Path::new(env!("CARGO_BIN_EXE_mkey")), &mkey).unwrap();
    fs::copy(library(), folder.path().join("libmkey_preload.so")).unwrap();
    let mut failures = Vec::new();
    let mut count = 0;
    for program in programs {
        for run in program.runs.iter().filter(|run| is_confined(run)) {
            count += 1;
            let _turn = pair::turn();
            let side = |_, arguments: &[&str]| {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["--exact", "confined::in_a_container", "--nocapture"]);
                let arguments = arguments.join(" ");
                command.env(PROGRAM, &mkey).env(ARGUMENTS, format!("run --only {arguments}"));
                command.env_remove("XDG_RUNTIME_DIR").current_dir("/");
                command
            };
            if let Err(words) = pair::run(&side, "127.0.0.1", program, run) {
                failures.push(format!("{} {}: {words}", program.name, run.options));
            }
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n\n"));
    page::compare("In a container", &format!("{count} of the runs above.\n"));
}
