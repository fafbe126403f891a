//! The command itself.

use crate::{ended, library, mkey_run, succeeds};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

const OWN: &str = env!("CARGO_BIN_EXE_mkey");

#[test]
fn without_a_program_it_shows_the_devices() {
    let text = succeeds(&mut mkey_run(&["--devices", "2", "--address", "fd00::7", "--only"]));
    for said in ["mkey0", "mkey1", "fd00::7", "RoCEv2", library().to_str().unwrap()] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
}

#[test]
fn what_is_no_program_ends_as_a_shell_has_it() {
    let (code, stdout, stderr) = ended(&mut mkey_run(&["--", "no-such-program-anywhere"]));
    let said = "mkey: no-such-program-anywhere: no such program\n";
    assert_eq!((code, &*stdout, &*stderr), (127, "", said));
    let (code, _, stderr) = ended(&mut mkey_run(&["--check", "/no/such/program"]));
    assert_eq!((code, &*stderr), (127, "mkey: /no/such/program: no such program\n"));
    let (code, _, stderr) = ended(&mut mkey_run(&["/etc/passwd"]));
    assert_eq!((code, &*stderr), (126, "mkey: /etc/passwd: not a program that may be run\n"));
}

#[test]
fn the_status_is_the_program_s() {
    for check in [&[][..], &["--check"]] {
        let arguments = [check, &["--", "sh", "-c", "echo $0; exit 42", "-x"]].concat();
        let (code, stdout, stderr) = ended(&mut mkey_run(&arguments));
        assert_eq!((code, &*stdout, &*stderr), (42, "-x\n", ""), "{check:?}");
        let arguments = [check, &["--", "sh", "-c", "kill -KILL $$"]].concat();
        let status = mkey_run(&arguments).status().unwrap();
        assert_eq!(status.signal(), Some(9), "{check:?}");
    }
}

/// A suite that is run with faults has them also where it uses the command itself.
#[test]
fn a_run_within_a_run_takes_what_it_is_not_told() {
    let inner = ["sh", "-c", "env | grep ^MKEY_ | sort"];
    let outer =
        ["--faults", "loss=1%", "--refusals", "-", "--mtu", "1024", "--only", "--pin", "none"];
    let own = ["--", OWN, "run", "--mtu", "512", "--"];
    let text = succeeds(&mut mkey_run(&[&outer[..], &own, &inner].concat()));
    for said in ["FAULTS=loss=1%", "REFUSALS=-", "MTU=512", "ONLY=1", "PIN=none"] {
        assert!(text.contains(said), "{said} is not in\n{text}");
    }
    assert!(!text.contains("MKEY_DIRECT"), "{text}");
}

/// The inner one begins no capture anew that the outer one has begun.
#[test]
fn a_run_within_a_run_goes_on_with_its_capture() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let script = format!("printf more >> {}; {OWN} run true", path.display());
    let arguments = ["--capture", path.to_str().unwrap(), "--", "sh", "-c", &script];
    succeeds(&mut mkey_run(&arguments));
    assert!(std::fs::read(&path).unwrap().ends_with(b"more"));
}

#[test]
fn what_can_not_be_meant_is_told() {
    let cases: [(&[&str], &str); 6] = [
        (&["--device", "3", "true"], "--device: there is no such option"),
        (&["--check"], "of which program?"),
        (&["--address", "0.0.0.0", "true"], "it names no single port"),
        (&["--address", "224.0.0.1", "true"], "it names no single port"),
        (&["--address", "255.255.255.255", "true"], "it names no single port"),
        (&["--faults", "loss=200%", "true"], "from 0% to 100%"),
    ];
    for (arguments, said) in cases {
        let (code, _, stderr) = ended(&mut mkey_run(arguments));
        assert!(code == 2 && stderr.contains(said), "{arguments:?}: {code}: {stderr}");
    }
}

#[test]
fn signals_reach_the_program() {
    for check in [&[][..], &["--check"]] {
        let script = "trap 'echo told; exit 7' USR1; echo ready; while :; do sleep 0.01; done";
        let arguments = [check, &["--", "sh", "-c", script]].concat();
        let mut child = mkey_run(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut ready = [0; 6];
        out.read_exact(&mut ready).unwrap();
        kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!((child.wait().unwrap().code(), &*rest), (Some(7), "told\n"), "{check:?}");
    }
}

#[test]
fn what_the_program_starts_finds_the_devices() {
    if !crate::has("what_the_program_starts_finds_the_devices", "ibv_devices") {
        return;
    }
    let arguments = ["--devices", "2", "--", "sh", "-c", "sh -c ibv_devices"];
    let text = succeeds(&mut mkey_run(&arguments));
    assert!(text.contains("mkey0") && text.contains("mkey1"), "{text}");
}

#[test]
fn a_program_that_opens_no_device_meets_nothing() {
    let mut command =
        mkey_run(&["--refusals", "-", "--", "sh", "-c", "ls /proc/self/task | wc -l"]);
    let (code, stdout, stderr) = ended(&mut command);
    assert_eq!((code, stdout.trim(), &*stderr), (0, "1", ""), "no thread, no words");
}

#[test]
fn a_capture_takes_the_place_of_nothing_but_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keep.txt");
    std::fs::write(&path, "what somebody keeps").unwrap();
    let arguments = ["--capture", path.to_str().unwrap(), "--", "true"];
    let (code, _, stderr) = ended(&mut mkey_run(&arguments));
    assert!(code == 1 && stderr.contains("this file is no capture"), "{code}: {stderr}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "what somebody keeps");
    // One that is there, of whatever tool, is begun anew.
    std::fs::write(&path, [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 9, 9]).unwrap();
    succeeds(&mut mkey_run(&arguments));
    assert_eq!(std::fs::read(&path).unwrap().len(), 24);
}

#[test]
fn a_folder_is_no_place_for_refusals_or_packets() {
    let folder = tempfile::tempdir().unwrap();
    for option in ["--refusals", "--capture"] {
        let arguments = [option, folder.path().to_str().unwrap(), "--", "echo", "begun"];
        let (code, stdout, stderr) = ended(&mut mkey_run(&arguments));
        assert_eq!((code, &*stdout), (1, ""), "{option}: {stderr}");
        assert!(stderr.contains("Is a directory"), "{option}: {stderr}");
    }
}

#[test]
fn a_library_that_is_not_there_is_said() {
    let (code, _, stderr) = ended(mkey_run(&["true"]).env("MKEY_PRELOAD", "/no/such/file.so"));
    assert_eq!(code, 1);
    assert!(stderr.starts_with("mkey: MKEY_PRELOAD=/no/such/file.so: "), "{stderr}");
}

#[test]
fn a_program_that_can_not_be_reached_is_told_from_others() {
    let Some(program) =
        crate::c::build_with("a_program_that_can_not_be_reached", STATIC, &["-static"])
    else {
        return;
    };
    let (code, stdout, stderr) = ended(&mut mkey_run(&[program.path()]));
    assert_eq!((code, &*stdout), (3, "here\n"));
    assert!(stderr.contains("it is linked statically"), "{stderr}");
}

const STATIC: &str = "#include <stdio.h>\nint main(void) { puts(\"here\"); return 3; }\n";
