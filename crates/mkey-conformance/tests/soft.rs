//! All rule tests over the software RNIC, each under its own name, and the page made of them.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mkey_conformance::fixture::ALL;
use mkey_conformance::matrix::{SECTIONS, UNTESTED};
use mkey_conformance::pair::Pair;
use mkey_conformance::registry::{Outcome, RuleTest};
use mkey_conformance::soft::Soft;
use mkey_conformance::{document, rules};
use mkey_core::device::MwKind;
use mkey_core::rights::Rights;
use mkey_core::status::{WcOpcode, WcStatus};
use std::collections::HashSet;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials: Vec<Trial> = rules::all().into_iter().map(trial).collect();
    trials.push(Trial::test("every_rule_has_a_test_or_a_reason", every_rule));
    trials.push(Trial::test("a_failed_bind_completes_as_a_bind", failed_bind));
    trials.push(Trial::test("the_page_is_up_to_date", page));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(test: RuleTest<Soft>) -> Trial {
    Trial::ignorable_test(test.name, move || match test.outcome(&Soft::new()) {
        Outcome::Held => Ok(Completion::Completed),
        Outcome::Broken(why) => Err(Failed::from(why)),
        // The software RNIC is to offer everything that a rule is about, and keep it.
        Outcome::NotOffered(what) => Err(Failed::from(format!("the device lacks {what}"))),
        other => Err(Failed::from(format!("{other:?}"))),
    })
}

fn every_rule() -> Result<(), Failed> {
    let tests = rules::all::<Soft>();
    let mut names = HashSet::new();
    let mut tested = HashSet::new();
    for test in &tests {
        if !names.insert(test.name) {
            return Err(format!("{} is listed twice", test.name).into());
        }
        tested.extend(test.rules());
    }
    let all: HashSet<String> =
        SECTIONS.iter().flat_map(|section| section.rules).map(|(id, _)| (*id).to_owned()).collect();
    if let Some(unknown) = tested.difference(&all).next() {
        return Err(format!("a test is named after {unknown}, which is no rule").into());
    }
    let excused: HashSet<String> = UNTESTED.iter().map(|(id, _)| (*id).to_owned()).collect();
    for id in &all {
        match (tested.contains(id), excused.contains(id)) {
            (false, false) => return Err(format!("{id} has neither test nor reason").into()),
            (true, true) => return Err(format!("{id} has a test and a reason for none").into()),
            _ => {}
        }
    }
    if tested.len() < 180 {
        return Err(format!("{} rules of {} have a test", tested.len(), all.len()).into());
    }
    Ok(())
}

/// The opcode of work that failed is not defined; programs look at it all the same.
fn failed_bind() -> Result<(), Failed> {
    let soft = Soft::new();
    let p = Pair::rc(&soft);
    let (mw, mr) = (p.b.mw(MwKind::Type2), p.b.mr(64, ALL));
    let failed = p.b.run(mw.bind_to(&mr, 0, 64, Rights::REMOTE_READ), &[]);
    match (failed.status, failed.opcode) {
        (WcStatus::MwBindErr, WcOpcode::BindMw) => Ok(()),
        _ => Err(format!("{failed:?}").into()),
    }
}

fn page() -> Result<(), Failed> {
    let made = document::document()?;
    let committed = include_str!("../../../docs/conformance.md");
    let differs = made.lines().zip(committed.lines()).find(|(made, committed)| made != committed);
    if made == committed {
        return Ok(());
    }
    Err(format!(
        "docs/conformance.md is not what the tests show; \
         cargo run -p mkey-conformance --bin conformance-doc -- --write\n{differs:#?}"
    )
    .into())
}
