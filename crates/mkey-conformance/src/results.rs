//! What tests showed over devices of which a machine of its own is needed, as recorded.

use crate::deviations::{self, Version};
use crate::fixture::Subject;
use crate::registry::{Outcome, RuleTest};
use mkey_os::kernel::version;
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
    /// It may not hold, by chance, as the table says.
    ByChance,
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
            Outcome::ByChance(_) => Self::ByChance,
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
            Self::ByChance => f.write_str("deviates by chance"),
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
                (Seen::ByChance, Some(known)) => Outcome::ByChance(known),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules;
    use crate::soft::Soft;

    const ATOMICS: &str = "r_at_02_misaligned_address";
    const FAST: &str = "r_fr_01_allocated_empty";

    fn outcome(name: &str, seen: Option<Seen>) -> Result<Outcome, String> {
        let tests: Vec<_> =
            rules::all::<Soft>().into_iter().filter(|test| test.name == name).collect();
        let tests_seen = seen.into_iter().map(|seen| (name.to_owned(), seen)).collect();
        let (driver, kernel) = ("rxe".to_owned(), "7.3.4+deb13-amd64".to_owned());
        let results = Results { driver, kernel, tests: tests_seen };
        results.outcomes(&tests).map(|outcomes| outcomes[0].clone())
    }

    #[test]
    fn what_is_recorded_fits_the_tests_and_the_table() {
        let deviated = outcome(ATOMICS, Some(Seen::Deviates));
        assert!(matches!(deviated, Ok(Outcome::Deviated(known, _)) if known.covers(ATOMICS)));
        let lacks = Seen::Lacks("fast registration".to_owned());
        assert!(matches!(outcome(FAST, Some(lacks.clone())), Ok(Outcome::NotOffered(_))));
        for (name, seen, why) in [
            (ATOMICS, Some(Seen::Holds), "holds, but is in the table"),
            (FAST, Some(Seen::Deviates), "deviates, but is not in the table"),
            (FAST, Some(Seen::NotRun), "not run, but is not in the table"),
            (ATOMICS, Some(lacks), "lacks fast registration, but is in the table"),
            (FAST, Some(Seen::Lacks("atomics".to_owned())), "it needs no such thing"),
            (FAST, None, "not recorded"),
        ] {
            let error = outcome(name, seen).expect_err(why);
            assert!(error.contains(why) && error.contains(name), "{error}");
        }
        let of_no_test = Results {
            driver: "rxe".to_owned(),
            kernel: "6.1.0".to_owned(),
            tests: BTreeMap::from([("r_key_99_nothing".to_owned(), Seen::Holds)]),
        };
        let error = of_no_test.outcomes(&rules::all::<Soft>()).expect_err("no such test");
        assert!(error.contains("r_key_99_nothing"), "{error}");
    }

    #[test]
    fn a_kernel_has_one_file() {
        assert_eq!(file("rxe", "6.1.0-50-amd64"), Some("rxe-6.1.json"));
        assert_eq!(file("rxe", "7.3.4+deb13-amd64"), Some("rxe-7.json"));
        assert_eq!(file("rxe", "nonsense"), None);
        assert_eq!(file("mlx5", "7.3.4"), None);
        assert_eq!(of("mlx5", "7.3.4"), Ok(None));
    }
}
