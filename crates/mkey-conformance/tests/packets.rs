//! All rule tests over two software RNICs that reach each other by packets only: what they find must
//! be what is found where both sides are in one process.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mkey_conformance::registry::Outcome;
use mkey_conformance::rules;
use mkey_conformance::soft::Soft;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trial = |test: mkey_conformance::registry::RuleTest<Soft>| {
        Trial::ignorable_test(test.name, move || match test.outcome(&Soft::by_packets()) {
            Outcome::Held => Ok(Completion::Completed),
            Outcome::Broken(why) => Err(Failed::from(why)),
            other => Err(Failed::from(format!("{other:?}"))),
        })
    };
    libtest_mimic::run(&arguments, rules::all().into_iter().map(trial).collect()).exit_code()
}
