//! `--check`: the program runs beside this one, and what it left behind decides.

use super::launch::not_begun;
use crate::exit::End;
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::fs;
use std::io::{Write, stderr};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

/// Runs it to the end.
///
/// # Errors
/// How the program ended, if not well; else `Failed` if there were findings.
pub fn run(mut command: Command) -> Result<(), End> {
    let folder = tempfile::tempdir()
        .map_err(|error| End::failed(format_args!("a folder for the findings: {error}")))?;
    let path = folder.path().join("findings");
    command.env("MKEY_FINDINGS", &path);
    let told = command.get_envs().any(|(name, value)| name == "MKEY_REFUSALS" && value.is_some());
    let program = command.get_program().to_owned();
    // Before the program begins, so that none is missed.
    let signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])
        .map_err(|error| End::failed(format_args!("signals: {error}")))?;
    let child = command.spawn().map_err(|error| not_begun(&program, &error))?;
    let status = wait(child, signals)
        .map_err(|error| End::failed(format_args!("{}: {error}", program.display())))?;
    // A program that opened no device has written none.
    let findings = fs::read_to_string(&path).unwrap_or_default();
    let findings: Vec<_> = findings.lines().filter_map(finding).collect();
    if !told {
        for (kind, words) in &findings {
            // If standard error is closed there is nobody to tell.
            let _ = writeln!(stderr(), "mkey: {kind}: {words}");
        }
    }
    match (ended(status), findings.len()) {
        (Some(end), _) => Err(end),
        (None, 0) => Ok(()),
        (None, 1) => Err(End::failed("1 finding")),
        (None, count) => Err(End::failed(format_args!("{count} findings"))),
    }
}

/// The kind and the words of a line; `None` if it is no finding.
fn finding(line: &str) -> Option<(&str, &str)> {
    line.split_once('\t').filter(|(kind, _)| *kind != "end")
}

/// Waits for the program, and passes signals on. Those of the terminal reach it by themselves.
fn wait(mut child: Child, mut signals: Signals) -> std::io::Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    let handle = signals.handle();
    let passing = std::thread::spawn(move || {
        for signal in signals.forever() {
            if matches!(signal, SIGINT | SIGQUIT) && is_in_foreground() {
                continue;
            }
            if let Some(signal) = Signal::from_named_raw(signal) {
                // The program may have ended by now.
                let _ = kill_process(pid, signal);
            }
        }
    });
    let status = child.wait();
    handle.close();
    // It does nothing that panics.
    let _ = passing.join();
    status
}

/// Whether Ctrl-C at the terminal comes to this process and to the program alike.
fn is_in_foreground() -> bool {
    let Ok(terminal) = fs::File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp())
}

/// How the program ended, if not well.
fn ended(status: ExitStatus) -> Option<End> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(End::Status(u8::try_from(code).unwrap_or(1), String::new())),
        (None, Some(signal)) => Some(End::Signal(signal)),
        (None, None) => Some(End::Status(1, String::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_program_is_no_finding() {
        assert_eq!(finding("refused\tRDMA WRITE"), Some(("refused", "RDMA WRITE")));
        assert_eq!(finding("end\tprocess 1"), None);
        assert_eq!(finding("cut o"), None);
    }
}
