//! What a recording shows.
//!
//! * [`head`]: whose recording it is, and what taking it cost. [`cost`]: what registration cost, by verb,
//!   process and place. [`over_time`], [`latency`]: when, and how long.
//! * [`data_path`], [`repeated`], [`small`]: what could be had for less. [`held`], [`granted`], [`windows`]:
//!   what was not needed. [`counters`]: what the devices count. [`failures`], [`lifetimes`]: what went wrong.
//! * [`findings`]: what of it is worth a change, the worst first, by [`thresholds`]; [`code`], [`says`],
//!   [`mend`]: their names and words. [`mod@text`]: the report as text.
//! * [`ground`], [`peers`], [`places`], [`tally`], [`list`], [`times`], [`spans`]: what these stand on.
//!
//! Nothing is claimed that the recording does not show: what a peer that was not traced may have done, and what
//! a killed process left, is told as not known.

pub mod code;
pub mod cost;
pub mod counters;
pub mod data_path;
pub mod failures;
pub mod findings;
pub mod granted;
pub mod grid;
pub mod ground;
pub mod head;
pub mod held;
pub mod latency;
pub mod lifetimes;
pub mod list;
pub mod mend;
pub mod over_time;
pub mod peers;
pub mod places;
pub mod repeated;
#[cfg(test)]
pub(crate) mod sample;
pub mod says;
pub mod small;
pub mod spans;
pub mod tally;
#[cfg(test)]
pub(crate) mod tests;
pub mod text;
pub mod thresholds;
pub mod times;
pub mod windows;

use crate::lang::Lang;
use ground::Ground;
use list::List;
use mkey_trace::format::Recording;
use serde::Serialize;

/// The version of the report's form.
pub const SCHEMA: u32 = 1;

/// What a recording shows. Times are nanoseconds; `at` and the like since the job began; addresses relative, as
/// in the recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The language of its texts.
    pub lang: Lang,
    /// Whose recording it is.
    pub head: head::Head,
    /// What is worth a change, the worst first.
    pub findings: Vec<findings::Finding>,
    /// What registration cost.
    pub registration: cost::Registration,
    /// When.
    pub over_time: over_time::OverTime,
    /// How long, by size and pages.
    pub latency: Vec<latency::Cell>,
    /// Between work requests.
    pub data_path: data_path::DataPath,
    /// The same memory again.
    pub repeated: repeated::Repeated,
    /// Small regions that could be one.
    pub small: small::Small,
    /// Regions never used, or left at exit.
    pub held: held::Held,
    /// Rights never used.
    pub rights: granted::Granted,
    /// Memory windows.
    pub windows: windows::Windows,
    /// Counters of the devices.
    pub counters: counters::Counters,
    /// Calls and work that failed.
    pub failures: failures::Failures,
    /// Mistakes in the life of memory and keys.
    pub lifetimes: List<lifetimes::Lifetime>,
}

impl Report {
    /// Of a recording, in English.
    pub fn of(recording: &Recording) -> Self {
        Self::told(recording, Lang::En)
    }

    /// Of a recording, in a language.
    pub fn told(recording: &Recording, lang: Lang) -> Self {
        let ground = Ground::new(recording);
        let lives = lifetimes::all(&ground, lang);
        let mut report = Self {
            schema: SCHEMA,
            lang,
            head: head::Head::of(&ground),
            findings: Vec::new(),
            registration: cost::Registration::of(&ground),
            over_time: over_time::OverTime::of(&ground),
            latency: latency::cells(&ground),
            data_path: data_path::DataPath::of(&ground),
            repeated: repeated::Repeated::of(&ground),
            small: small::Small::of(&ground),
            held: held::Held::of(&ground),
            rights: granted::Granted::of(&ground),
            windows: windows::Windows::of(&ground),
            counters: counters::Counters::of(recording),
            failures: failures::Failures::of(&ground, lang),
            lifetimes: List::default(),
        };
        report.findings = findings::all(&report, &lives);
        report.lifetimes = List::of(lives);
        report
    }
}
