//! Compared hosts as text.

use super::compare::{Difference, Merged, ToMend};
use crate::doctor::finding::Status;
use crate::doctor::texts::Words;
use crate::doctor::writer::Writer;
use crate::lang::Lang;
use std::collections::BTreeMap;

/// Of more hosts than this the first are listed.
const LISTED: usize = 8;

/// What came of comparing, as text.
pub fn merged(merged: &Merged, words: &Words, lang: Lang) -> String {
    let mut writer = Writer::new(words, lang);
    let colon = writer.colon();
    let hosts = merged.hosts.len().to_string();
    let one = merged.hosts.len() == 1;
    let head = if one { "merge-head-one" } else { "merge-head" };
    let head = writer.filled(head, &[("hosts", hosts.clone())]);
    writer.line("", &format!("mkey {} doctor --merge{colon}{head}", env!("CARGO_PKG_VERSION")));
    for skip in &merged.skipped {
        let told = [("file", skip.file.clone()), ("why", skip.why.clone())];
        let skipped = writer.filled("merge-skipped", &told);
        writer.line("  ", &skipped);
    }
    writer.whole("");
    let head = if merged.differences.is_empty() {
        writer.common(if one { "merge-one" } else { "merge-alike" })
    } else {
        format!("{}{colon}", writer.common("merge-differs"))
    };
    writer.line("", &head);
    for one in &merged.differences {
        difference(&mut writer, one, &hosts);
    }
    writer.whole("");
    let head = if merged.mends.is_empty() {
        writer.common(if one { "merge-well-one" } else { "merge-well" })
    } else {
        format!("{}{colon}", writer.common("merge-mend"))
    };
    writer.line("", &head);
    for one in &merged.mends {
        to_mend(&mut writer, one);
    }
    writer.finish()
}

fn difference(writer: &mut Writer<'_>, one: &Difference, hosts: &str) {
    writer.line("  ", &format!("{} {}", title(&one.code, &one.subject), one.value));
    let lacks = writer.common("merge-lacks");
    let usual = match &one.majority {
        Some(share) => {
            let value = share.value.clone().unwrap_or_else(|| lacks.clone());
            let count = share.hosts.to_string();
            let told = [("count", count), ("hosts", hosts.to_owned()), ("value", value)];
            writer.filled("merge-majority", &told)
        }
        None => writer.common("merge-no-majority"),
    };
    writer.line("    ", &usual);
    for (value, hosts) in by_value(one) {
        let value = value.cloned().unwrap_or_else(|| lacks.clone());
        let odd = writer.filled("merge-odd", &[("value", value), ("hosts", hosts)]);
        writer.line("    - ", &odd);
    }
}

fn to_mend(writer: &mut Writer<'_>, one: &ToMend) {
    let status = if one.status == Status::Fail { "status-fail" } else { "status-warn" };
    let (status, colon) = (writer.common(status), writer.colon());
    let text = format!("{}{colon}{}", title(&one.code, &one.subject), one.found);
    writer.line(&format!("  {status} "), &text);
    writer.line("      @ ", &listed(&one.hosts));
    for mend in &one.mend {
        writer.line("      ", &mend.what);
        for command in mend.run.iter().chain(&mend.then).chain(&mend.edit) {
            writer.whole(&format!("          {command}"));
        }
    }
}

fn title(code: &str, subject: &str) -> String {
    if subject.is_empty() { code.to_owned() } else { format!("{code} [{subject}]") }
}

/// The other values of a difference, each with its hosts.
fn by_value(difference: &Difference) -> Vec<(Option<&String>, String)> {
    let mut table = BTreeMap::<Option<&String>, Vec<String>>::new();
    for odd in &difference.odd {
        table.entry(odd.value.as_ref()).or_default().push(odd.host.clone());
    }
    table.into_iter().map(|(value, hosts)| (value, listed(&hosts))).collect()
}

/// Hosts in a line: the first, and how many there are if that is not all.
fn listed(hosts: &[String]) -> String {
    let first: Vec<&str> = hosts.iter().take(LISTED).map(String::as_str).collect();
    let more =
        if hosts.len() > LISTED { format!(", ... ({})", hosts.len()) } else { String::new() };
    format!("{}{more}", first.join(", "))
}
