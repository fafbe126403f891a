//! `--check`: the program runs beside this one, and what it left behind decides.

use super::launch::not_begun;
use super::program::About;
use crate::exit::End;
use mkey_os::signals;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgrp, getpid, kill_process, pidfd_open, pidfd_send_signal,
};
use signal_hook::consts::{
    SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs;
use std::io::{Write, stderr};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

/// Runs it to the end.
///
/// # Errors
/// How the program ended, if not well; else `Failed` if there were findings, or if what there was could
/// not be seen.
pub fn run(mut command: Command, about: &About) -> Result<(), End> {
    let folder = tempfile::tempdir()
        .map_err(|error| End::failed(format_args!("a folder for the findings: {error}")))?;
    let path = folder.path().join("findings");
    let unreadable = |error| End::failed(format_args!("{}: {error}", path.display()));
    // Whatever becomes of it, there is a file: one that is not there was taken away.
    fs::write(&path, "").map_err(unreadable)?;
    command.env("MKEY_FINDINGS", &path);
    let told = command.get_envs().any(|(name, value)| name == "MKEY_REFUSALS" && value.is_some());
    let program = command.get_program().to_owned();
    // Before the program begins, so that none is missed.
    let signals =
        Signals::new(passed_on()).map_err(|error| End::failed(format_args!("signals: {error}")))?;
    let child = command.spawn().map_err(|error| not_begun(&program, &error))?;
    let status = wait(child, signals)
        .map_err(|error| End::failed(format_args!("{}: {error}", program.display())))?;
    let notes = fs::read(&path).map_err(unreadable)?;
    let notes = Notes::of(&String::from_utf8_lossy(&notes));
    if !told {
        for (kind, words) in &notes.findings {
            say(&format!("{kind}: {words}"));
        }
    }
    for process in &notes.unfinished {
        say(&format!(
            "{process} opened a device and did not end by exit(): what it left registered is not known"
        ));
    }
    match ended(status) {
        Some(end) => Err(end),
        None => notes.verdict(about),
    }
}

/// If standard error is closed there is nobody to tell.
pub fn say(words: &str) {
    let _ = writeln!(stderr(), "mkey: {words}");
}

/// What the program, and those that it has started, have noted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Notes {
    /// By kind and words.
    findings: Vec<(String, String)>,
    /// Whether any process has opened a device.
    begun: bool,
    /// Processes that have opened a device and not come to an end that they could tell of.
    unfinished: Vec<String>,
}

impl Notes {
    fn of(text: &str) -> Self {
        let mut notes = Self::default();
        let mut open = BTreeMap::<&str, i64>::new();
        for (kind, words) in text.lines().filter_map(|line| line.split_once('\t')) {
            match kind {
                "begin" => {
                    notes.begun = true;
                    *open.entry(words).or_default() += 1;
                }
                "end" => *open.entry(words).or_default() -= 1,
                _ => notes.findings.push((kind.into(), words.into())),
            }
        }
        let unfinished = open.into_iter().filter(|(_, count)| *count > 0);
        notes.unfinished = unfinished.map(|(process, _)| process.to_owned()).collect();
        notes
    }

    /// What becomes of a run whose program has ended well.
    fn verdict(&self, about: &About) -> Result<(), End> {
        let count = |count, one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {many}"),
        };
        if !self.findings.is_empty() {
            return Err(End::failed(count(self.findings.len(), "finding", "findings")));
        }
        if !self.unfinished.is_empty() {
            let processes = count(self.unfinished.len(), "process", "processes");
            return Err(End::failed(format_args!("{processes} could not be checked to the end")));
        }
        match (self.begun, &about.unreachable) {
            (true, _) => Ok(()),
            (false, Some(why)) => Err(End::failed(format_args!("nothing was checked: {why}"))),
            (false, None) => {
                say("nothing was checked: no device of mkey's was opened");
                Ok(())
            }
        }
    }
}

