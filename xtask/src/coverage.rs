//! The part `coverage` of the tests: how much of the code that reads packets is run by garbage, by
//! truncated and by spoofed packets. These are the committed fuzz corpus and the crates' own tests
//! of packets; no other test counts, though it may run that code, too.
//!
//! The compiler counts, by its own instrumentation; LLVM's tools of the compiler's version read it.
//! A line counts as covered if any of the test programs ran it. Tests are no lines to be covered.

mod lines;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::fuzz::TRIPLE;
use crate::packages;
use crate::part::{Report, Unavailable};
use crate::run;
use crate::workspace::Workspace;
use lines::{File, table};

/// Percent of the lines that have to be covered.
const LIMIT: f64 = 90.0;

/// The files that read what others have sent, or folders of such files.
const SOURCES: [&str; 12] = [
    "crates/mkey-wire/src",
    "crates/mkey-soft/src/link/datagram.rs",
    "crates/mkey-soft/src/link/shm/greeting.rs",
    "crates/mkey-soft/src/link/shm/record.rs",
    "crates/mkey-soft/src/link/shm/ring.rs",
    "crates/mkey-soft/src/link/shm/segment.rs",
    "crates/mkey-soft/src/link/udp/batch.rs",
    "crates/mkey-soft/src/link/udp/mod.rs",
    "crates/mkey-soft/src/link/udp/socket.rs",
    "crates/mkey-cli/src/pcap/file.rs",
    "crates/mkey-cli/src/pcap/frame.rs",
    "crates/mkey-cli/src/pcap/packet.rs",
];

/// A test target of a package, and the tests in it that are asked for: all if none is named.
struct Tests {
    package: &'static str,
    target: &'static str,
    filters: &'static [&'static str],
}

const fn all(package: &'static str, target: &'static str) -> Tests {
    Tests { package, target, filters: &[] }
}

/// What is run; the target of a library's unit tests has the library's name.
const TESTS: [Tests; 7] = [
    all("mkey-wire", LIBRARY),
    all("mkey-wire", "frames"),
    all("mkey-wire", "packets"),
    all("mkey-wire", "rxe"),
    all("mkey-wire", "vectors"),
    Tests {
        package: "mkey-soft",
        target: LIBRARY,
        filters: &[
            "link::datagram::",
            "link::shm::greeting::",
            "link::shm::record::",
            "link::shm::ring::",
            "link::shm::segment::",
            "link::udp::",
        ],
    },
    all("mkey-conformance", "fuzz_corpus"),
];
const LIBRARY: &str = "lib";

/// The part.
pub fn part(workspace: &Workspace) -> Result<Report> {
    let mut report = Report::default();
    let tools = match Tools::get() {
        Ok(tools) => tools,
        Err(error) => {
            report.excuse(error)?;
            return Ok(report);
        }
    };
    let folder = workspace.target().join("coverage");
    let profiles = folder.join("profiles");
    // What an earlier run counted is of other programs.
    if profiles.exists() {
        fs::remove_dir_all(&profiles)
            .with_context(|| format!("cannot remove {}", profiles.display()))?;
    }
    fs::create_dir_all(&profiles).with_context(|| format!("cannot make {}", profiles.display()))?;
    let programs = build(workspace, &folder)?;
    for (program, tests) in &programs {
        let mut command = Command::new(&program.path);
        command.current_dir(&program.folder).args(tests.filters);
        command.env("LLVM_PROFILE_FILE", profiles.join("%m.profraw"));
        report.tests(workspace, &mut command)?;
    }
    let files = tools.read(workspace, &profiles, &programs)?;
    judge(&files, &mut report);
    Ok(report)
}

/// Shows the files and says whether enough of them is covered.
fn judge(files: &[File], report: &mut Report) {
    let (table, percent) = table(files);
    print!("\n{table}");
    for source in SOURCES {
        let found = files.iter().any(|file| Path::new(&file.name).starts_with(source));
        report.check(found, || format!("there is no coverage of {source}: no test program has it"));
    }
    report.check(percent >= LIMIT, || {
        let worst = files.iter().filter(|file| file.percent() < LIMIT);
        let worst: Vec<_> =
            worst.map(|file| format!("{} lines {}", file.name, file.missed())).collect();
        format!(
            "{percent:.1} % of the lines are covered, which is less than {LIMIT} %; not covered: {}",
            worst.join("; ")
        )
    });
}

/// A test program that was built.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    path: PathBuf,
    /// Its package's.
    folder: PathBuf,
}

/// Builds the test programs. One command for all packages: by themselves they would be built with
/// other features of what they use, and so would that.
fn build(workspace: &Workspace, folder: &Path) -> Result<Vec<(Program, &'static Tests)>> {
    let packages: BTreeSet<_> = TESTS.iter().map(|tests| tests.package).collect();
    let mut command = workspace.cargo();
    // A target that is named keeps build scripts and macros free of the instrumentation.
    command.args(["test", "--no-run", "--target", TRIPLE]);
    command.arg("--message-format=json-render-diagnostics");
    command.args(packages.iter().flat_map(|package| ["--package", package])).arg("--lib");
    let targets = TESTS.iter().map(|tests| tests.target).filter(|target| *target != LIBRARY);
    command.args(targets.flat_map(|target| ["--test", target]));
    command.env("RUSTFLAGS", "-C instrument-coverage").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.env("CARGO_TARGET_DIR", folder);
    println!("$ {}", run::line(&command));
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(output.status.success(), "the tests do not build with the compiler's counters");
    let text = String::from_utf8_lossy(&output.stdout);
    let found = TESTS.iter().map(|tests| {
        let program = program(&text, tests);
        let program = program.with_context(|| {
            format!("cargo built no test program `{}` of {}", tests.target, tests.package)
        })?;
        Ok((program, tests))
    });
    found.collect()
}

