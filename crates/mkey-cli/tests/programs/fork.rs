//! Children, `exec`, and the end of programs.

use crate::c::build_short;
use crate::{mkey_run, succeeds};

/// Forks while other threads are in the middle of verbs: no child may hang, whatever it does.
#[test]
fn a_child_opens_a_device_of_its_own_and_can_not_harm_its_parent_s() {
    let test = "a_child_opens_a_device_of_its_own_and_can_not_harm_its_parent_s";
    let Some(program) = build_short(test, include_str!("../c/fork.c")) else { return };
    let text = succeeds(&mut mkey_run(&[program.path()]));
    assert_eq!(text, "200 children\n");
}

#[test]
fn a_program_that_a_child_becomes_finds_the_devices() {
    let test = "a_program_that_a_child_becomes_finds_the_devices";
    if !crate::has(test, "ibv_devices") {
        return;
    }
    let source = "int main(void)\n{\n\tint status;\n\n\topen_first();\n\tif (fork() == 0) {\n\t\t\
                  execlp(\"ibv_devices\", \"ibv_devices\", NULL);\n\t\t_exit(9);\n\t}\n\t\
                  CHECK(wait(&status) > 0);\n\treturn WEXITSTATUS(status);\n}\n";
    let Some(program) = build_short(test, source) else { return };
    assert!(succeeds(&mut mkey_run(&[program.path()])).contains("mkey0"));
}

/// A program that ends in the middle of everything ends at once and with its own status.
#[test]
fn a_program_may_end_with_everything_open() {
    let test = "a_program_may_end_with_everything_open";
    let Some(program) = build_short(test, include_str!("../c/exit.c")) else { return };
    for (how, code) in [("exit", 5), ("_exit", 6), ("return", 7), ("thread", 8)] {
        let (got, stdout, stderr) = crate::ended(mkey_run(&[program.path()]).env("HOW", how));
        assert_eq!((got, &*stdout, &*stderr), (code, "", ""), "{how}");
    }
}
