//! Unmodified programs on software RNICs, by `mkey run`: those of Debian's packages, C programs linked
//! to the distribution's libibverbs, and rdma-core's own tests.

#[path = "../common/mod.rs"]
mod common;

mod abuse;
mod c;
mod command;
mod every_byte;
mod exports;
mod fork;
mod loading;
mod python;
mod report;
mod tools;

use common::preload::{library, mkey_run};
use std::process::Command;

/// Runs to the end: status, standard output, standard error.
pub fn ended(command: &mut Command) -> (i32, String, String) {
    common::run(command)
}

/// Runs to an end without a fault; what it printed.
pub fn succeeds(command: &mut Command) -> String {
    let (code, stdout, stderr) = ended(command);
    assert_eq!(code, 0, "{command:?}\n{stdout}\n{stderr}");
    stdout
}

/// Whether a program is installed; if not, the test is noted as skipped.
pub fn has(test: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        common::skipped(test, &format!("{program} is not installed"));
    }
    found
}
