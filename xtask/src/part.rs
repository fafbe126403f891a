//! A part of the test run: what it is, and how it is run.

use std::fmt;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::run;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// One part of `cargo xtask test`.
pub struct Part {
    /// What `--only` and `--skip` call it.
    pub name: &'static str,
    /// What it shows, in a few words.
    pub about: &'static str,
    pub work: Work,
}

/// How a part is run.
pub enum Work {
    /// Cargo commands that succeed or fail; each counts as one check.
    Checks(&'static [Step]),
    /// Cargo commands that run tests; the tests are counted, and none at all is a failure.
    Tests(&'static [Step]),
    /// A part that needs more than that.
    Call(fn(&Workspace) -> Result<Report>),
}

/// One cargo command of a part.
pub struct Step {
    pub args: &'static [&'static str],
    /// Variables set for it.
    pub env: &'static [(&'static str, &'static str)],
    /// A folder of its own below the target folder, for flags that would rebuild everything
    /// that the other parts share.
    pub target: Option<&'static str>,
}

impl Step {
    /// A plain cargo command.
    pub const fn cargo(args: &'static [&'static str]) -> Self {
        Self { args, env: &[], target: None }
    }

    fn command(&self, workspace: &Workspace) -> Command {
        let mut command = workspace.cargo();
        command.args(self.args).envs(self.env.iter().copied());
        if let Some(folder) = self.target {
            command.env("CARGO_TARGET_DIR", workspace.target().join(folder));
        }
        command
    }
}

/// Something that others offer and that cannot be had here: no network, or nobody offers it any
/// more. Why, in words.
#[derive(Debug)]
pub struct Unavailable(pub String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// What came of a part.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub tally: Tally,
    /// How many of the skips are of things that are [`Unavailable`] and that the part may be
    /// without: these do not fail a run in CI.
    pub excused: u64,
    /// Why something failed or was skipped.
    pub notes: Vec<String>,
}

impl Report {
    /// One thing that could not be done here, and why.
    pub fn skipped(why: String) -> Self {
        let tally = Tally { skipped: 1, ..Tally::default() };
        Self { tally, notes: vec![why], ..Self::default() }
    }

    /// Counts one skip of something that cannot be had anywhere; any other error is passed on.
    pub fn excuse(&mut self, error: anyhow::Error) -> Result<()> {
        if !error.is::<Unavailable>() {
            return Err(error);
        }
        self.tally.skipped += 1;
        self.excused += 1;
        self.notes.push(format!("not to be had here: {error:#}"));
        Ok(())
    }

    /// Counts one check.
    pub fn check(&mut self, passed: bool, otherwise: impl FnOnce() -> String) {
        if passed {
            self.tally.passed += 1;
        } else {
            self.tally.failed += 1;
            self.notes.push(otherwise());
        }
    }

    /// Runs `command`, which succeeds or fails, and counts it as one check.
    pub fn command(&mut self, command: &mut Command) -> Result<()> {
        let ended = run::shown(command)?;
        self.check(ended.status.success(), || {
            format!("`{}` ended with {}", run::line(command), ended.status)
        });
        Ok(())
    }

    /// Counts the tests that `command` runs, as its runner's closing lines and the tests' own
    /// notes of what could not run here give them.
    pub fn tests(&mut self, workspace: &Workspace, command: &mut Command) -> Result<()> {
        let skips = workspace.target().join("xtask-skips");
        fs::write(&skips, "").with_context(|| format!("cannot write {}", skips.display()))?;
        let shown = run::line(command);
        let ended = run::shown(command.env("XTASK_SKIPS", &skips))?;
        let skipped = fs::read_to_string(&skips)
            .with_context(|| format!("cannot read {}", skips.display()))?;
        self.count_tests(&shown, &ended, &skipped);
        Ok(())
    }

    /// Counts the tests of a runner that has ended; each line of `skips` is a test that could not
    /// run.
    pub fn count_tests(&mut self, command: &str, ended: &run::Ended, skips: &str) {
        let mut tally = Tally::read(&ended.text);
        for reason in skips.lines() {
            // The runner saw the test return, and so counted it as passed.
            tally.passed = tally.passed.saturating_sub(1);
            tally.skipped += 1;
            self.notes.push(reason.to_owned());
        }
        if !ended.status.success() {
            // A build that breaks, or a test that takes its process down, is in nobody's count.
            tally.failed = tally.failed.max(1);
            self.notes.push(format!("`{command}` ended with {}", ended.status));
        } else if tally.total() == 0 {
            tally.failed = 1;
            self.notes.push(format!("`{command}` ran no test"));
        }
        self.tally += tally;
    }

    /// The verdict in one word.
    pub fn verdict(&self) -> Verdict {
        match self.tally {
            Tally { failed: 1.., .. } | Tally { passed: 0, skipped: 0, .. } => Verdict::Failed,
            Tally { skipped: 1.., .. } if self.tally.skipped == self.excused => Verdict::Excused,
            Tally { skipped: 1.., .. } => Verdict::Skipped,
            Tally { .. } => Verdict::Passed,
        }
    }
}

