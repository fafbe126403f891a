//! The dashboard in a real terminal: tmux.

use crate::common::skipped;
use crate::fixture::{Fixture, healthy, sick};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A terminal with a shell in it.
struct Terminal {
    socket: String,
    /// What it showed last.
    shown: String,
}

impl Terminal {
    /// A shell in a terminal of 80 x 24; `None` if there is no tmux, which is noted.
    fn open(test: &str, environment: &[&str]) -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let path = std::env::var_os("PATH").unwrap();
        if !std::env::split_paths(&path).any(|folder| folder.join("tmux").is_file()) {
            skipped(test, "tmux is not installed");
            return None;
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let socket = format!("mkey-test-{}-{count}", std::process::id());
        let this = Self { socket, shown: String::new() };
        let mut arguments = vec!["new-session", "-d", "-x", "80", "-y", "24"];
        arguments.extend(environment.iter().flat_map(|one| ["-e", one]));
        arguments.extend(["-e", "PS1=prompt> ", "-e", "HISTFILE=", "bash", "--norc", "-i"]);
        let output = this.tmux(&arguments);
        assert!(output.status.success(), "{output:?}");
        Some(this)
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.args(["-u", "-f", "/dev/null", "-L", &self.socket]).args(arguments);
        command.env_remove("TMUX").env_remove("NO_COLOR").env("LC_ALL", "C.UTF-8");
        command.output().unwrap()
    }

