//! The tests that watch over revocation and over what work uses must fail when a protection is taken
//! out on purpose.

use anyhow::Result;

use crate::part::Report;
use crate::run;
use crate::workspace::Workspace;

/// Protections that can be taken out, as configuration flags, and who must notice.
const BREAKS: [(&str, &[Watcher]); 4] = [
    ("mkey_break_fence", &[LOOM, STRESS]),
    ("mkey_break_scan", &[LOOM, STRESS]),
    ("mkey_break_holds", &[SOAK]),
    ("mkey_break_end", &[SOAK, TOGETHER]),
];

/// A test, and the flags that it needs besides.
#[derive(Clone, Copy)]
struct Watcher {
    package: &'static str,
    test: &'static str,
    flags: &'static str,
}

const LOOM: Watcher =
    Watcher { package: "mkey-core", test: "loom_revocation", flags: "--cfg loom" };
const STRESS: Watcher = Watcher { package: "mkey-core", test: "revocation_stress", flags: "" };
const SOAK: Watcher = Watcher { package: "mkey", test: "soak", flags: "" };
const TOGETHER: Watcher = Watcher { package: "mkey", test: "together", flags: "" };

/// The part `broken` of the tests: each watcher is built with each break, and must then fail.
pub fn part(workspace: &Workspace) -> Result<Report> {
    let mut report = Report::default();
    for (broken, watchers) in BREAKS {
        for &Watcher { package, test, flags } in watchers {
            let cargo = |last: &[&str]| {
                let mut command = workspace.cargo();
                command
                    .args(["test", "--release", "--package", package, "--test", test])
                    .args(last)
                    .env("RUSTFLAGS", format!("{flags} --cfg {broken}").trim())
                    // They stop at the first broken canary; without a fence that takes a while.
                    .env("MKEY_STRESS_REVOCATIONS", "10000000")
                    .env("MKEY_SOAK_SECONDS", "60")
                    .env("CARGO_TARGET_DIR", workspace.target().join(broken));
                command
            };
            // Built apart, so that a build that breaks is not taken for a test that fails.
            let built = run::shown(&mut cargo(&["--no-run"]))?;
            report.check(built.status.success(), || format!("{test} does not build with {broken}"));
            if built.status.success() {
                let ended = run::silent(&mut cargo(&[]))?;
                let failed = !ended.status.success() && ended.text.contains("test result: FAILED");
                println!(
                    "{test} with {broken}: {}",
                    if failed { "fails, as it must" } else { "PASSES" }
                );
                report.check(failed, || format!("{test} does not notice {broken}"));
            }
        }
    }
    Ok(report)
}
