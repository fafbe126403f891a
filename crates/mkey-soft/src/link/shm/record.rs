//! A packet as a record of a ring: what is said around it, its RoCEv2 headers, its payload. There is
//! no ICRC: nothing on the way changes anything. A packet that came to another process from somewhere
//! else, and is passed on, also says from where.

use crate::link::{Envelope, Outbound};
use crate::payload::{Bytes, Room};
use mkey_core::device::Gid;
use mkey_wire::packet::{MAX_HEADER_LEN, Repr};

/// Bytes in front of the headers.
const AROUND: usize = 16;
/// Bytes behind them that say from where a packet comes that is passed on.
const SENDER: usize = 16;
/// Bytes in front of the longest payload.
const MOST_BEFORE: usize = AROUND + SENDER + MAX_HEADER_LEN.next_multiple_of(8);

/// What is known of the connection, and whether the packet is passed on.
const CONNECTION: u32 = 1;
const PASSED_ON: u32 = 2;

/// Bytes in front of the payload, which begins at a word.
fn before(repr: &Repr, passed_on: bool) -> usize {
    let sender = if passed_on { SENDER } else { 0 };
    (AROUND + sender + repr.header_len()).next_multiple_of(8)
}

/// Bytes of the record of a packet, that is passed on or not.
pub(super) fn length(packet: &Outbound, sender: Option<Gid>) -> usize {
    before(&packet.repr, sender.is_some()) + packet.length
}

/// What a record says.
#[derive(Debug)]
pub(super) struct Packet<'a> {
    pub(super) repr: Repr,
    pub(super) envelope: Envelope,
    /// Who has sent it, if it is not the process at the other end.
    pub(super) sender: Option<Gid>,
    pub(super) payload: Bytes<'a>,
}

/// Writes all but the payload, whose room is left; `None` if the packet can not be.
pub(super) fn write<'a>(
    packet: &Outbound,
    sender: Option<Gid>,
    room: Room<'a>,
) -> Option<Room<'a>> {
    let Envelope { traffic_class, hop_limit, source_port, connection } = packet.envelope;
    let mut head = [0; MOST_BEFORE];
    let (around, headers) = head.split_first_chunk_mut::<AROUND>()?;
    let [a, b] = source_port.to_le_bytes();
    let words = [
        u32::try_from(packet.length).ok()?,
        connection.unwrap_or(0),
        u32::from_le_bytes([a, b, traffic_class, hop_limit]),
        (if connection.is_some() { CONNECTION } else { 0 })
            | (if sender.is_some() { PASSED_ON } else { 0 }),
    ];
    for (place, word) in around.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let headers = match (sender, headers.split_first_chunk_mut::<SENDER>()) {
        (Some(gid), Some((place, headers))) => {
            *place = gid.0;
            headers
        }
        _ => head.get_mut(AROUND..)?,
    };
    packet.repr.emit(packet.length, headers).ok()?;
    let before = before(&packet.repr, sender.is_some());
    let (mut start, payload) = room.split(before);
    start.put(Bytes::of(head.get(..before)?));
    (payload.len() == packet.length).then_some(payload)
}

/// What a record says; `None` if it is no packet.
pub(super) fn read(record: Bytes<'_>) -> Option<Packet<'_>> {
    // All that is looked at is copied first: the other side may change the record at any time.
    let mut head = [0; MOST_BEFORE];
    Room::of(&mut head).put(record);
    let (around, headers) = head.split_first_chunk::<AROUND>()?;
    let word = |at: usize| {
        let bytes = around.get(4 * at..4 * at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let length = word(0)? as usize;
    let [a, b, traffic_class, hop_limit] = word(2)?.to_le_bytes();
    let connection = (word(3)? & CONNECTION != 0).then_some(word(1)?);
    let (sender, headers) = match word(3)? & PASSED_ON != 0 {
        true => {
            let (gid, headers) = headers.split_first_chunk::<SENDER>()?;
            (Some(Gid(*gid)), headers)
        }
        false => (None, headers),
    };
    let source_port = u16::from_le_bytes([a, b]);
    let (repr, _) = Repr::parse(headers).ok()?;
    if repr.body.payload_len().is_some_and(|expected| expected != length) {
        return None;
    }
    let before = before(&repr, sender.is_some());
    let (head, payload) = record.split(before);
    let envelope = Envelope { traffic_class, hop_limit, source_port, connection };
    let whole = head.len() == before && payload.len() == length;
    whole.then_some(Packet { repr, envelope, sender, payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mkey_wire::body::Body;
    use mkey_wire::bth::Fields;
    use mkey_wire::request::{Request, Send, Tail, Write};
    use mkey_wire::u24::{Psn, Qpn};
    use mkey_wire::{atomic_eth, reth};
    use proptest::prelude::*;

    fn packet(request: Request, length: usize) -> Outbound {
        let fields = Fields::new(Qpn::wrapping(0x1234), Psn::wrapping(7));
        let envelope =
            Envelope { traffic_class: 3, hop_limit: 64, source_port: 0xc123, connection: Some(9) };
        let repr = Repr { fields, body: Body::RcRequest(request) };
        Outbound { repr, length, envelope, damage: None }
    }

    #[test]
    fn packets_are_read_as_they_were_written() {
        let reth = reth::Repr { address: 1, rkey: 2, length: 13 };
        let atomic = atomic_eth::Repr { address: 8, rkey: 1, swap_or_add: 2, compare: 3 };
        for (request, length) in [
            (Request::Send(Send::Only(Tail::Imm(5))), 0),
            (Request::Write(Write::Only(reth, Some(1))), 13),
            (Request::CompareSwap(atomic), 0),
        ] {
            let packet = packet(request, length);
            for sender in [None, Some(Gid([8; 16]))] {
                let mut record = vec![0; super::length(&packet, sender)];
                let room = Room::of(&mut record);
                write(&packet, sender, room).unwrap().put(Bytes::of(&[7; 13]));
                let read = read(Bytes::of(&record)).unwrap();
                assert_eq!((read.repr, read.envelope), (packet.repr, packet.envelope));
                assert_eq!((read.sender, read.payload.to_vec()), (sender, vec![7; length]));
            }
        }
    }

    /// A WRITE of 8 bytes is one cache line with the ring's own word.
    #[test]
    fn a_short_write_is_one_line() {
        let reth = reth::Repr { address: 1, rkey: 2, length: 8 };
        let packet = packet(Request::Write(Write::Only(reth, None)), 8);
        assert_eq!(8 + length(&packet, None), 64);
    }

    proptest! {
        #[test]
        fn garbage_is_no_packet_or_one_within_its_record(
            record in prop::collection::vec(any::<u8>(), 0..200),
            length in 0u32..200,
        ) {
            let mut record = record;
            if let Some(place) = record.first_chunk_mut() {
                *place = length.to_le_bytes();
            }
            if let Some(Packet { payload, .. }) = read(Bytes::of(&record)) {
                prop_assert_eq!(payload.len(), length as usize);
                let range = record.as_ptr_range();
                prop_assert!(range.contains(&payload.start()) || payload.len() == 0);
                prop_assert!(payload.start() as usize + payload.len() <= range.end as usize);
            }
        }
    }
}
