//! What `--check` sees, and that it does not pass what it has not seen; how the library is loaded.

use crate::c::{build_short, build_with};
use crate::{ended, library, mkey_run, succeeds};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, test_kill_process, waitpid};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

#[test]
fn a_region_that_was_registered_anew_is_where_it_is_now() {
    let test = "a_region_that_was_registered_anew_is_where_it_is_now";
    if let Err(unavailable) = mkey_os::events::process() {
        return crate::common::skipped(test, &unavailable.to_string());
    }
    let Some(program) = build_short(test, include_str!("../c/moved.c")) else { return };
    let (code, _, stderr) = ended(mkey_run(&["--check"]).arg(program.path()));
    let lines: Vec<_> = stderr.lines().collect();
    let [freed, "mkey: 1 finding"] = &*lines else { panic!("{stderr}") };
    assert!(code == 1 && freed.contains("as part of 4096 bytes"), "{code} {freed}");
    // On-demand memory may go, before it is registered anew and after.
    let on_demand = ended(mkey_run(&["--check"]).arg(program.path()).env("ODP", "1"));
    assert_eq!(on_demand, (0, String::new(), String::new()));
}

#[test]
fn a_file_of_the_program_s_is_not_written_to() {
    let test = "a_file_of_the_program_s_is_not_written_to";
    let Some(program) = build_short(test, include_str!("../c/takes_over.c")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (told, own) = (folder.path().join("told"), folder.path().join("own"));
    let mut command = mkey_run(&["--check", "--refusals"]);
    let (code, _, stderr) = ended(command.arg(&told).arg(program.path()).arg(&own));
    // Nothing of it was lost either.
    assert_eq!((code, &*stderr), (1, "mkey: 2 findings\n"));
    assert_eq!(fs::read_to_string(told).unwrap().lines().count(), 2);
    assert_eq!(fs::read_to_string(own).unwrap(), "");
}

#[test]
fn what_was_not_seen_does_not_pass() {
    let test = "what_was_not_seen_does_not_pass";
    let source = "int main(void)\n{\n\topen_first();\n\tif (getenv(\"WELL\"))\n\t\treturn 0;\n\t\
                  if (fork() == 0)\n\t\topen_first();\n\telse\n\t\twait(NULL);\n\t_exit(0);\n}\n";
    let Some(program) = build_short(test, source) else { return };
    let (code, _, stderr) = ended(mkey_run(&["--check"]).arg(program.path()));
    let lines: Vec<_> = stderr.lines().collect();
    let [one, two, "mkey: 2 processes could not be checked to the end"] = &*lines else {
        panic!("{stderr}")
    };
    assert!([one, two].iter().all(|line| line.contains("did not end by exit()")), "{stderr}");
    assert_eq!(code, 1);
    let well = ended(mkey_run(&["--check"]).arg(program.path()).env("WELL", "1"));
    assert_eq!(well, (0, String::new(), String::new()));
    // Nothing to see is no failure, and is said.
    let said = "mkey: nothing was checked: no device of mkey's was opened\n";
    assert_eq!(ended(&mut mkey_run(&["--check", "true"])), (0, String::new(), said.to_owned()));
}

#[test]
fn a_program_that_can_not_be_reached_does_not_pass() {
    let source = "int main(void) { return 0; }\n";
    let test = "a_program_that_can_not_be_reached_does_not_pass";
    let Some(program) = build_with(test, source, &["-static"]) else { return };
    let (code, _, stderr) = ended(mkey_run(&["--check"]).arg(program.path()));
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("mkey: nothing was checked: it is linked statically"), "{stderr}");
}

