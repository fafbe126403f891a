//! A report as text, and its checklist.

use super::checklist::Point;
use super::finding::Status;
use super::launcher::Launcher;
use super::report::{Check, Report};
use super::texts::Words;
use crate::lang::{Lang, wrap};

/// Columns of a line.
pub const WIDTH: usize = 100;

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

/// What a text is written with.
struct Writer<'w> {
    words: &'w Words,
    lang: Lang,
    out: String,
}

impl Writer<'_> {
    fn line(&mut self, first: &str, text: &str) {
        for line in wrap(first, text, WIDTH) {
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    /// A line that is to be copied stays whole.
    fn whole(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }

    fn common(&self, name: &str) -> String {
        self.words.common(name, self.lang)
    }

    fn check(&mut self, check: &Check) {
        let status = self.common(status_text(check.status));
        // Chinese takes two columns a character.
        let wide = status.chars().filter(|c| !c.is_ascii()).count();
        let pad = " ".repeat(5usize.saturating_sub(status.chars().count() + wide));
        let of =
            if check.subject.is_empty() { String::new() } else { format!(" [{}]", check.subject) };
        let title = self.words.about(check.code).map_or("", |about| about.title.pick(self.lang));
        let colon = self.lang.pick(": ", "：");
        self.line(
            &format!("{status}{pad} {:<17} ", check.code),
            &format!("{title}{of}{colon}{}", check.found),
        );
        if !matches!(check.status, Status::Fail | Status::Warn) {
            if check.mend.is_empty() {
                return;
            }
        } else {
            self.detail("read", &check.read.join(", "));
            self.detail("why", &check.why);
        }
        for mend in &check.mend {
            self.detail("mend", &mend.what);
            for line in mend.run.iter().chain(&mend.edit) {
                self.whole(&format!("          {line}"));
            }
        }
    }

    fn detail(&mut self, name: &str, text: &str) {
        let name = self.common(name);
        let colon = self.lang.pick(": ", "：");
        self.line(&format!("      {name}{colon}"), text);
    }

    fn summary(&mut self, report: &Report) {
        let count = |status| report.summary.get(&status).copied().unwrap_or(0).to_string();
        let text = self.words.fill(
            "summary",
            self.lang,
            &[
                ("fail", count(Status::Fail)),
                ("warn", count(Status::Warn)),
                ("ok", count(Status::Ok)),
                ("na", count(Status::NotApplicable)),
                ("unread", count(Status::NotReadable)),
            ],
        );
        self.line("", &text);
    }
}

/// Who was looked at, in a line.
pub fn head(report: &Report, words: &Words) -> String {
    let lang = report.lang;
    let pid = report.process.pid.map(|pid| pid.to_string());
    let process = match pid {
        Some(pid) => {
            words.fill("process", lang, &[("pid", pid), ("name", report.process.name.clone())])
        }
        None => words.common("own-process", lang),
    };
    let unit = match &report.process.launcher {
        Launcher::Systemd { unit } => unit.clone(),
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

/// The report: what fails first, then what may, then the rest.
pub fn report(report: &Report, words: &Words) -> String {
    let mut writer = Writer { words, lang: report.lang, out: String::new() };
    writer.line("", &head(report, words));
    if !report.probes {
        let only = writer.common("files-only");
        writer.line("", &only);
    }
    writer.out.push('\n');
    let mut checks: Vec<&Check> = report.checks.iter().collect();
    // Stable: within a status the order of the codes stays.
    checks.sort_by_key(|check| check.status);
    let mut last = None;
    for check in checks {
        let bad = matches!(check.status, Status::Fail | Status::Warn);
        if last.is_some_and(|last: Status| last != check.status) && !bad {
            writer.out.push('\n');
        }
        writer.check(check);
        if bad {
            writer.out.push('\n');
        }
        last = (!bad).then_some(check.status);
    }
    writer.out.push('\n');
    writer.summary(report);
    if report.exit_code() > 0 {
        let nothing = writer.common("changed-nothing");
        writer.line("", &nothing);
    }
    writer.out
}

/// The checklist.
pub fn checklist(report: &Report, words: &Words) -> String {
    let mut writer = Writer { words, lang: report.lang, out: String::new() };
    writer.line("", &head(report, words));
    writer.out.push('\n');
    for (number, point) in report.checklist.iter().enumerate() {
        let Point { what, answer, evidence, .. } = point;
        let answer = writer.common(answer.text());
        let colon = report.lang.pick(": ", "：");
        writer.line(&format!("{}. ", number + 1), &format!("{what}{colon}{answer}"));
        for line in evidence {
            writer.line("   - ", line);
        }
    }
    writer.out
}
