//! All rule tests over two software RNICs that reach each other by packets only: what they find must
//! be what is found where both sides are in one process.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mkey_conformance::registry::{Outcome, RuleTest};
use mkey_conformance::rules;
use mkey_conformance::soft::Soft;
use std::process::ExitCode;

/// In this one two threads wait at a time, and each lets the virtual time go on while the other may
/// just be about to answer.
const OF_TWO_THREADS: [&str; 1] = ["r_at_06_atomics_of_one_device_exclude_each_other"];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = rules::all().into_iter().map(trial);
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn trial(test: RuleTest<Soft>) -> Trial {
    Trial::ignorable_test(test.name, move || {
        if OF_TWO_THREADS.contains(&test.name) {
            return Ok(Completion::ignored_with("its two threads share a virtual time"));
        }
        match test.outcome(&Soft::by_packets()) {
            Outcome::Held => Ok(Completion::Completed),
            other => Err(Failed::from(format!("{other:?}"))),
        }
    })
}
