//! What a check found, without words: they are put to it in a language later.

use super::code::Code;
use crate::files::{Unread, Why, shown};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a check came out, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Something will fail.
    Fail,
    /// Something is slow, or will fail in some case.
    Warn,
    /// It could not be found out.
    NotReadable,
    /// All is well.
    Ok,
    /// There is nothing to check.
    NotApplicable,
}

impl Status {
    /// Whether something fails, is slow, or may fail.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Fail | Self::Warn)
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was checked.
    pub code: Code,
    /// How it came out.
    pub status: Status,
    /// The name of the sentence that says what was found.
    pub says: &'static str,
    /// Of what: a device, a size of pages; empty for the process or the host.
    pub subject: String,
    /// The words for the sentence's gaps.
    pub words: BTreeMap<&'static str, String>,
    /// Words that differ by language: gaps, each with the name of a common text.
    pub terms: BTreeMap<&'static str, &'static str>,
    /// How the host is set up: alike on hosts that are alike.
    pub values: BTreeMap<String, String>,
    /// What is so at the moment.
    pub measured: BTreeMap<String, String>,
    /// Where it was read.
    pub read: Vec<String>,
    /// The names of what mends it.
    pub mends: Vec<&'static str>,
}

impl Finding {
    /// A finding about the process or the host.
    pub fn new(code: Code, status: Status, says: &'static str) -> Self {
        Self {
            code,
            status,
            says,
            subject: String::new(),
            words: BTreeMap::new(),
            terms: BTreeMap::new(),
            values: BTreeMap::new(),
            measured: BTreeMap::new(),
            read: Vec::new(),
            mends: Vec::new(),
        }
    }

    /// One that a file tells nothing about.
    pub fn unread(code: Code, unread: &Unread) -> Self {
        let (says, what) = match &unread.why {
            Why::Missing => ("unread-missing", String::new()),
            Why::Denied => ("unread-denied", String::new()),
            Why::Error(error) => ("unread-error", error.clone()),
            Why::Garbage(text) => ("unread-garbage", text.clone()),
            Why::NoFile => ("unread-no-file", String::new()),
            Why::Outside => ("unread-outside", String::new()),
            Why::NoLine(name) => ("unread-line", name.clone()),
            Why::Long => ("unread-long", String::new()),
        };
        let mut finding = Self::new(code, Status::NotReadable, says);
        finding.read.push(unread.path.clone());
        finding.word("file", &unread.path).word("what", what)
    }

    /// One that needs a probe which was not made.
    pub fn untried(code: Code) -> Self {
        Self::new(code, Status::NotApplicable, "untried")
    }

    /// Of what it is.
    pub fn of(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    /// Fills a gap of the sentence.
    pub fn word(mut self, gap: &'static str, word: impl ToString) -> Self {
        self.words.insert(gap, word.to_string());
        self
    }

    /// Fills a gap of the sentence with a common text.
    pub fn term(mut self, gap: &'static str, text: &'static str) -> Self {
        self.terms.insert(gap, text);
        self
    }

    /// How something is set up, which fills a gap, too.
    pub fn value(mut self, name: &'static str, value: impl ToString) -> Self {
        self.values.insert(name.to_owned(), value.to_string());
        self.word_if_new(name, value)
    }

    /// How something is at the moment, which fills a gap, too.
    pub fn measure(mut self, name: &'static str, value: impl ToString) -> Self {
        self.measured.insert(name.to_owned(), value.to_string());
        self.word_if_new(name, value)
    }

    fn word_if_new(mut self, gap: &'static str, word: impl ToString) -> Self {
        self.words.entry(gap).or_insert_with(|| word.to_string());
        self
    }

    /// Where it was read: a path below the root.
    pub fn file(mut self, path: &str) -> Self {
        self.read.push(shown(path));
        self
    }

    /// Where it was read: a system call, a program, a verb.
    pub fn by(mut self, call: &str) -> Self {
        self.read.push(call.to_owned());
        self
    }

    /// What mends it.
    pub fn mend(mut self, name: &'static str) -> Self {
        self.mends.push(name);
        self
    }
}
