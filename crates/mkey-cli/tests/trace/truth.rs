//! Generated programs that do what is known: exactly that is found.

use crate::c::build_short;
use crate::pattern::Pattern;
use crate::{common, mkey_trace, read};

/// Records one program of a seed.
fn found_as_it_is(test: &str, seed: u64) {
    let pattern = Pattern::random(seed);
    let Some(program) = build_short(test, &pattern.source()) else { return };
    let file = program.path().with_file_name("recording");
    let mut command = mkey_trace(&["--output".as_ref(), file.as_os_str(), "--".as_ref()]);
    let (code, stdout, stderr) = common::run(command.arg(program.path()));
    assert_eq!((code, &*stdout), (0, "done\n"), "{stderr}");
    println!("{pattern:?}");
    pattern.check(&read(&file));
}

#[test]
fn a_program_of_a_known_pattern_is_found_to_do_just_that() {
    let test = "a_program_of_a_known_pattern_is_found_to_do_just_that";
    for seed in 1..=6 {
        found_as_it_is(test, seed);
    }
}
