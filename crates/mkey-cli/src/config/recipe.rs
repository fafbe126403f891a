//! A configuration to be printed: blocks of lines, each with why, how sure, and how to verify it.

use super::syntax::{Confidence, Pattern, Syntax};
use crate::exit::End;
use serde::Serialize;

/// Lines that do one thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The file that they belong in, where it is not the device's one configuration.
    pub file: Option<String>,
    /// What they do, and why.
    pub why: String,
    /// The lines, indented as the device shows them.
    pub lines: Vec<Line>,
    /// Commands that show whether it worked.
    pub verify: Vec<String>,
}

/// A line of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// To be taken as it is.
    Ready(String),
    /// Exists, but a value, which may stand as `<n>`, has to be found for this device: printed as
    /// a comment.
    Tune(String),
}

impl Block {
    /// A block that is still empty.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), ..Self::default() }
    }

    /// Adds a line.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(Line::Ready(line.into()));
        self
    }

    /// Adds a line whose value has to be found for this device.
    pub fn tune(mut self, line: impl Into<String>) -> Self {
        self.lines.push(Line::Tune(line.into()));
        self
    }

    /// Adds a command that shows whether it worked.
    pub fn verify(mut self, command: impl Into<String>) -> Self {
        self.verify.push(command.into());
        self
    }

    /// Says which file the lines belong in.
    pub fn file(mut self, file: impl Into<String>) -> Self {
        self.file = Some(file.into());
        self
    }
}

/// A whole configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// What it is for; lines.
    pub head: Vec<String>,
    /// Its blocks.
    pub blocks: Vec<Block>,
}

/// How a device takes comments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comments {
    /// What starts one.
    pub start: &'static str,
    /// Whether one may stand within a view or mode without leaving it.
    pub within: bool,
}

/// A configuration as programs read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Document {
    /// The version of this form.
    pub schema: u32,
    /// What it is for.
    pub head: Vec<String>,
    /// Its blocks.
    pub blocks: Vec<DocumentBlock>,
}

/// A [`Block`] with what is known of its lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DocumentBlock {
    /// The file that the lines belong in.
    pub file: Option<String>,
    /// What they do, and why.
    pub why: String,
    /// The lines.
    pub lines: Vec<DocumentLine>,
    /// Commands that show whether it worked.
    pub verify: Vec<String>,
}

/// A line with what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DocumentLine {
    /// The line.
    pub text: String,
    /// Whether its value has to be found for this device first.
    pub tune: bool,
    /// How sure it is that it exists.
    pub confidence: Confidence,
    /// Where it was read.
    pub source: String,
}

impl Recipe {
    /// Looks up every line.
    ///
    /// # Errors
    /// [`End::Failed`] if a line is not known to exist: it is not printed then.
    pub fn document(&self, syntax: &Syntax) -> Result<Document, End> {
        let known = |line: &str| -> Result<Pattern, End> {
            // A value that is left open is looked up as if it were there.
            syntax.find(&line.replace("<n>", "0")).copied().ok_or_else(|| {
                End::Failed(format!("no source vouches for {line:?}: nothing is printed"))
            })
        };
        let mut blocks = Vec::new();
        for block in &self.blocks {
            let mut lines = Vec::new();
            for line in &block.lines {
                let (text, tune) = match line {
                    Line::Ready(text) => (text, false),
                    Line::Tune(text) => (text, true),
                };
                let pattern = known(text)?;
                let (confidence, source) = (pattern.confidence, pattern.source.to_owned());
                lines.push(DocumentLine { text: text.clone(), tune, confidence, source });
            }
            for command in &block.verify {
                known(command)?;
            }
            let (file, why, verify) = (block.file.clone(), block.why.clone(), block.verify.clone());
            blocks.push(DocumentBlock { file, why, lines, verify });
        }
        Ok(Document { schema: 1, head: self.head.clone(), blocks })
    }
}

/// The width that comments are wrapped to.
const WIDTH: usize = 100;

