//! The command: its outputs and exit codes.

use crate::common::{mkey, run};
use crate::trace::{A, B, LITTLE, ack, pcap, send};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Stdio;

fn file() -> Vec<u8> {
    let packets = [send(A, B, 1), ack(B, A, 1), send(A, B, 1), send(A, B, 2)];
    let frames: Vec<_> =
        (1..).zip(&packets).map(|(n, sent)| (n * 1_000_000, sent.ethernet())).collect();
    pcap(LITTLE, true, 1, &frames)
}

fn written(folder: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join("trace.pcap");
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn trouble_in_the_traffic_is_a_result_and_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder, &file());
    let (code, stdout, stderr) = run(&mut mkey(&["pcap", path.to_str().unwrap()]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("1 of 3 request packets from 192.0.2.1 were sent again"), "{stdout}");
    assert!(stdout.contains("RC 192.0.2.1 QP 0x11 <-> 192.0.2.2 QP 0x22"), "{stdout}");
    assert!(!stdout.contains('\u{1b}'), "colour without a terminal");
    assert!(stdout.lines().all(|line| line.len() <= 120), "{stdout}");
}

#[test]
fn standard_input_is_read_as_a_file_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder, &file());
    let (_, of_file, _) = run(&mut mkey(&["pcap", path.to_str().unwrap()]));
    let mut child =
        mkey(&["pcap", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for piece in file().chunks(11) {
        stdin.write_all(piece).unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.replace("standard input", path.to_str().unwrap()), of_file);
}

#[test]
fn a_file_that_is_cut_is_1_after_the_summary_of_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let whole = file();
    let path = written(&folder, &whole[..whole.len() - 1]);
    let name = path.to_str().unwrap();
    let (code, stdout, stderr) = run(&mut mkey(&["pcap", name]));
    assert_eq!(code, 1);
    assert!(stdout.contains("3 frames"), "{stdout}");
    let at = whole.len() - (14 + 20 + 8 + 12 + 64 + 4) - 16;
    assert!(stderr.contains(&format!("{name}: at byte {at}: the file is cut: ")), "{stderr}");
    // JSON, too.
    let (code, stdout, stderr) = run(&mut mkey(&["pcap", name, "--json", "-"]));
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, report["damage"]["offset"].as_u64()), (1, Some(at as u64)));
    assert!(stderr.contains("at byte"), "{stderr}");
}

#[test]
fn what_is_no_capture_or_is_not_there_is_1_and_wrong_words_are_2() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder, b"no capture at all, but long enough");
    for (arguments, code, word) in [
        (&["pcap", path.to_str().unwrap()][..], 1, "neither pcap nor pcapng"),
        (&["pcap", "/nonexistent/x.pcap"], 1, "/nonexistent/x.pcap"),
        (&["pcap", folder.path().to_str().unwrap()], 1, "at byte 0"),
        (&["pcap"], 2, "FILE"),
        (&["pcap", "-", "--port", "70000"], 2, "70000"),
    ] {
        let (seen, stdout, stderr) = run(&mut mkey(arguments));
        assert_eq!((seen, stdout.as_str()), (code, ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(word), "{arguments:?}: {stderr}");
    }
}

#[test]
fn another_port_and_icrcs_that_are_not_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = file();
    let path = written(&folder, &bytes);
    let (code, stdout, _) = run(&mut mkey(&["pcap", path.to_str().unwrap(), "--port", "4792"]));
    assert_eq!(code, 0);
    assert!(stdout.contains("0 RoCE packets") && stdout.contains("4 others"), "{stdout}");
    assert!(stdout.contains("no packet to UDP port 4792 is in the capture"), "{stdout}");
    assert!(!stdout.contains("mirror port"), "{stdout}");
    let (code, _, stderr) = run(&mut mkey(&["pcap", path.to_str().unwrap(), "--port", "0"]));
    assert!(code == 2 && stderr.contains("--port"), "{stderr}");
    // The last byte is of the last packet's ICRC.
    *bytes.last_mut().unwrap() ^= 1;
    let path = written(&folder, &bytes);
    let (_, stdout, _) = run(&mut mkey(&["pcap", path.to_str().unwrap()]));
    assert!(stdout.contains("ICRC: 3 right, 1 wrong, 0 not checkable"), "{stdout}");
    let (_, stdout, _) = run(&mut mkey(&["pcap", path.to_str().unwrap(), "--no-icrc"]));
    assert!(stdout.contains("ICRC: 0 right, 0 wrong, 4 not checkable"), "{stdout}");
}

