//! As in a container: an ordinary user, 8 MiB of locked memory, and a filter of system calls like
//! Docker's, which denies io_uring, userfaultfd, mbind and perf_event_open among others.

use crate::in_container::become_confined;
use crate::list::{LATENCY, PING_PONG, Program, Run, THROUGHPUT};
use crate::{ended, has, library, page, pair, python};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Set in the child: the program that it becomes.
const PROGRAM: &str = "MKEY_TEST_CONFINED_PROGRAM";
/// And its arguments, between spaces.
const ARGUMENTS: &str = "MKEY_TEST_CONFINED_ARGUMENTS";
/// Bytes.
const MEMLOCK: u64 = 8 << 20;

fn become_program(program: &str) -> ! {
    let arguments = std::env::var(ARGUMENTS).unwrap();
    become_confined(Command::new(program).args(arguments.split_whitespace()), MEMLOCK)
}

/// What is left out: more memory than may be locked, what has to be reserved by root, and what differs
/// in nothing that is denied here.
fn is_confined(run: &Run) -> bool {
    let left_out = ["-a", "--use_hugepages", "-b", "-q", "XRC", "-D", "-I", "-A"];
    !run.options.split_whitespace().any(|word| left_out.contains(&word))
}

/// Files of rdma-core's tests that register, in every way that there is, and what they need of the device.
const PYTHON_TESTS: &[&str] =
    &["test_mr", "test_odp", "test_cq", "test_cqex", "test_pd", "test_qpex"];
/// Of these, tests that are for one vendor, for GPUs, or for more memory than may be locked.
const LEFT_OUT: usize = 16;

/// `mkey` and its library where another user reaches them.
fn installed_for_all() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let mkey = folder.path().join("mkey");
    fs::copy(Path::new(env!("CARGO_BIN_EXE_mkey")), &mkey).unwrap();
    fs::copy(library(), folder.path().join("libmkey_preload.so")).unwrap();
    (folder, mkey)
}

#[test]
fn rdma_core_s_own_tests_in_a_container() {
    let test = "rdma_core_s_own_tests_in_a_container";
    if let Ok(program) = std::env::var(PROGRAM) {
        become_program(&program);
    }
    if !python::is_here(test) {
        return;
    }
    let (folder, mkey) = installed_for_all();
    python::unpack(folder.path());
    let names: Vec<_> = PYTHON_TESTS.iter().map(|name| format!("-k tests.{name}.")).collect();
    let python = format!("{} -W ignore tests/run_tests.py -v", python::PYTHON);
    let run = format!("run --only {python} {}", names.join(" "));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("confined::{test}"), "--nocapture"]);
    command.env(PROGRAM, &mkey).env(ARGUMENTS, run).env_remove("XDG_RUNTIME_DIR");
    let _turn = pair::turn();
    let (code, stdout, stderr) = ended(command.current_dir(folder.path()));
    let (groups, bad) = python::read(&stderr);
    assert!(bad.is_empty() && code == 0, "{bad:?}\n{stdout}\n{stderr}");
    let passed: usize = groups.values().map(|group| group.passed).sum();
    let left_out: usize = groups.values().flat_map(|group| group.skipped.values()).sum();
    for name in PYTHON_TESTS {
        assert!(groups.get(*name).is_some_and(|group| group.passed > 0), "{name}\n{stderr}");
    }
    assert!(left_out <= LEFT_OUT, "{passed} passed, {left_out} left out\n{stderr}");
}

#[test]
fn in_a_container() {
    let test = "in_a_container";
    if let Ok(program) = std::env::var(PROGRAM) {
        become_program(&program);
    }
    let programs: Vec<&Program> = [PING_PONG, THROUGHPUT, LATENCY].into_iter().flatten().collect();
    if !programs.iter().all(|program| has(test, program.name)) {
        return;
    }
    let (_folder, mkey) = installed_for_all();
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
