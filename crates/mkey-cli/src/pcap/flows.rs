//! All queue pairs of a capture, and which two belong together.
//!
//! A packet names the queue pair that it is for, not the one that sends it. So what one queue pair
//! sends to another is a direction of its own, known by both addresses and the number that it is for.
//! Two directions between the same addresses are one connection
//!
//! * of datagrams, if each names the other's sender;
//! * else, by the first answer in one (acknowledgement, data of a READ) whose number is that of a request
//!   of the other which waits for its answer. If several directions wait for that number, it is the one
//!   whose UDP source port is what Linux computes from the two queue pairs' numbers, in both directions;
//!   if that does not tell, either, the next answer is tried.
//!
//! Unreliable connections have no answers, and are not paired.

use super::packet::Seen;
use super::sequence::Place;
use super::stream::{Key, Stream};
use mkey_wire::opcode::{Opcode, Operation};
use mkey_wire::syndrome::{NakCode, Syndrome};
use mkey_wire::udp;
use std::collections::HashMap;
use std::net::IpAddr;

/// Directions that are followed at most; packets of others are only counted.
pub const MOST_STREAMS: usize = 4096;
/// Remote keys that are kept at most, of all directions together.
pub const MOST_KEYS: usize = 1 << 16;
/// After so many answers that did not tell the other direction, only every so many-th is tried.
const TRIES: u32 = 64;

/// The directions.
#[derive(Debug)]
pub struct Flows {
    streams: Vec<Stream>,
    by_key: HashMap<Key, usize>,
    by_hosts: HashMap<(IpAddr, IpAddr), Vec<usize>>,
    /// That of the packet before.
    last: Option<(Key, usize)>,
    keys_left: usize,
    /// Packets of directions that are not followed.
    pub not_followed: u64,
    /// Requests whose key was not kept.
    pub keys_not_kept: u64,
}

impl Default for Flows {
    fn default() -> Self {
        Self {
            streams: Vec::new(),
            by_key: HashMap::new(),
            by_hosts: HashMap::new(),
            last: None,
            keys_left: MOST_KEYS,
            not_followed: 0,
            keys_not_kept: 0,
        }
    }
}

impl Flows {
    /// The directions in the order of their first packets; [`Stream::peer`] is a place in it.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// A packet that its receiver drops, its ICRC being wrong: it is counted where its direction is
    /// known, and says nothing else. False if its other end has captured it, too.
    pub fn damaged(&mut self, seen: &Seen) -> bool {
        let found = self.by_key.get(&Key::of(seen)).copied();
        if let Some(stream) = found.and_then(|at| self.streams.get_mut(at)) {
            if stream.is_copy(seen) {
                return false;
            }
            stream.count(seen);
        }
        true
    }

    /// A packet. False if its other end has captured it, too: it is counted once.
    pub fn see(&mut self, seen: &Seen) -> bool {
        let Some(at) = self.find(seen) else {
            self.not_followed += 1;
            return true;
        };
        if let Some(stream) = self.streams.get_mut(at) {
            if stream.is_copy(seen) {
                return false;
            }
            stream.count(seen);
        }
        self.follow(at, seen);
        true
    }

    fn follow(&mut self, at: usize, seen: &Seen) {
        match seen.connected() {
            None => {
                if let Some(stream) = self.streams.get_mut(at) {
                    stream.first(seen);
                }
                if seen.source_qp.is_some() {
                    self.pair_datagrams(at);
                }
            }
            Some(operation) if operation.is_response() => self.response(at, seen, operation),
            Some(operation) => self.request(at, seen, operation),
        }
    }

    fn find(&mut self, seen: &Seen) -> Option<usize> {
        let key = Key::of(seen);
        if let Some((last, at)) = self.last
            && last == key
        {
            return Some(at);
        }
        let at = match self.by_key.get(&key) {
            Some(at) => *at,
            None if self.streams.len() >= MOST_STREAMS => return None,
            None => {
                let at = self.streams.len();
                self.streams.push(Stream::new(key, seen.source_port));
                self.by_key.insert(key, at);
                self.by_hosts.entry((key.source, key.destination)).or_default().push(at);
                at
            }
        };
        self.last = Some((key, at));
        Some(at)
    }

    fn peer(&mut self, at: usize) -> Option<&mut Stream> {
        let peer = self.streams.get(at)?.peer?;
        self.streams.get_mut(peer)
    }

