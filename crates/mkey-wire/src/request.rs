//! What a requester sends: an operation with the extended headers that it has.

use crate::bytes::take;
use crate::error::{Error, Header};
use crate::opcode::Operation;
use crate::{atomic_eth, feth, ieth, immdt, reth};

/// What a requester sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SEND.
    Send(Send),
    /// RDMA WRITE.
    Write(Write),
    /// RDMA READ.
    Read(reth::Repr),
    /// Compare and swap.
    CompareSwap(atomic_eth::Repr),
    /// Fetch and add.
    FetchAdd(atomic_eth::Repr),
    /// FLUSH.
    Flush(feth::Repr, reth::Repr),
    /// ATOMIC WRITE of its 8 bytes of payload.
    AtomicWrite(reth::Repr),
}

/// A packet of a SEND, by its place in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub enum Send {
    First,
    Middle,
    Last(Tail),
    Only(Tail),
}

/// What a SEND ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing.
    Plain,
    /// Immediate data.
    Imm(u32),
    /// The remote key that it invalidates.
    Inv(u32),
}

/// A packet of an RDMA WRITE, by its place in the message; the last has the immediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub enum Write {
    First(reth::Repr),
    Middle,
    Last(Option<u32>),
    Only(reth::Repr, Option<u32>),
}

impl Request {
    /// Its operation.
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Send(Send::First) => Operation::SendFirst,
            Self::Send(Send::Middle) => Operation::SendMiddle,
            Self::Send(Send::Last(Tail::Plain)) => Operation::SendLast,
            Self::Send(Send::Last(Tail::Imm(_))) => Operation::SendLastImm,
            Self::Send(Send::Last(Tail::Inv(_))) => Operation::SendLastInv,
            Self::Send(Send::Only(Tail::Plain)) => Operation::SendOnly,
            Self::Send(Send::Only(Tail::Imm(_))) => Operation::SendOnlyImm,
            Self::Send(Send::Only(Tail::Inv(_))) => Operation::SendOnlyInv,
            Self::Write(Write::First(_)) => Operation::WriteFirst,
            Self::Write(Write::Middle) => Operation::WriteMiddle,
            Self::Write(Write::Last(None)) => Operation::WriteLast,
            Self::Write(Write::Last(Some(_))) => Operation::WriteLastImm,
            Self::Write(Write::Only(_, None)) => Operation::WriteOnly,
            Self::Write(Write::Only(_, Some(_))) => Operation::WriteOnlyImm,
            Self::Read(_) => Operation::ReadRequest,
            Self::CompareSwap(_) => Operation::CompareSwap,
            Self::FetchAdd(_) => Operation::FetchAdd,
            Self::Flush(..) => Operation::Flush,
            Self::AtomicWrite(_) => Operation::AtomicWrite,
        }
    }

    /// Bytes of its extended headers.
    pub const fn buffer_len(&self) -> usize {
        match self {
            Self::Send(Send::First | Send::Middle) => 0,
            Self::Send(Send::Last(tail) | Send::Only(tail)) => match tail {
                Tail::Plain => 0,
                Tail::Imm(_) => immdt::LEN,
                Tail::Inv(_) => ieth::LEN,
            },
            Self::Write(Write::Middle) => 0,
            Self::Write(Write::Last(imm)) => imm_len(imm),
            Self::Write(Write::Only(_, imm)) => reth::LEN + imm_len(imm),
            Self::Write(Write::First(_)) | Self::Read(_) | Self::AtomicWrite(_) => reth::LEN,
            Self::CompareSwap(_) | Self::FetchAdd(_) => atomic_eth::LEN,
            Self::Flush(..) => feth::LEN + reth::LEN,
        }
    }

    /// Reads the extended headers of `operation` at the start of `bytes`; gives what follows them,
    /// too.
    ///
    /// # Errors
    /// `Short`, of the header that is cut; `Unexpected` if `operation` is one of a responder.
    pub fn parse(operation: Operation, bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        let tail = |of: fn(Tail) -> Send, (tail, rest)| (Self::Send(of(tail)), rest);
        Ok(match operation {
            Operation::SendFirst => (Self::Send(Send::First), bytes),
            Operation::SendMiddle => (Self::Send(Send::Middle), bytes),
            Operation::SendLast => tail(Send::Last, (Tail::Plain, bytes)),
            Operation::SendOnly => tail(Send::Only, (Tail::Plain, bytes)),
            Operation::SendLastImm => tail(Send::Last, imm_tail_at(bytes)?),
            Operation::SendOnlyImm => tail(Send::Only, imm_tail_at(bytes)?),
            Operation::SendLastInv => tail(Send::Last, inv_tail_at(bytes)?),
            Operation::SendOnlyInv => tail(Send::Only, inv_tail_at(bytes)?),
            Operation::WriteFirst => {
                let (reth, rest) = reth_at(bytes)?;
                (Self::Write(Write::First(reth)), rest)
            }
            Operation::WriteMiddle => (Self::Write(Write::Middle), bytes),
            Operation::WriteLast => (Self::Write(Write::Last(None)), bytes),
            Operation::WriteLastImm => {
                let (imm, rest) = imm_at(bytes)?;
                (Self::Write(Write::Last(Some(imm))), rest)
            }
            Operation::WriteOnly => {
                let (reth, rest) = reth_at(bytes)?;
                (Self::Write(Write::Only(reth, None)), rest)
            }
            Operation::WriteOnlyImm => {
                let (reth, rest) = reth_at(bytes)?;
                let (imm, rest) = imm_at(rest)?;
                (Self::Write(Write::Only(reth, Some(imm))), rest)
            }
            Operation::ReadRequest => {
                let (reth, rest) = reth_at(bytes)?;
                (Self::Read(reth), rest)
            }
            Operation::CompareSwap => {
                let (packet, rest) = atomic_eth::Packet::new_checked(bytes)?;
                (Self::CompareSwap(atomic_eth::Repr::parse(&packet)), rest)
            }
            Operation::FetchAdd => {
                let (packet, rest) = atomic_eth::Packet::new_checked(bytes)?;
                (Self::FetchAdd(atomic_eth::Repr::parse(&packet)), rest)
            }
            Operation::Flush => {
                let (packet, rest) = feth::Packet::new_checked(bytes)?;
                let (reth, rest) = reth_at(rest)?;
                (Self::Flush(feth::Repr::parse(&packet), reth), rest)
            }
            Operation::AtomicWrite => {
                let (reth, rest) = reth_at(bytes)?;
                (Self::AtomicWrite(reth), rest)
            }
            Operation::ReadResponseFirst
            | Operation::ReadResponseMiddle
            | Operation::ReadResponseLast
            | Operation::ReadResponseOnly
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge => return Err(operation.misplaced()),
        })
    }

    /// Writes its extended headers to the start of `buffer`, which it moves behind them.
    ///
    /// # Errors
    /// `Short`, of the header that did not fit.
    pub fn emit(&self, buffer: &mut &mut [u8]) -> Result<(), Error> {
        match self {
            Self::Send(Send::First | Send::Middle) | Self::Write(Write::Middle) => {}
            Self::Send(Send::Last(tail) | Send::Only(tail)) => match *tail {
                Tail::Plain => {}
                Tail::Imm(imm) => emit_imm(Some(imm), buffer)?,
                Tail::Inv(rkey) => ieth::Repr { rkey }.emit(take(Header::Ieth, buffer)?),
            },
            Self::Write(Write::Last(imm)) => emit_imm(*imm, buffer)?,
            Self::Write(Write::Only(reth, imm)) => {
                reth.emit(take(Header::Reth, buffer)?);
                emit_imm(*imm, buffer)?;
            }
            Self::Write(Write::First(reth)) | Self::Read(reth) | Self::AtomicWrite(reth) => {
                reth.emit(take(Header::Reth, buffer)?);
            }
            Self::CompareSwap(atomic) | Self::FetchAdd(atomic) => {
                atomic.emit(take(Header::AtomicEth, buffer)?);
            }
            Self::Flush(feth, reth) => {
                feth.emit(take(Header::Feth, buffer)?);
                reth.emit(take(Header::Reth, buffer)?);
            }
        }
        Ok(())
    }
}

