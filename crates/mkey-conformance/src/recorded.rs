//! What the rule tests showed over devices that not every machine has, as recorded there.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// How a rule test ended over a device, in the words of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The rule holds as far as the test looks.
    Holds,
    /// It does not, as is known; why.
    Deviates(String),
    /// The device does not offer what the rule is about.
    NotOffered(String),
    /// The test is not run over this device; why.
    NotRun(String),
}

/// The results of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// What it is called in the page.
    pub device: String,
    /// By the tests' names.
    pub tests: BTreeMap<String, Standing>,
}

/// The results that are recorded, by what their device is called.
pub const RESULTS: [&str; 2] =
    [include_str!("../results/rxe.txt"), include_str!("../results/rxe-odp.txt")];

/// What the device of a driver is called in the page.
pub fn device(driver: &str, on_demand: bool) -> String {
    if on_demand { format!("{driver} with on-demand paging") } else { driver.to_owned() }
}

impl Recorded {
    /// All that are recorded.
    pub fn all() -> Vec<Self> {
        RESULTS.iter().map(|text| Self::parse(text)).collect()
    }

    /// Reads lines `test: standing` after one with the device. Lines that are neither are left out.
    pub fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let device = lines.next().unwrap_or_default().to_owned();
        let line = |line: &str| {
            let (test, standing) = line.split_once(": ")?;
            let (word, why) = standing.split_once(": ").unwrap_or((standing, ""));
            let why = why.to_owned();
            let standing = match word {
                "holds" => Standing::Holds,
                "deviates" => Standing::Deviates(why),
                "not offered" => Standing::NotOffered(why),
                "not run" => Standing::NotRun(why),
                _ => return None,
            };
            Some((test.to_owned(), standing))
        };
        Self { device, tests: lines.filter_map(line).collect() }
    }

    /// How a rule stands by these tests: that of the worst.
    pub fn rule<'a>(&self, tests: impl Iterator<Item = &'a str>) -> String {
        let found: Vec<_> = tests.filter_map(|test| self.tests.get(test)).collect();
        let first = |wanted: fn(&Standing) -> bool| found.iter().find(|found| wanted(found));
        let worst = first(|standing| matches!(standing, Standing::Deviates(_)))
            .or_else(|| first(|standing| *standing == Standing::Holds))
            .or_else(|| found.first());
        worst.map(ToString::to_string).unwrap_or_default()
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds => f.write_str("holds"),
            Self::Deviates(why) => write!(f, "deviates: {why}"),
            Self::NotOffered(what) => write!(f, "not offered: {what}"),
            Self::NotRun(why) => write!(f, "not run: {why}"),
        }
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.device)?;
        let mut text = String::new();
        for (test, standing) in &self.tests {
            let _ = writeln!(text, "{test}: {standing}");
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_as_they_were_written_and_the_worst_test_counts() {
        let mut recorded = Recorded { device: device("rxe", true), ..Recorded::default() };
        let standings = [
            ("a", Standing::Holds),
            ("b", Standing::Deviates("it: differs".to_owned())),
            ("c", Standing::NotOffered("that".to_owned())),
            ("d", Standing::NotRun("harm".to_owned())),
        ];
        recorded.tests.extend(standings.map(|(test, standing)| (test.to_owned(), standing)));
        assert_eq!(Recorded::parse(&recorded.to_string()), recorded);
        assert_eq!(recorded.rule(["a", "b"].into_iter()), "deviates: it: differs");
        assert_eq!(recorded.rule(["c", "a"].into_iter()), "holds");
        assert_eq!(recorded.rule(["d"].into_iter()), "not run: harm");
        assert_eq!(recorded.rule(["x"].into_iter()), "");
    }

    #[test]
    fn there_are_results() {
        for recorded in Recorded::all() {
            assert!(recorded.tests.len() > 100, "{}: {}", recorded.device, recorded.tests.len());
        }
    }
}
