//! A look at the packets of a link.

mod file;

pub use file::CaptureFile;

use super::datagram::{around, emit};
use super::{Envelope, Fill, Inbound, Outbound, Path, Unsent};
use crate::payload::{Bytes, Room};
use mkey_core::device::Gid;
use mkey_wire::udp;
use mkey_wire::udp_ip::{self, Ip};
use std::fmt;
use std::sync::Arc;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The device has sent it.
    Sent,
    /// The device has received it.
    Received,
}

/// Is shown each packet that a device sends or receives by its link, whichever link that is, as the
/// bytes of an IP packet: its header, that of UDP, and the RoCEv2 packet with its ICRC. What is
/// executed inline is no packet.
pub trait Capture: Send + Sync + fmt::Debug {
    /// A packet. It is sent, or worked on, when this returns.
    fn packet(&self, direction: Direction, packet: &[u8]);
}

/// Shows a received packet.
pub(super) fn show(capture: &dyn Capture, inbound: &Inbound<'_>) {
    let packet = Outbound {
        repr: inbound.repr,
        length: inbound.payload.len(),
        envelope: inbound.envelope,
        damage: None,
    };
    let payload = inbound.payload;
    let frame = frame(&packet, inbound.from, inbound.to, payload);
    if let Some(frame) = frame {
        capture.packet(Direction::Received, &frame);
    }
}

/// A path that shows what is sent by it.
#[derive(Debug)]
pub(super) struct Tapped {
    pub(super) capture: Arc<dyn Capture>,
    pub(super) path: Arc<dyn Path>,
    pub(super) from: Gid,
    pub(super) to: Gid,
}

impl Path for Tapped {
    fn mtu(&self) -> Option<u32> {
        self.path.mtu()
    }

    fn window(&self) -> u32 {
        self.path.window()
    }

    fn send(&self, packet: &Outbound, fill: &mut Fill<'_>) -> Result<(), Unsent> {
        let mut shown = false;
        let show = |payload: &[u8]| {
            let packet = Outbound { envelope: self.path.envelope(&packet.envelope), ..*packet };
            if let Some(frame) = frame(&packet, self.from, self.to, Bytes::of(payload)) {
                self.capture.packet(Direction::Sent, &frame);
            }
        };
        // Before anybody can see the packet: where the receiver captures, too, nothing that answers it
        // is captured before it.
        self.path.send(packet, &mut |mut room| {
            let filled = fill(room.again());
            if filled {
                shown = true;
                show(&room.bytes().to_vec());
            }
            filled
        })?;
        // Lost on the way, so that nobody had to fill it.
        if !shown {
            show(&[]);
        }
        Ok(())
    }

    fn mark(&self) -> u64 {
        self.path.mark()
    }

    fn leaves_lying(&self, before: u64) -> bool {
        self.path.leaves_lying(before)
    }

    fn flush(&self) {
        self.path.flush();
    }

    fn envelope(&self, envelope: &Envelope) -> Envelope {
        self.path.envelope(envelope)
    }
}

/// The packet with all that is around it.
fn frame(packet: &Outbound, from: Gid, to: Gid, payload: Bytes<'_>) -> Option<Vec<u8>> {
    let around = around(from, to, &packet.envelope)?;
    let fill = &mut |mut room: Room<'_>| {
        room.put(payload);
        true
    };
    let mut datagram = Vec::new();
    emit(packet, &around, fill, &mut datagram).ok()?;
    // IPv6 knows no datagram without a checksum; its kernel's side adds one on the way.
    let checksum = match around.ip {
        Ip::V4(_) => around.udp.checksum,
        Ip::V6(_) => around.checksum(&[&datagram]).ok()?,
    };
    let around = udp_ip::Repr { udp: udp::Repr { checksum, ..around.udp }, ..around };
    let headers = around.headers(datagram.len()).ok()?;
    Some([headers.ip_bytes(), headers.udp(), &datagram].concat())
}
