//! A client: uses what it was granted, and what it was granted once.

use crate::block::Block;
use crate::link::{End, Link};
use crate::numbers::{Random, Serials, filled, misfit, owners, peers};
use crate::server::{ENDS, KEY_MESSAGE, MESSAGE, READS, WRITES};
use crate::session::Session;
use crate::watch::Seen;
use crate::world::World;
use mkey::{Completion, IoAddr, Recv, RemoteKey, Slice, WcStatus, Work};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const OWNED: usize = 8;
const RECEIVES: usize = 10;
/// Keys that it is done with and keeps all the same.
const OLD: usize = 32;
/// Words of one WRITE or READ at most.
const WORDS: usize = 256;

/// A key that it was given.
#[derive(Clone, Copy)]
struct Known {
    remote: RemoteKey,
    serial: u64,
    rights: u8,
}

/// Posted work. `over`: the end of the key had been reported before.
enum Op {
    Write {
        known: Known,
        over: bool,
    },
    Read {
        known: Known,
        over: bool,
        into: Option<Slice>,
        first: usize,
    },
    /// Beyond the range or the rights of its key.
    Wrong,
}

struct Client<'a> {
    session: Session<'a>,
    at: u64,
    random: Random,
    serials: Serials,
    owned: Vec<Block>,
    keys: Vec<Known>,
    old: Vec<Known>,
    landing: HashMap<u64, Slice>,
    ops: HashMap<u64, Op>,
    slow_until: Option<Instant>,
    /// The serial of the latest message: they rise.
    latest: u64,
}

pub fn run(world: &World, link: &Link, at: u64, watched: &Seen) {
    let session = Session::new(world, link, End::Client, &world.client_pd, watched);
    let mut client = Client {
        session,
        at,
        random: Random::new(world.seed, 2 * at + 1),
        serials: Serials::new(2 * at + 1),
        owned: Vec::new(),
        keys: Vec::new(),
        old: Vec::new(),
        landing: HashMap::new(),
        ops: HashMap::new(),
        slow_until: None,
        latest: 0,
    };
    while !world.stopped() {
        match client.session.meet(&mut client.random) {
            Ok(true) => {
                client.reconnected();
            }
            Ok(false) => {}
            Err(_) => break,
        }
        client.step();
    }
    watched.step("leaving");
    client.session.close();
    drop(client);
    watched.step("done");
}

