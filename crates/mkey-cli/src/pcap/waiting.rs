//! Requests that wait for their answer, and how long it took.

use super::packet::Target;
use hdrhistogram::Histogram;
use mkey_wire::u24::Psn;
use std::collections::VecDeque;

/// Requests of one direction that are waited for at most; of more, the oldest is forgotten.
pub const MOST_WAITING: usize = 256;

/// What answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An acknowledgement: SEND, RDMA WRITE, FLUSH, ATOMIC WRITE.
    Acknowledged,
    /// The first packet of the data: RDMA READ.
    Read,
    /// An atomic acknowledgement.
    Atomic,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Its first number.
    pub first: Psn,
    /// The last number that it takes for sure.
    pub last: Psn,
    /// When its last packet was seen first.
    pub time: Option<u64>,
    /// What answers it.
    pub kind: Kind,
    /// The memory that it is about.
    pub target: Option<Target>,
    answered: bool,
}

impl Request {
    /// A request that has no answer yet.
    pub fn new(
        first: Psn,
        last: Psn,
        time: Option<u64>,
        kind: Kind,
        target: Option<Target>,
    ) -> Self {
        Self { first, last, time, kind, target, answered: false }
    }
}

/// The requests of one direction.
#[derive(Debug, Default)]
pub struct Waiting {
    requests: VecDeque<Request>,
    forgotten: u64,
    latency: [Latency; 3],
}

impl Waiting {
    /// A request was sent.
    pub fn push(&mut self, request: Request) {
        if self.requests.len() >= MOST_WAITING {
            self.requests.pop_front();
            self.forgotten += 1;
        }
        // One that came late is not the last.
        let before = self.requests.iter().rposition(|other| other.last.is_before(request.first));
        self.requests.insert(before.map_or(0, |before| before + 1), request);
    }

    /// The first number that waits.
    pub fn oldest(&self) -> Option<Psn> {
        self.requests.front().map(|request| request.first)
    }

    /// How many have no answer yet.
    pub fn unanswered(&self) -> usize {
        self.requests.iter().filter(|request| !request.answered).count()
    }

    /// How many were forgotten since too many waited.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Nothing of what was sent is waited for any more.
    pub fn clear(&mut self) {
        self.requests.clear();
    }

    /// The request that takes a number.
    pub fn of(&self, psn: Psn) -> Option<&Request> {
        self.requests
            .iter()
            .find(|request| !psn.is_before(request.first) && !request.last.is_before(psn))
    }

    /// An answer with a number: with `data`, that of a READ or atomic, or without. It answers what was
    /// asked before, too.
    pub fn answered(&mut self, psn: Psn, data: bool, time: Option<u64>) {
        while let Some(request) = self.requests.front().copied() {
            if psn.is_before(request.first) {
                return;
            }
            let its = self.requests.get(1).is_none_or(|next| psn.is_before(next.first));
            let answers = match request.kind {
                Kind::Acknowledged => !psn.is_before(request.last),
                Kind::Read | Kind::Atomic => its && data,
            };
            if answers && !request.answered {
                let taken = request.time.zip(time).and_then(|(from, to)| to.checked_sub(from));
                let latency = self.latency.get_mut(request.kind as usize);
                taken.zip(latency).into_iter().for_each(|(taken, latency)| latency.record(taken));
            }
            if its && (!answers || request.kind == Kind::Read) {
                // More of its data may come, of numbers that are not known.
                if let Some(front) = self.requests.front_mut() {
                    front.answered |= answers;
                }
                return;
            }
            self.requests.pop_front();
        }
    }

    /// How long answers of a kind took.
    pub fn latency(&self, kind: Kind) -> Option<&Histogram<u32>> {
        self.latency.get(kind as usize).and_then(|latency| latency.0.as_deref())
    }
}

/// Times in nanoseconds, within one percent.
#[derive(Debug, Default)]
struct Latency(Option<Box<Histogram<u32>>>);

/// Ten minutes: no requester waits longer.
const LONGEST: u64 = 600_000_000_000;

impl Latency {
    fn record(&mut self, time: u64) {
        if self.0.is_none() {
            self.0 = Histogram::new(2).ok().map(Box::new);
        }
        if let Some(histogram) = &mut self.0 {
            // It grows to what it is told.
            histogram.auto(true);
            let _ = histogram.record(time.clamp(1, LONGEST));
        }
    }
}
