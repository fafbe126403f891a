//! What a run of `mkey bench tensor` found, as it is written to JSON and CSV and printed.
//!
//! Times are nanoseconds, medians of the iterations.

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
    /// Bytes of one RDMA WRITE.
    pub chunk: u64,
    /// Bytes of the peer's memory, where chunks land over and over.
    pub landing: u64,
    /// How often each buffer was pushed cold, and warm after that.
    pub iterations: u64,
    /// The declared device command, nanoseconds; 0: none.
    pub command_cost_ns: u64,
    /// One row for each size and strategy.
    pub rows: Vec<Row>,
    /// How long the run took, seconds.
    pub seconds: f64,
}

/// A strategy at a size, and what it cost, or why it was not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// A stable name for programs, as in `on-demand`.
    pub id: String,
    /// The name for people.
    pub strategy: String,
    /// Bytes of the buffer.
    pub bytes: u64,
    /// Whether a declared device command is in the figures.
    pub simulated: bool,
    /// The figures, or why there are none.
    pub outcome: Outcome<Figures>,
}

/// The figures of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The pages of the buffer: `4 KiB`, `THP`, `2 MiB`, `1 GiB`.
    pub pages: String,
    /// The first push of a buffer.
    pub cold: Push,
    /// Its next push.
    pub warm: Push,
    /// Page faults of the device in the cold push; `None`: the strategy has none.
    pub faults: Option<u64>,
    /// Why the buffer is not on larger pages.
    pub smaller_pages: Option<Missing>,
}

/// What a push took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Push {
    /// From wanting to push to having the buffer back.
    pub total_ns: f64,
    /// Of that, registering and deregistering.
    pub registration_ns: f64,
    /// The share of registration, in percent: median of the iterations' shares.
    pub registration_percent: f64,
    /// Bytes a second, registration included.
    pub bytes_per_second: f64,
}

impl Row {
    /// The figures, if it was measured.
    pub fn figures(&self) -> Option<&Figures> {
        self.outcome.figures()
    }
}
