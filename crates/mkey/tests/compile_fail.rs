//! What must not compile. Which promise of the library each file of `compile_fail/` holds to is its
//! first line; the promises themselves:
//!
//! 1. A registration owns its memory, or holds an owning guard; drops in any order are safe.
//!    Here: `foreign_*`. Run: `promise_1_*` of `verbs.rs`.
//! 2. Memory that a peer or posted work may write is never lent as `&[u8]`. Here: `local_*`,
//!    `slice_*`, `bytes_*`, `region_*`. Run: `promise_2_*` of `verbs.rs`.
//! 3. Rights are local-only unless a named step gives more, and wrong ones can not be written.
//!    Here: `rights_*`, `peer_rights_*`, `slice_is_no_remote_key`, `remote_key_*`. Run:
//!    `promise_3_*` of `reports.rs`.
//! 4. Posted work keeps what it uses until its completion is seen. Here: `open_device_is_unsafe`.
//!    Run: `promise_4_*` of `verbs.rs` and `testing.rs`.
//! 5. Local keys, remote keys, host addresses, I/O addresses and offsets are different types. Here:
//!    `lkey_*`, `keys_*`, `host_address_*`, `offset_*`.
//! 6. Drop never panics, and what could not be deregistered is kept and named. Run: `promise_6_*`
//!    of `verbs.rs` and `testing.rs`.
//! 7. The pool registers once. Run: the tests of the pool.
//! 8. The cache hits only where all fits, and its invalidation is bounded. Run: the tests of the
//!    cache.
//! 9. Errors carry the verb, its arguments, the errno and a stable code. Run: `promise_9_*` of
//!    `reports.rs`.
//!
//! A line that must be refused says so, with the compiler's code for why: `//~ E0308`. Codes and
//! lines are compared, no messages, which change with every compiler: a file that stops compiling for
//! another reason is noticed, and so is one that compiles.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Refused lines with their codes, by the name of the file.
type Refused = BTreeMap<String, BTreeSet<(u64, String)>>;

#[test]
fn what_must_not_compile_does_not() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile_fail");
    let expected = expected(&here.join("tests/compile_fail"));
    assert!(expected.len() >= 20, "{} files", expected.len());
    write_package(&folder, here, expected.keys());
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--keep-going", "--bins", "--message-format=json"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .output()
        .expect("cargo");
    let complained = String::from_utf8_lossy(&output.stderr);
    let found = found(&String::from_utf8_lossy(&output.stdout));
    for (name, lines) in &expected {
        assert!(!lines.is_empty(), "{name} names no line that must be refused");
        let found = found.get(name).cloned().unwrap_or_default();
        assert_eq!(found, *lines, "{name}: found, and expected\n{complained}");
    }
    assert_eq!(found.len(), expected.len(), "more than these files: {found:?}");
}

/// What the files say must be refused.
fn expected(folder: &Path) -> Refused {
    let mut all = Refused::new();
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a plain name");
        let text = fs::read_to_string(&path).expect("readable");
        assert!(text.starts_with("//! Promise"), "{name} does not say which promise it holds to");
        let lines = text.lines().zip(1..);
        let codes =
            lines.filter_map(|(line, at)| Some((at, line.split_once("//~ ")?.1.to_owned())));
        all.insert(name.to_owned(), codes.collect());
    }
    all
}

/// A package of its own with a program for each file.
fn write_package<'a>(folder: &Path, here: &Path, names: impl Iterator<Item = &'a String>) {
    let mut manifest = format!(
        "[package]\nname = \"compile-fail\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [workspace]\n\n[dependencies]\nmkey = {{ path = {here:?} }}\n"
    );
    for name in names {
        let path = here.join("tests/compile_fail").join(format!("{name}.rs"));
        write!(manifest, "\n[[bin]]\nname = {name:?}\npath = {path:?}\n").expect("a string");
    }
    fs::create_dir_all(folder).expect("a folder");
    fs::write(folder.join("Cargo.toml"), manifest).expect("written");
    // The versions that are here already.
    fs::copy(here.join("../../Cargo.lock"), folder.join("Cargo.lock")).expect("copied");
}

/// What the compiler refused, by cargo's messages.
fn found(messages: &str) -> Refused {
    let mut all = Refused::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).expect("cargo writes JSON");
        let said = &message["message"];
        if said["level"] != "error" {
            continue;
        }
        let name = message["target"]["name"].as_str().unwrap_or_default();
        let code = said["code"]["code"].as_str().unwrap_or_default();
        let spans = said["spans"].as_array().into_iter().flatten();
        // The closing line, how many errors there were, is about no place.
        for span in spans.filter(|span| span["is_primary"] == true) {
            let line = span["line_start"].as_u64().unwrap_or_default();
            all.entry(name.to_owned()).or_default().insert((line, code.to_owned()));
        }
    }
    all
}
