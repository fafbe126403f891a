//! Lines of text in a language.

use super::texts::Words;
use crate::lang::{Lang, wrap};

/// Columns of a line.
const WIDTH: usize = 100;

/// A text that grows line by line.
pub struct Writer<'w> {
    /// The words.
    pub words: &'w Words,
    /// The language.
    pub lang: Lang,
    out: String,
}

impl<'w> Writer<'w> {
    /// An empty text.
    pub fn new(words: &'w Words, lang: Lang) -> Self {
        Self { words, lang, out: String::new() }
    }

    /// A line, broken where it is full; the others begin below where `first` ends.
    pub fn line(&mut self, first: &str, text: &str) {
        for line in wrap(first, text, WIDTH) {
            self.whole(&line);
        }
    }

    /// A line that is to be copied: it stays whole.
    pub fn whole(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }

    /// A text that is not of one check.
    pub fn common(&self, name: &str) -> String {
        self.words.common(name, self.lang)
    }

    /// The same with its gaps filled.
    pub fn filled(&self, name: &str, words: &[(&str, String)]) -> String {
        self.words.fill(name, self.lang, words)
    }

    /// What stands between a name and what it is.
    pub fn colon(&self) -> &'static str {
        self.lang.pick(": ", "：")
    }

    /// The text.
    pub fn finish(self) -> String {
        self.out
    }
}
