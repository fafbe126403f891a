//! What a packet asks or answers, over which transport: all that its opcode and its extended
//! headers say.

use crate::bytes::{split, take};
use crate::error::{Error, Header};
use crate::opcode::{Opcode, Operation};
use crate::request::{Request, emit_imm, imm_at, imm_len};
use crate::response::Response;
use crate::u24::Qpn;
use crate::{deth, xrceth};

/// The transport, the operation and its extended headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A request on a reliable connection.
    RcRequest(Request),
    /// A response on a reliable connection.
    RcResponse(Response),
    /// A request on an unreliable connection, which has SEND and RDMA WRITE only and invalidates
    /// nothing: others are not written.
    UcRequest(Request),
    /// An unreliable datagram.
    UdSend {
        /// Who sends.
        deth: deth::Repr,
        /// Immediate data.
        imm: Option<u32>,
    },
    /// A request on an extended reliable connection.
    XrcRequest {
        /// The shared receive queue.
        srq: Qpn,
        /// The request.
        request: Request,
    },
    /// A response on an extended reliable connection.
    XrcResponse(Response),
    /// A congestion notification.
    Cnp,
}

/// Bytes behind the BTH of a congestion notification, all reserved.
const CNP_RESERVED: usize = 16;

impl Body {
    /// The opcode that says it.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::RcRequest(request) => Opcode::Rc(request.operation()),
            Self::RcResponse(response) => Opcode::Rc(response.operation()),
            Self::UcRequest(request) => Opcode::Uc(request.operation()),
            Self::UdSend { imm: None, .. } => Opcode::Ud(Operation::SendOnly),
            Self::UdSend { imm: Some(_), .. } => Opcode::Ud(Operation::SendOnlyImm),
            Self::XrcRequest { request, .. } => Opcode::Xrc(request.operation()),
            Self::XrcResponse(response) => Opcode::Xrc(response.operation()),
            Self::Cnp => Opcode::Cnp,
        }
    }

    /// Bytes of its extended headers.
    pub const fn buffer_len(&self) -> usize {
        match self {
            Self::RcRequest(request) | Self::UcRequest(request) => request.buffer_len(),
            Self::RcResponse(response) | Self::XrcResponse(response) => response.buffer_len(),
            Self::UdSend { imm, .. } => deth::LEN + imm_len(imm),
            Self::XrcRequest { request, .. } => xrceth::LEN + request.buffer_len(),
            Self::Cnp => CNP_RESERVED,
        }
    }

    /// Bytes of payload that every packet of this opcode has; `None` where it may have any.
    pub const fn payload_len(&self) -> Option<usize> {
        use Operation::*;
        match self.opcode() {
            Opcode::Cnp => Some(0),
            Opcode::Rc(operation)
            | Opcode::Uc(operation)
            | Opcode::Ud(operation)
            | Opcode::Xrc(operation) => match operation {
                ReadRequest | Acknowledge | AtomicAcknowledge | CompareSwap | FetchAdd | Flush => {
                    Some(0)
                }
                AtomicWrite => Some(8),
                _ => None,
            },
        }
    }

    /// Reads the extended headers of `opcode` at the start of `bytes`; gives what follows them, too.
    ///
    /// # Errors
    /// `Short`, of the header that is cut.
    pub fn parse(opcode: Opcode, bytes: &[u8]) -> Result<(Self, &[u8]), Error> {
        Ok(match opcode {
            Opcode::Rc(operation) if operation.is_response() => {
                let (response, rest) = Response::parse(operation, bytes)?;
                (Self::RcResponse(response), rest)
            }
            Opcode::Rc(operation) => {
                let (request, rest) = Request::parse(operation, bytes)?;
                (Self::RcRequest(request), rest)
            }
            Opcode::Uc(operation) => {
                let (request, rest) = Request::parse(operation, bytes)?;
                (Self::UcRequest(request), rest)
            }
            Opcode::Ud(operation) => {
                let (packet, rest) = deth::Packet::new_checked(bytes)?;
                let deth = deth::Repr::parse(&packet);
                if let Operation::SendOnlyImm = operation {
                    let (imm, rest) = imm_at(rest)?;
                    (Self::UdSend { deth, imm: Some(imm) }, rest)
                } else {
                    (Self::UdSend { deth, imm: None }, rest)
                }
            }
            Opcode::Xrc(operation) if operation.is_response() => {
                let (response, rest) = Response::parse(operation, bytes)?;
                (Self::XrcResponse(response), rest)
            }
            Opcode::Xrc(operation) => {
                let (packet, rest) = xrceth::Packet::new_checked(bytes)?;
                let srq = xrceth::Repr::parse(&packet).srq;
                let (request, rest) = Request::parse(operation, rest)?;
                (Self::XrcRequest { srq, request }, rest)
            }
            Opcode::Cnp => {
                let (_, rest) = split::<CNP_RESERVED>(Header::Cnp, bytes)?;
                (Self::Cnp, rest)
            }
        })
    }

    /// Writes the extended headers to the start of `buffer`, which it moves behind them.
    ///
    /// # Errors
    /// `Short`, of the header that did not fit.
    pub fn emit(&self, buffer: &mut &mut [u8]) -> Result<(), Error> {
        match self {
            Self::RcRequest(request) | Self::UcRequest(request) => request.emit(buffer),
            Self::RcResponse(response) | Self::XrcResponse(response) => response.emit(buffer),
            Self::UdSend { deth, imm } => {
                deth.emit(take(Header::Deth, buffer)?);
                emit_imm(*imm, buffer)
            }
            Self::XrcRequest { srq, request } => {
                xrceth::Repr { srq: *srq }.emit(take(Header::Xrceth, buffer)?);
                request.emit(buffer)
            }
            Self::Cnp => {
                *take(Header::Cnp, buffer)? = [0; CNP_RESERVED];
                Ok(())
            }
        }
    }
}
