//! C programs, linked to the distribution's libibverbs.
#![allow(dead_code)] // Each test target uses part of it.

use crate::common::skipped;
use std::fs;
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
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        skipped(test, "libibverbs-dev is not installed");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program.c");
    fs::write(&file, source).unwrap();
    let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| usual().into()));
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
    Some(Built { folder })
}

/// `cc`, which leads out of `/usr`, all of this machine that a guest has.
fn usual() -> &'static str {
    if Path::new("/usr/bin/cc").exists() || !Path::new("/usr/bin/gcc").exists() {
        "cc"
    } else {
        "gcc"
    }
}

/// What all of them begin with.
pub const HEAD: &str = include_str!("../c/head.h");

/// Compiles [`HEAD`] and the rest of a program.
pub fn build_short(test: &str, rest: &str) -> Option<Built> {
    build(test, &format!("{HEAD}\n{rest}"))
}
