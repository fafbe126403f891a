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

    /// Whether the peer is there and has not looked yet at what was sent: it waits for a processor, or is
    /// stopped. Not every path can tell.
    fn leaves_lying(&self) -> bool {
        false
    }

    /// Nothing more is sent for now: what was kept to be sent together goes out.
    fn flush(&self) {}
}

/// Fills the room of a payload; false if that is not possible.
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
