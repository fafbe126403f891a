//! `mkey trace`: programs run as without it, and what is told of them is what they did.

#[path = "../common/c.rs"]
mod c;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/preloaded.rs"]
mod preloaded;

mod gathered;
mod pattern;
mod rough;
mod truth;
mod ways;

use mkey_trace::format::Recording;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};

/// `mkey trace` with these arguments, nothing on standard input; on a software RNIC, with both libraries.
pub fn mkey_trace<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mkey"));
    command.args(["trace", "--devices", "1", "--only"]).args(arguments).stdin(Stdio::null());
    command.env("MKEY_PRELOAD", preloaded::library());
    command
}

/// A recording that was written.
pub fn read(path: &Path) -> Recording {
    Recording::read(BufReader::new(File::open(path).unwrap())).unwrap()
}
