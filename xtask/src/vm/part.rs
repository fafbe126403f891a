//! The part `vm` of the tests: what the guests themselves promise, and the test targets that are
//! run over the kernel's own device.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::guest::{self, End, Ended, Guest};
use super::kernel::{Kernel, LINES};
use crate::part::Report;
use crate::run;
use crate::workspace::{Target, Workspace};

/// The test targets that are run in a guest of each kernel: package and target. Their ignored
/// tests are run there, too, so that a test which needs a kernel's device can be one.
const TESTS: [(&str, &str); 9] = [
    ("mkey-os", "accounting"),
    ("mkey-os", "tracefs"),
    ("mkey-cli", "registration"),
    ("mkey-cli", "rxe"),
    ("mkey-cli", "trace_rxe"),
    ("mkey", "examples"),
    ("mkey-ibverbs", "rxe"),
    ("mkey-conformance", "ibverbs"),
    ("mkey-conformance", "differential_rxe"),
];

/// The part `vm`.
pub fn part(workspace: &Workspace) -> Result<Report> {
    let mut report = Report::default();
    let kernels = kernels(workspace, &mut report)?;
    for kernel in &kernels {
        println!("--- {}: {}", kernel.release, kernel.line.about);
        smoke(workspace, kernel, &mut report)?;
        for (package, test) in TESTS {
            let guest = Guest::new(workspace, kernel);
            let arguments = ["--include-ignored".into()];
            run_test_binary(workspace, guest, package, test, &arguments, &mut report)?;
        }
        let mut guest = Guest::new(workspace, kernel);
        guest.iommu = true;
        let arguments = ["--include-ignored".into()];
        run_test_binary(workspace, guest, "mkey-cli", "iommu", &arguments, &mut report)?;
    }
    // What does not depend on the kernel is shown with one.
    if let Some(kernel) = kernels.first() {
        println!("--- {}: how commands end", kernel.release);
        ends(workspace, kernel, &mut report)?;
        booted_again(workspace, kernel, &mut report)?;
    }
    Ok(report)
}

/// The part `vm-links`.
pub fn links(workspace: &Workspace) -> Result<Report> {
    let mut report = Report::default();
    for kernel in &kernels(workspace, &mut report)? {
        println!("--- {}: {}", kernel.release, kernel.line.about);
        let (guest, arguments) = (Guest::new(workspace, kernel), ["--include-ignored".into()]);
        run_test_binary(workspace, guest, "mkey-cli", "links_rxe", &arguments, &mut report)?;
    }
    Ok(report)
}

/// The kernels that guests can be booted with here; which can not, is told.
fn kernels(workspace: &Workspace, report: &mut Report) -> Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    if let Err(error) = guest::possible() {
        report.excuse(error)?;
        return Ok(kernels);
    }
    for line in &LINES {
        match Kernel::get(workspace, line) {
            Ok(kernel) => kernels.push(kernel),
            Err(error) => report.excuse(error)?,
        }
    }
    Ok(kernels)
}

/// The checks of `tools/vm/smoke`, in one guest.
fn smoke(workspace: &Workspace, kernel: &Kernel, report: &mut Report) -> Result<()> {
    let share = tempfile::tempdir().context("cannot make a folder")?;
    let odp = if kernel.line.on_demand { "odp" } else { "no-odp" };
    let script = workspace.root().join("tools/vm/smoke");
    let guest = Guest::new(workspace, kernel).share(share.path())?;
    let ended = guest.run(&[script.into(), odp.into()])?;
    let mut count = 0;
    for (name, passed) in checks(&ended.stdout) {
        count += 1;
        report.check(passed, || format!("{}: {name}", kernel.release));
    }
    report.check(ended.end == End::Status(0) && count > 0, || {
        format!(
            "{}: the smoke test ended with {:?} after {count} checks",
            kernel.release, ended.end
        )
    });
    report.check(share.path().join("written").exists(), || {
        format!("{}: what the guest wrote to the share is not here", kernel.release)
    });
    Ok(())
}

/// The lines `check NAME: ok` and `check NAME: failed`.
fn checks(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("check "));
    lines.filter_map(|line| {
        let (name, verdict) = line.rsplit_once(": ")?;
        Some((name, verdict == "ok"))
    })
}