#[test]
fn the_capture_is_never_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder, &file());
    let name = path.to_str().unwrap();
    let link = folder.path().join("link.pcap");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for output in [name, link.to_str().unwrap()] {
        for input in [name, "-"] {
            let mut command = mkey(&["pcap", "--json", output, input]);
            if input == "-" {
                command.stdin(std::fs::File::open(&path).unwrap());
            }
            let (code, stdout, stderr) = run(&mut command);
            assert_eq!((code, stdout.as_str()), (2, ""), "{output} {input}");
            assert!(stderr.contains("this is what is read"), "{stderr}");
            assert_eq!(std::fs::read(&path).unwrap(), file());
        }
    }
}

/// A pipe that nobody ever writes to stands for a capture that takes long to read.
#[test]
fn an_output_that_can_not_be_written_is_refused_before_the_capture_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().to_str().unwrap();
    let mut command = mkey(&["pcap", "--json", output, "-"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _silent = child.stdin.take();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(stderr.contains(output) && stderr.contains("directory"), "{stderr}");
}

#[test]
fn a_report_goes_to_devices_and_pipes_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder, &file());
    let name = path.to_str().unwrap();
    let (code, stdout, _) = run(&mut mkey(&["pcap", name, "--json", "/dev/stdout"]));
    assert!(code == 0 && stdout.contains("\"schema\": 1"), "{stdout}");
    let (code, _, stderr) = run(&mut mkey(&["pcap", name, "--json", "/dev/full"]));
    assert!(code == 1 && stderr.contains("/dev/full"), "{stderr}");
}

#[test]
fn as_many_pairs_as_are_asked_for_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let frames: Vec<_> = (1..5).map(|n| (n, send(A, (B.0, n as u32), 1).ethernet())).collect();
    let path = written(&folder, &pcap(LITTLE, true, 1, &frames));
    let (code, stdout, _) = run(&mut mkey(&["pcap", path.to_str().unwrap(), "--top", "3"]));
    assert_eq!(code, 0);
    assert_eq!(stdout.matches("RC 192.0.2.1 QP ? -> 192.0.2.2 QP").count(), 3, "{stdout}");
    assert!(stdout.contains("1 more pair"), "{stdout}");
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder, &file());
    for more in [&[][..], &["--json", "-"]] {
        let arguments = [&["pcap", path.to_str().unwrap()], more].concat();
        let mut child =
            mkey(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn the_name_in_the_json_opens_the_file() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    for name in [&b"\x1b[31m.pcap"[..], b"\xff\x1b.pcap"] {
        let path = folder.path().join(std::ffi::OsStr::from_bytes(name));
        std::fs::write(&path, file()).unwrap();
        let (code, stdout, _) = run(mkey(&["pcap", "--json", "-"]).arg(&path));
        assert!(code == 0 && !stdout.contains('\u{1b}'), "{stdout}");
        let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        match path.to_str() {
            Some(path) => {
                assert_eq!(report["file"], path);
                assert!(report.get("file_name_bytes").is_none());
            }
            None => {
                let bytes = report["file_name_bytes"].as_array().unwrap();
                let bytes: Vec<u8> = bytes.iter().map(|b| b.as_u64().unwrap() as u8).collect();
                assert_eq!(bytes, path.as_os_str().as_bytes());
            }
        }
        let (_, stdout, _) = run(mkey(&["pcap"]).arg(&path));
        assert!(stdout.contains("\\u{1b}") && !stdout.contains('\u{1b}'), "{stdout}");
    }
}

/// Sends SIGINT to a command whose input stays open, once or until it has ended; how it ended.
fn interrupted(bytes: &[u8], once: bool) -> std::process::Output {
    use rustix::process::{Pid, Signal, kill_process};
    let mut child = mkey(&["pcap", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(bytes).unwrap();
    // It takes the signal once it has a handler for it.
    let status = format!("/proc/{}/status", child.id());
    let caught = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 0b10 != 0
    };
    while !caught() {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    while !once && child.try_wait().unwrap().is_none() {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        std::thread::yield_now();
    }
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    output
}

#[test]
fn an_interrupt_ends_a_live_capture_with_its_report() {
    let whole = file();
    // The last frame has come in part.
    let output = interrupted(&whole[..whole.len() - 5], true);
    let [stdout, stderr] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stdout.contains("3 frames") && stderr.contains("stopped"), "{stdout}{stderr}");
    assert!(!stdout.contains("could not be read"), "{stdout}");
    // Of nothing there is no report.
    use std::os::unix::process::ExitStatusExt;
    let output = interrupted(b"", true);
    assert_eq!((output.status.signal(), output.stdout.as_slice()), (Some(2), &b""[..]));
    // The second ends it at once.
    let output = interrupted(&whole, false);
    assert_eq!((output.status.signal(), output.stdout.as_slice()), (Some(2), &b""[..]));
}
