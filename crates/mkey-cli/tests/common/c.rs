//! C programs, linked to the distribution's libibverbs.
#![allow(dead_code)] // Each test target uses part of it.

use crate::common::skipped;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A program in a folder of its own.
pub struct Built {
    folder: TempDir,
}

impl Built {
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }
}

/// Compiles `source`; `None` if there is nothing to compile with, which is noted.
pub fn build(test: &str, source: &str) -> Option<Built> {
    build_with(test, source, &["-libverbs", "-lpthread", "-ldl"])
}

/// The same with other arguments.
pub fn build_with(test: &str, source: &str, arguments: &[&str]) -> Option<Built> {
    let built_before = std::env::var_os(BUILT).is_some();
    if !built_before && !Path::new("/usr/include/infiniband/verbs.h").exists() {
        skipped(test, "libibverbs-dev is not installed");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let name = name(source);
    if let Some(built) = std::env::var_os(BUILT).map(|built| PathBuf::from(built).join(&name)) {
        fs::copy(&built, folder.path().join("program"))
            .unwrap_or_else(|error| panic!("{}: {error}", built.display()));
        return Some(Built { folder });
    }
    let file = folder.path().join("program.c");
    fs::write(&file, source).unwrap();
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()));
    compiler.args(["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-O2", "-g"]);
    compiler.arg(&file).arg("-o").arg(folder.path().join("program")).args(arguments);
    let output = match compiler.output() {
        Ok(output) => output,
        Err(error) => {
            skipped(test, &format!("{compiler:?}: {error}"));
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    if let Some(into) = std::env::var_os(BUILD_INTO) {
        fs::copy(folder.path().join("program"), PathBuf::from(into).join(&name)).unwrap();
        return None;
    }
    Some(Built { folder })
}

/// A folder of programs that were built before, for a machine without a compiler.
const BUILT: &str = "MKEY_TEST_PROGRAMS";
/// The folder that programs are built into for that, and not run.
const BUILD_INTO: &str = "MKEY_TEST_PROGRAMS_INTO";

/// The name of a program there.
fn name(source: &str) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    source.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// What all of them begin with.
pub const HEAD: &str = include_str!("../c/head.h");

/// Compiles [`HEAD`] and the rest of a program.
pub fn build_short(test: &str, rest: &str) -> Option<Built> {
    build(test, &format!("{HEAD}\n{rest}"))
}
