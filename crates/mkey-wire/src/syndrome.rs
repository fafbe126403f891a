//! What an AETH says: acknowledged, not ready, or refused.

use crate::timer::RnrTimer;

/// The syndrome of an AETH, 8 bits. Every byte is one, and writes itself again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// Acknowledged, and how many more messages the responder has receives for.
    Ack(Credits),
    /// The responder had no receive: try again after this time.
    RnrNak(RnrTimer),
    /// Refused.
    Nak(NakCode),
    /// A byte that means nothing.
    Reserved(u8),
}

impl Syndrome {
    /// The syndrome of a byte.
    pub const fn from_byte(byte: u8) -> Self {
        match (byte >> 5, NakCode::from_code(byte & 31)) {
            (0b000, _) => Self::Ack(Credits(byte & 31)),
            (0b001, _) => Self::RnrNak(RnrTimer::from_code(byte)),
            (0b011, Some(code)) => Self::Nak(code),
            _ => Self::Reserved(byte),
        }
    }

    /// Its byte.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Ack(credits) => credits.0,
            Self::RnrNak(timer) => 0x20 | timer.code(),
            Self::Nak(code) => 0x60 | code as u8,
            Self::Reserved(byte) => byte,
        }
    }
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing in front of this one; the AETH's packet has the PSN that is expected.
    PsnSequence = 0,
    /// An operation that the queue pair does not allow, or a wrong length.
    InvalidRequest = 1,
    /// A key, a range or a right of a region or window.
    RemoteAccess = 2,
    /// The responder failed on it.
    RemoteOperational = 3,
    /// Reliable datagrams only.
    InvalidRdRequest = 4,
}

impl NakCode {
    /// The code of the low 5 bits of a syndrome; `None` if it is reserved.
    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::PsnSequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRdRequest,
            _ => return None,
        })
    }
}

/// How many messages a responder has receives for, as a 5-bit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits(u8);

/// The counts of the codes below 31.
const COUNTS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

impl Credits {
    /// No count is said, and none limits the requester: a responder with a shared receive queue,
    /// or without flow control.
    pub const UNLIMITED: Self = Self(31);

    /// The greatest code that does not promise more than `count` receives.
    pub fn at_most(count: u32) -> Self {
        // The first count is 0, so at least one is not greater.
        let not_greater = COUNTS.partition_point(|said| *said <= count);
        Self(not_greater.saturating_sub(1) as u8)
    }

    /// The count; `None` for [`UNLIMITED`](Self::UNLIMITED).
    pub fn count(self) -> Option<u32> {
        COUNTS.get(usize::from(self.0)).copied()
    }

    /// Its code, below 32.
    pub const fn code(self) -> u8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_high_bits_say_what_kind_of_answer() {
        assert_eq!(Syndrome::from_byte(0x1f), Syndrome::Ack(Credits::UNLIMITED));
        assert_eq!(Syndrome::from_byte(0x05), Syndrome::Ack(Credits::at_most(7)));
        assert_eq!(Syndrome::from_byte(0x2e), Syndrome::RnrNak(RnrTimer::from_code(14)));
        assert_eq!(Syndrome::from_byte(0x60), Syndrome::Nak(NakCode::PsnSequence));
        assert_eq!(Syndrome::from_byte(0x61), Syndrome::Nak(NakCode::InvalidRequest));
        assert_eq!(Syndrome::from_byte(0x62), Syndrome::Nak(NakCode::RemoteAccess));
        assert_eq!(Syndrome::from_byte(0x63), Syndrome::Nak(NakCode::RemoteOperational));
        assert_eq!(Syndrome::from_byte(0x64), Syndrome::Nak(NakCode::InvalidRdRequest));
        for reserved in [0x40, 0x5f, 0x65, 0x7f, 0x80, 0x9f, 0xff] {
            assert_eq!(Syndrome::from_byte(reserved), Syndrome::Reserved(reserved));
        }
    }

    #[test]
    fn every_byte_is_a_syndrome_and_writes_itself_again() {
        for byte in 0..=u8::MAX {
            assert_eq!(Syndrome::from_byte(byte).byte(), byte);
        }
    }

    #[test]
    fn credits_never_promise_more_than_there_is() {
        assert_eq!(Credits::UNLIMITED.count(), None);
        for (code, count) in COUNTS.iter().enumerate() {
            let credits = Credits::at_most(*count);
            assert_eq!(usize::from(credits.code()), code);
            assert_eq!(credits.count(), Some(*count));
        }
        for (count, said) in [(5, 4), (7, 6), (1000, 768), (32_769, 32_768), (u32::MAX, 32_768)] {
            assert_eq!(Credits::at_most(count).count(), Some(said), "{count}");
        }
    }
}
