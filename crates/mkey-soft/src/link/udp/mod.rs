//! RoCEv2 over UDP (annex A17): packet for packet what other RoCEv2 devices speak.
//!
//! All processes of a user that have an address share its port, and the kernel hands a packet to any
//! of them: the number of the queue pair tells whose it is, and that process gets it through the
//! shared memory between them.

mod batch;
mod holders;
mod socket;

use super::datagram::{address, around, put_between};
use super::shm::Endpoint;
use super::{Envelope, Fill, Inbound, Link, Outbound, Path, Unsent};
use crate::core::generation;
use crate::driver::{Driver, Source, Token};
use crate::options::gid_of;
use crate::payload::Bytes;
use crate::per_process::PerProcess;
use crate::sync::{lock, lock_or_leave};
use batch::Batch;
use mkey_core::device::Gid;
use mkey_wire::packet::Packet;
use mkey_wire::udp::ROCE_PORT;
use mkey_wire::udp_ip::Ip;
use mkey_wire::{icrc, udp_ip};
use socket::{LONGEST, Received, Socket};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Packets that are taken in before others have their turn, and before they are answered: their sender
/// may wait for that.
const BATCH: usize = WINDOW as usize / 2;
/// Packets of a queue pair that may be under way: few enough for the buffers of a socket that are
/// given without privilege.
const WINDOW: u32 = 64;

/// A port's UDP socket, for all devices of the process that have this port.
#[derive(Debug)]
pub(crate) struct Udp {
    gid: Gid,
    socket: Socket,
    /// Whose numbers are of which process.
    numbers: Option<Arc<Endpoint>>,
    buffer: Mutex<Vec<u8>>,
    watched: OnceLock<(&'static Driver, Token)>,
    /// The thread is woken by packets.
    wakes: Mutex<bool>,
    me: Weak<Udp>,
    /// Forked children have the socket, too; it is their parent's.
    born: u32,
}

impl Udp {
    /// The socket of a port.
    ///
    /// # Errors
    /// Those of binding it.
    pub(crate) fn of(gid: Gid, numbers: Option<Arc<Endpoint>>) -> io::Result<Arc<Self>> {
        static SOCKETS: PerProcess<Mutex<HashMap<Gid, Weak<Udp>>>> = PerProcess::new();
        let sockets = SOCKETS.get_or_make(|| Some(Mutex::default()));
        let mut sockets = lock(sockets.ok_or(io::ErrorKind::OutOfMemory)?);
        sockets.retain(|_, udp| udp.strong_count() > 0);
        if let Some(udp) = sockets.get(&gid).and_then(Weak::upgrade) {
            return Ok(udp);
        }
        let socket = Socket::open(address(gid))?;
        let udp = Arc::new_cyclic(|me| Self {
            gid,
            socket,
            numbers,
            buffer: Mutex::new(vec![0; LONGEST]),
            watched: OnceLock::new(),
            wakes: Mutex::new(true),
            me: me.clone(),
            born: generation(),
        });
        sockets.insert(gid, Arc::downgrade(&udp));
        Ok(udp)
    }

    /// Whether a port can have its socket.
    ///
    /// # Errors
    /// Those of binding it.
    pub(crate) fn check(gid: Gid) -> io::Result<()> {
        let address = address(gid);
        // Where a process of ours has it, so can others. One more socket would be handed packets that
        // are for that process.
        if holders::is_ours(SocketAddr::new(address, ROCE_PORT)) {
            return Ok(());
        }
        Socket::open(address).map(drop)
    }

    /// What goes less well than it could, in words.
    pub(crate) fn trouble(&self) -> Option<String> {
        let why = self.socket.trouble()?;
        Some(format!(
            "packets to other hosts are sent one by one, which takes longer, since the kernel does not \
             cut them out of one piece on their way: {why}"
        ))
    }

    /// The thread waits for packets from now on.
    pub(crate) fn open(&self, driver: &'static Driver) {
        if self.watched.get().is_none()
            && let Ok(token) = driver.watch(&self.socket, self.me.clone())
        {
            let _ = self.watched.set((driver, token));
        }
    }

    fn set_wakes(&self, set: bool) {
        // Held meanwhile: what is noted is what is.
        let mut wakes = lock(&self.wakes);
        if *wakes != set
            && let Some((driver, token)) = self.watched.get()
        {
            driver.listen(&self.socket, *token, set);
            *wakes = set;
        }
    }

