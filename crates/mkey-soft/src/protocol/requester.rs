//! The requester: which packet of which message goes out next, and what the responses end.

use super::retry::{Patience, Tries};
use super::sequence::{Sequence, begin, nearest, on_wire};
use mkey_core::status::WcStatus;
use mkey_wire::response::Response;
use mkey_wire::syndrome::{NakCode, Syndrome};
use mkey_wire::timer::RnrTimer;
use mkey_wire::u24::Psn;
use std::collections::VecDeque;
use std::time::Duration;

/// An acknowledgement is asked for after so many packets at the latest, and after half a window: else who
/// sends would wait for who receives, and the other way round.
const ASK_EVERY: u32 = 32;

/// What both sides have agreed on, or one side decided for good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transport {
    /// Whether anything is acknowledged (RC, not UC).
    pub(crate) reliable: bool,
    /// Bytes of payload of a packet that is not the last of its message.
    pub(crate) mtu: u32,
    /// The first number.
    pub(crate) psn: Psn,
    /// Packets that may go out before one of them is acknowledged.
    pub(crate) window: u32,
}

/// A message, or another piece of work that takes its turn among them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) kind: Kind,
    pub(crate) length: u64,
    /// Begins after all earlier READs and atomics are done (R-ORD-01).
    pub(crate) fence: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SEND or WRITE: its bytes go out.
    Data,
    /// Its bytes come in.
    Read,
    Atomic,
    /// Done on this side; `alone`: once all before it is done (R-INV-11).
    Local {
        alone: bool,
    },
}

/// What to do next. Messages are numbered from 0 in the order of [`Requester::push`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, until something arrives or is pushed or the time of [`Requester::deadline`].
    Nothing,
    /// Send this packet, then call [`Requester::sent`].
    Packet(Outgoing),
    /// Do the local work, then call [`Requester::executed`] or [`Requester::fail`].
    Local(u64),
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) message: u64,
    pub(crate) psn: Psn,
    /// Bytes of the message before this packet.
    pub(crate) offset: u64,
    /// Bytes that it carries, or asks for.
    pub(crate) length: u64,
    /// Whether it is the first of its message.
    pub(crate) first: bool,
    /// Whether it is the last of its message.
    pub(crate) last: bool,
    pub(crate) wants_ack: bool,
}

/// What a response asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Nothing.
    Nothing,
    /// The payload belongs at this offset of a READ's landing place.
    Land { message: u64, offset: u64 },
    /// The word belongs in an atomic's landing place.
    Word { message: u64, original: u64 },
}

/// How a message ends that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) status: WcStatus,
    /// The entry of the log that tells why; 0: none.
    pub(crate) vendor_err: u32,
}

impl Ending {
    pub(crate) fn bare(status: WcStatus) -> Self {
        Self { status, vendor_err: 0 }
    }
}

/// How a request ends that was refused so.
pub(crate) fn refusal_status(code: NakCode) -> WcStatus {
    match code {
        NakCode::InvalidRequest => WcStatus::RemInvReqErr,
        NakCode::RemoteAccess => WcStatus::RemAccessErr,
        NakCode::RemoteOperational => WcStatus::RemOpErr,
        // Not said of such a request, but of its number.
        NakCode::PsnSequence | NakCode::InvalidRdRequest => WcStatus::BadRespErr,
    }
}

/// One direction of a connection, as its requester sees it.
#[derive(Debug)]
pub(crate) struct Requester {
    transport: Transport,
    patience: Patience,
    max_reads: u32,
    entries: VecDeque<Entry>,
    /// The number of the first of them.
    front: u64,
    /// The sequence number after those of all messages.
    end: Sequence,
    /// The request packets of all messages.
    weight: u64,
    /// All before is acknowledged.
    acked: Sequence,
    /// All before has been sent at least once.
    sent: Sequence,
    /// Messages before this one have begun.
    begun: u64,
    cursor: Cursor,
    /// READs and atomics that have begun and are not done.
    reads: u32,
    /// Responses to READs that have begun which have not come.
    awaited: u64,
    tries: Tries,
    /// Nothing is sent before, as the responder had no receive.
    pause: Option<Duration>,
    /// When what was sent is taken to be lost.
    deadline: Option<Duration>,
    /// The loss at `acked` was told, and what follows it is on its way once more.
    told: bool,
}

/// Where sending goes on.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    message: u64,
    packet: u32,
}

