//! The tests of the crates that hand out memory, under AddressSanitizer: no use after free, no
//! access beyond an allocation. `cargo xtask asan`, and the part `asan` of the tests.
//!
//! Leaks are not looked for: what a device does not let go of is kept on purpose, with its memory,
//! and tests count what is left themselves. Also, LeakSanitizer stops all threads at the end and
//! waits until they have; one in `munmap` of watched memory waits for the thread that reads unmap
//! events, which is stopped already.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::exit::{Exit, in_ci};
use crate::fuzz::TRIPLE;
use crate::part::{Report, Verdict};
use crate::run;
use crate::tools;
use crate::workspace::Workspace;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask asan                  all tests of mkey and mkey-soft
  cargo xtask asan promise_4        those whose names contain this

What is built lies in a folder of its own, `asan` below the target folder.")]
pub struct Args {
    /// Only tests whose names contain this
    filter: Option<String>,
}

/// Those that hand out memory or touch it by address.
const PACKAGES: [&str; 2] = ["mkey", "mkey-soft"];
/// Test targets that are left out: one starts compilers of its own, which would have to be built
/// for the sanitizer as well; models touch no memory that is not loom's; what counts system calls
/// would count the sanitizer's.
const LEFT_OUT: [&str; 3] = ["compile_fail", "loom_", "fast_path"];

/// What the sanitizer must report, so that a run in which it does nothing is not taken for a good
/// one.
const CANARY: &str = "\
fn main() {
    let freed = { let bytes = std::hint::black_box(vec![1u8; 16]); bytes.as_ptr() };
    std::process::exit(i32::from(unsafe { freed.read_volatile() }) & 0);
}
";

/// `cargo xtask asan`.
pub fn run(workspace: &Workspace, args: &Args) -> Result<Exit> {
    let report = report(workspace, args.filter.as_deref())?;
    for note in &report.notes {
        println!("{note}");
    }
    let verdict = report.verdict();
    Ok(Exit::of(verdict == Verdict::Failed, verdict == Verdict::Skipped, in_ci()))
}

/// The part `asan` of the tests.
pub fn part(workspace: &Workspace) -> Result<Report> {
    report(workspace, None)
}

fn report(workspace: &Workspace, filter: Option<&str>) -> Result<Report> {
    let mut report = Report::default();
    let seen = canary(workspace)?;
    report.check(seen, || "the sanitizer does not report a use after free".into());
    let mut command = workspace.cargo();
    // Each test has a process of its own then, and a network: what others do there is not its business.
    let isolated = tools::has_nextest(workspace)?;
    command.args(if isolated { &["nextest", "run"][..] } else { &["test"] });
    command.args(["--no-fail-fast", "--target", TRIPLE]);
    command.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    command.arg("--lib").args(targets(workspace)?.iter().flat_map(|name| ["--test", name]));
    command.arg("--").args(filter);
    sanitized(&mut command).env("CARGO_TARGET_DIR", workspace.target().join("asan"));
    report.tests(workspace, &mut command)?;
    Ok(report)
}

/// The test targets of the packages.
fn targets(workspace: &Workspace) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for package in PACKAGES {
        let folder = workspace.root().join("crates").join(package).join("tests");
        let entries = fs::read_dir(&folder);
        for entry in entries.with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            let target =
                path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if target && !LEFT_OUT.iter().any(|left_out| name.starts_with(left_out)) {
                names.insert(name);
            }
        }
    }
    Ok(names)
}

/// The sanitizer is a flag of nightly compilers, which the stable one takes when it is told to. A
/// target that is named keeps build scripts and macros free of it.
fn sanitized(command: &mut Command) -> &mut Command {
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    command.env("ASAN_OPTIONS", "detect_leaks=0")
}

/// Whether the canary, built like the tests, is caught.
fn canary(workspace: &Workspace) -> Result<bool> {
    let folder = workspace.target().join("asan");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (source, program) = (folder.join("canary.rs"), folder.join("canary"));
    fs::write(&source, CANARY).with_context(|| format!("cannot write {}", source.display()))?;
    let mut rustc = Command::new("rustc");
    rustc.env("RUSTC_BOOTSTRAP", "1").args(["-Zsanitizer=address", "--edition", "2024"]);
    let built = run::silent(rustc.arg(&source).arg("-o").arg(&program))?;
    ensure!(built.status.success(), "no program for the sanitizer can be built:\n{}", built.text);
    let ended = run::silent(&mut Command::new(&program))?;
    Ok(!ended.status.success() && ended.text.contains("heap-use-after-free"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canary_is_caught_and_the_right_targets_are_found() {
        let workspace = Workspace::here().unwrap();
        assert!(canary(&workspace).unwrap());
        let targets = targets(&workspace).unwrap();
        assert!(targets.contains("reports") && targets.contains("verbs") && targets.len() > 8);
        assert!(!targets.contains("compile_fail") && !targets.contains("loom_cache"));
    }
}
