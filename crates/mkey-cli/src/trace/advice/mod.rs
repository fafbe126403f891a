//! What other strategies would have cost for the same run.

use mkey_trace::format::Recording;
use serde::Serialize;

/// What would mend it, the greatest saving first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Advice {}

impl Advice {
    /// For a recording.
    pub fn of(recording: &Recording) -> Self {
        let _ = recording;
        Self::default()
    }
}
