//! How often a requester tries again, and the codes of times.

use std::time::Duration;

/// The settings of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Tries after the first where no answer came or packets were lost.
    pub(crate) answers: u8,
    /// Tries after the first where no receive was there; 7: without end.
    pub(crate) receivers: u8,
    /// How long an answer may take; `None`: for ever.
    pub(crate) timeout: Option<Duration>,
}

/// What is left of it since something was last acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tries {
    answers: u8,
    receivers: u8,
}

/// No try is left.
#[derive(Debug)]
pub(super) struct Exhausted;

impl Tries {
    pub(super) fn all(patience: &Patience) -> Self {
        Self { answers: patience.answers, receivers: patience.receivers }
    }

    /// No answer, or not the right one.
    pub(super) fn answer(&mut self) -> Result<(), Exhausted> {
        self.answers = self.answers.checked_sub(1).ok_or(Exhausted)?;
        Ok(())
    }

    /// The responder had no receive. It has answered, so what it did not answer before is forgiven.
    pub(super) fn receiver(&mut self, patience: &Patience) -> Result<(), Exhausted> {
        self.answers = patience.answers;
        if patience.receivers != 7 {
            self.receivers = self.receivers.checked_sub(1).ok_or(Exhausted)?;
        }
        Ok(())
    }
}

/// The time of a 5-bit timeout code; `None` for 0, which means for ever.
pub(crate) fn answer_time(code: u8) -> Option<Duration> {
    (code != 0).then(|| Duration::from_nanos(4096 << (code & 31)))
}

/// The time of a 5-bit receiver-not-ready code.
pub(crate) fn receiver_time(code: u8) -> Duration {
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
