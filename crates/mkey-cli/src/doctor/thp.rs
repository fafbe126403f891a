//! Transparent huge pages.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use crate::files::garbage;

/// The check.
pub fn check(at: &Context) -> Vec<Finding> {
    let path = "sys/kernel/mm/transparent_hugepage/enabled";
    let text = match at.files.line(path) {
        Ok(text) => text,
        Err(unread) => return vec![Finding::unread(Code::Thp, &unread)],
    };
    let Some(mode) = chosen(&text) else {
        return vec![Finding::unread(Code::Thp, &garbage(path, &text))];
    };
    let (status, says) = match mode {
        "always" => (Status::Ok, "always"),
        "madvise" => (Status::Ok, "madvise"),
        _ => (Status::Warn, "never"),
    };
    let defrag = "sys/kernel/mm/transparent_hugepage/defrag";
    let defrag = at.files.line(defrag).ok().and_then(|text| chosen(&text).map(str::to_owned));
    vec![
        Finding::new(Code::Thp, status, says)
            .value("mode", mode)
            .value("defrag", defrag.unwrap_or_else(|| "-".to_owned()))
            .file(path)
            .mend("thp"),
    ]
}

/// The word in brackets.
fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}
