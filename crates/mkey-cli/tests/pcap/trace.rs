//! Captures that tests make: packets with right ICRCs, in frames and files of every kind.

use mkey_cli::pcap::analyse::{Options, analyse};
use mkey_cli::pcap::file::Capture;
use mkey_cli::pcap::report::Report;
use mkey_wire::body::Body;
use mkey_wire::bth::Fields;
use mkey_wire::packet::{Packet, Repr};
use mkey_wire::request::{Request, Send, Tail, Write};
use mkey_wire::response::{ReadResponse, Response};
use mkey_wire::syndrome::Syndrome;
use mkey_wire::u24::{Msn, Psn, Qpn};
use mkey_wire::udp_ip::{self, Ip};
use mkey_wire::{aeth, ipv4, ipv6, reth, udp};
use std::net::IpAddr;

/// Two queue pairs; what `A` sends is for the number of `B`.
pub const A: (&str, u32) = ("192.0.2.1", 0x11);
pub const B: (&str, u32) = ("192.0.2.2", 0x22);

/// A packet without frame: from IP to ICRC.
pub struct Sent {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub source_port: u16,
    pub ecn: u8,
    pub ident: u16,
    pub dest_qp: u32,
    pub psn: u32,
    pub body: Body,
    pub payload: Vec<u8>,
}

impl Sent {
    pub fn new(from: (&str, u32), to: (&str, u32), psn: u32, body: Body) -> Self {
        let [source, destination] = [from, to].map(|(ip, _)| ip.parse().unwrap());
        Self {
            source,
            destination,
            source_port: 0xc001,
            ecn: 0,
            ident: 0,
            dest_qp: to.1,
            psn,
            body,
            payload: Vec::new(),
        }
    }

    pub fn payload(mut self, bytes: usize) -> Self {
        self.payload = vec![0x5a; bytes];
        self
    }

    pub fn marked(mut self) -> Self {
        self.ecn = 3;
        self
    }

    pub fn ip(&self) -> Vec<u8> {
        let ip = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Ip::V4(ipv4::Repr {
                tos: self.ecn,
                ident: self.ident,
                ..ipv4::Repr::new(source, destination)
            }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Ip::V6(ipv6::Repr {
                traffic_class: self.ecn,
                ..ipv6::Repr::new(source, destination)
            }),
            both => panic!("{both:?}"),
        };
        let udp = udp::Repr { source_port: self.source_port, checksum: 0 };
        let around = udp_ip::Repr { ip, udp };
        let fields = Fields::new(Qpn::wrapping(self.dest_qp), Psn::wrapping(self.psn));
        let packet =
            Packet::sealed(Repr { fields, body: self.body }, &self.payload, &around).unwrap();
        let mut datagram = vec![0; packet.buffer_len()];
        packet.emit(&mut datagram).unwrap();
        let headers = around.headers(datagram.len()).unwrap();
        [headers.ip_bytes(), headers.udp(), &datagram].concat()
    }

    pub fn ethernet(&self) -> Vec<u8> {
        ethernet(&[], self.ip())
    }
}

/// An Ethernet frame with these tags (their EtherTypes).
pub fn ethernet(tags: &[u16], ip: Vec<u8>) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for (n, tag) in (1_u16..).zip(tags) {
        frame.extend(tag.to_be_bytes());
        frame.extend(n.to_be_bytes());
    }
    frame.extend(kind(&ip).to_be_bytes());
    frame.extend(ip);
    frame
}

/// The EtherType of an IP packet.
pub fn kind(ip: &[u8]) -> u16 {
    if ip[0] >> 4 == 6 { 0x86dd } else { 0x0800 }
}

pub fn send(from: (&str, u32), to: (&str, u32), psn: u32) -> Sent {
    Sent::new(from, to, psn, Body::RcRequest(Request::Send(Send::Only(Tail::Plain)))).payload(64)
}

pub fn reth(rkey: u32, address: u64, length: u32) -> reth::Repr {
    reth::Repr { address, rkey, length }
}

pub fn write(from: (&str, u32), to: (&str, u32), psn: u32, target: reth::Repr) -> Sent {
    let body = Body::RcRequest(Request::Write(Write::Only(target, None)));
    Sent::new(from, to, psn, body).payload(target.length as usize)
}

