//! What tests showed over devices of which a machine of its own is needed, as recorded.

use crate::deviations::{self, Version, version};
use crate::fixture::Subject;
use crate::registry::{Outcome, RuleTest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// The results over one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results {
    /// Its driver.
    pub driver: String,
    /// The kernel that it is in, as `uname -r` says.
    pub kernel: String,
    /// How each test ended, by its name.
    pub tests: BTreeMap<String, Seen>,
}

/// How a test ended, in short: why is in the table of deviations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seen {
    /// The rule holds.
    Holds,
    /// It holds but for deviations from these rules.
    HoldsBut(Vec<String>),
    /// It does not hold, as the table says.
    Deviates,
    /// The device lacks this for it.
    Lacks(String),
    /// It was not run, as the table says.
    NotRun,
}

impl Seen {
    /// What is recorded of an outcome.
    ///
    /// # Errors
    /// What was seen, if it is not known.
    pub fn of(outcome: &Outcome) -> Result<Self, String> {
        Ok(match outcome {
            Outcome::Held => Self::Holds,
            Outcome::HeldBut(rules) => Self::HoldsBut(rules.clone()),
            Outcome::Deviated(..) => Self::Deviates,
            Outcome::Broken(seen) => return Err(seen.clone()),
            Outcome::NotOffered(what) => Self::Lacks(what.to_string()),
            Outcome::NotRun(_) => Self::NotRun,
        })
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holds => f.write_str("holds"),
            Self::HoldsBut(rules) => write!(f, "holds but for {}", rules.join(", ")),
            Self::Deviates => f.write_str("deviates"),
            Self::Lacks(what) => write!(f, "lacks {what}"),
            Self::NotRun => f.write_str("not run"),
        }
    }
}

/// A file of results.
struct Recorded {
    name: &'static str,
    driver: &'static str,
    kernels: Range<Version>,
    json: &'static str,
}

const RECORDED: [Recorded; 2] = [
    Recorded {
        name: "rxe-6.1.json",
        driver: "rxe",
        kernels: (0, 0)..(6, 15),
        json: include_str!("../results/rxe-6.1.json"),
    },
    Recorded {
        name: "rxe-7.json",
        driver: "rxe",
        kernels: (6, 15)..(u32::MAX, 0),
        json: include_str!("../results/rxe-7.json"),
    },
];

/// All that is recorded.
///
/// # Errors
/// Which file can not be read.
pub fn recorded() -> Result<Vec<Results>, String> {
    RECORDED.iter().map(read).collect()
}

/// The file with the results over a driver in a kernel, by its name, if there is to be one.
pub fn file(driver: &str, kernel: &str) -> Option<&'static str> {
    find(driver, kernel).map(|file| file.name)
}

/// What is recorded of a driver in a kernel, if it is to be recorded.
///
/// # Errors
/// Which file can not be read.
pub fn of(driver: &str, kernel: &str) -> Result<Option<Results>, String> {
    find(driver, kernel).map(read).transpose()
}

fn find(driver: &str, kernel: &str) -> Option<&'static Recorded> {
    let kernel = version(kernel)?;
    RECORDED.iter().find(|file| file.driver == driver && file.kernels.contains(&kernel))
}

fn read(file: &Recorded) -> Result<Results, String> {
    serde_json::from_str(file.json).map_err(|error| format!("results/{}: {error}", file.name))
}

impl Results {
    /// What the page calls the device.
    pub fn title(&self) -> String {
        format!("{}, Linux {}", self.driver, self.kernel)
    }

    /// The outcomes of `tests`, each with the reasons that the table has.
    ///
    /// # Errors
    /// Which test is not as the table and the tests say.
    pub fn outcomes<S: Subject>(&self, tests: &[RuleTest<S>]) -> Result<Vec<Outcome>, String> {
        let kernel = version(&self.kernel).ok_or_else(|| format!("no kernel: {}", self.kernel))?;
        let deviations = deviations::of(&self.driver, kernel);
        let title = self.title();
        if let Some(name) =
            self.tests.keys().find(|name| tests.iter().all(|test| test.name != **name))
        {
            return Err(format!("{title}: there is no test {name}"));
        }
        let outcome = |test: &RuleTest<S>| {
            let why = |what: &str| format!("{title}: {}: {what}", test.name);
            let seen = self.tests.get(test.name).ok_or_else(|| why("not recorded"))?;
            let known = deviations.iter().copied().find(|deviation| deviation.covers(test.name));
            Ok(match (seen, known) {
                (Seen::Holds, None) => Outcome::Held,
                (Seen::HoldsBut(rules), None) => Outcome::HeldBut(rules.clone()),
                (Seen::Deviates, Some(known)) => Outcome::Deviated(known, String::new()),
                (Seen::NotRun, Some(known)) => Outcome::NotRun(known),
                (Seen::Lacks(what), None) => {
                    let lacks = test.needs.iter().find(|need| need.to_string() == *what);
                    Outcome::NotOffered(*lacks.ok_or_else(|| why("it needs no such thing"))?)
                }
                (seen, None) => return Err(why(&format!("{seen}, but is not in the table"))),
                (seen, Some(_)) => return Err(why(&format!("{seen}, but is in the table"))),
            })
        };
        tests.iter().map(outcome).collect()
    }
}
