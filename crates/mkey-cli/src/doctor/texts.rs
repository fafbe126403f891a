//! The words: what each check says, why it matters, and what mends it, in two languages. The files are
//! in `texts/`.

use super::code::Code;
use super::finding::{Finding, Status};
use super::launcher::Launcher;
use super::report::{Check, Mend, printable};
use crate::exit::End;
use crate::files::Unread;
use crate::lang::Lang;
use serde::Deserialize;
use std::collections::BTreeMap;

const CHECKS: &str = include_str!("texts/checks.toml");
const MENDS: &str = include_str!("texts/mends.toml");

/// All words.
#[derive(Clone, Debug)]
pub struct Words {
    checks: Vec<About>,
    common: BTreeMap<String, Pair>,
    mends: Vec<MendText>,
}

/// A text in both languages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// English.
    pub en: String,
    /// Chinese.
    pub zh: String,
}

/// What is said about a check.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Which one.
    pub code: Code,
    /// Its title.
    pub title: Pair,
    /// Why it matters.
    pub why: Pair,
    /// What may be found, by name.
    pub says: BTreeMap<String, Pair>,
}

/// What mends something.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MendText {
    /// Its name.
    pub id: String,
    /// For a process that was started so, or "container"; all others if not given.
    pub launcher: Option<String>,
    /// In words.
    pub what: Pair,
    /// It is done on the host: what runs in a container can not.
    #[serde(default)]
    pub host: bool,
    /// Commands.
    #[serde(default)]
    pub run: Vec<String>,
    /// Commands for once, after those of all others.
    #[serde(default)]
    pub then: Vec<String>,
    /// What is to be put somewhere by hand.
    #[serde(default)]
    pub edit: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChecksFile {
    common: BTreeMap<String, Pair>,
    check: Vec<About>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MendsFile {
    mend: Vec<MendText>,
}

impl Pair {
    /// The text in a language.
    pub fn pick(&self, lang: Lang) -> &str {
        lang.pick(&self.en, &self.zh)
    }
}

impl Words {
    /// Reads the files.
    ///
    /// # Errors
    /// [`End::Failed`] if one is damaged, which the tests rule out.
    pub fn load() -> Result<Self, End> {
        let damaged = |name: &str, error: toml::de::Error| End::Failed(format!("{name}: {error}"));
        let checks: ChecksFile =
            toml::from_str(CHECKS).map_err(|error| damaged("checks.toml", error))?;
        let mends: MendsFile =
            toml::from_str(MENDS).map_err(|error| damaged("mends.toml", error))?;
        Ok(Self { checks: checks.check, common: checks.common, mends: mends.mend })
    }

    /// What is said about a check.
    pub fn about(&self, code: Code) -> Option<&About> {
        self.checks.iter().find(|about| about.code == code)
    }

    /// A text that is not of one check.
    pub fn common(&self, name: &str, lang: Lang) -> String {
        self.common.get(name).map_or_else(|| name.to_owned(), |pair| pair.pick(lang).to_owned())
    }

    /// The same with its gaps filled.
    pub fn fill(&self, name: &str, lang: Lang, words: &[(&str, String)]) -> String {
        fill(&self.common(name, lang), |gap| {
            words.iter().find(|(name, _)| *name == gap).map(|(_, word)| word.clone())
        })
    }

    /// Why a file tells nothing, in words.
    pub fn unread(&self, unread: &Unread, lang: Lang) -> String {
        let finding = Finding::unread(Code::Memlock, unread);
        let words: Vec<_> =
            finding.words.iter().map(|(gap, word)| (*gap, printable(word))).collect();
        self.fill(finding.says, lang, &words)
    }

    /// A finding in words.
    pub fn check(&self, finding: &Finding, launcher: &Launcher, lang: Lang) -> Check {
        let about = self.about(finding.code);
        let pair = about
            .and_then(|about| about.says.get(finding.says))
            .or_else(|| self.common.get(finding.says));
        let sentence = pair.map_or(finding.says, |pair| pair.pick(lang));
        let plain = |gap: &str| finding.words.get(gap).map(|word| printable(word));
        let word = |gap: &str| match finding.terms.get(gap) {
            Some(term) => Some(fill(&self.common(term, lang), plain)),
            None => plain(gap),
        };
        // That there is no device is no failure; what to do without one is told all the same.
        let mended = finding.status.is_bad()
            || finding.status == Status::NotReadable
            || finding.code == Code::RdmaDevices;
        let mends = finding.mends.iter().filter(|_| mended);
        let printed = |values: &BTreeMap<String, String>| {
            values.iter().map(|(name, value)| (printable(name), printable(value))).collect()
        };
        Check {
            code: finding.code,
            subject: printable(&finding.subject),
            status: finding.status,
            found: fill(sentence, word),
            values: printed(&finding.values),
            measured: printed(&finding.measured),
            read: finding.read.iter().map(|place| printable(place)).collect(),
            why: about.map(|about| about.why.pick(lang).to_owned()).unwrap_or_default(),
            mend: mends.filter_map(|id| self.mend(id, finding, launcher, lang)).collect(),
        }
    }

    fn mend(&self, id: &str, finding: &Finding, launcher: &Launcher, lang: Lang) -> Option<Mend> {
        let named = |wanted: Option<&str>| {
            self.mends.iter().find(|mend| mend.id == id && mend.launcher.as_deref() == wanted)
        };
        let container = launcher.is_container();
        let own = match launcher {
            // What mends it at a login says so.
            Launcher::Unknown => Launcher::Shell.name(),
            known => known.name(),
        };
        let text = named(Some(own))
            .or_else(|| named(container.then_some("container")))
            .or_else(|| named(None))?;
        let word = |gap: &str| match (gap, launcher) {
            ("unit", Launcher::Systemd { unit } | Launcher::SystemdUser { unit }) => {
                Some(shell_word(unit))
            }
            ("subject", _) => Some(shell_word(&finding.subject)),
            _ => finding.words.get(gap).map(|word| shell_word(word)),
        };
        let lines =
            |all: &[String]| -> Vec<String> { all.iter().map(|line| fill(line, word)).collect() };
        let what = fill(text.what.pick(lang), word);
        let (run, then, edit) = (lines(&text.run), lines(&text.then), lines(&text.edit));
        // A container's /sys is read-only, and it has no sudo: nothing of it is a command here.
        if text.host && container {
            // A text for this launcher says itself where.
            let what = match text.launcher {
                Some(_) => what,
                None => self.fill("on-host", lang, &[("what", what)]),
            };
            let edit = [run, then, edit].concat();
            return Some(Mend { what, run: Vec::new(), then: Vec::new(), edit });
        }
        Some(Mend { what, run, then, edit })
    }
}

/// Fills the gaps of a sentence, `{name}`; a gap without a word stays.
fn fill(sentence: &str, word: impl Fn(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(sentence.len());
    let mut rest = sentence;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        match after.split_once('}').and_then(|(gap, tail)| Some((word(gap)?, tail))) {
            Some((word, tail)) => {
                filled.push_str(&word);
                rest = tail;
            }
            None => {
                filled.push('{');
                rest = after;
            }
        }
    }
    filled.push_str(rest);
    filled
}

/// A text as one word of a shell's line.
fn shell_word(text: &str) -> String {
    let text = printable(text);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@+=,%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A gap that nothing was put into, as `{name}`; commands for Kubernetes have braces of their own, with
/// blanks.
#[cfg(test)]
pub fn gap(check: &Check) -> Option<String> {
    let mends = check.mend.iter().flat_map(|mend| {
        [&mend.run, &mend.then, &mend.edit].into_iter().flatten().chain([&mend.what])
    });
    let is_gap = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '-')
    };
    let in_text = |text: &String| {
        let parts = text.split('{').skip(1).filter_map(|part| part.split_once('}'));
        parts.map(|(name, _)| name.to_owned()).find(|name| is_gap(name))
    };
    [&check.found].into_iter().chain(mends).find_map(in_text)
}

#[cfg(test)]
mod tests;
