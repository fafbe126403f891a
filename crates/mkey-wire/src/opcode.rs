//! The opcode of a packet: which transport, and which operation.

use crate::error::{Error, Header};

/// The opcode of a base transport header, 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// Reliable connection: any operation.
    Rc(Operation),
    /// Unreliable connection: SEND and RDMA WRITE.
    Uc(Operation),
    /// Unreliable datagram: [`Operation::SendOnly`] and [`Operation::SendOnlyImm`].
    Ud(Operation),
    /// Extended reliable connection: any operation.
    Xrc(Operation),
    /// Congestion notification packet (RoCEv2).
    Cnp,
}

/// What a packet does: the low 5 bits of its opcode. *First*, *middle*, *last* and *only* are the
/// packet's place in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImm = 0x03,
    SendOnly = 0x04,
    SendOnlyImm = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImm = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImm = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInv = 0x16,
    SendOnlyInv = 0x17,
    Flush = 0x1c,
    AtomicWrite = 0x1d,
}

const UC: u8 = 0x20;
const UD: u8 = 0x60;
const CNP: u8 = 0x81;
const XRC: u8 = 0xa0;

impl Opcode {
    /// The opcode of a byte; `None` if there is none: reserved ones, and those of reliable
    /// datagrams, which RoCEv2 devices do not have.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        use Operation::*;
        if byte == CNP {
            return Some(Self::Cnp);
        }
        let Some(operation) = Operation::from_code(byte & 0x1f) else { return None };
        Some(match (byte & 0xe0, operation) {
            (0, _) => Self::Rc(operation),
            (
                UC,
                SendFirst | SendMiddle | SendLast | SendLastImm | SendOnly | SendOnlyImm
                | WriteFirst | WriteMiddle | WriteLast | WriteLastImm | WriteOnly | WriteOnlyImm,
            ) => Self::Uc(operation),
            (UD, SendOnly | SendOnlyImm) => Self::Ud(operation),
            (XRC, _) => Self::Xrc(operation),
            _ => return None,
        })
    }

    /// Its byte. An operation that the transport does not have gives a byte that
    /// [`from_byte`](Self::from_byte) does not take.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Rc(operation) => operation as u8,
            Self::Uc(operation) => UC | operation as u8,
            Self::Ud(operation) => UD | operation as u8,
            Self::Xrc(operation) => XRC | operation as u8,
            Self::Cnp => CNP,
        }
    }
}

impl Operation {
    /// Whether a responder sends it.
    pub const fn is_response(self) -> bool {
        (Self::ReadResponseFirst as u8) <= self as u8 && self as u8 <= Self::AtomicAcknowledge as u8
    }

    /// The error of one that is on the wrong side.
    pub(crate) const fn misplaced(self) -> Error {
        Header::Bth.unexpected("operation", self as u64)
    }

    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x00 => Self::SendFirst,
            0x01 => Self::SendMiddle,
            0x02 => Self::SendLast,
            0x03 => Self::SendLastImm,
            0x04 => Self::SendOnly,
            0x05 => Self::SendOnlyImm,
            0x06 => Self::WriteFirst,
            0x07 => Self::WriteMiddle,
            0x08 => Self::WriteLast,
            0x09 => Self::WriteLastImm,
            0x0a => Self::WriteOnly,
            0x0b => Self::WriteOnlyImm,
            0x0c => Self::ReadRequest,
            0x0d => Self::ReadResponseFirst,
            0x0e => Self::ReadResponseMiddle,
            0x0f => Self::ReadResponseLast,
            0x10 => Self::ReadResponseOnly,
            0x11 => Self::Acknowledge,
            0x12 => Self::AtomicAcknowledge,
            0x13 => Self::CompareSwap,
            0x14 => Self::FetchAdd,
            0x16 => Self::SendLastInv,
            0x17 => Self::SendOnlyInv,
            0x1c => Self::Flush,
            0x1d => Self::AtomicWrite,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_of_the_specification() {
        assert_eq!(Opcode::from_byte(0x00), Some(Opcode::Rc(Operation::SendFirst)));
        assert_eq!(Opcode::from_byte(0x17), Some(Opcode::Rc(Operation::SendOnlyInv)));
        assert_eq!(Opcode::from_byte(0x2b), Some(Opcode::Uc(Operation::WriteOnlyImm)));
        assert_eq!(Opcode::from_byte(0x64), Some(Opcode::Ud(Operation::SendOnly)));
        assert_eq!(Opcode::from_byte(0x65), Some(Opcode::Ud(Operation::SendOnlyImm)));
        assert_eq!(Opcode::from_byte(0x81), Some(Opcode::Cnp));
        assert_eq!(Opcode::from_byte(0xb1), Some(Opcode::Xrc(Operation::Acknowledge)));
    }

    #[test]
    fn the_bytes_that_are_opcodes() {
        let defined: Vec<u8> =
            (0..=u8::MAX).filter(|byte| Opcode::from_byte(*byte).is_some()).collect();
        let any = || (0x00..=0x14).chain([0x16, 0x17, 0x1c, 0x1d]);
        let expected: Vec<u8> = any()
            .chain(0x20..=0x2b)
            .chain([0x64, 0x65, 0x81])
            .chain(any().map(|code| 0xa0 | code))
            .collect();
        assert_eq!(defined, expected);
        for byte in defined {
            assert_eq!(Opcode::from_byte(byte).map(Opcode::byte), Some(byte));
        }
    }

    #[test]
    fn responders_send_data_and_acknowledgements() {
        let responses: Vec<u8> = (0..32)
            .filter(|code| Operation::from_code(*code).is_some_and(Operation::is_response))
            .collect();
        assert_eq!(responses, [0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12]);
    }

    #[test]
    fn an_operation_that_the_transport_does_not_have_is_no_opcode() {
        for opcode in [
            Opcode::Uc(Operation::ReadRequest),
            Opcode::Uc(Operation::SendOnlyInv),
            Opcode::Ud(Operation::SendFirst),
            Opcode::Ud(Operation::WriteOnly),
        ] {
            assert_eq!(Opcode::from_byte(opcode.byte()), None, "{opcode:?}");
        }
    }
}
