//! A log, with what is known of its lines below them.

use super::evidence::Verdict;
use super::find::{self, Found};
use super::report::{Maker, Section};
use super::vendor;
use crate::exit::End;
use crate::lang::{Lang, wrap};
use crate::model::check::printable;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{BufRead, Read, Write};

/// A line is not looked at beyond so many bytes; it is passed on whole.
const LONGEST: u64 = 64 << 10;

/// How many lines a dump of a completion has at most, after the line that announces it.
const DUMP: u32 = 5;

/// Passes a log on, annotated, and with control characters written out. What was explained once is only named later.
///
/// # Errors
/// [`End`] as the log can not be read, or the output not be written.
pub fn annotate(
    maker: &Maker<'_>,
    mut input: impl BufRead,
    mut output: impl Write,
) -> Result<(), End> {
    let mut annotator = Annotator { maker, told: HashSet::new(), dump: 0 };
    let mut line = Vec::new();
    let write = |error: std::io::Error| End::output("standard output", &error);
    loop {
        line.clear();
        let read = input.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        if read.map_err(|error| End::failed(format!("standard input: {error}")))? == 0 {
            return output.flush().map_err(write);
        }
        complete(&mut input, &mut line)
            .map_err(|error| End::failed(format!("standard input: {error}")))?;
        output.write_all(shown(&line).as_bytes()).map_err(write)?;
        let notes = annotator.notes(&String::from_utf8_lossy(&line));
        if !notes.is_empty() && !line.ends_with(b"\n") {
            output.write_all(b"\n").map_err(write)?;
        }
        output.write_all(notes.as_bytes()).map_err(write)?;
        // Whoever follows a log waits for its lines.
        output.flush().map_err(write)?;
    }
}

/// Reads on where a part of a long line ends within a character.
fn complete(input: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<()> {
    let cut = |line: &[u8]| {
        let last = line.utf8_chunks().last().map(|chunk| chunk.invalid());
        last.is_some_and(|bytes| {
            std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
        })
    };
    while cut(line) {
        if input.by_ref().take(1).read_to_end(line)? == 0 {
            break;
        }
    }
    Ok(())
}

/// A line as it is passed on: nothing in it steers a terminal. What would is written out, as are bytes
/// that are no text; tabs and the ends of lines stay.
fn shown(line: &[u8]) -> String {
    let (text, end) = match line {
        [text @ .., b'\r', b'\n'] => (text, "\r\n"),
        [text @ .., b'\n'] => (text, "\n"),
        text => (text, ""),
    };
    let mut shown = String::with_capacity(line.len());
    for chunk in text.utf8_chunks() {
        let parts = chunk.valid().split_inclusive('\t');
        for part in parts {
            match part.strip_suffix('\t') {
                Some(text) => {
                    shown.push_str(&printable(text));
                    shown.push('\t');
                }
                None => shown.push_str(&printable(part)),
            }
        }
        // Writing to a string does not fail.
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown.push_str(end);
    shown
}

struct Annotator<'m, 'l> {
    maker: &'m Maker<'l>,
    /// Titles that were explained.
    told: HashSet<String>,
    /// Lines that may still be of a dump.
    dump: u32,
}

impl Annotator<'_, '_> {
    /// What is to stand below a line.
    fn notes(&mut self, line: &str) -> String {
        let library = self.maker.library;
        let mut found = find::line(library, line);
        if found.iter().any(|one| matches!(one, Found::Entry(entry) if entry.id == "error-cqe")) {
            self.dump = DUMP;
        } else if self.dump > 0 {
            self.dump -= 1;
            if let Some((vendor_err, syndrome)) = error_of_dump(line, self.dump) {
                self.dump = 0;
                let status = vendor::status_of_syndrome(syndrome);
                found.extend(library.entry(&format!("status/{status}")).map(Found::Entry));
                found.push(Found::Vendor(vendor_err));
            }
        }
        let mut notes = String::new();
        for one in &found {
            let section = self.maker.section(one);
            let text = if self.told.insert(section.title.clone()) {
                let mend = mend(&section, self.maker.lang);
                format!("{}: {} {mend}", section.title, section.meaning)
            } else {
                section.title
            };
            for line in wrap("    ^ ", &text, 100) {
                notes.push_str(&line);
                notes.push('\n');
            }
        }
        notes
    }
}

/// What mends it, where that is one thing; else where the causes are told.
fn mend(section: &Section, lang: Lang) -> String {
    match section.causes.as_slice() {
        [] => String::new(),
        [one] => one.mend.clone(),
        [first, ..] if first.verdict == Some(Verdict::Found) => first.mend.clone(),
        causes => {
            let what = asked_by(&section.title);
            let n = causes.len();
            match lang {
                Lang::En => format!("({n} causes: mkey explain {})", what),
                Lang::Zh => format!("（{n} 种原因：mkey explain {}）", what),
            }
        }
    }
}

/// The words by which `mkey explain` explains what has this title.
fn asked_by(title: &str) -> String {
    if let Some(value) = title.strip_prefix("mlx5 vendor_err ") {
        return format!("vendor {value}");
    }
    let name = title.split([',', ' ', ':']).next().unwrap_or_default();
    match title.rsplit_once(": ") {
        Some((_, errno)) => format!("{name} {errno}"),
        None => name.to_owned(),
    }
}

/// vendor_err and syndrome of an error CQE, from the row that holds them: bytes 0x36 and 0x37. The
/// kernel prints rows of 16 bytes after their offset, libmlx5 rows of 4 words; the fourth is meant,
/// after which `left` rows could still come.
fn error_of_dump(line: &str, left: u32) -> Option<(u8, u8)> {
    if let Some((_, row)) = line.split_once("00000030: ") {
        let bytes: Vec<u8> =
            row.split_whitespace().map_while(|b| u8::from_str_radix(b, 16).ok()).collect();
        return Some((*bytes.get(6)?, *bytes.get(7)?)).filter(|_| bytes.len() >= 16);
    }
    if left + 4 != DUMP {
        return None;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = match words.as_slice() {
        [_, word, _, _] if words.iter().all(|word| word.len() == 8) => *word,
        _ => return None,
    };
    let [_, _, vendor_err, syndrome] = u32::from_str_radix(word, 16).ok()?.to_be_bytes();
    Some((vendor_err, syndrome))
}

#[cfg(test)]
mod tests;