/// As under `nohup`.
#[test]
fn what_was_ignored_stays_ignored() {
    for check in ["", "--check"] {
        let script = format!(
            "trap '' HUP; exec {} run {check} -- sh -c 'kill -HUP $$; echo lives'",
            env!("CARGO_BIN_EXE_mkey")
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("MKEY_PRELOAD", library());
        assert_eq!(succeeds(&mut command), "lives\n", "{check:?}");
    }
}

/// A program that tells its number and then what signals it gets.
fn started(script: &str) -> (Child, Pid, BufReader<std::process::ChildStdout>) {
    let mut command = mkey_run(&["--check", "--", "sh", "-c", script]);
    // Of its own group, so that signals to it are none of the terminal's.
    let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    (child, Pid::from_raw(line.trim().parse().unwrap()).unwrap(), out)
}

#[test]
fn more_signals_reach_a_checked_program() {
    for (name, signal) in
        [("ALRM", Signal::ALARM), ("WINCH", Signal::WINCH), ("CONT", Signal::CONT)]
    {
        let script =
            format!("trap 'echo {name}; exit 7' {name}; echo $$; while :; do sleep 0.01; done");
        let (mut child, _, mut out) = started(&script);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!((child.wait().unwrap().code(), rest), (Some(7), format!("{name}\n")));
    }
}

#[test]
fn a_checked_program_stops_and_goes_on_with_who_started_it() {
    let script = "trap 'exit 7' USR1; echo $$; while :; do sleep 0.01; done";
    let (mut child, program, _out) = started(script);
    let mkey = Pid::from_child(&child);
    kill_process(mkey, Signal::TSTP).unwrap();
    let (_, status) = waitpid(Some(mkey), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped(), "{status:?}");
    // It was told before.
    let state = || {
        let status = fs::read_to_string(format!("/proc/{}/stat", program.as_raw_pid())).unwrap();
        status.rsplit(')').next().unwrap().trim().chars().next().unwrap()
    };
    while state() != 'T' {
        std::thread::yield_now();
    }
    kill_process(mkey, Signal::CONT).unwrap();
    kill_process(mkey, Signal::USR1).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert!(test_kill_process(program).is_err(), "nothing is left");
}

#[test]
fn a_library_that_the_loader_can_not_be_told_of_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("a place");
    fs::create_dir(&place).unwrap();
    let copy = place.join("libmkey_preload.so");
    fs::copy(library(), &copy).unwrap();
    let (code, stdout, stderr) = ended(mkey_run(&["echo", "begun"]).env("MKEY_PRELOAD", &copy));
    assert_eq!((code, &*stdout), (1, ""), "{stderr}");
    assert!(stderr.contains("the loader takes no library whose path has a space"), "{stderr}");
}

/// A library that needs one that is not installed ends every program that it is loaded into.
#[test]
fn a_library_that_can_not_be_loaded_is_told_before_the_program_begins() {
    let test = "a_library_that_can_not_be_loaded_is_told_before_the_program_begins";
    let folder = tempfile::tempdir().unwrap();
    let needed = folder.path().join("libibverbs.so.1");
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let make = |arguments: &[&str]| {
        Command::new(&cc)
            .args(["-shared", "-x", "c", "/dev/null", "-x", "none"])
            .args(arguments)
            .status()
    };
    let (needed, library) = (needed.to_str().unwrap(), folder.path().join("library.so"));
    match make(&["-Wl,-soname,libibverbs.so.1-not-there", "-o", needed]) {
        Err(error) => return crate::common::skipped(test, &format!("{cc}: {error}")),
        Ok(status) => assert!(status.success()),
    }
    assert!(
        make(&["-Wl,--no-as-needed", needed, "-o", library.to_str().unwrap()]).unwrap().success()
    );
    let (code, stdout, stderr) = ended(mkey_run(&["echo", "begun"]).env("MKEY_PRELOAD", &library));
    assert_eq!((code, &*stdout), (1, ""), "{stderr}");
    for said in ["can not be loaded", "libibverbs.so.1-not-there", "package libibverbs1"] {
        assert!(stderr.contains(said), "{said:?} is not in\n{stderr}");
    }
}
