//! Tests that are run in a process of their own, which may less than this one.

use std::fmt::Display;
use std::process::Command;

const ELSEWHERE: &str = "MKEY_TEST_ELSEWHERE";
const TRIED: &str = "was tried elsewhere";

/// Runs a test of this program by a command that starts the program, such as this one:
/// `Command::new(std::env::current_exe()?)`. The test has to get to [`tried`].
pub fn run(mut command: Command, test: &str) {
    command.args(["--exact", test, "--ignored", "--nocapture"]).env(ELSEWHERE, test);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complaints}");
    assert!(said.contains(&format!("{test} {TRIED}")), "{said}\n{complaints}");
}

/// Whether `test` is run so; else whoever runs it has run it for itself.
pub fn is_for(test: &str) -> bool {
    std::env::var(ELSEWHERE).is_ok_and(|set| set == test)
}

/// To be called at the end of a test that is run so, with what it saw.
pub fn tried(test: &str, seen: impl Display) {
    println!("{test} {TRIED}: {seen}");
}
