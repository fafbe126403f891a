//! Helpers that several test programs share.
#![allow(dead_code, reason = "each test program uses some of them")]

use std::io::Write;

/// Notes that `test` can not run here, and why; the caller returns then. Fails where nobody reads
/// such notes.
pub fn skip(test: &str, why: &str) {
    let line = format!("{test}: {why}");
    let Some(file) = std::env::var_os("XTASK_SKIPS") else { panic!("SKIP: {line}") };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(file);
    writeln!(file.expect("the file for skips"), "{line}").expect("the file for skips");
}
