//! Running a command: shown as it goes, and kept for whoever counts what it said.

use std::io::{IsTerminal, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

/// A command that has ended.
pub struct Ended {
    pub status: ExitStatus,
    /// What it wrote, standard output before standard error, without colours.
    pub text: String,
}

/// Runs `command` with its output passed on as it comes and kept.
pub fn shown(command: &mut Command) -> Result<Ended> {
    println!("$ {}", line(command));
    if std::io::stdout().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let streams = Streams::of(&mut child);
    let status = child.wait().context("cannot wait for the command")?;
    let (mut text, errors) = streams.read();
    text.push_str(&errors);
    Ok(Ended { status, text })
}

/// The output of a command that is passed on while it runs, and kept.
pub struct Streams {
    out: JoinHandle<Vec<u8>>,
    err: JoinHandle<Vec<u8>>,
}

impl Streams {
    /// Takes the pipes of `child`.
    pub fn of(child: &mut Child) -> Self {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        Self {
            out: thread::spawn(|| out.map(|from| tee(from, std::io::stdout())).unwrap_or_default()),
            err: thread::spawn(|| err.map(|from| tee(from, std::io::stderr())).unwrap_or_default()),
        }
    }

    /// What came from standard output and standard error until their ends, without colours.
    pub fn read(self) -> (String, String) {
        let text = |stream: JoinHandle<Vec<u8>>| {
            plain(&String::from_utf8_lossy(&stream.join().unwrap_or_default()))
        };
        (text(self.out), text(self.err))
    }
}

/// Runs `command` in silence; its output is kept.
pub fn silent(command: &mut Command) -> Result<Ended> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(Ended { status: output.status, text })
}

/// The command as one would type it, with the variables it sets.
pub fn line(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.display(), quoted(&value.to_string_lossy())));
        }
    }
    let program = std::path::Path::new(command.get_program());
    words.push(program.file_name().unwrap_or(command.get_program()).to_string_lossy().into());
    words.extend(command.get_args().map(|arg| quoted(&arg.to_string_lossy())));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(safe) { word.into() } else { format!("'{word}'") }
}

fn tee(mut from: impl Read, mut to: impl Write) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = [0; 8192];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let Some(bytes) = buffer.get(..read) else { break };
        // A reader of ours that went away is no reason to stop reading the command.
        let _ = to.write_all(bytes).and_then(|()| to.flush());
        kept.extend_from_slice(bytes);
    }
    kept
}

/// `text` without terminal escape sequences of the form `ESC [ ... letter`.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            out.push(c);
        } else if chars.next() == Some('[') {
            let _ = chars.find(char::is_ascii_alphabetic);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_are_kept_with_the_status() {
        let ended =
            shown(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 7"])).unwrap();
        assert_eq!(ended.status.code(), Some(7));
        assert_eq!(ended.text, "out\nerr\n");
    }

    #[test]
    fn colours_are_dropped() {
        assert_eq!(plain("\u{1b}[1m\u{1b}[32m  3\u{1b}[0m passed"), "  3 passed");
        assert_eq!(plain("cut \u{1b}[3"), "cut ");
    }

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.env("RUSTFLAGS", "--cfg loom").args(["test", "--test", "loom*"]);
        assert_eq!(line(&command), "RUSTFLAGS='--cfg loom' cargo test --test 'loom*'");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let Err(error) = silent(&mut Command::new("no-such-program-of-ours")) else {
            panic!("a program that does not exist was started");
        };
        assert!(error.to_string().contains("no-such-program-of-ours"));
    }
}
