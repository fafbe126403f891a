//! What a recording shows.

use mkey_trace::format::Recording;
use serde::Serialize;

/// What a recording shows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {}

impl Report {
    /// Of a recording.
    pub fn of(recording: &Recording) -> Self {
        let _ = recording;
        Self::default()
    }
}
