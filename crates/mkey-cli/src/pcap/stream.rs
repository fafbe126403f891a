//! What one queue pair sends to another: counts, and what follows from the numbers.

use super::keys::{Keys, Use};
use super::packet::{Icrc, Seen, Target, message};
use super::sequence::{BACK, Follows, Numbered, Place, Sequence, elapsed};
use super::waiting::{Kind, Request, Waiting};
use mkey_wire::cooked::Way;
use mkey_wire::opcode::{Opcode, Operation};
use mkey_wire::syndrome::{NakCode, Syndrome};
use mkey_wire::u24::{Psn, Qpn};
use serde::Serialize;
use std::net::IpAddr;

/// Refused requests that are kept with what they were about.
pub const MOST_REFUSED: usize = 16;

/// Numbers that two ends of a connection are apart at most when they capture.
const NEAR: u32 = 1 << 20;
/// The end that is followed has ended what it followed, if it captures nothing for so long (nanoseconds)
/// while the other end captures something else.
const QUIET: u64 = 1_000_000_000;

/// The largest path MTU.
const MOST_MTU: u32 = 4096;
const LEAST_MTU: u32 = 256;

/// Whose packets these are. The number of the queue pair that sends them is in datagrams only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Who sends.
    pub source: IpAddr,
    /// Whom it is for.
    pub destination: IpAddr,
    /// The queue pair that it is for.
    pub dest_qp: Qpn,
    /// Of datagrams: the queue pair that sends.
    pub source_qp: Option<Qpn>,
}

impl Key {
    /// That of a packet.
    pub fn of(seen: &Seen) -> Self {
        let Seen { source, destination, dest_qp, source_qp, .. } = *seen;
        Self { source, destination, dest_qp, source_qp }
    }
}

/// One direction.
#[derive(Debug)]
pub struct Stream {
    /// Whose.
    pub key: Key,
    /// The direction of the other queue pair, where it is known.
    pub peer: Option<usize>,
    /// Tries to find it.
    pub tries: u32,
    /// The UDP port that the first packet came from.
    pub source_port: Option<u16>,
    /// All of its packets.
    pub tally: Tally,
    /// Requests.
    pub requests: Side,
    /// Data that answers the requests of the other queue pair.
    pub data: Side,
    /// Answers to the requests of the other queue pair.
    pub answers: Answers,
    /// Requests without an answer, and how long the others took.
    pub waiting: Waiting,
    /// Remote keys that requests name.
    pub keys: Keys,
    /// Payload of every packet but the last of a message: the path MTU.
    mtu: Option<u32>,
    /// The most payload that was seen.
    most_payload: u32,
    /// The last READ, if the length of its answer in packets was not known: its number and its bytes.
    unsettled: Option<(Psn, u32)>,
    /// The message in the making: its first number and what it is about.
    open: Option<(Psn, Option<Target>)>,
    /// More data of the same answer is to come.
    data_open: bool,
    extended: bool,
    vantage: Vantage,
}

/// At which end the packets of a direction are followed, if the capture tells of ends.
#[derive(Debug, Default)]
struct Vantage {
    end: Option<Way>,
    /// The last numbers of requests and of responses there.
    last: [Option<Psn>; 2],
    /// When the last packet was captured there.
    time: Option<u64>,
}

impl Vantage {
    fn is_other(&mut self, seen: &Seen) -> bool {
        let Some(way) = seen.way else { return false };
        let kind = usize::from(seen.connected().is_some_and(|operation| operation.is_response()));
        let far =
            |last: &Option<Psn>| last.is_some_and(|last| seen.psn.past(last).unsigned_abs() > NEAR);
        if self.end.is_some_and(|end| end != way) {
            let quiet = elapsed(self.time, seen.time) > QUIET;
            if !(quiet && self.last.get(kind).is_some_and(far)) {
                return true;
            }
            // Another connection has the same queue pair, and this end captures it.
            self.last = [None; 2];
        }
        (self.end, self.time) = (Some(way), seen.time);
        if let Some(last) = self.last.get_mut(kind) {
            *last = Some(seen.psn);
        }
        false
    }
}

