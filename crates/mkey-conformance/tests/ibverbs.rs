//! All rule tests over a real device: `rxe0`, or the one that `MKEY_DEVICE` names. They are ignored
//! unless asked for, and run one after the other.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mkey_conformance::ibverbs::Ibverbs;
use mkey_conformance::registry::{Outcome, RuleTest};
use mkey_conformance::rules;
use std::process::ExitCode;

/// Tests that harm the machine of a driver, and how: they are not run over it.
const HARMFUL: [(&str, &str, &str); 3] = [
    ("rxe", "r_inv_06_free_type_2_window", "the kernel follows a null pointer and panics"),
    ("rxe", "r_mwu_13_type_2_ends_with_its_queue_pair", "destroying the queue pair takes 51 s"),
    ("rxe", "r_mwu_14_a_new_queue_pair_does_not_inherit_the_window", "each destruction takes 51 s"),
];

fn main() -> ExitCode {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let name = std::env::var("MKEY_DEVICE").unwrap_or_else(|_| "rxe0".to_owned());
    let trials = rules::all().into_iter().map(|test| trial(test, Ibverbs::new(&name)));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn trial(test: RuleTest<Ibverbs>, device: Ibverbs) -> Trial {
    let name = test.name;
    let run = move || {
        let driver = device.driver();
        let harm = HARMFUL.iter().find(|(of, test, _)| *of == driver && *test == name);
        if let Some((.., harm)) = harm {
            return Ok(Completion::ignored_with(format!("would harm: {harm}")));
        }
        outcome(&test, &device)
    };
    Trial::ignorable_test(name, run).with_ignored_flag(true)
}

fn outcome(test: &RuleTest<Ibverbs>, device: &Ibverbs) -> Result<Completion, Failed> {
    match test.outcome(device) {
        Outcome::Held => Ok(Completion::Completed),
        Outcome::Broken(why) => Err(Failed::from(why)),
        Outcome::NotOffered(what) => Ok(Completion::ignored_with(format!("not offered: {what}"))),
    }
}
