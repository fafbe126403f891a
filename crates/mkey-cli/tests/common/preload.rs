//! `mkey run` as it is built here.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The library to preload, built as these tests are. Cargo builds no library that is only loaded.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let program = Path::new(env!("CARGO_BIN_EXE_mkey"));
        let (folder, target) = (program.parent().unwrap(), program.ancestors().nth(2).unwrap());
        let profile = match folder.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            other => other,
        };
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mkey-preload/Cargo.toml");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--profile", profile, "--manifest-path"]).arg(manifest);
        build.env("CARGO_TARGET_DIR", target);
        let Output { status, stderr, .. } = build.output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        folder.join("libmkey_preload.so")
    })
}

/// `mkey run` with these arguments, nothing on standard input.
pub fn mkey_run<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mkey"));
    command.arg("run").args(arguments).stdin(Stdio::null());
    command.env("MKEY_PRELOAD", library());
    command
}

/// Whether a program is installed.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