    /// Hands one packet over, if it is one and is for this process.
    fn hand_over(
        &self,
        from: Gid,
        envelope: &Envelope,
        index: usize,
        datagram: &[u8],
        deliver: &mut dyn FnMut(&Inbound<'_>),
    ) {
        let Some(around) = around(from, self.gid, envelope) else { return };
        let Ok(packet) = Packet::parse(datagram) else { return };
        if !is_intact(&around, index, datagram, packet.icrc) {
            return;
        }
        let inbound = Inbound {
            repr: packet.repr,
            payload: Bytes::of(packet.payload),
            from,
            to: self.gid,
            envelope: *envelope,
            mtu: None,
            back: &|| self.path(from, 0, true),
        };
        let number = packet.repr.fields.dest_qp.get();
        match &self.numbers {
            Some(numbers) if !numbers.owns(number) => numbers.pass_on(&inbound),
            _ => deliver(&inbound),
        }
    }
}

/// Whether a packet's ICRC is right. Of IPv4 it covers the identification, which a socket does not
/// tell: 0 if the packet was sent by a socket like ours, its place if it was one of many that were
/// sent at once, and anything by other devices.
fn is_intact(around: &udp_ip::Repr, index: usize, datagram: &[u8], received: u32) -> bool {
    let right = |around: &udp_ip::Repr| {
        let headers = around.headers(datagram.len()).ok()?;
        icrc::of_datagram(&headers, datagram)
    };
    if right(&numbered(around, index)) == Some(received) {
        return true;
    }
    match around.ip {
        Ip::V4(ip) => icrc::ident_of(ip, around.udp, datagram).is_ok_and(|ident| ident.is_some()),
        Ip::V6(_) => false,
    }
}

/// What is around a packet that has this place among those that were sent at once: the kernel counts
/// the identifications of IPv4 on.
fn numbered(around: &udp_ip::Repr, index: usize) -> udp_ip::Repr {
    match around.ip {
        Ip::V4(ip) => {
            let ip = Ip::V4(mkey_wire::ipv4::Repr { ident: index as u16, ..ip });
            udp_ip::Repr { ip, ..*around }
        }
        Ip::V6(_) => *around,
    }
}

impl Link for Udp {
    fn path(&self, gid: Gid, _: u32, _: bool) -> Option<Arc<dyn Path>> {
        let udp = self.me.upgrade()?;
        Some(Arc::new(Route { udp, to: gid, address: address(gid), batch: Mutex::default() }))
    }

    fn receive(&self, wait: bool, deliver: &mut dyn FnMut(&Inbound<'_>)) -> bool {
        let Some(mut buffer) = lock_or_leave(&self.buffer, wait) else { return false };
        let mut taken = 0;
        while taken < BATCH {
            let Some(received) = self.socket.receive(&mut buffer) else { break };
            let Received { from, length, segment, traffic_class, hop_limit } = received;
            let source_port = from.port();
            let envelope = Envelope { traffic_class, hop_limit, source_port, connection: None };
            let from = gid_of(from.ip());
            let datagrams = buffer.get(..length).unwrap_or_default().chunks(segment);
            taken += datagrams.len().max(1);
            for (index, datagram) in datagrams.enumerate() {
                self.hand_over(from, &envelope, index, datagram, deliver);
            }
        }
        taken > 0
    }

    fn hang_bells(&self) -> bool {
        self.set_wakes(true);
        false
    }

    fn take_bells_down(&self, program_polls: bool) {
        // Who is woken looks anyway: only a program that polls without end is not to be disturbed.
        if program_polls {
            self.set_wakes(false);
        }
    }
}

impl Source for Udp {
    fn attend(&self) {
        // The thread takes packets in after it has looked at all that woke it.
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        if self.born == generation()
            && let Some((driver, token)) = self.watched.get()
        {
            driver.forget(&self.socket, *token);
        }
    }
}

/// The way to another port.
#[derive(Debug)]
struct Route {
    udp: Arc<Udp>,
    to: Gid,
    address: IpAddr,
    batch: Mutex<Batch>,
}

impl Path for Route {
    fn mtu(&self) -> Option<u32> {
        None
    }

    fn window(&self) -> u32 {
        WINDOW
    }

    fn send(&self, packet: &Outbound, fill: &mut Fill<'_>) -> Result<(), Unsent> {
        if self.udp.born != generation() {
            return Ok(());
        }
        let envelope = self.envelope(&packet.envelope);
        // Between ports that can not reach each other it is lost.
        let Some(around) = around(self.udp.gid, self.to, &envelope) else { return Ok(()) };
        let mut batch = lock(&self.batch);
        let length = packet.repr.buffer_len(packet.length);
        if !batch.takes(length, &envelope) || !self.udp.socket.segments() {
            self.ship(&mut batch);
        }
        let around = numbered(&around, batch.count());
        batch.add(packet, &envelope, &around, fill)
    }

    fn flush(&self) {
        self.ship(&mut lock(&self.batch));
    }

    fn envelope(&self, envelope: &Envelope) -> Envelope {
        Envelope { source_port: ROCE_PORT, connection: None, ..*envelope }
    }
}

impl Route {
    fn ship(&self, batch: &mut Batch) {
        batch.ship(|packets, segment, envelope| {
            let Envelope { traffic_class, hop_limit, .. } = *envelope;
            let send = |packets: &[u8]| {
                self.udp.socket.send(self.address, packets, segment, traffic_class, hop_limit)
            };
            if send(packets).is_ok() {
                return;
            }
            // One by one, then, of which none is counted on.
            let Some(around) = around(self.udp.gid, self.to, envelope) else { return };
            for (index, packet) in packets.chunks_mut(segment).enumerate() {
                put_between(&around, &numbered(&around, index), packet);
                // A single one is not to be cut.
                let _ = send(packet);
            }
        });
    }
}

#[cfg(test)]
mod tests;
