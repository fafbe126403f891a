//! All rule tests over a real device: `rxe0`, or the one that `MKEY_DEVICE` names. They are ignored
//! unless asked for, and run one after the other.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mkey_conformance::ibverbs::Ibverbs;
use mkey_conformance::registry::{Outcome, RuleTest};
use mkey_conformance::rules;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let name = std::env::var("MKEY_DEVICE").unwrap_or_else(|_| "rxe0".to_owned());
    let trials = rules::all().into_iter().map(|test| trial(test, Ibverbs::new(&name)));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn trial(test: RuleTest<Ibverbs>, device: Ibverbs) -> Trial {
    let name = test.name;
    let run = move || match test.outcome(&device) {
        Outcome::Held => Ok(Completion::Completed),
        Outcome::Broken(why) => Err(Failed::from(why)),
        Outcome::NotOffered(what) => Ok(Completion::ignored_with(format!("not offered: {what}"))),
    };
    Trial::ignorable_test(name, run).with_ignored_flag(true)
}