/// Signals that are passed on to the program. What was ignored when this process began is left so, and
/// the program ignores it as well.
pub fn passed_on() -> Vec<c_int> {
    let all =
        [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCONT, SIGTSTP, SIGWINCH];
    all.into_iter().filter(|signal| !signals::is_ignored(*signal)).collect()
}

/// The program, as signals are sent to it: by a descriptor, which is never another process's, if the
/// kernel has such.
#[derive(Debug)]
enum Target {
    Descriptor(OwnedFd),
    Number(Pid),
}

impl Target {
    fn of(child: &Child) -> Self {
        let pid = Pid::from_child(child);
        pidfd_open(pid, PidfdFlags::empty()).map_or(Self::Number(pid), Self::Descriptor)
    }

    fn send(&self, signal: Signal) {
        // The program may have ended by now.
        let _ = match self {
            Self::Descriptor(fd) => pidfd_send_signal(fd, signal),
            Self::Number(pid) => kill_process(*pid, signal),
        };
    }
}

/// Waits for the program, and passes signals on. Those of the terminal reach it by themselves.
///
/// # Errors
/// As the operating system refuses to wait.
pub fn wait(mut child: Child, mut signals: Signals) -> std::io::Result<ExitStatus> {
    let target = Target::of(&child);
    let handle = signals.handle();
    let passing = std::thread::spawn(move || {
        for signal in signals.forever() {
            let by_terminal = matches!(signal, SIGINT | SIGQUIT | SIGTSTP | SIGWINCH);
            if let Some(named) = Signal::from_named_raw(signal)
                && !(by_terminal && is_in_foreground())
            {
                target.send(named);
            }
            if signal == SIGTSTP {
                // Stops as it would have without us: whoever waits for this process is to see it.
                let _ = kill_process(getpid(), Signal::STOP);
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
pub fn ended(status: ExitStatus) -> Option<End> {
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

    const REACHED: About = About { unreachable: None, asan: None };

    #[test]
    fn the_beginning_and_the_end_of_a_process_are_no_findings() {
        let notes = Notes::of("begin\tprocess 1\nrefused\tRDMA WRITE\nend\tprocess 1\ncut o");
        assert_eq!(notes.findings, [("refused".to_owned(), "RDMA WRITE".to_owned())]);
        assert!(notes.begun && notes.unfinished.is_empty());
        assert_eq!(notes.verdict(&REACHED), Err(End::failed("1 finding")));
        assert_eq!(Notes::of("begin\tprocess 1\nend\tprocess 1").verdict(&REACHED), Ok(()));
    }

    #[test]
    fn a_process_that_does_not_tell_of_its_end_was_not_checked() {
        let notes = Notes::of("begin\tprocess 1\nbegin\tprocess 2\nend\tprocess 1\n");
        assert_eq!(notes.unfinished, ["process 2"]);
        let why = End::failed("1 process could not be checked to the end");
        assert_eq!(notes.verdict(&REACHED), Err(why));
        // What it becomes by `exec` begins anew under the same number.
        let notes = Notes::of("begin\tprocess 1\nbegin\tprocess 1\nend\tprocess 1\n");
        assert_eq!(notes.unfinished, ["process 1"]);
        let notes = Notes::of("begin\tprocess 1\nbegin\tprocess 2\nbegin\tprocess 3\n");
        let why = End::failed("3 processes could not be checked to the end");
        assert_eq!(notes.verdict(&REACHED), Err(why));
    }

    #[test]
    fn a_program_that_can_not_be_reached_is_not_checked_unless_one_that_it_starts_is() {
        let about = About { unreachable: Some("it is static".into()), asan: None };
        let why = End::failed("nothing was checked: it is static");
        assert_eq!(Notes::of("").verdict(&about), Err(why));
        assert_eq!(Notes::of("begin\tprocess 1\nend\tprocess 1").verdict(&about), Ok(()));
        assert_eq!(Notes::of("").verdict(&REACHED), Ok(()));
    }
}