#[derive(Debug)]
struct Entry {
    kind: Kind,
    length: u64,
    fence: bool,
    first: Sequence,
    /// Sequence numbers that it takes.
    packets: u32,
    /// Request packets of all messages before.
    weight: u64,
    /// READ: responses that have come.
    landed: u32,
    done: bool,
    failed: Option<Ending>,
}

impl Entry {
    /// The sequence number after its last.
    fn end(&self) -> Sequence {
        self.first + u64::from(self.packets)
    }

    fn answers(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Atomic)
    }

    /// How many sequence numbers the request takes that begins at the packet: of a READ all that is
    /// left, as the peer judges it by its whole length (R-RA-09, R-RA-12).
    fn asked_at_once(&self, packet: u32) -> u32 {
        match self.kind {
            Kind::Read => self.packets.saturating_sub(packet).max(1),
            _ => 1,
        }
    }

    /// Whether it is work on this side that is not done.
    fn is_due_here(&self) -> bool {
        matches!(self.kind, Kind::Local { .. }) && !self.done
    }

    /// The first response that is missing.
    fn missing(&self) -> Sequence {
        self.first + u64::from(self.landed)
    }
}

impl Requester {
    pub(crate) fn new(transport: Transport, patience: Patience, max_reads: u32) -> Self {
        let first = begin(transport.psn);
        Self {
            transport,
            patience,
            max_reads: max_reads.max(1),
            entries: VecDeque::new(),
            front: 0,
            end: first,
            weight: 0,
            acked: first,
            sent: first,
            begun: 0,
            cursor: Cursor { message: 0, packet: 0 },
            reads: 0,
            awaited: 0,
            tries: Tries::all(&patience),
            pause: None,
            deadline: None,
            told: false,
        }
    }

    /// The queue pair was given other settings.
    pub(crate) fn set(&mut self, patience: Patience, max_reads: u32) {
        (self.patience, self.max_reads) = (patience, max_reads.max(1));
        self.tries = Tries::all(&patience);
    }

    /// Adds a message at the end.
    pub(crate) fn push(&mut self, message: Message) {
        let Message { kind, length, fence } = message;
        let (packets, weight) = match kind {
            Kind::Local { .. } => (0, 0),
            Kind::Atomic => (1, 1),
            Kind::Data => {
                let packets = self.packets(length);
                (packets, u64::from(packets))
            }
            Kind::Read => (self.packets(length), 1),
        };
        self.entries.push_back(Entry {
            kind,
            length,
            fence,
            first: self.end,
            packets,
            weight: self.weight,
            landed: 0,
            done: false,
            failed: None,
        });
        self.end += u64::from(packets);
        self.weight += weight;
    }

    /// Packets that carry so many bytes. More than half of all numbers on the wire can not be told
    /// apart; the peer refuses such a message at its first packet.
    fn packets(&self, length: u64) -> u32 {
        let packets = length.div_ceil(u64::from(self.transport.mtu));
        packets.clamp(1, 1 << 23) as u32
    }

    /// What to do next. With `hold` no message begins, only what has begun goes on (SQD).
    pub(crate) fn next(&self, now: Duration, hold: bool) -> Next {
        if self.pause.is_some_and(|until| until > now) {
            return Next::Nothing;
        }
        let Cursor { message, packet } = self.cursor;
        let Some(entry) = self.entry(message) else { return Next::Nothing };
        if entry.failed.is_some() || (message >= self.begun && (hold || self.waits(entry))) {
            return Next::Nothing;
        }
        if let Kind::Local { .. } = entry.kind {
            return Next::Local(message);
        }
        let step = if entry.kind == Kind::Data { packet } else { 0 };
        let flying = (entry.weight + u64::from(step)).saturating_sub(self.acked_weight());
        let packets = entry.asked_at_once(packet);
        if self.transport.reliable && flying >= u64::from(self.transport.window) {
            return Next::Nothing;
        }
        let mtu = u64::from(self.transport.mtu);
        let offset = u64::from(packet) * mtu;
        let left = entry.length.saturating_sub(offset);
        let last = packet + packets >= entry.packets;
        let full = flying + 1 >= u64::from(self.transport.window);
        Next::Packet(Outgoing {
            message,
            psn: on_wire(entry.first + u64::from(packet)),
            offset,
            length: if last { left } else { u64::from(packets) * mtu },
            first: packet == 0,
            last,
            wants_ack: self.transport.reliable
                && (last || full || (packet + 1).is_multiple_of(self.ask_every())),
        })
    }

