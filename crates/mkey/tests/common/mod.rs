//! Helpers that several test programs share.
#![allow(dead_code, reason = "each test program uses some of them")]

pub mod allocations;

use std::io::Write;

/// Notes that `test` can not run here, and why; the caller returns then. Fails where nobody reads
/// such notes.
pub fn skip(test: &str, why: &str) {
    let line = format!("{test}: {why}");
    let Some(file) = std::env::var_os("XTASK_SKIPS") else { panic!("SKIP: {line}") };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
    writeln!(file.expect("the file for skips"), "{line}").expect("the file for skips");
}

/// Runs `body` in a process of its own, after `confine` there: for tests of what is the whole
/// process's. `test` is the caller's full name.
pub fn alone(test: &str, confine: impl FnOnce(), body: impl FnOnce()) {
    const ALONE: &str = "MKEY_TEST_ALONE";
    if std::env::var_os(ALONE).is_some_and(|name| name == test) {
        confine();
        return body();
    }
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ALONE, test);
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    let well = output.status.success() && said.contains("1 passed");
    assert!(well, "{test}, alone, ended with {}:\n{said}\n{complained}", output.status);
}
