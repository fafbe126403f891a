//! Links: how queue pairs reach those that are not in this process.
//!
//! A [`Link`] takes packets in for a port and knows [`Path`]s to peers; what the packets say is the
//! business of [`crate::protocol`], what is done with them that of the queue pairs. Packets may be
//! lost, doubled and reordered: reliable connections mend that, others do not.

mod capture;
pub(crate) mod datagram;
mod faults;
pub(crate) mod mtu;
mod port;
mod shm;
mod udp;
mod virtual_network;
mod ways;

pub use capture::{Capture, CaptureFile, Direction};
pub use faults::{Faults, FaultsError};
pub(crate) use port::Port;
pub(crate) use shm::lease;
pub use virtual_network::VirtualNetwork;
pub(crate) use ways::check_udp;

use crate::payload::{Bytes, Room};
use mkey_core::device::Gid;
use mkey_wire::packet::Repr;
use std::fmt;
use std::sync::Arc;

/// A way to other ports.
pub(crate) trait Link: Send + Sync + fmt::Debug {
    /// The way to a queue pair; `None` if there is none by this link, now. `lasting` is one that a
    /// connection is to go by from now on; a datagram may go astray.
    fn path(&self, gid: Gid, qp_num: u32, lasting: bool) -> Option<Arc<dyn Path>>;

    /// Hands over the packets that have arrived, but not without end; whether there were any. With
    /// `wait` it comes after what another thread is taking in now, else it leaves that to it.
    fn receive(&self, wait: bool, deliver: &mut dyn FnMut(&Inbound<'_>)) -> bool;

    /// Has peers ring when they have sent something; whether something is there already.
    fn hang_bells(&self) -> bool {
        false
    }

    /// Nobody needs to be woken: the thread is awake, or the program polls without end.
    fn take_bells_down(&self, _program_polls: bool) {}
}

/// The way to one peer's port.
pub(crate) trait Path: Send + Sync + fmt::Debug {
    /// Bytes of payload of a packet at most; `None`: as the queue pairs have agreed.
    fn mtu(&self) -> Option<u32>;

    /// Packets of one queue pair that may be on their way.
    fn window(&self) -> u32;

    /// Sends a packet, whose payload `fill` puts where it belongs. The packet may be lost on the
    /// way: that is no error.
    fn send(&self, packet: &Outbound, fill: &mut Fill<'_>) -> Result<(), Unsent>;

    /// What is said around a packet when it goes out.
    fn envelope(&self, envelope: &Envelope) -> Envelope {
        *envelope
    }

    /// A mark behind all that was sent until now.
    fn mark(&self) -> u64 {
        0
    }

    /// Whether the peer is there and has not looked yet at all that was sent before this
    /// [mark](Path::mark): it waits for a processor, or is stopped. Not every path can tell.
    fn leaves_lying(&self, _before: u64) -> bool {
        false
    }

    /// Nothing more is sent for now: what was kept to be sent together goes out.
    fn flush(&self) {}

    /// Lets the peer write by itself from now on to the region that `allowed` finds, if it finds that the
    /// access is allowed: the bytes at `address`, which were just written by an ordinary WRITE.
    fn lend(
        &self,
        _lend: &Lend,
        _address: u64,
        _length: u64,
        _allowed: &mut dyn FnMut() -> Option<Lent>,
    ) {
    }

    /// Whether the peer seems to lend what [`Path::write_direct`] would write to.
    fn is_lent(&self, _borrow: &Borrow) -> bool {
        false
    }

    /// Writes the bytes from `source` on into the peer's memory, if the peer lends it; whether all were
    /// written. If not, they may have been written in part.
    ///
    /// # Safety
    /// `source` is the start of as many bytes as `borrow` says, or of none that can be read.
    #[allow(unsafe_code)]
    unsafe fn write_direct(&self, _borrow: &Borrow, _source: *const u8) -> bool {
        false
    }
}

/// Whose WRITEs a lease lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lend {
    /// The sender's queue pair, and which connection of it.
    pub(crate) from_qp: u32,
    pub(crate) connection: u32,
    /// The target's.
    pub(crate) to_qp: u32,
    pub(crate) rkey: u32,
}

/// A region that is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    /// As the key calls its first byte.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// Where it is in the lender's process.
    pub(crate) host: u64,
}

/// A WRITE that a lease may let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Borrow {
    pub(crate) lend: Lend,
    pub(crate) address: u64,
    /// Bytes, at least 1.
    pub(crate) length: u64,
}

/// Fills the room of a payload, which may be empty; false if that is not possible. It is called when there
/// is room for the packet, and before anybody can see it.
pub(crate) type Fill<'f> = dyn FnMut(Room<'_>) -> bool + 'f;

/// A packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// There is no room for it now.
    Full,
    /// Its payload could not be filled.
    Unfilled,
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outbound {
    pub(crate) repr: Repr,
    /// Bytes of payload.
    pub(crate) length: usize,
    pub(crate) envelope: Envelope,
    /// The bit that is turned over on the way, modulo the bits of the packet.
    pub(crate) damage: Option<u32>,
}

/// What is said about a packet around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
    /// The UDP port that it comes from.
    pub(crate) source_port: u16,
    /// Which connection of the requester's queue pair a packet belongs to, request or response. Not
    /// every link tells.
    pub(crate) connection: Option<u32>,
}

/// A packet that has arrived.
pub(crate) struct Inbound<'a> {
    pub(crate) repr: Repr,
    pub(crate) payload: Bytes<'a>,
    pub(crate) from: Gid,
    pub(crate) to: Gid,
    pub(crate) envelope: Envelope,
    /// As [`Path::mtu`].
    pub(crate) mtu: Option<u32>,
    /// Finds the way back.
    pub(crate) back: &'a dyn Fn() -> Option<Arc<dyn Path>>,
}