    /// After so many packets at the latest an acknowledgement is asked for.
    fn ask_every(&self) -> u32 {
        (self.transport.window / 2).clamp(1, ASK_EVERY)
    }

    /// Whether a message may not begin yet.
    fn waits(&self, entry: &Entry) -> bool {
        if entry.fence && self.reads > 0 {
            return true;
        }
        match entry.kind {
            Kind::Local { alone } => alone && self.begun > self.front,
            Kind::Read | Kind::Atomic if self.reads >= self.max_reads => true,
            // Each of them may be lost, and then all that follow come once more.
            Kind::Read => {
                let awaited = self.awaited + u64::from(entry.packets);
                self.awaited > 0 && awaited > u64::from(self.transport.window)
            }
            Kind::Atomic => false,
            Kind::Data => false,
        }
    }

    /// Request packets before the first that is not acknowledged.
    fn acked_weight(&self) -> u64 {
        match self.entries.iter().find(|entry| entry.end() > self.acked) {
            None => self.weight,
            Some(entry) if entry.kind == Kind::Data => {
                entry.weight + self.acked.saturating_sub(entry.first)
            }
            Some(entry) => entry.weight,
        }
    }

    /// The packet of the last [`Requester::next`] has gone out.
    pub(crate) fn sent(&mut self, now: Duration) {
        let Cursor { message, packet } = self.cursor;
        let reliable = self.transport.reliable;
        let Some(entry) = self.entry_mut(message) else { return };
        let packets = entry.asked_at_once(packet);
        let answers = entry.answers();
        let awaited = if entry.kind == Kind::Read { entry.packets } else { 0 };
        let through = packet + packets >= entry.packets;
        entry.done |= through && !reliable;
        let upto = entry.first + u64::from(packet + packets);
        if message >= self.begun {
            self.begun = message + 1;
            self.reads += u32::from(answers);
            self.awaited += u64::from(awaited);
        }
        self.sent = self.sent.max(upto);
        self.pause = None;
        if !reliable {
            self.acked = self.acked.max(upto);
        } else if self.deadline.is_none() {
            self.restart(now);
        }
        if through {
            self.step_to(message + 1);
        } else {
            self.cursor.packet = packet + packets;
        }
    }

    /// The local work of the last [`Requester::next`] is done.
    pub(crate) fn executed(&mut self, message: u64) {
        let Some(entry) = self.entry_mut(message) else { return };
        entry.done = true;
        self.begun = self.begun.max(message + 1);
        self.step_to(message + 1);
    }

    /// A message has failed: it ends so once those before it have ended, and nothing after it goes
    /// out.
    pub(crate) fn fail(&mut self, message: u64, ending: Ending) {
        if let Some(entry) = self.entry_mut(message) {
            entry.failed.get_or_insert(ending);
        }
    }

    /// A response, and how many bytes of payload came with it.
    pub(crate) fn hear(
        &mut self,
        psn: Psn,
        response: &Response,
        payload: u64,
        now: Duration,
    ) -> Heard {
        let sequence = nearest(self.acked, psn);
        // What is acknowledged already says nothing new, and what was not sent can not be answered.
        if sequence < self.acked || sequence >= self.sent {
            return Heard::Nothing;
        }
        match *response {
            Response::Acknowledge(aeth) => {
                self.acknowledgement(sequence, aeth.syndrome, now);
                Heard::Nothing
            }
            Response::Read(_) => self.read_response(sequence, payload, now),
            Response::AtomicAcknowledge { original, .. } => {
                self.atomic_response(sequence, original, now)
            }
        }
    }

    fn acknowledgement(&mut self, sequence: Sequence, syndrome: Syndrome, now: Duration) {
        if let Syndrome::Ack(_) = syndrome {
            self.acknowledged(sequence + 1, now);
            return;
        }
        // A negative one acknowledges what is before it.
        if !self.acknowledged(sequence, now) {
            return;
        }
        let status = match syndrome {
            Syndrome::RnrNak(timer) => return self.not_ready(timer, now),
            Syndrome::Nak(NakCode::PsnSequence) => return self.lost(now),
            Syndrome::Nak(code) => refusal_status(code),
            Syndrome::Reserved(_) => WcStatus::BadRespErr,
            Syndrome::Ack(_) => return,
        };
        if let Some(message) = self.find(sequence) {
            self.deadline = None;
            self.fail(message, Ending::bare(status));
        }
    }

