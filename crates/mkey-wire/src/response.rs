//! What a responder sends: an operation with the extended headers that it has.

use crate::bytes::take;
use crate::error::{Error, Header};
use crate::opcode::Operation;
use crate::{aeth, atomic_ack_eth};

/// What a responder sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// Data of an RDMA READ.
    Read(ReadResponse),
    /// Acknowledged, not ready, or refused.
    Acknowledge(aeth::Repr),
    /// An atomic is done.
    AtomicAcknowledge {
        /// As of an acknowledgement.
        aeth: aeth::Repr,
        /// What was there before.
        original: u64,
    },
}

/// A packet of an RDMA READ's data, by its place in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub enum ReadResponse {
    First(aeth::Repr),
    Middle,
    Last(aeth::Repr),
    Only(aeth::Repr),
}

impl Response {
    /// Its operation.
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Read(ReadResponse::First(_)) => Operation::ReadResponseFirst,
            Self::Read(ReadResponse::Middle) => Operation::ReadResponseMiddle,
            Self::Read(ReadResponse::Last(_)) => Operation::ReadResponseLast,
            Self::Read(ReadResponse::Only(_)) => Operation::ReadResponseOnly,
            Self::Acknowledge(_) => Operation::Acknowledge,
            Self::AtomicAcknowledge { .. } => Operation::AtomicAcknowledge,
        }
    }

    /// Bytes of its extended headers.
    pub const fn buffer_len(&self) -> usize {
        match self {
            Self::Read(ReadResponse::Middle) => 0,
            Self::Read(_) | Self::Acknowledge(_) => aeth::LEN,
            Self::AtomicAcknowledge { .. } => aeth::LEN + atomic_ack_eth::LEN,
        }
    }

    /// Reads the extended headers of `operation` at the start of `bytes`; gives what follows them,
    /// too.
    ///
    /// # Errors
    /// `Short`, of the header that is cut; `Unexpected` if `operation` is one of a requester.
    pub fn parse(operation: Operation, bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        if let Operation::ReadResponseMiddle = operation {
            return Ok((Self::Read(ReadResponse::Middle), bytes));
        }
        let (packet, rest) = aeth::Packet::new_checked(bytes)?;
        let aeth = aeth::Repr::parse(&packet);
        Ok(match operation {
            Operation::ReadResponseFirst => (Self::Read(ReadResponse::First(aeth)), rest),
            Operation::ReadResponseLast => (Self::Read(ReadResponse::Last(aeth)), rest),
            Operation::ReadResponseOnly => (Self::Read(ReadResponse::Only(aeth)), rest),
            Operation::Acknowledge => (Self::Acknowledge(aeth), rest),
            Operation::AtomicAcknowledge => {
                let (packet, rest) = atomic_ack_eth::Packet::new_checked(rest)?;
                let original = atomic_ack_eth::Repr::parse(&packet).original;
                (Self::AtomicAcknowledge { aeth, original }, rest)
            }
            _ => return Err(operation.misplaced()),
        })
    }

    /// Writes its extended headers to the start of `buffer`, which it moves behind them.
    ///
    /// # Errors
    /// `Short`, of the header that did not fit.
    pub fn emit(&self, buffer: &mut &mut [u8]) -> Result<(), Error> {
        match self {
            Self::Read(ReadResponse::Middle) => {}
            Self::Read(
                ReadResponse::First(aeth) | ReadResponse::Last(aeth) | ReadResponse::Only(aeth),
            )
            | Self::Acknowledge(aeth) => aeth.emit(take(Header::Aeth, buffer)?),
            Self::AtomicAcknowledge { aeth, original } => {
                aeth.emit(take(Header::Aeth, buffer)?);
                let original = atomic_ack_eth::Repr { original: *original };
                original.emit(take(Header::AtomicAckEth, buffer)?);
            }
        }
        Ok(())
    }
}

impl ReadResponse {
    /// Whether a message begins with it.
    pub const fn begins(&self) -> bool {
        matches!(self, Self::First(_) | Self::Only(_))
    }

    /// Whether a message ends with it.
    pub const fn ends(&self) -> bool {
        matches!(self, Self::Last(_) | Self::Only(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syndrome::Syndrome;
    use crate::u24::Msn;

    #[test]
    fn an_operation_of_a_requester_is_no_response() {
        let error = Response::parse(Operation::SendOnly, &[0; 64]).expect_err("a request");
        assert_eq!(error, Operation::SendOnly.misplaced());
    }

    #[test]
    fn where_a_message_begins_and_ends() {
        let aeth = aeth::Repr { syndrome: Syndrome::from_byte(0), msn: Msn::wrapping(0) };
        let places = [
            ReadResponse::First(aeth),
            ReadResponse::Middle,
            ReadResponse::Last(aeth),
            ReadResponse::Only(aeth),
        ];
        assert_eq!(places.map(|p| p.begins()), [true, false, false, true]);
        assert_eq!(places.map(|p| p.ends()), [false, false, true, true]);
    }
}
