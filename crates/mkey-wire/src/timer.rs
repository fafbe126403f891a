//! The 5-bit codes of times.

use std::time::Duration;

/// How long a requester waits for an answer before it tries again: 4.096 us * 2^code; `None` for
/// code 0, which means for ever. Bits above the low 5 are not looked at.
pub const fn ack_timeout(code: u8) -> Option<Duration> {
    match code & 31 {
        0 => None,
        code => Some(Duration::from_nanos(4096 << code)),
    }
}

/// How long a requester waits, at the least, before it tries again where the receiver was not
/// ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnrTimer(u8);

/// The times in hundredths of a millisecond.
const RNR_TIMES: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl RnrTimer {
    /// The timer of a code, the low 5 bits of `code`.
    pub const fn from_code(code: u8) -> Self {
        Self(code & 31)
    }

    /// Its code, below 32.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time: 10 us to 491.52 ms, and 655.36 ms for code 0.
    pub const fn time(self) -> Duration {
        Duration::from_micros(RNR_TIMES[self.0 as usize & 31] as u64 * 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_timeout_doubles_with_its_code_and_0_is_for_ever() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(1), Some(Duration::from_nanos(8_192)));
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(ack_timeout(31), Some(Duration::from_nanos(8_796_093_022_208)));
        assert_eq!(ack_timeout(32), None);
        for code in 1..31 {
            assert_eq!(ack_timeout(code).map(|time| time * 2), ack_timeout(code + 1));
        }
    }

    #[test]
    fn the_times_of_a_receiver_that_is_not_ready() {
        let micros = |code| RnrTimer::from_code(code).time().as_micros();
        assert_eq!([0, 1, 2, 3, 4, 5].map(micros), [655_360, 10, 20, 30, 40, 60]);
        assert_eq!([12, 14, 30, 31].map(micros), [640, 1_280, 327_680, 491_520]);
        assert_eq!(RnrTimer::from_code(0xe1).code(), 1);
        // From code 2 on, each time is twice that of two codes before.
        for code in 4..32 {
            assert_eq!(micros(code), 2 * micros(code - 2), "code {code}");
        }
    }
}