/// What is counted of packets, whatever they are.
#[derive(Debug)]
pub struct Tally {
    /// All packets and bytes.
    pub all: Count,
    /// By opcode.
    pub opcodes: Box<[Count; 256]>,
    /// Marked: congestion experienced.
    pub congested: u64,
    /// ICRCs.
    pub icrc: IcrcCount,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            all: Count::default(),
            opcodes: Box::new([Count::default(); 256]),
            congested: 0,
            icrc: IcrcCount::default(),
        }
    }
}

impl Tally {
    /// Counts a packet.
    pub fn see(&mut self, seen: &Seen) {
        for count in self.counts(seen) {
            count.packets += 1;
            count.payload += u64::from(seen.payload);
            count.ip += u64::from(seen.ip_len);
        }
        self.congested += u64::from(seen.congested);
        match seen.icrc {
            Icrc::Right => self.icrc.right += 1,
            Icrc::Wrong => self.icrc.wrong += 1,
            Icrc::Unchecked => self.icrc.not_checkable += 1,
        }
    }

    /// The counts that a packet is in.
    fn counts(&mut self, seen: &Seen) -> impl Iterator<Item = &mut Count> {
        let opcode = self.opcodes.get_mut(usize::from(seen.opcode.byte()));
        [Some(&mut self.all), opcode].into_iter().flatten()
    }
}

/// ICRCs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IcrcCount {
    /// That of the packet.
    pub right: u64,
    /// Another.
    pub wrong: u64,
    /// The packet was cut, or what is around it is not of a RoCEv2 packet.
    pub not_checkable: u64,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Those whose number was not seen before.
    pub first: u64,
    /// Bytes of payload.
    pub payload: u64,
    /// Bytes of the IP packets.
    pub ip: u64,
}

/// Packets whose numbers follow each other.
#[derive(Debug, Default)]
pub struct Side {
    sequence: Sequence,
    /// Packets.
    pub packets: u64,
    /// Sent again; the first one was seen.
    pub again: u64,
    /// Sent again; the first one was not seen.
    pub filled: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Overtaken on the way.
    pub reordered: u64,
    /// Gaps.
    pub gaps: u64,
    /// Numbers that were missing in gaps.
    pub missing: u64,
    /// Sequences that began anew.
    pub restarts: u64,
}

impl Side {
    fn see(&mut self, packet: Numbered) -> Place {
        self.packets += 1;
        let place = self.sequence.see(packet);
        match place {
            Place::New => {}
            Place::Gap(missing) => {
                self.gaps += 1;
                self.missing += u64::from(missing);
            }
            Place::Reordered => self.reordered += 1,
            Place::Duplicate => self.duplicates += 1,
            Place::Again => self.again += 1,
            Place::Filled => self.filled += 1,
            Place::Restart => self.restarts += 1,
        }
        place
    }

    /// Gaps that were forgotten since there were too many.
    pub fn forgotten(&self) -> u64 {
        self.sequence.forgotten()
    }
}

/// Acknowledgements.
#[derive(Debug, Default)]
pub struct Answers {
    /// Positive ones, without data.
    pub acks: u64,
    /// Those that say no more than one before.
    pub acks_again: u64,
    /// Negative ones by code, in the order of [`NakCode`].
    pub naks: [u64; 5],
    /// Not ready.
    pub rnr: u64,
    /// Syndromes that mean nothing.
    pub reserved: u64,
    /// Refused requests, the first few.
    pub refused: Vec<Refused>,
    highest: Option<Psn>,
}

/// A request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub code: NakCode,
    /// The number of its first packet that was refused.
    pub psn: Psn,
    /// What it was about, if it was seen.
    pub target: Option<Target>,
}

impl Stream {
    /// Nothing seen yet.
    pub fn new(key: Key, source_port: Option<u16>) -> Self {
        Self {
            key,
            peer: None,
            tries: 0,
            source_port,
            tally: Tally::default(),
            requests: Side::default(),
            data: Side::default(),
            answers: Answers::default(),
            waiting: Waiting::default(),
            keys: Keys::default(),
            mtu: None,
            most_payload: 0,
            unsettled: None,
            open: None,
            data_open: false,
            extended: false,
            vantage: Vantage::default(),
        }
    }

    /// Whether this is a packet that its other end has captured, too: where both ends capture, those of
    /// the end that came first are followed, for as long as it is one connection.
    pub fn is_copy(&mut self, seen: &Seen) -> bool {
        self.vantage.is_other(seen)
    }