/// Cargo's message of something that it has built, as far as it is used here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// The program of `tests` among those that cargo's messages name.
fn program(messages: &str, tests: &Tests) -> Option<Program> {
    messages.lines().find_map(|line| {
        let message: Message = serde_json::from_str(line).ok()?;
        let folder = message.manifest_path?.parent()?.to_owned();
        let target = message.target?;
        let named = match tests.target {
            LIBRARY => target.kind.iter().any(|kind| kind == "lib"),
            name => target.name == name,
        };
        let ours = message.reason == "compiler-artifact"
            && message.profile?.test
            && folder.ends_with(tests.package)
            && named;
        if ours { Some(Program { path: message.executable?, folder }) } else { None }
    })
}

/// LLVM's tools.
struct Tools {
    /// Its major version, which has to be the compiler's: older tools do not read newer profiles.
    major: u32,
}

impl Tools {
    /// The tools, installed where that is possible; else the error is [`Unavailable`].
    fn get() -> Result<Self> {
        let major = packages::llvm_major()?;
        packages::get(&[&packages::llvm(major)])?;
        let tools = Self { major };
        let ended = run::silent(tools.command("llvm-cov").arg("--version"));
        if !ended.is_ok_and(|ended| ended.status.success()) {
            return Err(Unavailable(format!("llvm-cov-{major} does not run")).into());
        }
        Ok(tools)
    }

    fn command(&self, name: &str) -> Command {
        Command::new(format!("{name}-{}", self.major))
    }

    /// The lines of [`SOURCES`] and how often they were run, all profiles together.
    fn read(
        &self,
        workspace: &Workspace,
        profiles: &Path,
        programs: &[(Program, &Tests)],
    ) -> Result<Vec<File>> {
        let merged = profiles.join("all.profdata");
        let mut merge = self.command("llvm-profdata");
        merge.args(["merge", "--sparse", "--output"]).arg(&merged).arg(profiles);
        let ended = run::silent(&mut merge)?;
        ensure!(ended.status.success(), "`{}` failed:\n{}", run::line(&merge), ended.text);
        // Its JSON has regions; the lines that they come to are in the other format.
        let mut export = self.command("llvm-cov");
        export.args(["export", "--format=lcov", "--instr-profile"]).arg(&merged);
        for (at, (program, _)) in programs.iter().enumerate() {
            export.args((at > 0).then_some("--object")).arg(&program.path);
        }
        export.arg("--sources").args(SOURCES.map(|source| workspace.root().join(source)));
        let ended = run::silent(&mut export)?;
        ensure!(ended.status.success(), "`{}` failed:\n{}", run::line(&export), ended.text);
        lines::read(&ended.text, workspace.root())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, lines: std::ops::Range<u32>, missed: std::ops::Range<u32>) -> File {
        let lines = lines.map(|line| (line, u64::from(!missed.contains(&line)))).collect();
        File { name: name.into(), lines }
    }

    /// Files of all sources with these lines missed of a hundred.
    fn all_with(missed: u32) -> Vec<File> {
        let name = |source: &str| match source.ends_with(".rs") {
            true => source.to_owned(),
            false => format!("{source}/packet.rs"),
        };
        SOURCES.iter().map(|source| file(&name(source), 1..101, 1..1 + missed)).collect()
    }

    #[test]
    fn less_than_the_limit_fails_and_names_the_lines() {
        let mut report = Report::default();
        judge(&all_with(10), &mut report);
        assert_eq!((report.tally.failed, report.tally.passed), (0, SOURCES.len() as u64 + 1));
        let mut report = Report::default();
        judge(&all_with(11), &mut report);
        assert_eq!(report.tally.failed, 1);
        let [note] = &report.notes[..] else { panic!("{:?}", report.notes) };
        assert!(note.starts_with("89.0 % of the lines are covered"), "{note}");
        assert!(note.contains("crates/mkey-wire/src/packet.rs lines 1-11;"), "{note}");
    }

    #[test]
    fn a_source_that_no_program_has_fails() {
        let mut files = all_with(0);
        files.remove(0);
        let mut report = Report::default();
        judge(&files, &mut report);
        assert_eq!(report.tally.failed, 1);
        assert!(report.notes[0].contains("crates/mkey-wire/src"), "{:?}", report.notes);
        let mut report = Report::default();
        judge(&[], &mut report);
        assert_eq!(report.tally.failed, SOURCES.len() as u64 + 1, "nothing is not all");
    }

    #[test]
    fn the_sources_are_there() {
        let workspace = Workspace::here().unwrap();
        for source in SOURCES {
            assert!(workspace.root().join(source).exists(), "{source}");
        }
    }

    #[test]
    fn programs_are_told_apart_by_package_and_target() {
        let artifact = |package: &str, name: &str, kind: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/{package}/Cargo.toml","target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let messages = [
            r#"{"reason":"build-script-executed","package_id":"x"}"#.to_owned(),
            artifact("mkey-wire", "mkey_wire", "lib", false, "null"),
            artifact("mkey-conformance", "packets", "test", true, r#""/t/other""#),
            artifact("mkey-wire", "mkey_wire", "lib", true, r#""/t/unit""#),
            artifact("mkey-wire", "packets", "test", true, r#""/t/packets""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ]
        .join("\n");
        let path =
            |target| program(&messages, &all("mkey-wire", target)).map(|program| program.path);
        assert_eq!(path(LIBRARY), Some("/t/unit".into()));
        assert_eq!(path("packets"), Some("/t/packets".into()));
        assert_eq!(path("frames"), None);
    }
}
