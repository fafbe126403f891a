//! The tests that watch over revocation must fail when its protocol is broken on purpose.

use anyhow::Result;

use crate::part::Report;
use crate::run;
use crate::workspace::Workspace;

/// What can be taken out of the engine, as configuration flags.
const BREAKS: [&str; 2] = ["mkey_break_fence", "mkey_break_scan"];
/// The tests that must notice, and the flags that they need besides.
const WATCHERS: [(&str, &str); 2] = [("loom_revocation", "--cfg loom"), ("revocation_stress", "")];

/// The part `broken` of the tests: each watcher is built with each break, and must then fail.
pub fn part(workspace: &Workspace) -> Result<Report> {
    let mut report = Report::default();
    for broken in BREAKS {
        for (test, flags) in WATCHERS {
            let cargo = |last: &[&str]| {
                let mut command = workspace.cargo();
                command
                    .args(["test", "--release", "--package", "mkey-core", "--test", test])
                    .args(last)
                    .env("RUSTFLAGS", format!("{flags} --cfg {broken}").trim())
                    // It stops at the first broken canary; without a fence that takes a while.
                    .env("MKEY_STRESS_REVOCATIONS", "10000000")
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
