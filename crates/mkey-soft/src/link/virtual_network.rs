//! A network in memory, for tests: packets between devices of one process, byte for byte as on a
//! wire, under a virtual clock.

use super::datagram;
use super::{Envelope, Fill, Inbound, Link, Outbound, Path, Unsent};
use crate::core::Core;
use crate::payload::Bytes;
use crate::sync::lock;
use mkey_core::device::Gid;
use mkey_wire::packet::Packet;
use mkey_wire::{icrc, udp_ip};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// A network in memory. Devices that are opened with
/// [`Link::Virtual`](crate::Link::Virtual) send each other all that they have to say by it, also to
/// themselves: nothing is executed inline. A packet arrives when a program posts or polls on any of
/// the devices, or moves the clock of one; as faults go, the network itself has none.
#[derive(Debug, Default)]
pub struct VirtualNetwork {
    ports: Mutex<HashMap<Gid, VecDeque<Datagram>>>,
    devices: Mutex<Vec<Weak<Core>>>,
    /// Somebody is delivering.
    running: AtomicBool,
}

#[derive(Debug)]
struct Datagram {
    from: Gid,
    envelope: Envelope,
    bytes: Vec<u8>,
}

impl VirtualNetwork {
    /// An empty network.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Connects a port.
    pub(crate) fn attach(self: &Arc<Self>, gid: Gid) -> Arc<dyn Link> {
        lock(&self.ports).entry(gid).or_default();
        Arc::new(Attached { network: self.clone(), gid })
    }

    /// The device is driven with the network.
    pub(crate) fn drive(&self, core: &Arc<Core>) {
        lock(&self.devices).push(Arc::downgrade(core));
    }

    /// Delivers until nothing is on its way. Only one thread does so at a time.
    pub(crate) fn settle(&self) {
        if self.running.swap(true, Ordering::Acquire) {
            return;
        }
        let mut devices = lock(&self.devices);
        devices.retain(|device| device.strong_count() > 0);
        let all: Vec<_> = devices.iter().filter_map(Weak::upgrade).collect();
        drop(devices);
        while all.iter().any(|core| core.turn()) {}
        self.running.store(false, Ordering::Release);
    }
}

/// A port on the network.
#[derive(Debug)]
struct Attached {
    network: Arc<VirtualNetwork>,
    gid: Gid,
}

impl Link for Attached {
    fn path(&self, gid: Gid, _: u32, _: bool) -> Option<Arc<dyn Path>> {
        let network = self.network.clone();
        Some(Arc::new(Wire { network, from: self.gid, to: gid }))
    }

    fn receive(&self, _: bool, deliver: &mut dyn FnMut(&Inbound<'_>)) -> bool {
        let next = || lock(&self.network.ports).get_mut(&self.gid)?.pop_front();
        let mut any = false;
        while let Some(Datagram { from, envelope, bytes }) = next() {
            any = true;
            let intact = |around: udp_ip::Repr| {
                let headers = around.headers(bytes.len()).ok()?;
                let packet = Packet::parse(&bytes).ok()?;
                (icrc::of_datagram(&headers, &bytes)? == packet.icrc).then_some(packet)
            };
            let Some(packet) = datagram::around(from, self.gid, &envelope).and_then(intact) else {
                continue;
            };
            deliver(&Inbound {
                repr: packet.repr,
                payload: Bytes::of(packet.payload),
                from,
                to: self.gid,
                envelope,
                mtu: None,
                back: &|| self.path(from, 0, false),
            });
        }
        any
    }
}

#[derive(Debug)]
struct Wire {
    network: Arc<VirtualNetwork>,
    from: Gid,
    to: Gid,
}

impl Path for Wire {
    fn mtu(&self) -> Option<u32> {
        None
    }

    fn window(&self) -> u32 {
        64
    }

    fn send(&self, packet: &Outbound, fill: &mut Fill<'_>) -> Result<(), Unsent> {
        let envelope = Envelope { connection: None, ..packet.envelope };
        let mut bytes = Vec::new();
        // Between ports that can not reach each other it is lost.
        let Some(around) = datagram::around(self.from, self.to, &envelope) else { return Ok(()) };
        datagram::emit(packet, &around, fill, &mut bytes)?;
        if let Some(inbox) = lock(&self.network.ports).get_mut(&self.to) {
            inbox.push_back(Datagram { from: self.from, envelope, bytes });
        }
        Ok(())
    }
}
