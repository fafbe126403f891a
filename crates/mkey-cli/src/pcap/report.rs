//! What a capture holds, as it is given out.

use super::analyse::Totals;
use super::file::Damage;
use super::flows::Flows;
use super::keys::Key;
use super::packet::{Target, message, name};
use super::stream::{Count, IcrcCount, Side, Stream};
use super::verdict::{self, Finding};
use super::waiting::Kind;
use super::{flows, keys, sequence, stream, waiting};
use hdrhistogram::Histogram;
use mkey_wire::opcode::Opcode;
use mkey_wire::syndrome::NakCode;
use serde::Serialize;
use std::net::IpAddr;

/// The version of the JSON form.
pub const SCHEMA: u32 = 1;

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of this form.
    pub schema: u32,
    /// The capture's name.
    pub file: String,
    /// The bytes of its name, where they are no UTF-8 and `file` would not find it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_name_bytes: Option<Vec<u8>>,
    /// UDP port that RoCEv2 packets are sent to.
    pub port: u16,
    /// Bytes of the file that were read.
    pub file_bytes: u64,
    /// From the earliest frame to the latest, in nanoseconds, if the capture says when they were.
    pub nanoseconds: Option<u64>,
    /// How often time goes back from one frame to the next, by more than a millisecond.
    pub time_goes_back: u64,
    /// The longest way back, in nanoseconds.
    pub time_goes_back_by: u64,
    /// What the frames are.
    pub frames: Frames,
    /// RoCE packets, all together.
    pub packets: Packets,
    /// RoCE packets by opcode.
    pub opcodes: Vec<OpcodeCount>,
    /// Connections, those with trouble first, then by bytes of payload.
    pub pairs: Vec<Pair>,
    /// What it comes to.
    pub verdict: Vec<Finding>,
    /// Bounds of memory that were reached, in words: where figures are too low.
    pub bounds: Vec<String>,
    /// Why the file could not be read to its end.
    pub damage: Option<Damage>,
}

/// Frames by what they hold.
#[derive(Clone, Debug, Serialize)]
pub struct Frames {
    /// All.
    pub all: u64,
    /// Bytes of them that were captured.
    pub captured_bytes: u64,
    /// RoCE packets.
    pub roce: u64,
    /// RoCE packets once more, captured at their other end. They are in no other figure.
    pub roce_at_other_end: u64,
    /// RoCEv1 among them.
    pub roce_v1: u64,
    /// RoCE packets that were not captured whole.
    pub cut: u64,
    /// Something else.
    pub other: u64,
    /// Parts of IP packets, which are not put together.
    pub fragments: u64,
    /// Headers that were not captured whole.
    pub cut_headers: u64,
    /// Of a link type that is not known here.
    pub unknown_link: u64,
    /// The first such link type.
    pub unknown_link_type: Option<u16>,
    /// Sent to RoCE's port, and no RoCE packet.
    pub malformed: u64,
    /// The first of these.
    pub first_malformed: Option<Damage>,
}

/// RoCE packets, all together.
#[derive(Clone, Debug, Serialize)]
pub struct Packets {
    /// Packets.
    pub packets: u64,
    /// Bytes of the IP packets.
    pub ip_bytes: u64,
    /// Bytes of payload.
    pub payload_bytes: u64,
    /// Marked: congestion experienced.
    pub congestion_experienced: u64,
    /// Congestion notification packets.
    pub cnps: u64,
    /// ICRCs.
    pub icrc: IcrcCount,
}

/// Packets of an opcode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpcodeCount {
    /// The opcode.
    pub opcode: u8,
    /// Its name.
    pub name: String,
    /// Packets.
    pub packets: u64,
    /// Bytes of payload.
    pub payload_bytes: u64,
}

/// A connection, or as much of it as was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// RC, UC, UD, XRC, or CNP if nothing else was seen.
    pub transport: &'static str,
    /// How the two directions were found to belong together; `None` where one was seen.
    pub paired_by: Option<&'static str>,
    /// One or two.
    pub directions: Vec<Direction>,
    /// What it comes to.
    pub verdict: Vec<Finding>,
}