    fn not_ready(&mut self, timer: RnrTimer, now: Duration) {
        // While it waits, what was under way is answered in the same way.
        if self.pause.is_some() {
            return;
        }
        let Some(message) = self.find(self.acked) else { return };
        match self.tries.receiver(&self.patience) {
            Ok(()) => {
                self.pause = Some(now.saturating_add(timer.time()));
                self.deadline = None;
                self.go_back();
            }
            Err(_) => {
                self.deadline = None;
                self.fail(message, Ending::bare(WcStatus::RnrRetryExcErr));
            }
        }
    }

    /// All before `upto` is acknowledged, unless a READ or atomic among it was not answered: then
    /// its answer was lost. Whether all of it is.
    fn acknowledged(&mut self, upto: Sequence, now: Duration) -> bool {
        let unanswered = self
            .entries
            .iter()
            .take_while(|entry| entry.first < upto)
            .find(|entry| entry.answers() && !entry.done);
        let whole = match unanswered {
            None => upto,
            Some(entry) => entry.missing(),
        };
        self.advance(whole.min(upto), now);
        if whole < upto {
            self.lost(now);
        }
        whole >= upto
    }

    fn advance(&mut self, upto: Sequence, now: Duration) {
        if upto <= self.acked {
            return;
        }
        self.acked = upto;
        self.tries = Tries::all(&self.patience);
        (self.pause, self.told) = (None, false);
        let reached = self.entries.partition_point(|entry| entry.end() <= upto);
        for entry in self.entries.iter_mut().take(reached) {
            entry.done |= entry.kind == Kind::Data;
        }
        // After going back, an answer that came late saves sending again.
        if self.cursor_sequence().is_some_and(|at| at < upto) {
            self.seek(upto);
        }
        if self.sent > upto { self.restart(now) } else { self.deadline = None }
    }

    fn read_response(&mut self, sequence: Sequence, payload: u64, now: Duration) -> Heard {
        let Some(message) = self.find(sequence) else { return Heard::Nothing };
        let Some((first, missing)) = self
            .entry(message)
            .filter(|entry| entry.kind == Kind::Read)
            .map(|entry| (entry.first, entry.missing()))
        else {
            return Heard::Nothing;
        };
        // It acknowledges what is before the READ.
        if !self.acknowledged(first, now) {
            return Heard::Nothing;
        }
        if sequence != missing {
            // Later than the one that is missing, which was lost; an earlier one has landed.
            if sequence > missing {
                self.lost(now);
            }
            return Heard::Nothing;
        }
        let mtu = u64::from(self.transport.mtu);
        let Some(entry) = self.entry_mut(message) else { return Heard::Nothing };
        let offset = u64::from(entry.landed) * mtu;
        if payload != entry.length.saturating_sub(offset).min(mtu) {
            self.fail(message, Ending::bare(WcStatus::BadRespErr));
            return Heard::Nothing;
        }
        entry.landed += 1;
        let done = entry.landed >= entry.packets;
        entry.done = done;
        self.reads -= u32::from(done);
        self.awaited -= 1;
        self.advance(sequence + 1, now);
        Heard::Land { message, offset }
    }

    fn atomic_response(&mut self, sequence: Sequence, original: u64, now: Duration) -> Heard {
        let Some(message) = self.find(sequence) else { return Heard::Nothing };
        if self.entry(message).is_none_or(|entry| entry.kind != Kind::Atomic)
            || !self.acknowledged(sequence, now)
        {
            return Heard::Nothing;
        }
        let Some(entry) = self.entry_mut(message) else { return Heard::Nothing };
        entry.done = true;
        self.reads -= 1;
        self.advance(sequence + 1, now);
        Heard::Word { message, original }
    }

    /// What was sent from the first unacknowledged packet on has not all arrived.
    fn lost(&mut self, now: Duration) {
        if self.told || self.pause.is_some() {
            return;
        }
        self.told = true;
        self.try_again(now);
    }

    fn try_again(&mut self, now: Duration) {
        let Some(message) = self.find(self.acked) else { return };
        match self.tries.answer() {
            Ok(()) => {
                self.go_back();
                self.restart(now);
            }
            Err(_) => {
                self.deadline = None;
                self.fail(message, Ending::bare(WcStatus::RetryExcErr));
            }
        }
    }