impl Client<'_> {
    fn world(&self) -> &World {
        self.session.world
    }

    /// Work of the past has ended; so have most grants, but not all.
    fn reconnected(&mut self) {
        self.landing.clear();
        self.ops.clear();
        for known in std::mem::take(&mut self.keys) {
            match self.random.one_in(16) {
                true => self.keys.push(known),
                false => self.old(known),
            }
        }
    }

    /// Keeps a key that it should not use any more.
    fn old(&mut self, known: Known) {
        if self.old.len() >= OLD {
            self.random.take(&mut self.old);
        }
        self.old.push(known);
    }

    fn step(&mut self) {
        let (choice, doing): (fn(&mut Self), _) = match self.random.below(1000) {
            0..100 => (Self::block, "taking or checking a block"),
            100..400 => (Self::use_key, "using a key"),
            400..430 => (Self::done, "being done with a key"),
            430..500 => (Self::receive, "posting receives"),
            _ => (Self::poll, "polling"),
        };
        self.session.watched.step(doing);
        choice(self);
    }

    fn block(&mut self) {
        let world = self.session.world;
        if self.owned.len() >= OWNED || self.random.one_in(2) {
            let Some(block) = self.random.take(&mut self.owned) else { return };
            world.counts.blocks_checked.add();
            return world.check(block.check());
        }
        match world.client_pool.alloc((1 + self.random.below(256)) * 8) {
            Ok(slice) => {
                world.counts.blocks.add();
                match Block::new(slice, self.serials.next(), None) {
                    Ok(block) => self.owned.push(block),
                    Err(what) => world.fail(what),
                }
            }
            Err(_) => {
                world.counts.blocks_none.add();
                self.owned.truncate(1);
            }
        }
    }

    fn use_key(&mut self) {
        let Some(known) = self.random.take(&mut self.keys) else { return };
        // Most clients know when they should stop: work that is refused ends the connection.
        let over = self.world().ledger.is_over(known.remote.key.0.0, known.serial);
        if over && !self.random.one_in(100) {
            return self.old(known);
        }
        self.keys.push(known);
        self.access(known);
    }

    fn use_late(&mut self) {
        if !self.old.is_empty() {
            let known = self.old[self.random.below(self.old.len())];
            self.access(known);
        }
    }

    fn access(&mut self, known: Known) {
        let Known { remote, serial, rights } = known;
        let world = self.session.world;
        let all = remote.length as usize / 8;
        let words = 1 + self.random.below(all.min(WORDS));
        let first = self.random.below(all - words + 1);
        let Ok(part) = remote.part(first as u64 * 8, words as u64 * 8) else {
            return world.fail(format!("a key of {all} words has no {words} at {first}"));
        };
        let Ok(slice) = world.client_pool.alloc(words * 8) else { return };
        let writes = rights & WRITES != 0 && (rights & READS == 0 || self.random.one_in(2));
        let id = self.session.id();
        let over = world.ledger.is_over(remote.key.0.0, serial);
        if over {
            world.counts.used_late.add();
        }
        if writes {
            world.counts.writes.add();
            let bytes = filled(first, words, |index| peers(serial, index));
            world.check(slice.write(0, &bytes).map_err(|error| error.to_string()));
            // The block is not kept: the work does that.
            if self.session.post(&[Work::write(&[slice], part).id(id)], &[id]).is_ok() {
                self.ops.insert(id, Op::Write { known, over });
            }
            return;
        }
        let into = match self.random.one_in(3) {
            true => {
                world.counts.reads_dropped.add();
                None
            }
            false => Some(slice.clone()),
        };
        if self.session.post(&[Work::read(&[slice], part).id(id)], &[id]).is_ok() {
            self.ops.insert(id, Op::Read { known, over, into, first });
        }
    }

    /// What its key does not allow.
    fn use_wrong(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        let Known { remote, rights, .. } = self.keys[self.random.below(self.keys.len())];
        let start = remote.address.0;
        let (address, write) = match self.random.below(3) {
            0 if rights & WRITES == 0 => (start, true),
            0 if rights & READS == 0 => (start, false),
            1 => (start.wrapping_sub(4), self.random.one_in(2)),
            _ => (start + remote.length - 4, self.random.one_in(2)),
        };
        let remote = RemoteKey { address: IoAddr(address), length: 8, ..remote };
        let Ok(slice) = self.world().client_pool.alloc(8) else { return };
        let id = self.session.id();
        let slices = [slice];
        let work = match write {
            true => Work::write(&slices, remote),
            false => Work::read(&slices, remote),
        };
        if self.session.post(&[work.id(id)], &[id]).is_ok() {
            self.world().counts.used_wrong.add();
            self.ops.insert(id, Op::Wrong);
        }
    }

    /// Is done with a key, and may say so; the key is kept.
    fn done(&mut self) {
        let Some(known) = self.random.take(&mut self.keys) else { return };
        let world = self.session.world;
        self.old(known);
        if self.random.one_in(6) {
            return world.counts.silent.add();
        }
        world.counts.done.add();
        let serial = known.serial.to_ne_bytes();
        let id = self.session.id();
        let mut work = Work::send_inline(&serial).id(id);
        if known.rights & ENDS != 0 {
            world.counts.invalidated.add();
            work = work.invalidating(known.remote.key);
        }
        // If that fails, the server loses its patience.
        let _ = self.session.post(&[work], &[id]);
    }

    fn receive(&mut self) {
        if self.slow_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.slow_until = None;
        while self.landing.len() < RECEIVES {
            let Ok(slice) = self.world().client_pool.alloc(MESSAGE) else { return };
            let id = self.session.id();
            if !self.session.post_recv(&[Recv::new(std::slice::from_ref(&slice)).id(id)]) {
                return;
            }
            if self.random.one_in(30) {
                // What lands there nobody sees; but nobody else's memory is hit.
                return self.world().counts.received_dropped.add();
            }
            self.landing.insert(id, slice);
        }
    }

    /// A slow consumer: the server's messages wait, and all that it posts behind them.
    fn slow(&mut self) {
        self.world().counts.slow.add();
        let millis = 1 + self.random.below(20) as u64;
        self.slow_until = Some(Instant::now() + Duration::from_millis(millis));
    }

    fn poll(&mut self) {
        for done in self.session.poll() {
            if let Some(slice) = self.landing.remove(&done.wr_id) {
                self.received(done, &slice);
            } else if let Some(op) = self.ops.remove(&done.wr_id) {
                self.completed(done, op);
            }
        }
        self.session.look();
    }

    fn received(&mut self, done: Completion, slice: &Slice) {
        if done.status != WcStatus::Success {
            return;
        }
        let world = self.session.world;
        let mut bytes = vec![0; done.byte_len as usize];
        if let Err(error) = slice.read(0, &mut bytes) {
            return world.fail(format!("reading a message: {error}"));
        }
        if let Ok(message) = <&[u8; KEY_MESSAGE]>::try_from(&bytes[..]) {
            return self.key(message);
        }
        let serial = bytes.first_chunk().map_or(0, |first| u64::from_ne_bytes(*first));
        let wrong = misfit(&bytes, |index, word| word == owners(serial, index));
        if let Some(wrong) = wrong {
            return world.fail(format!("a message is not what was sent as {serial:#x}: {wrong}"));
        }
        if serial >> 48 != 2 * self.at + 1 || serial <= self.latest {
            let latest = self.latest;
            return world.fail(format!("message {serial:#x} came after message {latest:#x}"));
        }
        self.latest = serial;
        world.counts.received.add();
    }

    fn key(&mut self, message: &[u8; KEY_MESSAGE]) {
        let (Some(remote), Some(serial)) =
            (message.first_chunk(), message[RemoteKey::BYTES..].first_chunk())
        else {
            return;
        };
        let remote = RemoteKey::from_bytes(remote);
        let (serial, rights) = (u64::from_be_bytes(*serial), message[KEY_MESSAGE - 1]);
        if self.keys.len() >= 16 {
            // It never says so.
            self.random.take(&mut self.keys);
        }
        self.keys.push(Known { remote, serial, rights });
        // What mostly ends the connection, once in so many grants.
        match self.random.below(1000) {
            0..30 => self.use_late(),
            30..40 => self.use_wrong(),
            40..50 => self.slow(),
            50..53 => self.session.fail(),
            _ => {}
        }
    }

    fn completed(&mut self, done: Completion, op: Op) {
        let world = self.session.world;
        let refused = done.status == WcStatus::RemAccessErr;
        let (known, over) = match op {
            Op::Wrong if done.status == WcStatus::Success => {
                return world
                    .fail("work beyond the range or rights of its key was done".to_owned());
            }
            Op::Wrong if refused => return world.counts.refused_wrong.add(),
            Op::Wrong => return,
            Op::Write { known, over } | Op::Read { known, over, .. } => (known, over),
        };
        if done.status != WcStatus::Success {
            if refused {
                // It is of no use any more.
                self.keys.retain(|other| other.serial != known.serial);
            }
            if refused && over {
                world.counts.refused_late.add();
            }
            return;
        }
        if over && world.ledger.is_over(known.remote.key.0.0, known.serial) {
            let Known { remote, serial, .. } = known;
            return world.fail(format!(
                "the key of {serial:#x} was reported to have ended, and opened {remote:?} after that"
            ));
        }
        let Op::Read { into: Some(into), first, .. } = op else { return };
        let writable = known.rights & WRITES != 0;
        let wrong = into.to_vec().map_err(|error| error.to_string()).map(|bytes| {
            misfit(&bytes, |index, word| {
                let index = first + index;
                word == owners(known.serial, index)
                    || writable && word == peers(known.serial, index)
            })
        });
        match wrong {
            Ok(None) => world.counts.reads.add(),
            Ok(Some(wrong)) => {
                let serial = known.serial;
                world.fail(format!("a READ of what {serial:#x} opened found other bytes: {wrong}"));
            }
            Err(error) => world.fail(error),
        }
    }
}
