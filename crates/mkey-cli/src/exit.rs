//! How a run may end: exit code 0 (done), 1 (failed), 2 (asked for wrongly), or that of the program
//! that was run; a signal ends the process as that signal does.

use crate::model::check::printable;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// Done.
pub const OK: u8 = 0;
/// Something failed.
pub const FAILED: u8 = 1;
/// The command line asks for something that does not exist.
pub const USAGE: u8 = 2;

/// `mkey doctor`: no verdict, for no report could be made or what all rests on could not be read; `mkey
/// config check`: nothing to compare could be read.
pub const NO_REPORT: u8 = 3;

/// Why a run ended early.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// Something failed; in words.
    Failed(String),
    /// The command line asks for something that does not exist; in words.
    Usage(String),
    /// Whoever read our output went away: not a failure.
    ClosedPipe,
    /// A signal asked to stop, and everything was put back; or it ended the program that was run.
    Signal(i32),
    /// A program that was run has ended with this status, or there is none to run; in words, if there
    /// is more to say.
    Status(u8, String),
}

impl End {
    /// A failure in words.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }

    /// A status with words.
    pub fn status(status: u8, why: impl fmt::Display) -> Self {
        Self::Status(status, why.to_string())
    }

    /// An output that could not be written: `what` names it.
    pub fn output(what: impl fmt::Display, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::Failed(format!("{what}: {error}"))
        }
    }

    /// Tells standard error why and answers with the exit code. A signal is raised again with its
    /// default action, so that whoever started us sees what ended us.
    pub fn finish(self) -> ExitCode {
        let (text, code) = match self {
            Self::Failed(text) => (text, FAILED),
            Self::Usage(text) => (text, USAGE),
            Self::Status(status, text) if text.is_empty() => return ExitCode::from(status),
            Self::Status(status, text) => (text, status),
            Self::ClosedPipe => return ExitCode::from(OK),
            Self::Signal(signal) => {
                // Comes back only if the signal's default is not to end the process.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
                return ExitCode::from(FAILED);
            }
        };
        // If standard error is closed there is nobody to tell.
        let lines: Vec<String> = text.split('\n').map(printable).collect();
        let _ = writeln!(io::stderr(), "mkey: {}", lines.join("\n"));
        ExitCode::from(code)
    }
}
