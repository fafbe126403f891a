//! A report as text, and its checklist.

use super::finding::Status;
use super::launcher::Launcher;
use super::report::{Check, Report};
use super::texts::Words;
use super::writer::Writer;
use crate::lang::columns;

/// The report: what fails first, then what may, then the rest.
pub fn report(report: &Report, words: &Words) -> String {
    let mut writer = Writer::new(words, report.lang);
    writer.line("", &head(report, words));
    if !report.probes {
        let only = writer.common("files-only");
        writer.line("", &only);
    }
    let mut checks: Vec<&Check> = report.checks.iter().collect();
    // Stable: within a status the order of the codes stays.
    checks.sort_by_key(|check| check.status);
    let mut last = None;
    for check in checks {
        // What is bad takes several lines: each stands for itself.
        if check.status.is_bad() || last != Some(check.status) {
            writer.whole("");
        }
        write_check(&mut writer, check);
        last = Some(check.status);
    }
    writer.whole("");
    summary(&mut writer, report);
    if report.exit_code() > 0 {
        let nothing = writer.common("changed-nothing");
        writer.line("", &nothing);
    }
    writer.finish()
}

/// The checklist.
pub fn checklist(report: &Report, words: &Words) -> String {
    let mut writer = Writer::new(words, report.lang);
    writer.line("", &head(report, words));
    writer.whole("");
    for (number, point) in report.checklist.iter().enumerate() {
        let (answer, colon) = (writer.common(point.answer.text()), writer.colon());
        writer.line(&format!("{}. ", number + 1), &format!("{}{colon}{answer}", point.what));
        for line in &point.evidence {
            writer.line("   - ", line);
        }
    }
    writer.finish()
}

/// The name of a status' text.
fn status_text(status: Status) -> &'static str {
    match status {
        Status::Ok => "status-ok",
        Status::Warn => "status-warn",
        Status::Fail => "status-fail",
        Status::NotApplicable => "status-not-applicable",
        Status::NotReadable => "status-not-readable",
    }
}

fn write_check(writer: &mut Writer<'_>, check: &Check) {
    let (status, colon) = (writer.common(status_text(check.status)), writer.colon());
    let pad = " ".repeat(5usize.saturating_sub(columns(&status)));
    let of = if check.subject.is_empty() { String::new() } else { format!(" [{}]", check.subject) };
    let title = writer.words.about(check.code).map_or("", |about| about.title.pick(writer.lang));
    let first = format!("{status}{pad} {:<17} ", check.code);
    writer.line(&first, &format!("{title}{of}{colon}{}", check.found));
    let mut detail = |name: &str, text: &str| {
        let first = format!("      {}{colon}", writer.common(name));
        writer.line(&first, text);
    };
    if check.status.is_bad() {
        detail("read", &check.read.join(", "));
        detail("why", &check.why);
    }
    for mend in &check.mend {
        let first = format!("      {}{colon}", writer.common("mend"));
        writer.line(&first, &mend.what);
        for line in mend.run.iter().chain(&mend.then).chain(&mend.edit) {
            writer.whole(&format!("          {line}"));
        }
    }
}

fn summary(writer: &mut Writer<'_>, report: &Report) {
    let count = |status| report.summary.get(&status).copied().unwrap_or(0).to_string();
    let named = |status, one, more| {
        let count = count(status);
        writer.filled(if count == "1" { one } else { more }, &[("count", count)])
    };
    let counts = [
        ("fail", named(Status::Fail, "failure", "failures")),
        ("warn", named(Status::Warn, "warning", "warnings")),
        ("ok", count(Status::Ok)),
        ("na", count(Status::NotApplicable)),
        ("unread", count(Status::NotReadable)),
    ];
    let text = writer.filled("summary", &counts);
    writer.line("", &text);
}

/// Who was looked at, in a line.
fn head(report: &Report, words: &Words) -> String {
    let lang = report.lang;
    let process = match report.process.pid {
        Some(pid) => {
            let name = report.process.name.clone();
            words.fill("process", lang, &[("pid", pid.to_string()), ("name", name)])
        }
        None => words.common("own-process", lang),
    };
    let unit = match &report.process.launcher {
        Launcher::Systemd { unit } | Launcher::SystemdUser { unit } => unit.clone(),
        _ => String::new(),
    };
    let name = format!("started-{}", report.process.launcher.name());
    let started = words.fill(&name, lang, &[("unit", unit)]);
    let (comma, colon) = (lang.pick(", ", "，"), lang.pick(": ", "："));
    format!(
        "mkey {} doctor{colon}{}{comma}Linux {}{comma}{process}{comma}{started}",
        report.mkey, report.host, report.kernel
    )
}
