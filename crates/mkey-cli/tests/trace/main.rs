//! `mkey trace`: programs run as without it, and what is told of them is what they did.

#[path = "../common/c.rs"]
mod c;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/preloaded.rs"]
mod preloaded;

mod gathered;
mod ways;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// `mkey trace` with these arguments, nothing on standard input; on a software RNIC, with both libraries.
pub fn mkey_trace<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Command {
    static WATCH: OnceLock<()> = OnceLock::new();
    let library = preloaded::library();
    WATCH.get_or_init(|| {
        let folder = library.parent().unwrap();
        let profile = match folder.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            other => other,
        };
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mkey-watch/Cargo.toml");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--profile", profile, "--manifest-path"]).arg(manifest);
        build.env("CARGO_TARGET_DIR", folder.parent().unwrap());
        assert!(build.status().unwrap().success());
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_mkey"));
    command.args(["trace", "--devices", "1", "--only"]).args(arguments).stdin(Stdio::null());
    command.env("MKEY_PRELOAD", library);
    command
}
