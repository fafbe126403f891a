//! Packets that are sent at once: the kernel cuts them out of one piece.

use super::socket::LONGEST;
use crate::link::datagram::emit_into;
use crate::link::{Envelope, Fill, Outbound, Unsent};
use mkey_wire::udp_ip;

/// Packets that the kernel cuts out of a piece at most.
const MOST: usize = 64;
/// Bytes of headers of IP and UDP, which count, too.
const HEADERS: usize = 48;

/// Packets of one length, but for a shorter one at the end, to one address.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// As many as were ever sent at once: the first `length` of them are packets.
    bytes: Vec<u8>,
    length: usize,
    segment: usize,
    count: usize,
    /// The last one was shorter, so nothing follows it.
    complete: bool,
    envelope: Envelope,
}

impl Batch {
    /// Whether a packet may be added.
    pub(super) fn takes(&self, length: usize, envelope: &Envelope) -> bool {
        self.count == 0
            || !self.complete
                && length <= self.segment
                && self.count < MOST
                && self.length + length + HEADERS <= LONGEST
                && self.envelope == *envelope
    }

    /// Packets so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds a packet, if it is filled.
    pub(super) fn add(
        &mut self,
        packet: &Outbound,
        envelope: &Envelope,
        around: &udp_ip::Repr,
        fill: &mut Fill<'_>,
    ) -> Result<(), Unsent> {
        let length = packet.repr.buffer_len(packet.length);
        // Written over each time, so they are made but once.
        self.bytes.resize(self.bytes.len().max(self.length + length), 0);
        let room = self.bytes.get_mut(self.length..).and_then(|room| room.get_mut(..length));
        emit_into(packet, around, fill, room.ok_or(Unsent::Full)?)?;
        self.length += length;
        if self.count == 0 {
            (self.segment, self.envelope) = (length, *envelope);
        }
        self.complete = length < self.segment;
        self.count += 1;
        Ok(())
    }

    /// Sends what is there: the bytes, and the length of each packet but the last.
    pub(super) fn ship(&mut self, send: impl FnOnce(&mut [u8], usize, &Envelope)) {
        if self.count > 0 {
            let packets = self.bytes.get_mut(..self.length).unwrap_or_default();
            send(packets, self.segment, &self.envelope);
            (self.length, self.count, self.complete) = (0, 0, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::datagram::around;
    use crate::options::gid_of;
    use crate::payload::Bytes;
    use mkey_wire::body::Body;
    use mkey_wire::bth::Fields;
    use mkey_wire::packet::Repr;
    use mkey_wire::request::{Request, Send, Tail};
    use mkey_wire::u24::{Psn, Qpn};

    fn add(batch: &mut Batch, length: usize, envelope: &Envelope) -> bool {
        let fields = Fields::new(Qpn::default(), Psn::default());
        let body = Body::RcRequest(Request::Send(Send::Only(Tail::Plain)));
        let repr = Repr { fields, body };
        let packet = Outbound { repr, length, envelope: *envelope, damage: None };
        let gid = gid_of(std::net::Ipv4Addr::LOCALHOST.into());
        if !batch.takes(repr.buffer_len(length), envelope) {
            return false;
        }
        let around = around(gid, gid, envelope).unwrap();
        batch
            .add(&packet, envelope, &around, &mut |mut room| {
                room.put(Bytes::of(&vec![1; length]));
                true
            })
            .unwrap();
        true
    }

    #[test]
    fn packets_of_one_length_go_together() {
        let (mut batch, envelope) = (Batch::default(), Envelope::default());
        assert!(add(&mut batch, 1024, &envelope) && add(&mut batch, 1024, &envelope));
        assert!(!add(&mut batch, 1028, &envelope), "longer than the first");
        let other = Envelope { traffic_class: 1, ..envelope };
        assert!(!add(&mut batch, 1024, &other), "said otherwise");
        assert!(add(&mut batch, 4, &envelope));
        assert!(!add(&mut batch, 4, &envelope), "a shorter one is the last");
        let mut shipped = (0, 0);
        batch.ship(|packets, segment, _| shipped = (packets.len(), segment));
        assert_eq!(shipped, (2 * 1040 + 20, 1040));
        batch.ship(|_, _, _| panic!("there is nothing"));
        assert!(add(&mut batch, 2000, &other));
        let mut count = 1;
        while add(&mut batch, 2000, &other) {
            count += 1;
        }
        assert_eq!(count, (LONGEST - HEADERS) / 2016, "as many as a datagram holds");
    }
}
