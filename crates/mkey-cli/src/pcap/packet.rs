//! What is looked at of a RoCE packet, also of one that was cut behind its first header.

use super::frame::Datagram;
use mkey_wire::body::Body;
use mkey_wire::bth;
use mkey_wire::cooked::Way;
use mkey_wire::opcode::{Opcode, Operation};
use mkey_wire::packet::{Packet, Repr};
use mkey_wire::request::{Request, Send, Tail, Write};
use mkey_wire::response::{ReadResponse, Response};
use mkey_wire::syndrome::Syndrome;
use mkey_wire::u24::{Psn, Qpn};
use mkey_wire::{Error, icrc};
use std::net::IpAddr;

/// A packet as the summary sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// When, in nanoseconds since 1970, if the capture says so.
    pub time: Option<u64>,
    /// Who sent it.
    pub source: IpAddr,
    /// Whom it is for.
    pub destination: IpAddr,
    /// UDP source port.
    pub source_port: Option<u16>,
    /// Marked: congestion experienced.
    pub congested: bool,
    /// Transport and operation.
    pub opcode: Opcode,
    /// The queue pair that it is for.
    pub dest_qp: Qpn,
    /// Of a datagram: who sent it.
    pub source_qp: Option<Qpn>,
    /// Its number.
    pub psn: Psn,
    /// The memory that it is about.
    pub target: Option<Target>,
    /// The remote key that it invalidates.
    pub invalidates: Option<u32>,
    /// What it answers.
    pub syndrome: Option<Syndrome>,
    /// Bytes of payload that it carried.
    pub payload: u32,
    /// Bytes of the IP packet.
    pub ip_len: u32,
    /// Whether the ICRC is that of the packet.
    pub icrc: Icrc,
    /// What tells two packets of one number and operation apart, as far as it was captured.
    pub identity: u64,
    /// Who captured it, its sender or its receiver, where the capture says so.
    pub way: Option<Way>,
}

/// The memory of a peer that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The key.
    pub rkey: u32,
    /// The first byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
}

/// What is known of a packet's ICRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icrc {
    /// It is right.
    Right,
    /// It is wrong: a receiver drops the packet.
    Wrong,
    /// The packet was not captured whole, or what is covered beside it is not known.
    Unchecked,
}

impl Seen {
    /// Reads a packet.
    ///
    /// # Errors
    /// As its headers are not those of a RoCE packet.
    pub fn read(datagram: &Datagram<'_>, time: Option<u64>, check: bool) -> Result<Self, Error> {
        let (view, _) = bth::Packet::new_checked(datagram.bytes)?;
        let bth = bth::Repr::parse(&view)?;
        let length = datagram.bytes.len() + datagram.missing;
        let (carried, icrc, stored) = match datagram.missing {
            0 => {
                let packet = Packet::parse(datagram.bytes)?;
                let icrc = match datagram.around.filter(|_| check) {
                    None => Icrc::Unchecked,
                    Some(around) => match icrc::of_datagram(&around, datagram.bytes) {
                        Some(right) if right == packet.icrc => Icrc::Right,
                        Some(_) => Icrc::Wrong,
                        None => Icrc::Unchecked,
                    },
                };
                (Some(packet.repr.body), icrc, packet.icrc)
            }
            // What is cut behind the BTH is of its own kind still.
            _ => (Repr::parse(datagram.bytes).ok().map(|(repr, _)| repr.body), Icrc::Unchecked, 0),
        };
        let headers = bth::LEN + extended_len(bth.opcode);
        let tail = usize::from(bth.pad_count) + icrc::LEN;
        let payload = length.saturating_sub(headers + tail) as u32;
        let mut seen = Self {
            time,
            source: datagram.source,
            destination: datagram.destination,
            source_port: datagram.source_port,
            congested: datagram.ecn == 3,
            opcode: bth.opcode,
            dest_qp: bth.fields.dest_qp,
            source_qp: None,
            psn: bth.fields.psn,
            target: None,
            invalidates: None,
            syndrome: None,
            payload,
            ip_len: datagram.ip_len,
            icrc,
            identity: u64::from(stored) << 32
                | u64::from(datagram.ident) << 8
                | u64::from(bth.opcode.byte()),
            way: datagram.way,
        };
        if let Some(body) = carried {
            seen.with(&body);
        }
        Ok(seen)
    }

