//! `mkey doctor`: on fake roots, live, over many hosts; and what `deploy/` has.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/confined.rs"]
mod in_container;

mod deploy;
mod fleet;
mod host;
mod live;
mod mended;
mod roots;
mod unseen;

use serde_json::Value;

/// The checks of a report with this code.
fn checks<'r>(report: &'r Value, code: &str) -> Vec<&'r Value> {
    let all = report["checks"].as_array().expect("a report has checks");
    all.iter().filter(|check| check["code"] == code).collect()
}

/// The check of a report with this code and subject.
fn check<'r>(report: &'r Value, code: &str, subject: &str) -> &'r Value {
    let found = checks(report, code).into_iter().find(|check| check["subject"] == subject);
    found.unwrap_or_else(|| panic!("no {code} of {subject:?} in {report:#}"))
}

fn status<'r>(report: &'r Value, code: &str, subject: &str) -> &'r str {
    check(report, code, subject)["status"].as_str().unwrap()
}
