//! Random operations on the protection engine and on the naive model of the rules: every answer
//! must be the same.
//!
//! `MKEY_MODEL_OPERATIONS` sets about how many (400,000 if it is not set), `PROPTEST_RNG_SEED`
//! which.
#![allow(missing_docs)]

use mkey_conformance::model::{BLOCK, Mix, Tally, run};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;

/// Shown in hexadecimal, a line to an operation.
#[derive(Clone)]
struct Input(Vec<u8>);

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (size, blocks) = self.0.split_first().ok_or(std::fmt::Error)?;
        write!(f, "{size:02x}")?;
        for block in blocks.chunks(BLOCK) {
            let told = block.iter().rposition(|&byte| byte != 0).map_or(1, |last| last + 1);
            writeln!(f)?;
            block.iter().take(told).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

const DEFAULT: usize = 400_000;
/// Operations on one engine, on average.
const EACH: usize = 600;

/// Answers that a run of this size gives for sure. A new refusal belongs here.
const MUST_HAPPEN: &[&str] = &[
    "access: allowed",
    "access: several segments",
    "access: fault",
    "access: paused",
    "access: UnknownIndex",
    "access: StaleVariant",
    "access: LkeyAsRkey",
    "access: RkeyAsLkey",
    "access: NotValid",
    "access: OtherPd",
    "access: OtherQp",
    "access: RightMissing",
    "access: BeforeStart",
    "access: PastEnd",
    "access: Detached",
    "check: allowed",
    "check: PastEnd",
    "table full",
    "churn",
    "pending change",
    "held while pending",
    "pages gone while pending",
    "bind",
    "bind: Key(UnknownIndex",
    "bind: Key(StaleVariant",
    "bind: Key(OtherPd",
    "bind: Key(BeforeStart",
    "bind: Key(PastEnd",
    "bind: WrongKind",
    "bind: NotFree",
    "bind: ParentLacks",
    "bind: ZeroBasedParent",
    "bind: Rights",
    "bind: Empty",
    "invalidate",
    "invalidate: Key(NotValid",
    "invalidate: Key(OtherQp",
    "invalidate: Key(OtherPd",
    "invalidate: WrongKind",
    "invalidate: Held",
    "fast register",
    "fast register: NotFree",
    "fast register: Rights",
    "fast register: Entries",
    "fast register: Wraps",
    "fast register: WrongKind",
    "fast register: ParentLacks",
    "fast register: Key(PastEnd",
    "deregister: Held",
    "deregister: Unknown",
    "deregister region",
    "deregister window 1",
    "deregister window 2",
    "deregister frmr",
    "deregister null",
    "reregister",
    "reregister: Held",
    "reregister: Unknown",
    "advise",
    "advise: refused",
    "fault in",
    "fault in: too late",
];

#[test]
fn the_engine_answers_as_the_rules_do() {
    let operations = std::env::var("MKEY_MODEL_OPERATIONS")
        .map_or(DEFAULT, |text| text.parse().expect("MKEY_MODEL_OPERATIONS is a number"));
    let cases = operations.div_ceil(EACH).max(1);
    let tally = RefCell::new(Tally::default());
    let config = Config {
        cases: u32::try_from(cases).expect("fewer than 2^32 cases"),
        failure_persistence: None,
        ..Config::default()
    };
    let input = (any::<u8>(), vec(any::<[u8; BLOCK]>(), 1..2 * EACH)).prop_map(|(size, blocks)| {
        Input([size].into_iter().chain(blocks.into_iter().flatten()).collect())
    });
    TestRunner::new(config)
        .run(&input, |Input(data)| {
            tally.borrow_mut().add(run(&data, Mix::Everything));
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    let tally = tally.into_inner();
    println!("{} operations: {:#?}", tally.operations, tally.answers);
    assert!(tally.operations as usize >= operations / 10 * 8, "{}", tally.operations);
    if operations >= DEFAULT {
        for answer in MUST_HAPPEN {
            assert!(tally.answers.contains_key(*answer), "never happened: {answer}");
        }
    }
}
