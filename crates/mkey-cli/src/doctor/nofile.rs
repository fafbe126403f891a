//! Open files: each completion channel, dma-buf and connection is one.

use super::code::Code;
use super::context::Context;
use super::finding::{Finding, Status};
use crate::process::{self, Limit};

/// The line of the limit.
const NAME: &str = "Max open files";
/// So many are few for many connections.
const FEW: u64 = 1024;
/// As many as the kernel lets anybody have, unless it is told otherwise.
const MOST: u64 = 1 << 20;

/// The check.
pub fn check(at: &Context) -> Vec<Finding> {
    let path = at.of_process("limits");
    let text = match at.files.text(&path) {
        Ok(text) => text,
        Err(unread) => return vec![Finding::unread(Code::Nofile, &unread)],
    };
    let Some(Limit { soft, hard }) = process::limit(&text, NAME) else {
        return vec![Finding::unread(Code::Nofile, &process::no_limit(&path, &text, NAME))];
    };
    let folder = at.of_process("fd");
    let open = at.files.count(&folder).ok();
    let left = soft.map(|soft| soft.saturating_sub(open.unwrap_or(0)));
    let (status, says) = match (soft, left) {
        (_, Some(left)) if open.is_some() && left < 8 => (Status::Fail, "full"),
        (Some(soft), _) if soft <= FEW => (Status::Warn, "small"),
        _ => (Status::Ok, "enough"),
    };
    let put = |finding: Finding, name: &'static str, limit: Option<u64>| match limit {
        Some(limit) => finding.value(name, limit),
        None => finding.value(name, "unlimited").term(name, "unlimited-word"),
    };
    let finding = Finding::new(Code::Nofile, status, says);
    // What a shell can raise it to; more than the kernel's fs.nr_open is refused.
    let raised = hard.unwrap_or(MOST).min(MOST);
    let mend = if at.launcher.has_shell() && raised > FEW && soft.is_some_and(|soft| soft < raised)
    {
        "nofile-soft"
    } else {
        "nofile"
    };
    vec![
        put(put(finding, "soft", soft), "hard", hard)
            .measure("open", shown_open(open))
            .word("pid", &at.process)
            .file(&path)
            .file(&folder)
            .word("raised", raised)
            .mend(mend),
    ]
}

fn shown_open(open: Option<u64>) -> String {
    open.map_or_else(|| "?".to_owned(), |open| open.to_string())
}