/// Whether a part passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed,
    /// Nothing failed, but not all of it could be run.
    Skipped,
    /// As `Skipped`, and all that could not be run is excused.
    Excused,
}

impl Part {
    /// Runs the part. An error on the way is a failure of the part with that reason.
    pub fn run(&self, workspace: &Workspace) -> Report {
        let mut report = Report::default();
        let done = match self.work {
            Work::Checks(steps) => {
                steps.iter().try_for_each(|step| report.command(&mut step.command(workspace)))
            }
            Work::Tests(steps) => steps
                .iter()
                .try_for_each(|step| report.tests(workspace, &mut step.command(workspace))),
            Work::Call(call) => call(workspace).map(|called| report = called),
        };
        if let Err(error) = done {
            report.check(false, || format!("{error:#}"));
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn counted(status: i32, text: &str, skips: &str) -> Report {
        let status = ExitStatus::from_raw(status << 8);
        let mut report = Report::default();
        report.count_tests("cargo test", &run::Ended { status, text: text.into() }, skips);
        report
    }

    #[test]
    fn tests_that_passed_pass() {
        let report = counted(0, "test result: ok. 3 passed; 0 failed; 0 ignored", "");
        assert_eq!(report.tally, Tally { passed: 3, failed: 0, skipped: 0 });
        assert_eq!(report.verdict(), Verdict::Passed);
    }

    #[test]
    fn a_run_of_no_test_fails() {
        let report = counted(0, "test result: ok. 0 passed; 0 failed; 5 ignored", "");
        assert_eq!(report.verdict(), Verdict::Failed);
        assert_eq!(report.notes, ["`cargo test` ran no test"]);
    }

    #[test]
    fn a_runner_that_died_fails_whatever_it_counted() {
        let report = counted(101, "test result: ok. 3 passed; 0 failed; 0 ignored", "");
        assert_eq!(report.tally, Tally { passed: 3, failed: 1, skipped: 0 });
        assert_eq!(report.verdict(), Verdict::Failed);
    }

    #[test]
    fn a_test_that_says_it_cannot_run_here_is_a_skip_not_a_pass() {
        let text = "test result: ok. 3 passed; 0 failed; 0 ignored";
        let report = counted(0, text, "pins_by_io_uring: io_uring_setup: EPERM\n");
        assert_eq!(report.tally, Tally { passed: 2, failed: 0, skipped: 1 });
        assert_eq!(report.verdict(), Verdict::Skipped);
        assert_eq!(report.notes, ["pins_by_io_uring: io_uring_setup: EPERM"]);
    }

    #[test]
    fn a_part_that_did_nothing_fails() {
        assert_eq!(Report::default().verdict(), Verdict::Failed);
    }

    #[test]
    fn a_failure_outweighs_a_skip() {
        let mut report = Report::skipped("no valgrind".into());
        assert_eq!(report.verdict(), Verdict::Skipped);
        report.check(false, || "broken".into());
        assert_eq!(report.verdict(), Verdict::Failed);
    }

    #[test]
    fn only_what_cannot_be_had_is_excused() {
        let mut report = Report::default();
        let absent = anyhow::Error::new(Unavailable("no mirror".into())).context("fetching");
        report.excuse(absent).unwrap();
        assert_eq!((report.tally.skipped, report.verdict()), (1, Verdict::Excused));
        assert_eq!(report.notes, ["not to be had here: fetching: no mirror"]);
        assert!(report.excuse(anyhow::anyhow!("a bug")).is_err());
        report.tally.skipped += 1;
        assert_eq!(report.verdict(), Verdict::Skipped, "one skip has no excuse");
        report.check(false, || "broken".into());
        assert_eq!(report.verdict(), Verdict::Failed);
    }

    #[test]
    fn the_steps_of_a_part_are_run_and_counted() {
        const PART: Part = Part {
            name: "fixture",
            about: "",
            work: Work::Checks(&[Step::cargo(&["--version"]), Step::cargo(&["no-such-command"])]),
        };
        let report = PART.run(&Workspace::here().unwrap());
        assert_eq!(report.tally, Tally { passed: 1, failed: 1, skipped: 0 });
    }

    #[test]
    fn an_error_on_the_way_fails_the_part_with_its_reason() {
        let part =
            Part { name: "fixture", about: "", work: Work::Call(|_| anyhow::bail!("no disk")) };
        let report = part.run(&Workspace::here().unwrap());
        assert_eq!((report.verdict(), report.notes), (Verdict::Failed, vec!["no disk".into()]));
    }

    #[test]
    fn a_step_with_a_target_folder_of_its_own_builds_there() {
        let workspace = Workspace::here().unwrap();
        let step = Step { args: &["test"], env: &[("A", "b")], target: Some("loom") };
        let shown = run::line(&step.command(&workspace));
        let folder = workspace.target().join("loom");
        assert_eq!(shown, format!("A=b CARGO_TARGET_DIR={} cargo test", folder.display()));
    }
}