    fn request(&mut self, at: usize, seen: &Seen, operation: Operation) {
        // The data of a READ comes the other way, in packets of the same path.
        let there = self.peer(at).map(|peer| peer.mtu());
        let Some(stream) = self.streams.get_mut(at) else { return };
        let here = stream.mtu();
        let mtu = there.map_or(here, |there| (here.0.max(there.0), here.1.min(there.1)));
        let mtu = (mtu.0.min(mtu.1), mtu.1);
        let place = stream.request(seen, operation, mtu);
        if place.is_first() && !stream.note_keys(seen, operation, &mut self.keys_left) {
            self.keys_not_kept += 1;
        }
        match place {
            Place::Restart => self.part(at),
            Place::Again | Place::Filled => {
                if let Some(peer) = self.peer(at) {
                    peer.asked_for_data();
                }
            }
            _ => {}
        }
    }

    fn response(&mut self, at: usize, seen: &Seen, operation: Operation) {
        self.pair_by_answer(at, seen);
        let peer = self.streams.get(at).and_then(|stream| stream.peer);
        let target = peer.and_then(|peer| self.streams.get(peer)?.target_of(seen.psn));
        let Some(stream) = self.streams.get_mut(at) else { return };
        let mut asks = false;
        match (operation, seen.syndrome) {
            (Operation::Acknowledge, Some(syndrome)) => {
                stream.acknowledgement(seen, syndrome, || target);
                asks = !matches!(syndrome, Syndrome::Ack(_));
            }
            // Cut behind its first header: what it says is not known.
            (Operation::Acknowledge, None) => return,
            _ => {
                let place = stream.response_data(seen, operation);
                asks |= matches!(place, Place::Gap(_));
            }
        }
        let Some(peer) = self.peer(at) else { return };
        match seen.syndrome {
            Some(Syndrome::Nak(NakCode::PsnSequence) | Syndrome::RnrNak(_)) => {}
            // The queue pair has failed: nothing else is answered any more.
            Some(Syndrome::Nak(_)) => peer.waiting.clear(),
            _ => {
                let data = operation != Operation::Acknowledge;
                peer.waiting.answered(seen.psn, data, seen.time);
            }
        }
        if asks {
            peer.asked_for_requests();
        }
    }

    /// Two directions of datagrams that name each other.
    fn pair_datagrams(&mut self, at: usize) {
        let Some(Stream { key, peer: None, .. }) = self.streams.get(at) else { return };
        let back = Key {
            source: key.destination,
            destination: key.source,
            dest_qp: key.source_qp.unwrap_or(key.dest_qp),
            source_qp: Some(key.dest_qp),
        };
        // Itself, where a queue pair sends to itself.
        if let Some(other) = self.by_key.get(&back).copied().filter(|other| *other != at) {
            self.join(at, other);
        }
    }

    fn pair_by_answer(&mut self, at: usize, seen: &Seen) {
        let Some(stream) = self.streams.get_mut(at) else { return };
        if stream.peer.is_some() {
            return;
        }
        stream.tries = stream.tries.saturating_add(1);
        if stream.tries > TRIES && !stream.tries.is_multiple_of(TRIES) {
            return;
        }
        let (key, port) = (stream.key, stream.source_port);
        let transport = |opcode: Opcode| matches!(opcode, Opcode::Xrc(_));
        let Some(others) = self.by_hosts.get(&(key.destination, key.source)) else { return };
        let waits = |other: &usize| {
            self.streams.get(*other).is_some_and(|stream| {
                stream.peer.is_none()
                    && *other != at
                    && stream.awaits(seen.psn)
                    && stream.extended() == transport(seen.opcode)
            })
        };
        let mut candidates = others.iter().copied().filter(waits);
        let (first, second) = (candidates.next(), candidates.next());
        let found = match (first, second) {
            (Some(only), None) => Some(only),
            (Some(first), Some(second)) => {
                let fits = |other: &usize| {
                    self.streams.get(*other).is_some_and(|other| {
                        let computed = udp::source_port(0, key.dest_qp, other.key.dest_qp);
                        port == Some(computed) && other.source_port == Some(computed)
                    })
                };
                let mut fitting = [first, second].into_iter().chain(candidates).filter(fits);
                fitting.next().filter(|_| fitting.next().is_none())
            }
            _ => None,
        };
        if let Some(other) = found {
            self.join(at, other);
        }
    }

    fn join(&mut self, one: usize, other: usize) {
        for (at, peer) in [(one, other), (other, one)] {
            if let Some(stream) = self.streams.get_mut(at) {
                stream.peer = Some(peer);
            }
        }
    }

    /// A new connection of the same number may be one with another queue pair.
    fn part(&mut self, at: usize) {
        let peer = self.streams.get_mut(at).and_then(|stream| stream.peer.take());
        if let Some(stream) = peer.and_then(|peer| self.streams.get_mut(peer)) {
            stream.peer = None;
            stream.tries = 0;
        }
    }
}
