//! What may be printed: the commands of each vendor and tool that a source vouches for.
//!
//! A file of patterns to a target, in `syntax/`; each pattern has how sure it is and where it was
//! read. A line that no pattern matches is not printed.

use serde::Serialize;
use std::fmt;

/// How sure it is that a command exists and does this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// In the documentation or the source code of who makes it.
    Doc,
    /// In public configurations of others.
    Seen,
    /// Concluded from either; look it up before use.
    Infer,
}

impl Confidence {
    /// What the words in the output mean.
    pub const LEGEND: &str = "doc: in the maker's documentation or source; seen: in public configurations of others; infer: concluded from these, look it up before use";
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Doc => "doc",
            Self::Seen => "seen",
            Self::Infer => "infer",
        })
    }
}

/// A command that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// How sure that is.
    pub confidence: Confidence,
    /// Its words; `<n>` stands for a number, `<w>` for anything without blanks.
    pub words: &'static str,
    /// Where it was read.
    pub source: &'static str,
}

/// The patterns of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syntax {
    patterns: Vec<Pattern>,
}

impl Syntax {
    /// Reads a file of patterns. What is no pattern is left out; a test sees that there is none.
    pub fn new(text: &'static str) -> Self {
        Self { patterns: lines(text).filter_map(pattern).collect() }
    }

    /// The pattern that a line is an instance of; the leading blanks of a line do not count.
    pub fn find(&self, line: &str) -> Option<&Pattern> {
        self.patterns.iter().find(|pattern| matches(pattern.words, line))
    }

    /// All patterns.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn pattern(line: &'static str) -> Option<Pattern> {
    let mut fields = line.splitn(3, " | ").map(str::trim);
    let confidence = match fields.next()? {
        "doc" => Confidence::Doc,
        "seen" => Confidence::Seen,
        "infer" => Confidence::Infer,
        _ => return None,
    };
    let (words, source) = (fields.next()?, fields.next()?);
    (!words.is_empty() && !source.is_empty()).then_some(Pattern { confidence, words, source })
}

/// Whether a line has the pattern's words, one by one.
fn matches(pattern: &str, line: &str) -> bool {
    let (mut wanted, mut given) = (pattern.split_whitespace(), line.split_whitespace());
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(wanted), Some(given)) if word_matches(wanted, given) => {}
            _ => return false,
        }
    }
}

/// Whether a word is an instance of a pattern's word, which may hold several placeholders.
fn word_matches(pattern: &str, word: &str) -> bool {
    let (literal, kind, rest) = if let Some((literal, rest)) = pattern.split_once("<n>")
        && !literal.contains("<w>")
    {
        (literal, Kind::Number, rest)
    } else if let Some((literal, rest)) = pattern.split_once("<w>") {
        (literal, Kind::Word, rest)
    } else {
        return pattern == word;
    };
    let Some(word) = word.strip_prefix(literal) else { return false };
    let most = word.find(|c: char| !kind.takes(c)).unwrap_or(word.len());
    // From the longest on: the rest of the pattern decides.
    word.char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .filter(|end| *end <= most)
        .rev()
        .any(|end| word.get(end..).is_some_and(|word| word_matches(rest, word)))
}

#[derive(Clone, Copy)]
enum Kind {
    Number,
    Word,
}

impl Kind {
    fn takes(self, c: char) -> bool {
        match self {
            Self::Number => c.is_ascii_digit() || c == '.',
            Self::Word => c.is_ascii_graphic(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every file of patterns.
    pub(crate) const FILES: [&str; 10] = [
        include_str!("syntax/h3c.txt"),
        include_str!("syntax/huawei.txt"),
        include_str!("syntax/nxos.txt"),
        include_str!("syntax/eos.txt"),
        include_str!("syntax/sonic.txt"),
        include_str!("syntax/cumulus.txt"),
        include_str!("syntax/onyx.txt"),
        include_str!("syntax/nic-mlx5.txt"),
        include_str!("syntax/nic-bnxt.txt"),
        include_str!("syntax/host.txt"),
    ];

    #[test]
    fn every_line_of_the_files_is_a_pattern_with_a_source() {
        for file in FILES {
            let syntax = Syntax::new(file);
            assert_eq!(syntax.patterns().len(), lines(file).count(), "{file}");
            assert!(syntax.patterns().len() >= 3);
        }
    }

    #[test]
    fn what_does_not_exist_matches_nothing() {
        // Copied widely, and found in no reference of the vendor.
        let made_up = [
            "dcbx mode auto",
            "qos queue 0 pfc enable",
            "qos queue 0 ecn mode wred",
            "qos queue 0 pfc threshold 80",
            "flow-control receive enable",
            "flow-control send enable",
            "mlxconfig -d \"$PCI\" set MR_MAX=1000000",
            "mlxconfig -d \"$PCI\" set ODP_SUPPORT=1",
            "feature qos",
            "hardware qos pfc-watchdog on",
        ];
        for file in FILES {
            let syntax = Syntax::new(file);
            for line in made_up {
                assert_eq!(syntax.find(line), None, "{line}");
            }
        }
    }

    #[test]
    fn placeholders() {
        for (pattern, line, expected) in [
            ("a <n> b", "a 12 b", true),
            ("a <n> b", "  a  0.20  b ", true),
            ("a <n> b", "a x b", false),
            ("a <n>", "a", false),
            ("a", "a b", false),
            ("c-8q-nq<n>", "c-8q-nq3", true),
            ("c-8q-nq<n>", "c-8q-nq", false),
            ("\"<n>\":\"<n>\"", "\"26\":\"3\"", true),
            ("<n>:<n>", "26:3", true),
            ("<w>=<n>", "a=b=3", true),
            ("x=<w>", "x=", false),
        ] {
            assert_eq!(matches(pattern, line), expected, "{pattern} against {line}");
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(line in ".{0,80}") {
            for file in FILES {
                let _ = Syntax::new(file).find(&line);
            }
        }
    }
}
