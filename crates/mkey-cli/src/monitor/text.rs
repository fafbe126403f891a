//! The tables as plain text.

use super::judge::{self, Finding, Level};
use super::sample::Sample;
use super::unread;
use super::view::{self, Pane};
use crate::lang::{Lang, columns};
use std::time::{Duration, UNIX_EPOCH};

/// Everything, once.
pub fn report(sample: &Sample, top: usize, lang: Lang) -> String {
    let mut text = headline(sample, lang);
    text.push_str("\n\n");
    for pane in view::panes(sample, top, lang) {
        put_pane(&mut text, &pane);
        text.push('\n');
    }
    put_findings(&mut text, &judge::findings(sample, lang), &unread::places(sample), lang);
    text
}

/// The host, when, and what rates are of.
pub fn headline(sample: &Sample, lang: Lang) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(sample.time).unwrap_or_default());
    let time = time.map(|time| humantime::format_rfc3339_seconds(time).to_string());
    let time = time.unwrap_or_else(|| "?".to_owned());
    let rates = match (sample.interval, lang) {
        (Some(seconds), Lang::En) => format!("rates of {seconds:.1} s"),
        (Some(seconds), Lang::Zh) => format!("速率按 {seconds:.1} 秒计"),
        (None, lang) => lang.pick("no rates yet", "尚无速率").to_owned(),
    };
    format!("mkey monitor  {}  {time}  {rates}", sample.host)
}

/// A finding in one line of at most so many columns: what was seen is cut before the command is.
pub fn finding(finding: &Finding, width: usize) -> String {
    let Finding { level, place, what, command } = finding;
    let mark = if *level == Level::Bad { "!!" } else { "! " };
    let command = command.as_ref().map_or_else(String::new, |command| format!(" -> {command}"));
    let seen = format!("{mark} {place}: {what}");
    let room = width.saturating_sub(columns(&command)).max(SHORTEST);
    format!("{}{command}", cut(&seen, room))
}

/// As much of a text as fits, with a mark where it is cut.
pub fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let (mut kept, mut taken) = (String::new(), 1);
    for c in text.chars() {
        taken += columns(c.encode_utf8(&mut [0; 4]));
        if taken > width {
            break;
        }
        kept.push(c);
    }
    kept.push('~');
    kept
}

/// What was seen is not cut to less than this.
const SHORTEST: usize = 16;

/// What stands in place of findings: that there are none says little where much could not be read.
pub fn nothing(unread: &[String], lang: Lang) -> String {
    if unread.is_empty() {
        return lang.pick("Nothing here is worth a look.", "没有值得注意的情况。").to_owned();
    }
    let nothing =
        lang.pick("Nothing that could be read is worth a look.", "读得到的没有值得注意的情况。");
    format!("{nothing} {}", not_read(unread, lang))
}

fn not_read(unread: &[String], lang: Lang) -> String {
    let named = unread.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>();
    let more = unread.len().saturating_sub(NAMED);
    let mut text = match lang {
        Lang::En => format!("Not read: {}", named.join(", ")),
        Lang::Zh => format!("读不到：{}", named.join("、")),
    };
    if more > 0 {
        text.push_str(&match lang {
            Lang::En => format!(" and {more} more"),
            Lang::Zh => format!("，另有 {more} 处"),
        });
    }
    text
}

/// So much of what could not be read is named here; the tables have all of it.
const NAMED: usize = 4;

fn put_findings(text: &mut String, findings: &[Finding], unread: &[String], lang: Lang) {
    if findings.is_empty() {
        text.push_str(&nothing(unread, lang));
        text.push('\n');
        return;
    }
    text.push_str(lang.pick("Worth a look\n", "值得注意\n"));
    for one in findings {
        text.push_str(&finding(one, usize::MAX));
        text.push('\n');
    }
    if !unread.is_empty() {
        text.push_str(&not_read(unread, lang));
        text.push('\n');
    }
}

fn put_pane(text: &mut String, pane: &Pane) {
    text.push_str(pane.title);
    text.push('\n');
    if !pane.rows.is_empty() {
        let heads: Vec<&str> = pane.columns.iter().map(|(head, _)| *head).collect();
        let cells = pane.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect());
        let lines: Vec<Vec<&str>> = std::iter::once(heads).chain(cells).collect();
        let widths: Vec<usize> = (0..pane.columns.len())
            .map(|n| lines.iter().filter_map(|line| line.get(n)).map(|c| columns(c)).max())
            .map(Option::unwrap_or_default)
            .collect();
        for line in &lines {
            put_line(text, line, &widths, pane);
        }
    }
    for note in &pane.notes {
        text.push_str("  ");
        text.push_str(note);
        text.push('\n');
    }
}

fn put_line(text: &mut String, cells: &[&str], widths: &[usize], pane: &Pane) {
    let mut line = String::from(" ");
    for ((cell, width), (_, figure)) in cells.iter().zip(widths).zip(&pane.columns) {
        let blanks = " ".repeat(width.saturating_sub(columns(cell)));
        let parts = if *figure { [&blanks, *cell] } else { [*cell, &blanks] };
        line.push(' ');
        line.push_str(parts[0]);
        line.push_str(parts[1]);
        line.push(' ');
    }
    text.push_str(line.trim_end());
    text.push('\n');
}
