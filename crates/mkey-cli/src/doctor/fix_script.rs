//! What would mend a host, as a script to review. Nothing is run.

use super::report::{Report, printable};
use super::texts::Words;
use std::collections::BTreeSet;

/// The script.
pub fn script(report: &Report, words: &Words) -> String {
    let lang = report.lang;
    let head = words.fill("script-head", lang, &[("host", report.host.clone())]);
    let mut out = format!("#!/bin/sh\n# {}\nset -eu\n", printable(&head));
    let (mut told, mut last) = (BTreeSet::new(), Vec::<&String>::new());
    let mut nothing = true;
    for check in &report.checks {
        if !check.status.is_bad() || check.mend.is_empty() {
            continue;
        }
        nothing = false;
        comment(&mut out, &format!("\n{} {}", check.code, check.subject), &check.found);
        comment(&mut out, "", &check.why);
        for mend in &check.mend {
            comment(&mut out, "", &mend.what);
            for line in &mend.run {
                // The same command mends several things: once is enough.
                let again = if told.insert(line.clone()) { "" } else { "# (above) " };
                out.push_str(&format!("{again}{}\n", printable(line)));
            }
            for line in &mend.then {
                if !last.contains(&line) {
                    last.push(line);
                }
            }
            if !mend.edit.is_empty() {
                comment(&mut out, "", &words.common("script-edit", lang));
                for line in &mend.edit {
                    comment(&mut out, "  ", line);
                }
            }
        }
    }
    // What restarts something comes after all that it is to read, and once.
    if !last.is_empty() {
        comment(&mut out, "\n", &words.common("script-then", lang));
    }
    for line in last {
        out.push_str(&format!("{}\n", printable(line)));
    }
    if nothing {
        comment(&mut out, "", &words.common("script-none", lang));
    }
    out
}

/// A comment of one line, whatever the text holds; a line of its own before it if `begin` says so.
fn comment(out: &mut String, begin: &str, text: &str) {
    let begin = match begin.strip_prefix('\n') {
        Some(begin) => {
            out.push('\n');
            begin
        }
        None => begin,
    };
    let begin = printable(begin);
    let text = printable(text);
    let colon = if begin.trim().is_empty() { "" } else { ": " };
    let begin = if begin.trim().is_empty() { begin.as_str() } else { begin.trim_end() };
    out.push_str(&format!("# {begin}{colon}{text}\n"));
}
