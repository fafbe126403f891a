//! Why the head of a send queue waits.

use mkey_core::engine::Change;
use std::time::Duration;

/// Why the head of the send queue is not done yet.
#[derive(Debug)]
pub(super) enum Wait {
    /// No answer came; another try, or the end of tries, at this time (`None`: never). `resend`:
    /// whether a try sends the request again.
    Answer { until: Option<Duration>, resend: bool },
    /// The responder had no receive; another try at this time.
    Receiver { until: Duration },
    /// A datagram found no room on its path.
    Room,
    /// A revocation has begun and old accesses are running still.
    Quiet(Box<Change>),
}
