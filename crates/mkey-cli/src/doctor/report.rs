//! The report: what was found in words of a language, as text and JSON show it.

use super::checklist::Point;
use super::code::Code;
use super::finding::Status;
use super::launcher::Launcher;
use crate::exit::NO_REPORT;
use crate::lang::Lang;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the JSON form; grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;
/// What a report is told by among other JSON files.
pub const KIND: &str = "mkey-doctor";

/// A report on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// [`KIND`].
    pub kind: &'static str,
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of mkey.
    pub mkey: &'static str,
    /// The language of its words.
    pub lang: Lang,
    /// The host's name.
    pub host: String,
    /// The release of its kernel.
    pub kernel: String,
    /// Whether it was tried what can be tried; otherwise files alone were read.
    pub probes: bool,
    /// The process that was looked at.
    pub process: Process,
    /// What no verdict can do without and could not be read, in words: empty if all was.
    pub unread: Vec<String>,
    /// The checks, in the order of the codes.
    pub checks: Vec<Check>,
    /// The five points of a deployment.
    pub checklist: Vec<Point>,
    /// How many checks came out how.
    pub summary: BTreeMap<Status, u64>,
}

/// The process that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its number; nothing for one of a copied host.
    pub pid: Option<u32>,
    /// Its program's name.
    pub name: String,
    /// Its user's number.
    pub uid: Option<u32>,
    /// How it was started.
    pub launcher: Launcher,
}

/// A check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked.
    pub code: Code,
    /// Of what; empty for the process or the host.
    pub subject: String,
    /// How it came out.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// How the host is set up: alike on hosts that are alike.
    pub values: BTreeMap<String, String>,
    /// What is so at the moment.
    pub measured: BTreeMap<String, String>,
    /// Where it was read.
    pub read: Vec<String>,
    /// Why it matters.
    pub why: String,
    /// What mends it.
    pub mend: Vec<Mend>,
}

/// What mends something. In a report that is read, what is not there is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Mend {
    /// In words.
    pub what: String,
    /// Commands as a shell takes them.
    pub run: Vec<String>,
    /// Commands for once, after those of all others.
    pub then: Vec<String>,
    /// What is to be put into a file or a command line by hand.
    pub edit: Vec<String>,
}

impl Report {
    /// The exit code: 0 if all is well, 1 for warnings, 2 if something will fail, 3 if there is no verdict.
    pub fn exit_code(&self) -> u8 {
        if !self.unread.is_empty() {
            return NO_REPORT;
        }
        exit_code(self.checks.iter().map(|check| check.status))
    }
}

/// The exit code of what came out so.
pub fn exit_code(all: impl Iterator<Item = Status>) -> u8 {
    all.map(|status| match status {
        Status::Fail => 2,
        Status::Warn => 1,
        _ => 0,
    })
    .max()
    .unwrap_or(0)
}

/// A text that was read somewhere, fit for a terminal: control characters are replaced.
pub fn printable(text: &str) -> String {
    let c = |c: char| {
        if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) { '\u{fffd}' } else { c }
    };
    text.chars().map(c).collect()
}
