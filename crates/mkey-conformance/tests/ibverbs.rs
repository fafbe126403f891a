//! All rule tests over a real device: `rxe0`, or the one that `MKEY_DEVICE` names. They are ignored
//! unless asked for, and run one after the other.
//!
//! A test that deviates as the table of deviations says passes. Where results of the device are
//! recorded, each test has to end as it is recorded.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mkey_conformance::ibverbs::Ibverbs;
use mkey_conformance::registry::{Outcome, RuleTest};
use mkey_conformance::results::{self, Seen};
use mkey_conformance::rules;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let device = Ibverbs::new(std::env::var("MKEY_DEVICE").unwrap_or_else(|_| "rxe0".to_owned()));
    let trials = rules::all().into_iter().map(|test| trial(test, device.clone()));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn trial(test: RuleTest<Ibverbs>, device: Ibverbs) -> Trial {
    Trial::ignorable_test(test.name, move || run(&test, &device)).with_ignored_flag(true)
}

fn run(test: &RuleTest<Ibverbs>, device: &Ibverbs) -> Result<Completion, Failed> {
    let outcome = test.outcome(device);
    let seen = Seen::of(&outcome)?;
    if let Some(recorded) = results::of(device.driver(), &device.kernel())? {
        let before = recorded.tests.get(test.name);
        if before != Some(&seen) {
            let before = before.map_or("nothing".to_owned(), Seen::to_string);
            return Err(format!(
                "{seen}, but recorded is: {before}; mend it, or record anew (CONTRIBUTING.md)"
            )
            .into());
        }
    }
    Ok(match outcome {
        Outcome::NotOffered(what) => Completion::ignored_with(format!("the device lacks {what}")),
        Outcome::NotRun(known) => Completion::ignored_with(format!("not run: {}", known.does)),
        _ => Completion::Completed,
    })
}