    /// Counts a packet.
    pub fn count(&mut self, seen: &Seen) {
        self.tally.see(seen);
        self.extended |= matches!(seen.opcode, Opcode::Xrc(_));
    }

    /// A number that was not seen before.
    pub fn first(&mut self, seen: &Seen) {
        for count in self.tally.counts(seen) {
            count.first += 1;
        }
    }

    /// What the path MTU is at least and at most, by what was seen.
    pub fn mtu(&self) -> (u32, u32) {
        match self.mtu {
            Some(mtu) => (mtu, mtu),
            None => (self.most_payload.clamp(LEAST_MTU, MOST_MTU).next_power_of_two(), MOST_MTU),
        }
    }

    /// A request. `mtu` is that of its answers, at least and at most.
    pub fn request(&mut self, seen: &Seen, operation: Operation, mtu: (u32, u32)) -> Place {
        self.learn_mtu(seen, operation);
        let packets = |bytes: u32, mtu: u32| bytes.div_ceil(mtu.max(1)).max(1);
        if let Some((psn, bytes)) = self.unsettled.filter(|_| mtu.0 == mtu.1) {
            self.requests.sequence.settle(psn.plus(packets(bytes, mtu.1)));
            self.unsettled = None;
        }
        let (count, slack) = match (operation, seen.target) {
            (Operation::ReadRequest, Some(Target { length, .. })) => (
                packets(length, mtu.1),
                packets(length, mtu.0).saturating_sub(packets(length, mtu.1)),
            ),
            _ => (1, 0),
        };
        let oldest = self.waiting.oldest().or(self.open.map(|(first, _)| first));
        let back = match (self.requests.sequence.next(), oldest) {
            (Some(next), Some(oldest)) => u32::try_from(next.past(oldest)).unwrap_or(0),
            _ => 0,
        };
        let place = self.requests.see(Numbered {
            psn: seen.psn,
            count,
            slack,
            follows: Follows::All,
            back,
            time: seen.time,
            identity: seen.identity,
        });
        if place == Place::Restart {
            self.waiting.clear();
            self.open = None;
        }
        if place.is_first() {
            self.first(seen);
        }
        if matches!(place, Place::New | Place::Gap(_) | Place::Restart) {
            self.track(seen, operation, count, false);
            let bytes = seen.target.filter(|_| slack > 0).map(|target| (seen.psn, target.length));
            self.unsettled = bytes;
        } else if place.is_first() {
            self.track(seen, operation, count, true);
        }
        place
    }

    /// Follows messages from their first packet to their last. One that comes late is of another message
    /// than the one in the making.
    fn track(&mut self, seen: &Seen, operation: Operation, count: u32, late: bool) {
        let kind = match operation {
            Operation::ReadRequest => Kind::Read,
            Operation::CompareSwap | Operation::FetchAdd => Kind::Atomic,
            _ => Kind::Acknowledged,
        };
        match operation {
            Operation::SendFirst | Operation::WriteFirst if late => {}
            Operation::SendFirst | Operation::WriteFirst => {
                self.open = Some((seen.psn, seen.target))
            }
            _ if message(seen.opcode).is_none() => {}
            _ => {
                let ends = matches!(
                    operation,
                    Operation::SendLast
                        | Operation::SendLastImm
                        | Operation::SendLastInv
                        | Operation::WriteLast
                        | Operation::WriteLastImm
                );
                let (first, target) = match self.open.take_if(|_| !late).filter(|_| ends) {
                    Some((first, target)) => (first, target),
                    None => (seen.psn, seen.target),
                };
                if !matches!(seen.opcode, Opcode::Uc(_)) {
                    let last = seen.psn.plus(count.saturating_sub(1));
                    self.waiting.push(Request::new(first, last, seen.time, kind, target));
                }
            }
        }
    }

    /// Notes the keys that a request names; false if no more are kept.
    pub fn note_keys(&mut self, seen: &Seen, operation: Operation, budget: &mut usize) -> bool {
        let how = match operation {
            Operation::ReadRequest => Use::Read,
            Operation::CompareSwap | Operation::FetchAdd => Use::Atomic,
            Operation::Flush => Use::Flush,
            _ => Use::Write,
        };
        let used = seen.target.is_none_or(|target| self.keys.used(&target, how, budget));
        let ended = seen.invalidates.is_none_or(|rkey| self.keys.invalidated(rkey, budget));
        used && ended
    }