/// What one queue pair sends to another.
#[derive(Clone, Debug, Serialize)]
pub struct Direction {
    /// Who sends.
    pub from: IpAddr,
    /// The sender's queue pair, where it is known.
    pub from_qp: Option<u32>,
    /// Whom it is for.
    pub to: IpAddr,
    /// The queue pair that it is for.
    pub to_qp: u32,
    /// UDP source port of the first packet.
    pub udp_source_port: Option<u16>,
    /// Packets.
    pub packets: u64,
    /// Bytes of the IP packets.
    pub ip_bytes: u64,
    /// Bytes of payload.
    pub payload_bytes: u64,
    /// By opcode.
    pub opcodes: Vec<OpcodeCount>,
    /// Messages, each once, however often it was sent.
    pub messages: Vec<Messages>,
    /// Requests.
    pub requests: Numbers,
    /// Data of READs and atomics.
    pub read_data: Numbers,
    /// Positive acknowledgements.
    pub acks: u64,
    /// Those that say no more than one before.
    pub acks_repeated: u64,
    /// Negative acknowledgements.
    pub naks: Naks,
    /// Requests of the other side that were refused, the first few.
    pub refused: Vec<Refusal>,
    /// Marked: congestion experienced.
    pub congestion_experienced: u64,
    /// Congestion notification packets.
    pub cnps: u64,
    /// ICRCs.
    pub icrc: IcrcCount,
    /// Requests that have no answer in the capture; `None` where the answers were not seen at all.
    pub unanswered: Option<u64>,
    /// From a request's last packet, as it was seen first, to the acknowledgement that covers it or to the
    /// first data of a READ, in nanoseconds.
    pub latency: Vec<Latency>,
    /// Remote keys that requests name.
    pub rkeys: Vec<Rkey>,
}

/// Messages of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Messages {
    /// The kind.
    pub name: &'static str,
    /// How many.
    pub count: u64,
}

/// What follows from packet sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Packets.
    pub packets: u64,
    /// Sent again.
    pub retransmissions: u64,
    /// Of these, those whose first sending is not in the capture.
    pub retransmissions_of_unseen: u64,
    /// The same packet again at once.
    pub duplicates: u64,
    /// Overtaken on the way.
    pub reordered: u64,
    /// Gaps.
    pub gaps: u64,
    /// Numbers that are missing in gaps.
    pub missing: u64,
    /// Of these, those that never came.
    pub never_seen: u64,
    /// Sequences that began anew.
    pub restarts: u64,
}

/// Negative acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names are those of the specification")]
pub struct Naks {
    pub psn_sequence_error: u64,
    pub invalid_request: u64,
    pub remote_access_error: u64,
    pub remote_operational_error: u64,
    pub invalid_rd_request: u64,
    pub receiver_not_ready: u64,
    pub reserved: u64,
}

impl Naks {
    /// All of them.
    pub fn all(&self) -> u64 {
        self.psn_sequence_error
            + self.invalid_request
            + self.remote_access_error
            + self.remote_operational_error
            + self.invalid_rd_request
            + self.receiver_not_ready
            + self.reserved
    }
}

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Why.
    pub why: &'static str,
    /// The number of its first packet that was refused.
    pub psn: u32,
    /// The remote key, if the request was seen.
    pub rkey: Option<String>,
    /// The address.
    pub address: Option<String>,
    /// Bytes.
    pub length: Option<u32>,
}

/// How long answers took, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// What was asked.
    pub of: &'static str,
    /// Answers.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

/// A remote key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rkey {
    /// The key.
    pub rkey: String,
    /// RDMA WRITEs.
    pub writes: u64,
    /// RDMA READs.
    pub reads: u64,
    /// Atomics.
    pub atomics: u64,
    /// FLUSHes.
    pub flushes: u64,
    /// SENDs that invalidated it.
    pub invalidated: u64,
    /// The memory that it was used for.
    pub ranges: Vec<Range>,
    /// Whether ranges stand for more than was used, there being too many.
    pub ranges_joined: bool,
}

/// A range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Range {
    /// The first.
    pub first: String,
    /// The last.
    pub last: String,
    /// Bytes.
    pub bytes: u64,
}

impl Report {
    /// Of what was counted.
    pub fn new(file: String, totals: Totals, flows: &Flows) -> Self {
        let pairs = pairs(flows.streams());
        let roce = &totals.roce;
        let cnps = packets_of(&roce.opcodes, Opcode::Cnp.byte());
        let mut report = Self {
            schema: SCHEMA,
            file,
            file_name_bytes: None,
            port: totals.port,
            file_bytes: totals.file_bytes,
            nanoseconds: totals.times.map(|(first, last)| last - first),
            time_goes_back: totals.back.0,
            time_goes_back_by: totals.back.1,
            frames: Frames {
                all: totals.frames,
                captured_bytes: totals.captured,
                roce: roce.all.packets,
                roce_at_other_end: totals.copies,
                roce_v1: totals.version_1,
                cut: totals.cut,
                other: totals.other,
                fragments: totals.fragments,
                cut_headers: totals.cut_headers,
                unknown_link: totals.unknown_link.0,
                unknown_link_type: totals.unknown_link.1,
                malformed: totals.malformed,
                first_malformed: totals
                    .first_malformed
                    .map(|(offset, what)| Damage { offset, what }),
            },
            packets: Packets {
                packets: roce.all.packets,
                ip_bytes: roce.all.ip,
                payload_bytes: roce.all.payload,
                congestion_experienced: roce.congested,
                cnps,
                icrc: roce.icrc,
            },
            opcodes: opcodes(&roce.opcodes),
            pairs,
            verdict: Vec::new(),
            bounds: bounds(flows),
            damage: totals.damage,
        };
        report.verdict = verdict::whole(&report);
        report
    }
}

