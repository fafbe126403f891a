//! Programs that do what they must not.

use crate::c::build_short;
use crate::{mkey_run, succeeds};

#[test]
fn what_has_ended_is_refused_and_nothing_crashes() {
    let test = "what_has_ended_is_refused_and_nothing_crashes";
    let Some(program) = build_short(test, include_str!("../c/abuse.c")) else { return };
    assert_eq!(succeeds(&mut mkey_run(&[program.path()])), "well\n");
}
