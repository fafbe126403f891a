//! The language that people are spoken to in, and lines in it.

use clap::{Args, ValueEnum};
use serde::Serialize;

/// A language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lang {
    /// English
    En,
    /// Chinese
    Zh,
}

/// The language as an argument.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LangArg {
    /// The language; that of LC_ALL, LC_MESSAGES or LANG if not given
    #[arg(long, value_name = "LANG")]
    pub lang: Option<Lang>,
}

impl LangArg {
    /// The language asked for, else that of the environment.
    pub fn lang(&self) -> Lang {
        self.lang.unwrap_or_else(|| Lang::of(|name| std::env::var(name).ok()))
    }
}

impl Lang {
    /// The language of an environment: the first of the three variables that is not empty decides.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let names = ["LC_ALL", "LC_MESSAGES", "LANG"];
        let chosen = names.iter().filter_map(|name| variable(name)).find(|text| !text.is_empty());
        if chosen.is_some_and(|text| text.starts_with("zh")) { Self::Zh } else { Self::En }
    }

    /// The text in this language.
    pub fn pick<'t>(self, en: &'t str, zh: &'t str) -> &'t str {
        match self {
            Self::En => en,
            Self::Zh => zh,
        }
    }
}

/// Breaks a text into lines of at most `width` columns, at blanks and between Chinese characters;
/// what has neither stays whole. The first line begins with `first`, the others with as many blanks.
pub fn wrap(first: &str, text: &str, width: usize) -> Vec<String> {
    let indent = " ".repeat(columns(first));
    let mut lines = vec![first.to_owned()];
    let mut empty = true;
    for unit in units(text) {
        let Some(line) = lines.last_mut() else { break };
        let fits = columns(line) + columns(unit.trim_end()) <= width;
        if !fits && !empty {
            line.truncate(line.trim_end().len());
            lines.push(format!("{indent}{unit}"));
        } else {
            line.push_str(unit);
        }
        empty = false;
    }
    for line in &mut lines {
        line.truncate(line.trim_end().len());
    }
    lines
}

/// The parts that a line may be broken between, blanks at their ends.
fn units(text: &str) -> Vec<&str> {
    let mut cuts = Vec::new();
    let mut before = None;
    for (at, c) in text.char_indices() {
        let opens = |c: char| "（“".contains(c);
        let closes = |c: char| "，。；：、）”！？".contains(c);
        let cut = match before {
            None => false,
            Some(' ') => c != ' ',
            Some(b) => (is_wide(b) || is_wide(c)) && c != ' ' && !closes(c) && !opens(b),
        };
        if cut {
            cuts.push(at);
        }
        before = Some(c);
    }
    cuts.push(text.len());
    let mut from = 0;
    let mut units = Vec::with_capacity(cuts.len());
    for to in cuts {
        units.extend(text.get(from..to));
        from = to;
    }
    units
}

/// How many columns of a terminal a text takes.
pub fn columns(text: &str) -> usize {
    text.chars().map(|c| if is_wide(c) { 2 } else { 1 }).sum()
}

/// Whether a character takes two columns: those of East Asia.
fn is_wide(c: char) -> bool {
    matches!(u32::from(c), 0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x20000..=0x3fffd)
        || "“”".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_variable_that_says_something_decides() {
        let of = |all: &str, messages: &str, lang: &str| {
            let (all, messages, lang) = (all.to_owned(), messages.to_owned(), lang.to_owned());
            Lang::of(|name| match name {
                "LC_ALL" => Some(all.clone()),
                "LC_MESSAGES" => Some(messages.clone()),
                "LANG" => Some(lang.clone()),
                _ => None,
            })
        };
        assert_eq!(of("", "", "zh_CN.UTF-8"), Lang::Zh);
        assert_eq!(of("C", "", "zh_CN.UTF-8"), Lang::En);
        assert_eq!(of("", "zh_TW", "en_US"), Lang::Zh);
        assert_eq!(of("", "", "de_DE"), Lang::En);
        assert_eq!(Lang::of(|_| None), Lang::En);
    }

    #[test]
    fn lines_break_at_blanks_and_between_chinese_characters() {
        assert_eq!(wrap("- ", "one two three", 9), ["- one two", "  three"]);
        let zh = wrap("", "注册，需要内存 ibv_reg_mr。", 10);
        assert_eq!(zh, ["注册，需要", "内存", "ibv_reg_mr。"]);
        assert_eq!(wrap("x ", "", 5), ["x"]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(first in "[ -]{0,4}", text in "[a-z 注册，。（）]{0,60}|.{0,40}", width in 0usize..40) {
            let lines = wrap(&first, &text, width);
            let all: String = lines.concat().split_whitespace().collect();
            let expected: String = format!("{first}{text}").split_whitespace().collect();
            prop_assert_eq!(all, expected);
        }
    }
}
