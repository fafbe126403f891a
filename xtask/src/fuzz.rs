//! `cargo xtask fuzz`: the libFuzzer targets of `fuzz/`, on the stable toolchain.
//!
//! The compiler's coverage instrumentation is reached by stable flags (an LLVM pass), so neither
//! a nightly nor cargo-fuzz is needed. Only the address sanitizer is asked for by an unstable
//! flag. What a run finds stays in the target folder; `--keep` takes into the committed corpus
//! what adds coverage to it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::exit::Exit;
use crate::run;
use crate::workspace::{Metadata, Workspace};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask fuzz --list                     what the targets are
  cargo xtask fuzz --seconds 600              each target for ten minutes
  cargo xtask fuzz TARGET --keep              one; keep what adds coverage in fuzz/corpus/TARGET
  cargo xtask fuzz TARGET --input FILE        one input again, for instance of a crash
  cargo xtask fuzz TARGET -- -max_len=512     with options for libFuzzer

Exit status: 0 nothing was found, 1 an input made a target fail (the input is kept and named).")]
pub struct Args {
    /// The target; all of them if none is named
    #[arg(value_name = "TARGET")]
    target: Option<String>,
    /// How long each target runs
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Take new inputs that add coverage into the committed corpus
    #[arg(long)]
    keep: bool,
    /// Run this one input instead
    #[arg(long, value_name = "FILE", requires = "target", conflicts_with = "keep")]
    input: Option<PathBuf>,
    /// Without the address sanitizer: about twice as fast, blind to wild accesses
    #[arg(long)]
    no_asan: bool,
    /// List the targets
    #[arg(long)]
    list: bool,
    /// Passed to libFuzzer
    #[arg(last = true)]
    args: Vec<String>,
}

/// What libFuzzer needs: edge counters with comparisons traced, and `cfg(fuzzing)`.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";
const ASAN: &str = " -Zsanitizer=address";
/// Named, since only then are build scripts and macros built without the flags.
pub const TRIPLE: &str = if cfg!(target_arch = "aarch64") {
    "aarch64-unknown-linux-gnu"
} else {
    "x86_64-unknown-linux-gnu"
};

pub fn run(workspace: &Workspace, args: &Args) -> Result<Exit> {
    let manifest = workspace.root().join("fuzz/Cargo.toml");
    let metadata = Metadata::of(&manifest)?;
    let names = metadata.binaries();
    if args.list {
        names.iter().for_each(|name| println!("{name}"));
        return Ok(Exit::Well);
    }
    let chosen = chosen(&names, args.target.as_deref())?;
    let fuzzer = Fuzzer { workspace, manifest, args };
    fuzzer.build()?;
    let mut failed = Vec::new();
    for name in chosen {
        if !fuzzer.fuzz(name)? {
            failed.push(name);
        }
    }
    for name in &failed {
        println!("\n{name}: an input made it fail; it is in {}", fuzzer.found(name).display());
        println!("again: cargo xtask fuzz {name} --input FILE");
        println!("to have it replayed by every test run: copy it to fuzz/corpus/{name}");
    }
    Ok(Exit::of(!failed.is_empty(), false, false))
}

fn chosen<'a>(names: &[&'a str], wanted: Option<&str>) -> Result<Vec<&'a str>> {
    ensure!(!names.is_empty(), "fuzz/Cargo.toml has no target");
    let Some(wanted) = wanted else { return Ok(names.to_vec()) };
    match names.iter().find(|name| **name == wanted) {
        Some(name) => Ok(vec![name]),
        None => bail!("no target is called `{wanted}`; the targets are {}", names.join(", ")),
    }
}

struct Fuzzer<'a> {
    workspace: &'a Workspace,
    manifest: PathBuf,
    args: &'a Args,
}

impl Fuzzer<'_> {
    fn build(&self) -> Result<()> {
        let mut command = self.workspace.cargo();
        command.args(["build", "--release", "--bins", "--target", TRIPLE, "--manifest-path"]);
        command.arg(&self.manifest).env_remove("CARGO_ENCODED_RUSTFLAGS");
        command.env("CARGO_TARGET_DIR", self.folder());
        if self.args.no_asan {
            command.env("RUSTFLAGS", FLAGS);
        } else {
            command.env("RUSTFLAGS", format!("{FLAGS}{ASAN}")).env("RUSTC_BOOTSTRAP", "1");
        }
        ensure!(run::shown(&mut command)?.status.success(), "the fuzz targets do not build");
        Ok(())
    }

    /// Whether no input made the target fail.
    fn fuzz(&self, name: &str) -> Result<bool> {
        let (new, committed) = (self.folder().join("corpus").join(name), self.committed(name));
        for folder in [&new, &committed, &self.found(name)] {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let mut command = self.command(name);
        match &self.args.input {
            Some(input) => {
                ensure!(input.is_file(), "{} is no file", input.display());
                command.arg(input);
            }
            None => {
                // libFuzzer writes what it finds into the first folder.
                command.arg(format!("-max_total_time={}", self.args.seconds));
                command.args(&self.args.args).args([&new, &committed]);
            }
        }
        let well = run::shown(&mut command)?.status.success();
        if well && self.args.keep {
            let mut merge = self.command(name);
            merge.arg("-merge=1").args([&committed, &new]);
            ensure!(run::shown(&mut merge)?.status.success(), "cannot merge the corpus of {name}");
        }
        Ok(well)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.folder().join(TRIPLE).join("release").join(name));
        command.arg(format!("-artifact_prefix={}/", self.found(name).display()));
        command
    }

    fn folder(&self) -> PathBuf {
        self.workspace.target().join("fuzz")
    }

    fn found(&self, name: &str) -> PathBuf {
        self.folder().join("artifacts").join(name)
    }

    fn committed(&self, name: &str) -> PathBuf {
        self.workspace.root().join("fuzz/corpus").join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_targets_are_fuzzed_unless_one_is_named() {
        assert_eq!(chosen(&["a", "b"], None).unwrap(), ["a", "b"]);
        assert_eq!(chosen(&["a", "b"], Some("b")).unwrap(), ["b"]);
    }

    #[test]
    fn an_unknown_target_is_an_error_that_lists_the_targets() {
        let error = chosen(&["a", "b"], Some("c")).unwrap_err().to_string();
        assert_eq!(error, "no target is called `c`; the targets are a, b");
        assert!(chosen(&[], None).is_err());
    }
}