    fn ask(&self, arguments: &[&str]) -> String {
        let output = self.tmux(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Presses keys, by tmux's names for them.
    fn press(&self, keys: &[&str]) {
        self.ask(&[&["send-keys"], keys].concat());
    }

    fn run(&self, line: &str) {
        self.ask(&["send-keys", "-l", line]);
        self.press(&["Enter"]);
    }

    /// Starts the monitor on a host.
    fn monitor(&self, fixture: &Fixture) {
        let root = fixture.root().to_str().unwrap();
        let mkey = env!("CARGO_BIN_EXE_mkey");
        self.run(&format!(
            "{mkey} monitor --lang en --interval 200ms --root {root}; echo ended=$?"
        ));
    }

    /// Waits until what is shown is as wanted. tmux tells of no change, so it is asked until then.
    fn wait(&mut self, what: &str, wanted: impl Fn(&str) -> bool) {
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            self.shown = self.ask(&["capture-pane", "-p"]);
            if wanted(&self.shown) {
                return;
            }
            assert!(Instant::now() < patience, "{what} is not shown:\n{}", self.shown);
            std::thread::yield_now();
        }
    }

    fn shows(&mut self, part: &str) {
        self.wait(part, |shown| shown.contains(part));
    }

    /// Whether the terminal is as the shell left it: its own screen, with a cursor, lines edited.
    fn is_restored(&mut self) {
        let modes = self.ask(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(modes.trim(), "0 1");
        // While it waits for a command the shell has modes of its own; what it runs has the usual.
        self.run("clear; stty -a");
        self.wait("stty", |shown| shown.contains("icanon"));
        for mode in ["-icanon", "-echo ", "-isig"] {
            assert!(!self.shown.contains(&format!(" {mode}")), "{mode}: {}", self.shown);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn it_is_driven_by_keys_and_leaves_the_terminal_as_it_was() {
    let test = "it_is_driven_by_keys_and_leaves_the_terminal_as_it_was";
    let Some(mut terminal) = Terminal::open(test, &[]) else { return };
    let fixture = sick(false);
    terminal.monitor(&fixture);
    terminal.shows("┌ 1 Huge pages ");
    terminal.shows("mkey explain");
    terminal.shows("rates of 0.2 s");
    assert!(terminal.shown.contains("q quit"), "{}", terminal.shown);
    terminal.press(&["Tab"]);
    terminal.shows("┌ 2 Pinned memory ");
    assert!(terminal.shown.contains("kvcache"), "{}", terminal.shown);
    terminal.press(&["BTab", "BTab"]);
    terminal.shows("┌ 6 Pauses and discards ");
    terminal.press(&["5"]);
    terminal.shows("┌ 5 Errors and congestion ");
    terminal.press(&["End"]);
    terminal.wait("the last row", |shown| !shown.contains(" below "));
    terminal.press(&["?"]);
    terminal.shows("┌ Keys ");
    terminal.press(&["?"]);
    terminal.wait("no help", |shown| !shown.contains("┌ Keys "));
    terminal.press(&["p"]);
    terminal.shows("PAUSED");
    terminal.press(&["p"]);
    terminal.wait("no pause", |shown| !shown.contains("PAUSED"));
    // The window becomes larger: all tables are there.
    terminal.ask(&["resize-window", "-x", "160", "-y", "50"]);
    terminal.wait("all tables", |shown| (1..7).all(|n| shown.contains(&format!("┌ {n} "))));
    terminal.press(&["q"]);
    terminal.shows("ended=0");
    terminal.is_restored();
}

#[test]
fn a_signal_ends_it_and_leaves_the_terminal_as_it_was() {
    let test = "a_signal_ends_it_and_leaves_the_terminal_as_it_was";
    let Some(mut terminal) = Terminal::open(test, &[]) else { return };
    let fixture = healthy(false);
    for (signal, ended) in [(Signal::TERM, "ended=143"), (Signal::INT, "ended=130")] {
        terminal.monitor(&fixture);
        terminal.shows("┌ 1 Huge pages ");
        let shell = terminal.ask(&["display-message", "-p", "#{pane_pid}"]);
        let children = format!("/proc/{0}/task/{0}/children", shell.trim());
        let children = std::fs::read_to_string(children).unwrap();
        let pid = Pid::from_raw(children.trim().parse().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        if signal == Signal::INT {
            // The shell takes it that the whole line was interrupted.
            terminal.wait("a prompt", |shown| shown.trim_end().ends_with("prompt>"));
        } else {
            terminal.shows(ended);
        }
        terminal.is_restored();
    }
}

/// Also where the signal that says so is ignored, as under nohup.
#[test]
fn a_terminal_that_goes_away_ends_it() {
    let test = "a_terminal_that_goes_away_ends_it";
    let fixture = healthy(false);
    for (ignore, expected) in [("", "129"), ("trap '' HUP; ", "1")] {
        let Some(mut terminal) = Terminal::open(test, &[]) else { return };
        let folder = tempfile::tempdir().unwrap();
        let (root, status) = (fixture.root().display(), folder.path().join("status"));
        let (mkey, at) = (env!("CARGO_BIN_EXE_mkey"), status.display());
        // Somebody who is not of the terminal waits for it.
        let line = format!("{mkey} monitor --lang en --interval 200ms --root {root}");
        let waiting = format!("{line}; echo \"$?.\" > {at}");
        let script = folder.path().join("script");
        std::fs::write(&script, format!("trap : HUP; {ignore}\n{waiting}\n")).unwrap();
        terminal.run(&format!("bash {}", script.display()));
        terminal.shows("┌ 1 Huge pages ");
        terminal.ask(&["kill-server"]);
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            let ended = std::fs::read_to_string(&status).unwrap_or_default();
            if let Some(code) = ended.trim().strip_suffix('.') {
                assert_eq!(code, expected);
                break;
            }
            assert!(Instant::now() < patience, "it has not ended");
            std::thread::yield_now();
        }
    }
}

#[test]
fn it_stops_and_goes_on() {
    let test = "it_stops_and_goes_on";
    let Some(mut terminal) = Terminal::open(test, &[]) else { return };
    let fixture = healthy(false);
    terminal.monitor(&fixture);
    terminal.shows("┌ 1 Huge pages ");
    terminal.press(&["C-z"]);
    terminal.shows("Stopped");
    terminal.is_restored();
    terminal.run("fg");
    terminal.shows("┌ 1 Huge pages ");
    terminal.press(&["Tab"]);
    terminal.shows("┌ 2 Pinned memory ");
    terminal.press(&["C-c"]);
    terminal.wait("a prompt", |shown| shown.trim_end().ends_with("prompt>"));
    terminal.is_restored();
}

#[test]
fn colours_are_there_unless_they_are_not_wanted() {
    let test = "colours_are_there_unless_they_are_not_wanted";
    for (environment, coloured) in [(&[][..], true), (&["NO_COLOR=1"], false)] {
        let Some(mut terminal) = Terminal::open(test, environment) else { return };
        let fixture = sick(false);
        terminal.monitor(&fixture);
        terminal.shows("mkey explain");
        let screen = terminal.ask(&["capture-pane", "-p", "-e"]);
        // Red and yellow, in either way of saying so.
        let colours = ["[31m", ";31m", "[33m", ";33m", "38;5;1m", "38;5;3m"];
        assert_eq!(colours.iter().any(|code| screen.contains(code)), coloured, "{screen:?}");
        terminal.press(&["q"]);
        terminal.shows("ended=0");
    }
}
