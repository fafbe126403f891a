//! The page that tells of each rule whether it holds, made by running the tests.

use crate::fixture::Subject;
use crate::matrix::{SECTIONS, UNTESTED, Untested};
use crate::registry::{Outcome, RuleTest};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Tests by the rules they check, each with how it ended.
type Results = BTreeMap<String, Vec<(&'static str, Outcome)>>;

/// Runs all `tests`, each over a subject of its own, and writes the page.
pub fn document<S: Subject>(
    device: &str,
    tests: &[RuleTest<S>],
    subject: impl Fn() -> S,
) -> String {
    let mut results = Results::new();
    for test in tests {
        let outcome = test.outcome(&subject());
        for rule in test.rules() {
            results.entry(rule).or_default().push((test.name, outcome.clone()));
        }
    }
    page(device, &results)
}

fn page(device: &str, results: &Results) -> String {
    let mut page = format!(
        "# Conformance\n\n\
         What the verbs, drivers and specifications require of memory registration, windows, fast\n\
         registration and on-demand paging, rule by rule, and whether it holds on the {device}.\n\n\
         This page is made by running the tests it names:\n\
         `cargo run -p mkey-conformance --bin conformance-doc -- --write`. A rule holds if all its\n\
         tests passed in that run. The tests are in `crates/mkey-conformance/src/rules`.\n\n"
    );
    let mut body = String::new();
    let (mut holds, mut broken, mut lacks, mut inapplicable, mut waits) = (0, 0, 0, 0, 0);
    for section in SECTIONS {
        let _ =
            write!(body, "## {}\n\n| rule | | | shown by |\n|---|---|---|---|\n", section.title);
        for &(id, text) in section.rules {
            let tests = results.get(id).map(Vec::as_slice).unwrap_or_default();
            let (standing, shown) = match standing(id, tests) {
                Standing::Holds => {
                    holds += 1;
                    ("holds".to_owned(), names(tests))
                }
                Standing::Broken(test, why) => {
                    broken += 1;
                    let why = why.lines().next().unwrap_or_default().replace('|', "\\|");
                    (format!("**broken**: {why}"), format!("`{test}`"))
                }
                Standing::NotOffered(what) => {
                    lacks += 1;
                    (format!("not offered: {what}"), names(tests))
                }
                Standing::Untested(Untested::DoesNotApply(why)) => {
                    inapplicable += 1;
                    (format!("does not apply: {why}"), String::new())
                }
                Standing::Untested(Untested::Waits(what)) => {
                    waits += 1;
                    (format!("waits for {what}"), String::new())
                }
                Standing::Missing => {
                    broken += 1;
                    ("**no test and no reason**".to_owned(), String::new())
                }
            };
            let _ = writeln!(body, "| {id} | {text} | {standing} | {shown} |");
        }
        body.push('\n');
    }
    let all: usize = SECTIONS.iter().map(|section| section.rules.len()).sum();
    let _ = write!(
        page,
        "Of {all} rules {holds} hold, {broken} are broken, {lacks} are about what the device lacks,\n\
         {inapplicable} do not apply, {waits} wait.\n\n"
    );
    page.push_str(body.trim_end());
    page.push('\n');
    page
}

fn names(tests: &[(&'static str, Outcome)]) -> String {
    tests.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join("<br>")
}

enum Standing<'a> {
    Holds,
    Broken(&'static str, &'a str),
    NotOffered(mkey_core::device::Capability),
    Untested(Untested),
    Missing,
}

/// A rule holds if it has tests and all that could run passed.
fn standing<'a>(id: &str, tests: &'a [(&'static str, Outcome)]) -> Standing<'a> {
    let broken = tests.iter().find_map(|(name, outcome)| match outcome {
        Outcome::Broken(why) => Some(Standing::Broken(name, why)),
        _ => None,
    });
    let not_offered = || {
        tests.iter().find_map(|(_, outcome)| match outcome {
            Outcome::NotOffered(what) => Some(Standing::NotOffered(*what)),
            _ => None,
        })
    };
    if let Some(broken) = broken {
        broken
    } else if tests.iter().any(|(_, outcome)| *outcome == Outcome::Held) {
        Standing::Holds
    } else if let Some(not_offered) = not_offered() {
        not_offered
    } else {
        UNTESTED
            .iter()
            .find(|(rule, _)| *rule == id)
            .map_or(Standing::Missing, |&(_, why)| Standing::Untested(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mkey_core::device::Capability;

    fn results(outcomes: &[(&str, Outcome)]) -> String {
        let mut results = Results::new();
        for (rule, outcome) in outcomes {
            results.entry((*rule).to_owned()).or_default().push(("a_test", outcome.clone()));
        }
        page("device", &results)
    }

    fn line<'a>(page: &'a str, rule: &str) -> &'a str {
        page.lines().find(|line| line.starts_with(&format!("| {rule} |"))).expect("the rule's line")
    }

    #[test]
    fn a_rule_holds_only_if_every_test_passed() {
        let page = results(&[
            ("R-KEY-01", Outcome::Held),
            ("R-KEY-02", Outcome::Held),
            ("R-KEY-02", Outcome::Broken("why\nmore".to_owned())),
            ("R-KEY-03", Outcome::NotOffered(Capability::Window2)),
            ("R-KEY-04", Outcome::NotOffered(Capability::Window2)),
            ("R-KEY-04", Outcome::Held),
        ]);
        assert!(line(&page, "R-KEY-01").contains("| holds | `a_test` |"));
        assert!(line(&page, "R-KEY-02").contains("| **broken**: why | `a_test` |"));
        assert!(line(&page, "R-KEY-03").contains("| not offered: type 2 memory windows |"));
        assert!(line(&page, "R-KEY-04").contains("| holds |"));
        assert!(line(&page, "R-KEY-05").contains("no test and no reason"));
        assert!(line(&page, "R-FORK-01").contains("| waits for fork |"));
        assert!(line(&page, "R-MWU-04").contains("| does not apply: "));
    }
}
