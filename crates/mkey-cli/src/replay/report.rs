//! What a replay found, as it is written to JSON and printed. Times are nanoseconds.

use super::left::Left;
use super::strategy::Strategy;
use crate::bench::report::{DeviceFacts, Machine, Outcome, Summary};
use serde::{Deserialize, Serialize};

/// The version of the JSON form; grows when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// Everything that a replay found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of mkey.
    pub mkey: String,
    /// What was recorded: the command line.
    pub command: Vec<String>,
    /// The numbers of the processes that were played, one after the other.
    pub processes: Vec<u32>,
    /// Registrations in their scripts.
    pub registrations: u64,
    /// What registering and deregistering them took in the recorded program; `None`: not recorded.
    pub recorded_ns: Option<u64>,
    /// The device that it was played on.
    pub device: DeviceFacts,
    /// The machine.
    pub machine: Machine,
    /// Whether the times between calls were kept.
    pub as_recorded_speed: bool,
    /// What can not be played by any strategy.
    pub left: Left,
    /// What is otherwise than in the recording, a sentence each.
    pub notes: Vec<String>,
    /// One a strategy.
    pub rows: Vec<Row>,
    /// How long all of it took, seconds.
    pub seconds: f64,
}

/// A strategy and what it cost, or why it was not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The strategy.
    pub strategy: Strategy,
    /// The figures, or why there are none.
    pub outcome: Outcome<Figures>,
}

/// The figures of a strategy. Each time of a call has one reading of the clock in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Whole replays.
    pub rounds: u64,
    /// All time in registration, in the median round: what is registered beforehand, each call, and
    /// what is ended at the end.
    pub total_ns: f64,
    /// Of that, before the first call and after the last.
    pub begin_ns: f64,
    /// As `begin_ns`.
    pub end_ns: f64,
    /// The total against that of `as-recorded` in the same round, median of the rounds.
    pub ratio: f64,
    /// What it saves against `as-recorded` in the same round, median of the rounds; negative: it
    /// costs more.
    pub saving_ns: f64,
    /// One registration of the recording, of all rounds.
    pub register: Option<Summary>,
    /// The end of one.
    pub deregister: Option<Summary>,
    /// Memory regions registered in a round.
    pub made: u64,
    /// The most bytes registered at a time; each region for itself.
    pub most_bytes: u64,
    /// What this strategy did not play, besides what none does.
    pub left: Left,
    /// Why the device refused, the first time.
    pub refused: Option<String>,
}

impl Row {
    /// The figures, if it was measured.
    pub fn figures(&self) -> Option<&Figures> {
        self.outcome.figures()
    }
}

impl Replayed {
    /// The figures of a strategy, if it was measured.
    pub fn figures(&self, strategy: Strategy) -> Option<&Figures> {
        self.rows.iter().find(|row| row.strategy == strategy)?.figures()
    }
}
