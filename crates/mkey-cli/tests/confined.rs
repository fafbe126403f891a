//! `mkey bench` as a container's ordinary user meets it: not root, 8 MiB of locked memory, no huge
//! pages to reserve, io_uring and userfaultfd denied by Docker's seccomp profile.

mod common;
#[path = "common/confined.rs"]
mod in_container;

use common::{alone, measured};
use in_container::become_confined;
use mkey_cli::bench::report::{Outcome, Report};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Set in the child: the program to become.
const PROGRAM: &str = "MKEY_TEST_CONFINED_PROGRAM";
const MEMLOCK: &str = "MKEY_TEST_CONFINED_MEMLOCK";

/// In the child, which is this same test started again.
fn become_bench(program: &str) -> ! {
    let memlock = std::env::var(MEMLOCK).unwrap().parse().unwrap();
    let mut bench = Command::new(program);
    bench.args(["bench", "--memory", "64MiB", "--time", "2s", "--json", "run.json"]);
    become_confined(&mut bench, memlock)
}

/// Runs it so confined; what it printed and its report.
fn run_confined(test: &str, memlock: u64, warned: &str) -> (String, Report) {
    let folder = tempfile::tempdir().unwrap();
    // The other user must reach the program and write its report.
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("mkey");
    fs::copy(Path::new(env!("CARGO_BIN_EXE_mkey")), &program).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(PROGRAM, &program)
        .env(MEMLOCK, memlock.to_string())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}\n{stderr}");
    assert_eq!(stderr, warned, "{text}");
    let report = fs::read(folder.path().join("run.json")).unwrap();
    (text, serde_json::from_slice(&report).unwrap())
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn eight_mib_of_locked_memory() {
    if let Ok(program) = std::env::var(PROGRAM) {
        become_bench(&program);
    }
    let _alone = alone();
    let warned = format!(
        "mkey: 64 MiB asked for: 8 MiB may be locked (RLIMIT_MEMLOCK): 6 MiB are registered\n  {}\n",
        mkey_os::limits::RAISE_MEMLOCK
    );
    let (text, report) = run_confined("eight_mib_of_locked_memory", 8 << 20, &warned);
    assert_eq!(report.memory.bytes, 6 << 20);
    // The kernel pins nothing under this profile.
    assert_eq!((&*report.device.pin, &*report.device.pin_asked), ("mlock", "kernel"));
    for id in ["mr-4k", "mr-per-io", "pool-copy", "frmr-pool", "mw-type2", "odp-first-touch"] {
        measured(&report, id);
    }
    let text = flat(&text);
    for said in [
        // What is less than asked for, and the command that allows it.
        "Registered memory: 6 MiB instead of 64 MiB",
        "8 MiB may be locked (RLIMIT_MEMLOCK): 6 MiB are registered",
        "prlimit --pid $$ --memlock=unlimited",
        // Pinning and unmap events.
        "pin mlock (kernel asked)",
        "held by mlock instead:",
        "io_uring",
        "userfaultfd",
        "docker run --security-opt seccomp=unconfined",
    ] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
    let huge = report.rows.iter().find(|row| row.id == "mr-2m").unwrap();
    // A machine may have huge pages free for everybody; else the command is named.
    if let Outcome::NotMeasured(missing) = &huge.outcome {
        let command = missing.command.as_deref().unwrap();
        assert!(command.contains("hugepages-2048kB/nr_hugepages"), "{command}");
        assert!(text.contains(command), "{command:?} is not in\n{text}");
    }
}

#[test]
fn sixty_four_kib_of_locked_memory() {
    if let Ok(program) = std::env::var(PROGRAM) {
        become_bench(&program);
    }
    let _alone = alone();
    let (text, report) = run_confined("sixty_four_kib_of_locked_memory", 64 << 10, "");
    measured(&report, "odp-warm");
    for id in ["mr-4k", "mr-per-io", "pool-copy", "frmr-pool", "mw-type2"] {
        let row = report.rows.iter().find(|row| row.id == id).unwrap();
        let Outcome::NotMeasured(missing) = &row.outcome else { panic!("{row:?}") };
        assert!(missing.what.contains("64 KiB may be locked"), "{missing:?}");
    }
    assert!(text.contains("prlimit --pid $$ --memlock=unlimited"), "{text}");
}