    fn with(&mut self, body: &Body) {
        match body {
            Body::RcRequest(request)
            | Body::UcRequest(request)
            | Body::XrcRequest { request, .. } => {
                self.target = target(request);
                if let Request::Send(Send::Last(Tail::Inv(rkey)) | Send::Only(Tail::Inv(rkey))) =
                    request
                {
                    self.invalidates = Some(*rkey);
                }
            }
            Body::RcResponse(response) | Body::XrcResponse(response) => {
                self.syndrome = match response {
                    Response::Acknowledge(aeth) | Response::AtomicAcknowledge { aeth, .. } => {
                        Some(aeth.syndrome)
                    }
                    Response::Read(
                        ReadResponse::First(aeth)
                        | ReadResponse::Last(aeth)
                        | ReadResponse::Only(aeth),
                    ) => Some(aeth.syndrome),
                    Response::Read(ReadResponse::Middle) => None,
                };
            }
            Body::UdSend { deth, .. } => self.source_qp = Some(deth.source_qp),
            Body::Cnp => {}
        }
    }

    /// Its operation, if it is of a connection with numbers that follow each other.
    pub fn connected(&self) -> Option<Operation> {
        match self.opcode {
            Opcode::Rc(operation) | Opcode::Uc(operation) | Opcode::Xrc(operation) => {
                Some(operation)
            }
            Opcode::Ud(_) | Opcode::Cnp => None,
        }
    }
}

fn target(request: &Request) -> Option<Target> {
    match request {
        Request::Write(Write::First(reth) | Write::Only(reth, _))
        | Request::Read(reth)
        | Request::Flush(_, reth)
        | Request::AtomicWrite(reth) => {
            Some(Target { rkey: reth.rkey, address: reth.address, length: reth.length })
        }
        Request::CompareSwap(atomic) | Request::FetchAdd(atomic) => {
            Some(Target { rkey: atomic.rkey, address: atomic.address, length: 8 })
        }
        Request::Send(_) | Request::Write(_) => None,
    }
}

/// Bytes of the extended headers that an opcode has.
fn extended_len(opcode: Opcode) -> usize {
    use mkey_wire::{aeth, atomic_ack_eth, atomic_eth, deth, feth, ieth, immdt, reth, xrceth};
    let of = |operation| match operation {
        Operation::SendFirst
        | Operation::SendMiddle
        | Operation::SendLast
        | Operation::SendOnly
        | Operation::WriteMiddle
        | Operation::WriteLast
        | Operation::ReadResponseMiddle => 0,
        Operation::SendLastImm | Operation::SendOnlyImm | Operation::WriteLastImm => immdt::LEN,
        Operation::SendLastInv | Operation::SendOnlyInv => ieth::LEN,
        Operation::WriteFirst
        | Operation::WriteOnly
        | Operation::ReadRequest
        | Operation::AtomicWrite => reth::LEN,
        Operation::WriteOnlyImm => reth::LEN + immdt::LEN,
        Operation::ReadResponseFirst
        | Operation::ReadResponseLast
        | Operation::ReadResponseOnly
        | Operation::Acknowledge => aeth::LEN,
        Operation::AtomicAcknowledge => aeth::LEN + atomic_ack_eth::LEN,
        Operation::CompareSwap | Operation::FetchAdd => atomic_eth::LEN,
        Operation::Flush => feth::LEN + reth::LEN,
    };
    match opcode {
        Opcode::Rc(operation) | Opcode::Uc(operation) => of(operation),
        Opcode::Ud(operation) => deth::LEN + of(operation),
        Opcode::Xrc(operation) if operation.is_response() => of(operation),
        Opcode::Xrc(operation) => xrceth::LEN + of(operation),
        // Its reserved bytes.
        Opcode::Cnp => 16,
    }
}

