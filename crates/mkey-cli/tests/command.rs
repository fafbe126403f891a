//! The command line: exit codes, what goes where, closed pipes.

mod common;

use common::{mkey, run};
use std::io::Read;
use std::process::Stdio;

#[test]
fn an_unknown_device_lists_those_there_are() {
    let (code, stdout, stderr) = run(&mut mkey(&["bench", "--device", "mlx5_0"]));
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("no device \"mlx5_0\"") && stderr.contains("mkey0"), "{stderr}");
}

#[test]
fn wrong_arguments_are_2_and_on_standard_error() {
    for arguments in [
        &["bench", "--command-cost", "16"][..],
        &["bench", "--memory", "1"],
        &["bench", "--pin", "glue"],
        &["bench", "--json", "-", "--csv", "-"],
        &["fly"],
        &[],
    ] {
        let (code, stdout, stderr) = run(&mut mkey(arguments));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(!stderr.is_empty());
    }
}

#[test]
fn arguments_that_no_command_takes_are_told_with_the_reason() {
    for (arguments, part) in [
        (&["pcap", "--top", "-1", "x.pcap"][..], "-1 is a negative number"),
        (
            &["explain", "EFAULT", "--pid", "1", "--addr", "0", "--len", "-5"],
            "-5 is a negative number",
        ),
        (&["pcap", "--lang", "zh", "x.pcap"], "--lang is for doctor, explain, monitor and trace"),
        (&["config", "switch", "--vendor", "eos", "--lang=zh"], "--lang is for doctor"),
    ] {
        let (code, stdout, stderr) = run(&mut mkey(arguments));
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(stderr.contains(part) && !stderr.contains("'-- "), "{arguments:?}: {stderr}");
    }
    // What else is not known keeps its advice.
    let (_, _, stderr) = run(&mut mkey(&["pcap", "--jsn", "-", "x.pcap"]));
    assert!(stderr.contains("'--json'"), "{stderr}");
}

#[test]
fn no_message_steers_the_terminal() {
    let (code, _, stderr) = run(&mut mkey(&["pcap", "--json", "/nonexistent/\u{1b}[31m", "x"]));
    assert!(code == 1 && !stderr.contains('\u{1b}'), "{stderr:?}");
}

#[test]
fn an_output_that_can_not_be_written_is_1_before_anything_is_measured() {
    let (code, stdout, stderr) = run(&mut mkey(&["bench", "--json", "/nonexistent/run.json"]));
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("/nonexistent/run.json"), "{stderr}");
}

#[test]
fn help_version_completions_and_manual_are_results() {
    for (arguments, word) in [
        (&["--help"][..], "bench"),
        (&["bench", "--help"], "--command-cost 16us"),
        (&["--version"], "mkey "),
        (&["completions", "bash"], "_mkey"),
        (&["completions", "zsh"], "#compdef mkey"),
        (&["config", "switch", "--help"], "mkey config switch --vendor sonic --dscp-map"),
        (&["config", "check", "--help"], "mkey config check --host --switch running-config.txt"),
        (&["doctor", "--help"], "mkey doctor --merge reports"),
        (&["explain", "--help"], "dmesg | mkey explain"),
        (&["monitor", "--help"], "mkey monitor --prometheus 127.0.0.1:9180"),
        (&["pcap", "--help"], "zcat trace.pcap.gz | mkey pcap -"),
        (&["man"], ".TH"),
    ] {
        let (code, stdout, stderr) = run(&mut mkey(arguments));
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments:?}");
        assert!(stdout.contains(word), "{arguments:?}: {stdout}");
        assert!(!stdout.contains('\u{1b}'), "colour without a terminal");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let arguments = [
        &["man"][..],
        &["completions", "fish"],
        &["explain", "EINVAL"],
        &["doctor"],
        &["doctor", "--json"],
        &["config", "switch", "--vendor", "eos"],
        &["monitor", "--once", "--interval", "100ms"],
        &["monitor", "--json", "--interval", "100ms"],
        &["bench", "--memory", "2MiB", "--time", "100ms", "--no-reserve"],
        &["bench", "--memory", "2MiB", "--time", "100ms", "--no-reserve", "--json", "-"],
    ];
    for arguments in arguments {
        let mut child =
            mkey(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let status = child.wait().unwrap();
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn help_that_can_not_be_written_is_1() {
    for arguments in [&["--help"][..], &["--version"], &["doctor", "--help"], &["pcap", "-h"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (code, _, stderr) = run(mkey(arguments).stdout(full));
        assert_eq!(code, 1, "{arguments:?}");
        assert!(stderr.starts_with("mkey: standard output: "), "{arguments:?}: {stderr}");
    }
}

/// A limit of the size of files stands for a full file system.
#[test]
fn a_report_that_can_not_be_written_leaves_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.json");
    for arguments in [
        "explain EINVAL --json \"$1\"",
        "config host --json \"$1\"",
        "config switch --vendor eos --json \"$1\"",
        "devices --json \"$1\"",
    ] {
        std::fs::write(&path, "old").unwrap();
        let line = format!("ulimit -f 0; exec \"$0\" {arguments}");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &line, env!("CARGO_BIN_EXE_mkey")]).arg(&path).stdin(Stdio::null());
        let (code, _, stderr) = run(&mut shell);
        assert_eq!(code, 1, "{arguments}: {stderr}");
        assert!(stderr.contains("report.json: File too large"), "{arguments}: {stderr}");
        assert!(!stderr.contains(".mkey-"), "{arguments}: {stderr}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old", "{arguments}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{arguments}");
    }
}
