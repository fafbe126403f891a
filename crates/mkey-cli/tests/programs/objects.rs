//! Objects of several devices, what goes beyond the first verbs, and what is left of it all.

use crate::c::build_short;
use crate::{mkey_run, succeeds};

#[test]
fn objects_of_another_open_device_are_strangers() {
    let test = "objects_of_another_open_device_are_strangers";
    let Some(program) = build_short(test, include_str!("../c/strangers.c")) else { return };
    assert_eq!(succeeds(&mut mkey_run(&[program.path()])), "well\n");
}

#[test]
fn extended_verbs_keep_to_their_manual_pages() {
    let test = "extended_verbs_keep_to_their_manual_pages";
    let Some(program) = build_short(test, include_str!("../c/extended.c")) else { return };
    assert_eq!(succeeds(&mut mkey_run(&[program.path()])), "well\n");
}

#[test]
fn nothing_stays_of_a_device_that_was_closed() {
    let test = "nothing_stays_of_a_device_that_was_closed";
    let Some(program) = build_short(test, include_str!("../c/rounds.c")) else { return };
    assert_eq!(succeeds(&mut mkey_run(&[program.path()])), "well\n");
}
