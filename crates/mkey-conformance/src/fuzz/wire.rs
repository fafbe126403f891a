//! Arbitrary bytes as RoCEv2 packets.

use mkey_wire::frame::Frame;
use mkey_wire::icrc;
use mkey_wire::opcode::{Opcode, Operation};
use mkey_wire::packet::{self, Packet, Repr};
use mkey_wire::pcap::LinkType;
use mkey_wire::udp_ip::Ip;

pub fn packet(datagram: &[u8]) {
    let headers = Repr::parse(datagram);
    let Ok(packet) = Packet::parse(datagram) else { return };
    assert_eq!(headers.map(|(repr, _)| repr), Ok(packet.repr));
    let written = written(&packet);
    assert_eq!(written, without_reserved(datagram, &packet), "{packet:?}");
    assert_eq!(Packet::parse(&written), Ok(packet));
}

pub fn frame(data: &[u8]) {
    let Some((link, bytes)) = data.split_first() else { return };
    let link = if link % 2 == 0 { LinkType::Ethernet } else { LinkType::Raw };
    let Ok(frame) = Frame::parse(link, bytes) else { return };
    let length = frame.datagram.len() + frame.missing;
    let headers = frame.around.headers(length).expect("lengths that a frame said");
    assert_eq!(frame.icrc().is_some(), frame.missing == 0 && length >= 16);
    let Ok(packet) = frame.packet() else { return };
    let sealed = Packet::sealed(packet.repr, packet.payload, &frame.around).expect("it was read");
    let written = written(&sealed);
    if frame.missing == 0 {
        assert_eq!(icrc::of_datagram(&headers, &written), Some(sealed.icrc));
        if let Ip::V4(ip) = frame.around.ip {
            assert_eq!(icrc::ident_of(ip, frame.around.udp, &written), Ok(Some(ip.ident)));
        }
    }
}

fn written(packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = vec![0xff; packet.buffer_len()];
    assert_eq!(packet.emit(&mut bytes), Ok(bytes.len()), "what was read can be written");
    bytes
}

/// The datagram with zeros where bits are reserved, and as pad.
fn without_reserved(datagram: &[u8], packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = datagram.to_vec();
    bytes[4] &= 0xc0;
    bytes[8] &= 0x80;
    let extended = match packet.repr.body.opcode() {
        Opcode::Ud(_) => {
            bytes[16] = 0;
            return without_pad(bytes, packet);
        }
        Opcode::Cnp => {
            bytes[12..28].fill(0);
            return bytes;
        }
        Opcode::Xrc(operation) if !operation.is_response() => {
            bytes[12] = 0;
            16
        }
        _ => 12,
    };
    if let Opcode::Rc(Operation::Flush) | Opcode::Xrc(Operation::Flush) = packet.repr.body.opcode()
    {
        bytes[extended..extended + 3].fill(0);
        bytes[extended + 3] &= 0x3f;
    }
    without_pad(bytes, packet)
}

fn without_pad(mut bytes: Vec<u8>, packet: &Packet<'_>) -> Vec<u8> {
    let end = bytes.len() - 4;
    bytes[end - packet::pad_len(packet.payload.len())..end].fill(0);
    bytes
}