    /// Data, or an acknowledgement of an atomic.
    pub fn response_data(&mut self, seen: &Seen, operation: Operation) -> Place {
        self.learn_mtu(seen, operation);
        let begins =
            matches!(operation, Operation::ReadResponseFirst | Operation::ReadResponseOnly);
        let follows = match (operation, self.data_open) {
            (Operation::AtomicAcknowledge, _) => Follows::Free,
            (_, true) if begins => Follows::First,
            (_, false) if begins => Follows::Free,
            (_, true) => Follows::All,
            (_, false) => Follows::Before,
        };
        let place = self.data.see(Numbered {
            psn: seen.psn,
            count: 1,
            slack: 0,
            follows,
            back: 1 << 20,
            time: seen.time,
            identity: seen.identity,
        });
        if matches!(place, Place::New | Place::Gap(_) | Place::Restart) {
            match operation {
                Operation::ReadResponseFirst | Operation::ReadResponseMiddle => {
                    self.data_open = true
                }
                Operation::ReadResponseLast | Operation::ReadResponseOnly => self.data_open = false,
                _ => {}
            }
        }
        if place.is_first() {
            self.first(seen);
        }
        place
    }

    /// An acknowledgement without data. What the request of the other queue pair was about is told by
    /// `of`.
    pub fn acknowledgement(
        &mut self,
        seen: &Seen,
        syndrome: Syndrome,
        of: impl FnOnce() -> Option<Target>,
    ) {
        let answers = &mut self.answers;
        match syndrome {
            Syndrome::Ack(_) => {
                answers.acks += 1;
                match answers.highest {
                    // Another connection's, if it is far off.
                    Some(highest) if (-(BACK as i32)..=0).contains(&seen.psn.past(highest)) => {
                        answers.acks_again += 1;
                        return;
                    }
                    _ => answers.highest = Some(seen.psn),
                }
            }
            Syndrome::RnrNak(_) => answers.rnr += 1,
            Syndrome::Nak(code) => {
                if let Some(count) = answers.naks.get_mut(code as usize) {
                    *count += 1;
                }
                if code != NakCode::PsnSequence && answers.refused.len() < MOST_REFUSED {
                    answers.refused.push(Refused { code, psn: seen.psn, target: of() });
                }
            }
            Syndrome::Reserved(_) => answers.reserved += 1,
        }
        self.first(seen);
    }

    /// What a request that takes this number is about.
    pub fn target_of(&self, psn: Psn) -> Option<Target> {
        let open =
            self.open.filter(|(first, _)| !psn.is_before(*first)).and_then(|(_, target)| target);
        open.or_else(|| self.waiting.of(psn).and_then(|request| request.target))
    }

    /// Whether it is of an extended reliable connection.
    pub fn extended(&self) -> bool {
        self.extended
    }

    /// Whether an answer with this number may be one to a request of this direction.
    pub fn awaits(&self, psn: Psn) -> bool {
        let Some(next) = self.requests.sequence.next() else { return false };
        let oldest = self.waiting.oldest().or(self.open.map(|(first, _)| first)).unwrap_or(next);
        // Behind a READ whose answer has a length that is not known, numbers are not known, either.
        !psn.is_before(oldest) && psn.past(next) <= self.requests.sequence.slack() as i32
    }

    /// The other side has asked for requests again.
    pub fn asked_for_requests(&mut self) {
        self.requests.sequence.asked();
    }

    /// The other side has asked for answers again.
    pub fn asked_for_data(&mut self) {
        self.data.sequence.asked();
    }

    fn learn_mtu(&mut self, seen: &Seen, operation: Operation) {
        self.most_payload = self.most_payload.max(seen.payload);
        let full = matches!(
            operation,
            Operation::SendFirst
                | Operation::SendMiddle
                | Operation::WriteFirst
                | Operation::WriteMiddle
                | Operation::ReadResponseFirst
                | Operation::ReadResponseMiddle
        );
        if full && (LEAST_MTU..=MOST_MTU).contains(&seen.payload) {
            self.mtu = Some(seen.payload);
        }
    }
}
