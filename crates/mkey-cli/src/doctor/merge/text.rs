//! Compared hosts as text.

use super::compare::{Difference, Merged};
use crate::doctor::finding::Status;
use crate::doctor::text::WIDTH;
use crate::doctor::texts::Words;
use crate::lang::{Lang, wrap};

/// More hosts than this are counted, not listed.
const LISTED: usize = 8;

/// What came of comparing, as text.
pub fn merged(merged: &Merged, words: &Words, lang: Lang) -> String {
    let mut out = String::new();
    let mut line = |first: &str, text: &str| {
        for line in wrap(first, text, WIDTH) {
            out.push_str(&line);
            out.push('\n');
        }
    };
    let hosts = merged.hosts.len().to_string();
    let head = words.fill("merge-head", lang, &[("hosts", hosts.clone())]);
    let colon = lang.pick(": ", "：");
    line("", &format!("mkey {} doctor --merge{colon}{head}", env!("CARGO_PKG_VERSION")));
    for skip in &merged.skipped {
        let told = [("file", skip.file.clone()), ("why", skip.why.clone())];
        line("  ", &words.fill("merge-skipped", lang, &told));
    }
    line("", "");
    if merged.differences.is_empty() {
        line("", &words.common("merge-alike", lang));
    } else {
        line("", &format!("{}{colon}", words.common("merge-differs", lang)));
    }
    for difference in &merged.differences {
        line("  ", &title(difference));
        let lacks = || words.common("merge-lacks", lang);
        let usual = match &difference.majority {
            Some(share) => words.fill(
                "merge-majority",
                lang,
                &[
                    ("count", share.hosts.to_string()),
                    ("hosts", hosts.clone()),
                    ("value", share.value.clone().unwrap_or_else(lacks)),
                ],
            ),
            None => words.common("merge-no-majority", lang),
        };
        line("    ", &usual);
        for odd in &difference.odd {
            let value = odd.value.clone().unwrap_or_else(lacks);
            let told = [("host", odd.host.clone()), ("value", value)];
            line("    - ", &words.fill("merge-odd", lang, &told));
        }
    }
    line("", "");
    if merged.mends.is_empty() {
        line("", &words.common("merge-well", lang));
    } else {
        line("", &format!("{}{colon}", words.common("merge-mend", lang)));
    }
    let mut all = String::new();
    for mend in &merged.mends {
        let status = if mend.status == Status::Fail { "status-fail" } else { "status-warn" };
        let subject =
            if mend.subject.is_empty() { String::new() } else { format!(" [{}]", mend.subject) };
        let (more, listed) = match mend.hosts.len() {
            count if count <= LISTED => (String::new(), mend.hosts.join(", ")),
            count => (
                format!(", ... ({count})"),
                mend.hosts.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", "),
            ),
        };
        let status = words.common(status, lang);
        let text = format!("{}{subject}{colon}{}", mend.code, mend.found);
        for line in wrap(&format!("  {status} "), &text, WIDTH) {
            all.push_str(&line);
            all.push('\n');
        }
        for line in wrap("      @ ", &format!("{listed}{more}"), WIDTH) {
            all.push_str(&line);
            all.push('\n');
        }
        for mend in &mend.mend {
            for line in wrap("      ", &mend.what, WIDTH) {
                all.push_str(&line);
                all.push('\n');
            }
            for command in mend.run.iter().chain(&mend.edit) {
                all.push_str("          ");
                all.push_str(command);
                all.push('\n');
            }
        }
    }
    out.push_str(&all);
    out
}

fn title(difference: &Difference) -> String {
    let Difference { code, subject, value, .. } = difference;
    let subject = if subject.is_empty() { String::new() } else { format!(" [{subject}]") };
    format!("{code}{subject} {value}")
}
