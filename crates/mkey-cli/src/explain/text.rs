//! An explanation as text.

use super::evidence::Verdict;
use super::report::{Ranked, Report, Section};
use crate::bench::units::size;
use crate::lang::{Lang, wrap};

/// The width that texts are wrapped to.
const WIDTH: usize = 100;

/// The explanation as text.
pub fn report(report: &Report) -> String {
    let mut out = String::new();
    let lang = report.lang;
    if let Some(assumed) = &report.assumed {
        put(&mut out, "", assumed);
        out.push('\n');
    }
    if let Some(process) = &report.process {
        let fork = match (process.fork_safe, lang) {
            (Some(true), Lang::En) => ", fork protection asked for",
            (Some(true), Lang::Zh) => "，要求了 fork 保护",
            _ => "",
        };
        let limit = process.memlock.map_or_else(|| lang.pick("unlimited", "不限").to_owned(), size);
        let line = match lang {
            Lang::En => format!(
                "process {}: RLIMIT_MEMLOCK {limit}, CAP_IPC_LOCK {}, pinned {}, {} mappings{fork}",
                process.pid,
                if process.ipc_lock { "in effect" } else { "not in effect" },
                size(process.pinned),
                process.map_count
            ),
            Lang::Zh => format!(
                "进程 {}：RLIMIT_MEMLOCK {limit}，CAP_IPC_LOCK {}，已固定 {}，{} 个映射{fork}",
                process.pid,
                if process.ipc_lock { "生效" } else { "未生效" },
                size(process.pinned),
                process.map_count
            ),
        };
        put(&mut out, "", &line);
        out.push('\n');
    }
    if report.sections.is_empty() {
        let nothing = lang.pick(
            "Nothing was seen that stands against registering this; what a NIC has left can not be seen here.",
            "没有看到妨碍注册的问题；网卡自身的余量这里看不到。",
        );
        put(&mut out, "", nothing);
    }
    for (n, section) in report.sections.iter().enumerate() {
        if n > 0 {
            out.push('\n');
        }
        put_section(&mut out, section, lang);
    }
    out
}

fn put_section(out: &mut String, section: &Section, lang: Lang) {
    let source = lang.pick("source", "来源");
    put(out, "", &section.title);
    if !section.meaning.is_empty() {
        put(out, "  ", &section.meaning);
    }
    if !section.source.is_empty() {
        put(out, "  ", &format!("[{source}: {}]", section.source));
    }
    for (n, cause) in section.causes.iter().enumerate() {
        put_cause(out, n + 1, cause, section, lang);
    }
    for correction in &section.corrections {
        put(out, lang.pick("  False, though often said: ", "  常见误传："), &correction.claim);
        put(out, lang.pick("    Right: ", "    事实："), &correction.right);
        put(out, "    ", &format!("[{source}: {}]", correction.source));
    }
}

fn put_cause(out: &mut String, number: usize, cause: &Ranked, section: &Section, lang: Lang) {
    let verdict = match cause.verdict {
        Some(Verdict::Found) => lang.pick("FOUND: ", "确认："),
        Some(Verdict::Possible) => lang.pick("possible: ", "可能："),
        Some(Verdict::RuledOut) => lang.pick("not this: ", "排除："),
        Some(Verdict::Open) | None => "",
    };
    put(out, &format!("  {number}. "), &format!("{verdict}{}", cause.cause));
    if !cause.evidence.is_empty() {
        put(out, lang.pick("     seen: ", "     所见："), &cause.evidence);
    }
    // What was ruled out needs no remedy.
    if cause.verdict == Some(Verdict::RuledOut) {
        return;
    }
    put(out, lang.pick("     tell: ", "     判断："), &cause.tell);
    put(out, lang.pick("     mend: ", "     处理："), &cause.mend);
    if cause.source != section.source {
        put(out, "     ", &format!("[{}: {}]", lang.pick("source", "来源"), cause.source));
    }
}

fn put(out: &mut String, first: &str, text: &str) {
    for line in wrap(first, text, WIDTH) {
        out.push_str(&line);
        out.push('\n');
    }
}