/// A configuration as text: commented, in plain ASCII, since consoles may take nothing else.
pub fn text(document: &Document, comments: Comments) -> String {
    let start = comments.start;
    let mut out = String::new();
    for line in &document.head {
        remark(&mut out, start, "", line);
    }
    remark(&mut out, start, "", Confidence::LEGEND);
    for block in &document.blocks {
        out.push_str(start);
        out.push('\n');
        if let Some(file) = &block.file {
            remark(&mut out, start, "", &format!("==== {file} ===="));
        }
        remark(&mut out, start, "", &block.why);
        if comments.within {
            lines_among_remarks(&mut out, start, &block.lines);
        } else {
            lines_below_remarks(&mut out, start, &block.lines);
        }
        if !block.verify.is_empty() {
            remark(&mut out, start, "", &format!("verify: {}", block.verify.join("; ")));
        }
    }
    out
}

/// Each line below what is known of it.
fn lines_among_remarks(out: &mut String, start: &str, lines: &[DocumentLine]) {
    let mut told: Option<(Confidence, &str)> = None;
    for line in lines {
        let indent: String = line.text.chars().take_while(|c| *c == ' ').collect();
        let now = (line.confidence, line.source.as_str());
        if told != Some(now) {
            remark(out, start, &indent, &format!("[{}] {}", line.confidence, line.source));
            told = Some(now);
        }
        if line.tune {
            out.push_str(&format!("{indent}{start} TUNE: {}\n", line.text.trim_start()));
        } else {
            out.push_str(&line.text);
            out.push('\n');
        }
    }
}

/// What is known of all lines first, then the lines.
fn lines_below_remarks(out: &mut String, start: &str, lines: &[DocumentLine]) {
    let mut told: Vec<(Confidence, &str)> = Vec::new();
    for line in lines.iter().filter(|line| !line.tune) {
        let now = (line.confidence, line.source.as_str());
        if !told.contains(&now) {
            told.push(now);
            let same = lines.iter().filter(|l| !l.tune && (l.confidence, l.source.as_str()) == now);
            let same: Vec<&str> = same.map(|line| line.text.trim_start()).collect();
            let what = format!("[{}] {}: {}", now.0, now.1, same.join(" / "));
            remark(out, start, "", &what);
        }
    }
    for line in lines.iter().filter(|line| line.tune) {
        let (confidence, source, text) = (line.confidence, &line.source, line.text.trim_start());
        remark(out, start, "", &format!("TUNE: {text}   [{confidence}] {source}"));
    }
    for line in lines.iter().filter(|line| !line.tune) {
        out.push_str(&line.text);
        out.push('\n');
    }
}

fn remark(out: &mut String, start: &str, indent: &str, text: &str) {
    // Commands have hyphens that are no place to break at.
    let options = textwrap::Options::new(WIDTH)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .break_words(false);
    for line in textwrap::wrap(text, options) {
        out.push_str(&format!("{indent}{start} {line}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNTAX: &str = "doc | interface <w> | the guide\nseen | ecn <n> | a template\n";

    fn recipe(line: &str) -> Recipe {
        let block = Block::new("why").line("interface x").line(line).tune(" ecn 9");
        Recipe { head: vec!["head".to_owned()], blocks: vec![block.verify("interface y")] }
    }

    #[test]
    fn a_line_that_nobody_vouches_for_is_not_printed() {
        let syntax = Syntax::new(SYNTAX);
        let why = recipe(" ecn on").document(&syntax).unwrap_err();
        assert!(matches!(why, End::Failed(text) if text.contains("\" ecn on\"")));
    }

    #[test]
    fn comments_stand_within_views_only_where_they_may() {
        let document = recipe(" ecn 5").document(&Syntax::new(SYNTAX)).unwrap();
        let within = text(&document, Comments { start: "!", within: true });
        let expected = "! why\n! [doc] the guide\ninterface x\n ! [seen] a template\n ecn 5\n ! TUNE: ecn 9\n! verify: interface y\n";
        assert!(within.ends_with(expected), "{within}");
        let before = text(&document, Comments { start: "#", within: false });
        let expected = "# why\n# [doc] the guide: interface x\n# [seen] a template: ecn 5\n# TUNE: ecn 9   [seen] a template\ninterface x\n ecn 5\n# verify: interface y\n";
        assert!(before.ends_with(expected), "{before}");
    }
}
