//! Running the built command.
#![allow(dead_code)] // Each test file uses part of it.

mod alone;
pub mod preload;

use mkey_cli::bench::report::{Figures, Outcome, Report};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Held while a run may reserve huge pages.
pub fn alone() -> File {
    alone::alone()
}

/// `mkey` with these arguments, nothing on standard input.
pub fn mkey(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mkey"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs to the end.
pub fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// Runs `mkey bench` with `--json -` and these arguments; its report.
pub fn bench(arguments: &[&str]) -> Report {
    let mut all = vec!["bench", "--json", "-"];
    all.extend(arguments);
    let (code, stdout, stderr) = run(&mut mkey(&all));
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    serde_json::from_str(&stdout).unwrap()
}

/// The figures of a row that has to be there.
pub fn measured<'r>(report: &'r Report, id: &str) -> &'r Figures {
    let row = report.rows.iter().find(|row| row.id == id).unwrap();
    match &row.outcome {
        Outcome::Measured(figures) => figures,
        Outcome::NotMeasured(missing) => panic!("{id}: {missing:?}"),
    }
}

/// The 2 MiB pages of the machine's pool.
pub fn huge_pages() -> u64 {
    let pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    std::fs::read_to_string(pool).unwrap().trim().parse().unwrap()
}

/// Runs `command` until it has reserved at least `pages` huge pages, and sends it `signal`; how it
/// ended, standard error included.
pub fn interrupted_once_reserved(command: &mut Command, pages: u64, signal: Signal) -> Output {
    let before = huge_pages();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The pool's file makes no events: look until the reservation shows.
    let patience = Instant::now() + Duration::from_secs(20);
    while huge_pages() < before + pages {
        assert!(Instant::now() < patience, "no huge pages were reserved");
        assert_eq!(child.try_wait().unwrap(), None, "the run ended by itself");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    child.wait_with_output().unwrap()
}

/// Notes that a test can not run here, and why; it returns then. Fails where nobody reads such notes.
pub fn skipped(test: &str, why: &str) {
    let line = format!("{test}: {why}\n");
    let Some(file) = std::env::var_os("XTASK_SKIPS") else { panic!("SKIPPED: {line}") };
    let mut file = OpenOptions::new().append(true).create(true).open(file).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}
