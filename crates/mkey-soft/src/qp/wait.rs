//! Why the head of a send queue waits, and the codes of times.

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
    /// A revocation has begun and old accesses are running still.
    Quiet(Box<Change>),
}

/// Tries that the head of the send queue has left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries {
    pub(super) answer: u8,
    pub(super) receiver: u8,
}

/// The time of a 5-bit timeout code; `None` for 0, which means for ever.
pub(super) fn answer_time(code: u8) -> Option<Duration> {
    (code != 0).then(|| Duration::from_nanos(4096 << (code & 31)))
}

/// The time of a 5-bit receiver-not-ready code.
pub(super) fn receiver_time(code: u8) -> Duration {
    const HUNDREDTHS_OF_MS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    let hundredths = HUNDREDTHS_OF_MS.get(usize::from(code & 31)).copied().unwrap_or(1);
    Duration::from_micros(u64::from(hundredths) * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_codes() {
        assert_eq!(answer_time(0), None);
        assert_eq!(answer_time(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(answer_time(31), Some(Duration::from_nanos(8_796_093_022_208)));
        assert_eq!(receiver_time(0), Duration::from_micros(655_360));
        assert_eq!(receiver_time(1), Duration::from_micros(10));
        assert_eq!(receiver_time(12), Duration::from_micros(640));
        assert_eq!(receiver_time(31), Duration::from_micros(491_520));
    }
}