/// The name of an opcode, such as `RC RDMA_WRITE_FIRST`.
pub fn name(opcode: Opcode) -> String {
    let (transport, operation) = match opcode {
        Opcode::Rc(operation) => ("RC", operation),
        Opcode::Uc(operation) => ("UC", operation),
        Opcode::Ud(operation) => ("UD", operation),
        Opcode::Xrc(operation) => ("XRC", operation),
        Opcode::Cnp => return "CNP".to_owned(),
    };
    format!("{transport} {}", operation_name(operation))
}

fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::SendFirst => "SEND_FIRST",
        Operation::SendMiddle => "SEND_MIDDLE",
        Operation::SendLast => "SEND_LAST",
        Operation::SendLastImm => "SEND_LAST_IMM",
        Operation::SendOnly => "SEND_ONLY",
        Operation::SendOnlyImm => "SEND_ONLY_IMM",
        Operation::WriteFirst => "RDMA_WRITE_FIRST",
        Operation::WriteMiddle => "RDMA_WRITE_MIDDLE",
        Operation::WriteLast => "RDMA_WRITE_LAST",
        Operation::WriteLastImm => "RDMA_WRITE_LAST_IMM",
        Operation::WriteOnly => "RDMA_WRITE_ONLY",
        Operation::WriteOnlyImm => "RDMA_WRITE_ONLY_IMM",
        Operation::ReadRequest => "RDMA_READ_REQUEST",
        Operation::ReadResponseFirst => "RDMA_READ_RESPONSE_FIRST",
        Operation::ReadResponseMiddle => "RDMA_READ_RESPONSE_MIDDLE",
        Operation::ReadResponseLast => "RDMA_READ_RESPONSE_LAST",
        Operation::ReadResponseOnly => "RDMA_READ_RESPONSE_ONLY",
        Operation::Acknowledge => "ACKNOWLEDGE",
        Operation::AtomicAcknowledge => "ATOMIC_ACKNOWLEDGE",
        Operation::CompareSwap => "COMPARE_SWAP",
        Operation::FetchAdd => "FETCH_ADD",
        Operation::SendLastInv => "SEND_LAST_INV",
        Operation::SendOnlyInv => "SEND_ONLY_INV",
        Operation::Flush => "FLUSH",
        Operation::AtomicWrite => "ATOMIC_WRITE",
    }
}

/// The message that an operation ends; `None` if it ends none, or is no request.
pub fn message(opcode: Opcode) -> Option<&'static str> {
    let operation = match opcode {
        Opcode::Rc(operation)
        | Opcode::Uc(operation)
        | Opcode::Ud(operation)
        | Opcode::Xrc(operation) => operation,
        Opcode::Cnp => return None,
    };
    Some(match operation {
        Operation::SendLast | Operation::SendOnly => "SEND",
        Operation::SendLastImm | Operation::SendOnlyImm => "SEND_WITH_IMM",
        Operation::SendLastInv | Operation::SendOnlyInv => "SEND_WITH_INV",
        Operation::WriteLast | Operation::WriteOnly => "RDMA_WRITE",
        Operation::WriteLastImm | Operation::WriteOnlyImm => "RDMA_WRITE_WITH_IMM",
        Operation::ReadRequest => "RDMA_READ",
        Operation::CompareSwap => "COMPARE_SWAP",
        Operation::FetchAdd => "FETCH_ADD",
        Operation::Flush => "FLUSH",
        Operation::AtomicWrite => "ATOMIC_WRITE",
        _ => return None,
    })
}