fn pairs(streams: &[Stream]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (at, one) in streams.iter().enumerate() {
        let other = one.peer.filter(|peer| *peer != at);
        if other.is_some_and(|peer| peer < at) {
            continue;
        }
        let other = other.and_then(|peer| streams.get(peer));
        let both: Vec<&Stream> = [Some(one), other].into_iter().flatten().collect();
        let transport = both.iter().find_map(|stream| transport(stream)).unwrap_or("CNP");
        let paired_by = other.map(|_| match transport {
            "UD" => "the queue pairs that datagrams name",
            _ => "the numbers that answers name",
        });
        let mut directions = vec![direction(one, other)];
        directions.extend(other.map(|other| direction(other, Some(one))));
        let verdict = verdict::pair(&directions, transport);
        pairs.push(Pair { transport, paired_by, directions, verdict });
    }
    let weight = |pair: &Pair| {
        let trouble = pair.verdict.iter().any(|finding| finding.trouble);
        let bytes: u64 = pair.directions.iter().map(|direction| direction.payload_bytes).sum();
        (trouble, bytes)
    };
    pairs.sort_by_key(|pair| std::cmp::Reverse(weight(pair)));
    pairs
}

fn transport(stream: &Stream) -> Option<&'static str> {
    stream.tally.opcodes.iter().zip(0..=u8::MAX).filter(|(count, _)| count.packets > 0).find_map(
        |(_, byte)| match Opcode::from_byte(byte)? {
            Opcode::Rc(_) => Some("RC"),
            Opcode::Uc(_) => Some("UC"),
            Opcode::Ud(_) => Some("UD"),
            Opcode::Xrc(_) => Some("XRC"),
            Opcode::Cnp => None,
        },
    )
}

fn direction(stream: &Stream, other: Option<&Stream>) -> Direction {
    let key = stream.key;
    let (tally, answers) = (&stream.tally, &stream.answers);
    let [
        psn_sequence_error,
        invalid_request,
        remote_access_error,
        remote_operational_error,
        invalid_rd_request,
    ] = answers.naks;
    let from_qp = key.source_qp.or(other.map(|other| other.key.dest_qp)).map(|qp| qp.get());
    let latency = [
        (Kind::Acknowledged, "SEND, RDMA WRITE"),
        (Kind::Read, "RDMA READ"),
        (Kind::Atomic, "atomics"),
    ];
    Direction {
        from: key.source,
        from_qp,
        to: key.destination,
        to_qp: key.dest_qp.get(),
        udp_source_port: stream.source_port,
        packets: tally.all.packets,
        ip_bytes: tally.all.ip,
        payload_bytes: tally.all.payload,
        opcodes: opcodes(&tally.opcodes),
        messages: messages(&tally.opcodes),
        requests: numbers(&stream.requests),
        read_data: numbers(&stream.data),
        acks: answers.acks,
        acks_repeated: answers.acks_again,
        naks: Naks {
            psn_sequence_error,
            invalid_request,
            remote_access_error,
            remote_operational_error,
            invalid_rd_request,
            receiver_not_ready: answers.rnr,
            reserved: answers.reserved,
        },
        refused: answers.refused.iter().map(refusal).collect(),
        congestion_experienced: tally.congested,
        cnps: packets_of(&tally.opcodes, Opcode::Cnp.byte()),
        icrc: tally.icrc,
        unanswered: other.map(|_| stream.waiting.unanswered() as u64),
        latency: latency
            .into_iter()
            .filter_map(|(kind, of)| Some(times(of, stream.waiting.latency(kind)?)))
            .collect(),
        rkeys: stream.keys.iter().map(|(rkey, key)| remote_key(rkey, key)).collect(),
    }
}

fn packets_of(opcodes: &[Count; 256], byte: u8) -> u64 {
    opcodes.get(usize::from(byte)).map_or(0, |count| count.packets)
}

