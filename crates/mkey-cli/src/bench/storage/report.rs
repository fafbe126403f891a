//! What a run of `mkey bench storage` found, as it is written to JSON and CSV and printed.
//!
//! Times are nanoseconds. `None` is "there is no such figure", never zero.

use crate::bench::report::{DeviceFacts, Machine, Missing, Outcome};
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
    /// The I/O.
    pub workload: Workload,
    /// The declared device command, nanoseconds; 0: none.
    pub command_cost_ns: u64,
    /// One row for each block size and strategy.
    pub rows: Vec<Row>,
    /// What the figures were to be.
    pub aims: Vec<Aim>,
    /// What this machine did not allow, and the command that would.
    pub missing: Vec<Missing>,
    /// How long the run took, seconds.
    pub seconds: f64,
}

/// The I/O, in fio's words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The pattern.
    pub rw: String,
    /// I/Os in flight, for each job.
    pub iodepth: u64,
    /// Jobs.
    pub numjobs: u64,
    /// Time for each row, seconds.
    pub runtime: f64,
    /// Bytes of each job's disk.
    pub size: u64,
    /// Rounds that the time is divided into; all rows take turns.
    pub rounds: u64,
}

/// A strategy at a block size, and what it cost, or why it was not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// A stable name for programs, as in `mr-per-io`.
    pub id: String,
    /// The name for people.
    pub strategy: String,
    /// Bytes of an I/O.
    pub bs: u64,
    /// Whether a declared device command is in the figures.
    pub simulated: bool,
    /// The figures, or why there are none.
    pub outcome: Outcome<Figures>,
}

/// The figures of a row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// What one I/O needs besides its data, in words.
    pub how: String,
    /// The pages of the registered memory: `4 KiB`, `THP`, `2 MiB`, `1 GiB`.
    pub pages: String,
    /// I/Os a second, all jobs together: median of the rounds.
    pub iops: f64,
    /// Time of a job's thread for one I/O: median of the rounds.
    pub ns_per_io: f64,
    /// CPU time of the process for one I/O, user and system: median of the rounds.
    pub cpu_ns_per_io: f64,
    /// From asking for an I/O to the end of its buffer's closing.
    pub latency: Option<Latency>,
    /// IOPS against those of the unsafe static registration, in percent: median of the rounds'
    /// ratios.
    pub percent_of_static: Option<f64>,
    /// IOPS against those of a registration for each I/O, how many times: likewise.
    pub times_mr_per_io: Option<f64>,
    /// I/Os in all rounds that count.
    pub ios: u64,
    /// I/Os of these that were checked to the last word; of the others, both ends.
    pub checked_whole: u64,
    /// Memory regions registered meanwhile.
    pub registrations: u64,
    /// Heap allocations of the jobs' threads meanwhile; `None`: not counted.
    pub allocations: Option<u64>,
    /// System calls, of a pass of its own.
    pub system_calls: SystemCalls,
}

/// Quantiles of the time of one I/O.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// I/Os timed.
    pub samples: u64,
}

/// System calls of a job's thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemCalls {
    /// Counted.
    Counted {
        /// I/Os of the pass.
        ios: u64,
        /// System calls in them.
        calls: u64,
        /// The same by name, the most frequent first.
        by_name: Vec<(String, u64)>,
    },
    /// Not counted; why.
    NotMeasured(Missing),
}

impl Default for SystemCalls {
    fn default() -> Self {
        Self::NotMeasured(Missing::plain("no pass was made"))
    }
}

/// What a figure was to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Aim {
    /// What the figure is of.
    pub work: String,
    /// What it was to be.
    pub aim: String,
    /// The figure, or why there is none.
    pub figure: String,
    /// Whether it was met; `None`: not measured.
    pub met: Option<bool>,
}

impl Row {
    /// The figures, if it was measured.
    pub fn figures(&self) -> Option<&Figures> {
        self.outcome.figures()
    }
}

impl Report {
    /// The figures of a row, if it was measured.
    pub fn figures(&self, id: &str, bs: u64) -> Option<&Figures> {
        self.rows.iter().find(|row| row.id == id && row.bs == bs).and_then(Row::figures)
    }
}