/// Status, output and limits of commands in a guest.
fn ends(workspace: &Workspace, kernel: &Kernel, report: &mut Report) -> Result<()> {
    let run = |limit: u64, script: &str| -> Result<Ended> {
        let mut guest = Guest::new(workspace, kernel);
        guest.limit = Duration::from_secs(limit);
        guest.environment.push(("WORD".into(), "it's a word".into()));
        guest.run(&["bash".into(), "-c".into(), script.into()])
    };
    let failing = run(60, r#"echo "$WORD"; echo error >&2; printf 'no newline'; exit 7"#)?;
    report.check(failing.end == End::Status(7), || {
        format!("a command that exits with 7 ends with {:?}", failing.end)
    });
    let streams = (failing.stdout.as_str(), failing.stderr.as_str());
    report.check(streams == ("it's a word\nno newline", "error\n"), || {
        format!("the command's two streams arrive as {streams:?}")
    });
    println!("\na command that takes too long:");
    let endless = run(3, "exec sleep infinity")?;
    report.check(endless.end == End::TimedOut, || {
        format!("a command without end ends with {:?}", endless.end)
    });
    println!("a kernel that dies in each boot:");
    let dead = run(60, "echo before; echo c >/proc/sysrq-trigger; sleep 60")?;
    report.check(dead.end == End::Died && dead.stdout == "before\n", || {
        format!("a command whose kernel dies ends with {:?} and `{}`", dead.end, dead.stdout)
    });
    Ok(())
}

/// A guest whose kernel dies, with a word or by a reset of the machine, is booted again, and so is one
/// of which nothing goes on.
fn booted_again(workspace: &Workspace, kernel: &Kernel, report: &mut Report) -> Result<()> {
    for die in ["echo c >/proc/sysrq-trigger", "echo b >/proc/sysrq-trigger", "kill -STOP -- -1"] {
        println!("a guest that comes to a stop once: {die}");
        let share = tempfile::tempdir().context("cannot make a folder")?;
        let mut guest = Guest::new(workspace, kernel).share(share.path())?;
        guest.standstill = Duration::from_secs(20);
        let once = format!(
            "test -e /share/died && exit $(nproc); touch /share/died; sync; {die}; sleep 120"
        );
        let ended = guest.run(&["bash".into(), "-c".into(), once.into()])?;
        report.check(ended.end == End::Status(1) && !ended.before.is_empty(), || {
            let (end, before) = (ended.end, &ended.before);
            format!("a guest that came to a stop once (`{die}`) ends with {end:?} after {before:?}")
        });
    }
    Ok(())
}

/// Builds the test target `test` of `package`, runs it with `arguments` in `guest`, and counts
/// its tests, those that it says it could not run among them.
pub fn run_test_binary(
    workspace: &Workspace,
    guest: Guest<'_>,
    package: &str,
    test: &str,
    arguments: &[OsString],
    report: &mut Report,
) -> Result<()> {
    let binary = built(workspace, package, test)?;
    let share = tempfile::tempdir().context("cannot make a folder")?;
    let skips = share.path().join("skips");
    fs::write(&skips, "").with_context(|| format!("cannot write {}", skips.display()))?;
    let mut guest = guest.share(share.path())?;
    guest.environment.push(("XTASK_SKIPS".into(), "/share/skips".into()));
    let name = format!("{test} of {package} in {}", guest.kernel.release);
    println!("{name}");
    let command: Vec<_> = [binary.into_os_string()].iter().chain(arguments).cloned().collect();
    let ended = guest.run(&command)?;
    let skips =
        fs::read_to_string(&skips).with_context(|| format!("cannot read {}", skips.display()))?;
    // Boots before the last may have said the same.
    let skips: BTreeSet<_> = skips.split_inclusive('\n').collect();
    let skips = String::from_iter(skips);
    report.notes.extend(ended.before.iter().map(|what| format!("{name}: {what}")));
    let status = ExitStatus::from_raw(i32::from(ended.end.status()) << 8);
    report.count_tests(&name, &run::Ended { status, text: ended.stdout }, &skips);
    Ok(())
}

/// The binary of a test target, built now.
fn built(workspace: &Workspace, package: &str, test: &str) -> Result<PathBuf> {
    if package == "mkey-cli" {
        // Cargo builds no library that is only loaded, and none can be built in a guest.
        let mut command = workspace.cargo();
        command.args(["build", "--package", "mkey-preload", "--package", "mkey-watch"]);
        println!("$ {}", run::line(&command));
        let status = command.status().context("cannot start cargo")?;
        ensure!(status.success(), "`{}` ended with {status}", run::line(&command));
    }
    let mut command = workspace.cargo();
    command.args(["test", "--no-run", "--package", package, "--test", test]);
    command.args(["--message-format", "json-render-diagnostics"]);
    println!("$ {}", run::line(&command));
    let output = command.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(output.status.success(), "`{}` ended with {}", run::line(&command), output.status);
    executable(&String::from_utf8_lossy(&output.stdout), test)
        .with_context(|| format!("`{}` made no test binary", run::line(&command)))
}

/// What cargo says of something that it has built.
#[derive(Deserialize)]
struct Artifact {
    target: Target,
    executable: Option<PathBuf>,
}

/// The executable of the test target `test` among cargo's `messages`.
fn executable(messages: &str, test: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let mut tests = artifacts.filter(|artifact| {
        artifact.target.name == test && artifact.target.kind.iter().any(|kind| kind == "test")
    });
    tests.find_map(|artifact| artifact.executable).filter(|path| Path::is_absolute(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_checks_are_told_from_the_rest() {
        let text = "check a: ok\nchecked\ncheck b: c: failed\nwhy: it did\n";
        assert_eq!(checks(text).collect::<Vec<_>>(), [("a", true), ("b: c", false)]);
    }

    #[test]
    fn the_test_binary_is_told_from_the_other_artifacts() {
        let messages = r#"
{"reason":"compiler-artifact","target":{"name":"pin","kind":["lib"]},"executable":null}
{"reason":"compiler-artifact","target":{"name":"pin","kind":["test"]},"executable":"/t/pin-1"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "pin"), Some("/t/pin-1".into()));
        assert_eq!(executable(messages, "events"), None);
    }
}