fn opcodes(counts: &[Count; 256]) -> Vec<OpcodeCount> {
    let each = counts.iter().zip(0..=u8::MAX).filter(|(count, _)| count.packets > 0);
    let each = each.filter_map(|(count, opcode)| {
        let name = name(Opcode::from_byte(opcode)?);
        Some(OpcodeCount { opcode, name, packets: count.packets, payload_bytes: count.payload })
    });
    each.collect()
}

fn messages(counts: &[Count; 256]) -> Vec<Messages> {
    let mut messages: Vec<Messages> = Vec::new();
    for (count, opcode) in counts.iter().zip(0..=u8::MAX).filter(|(count, _)| count.first > 0) {
        let Some(name) = Opcode::from_byte(opcode).and_then(message) else { continue };
        match messages.iter_mut().find(|messages| messages.name == name) {
            Some(messages) => messages.count += count.first,
            None => messages.push(Messages { name, count: count.first }),
        }
    }
    messages
}

fn numbers(side: &Side) -> Numbers {
    Numbers {
        packets: side.packets,
        retransmissions: side.again + side.filled,
        retransmissions_of_unseen: side.filled,
        duplicates: side.duplicates,
        reordered: side.reordered,
        gaps: side.gaps,
        missing: side.missing,
        never_seen: side.missing.saturating_sub(side.filled + side.reordered),
        restarts: side.restarts,
    }
}

/// The specification's word for a reason.
fn why(code: NakCode) -> &'static str {
    match code {
        NakCode::PsnSequence => "PSN sequence error",
        NakCode::InvalidRequest => "invalid request",
        NakCode::RemoteAccess => "remote access error",
        NakCode::RemoteOperational => "remote operational error",
        NakCode::InvalidRdRequest => "invalid RD request",
    }
}

fn refusal(refused: &stream::Refused) -> Refusal {
    let target = refused.target;
    Refusal {
        why: why(refused.code),
        psn: refused.psn.get(),
        rkey: target.map(|Target { rkey, .. }| format!("{rkey:#x}")),
        address: target.map(|Target { address, .. }| format!("{address:#x}")),
        length: target.map(|Target { length, .. }| length),
    }
}

fn times(of: &'static str, histogram: &Histogram<u32>) -> Latency {
    Latency {
        of,
        count: histogram.len(),
        p50: histogram.value_at_quantile(0.5),
        p99: histogram.value_at_quantile(0.99),
        max: histogram.max(),
    }
}

fn remote_key(rkey: u32, key: &Key) -> Rkey {
    let range = |(first, last): (u64, u64)| Range {
        first: format!("{first:#x}"),
        last: format!("{last:#x}"),
        bytes: (last - first).saturating_add(1),
    };
    Rkey {
        rkey: format!("{rkey:#x}"),
        writes: key.writes,
        reads: key.reads,
        atomics: key.atomics,
        flushes: key.flushes,
        invalidated: key.invalidated,
        ranges: key.ranges.iter().map(range).collect(),
        ranges_joined: key.ranges.joined(),
    }
}

/// Which bounds were reached.
fn bounds(flows: &Flows) -> Vec<String> {
    let streams = flows.streams();
    let sum = |of: fn(&Stream) -> u64| streams.iter().map(of).sum::<u64>();
    let joined = streams.iter().flat_map(|stream| stream.keys.iter());
    let joined = joined.filter(|(_, key)| key.ranges.joined()).count() as u64;
    let gaps = sum(|stream| stream.requests.forgotten() + stream.data.forgotten());
    // Where answers were not seen, nothing would have come of waiting.
    let waiting = sum(|stream| stream.peer.map_or(0, |_| stream.waiting.forgotten()));
    let reached = [
        (
            flows.not_followed,
            format!(
                "packets are of more than {} directions and were only counted",
                flows::MOST_STREAMS
            ),
        ),
        (
            flows.keys_not_kept,
            format!(
                "requests name more than {} remote keys, which are not listed",
                flows::MOST_KEYS
            ),
        ),
        (
            joined,
            format!(
                "remote keys were used for more than {} ranges; near ones are shown as one",
                keys::MOST_RANGES
            ),
        ),
        (
            waiting,
            format!(
                "requests were more than {} before an answer and are left out of the latency",
                waiting::MOST_WAITING
            ),
        ),
        (gaps, format!("gaps were forgotten, more than {} being open", sequence::MOST_GAPS)),
    ];
    let reached = reached.into_iter().filter(|(count, _)| *count > 0);
    reached.map(|(count, what)| format!("{count} {what}")).collect()
}
