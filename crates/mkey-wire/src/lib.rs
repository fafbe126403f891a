//! RoCEv2 as it travels: headers, opcodes, sequence numbers, the invariant CRC, captures.
//!
//! Pure: no syscalls, no clock, no threads, no unsafe code. It knows packets, not memory and not
//! sockets. Bytes of the network go in, and what comes out is a value or an [`Error`] that names
//! the header and what is wrong with it; nothing panics.
//!
//! A RoCEv2 packet is the payload of a UDP datagram to port [`udp::ROCE_PORT`]:
//!
//! ```text
//! | BTH 12 | extended headers, by opcode | payload | pad 0-3 | ICRC 4 |
//! ```
//!
//! * [`packet`]: the whole of it. [`packet::Packet`] splits a datagram and checks its lengths;
//!   [`packet::Repr`] is its headers as a value, and writes them. [`body`] is what opcode and
//!   extended headers say: [`request`]s and [`response`]s. An opcode can not be put together with headers that it
//!   does not have.
//! * One module for each header, all in the same form: `Packet` is a view of the header's bytes
//!   with an accessor for each field; `Repr` is the header as a value, with `parse`, `buffer_len`
//!   and `emit`. [`bth`], [`xrceth`], [`deth`], [`reth`], [`atomic_eth`], [`aeth`],
//!   [`atomic_ack_eth`], [`immdt`], [`ieth`], [`feth`]; below them [`udp`], [`ipv4`], [`ipv6`],
//!   [`ethernet`].
//! * [`opcode`], [`syndrome`], [`timer`], [`u24`]: the values inside: operations, answers, codes of
//!   times, numbers of 24 bits and their arithmetic.
//! * [`icrc`]: the CRC at the end. It covers the [addresses](udp_ip) in front of the packet, too.
//! * [`frame`], [`pcap`]: packets as captures hold them; writing captures. [`cooked`]: who captured a packet.
//!
//! Numbers are big-endian on the wire, but for the ICRC. Reserved bits are written as zero and not
//! looked at when read. The layouts are those of the InfiniBand Architecture Specification, volume
//! 1, with its annexes A14 (XRC), A17 (RoCEv2) and A19 (FLUSH and ATOMIC WRITE).
#![forbid(unsafe_code)]

pub mod aeth;
pub mod atomic_ack_eth;
pub mod atomic_eth;
pub mod body;
pub mod bth;
mod bytes;
mod checksum;
pub mod cooked;
pub mod deth;
pub mod error;
pub mod ethernet;
pub mod feth;
pub mod frame;
pub mod icrc;
pub mod ieth;
pub mod immdt;
pub mod ipv4;
pub mod ipv6;
pub mod opcode;
pub mod packet;
pub mod pcap;
pub mod request;
pub mod response;
pub mod reth;
pub mod syndrome;
pub mod timer;
pub mod u24;
pub mod udp;
pub mod udp_ip;
pub mod xrceth;

pub use error::{Error, Header, Reason};
