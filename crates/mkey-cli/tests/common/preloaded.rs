//! Running programs with the library before their own.
#![allow(dead_code)] // Each test target uses part of it.

use crate::common;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The library to preload, built as these tests are. Cargo builds no library that is only loaded.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("mkey-preload", "libmkey_preload.so"))
}

/// The same of the one that tells of memory that a program gives back.
pub fn watch() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| built("mkey-watch", "libmkey_watch.so"))
}

/// Builds a package's library.
fn built(package: &str, library: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_mkey"));
    let (folder, target) = (program.parent().unwrap(), program.ancestors().nth(2).unwrap());
    let profile = match folder.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifest = crates.join(package).join("Cargo.toml");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--profile", profile, "--manifest-path"]).arg(manifest);
    build.env("CARGO_TARGET_DIR", target);
    let Output { status, stderr, .. } = build.output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    folder.join(library)
}

/// `mkey run` with these arguments, nothing on standard input.
pub fn mkey_run<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mkey"));
    command.arg("run").args(arguments).stdin(Stdio::null());
    command.env("MKEY_PRELOAD", library());
    command
}

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