    fn restart(&mut self, now: Duration) {
        self.deadline = self.patience.timeout.map(|timeout| now.saturating_add(timeout));
    }

    /// When [`Requester::on_time`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        match self.pause {
            Some(until) => Some(until),
            None => self.deadline,
        }
    }

    /// The packet of the last [`Requester::next`] can not go out now. That is not waited for longer
    /// than for an answer.
    pub(crate) fn blocked(&mut self, now: Duration) {
        if self.transport.reliable && self.deadline.is_none() {
            self.restart(now);
        }
    }

    /// Whether an answer has not come in time.
    pub(crate) fn is_overdue(&self, now: Duration) -> bool {
        self.pause.is_none() && self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// What was sent is not taken to be lost for as long again.
    pub(crate) fn wait_longer(&mut self, now: Duration) {
        self.restart(now);
    }

    /// Time has gone on.
    pub(crate) fn on_time(&mut self, now: Duration) {
        if self.pause.is_some_and(|until| until <= now) {
            self.pause = None;
        }
        if self.is_overdue(now) {
            self.told = false;
            self.try_again(now);
        }
    }

    /// The first message, if it has ended: takes it out.
    pub(crate) fn take_ended(&mut self) -> Option<Result<(), Ending>> {
        if self.take_done() {
            return Some(Ok(()));
        }
        let failed = self.entries.front()?.failed?;
        self.take_front();
        Some(Err(failed))
    }

    /// Whether the first message has ended well: takes it out then.
    pub(crate) fn take_done(&mut self) -> bool {
        let done = self.entries.front().is_some_and(|entry| entry.done && entry.failed.is_none());
        if done {
            self.take_front();
        }
        done
    }

    fn take_front(&mut self) {
        self.entries.pop_front();
        self.front += 1;
        self.begun = self.begun.max(self.front);
        if self.cursor.message < self.front {
            self.step_to(self.front);
        }
    }

    /// Whether a message has begun and is not done.
    pub(crate) fn busy(&self) -> bool {
        self.begun > self.front
    }

    /// The number of the first message.
    pub(crate) fn front(&self) -> u64 {
        self.front
    }

    /// Forgets all messages; those that are pushed next go on in sequence.
    pub(crate) fn clear(&mut self) {
        self.front += self.entries.len() as u64;
        self.entries.clear();
        (self.end, self.acked) = (self.sent, self.sent);
        (self.begun, self.reads, self.awaited) = (self.front, 0, 0);
        (self.pause, self.deadline, self.told) = (None, None, false);
        self.tries = Tries::all(&self.patience);
        self.cursor = Cursor { message: self.front, packet: 0 };
    }

    fn entry(&self, message: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(message.checked_sub(self.front)?).ok()?)
    }

    fn entry_mut(&mut self, message: u64) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(message.checked_sub(self.front)?).ok()?)
    }

    /// The message to which a sequence number belongs.
    fn find(&self, sequence: Sequence) -> Option<u64> {
        let place = self.entries.partition_point(|entry| entry.end() <= sequence);
        self.entries.get(place).map(|_| self.front + place as u64)
    }

    /// The sequence number at which sending goes on, unless all was sent.
    fn cursor_sequence(&self) -> Option<Sequence> {
        let entry = self.entry(self.cursor.message)?;
        Some(entry.first + u64::from(self.cursor.packet))
    }

    fn go_back(&mut self) {
        self.seek(self.acked);
    }

    fn seek(&mut self, sequence: Sequence) {
        let mut place = self.entries.partition_point(|entry| entry.end() <= sequence);
        // Local work takes no number: what is just before this one may not be done yet.
        while let Some(before) = place.checked_sub(1)
            && self.entries.get(before).is_some_and(Entry::is_due_here)
        {
            place = before;
        }
        self.step_to(self.front + place as u64);
        if let Some(entry) = self.entry(self.cursor.message) {
            let packet = sequence.saturating_sub(entry.first) as u32;
            self.cursor.packet = packet.max(self.cursor.packet);
        }
    }

    /// Goes on with the first message from this one on that is not done.
    fn step_to(&mut self, mut message: u64) {
        while self.entry(message).is_some_and(|entry| entry.done) {
            message += 1;
        }
        // Of a READ that was answered in part, only the rest is asked for again.
        let packet = self.entry(message).map_or(0, |entry| entry.landed);
        self.cursor = Cursor { message, packet };
    }
}
