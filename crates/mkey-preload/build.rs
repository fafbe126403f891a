//! Links the library as programs need it: with the symbol versions of libibverbs, and with libibverbs
//! itself behind it.
//!
//! rustc gives the linker a version script of its own, without versions. A second one adds the
//! versions, to which the symbols of `src/symbols.rs` belong by their own names. Only lld takes two;
//! it is rustc's linker on x86-64, and asked for elsewhere. zig, with which packages are built, calls
//! lld with the last one alone: so the second one hides, too, what is not to be seen.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The versions of the symbols that are ours, oldest first, as libibverbs has them.
const VERSIONS: &[&str] = &[
    "IBVERBS_1.0",
    "IBVERBS_1.1",
    "IBVERBS_1.5",
    "IBVERBS_1.6",
    "IBVERBS_1.7",
    "IBVERBS_1.8",
    "IBVERBS_1.9",
    "IBVERBS_1.10",
    "IBVERBS_1.11",
    "IBVERBS_1.12",
    "IBVERBS_1.13",
    "IBVERBS_1.14",
    "IBVERBS_1.15",
    "IBVERBS_1.16",
    "IBVERBS_1.17",
    "IBVERBS_1.18",
];
/// The first and the last version of what libibverbs has for its own programs only. Each of its releases
/// that changes any of that has another number, and programs of all of them may come.
const PRIVATE: RangeInclusive<u32> = 14..=80;
/// The default one, which `src/symbols.rs` names.
const DEFAULT: u32 = 34;
/// Names that came after the bindings. Which of these versions each has depends on the release.
const NEWER: &[&str] = &["ibv_dm_export_dmabuf_fd", "ibv_query_port_speed", "ibv_reg_mr_ex"];
const NEWER_IN: &[&str] = &["IBVERBS_1.16", "IBVERBS_1.17", "IBVERBS_1.18"];
/// The one function that has no version: programs look for the C library's, whose versions differ.
const UNVERSIONED: &str = "dlopen";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Some(folder) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        panic!("cargo sets OUT_DIR");
    };
    let script = folder.join("versions.map");
    if let Err(error) = fs::write(&script, script_text()) {
        panic!("{}: {error}", script.display());
    }
    println!("cargo::rustc-link-arg-cdylib=-Wl,--version-script={}", script.display());
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libmkey_preload.so");
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() != Ok("x86_64") {
        println!("cargo::rustc-link-arg-cdylib=-fuse-ld=lld");
    }
    for name in NEWER {
        further_versions(&folder, name, NEWER_IN.iter().map(|&version| version.to_owned()));
    }
    let others = PRIVATE.filter(|&number| number != DEFAULT);
    further_versions(&folder, "ibv_query_gid_type", others.map(private));
    need_libibverbs(&folder);
}

/// Patterns, as locals of a version script, that fit every name that this one does not begin with, and
/// every longer one. A name without a version is seen only if no pattern fits it. The few that this one
/// begins with are no patterns: lld would have each of them be there.
fn all_but(name: &str) -> String {
    let mut patterns = format!("local: {name}?*; ");
    for (at, next) in name.char_indices() {
        patterns.push_str(&format!("{}[!{next}]*; ", &name[..at]));
    }
    patterns
}

fn private(number: u32) -> String {
    format!("IBVERBS_PRIVATE_{number}")
}

/// Writes the directives by which a function is found under more than one version of its name.
fn further_versions(folder: &Path, name: &str, versions: impl Iterator<Item = String>) {
    let lines = versions.map(|version| format!(".symver mkey_{name}, {name}@{version}\n"));
    let file = folder.join(format!("{name}.s"));
    if let Err(error) = fs::write(&file, lines.collect::<String>()) {
        panic!("{}: {error}", file.display());
    }
}

fn script_text() -> String {
    let mut text = String::new();
    let mut before = "";
    for version in VERSIONS {
        // What has a version by its own name is not touched by patterns.
        let hidden = if before.is_empty() { all_but(UNVERSIONED) } else { String::new() };
        text.push_str(&format!("{version} {{ {hidden}}} {before};\n"));
        before = version;
    }
    for number in PRIVATE {
        text.push_str(&format!("{} {{ }};\n", private(number)));
    }
    text
}

/// Has the loader load `libibverbs.so.1` with the library. An empty library of that name does for
/// linking, so that nothing need be installed.
fn need_libibverbs(folder: &Path) {
    let stub = folder.join("libibverbs.so.1");
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(linker);
    command.args(["-shared", "-nostdlib", "-Wl,-soname,libibverbs.so.1", "-x", "c", "/dev/null"]);
    command.arg("-o").arg(&stub);
    match command.status() {
        Ok(status) if status.success() => {}
        ended => panic!("{command:?}: {ended:?}"),
    }
    // rustc asks for what comes after to be linked as needed, and so does this again: zig knows no
    // `--push-state`.
    println!("cargo::rustc-link-arg-cdylib=-Wl,--no-as-needed");
    println!("cargo::rustc-link-arg-cdylib={}", stub.display());
    println!("cargo::rustc-link-arg-cdylib=-Wl,--as-needed");
}
