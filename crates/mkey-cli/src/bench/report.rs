//! What a run of `mkey bench` found: the figures, as they are written to JSON and CSV and printed.
//!
//! Times are nanoseconds. `None` is "there is no such figure", never zero.

use serde::{Deserialize, Serialize};

/// The version of the JSON form; grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// Everything that a run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of mkey.
    pub mkey: String,
    /// The device measured.
    pub device: DeviceFacts,
    /// The machine.
    pub machine: Machine,
    /// The memory registered.
    pub memory: MemoryFacts,
    /// The I/O measured.
    pub io: IoShape,
    /// The declared device command, nanoseconds; 0: none.
    pub command_cost_ns: u64,
    /// One row a strategy, in the order of the table.
    pub rows: Vec<Row>,
    /// The four mechanisms, placed by the figures.
    pub mechanisms: Vec<Mechanism>,
    /// Widely copied claims beside the figures.
    pub claims: Vec<Claim>,
    /// What this machine did not allow, and the command that would.
    pub missing: Vec<Missing>,
    /// How long the run took, seconds.
    pub seconds: f64,
}

/// The device measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Its name.
    pub name: String,
    /// What stands behind it.
    pub driver: String,
    /// Whether its figures are those of software.
    pub software: bool,
    /// The pin mode that held the most spans: kernel, mlock or none.
    pub pin: String,
    /// The pin mode asked for; `pin` is weaker where that was refused.
    pub pin_asked: String,
    /// What it fell back to, a sentence each.
    pub notes: Vec<String>,
}

impl DeviceFacts {
    /// Whether it is the software RNIC of this process, which is known to the last detail.
    pub fn is_mkeys(&self) -> bool {
        self.name == crate::device::SOFTWARE
    }
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release.
    pub kernel: String,
    /// The processor's model, where the kernel tells.
    pub cpu: Option<String>,
    /// Cores that the process may use; as many threads prefault.
    pub cores: usize,
    /// What two readings of the clock in a row cost, nanoseconds.
    pub clock_ns: u64,
}

/// The memory registered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryFacts {
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes registered by each row.
    pub bytes: u64,
}

/// The I/O measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoShape {
    /// Bytes of one I/O.
    pub bytes: u64,
    /// Bytes that the I/Os go over, again and again.
    pub working_set: u64,
    /// I/Os posted at a time.
    pub depth: usize,
}

/// A strategy and what it cost, or why it was not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// A stable name for programs, as in `mr-4k`.
    pub id: String,
    /// The name for people.
    pub strategy: String,
    /// The pages of the registered memory: `4 KiB`, `THP`, `2 MiB`, `1 GiB`.
    pub page: String,
    /// Whether a declared device command is in the figures.
    pub simulated: bool,
    /// The figures, or why there are none.
    pub outcome: Outcome,
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome<F = Figures> {
    /// Measured.
    Measured(Box<F>),
    /// Not measured.
    NotMeasured(Missing),
}

/// The figures of a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Registering all of the memory once; `None` where nothing is registered ahead.
    pub register: Option<Register>,
    /// Allocating one window or fast-registration region.
    pub allocate: Option<Summary>,
    /// What one I/O needs before and after its data moves; `None`: nothing.
    pub map: Option<Summary>,
    /// What `map` holds, in words.
    pub map_is: String,
    /// I/O against a bare copy.
    pub bandwidth: Option<Bandwidth>,
    /// CPU time of one I/O, all threads of the process, its mapping included.
    pub cpu: Option<Summary>,
}

/// Registering and deregistering memory, by term.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Register {
    /// Bytes registered.
    pub bytes: u64,
    /// Bringing all pages in; `None` where pages fault in later.
    pub prefault: Option<Summary>,
    /// Pinning, as the device counts it; `None` where nothing is pinned.
    pub pin: Option<Summary>,
    /// The device's own tables; `None` where the device does not tell.
    pub table: Option<Summary>,
    /// Declared device commands; `None`: none declared.
    pub command: Option<Summary>,
    /// The verb from call to return: pin, table, command and what lies between.
    pub verb: Summary,
    /// The verb of deregistration from call to return.
    pub deregister: Summary,
}

impl Register {
    /// Prefault and verb, medians.
    pub fn total_ns(&self) -> f64 {
        self.prefault.map_or(0.0, |p| p.median_ns) + self.verb.median_ns
    }
}

/// I/O against a bare copy of the same size over the same working set, in turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Median of the rounds' ratios, in percent.
    pub percent_of_bare: f64,
    /// The strategy, median, bytes a second.
    pub bytes_per_second: f64,
    /// The bare copy, median, bytes a second.
    pub bare_bytes_per_second: f64,
    /// Rounds.
    pub rounds: u64,
}

/// A distribution of times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Median.
    pub median_ns: f64,
    /// 99th percentile; of few samples it is the largest.
    pub p99_ns: f64,
    /// Samples taken.
    pub samples: u64,
    /// Operations in a sample; above 1, the sample is their mean, because one is too short for the
    /// clock.
    pub batch: u32,
}

/// One of the four mechanisms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mechanism {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub what_for: String,
    /// Its cost class, from this run's figures.
    pub cost: String,
    /// What hardware or driver it needs.
    pub needs: String,
}

/// A widely copied claim beside this run's figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// What is claimed.
    pub claim: String,
    /// What this run measured.
    pub measured: String,
    /// Why they differ.
    pub why: String,
}

/// Something that could not be done here, and the command that would allow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What is missing and what that means.
    pub what: String,
    /// The command that would allow it.
    pub command: Option<String>,
    /// Whether the device failed at it, rather than not offering it or not being allowed to.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

impl<F> Outcome<F> {
    /// The figures, if it was measured.
    pub fn figures(&self) -> Option<&F> {
        match self {
            Self::Measured(figures) => Some(figures),
            Self::NotMeasured(_) => None,
        }
    }

    /// Why it was not measured, if so.
    pub fn missing(&self) -> Option<&Missing> {
        match self {
            Self::Measured(_) => None,
            Self::NotMeasured(missing) => Some(missing),
        }
    }
}

impl Missing {
    /// With the command that would allow it, if there is one.
    pub fn new(what: impl Into<String>, command: Option<String>) -> Self {
        Self { what: what.into(), command, failed: false }
    }

    /// With the command that would allow it.
    pub fn with(what: impl Into<String>, command: impl Into<String>) -> Self {
        Self::new(what, Some(command.into()))
    }

    /// Something that no command mends.
    pub fn plain(what: impl Into<String>) -> Self {
        Self::new(what, None)
    }
}

impl Report {
    /// The figures of the row with this id, if it was measured.
    pub fn figures(&self, id: &str) -> Option<&Figures> {
        self.rows.iter().find(|row| row.id == id).and_then(Row::figures)
    }
}

impl Row {
    /// The figures, if it was measured.
    pub fn figures(&self) -> Option<&Figures> {
        self.outcome.figures()
    }
}
