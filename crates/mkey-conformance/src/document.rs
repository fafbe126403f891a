//! The page that tells of each rule and device whether it holds, made by running the tests over the
//! software RNIC beside what is recorded of other devices.

use crate::deviations::{Deviation, RXE, Version};
use crate::matrix::{SECTIONS, UNTESTED, Untested};
use crate::registry::Outcome;
use crate::soft::{self, Soft};
use crate::{results, rules};
use mkey_core::device::Capability;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// The page.
///
/// # Errors
/// What is recorded and does not fit the tests or the table of deviations.
pub fn document() -> Result<String, String> {
    let tests = rules::all::<Soft>();
    let soft = tests.iter().map(|test| test.outcome(&Soft::new())).collect();
    let mut columns = vec![(soft::name(), soft)];
    for recorded in results::recorded()? {
        columns.push((recorded.title(), recorded.outcomes(&tests)?));
    }
    let mut shown = Shown::new();
    for (at, test) in tests.iter().enumerate() {
        for rule in test.rules() {
            shown.entry(rule).or_default().push((at, test.name));
        }
    }
    Ok(page(&columns, &shown))
}

/// The tests of a rule, each with its place among the outcomes.
type Shown = BTreeMap<String, Vec<(usize, &'static str)>>;
/// What a device is called, and how the tests ended over it.
type Column = (String, Vec<Outcome>);

fn page(columns: &[Column], shown: &Shown) -> String {
    let mut page = String::from(
        "# Conformance\n\n\
         What the verbs, drivers and specifications require of memory registration, windows, fast\n\
         registration and on-demand paging, rule by rule, and whether it holds on each device.\n\n\
         This page is made by running the tests it names over the software RNIC:\n\
         `cargo run -p mkey-conformance --bin conformance-doc -- --write`. The other devices are\n\
         those of kernels in virtual machines: their results are recorded in\n\
         `crates/mkey-conformance/results`, and `cargo xtask test --only vm` compares them with what\n\
         it sees. A rule holds if all its tests passed. It holds *but for* another rule if that\n\
         one's deviation was met on the way, as where another status was told than the right one;\n\
         the [deviations](#deviations) are listed below. The tests are in\n\
         `crates/mkey-conformance/src/rules`.\n\n",
    );
    let mut counts = vec![Counts::default(); columns.len()];
    let mut body = String::new();
    for section in SECTIONS {
        let _ = write!(body, "## {}\n\n| rule | |", section.title);
        columns.iter().for_each(|(title, _)| body.extend([" ", title, " |"]));
        let _ = writeln!(body, " shown by |\n|---|---|{}---|", "---|".repeat(columns.len()));
        for &(id, text) in section.rules {
            let tests = shown.get(id).map(Vec::as_slice).unwrap_or_default();
            let _ = write!(body, "| {id} | {text} |");
            for ((_, outcomes), counts) in columns.iter().zip(&mut counts) {
                let ended = tests.iter().filter_map(|&(at, name)| Some((name, outcomes.get(at)?)));
                let standing = standing(id, &ended.collect::<Vec<_>>());
                counts.add(&standing);
                let _ = write!(body, " {standing} |");
            }
            let names: Vec<_> = tests.iter().map(|(_, name)| format!("`{name}`")).collect();
            let _ = writeln!(body, " {} |", names.join("<br>"));
        }
        body.push('\n');
    }
    let all: usize = SECTIONS.iter().map(|section| section.rules.len()).sum();
    let _ = write!(
        page,
        "Of {all} rules\n\n\
         | | hold | hold but for another | deviate | are not run | are about what the device lacks \
         | do not apply | wait |\n|---|---|---|---|---|---|---|---|\n"
    );
    for ((title, _), counts) in columns.iter().zip(&counts) {
        let Counts { holds, holds_but, deviates, not_run, lacks, does_not_apply, waits, broken } =
            counts;
        let _ = write!(
            page,
            "| {title} | {holds} | {holds_but} | {deviates} | {not_run} | {lacks} | \
             {does_not_apply} | {waits} |"
        );
        if *broken > 0 {
            let _ = write!(page, " **{broken} are broken** |");
        }
        page.push('\n');
    }
    page.push('\n');
    page.push_str(&body);
    page.push_str(&listed(RXE));
    page
}

/// The deviations.
fn listed(table: &[Deviation]) -> String {
    let mut listed = String::from(
        "## Deviations\n\n| rules | kernels | what soft-RoCE does | where to see it |\n\
         |---|---|---|---|\n",
    );
    for deviation in table {
        let of: Vec<_> = deviation.of.iter().map(|of| named(of)).collect();
        let kernels = kernels(&deviation.kernels);
        let (of, does, source) = (of.join(", "), deviation.does, deviation.source);
        let _ = writeln!(listed, "| {of} | {kernels} | {does} | {source} |");
    }
    listed
}

fn named(of: &str) -> String {
    if of.starts_with("R-") { of.to_owned() } else { format!("`{of}`") }
}

fn kernels(kernels: &Range<Version>) -> String {
    let version = |(major, minor): Version| format!("{major}.{minor}");
    match (kernels.start, kernels.end) {
        ((0, 0), (u32::MAX, _)) => "all".to_owned(),
        ((0, 0), end) => format!("before {}", version(end)),
        (start, (u32::MAX, _)) => format!("from {}", version(start)),
        (start, end) => format!("{} to {}", version(start), version(end)),
    }
}

#[derive(Clone, Default)]
struct Counts {
    holds: u32,
    holds_but: u32,
    deviates: u32,
    not_run: u32,
    lacks: u32,
    does_not_apply: u32,
    waits: u32,
    broken: u32,
}

impl Counts {
    fn add(&mut self, standing: &Standing<'_>) {
        let count = match standing {
            Standing::Holds => &mut self.holds,
            Standing::HoldsBut(_) => &mut self.holds_but,
            Standing::Deviates(_) | Standing::ByChance(_) => &mut self.deviates,
            Standing::NotRun(_) => &mut self.not_run,
            Standing::Lacks(_) => &mut self.lacks,
            Standing::Untested(Untested::DoesNotApply(_)) => &mut self.does_not_apply,
            Standing::Untested(Untested::Waits(_)) => &mut self.waits,
            Standing::Broken(..) | Standing::Missing => &mut self.broken,
        };
        *count += 1;
    }
}

enum Standing<'a> {
    Broken(&'a str, &'a str),
    Deviates(&'a Deviation),
    ByChance(&'a Deviation),
    NotRun(&'a Deviation),
    Holds,
    HoldsBut(Vec<&'a str>),
    Lacks(Capability),
    Untested(Untested),
    Missing,
}

impl std::fmt::Display for Standing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Broken(test, why) => {
                let why = why.lines().next().unwrap_or_default().replace('|', "\\|");
                write!(f, "**broken** (`{test}`): {why}")
            }
            Self::Deviates(deviation) => write!(f, "deviates: {}", deviation.does),
            Self::ByChance(deviation) => write!(f, "deviates by chance: {}", deviation.does),
            Self::NotRun(deviation) => write!(f, "not run: {}", deviation.does),
            Self::Holds => f.write_str("holds"),
            Self::HoldsBut(rules) => write!(f, "holds but for {}", rules.join(", ")),
            Self::Lacks(what) => write!(f, "lacks {what}"),
            Self::Untested(Untested::DoesNotApply(why)) => write!(f, "does not apply: {why}"),
            Self::Untested(Untested::Waits(what)) => write!(f, "waits for {what}"),
            Self::Missing => f.write_str("**no test and no reason**"),
        }
    }
}

/// A rule holds if it has tests and all that could run passed.
fn standing<'a>(id: &str, tests: &[(&'a str, &'a Outcome)]) -> Standing<'a> {
    let find = |of: fn(&'a str, &'a Outcome) -> Option<Standing<'a>>| {
        tests.iter().find_map(|&(name, outcome)| of(name, outcome))
    };
    let mut but: Vec<&str> = tests
        .iter()
        .filter_map(|(_, outcome)| match outcome {
            Outcome::HeldBut(rules) => Some(rules),
            _ => None,
        })
        .flatten()
        .map(String::as_str)
        .collect();
    but.sort_unstable();
    but.dedup();
    let held = |_, outcome: &'a Outcome| match outcome {
        Outcome::Held => Some(Standing::Holds),
        _ => None,
    };
    find(|name, outcome| match outcome {
        Outcome::Broken(why) => Some(Standing::Broken(name, why)),
        _ => None,
    })
    .or_else(|| {
        find(|_, outcome| match outcome {
            Outcome::Deviated(known, _) => Some(Standing::Deviates(known)),
            _ => None,
        })
    })
    .or_else(|| {
        find(|_, outcome| match outcome {
            Outcome::NotRun(known) => Some(Standing::NotRun(known)),
            _ => None,
        })
    })
    .or_else(|| {
        find(|_, outcome| match outcome {
            Outcome::ByChance(known) => Some(Standing::ByChance(known)),
            _ => None,
        })
    })
    .or_else(|| (!but.is_empty()).then_some(Standing::HoldsBut(but)))
    .or_else(|| find(held))
    .or_else(|| {
        find(|_, outcome| match outcome {
            Outcome::NotOffered(what) => Some(Standing::Lacks(*what)),
            _ => None,
        })
    })
    .unwrap_or_else(|| {
        UNTESTED
            .iter()
            .find(|(rule, _)| *rule == id)
            .map_or(Standing::Missing, |&(_, why)| Standing::Untested(why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deviations::Effect;

    static DEVIATION: Deviation = Deviation {
        of: &["R-KEY-06", "r_key_07_an_index_used_again_has_another_key"],
        kernels: (0, 0)..(6, 15),
        effect: Effect::Fails,
        does: "it does something else",
        source: "file.c",
    };

    fn made(outcomes: &[(&str, Outcome)]) -> String {
        let mut shown = Shown::new();
        for (at, (rule, _)) in outcomes.iter().enumerate() {
            shown.entry((*rule).to_owned()).or_default().push((at, "a_test"));
        }
        let outcomes = outcomes.iter().map(|(_, outcome)| outcome.clone()).collect();
        page(&[("device".to_owned(), outcomes)], &shown)
    }

    fn line<'a>(page: &'a str, rule: &str) -> &'a str {
        page.lines().find(|line| line.starts_with(&format!("| {rule} |"))).expect("the rule's line")
    }

    #[test]
    fn a_rule_holds_only_if_every_test_passed() {
        let page = made(&[
            ("R-KEY-01", Outcome::Held),
            ("R-KEY-02", Outcome::Held),
            ("R-KEY-02", Outcome::Broken("why\nmore".to_owned())),
            ("R-KEY-03", Outcome::NotOffered(Capability::Window2)),
            ("R-KEY-04", Outcome::NotOffered(Capability::Window2)),
            ("R-KEY-04", Outcome::Held),
            ("R-KEY-06", Outcome::Held),
            ("R-KEY-06", Outcome::Deviated(&DEVIATION, String::new())),
            ("R-KEY-07", Outcome::NotRun(&DEVIATION)),
            ("R-KEY-08", Outcome::Held),
            ("R-KEY-08", Outcome::HeldBut(vec!["R-LOC-13".to_owned()])),
        ]);
        assert!(line(&page, "R-KEY-01").contains("| holds | `a_test` |"));
        assert!(line(&page, "R-KEY-02").contains("| **broken** (`a_test`): why | `a_test`"));
        assert!(line(&page, "R-KEY-03").contains("| lacks type 2 memory windows |"));
        assert!(line(&page, "R-KEY-04").contains("| holds |"));
        assert!(line(&page, "R-KEY-05").contains("no test and no reason"));
        assert!(line(&page, "R-KEY-06").contains("| deviates: it does something else |"));
        assert!(line(&page, "R-KEY-07").contains("| not run: it does something else |"));
        assert!(line(&page, "R-KEY-08").contains("| holds but for R-LOC-13 |"));
        assert!(line(&page, "R-FORK-01").contains("| waits for fork |"));
        assert!(line(&page, "R-MWU-04").contains("| does not apply: "));
    }

    #[test]
    fn deviations_are_listed_with_their_kernels() {
        let listed = listed(std::slice::from_ref(&DEVIATION));
        assert!(listed.ends_with(
            "| R-KEY-06, `r_key_07_an_index_used_again_has_another_key` | before 6.15 | \
             it does something else | file.c |\n"
        ));
        assert_eq!(kernels(&((6, 15)..(u32::MAX, 0))), "from 6.15");
        assert_eq!(kernels(&((0, 0)..(u32::MAX, 0))), "all");
        assert_eq!(kernels(&((6, 2)..(7, 1))), "6.2 to 7.1");
    }
}