impl Send {
    /// Whether a message begins with it.
    pub const fn begins(&self) -> bool {
        matches!(self, Self::First | Self::Only(_))
    }

    /// Whether a message ends with it.
    pub const fn ends(&self) -> bool {
        matches!(self, Self::Last(_) | Self::Only(_))
    }
}

impl Write {
    /// Whether a message begins with it.
    pub const fn begins(&self) -> bool {
        matches!(self, Self::First(_) | Self::Only(..))
    }

    /// Whether a message ends with it.
    pub const fn ends(&self) -> bool {
        matches!(self, Self::Last(_) | Self::Only(..))
    }
}

/// Bytes of immediate data, if there is some.
pub(crate) const fn imm_len(imm: &Option<u32>) -> usize {
    if imm.is_some() { immdt::LEN } else { 0 }
}

pub(crate) fn imm_at(bytes: &[u8]) -> Result<(u32, &[u8]), Error> {
    let (packet, rest) = immdt::Packet::new_checked(bytes)?;
    Ok((immdt::Repr::parse(&packet).data, rest))
}

pub(crate) fn emit_imm(imm: Option<u32>, buffer: &mut &mut [u8]) -> Result<(), Error> {
    if let Some(data) = imm {
        immdt::Repr { data }.emit(take(Header::ImmDt, buffer)?);
    }
    Ok(())
}

fn imm_tail_at(bytes: &[u8]) -> Result<(Tail, &[u8]), Error> {
    imm_at(bytes).map(|(imm, rest)| (Tail::Imm(imm), rest))
}

fn inv_tail_at(bytes: &[u8]) -> Result<(Tail, &[u8]), Error> {
    let (packet, rest) = ieth::Packet::new_checked(bytes)?;
    Ok((Tail::Inv(ieth::Repr::parse(&packet).rkey), rest))
}

fn reth_at(bytes: &[u8]) -> Result<(reth::Repr, &[u8]), Error> {
    let (packet, rest) = reth::Packet::new_checked(bytes)?;
    Ok((reth::Repr::parse(&packet), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_of_a_responder_is_no_request() {
        let error = Request::parse(Operation::Acknowledge, &[0; 64]).expect_err("a response");
        assert_eq!(error, Operation::Acknowledge.misplaced());
        assert_eq!(error.to_string(), "BTH: operation is 0x11, which no RoCEv2 packet has");
    }

    #[test]
    fn where_a_message_begins_and_ends() {
        let reth = reth::Repr { address: 0, rkey: 0, length: 0 };
        let tail = Tail::Inv(1);
        let places = [Send::First, Send::Middle, Send::Last(tail), Send::Only(tail)];
        assert_eq!(places.map(|p| p.begins()), [true, false, false, true]);
        assert_eq!(places.map(|p| p.ends()), [false, false, true, true]);
        let places =
            [Write::First(reth), Write::Middle, Write::Last(None), Write::Only(reth, None)];
        assert_eq!(places.map(|p| p.begins()), [true, false, false, true]);
        assert_eq!(places.map(|p| p.ends()), [false, false, true, true]);
    }
}