pub fn read(from: (&str, u32), to: (&str, u32), psn: u32, target: reth::Repr) -> Sent {
    Sent::new(from, to, psn, Body::RcRequest(Request::Read(target)))
}

pub fn answer(from: (&str, u32), to: (&str, u32), psn: u32, syndrome: Syndrome) -> Sent {
    let aeth = aeth::Repr { syndrome, msn: Msn::wrapping(1) };
    Sent::new(from, to, psn, Body::RcResponse(Response::Acknowledge(aeth)))
}

pub fn ack(from: (&str, u32), to: (&str, u32), psn: u32) -> Sent {
    answer(from, to, psn, Syndrome::from_byte(31))
}

/// Data of a READ: `place` is first, middle, last or only.
pub fn data(from: (&str, u32), to: (&str, u32), psn: u32, place: &str, bytes: usize) -> Sent {
    let aeth = aeth::Repr { syndrome: Syndrome::from_byte(31), msn: Msn::wrapping(1) };
    let place = match place {
        "first" => ReadResponse::First(aeth),
        "middle" => ReadResponse::Middle,
        "last" => ReadResponse::Last(aeth),
        _ => ReadResponse::Only(aeth),
    };
    Sent::new(from, to, psn, Body::RcResponse(Response::Read(place))).payload(bytes)
}

pub fn cnp(from: (&str, u32), to: (&str, u32)) -> Sent {
    Sent::new(from, to, 0, Body::Cnp)
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    pub big: bool,
}

impl Order {
    pub fn u16(self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    pub fn u32(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }
}

pub const LITTLE: Order = Order { big: false };

/// A classic capture. Times are in nanoseconds.
pub fn pcap(order: Order, nano: bool, link: u32, frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(order.u32(if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }));
    file.extend(order.u16(2));
    file.extend(order.u16(4));
    file.extend([0; 8]);
    file.extend(order.u32(262_144));
    file.extend(order.u32(link));
    for (time, frame) in frames {
        let fraction = time % 1_000_000_000 / if nano { 1 } else { 1000 };
        let length = frame.len() as u32;
        for word in [(time / 1_000_000_000) as u32, fraction as u32, length, length] {
            file.extend(order.u32(word));
        }
        file.extend(frame);
    }
    file
}

/// A block of pcapng.
pub fn block(order: Order, kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let length = order.u32(padded as u32 + 12);
    let mut block = [&order.u32(kind)[..], &length, body].concat();
    block.resize(padded + 8, 0);
    block.extend(length);
    block
}

pub fn section(order: Order) -> Vec<u8> {
    let body = [&order.u32(0x1a2b_3c4d)[..], &order.u16(1), &order.u16(0), &[0xff; 8]].concat();
    block(order, 0x0a0d_0d0a, &body)
}

/// An interface; `options` as code and value.
pub fn interface(order: Order, link: u16, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = [&order.u16(link)[..], &[0; 2], &order.u32(0)].concat();
    for (code, value) in options {
        body.extend(order.u16(*code));
        body.extend(order.u16(value.len() as u16));
        body.extend(*value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    if !options.is_empty() {
        body.extend([0; 4]);
    }
    block(order, 1, &body)
}

pub fn enhanced(order: Order, interface: u32, ticks: u64, frame: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let length = frame.len() as u32;
    for word in [interface, (ticks >> 32) as u32, ticks as u32, length, length] {
        body.extend(order.u32(word));
    }
    body.extend(frame);
    block(order, 6, &body)
}

/// The report of a file's bytes.
pub fn report(file: &[u8]) -> Report {
    let mut capture = Capture::new(file).unwrap();
    let (totals, flows) = analyse(&mut capture, Options::default(), |_| {});
    Report::new("a test".to_owned(), totals, &flows)
}

/// The report of packets on Ethernet, a microsecond apart but where a time (in microseconds) is given.
pub fn of(packets: &[Sent]) -> Report {
    at(packets.iter().zip(1..).map(|(sent, micro)| (micro, sent)))
}

pub fn at<'s>(packets: impl IntoIterator<Item = (u64, &'s Sent)>) -> Report {
    let frames: Vec<(u64, Vec<u8>)> =
        packets.into_iter().map(|(micro, sent)| (micro * 1000, sent.ethernet())).collect();
    report(&pcap(LITTLE, true, 1, &frames))
}
