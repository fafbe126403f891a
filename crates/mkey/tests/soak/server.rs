//! A server: owns blocks, sends them, opens them to its client for a while.

use crate::block::{Block, MOST, Opened};
use crate::foreign::{self, Busy, Mapping};
use crate::link::{End, Link};
use crate::numbers::{Random, Serials};
use crate::session::Session;
use crate::watch::Seen;
use crate::world::World;
use mkey::{
    Access, Completion, Ended, Ending, FastMapping, Grant, PeerAccess, PoolError, Recv, RemoteKey,
    Slice, WcStatus, Work,
};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The longest message.
pub const MESSAGE: usize = 2048;
/// Bytes of the message that carries a key.
pub const KEY_MESSAGE: usize = RemoteKey::BYTES + 8 + 1;
/// What the client may do, and whether it is to end the grant.
pub const READS: u8 = 1;
pub const WRITES: u8 = 2;
pub const ENDS: u8 = 4;

const OWNED: usize = 16;
const LIVE: usize = 8;

enum Handle {
    Grant(Grant),
    Mapping(FastMapping),
    Ending(Ending),
}

/// What is open to the client.
struct Live {
    handle: Handle,
    key: u32,
    serial: u64,
    blocks: Vec<(Block, Opened)>,
    /// The client is to end it.
    asked: bool,
    since: Instant,
    patience: Duration,
}

struct Server<'a> {
    session: Session<'a>,
    random: Random,
    serials: Serials,
    owned: Vec<Block>,
    live: Vec<Live>,
    landing: HashMap<u64, Slice>,
    mappings: Vec<Mapping>,
}

pub fn run(world: &World, link: &Link, at: u64, seen: &Seen) {
    let session = Session::new(world, link, End::Server, &world.pd, seen);
    let mut server = Server {
        session,
        random: Random::new(world.seed, 2 * at),
        serials: Serials::new(2 * at),
        owned: Vec::new(),
        live: Vec::new(),
        landing: HashMap::new(),
        mappings: vec![Mapping::new(), Mapping::new()],
    };
    while !world.stopped() {
        match server.session.meet(&mut server.random) {
            Ok(again) => {
                if again {
                    server.reconnected();
                }
            }
            Err(_) => break,
        }
        server.step();
    }
    seen.step("leaving");
    server.leave();
    seen.step("done");
}

impl Server<'_> {
    fn world(&self) -> &World {
        self.session.world
    }

    /// Work of the past has ended.
    fn reconnected(&mut self) {
        self.landing.clear();
        for mapping in &mut self.mappings {
            if let Some(Busy::Posted(_)) = mapping.busy {
                mapping.busy = None;
            }
        }
    }

    fn step(&mut self) {
        let (choice, doing): (fn(&mut Self), _) = match self.random.below(100) {
            0..18 => (Self::alloc, "taking a block"),
            18..30 => (Self::check, "checking a block"),
            30..44 => (Self::grant, "granting"),
            44..50 => (Self::map, "mapping"),
            50..58 => (Self::revoke, "revoking"),
            58..61 => (Self::drop_live, "dropping a grant"),
            61..66 => (Self::send, "sending a block"),
            66..70 => (Self::foreign, "using foreign memory"),
            70..71 => (Self::wait, "waiting for an end"),
            71..76 => (Self::receive, "posting receives"),
            76..77 => (Self::rarely, "breaking something"),
            _ => (Self::poll, "polling"),
        };
        self.session.watched.step(doing);
        choice(self);
        self.session.watched.step("looking at ends");
        self.look();
    }

    /// A block, filled.
    fn block(&mut self) -> Option<Block> {
        let words = match self.random.below(4) {
            0 => 32,
            1 => 32 + self.random.below(MOST / 8 - 32 + 1),
            _ => 32 + self.random.below(224),
        };
        let world = self.session.world;
        let allocated = if self.random.one_in(50) {
            world.counts.blocks_waited.add();
            world.pool.alloc_within(words * 8, Duration::from_millis(2))
        } else {
            world.pool.alloc(words * 8)
        };
        match allocated {
            Ok(slice) => {
                world.counts.blocks.add();
                let block = Block::new(slice, self.serials.next(), None);
                block.map_err(|what| world.fail(what)).ok()
            }
            Err(PoolError::Full(_) | PoolError::TimedOut { .. } | PoolError::Source { .. }) => {
                world.counts.blocks_none.add();
                self.owned.truncate(OWNED / 4);
                None
            }
            Err(error) => {
                world.fail(format!("the pool: {error}"));
                None
            }
        }
    }

    fn alloc(&mut self) {
        if self.owned.len() < OWNED
            && let Some(block) = self.block()
        {
            self.owned.push(block);
        }
    }

    fn check(&mut self) {
        let Some(mut block) = self.random.take(&mut self.owned) else { return };
        self.world().counts.blocks_checked.add();
        self.world().check(block.check());
        if self.random.one_in(2) {
            let serial = self.serials.next();
            self.world().check(block.fill(serial));
            self.owned.push(block);
        }
    }

    fn grant(&mut self) {
        if self.live.len() >= LIVE {
            return;
        }
        let block = match self.random.one_in(8) {
            true => self.cached(),
            false => self.random.take(&mut self.owned),
        };
        let Some(block) = block else { return };
        let (access, rights) = match self.random.below(4) {
            0 => (PeerAccess::READ, READS),
            1 => (PeerAccess::WRITE, WRITES),
            _ => (PeerAccess::READ | PeerAccess::WRITE, READS | WRITES),
        };
        let Some(qp) = self.session.qp().cloned() else { return };
        let world = self.session.world;
        let opened =
            Opened { serial: self.serials.next(), first: 0, writable: rights & WRITES != 0 };
        world.check(block.open(opened));
        let prepared = block.inner().and_then(|inner| match self.random.one_in(50) {
            true => inner.prepare_grant_within(&qp, access, Duration::from_millis(2)),
            false => inner.prepare_grant(&qp, access),
        });
        let Ok(grant) = prepared else {
            world.counts.not_prepared.add();
            return self.keep(block);
        };
        if self.random.one_in(12) {
            world.counts.prepared_dropped.add();
            drop(grant);
            return self.keep(block);
        }
        if block.mapping.is_some() {
            world.counts.granted_of_cache.add();
        }
        let remote = grant.remote_key();
        let sent = self.tell(remote, opened.serial, rights, &[grant.bind()]);
        match sent {
            Some(asked) => {
                world.counts.granted.add();
                match self.random.below(1000) {
                    0..2 => self.session.fail(),
                    2..4 => self.session.broken(),
                    _ => {}
                }
                self.opened(Handle::Grant(grant), remote, vec![(block, opened)], asked);
            }
            None => {
                // Posting stopped before the bind.
                drop(grant);
                self.keep(block);
            }
        }
    }

    fn map(&mut self) {
        if self.live.len() >= LIVE {
            return;
        }
        let many = 1 + self.random.below(4);
        let mut blocks = Vec::new();
        let serial = self.serials.next();
        let rights = if self.random.one_in(3) { READS } else { READS | WRITES };
        let access = match rights & WRITES {
            0 => Access::local_read().remote_read(),
            _ => Access::local().remote_read().remote_write(),
        };
        let mut first = 0;
        while blocks.len() < many
            && let Some(block) = self.random.take(&mut self.owned)
        {
            let opened = Opened { serial, first, writable: rights & WRITES != 0 };
            self.world().check(block.open(opened));
            first += block.words();
            blocks.push((block, opened));
        }
        let Some(qp) = self.session.qp().cloned() else { return };
        let world = self.session.world;
        let inner: Result<Vec<_>, _> = blocks.iter().map(|(block, _)| block.inner()).collect();
        let mapping = inner.and_then(|inner| world.fast.prepare(&qp, &inner, access));
        let Ok(mapping) = mapping else {
            world.counts.not_prepared.add();
            return self.keep_all(blocks);
        };
        let remote = mapping.remote_key().expect("exposed");
        // By the key of the mapping, as one entry.
        let whole = self.random.one_in(3).then(|| mapping.slice());
        let part = whole.and_then(|whole| whole.part(..whole.len().min(MESSAGE)).ok());
        let part: Vec<_> = part.into_iter().collect();
        if !part.is_empty() {
            world.counts.sent_mapped.add();
        }
        let mut opens = vec![mapping.register()];
        if !part.is_empty() {
            opens.push(Work::send(&part).unsignaled());
        }
        let sent = self.tell(remote, serial, rights, &opens);
        drop(opens);
        drop(part);
        match sent {
            Some(asked) => {
                world.counts.mapped.add();
                self.opened(Handle::Mapping(mapping), remote, blocks, asked);
            }
            None => {
                drop(mapping);
                self.keep_all(blocks);
            }
        }
    }

    /// Posts what opens memory, and the message that says so. Whether the client is to end it;
    /// `None` if nothing was opened.
    fn tell(
        &mut self,
        remote: RemoteKey,
        serial: u64,
        rights: u8,
        opens: &[Work<'_>],
    ) -> Option<bool> {
        let world = self.session.world;
        let key = remote.key.0.0;
        world.check(world.ledger.given(key, serial));
        let asked = self.random.one_in(3);
        let mut message = remote.to_bytes().to_vec();
        message.extend(serial.to_be_bytes());
        message.push(rights | if asked { ENDS } else { 0 });
        let id = self.session.id();
        let message = Work::send_inline(&message).id(id);
        // In one post, or one after the other.
        let posted = if self.random.one_in(2) {
            self.session.post(&[opens, &[message]].concat(), &[id])
        } else {
            let posted = self.session.post(opens, &[]);
            if posted.is_ok() {
                // If not, the client never hears of it.
                let _ = self.session.post(&[message], &[id]);
            }
            posted
        };
        if posted.is_err_and(|error| error.posted == 0) {
            world.ledger.forget(key, serial);
            return None;
        }
        Some(asked)
    }

    fn opened(
        &mut self,
        handle: Handle,
        remote: RemoteKey,
        blocks: Vec<(Block, Opened)>,
        asked: bool,
    ) {
        let serial = blocks.first().map_or(0, |(_, opened)| opened.serial);
        let patience = Duration::from_micros(100 << self.random.below(8));
        let (key, since) = (remote.key.0.0, Instant::now());
        self.live.push(Live { handle, key, serial, blocks, asked, since, patience });
    }

    /// Ends one, in the way that is right for it.
    fn revoke(&mut self) {
        if let Some(live) = self.random.take(&mut self.live) {
            let live = self.ending(live);
            self.live.push(live);
        }
    }

    fn ending(&mut self, live: Live) -> Live {
        // Both at a time is an error of the queue pair, which is met with now and then.
        let by_peer = live.asked && !self.random.one_in(40);
        let handle = match live.handle {
            Handle::Grant(grant) if by_peer => Handle::Ending(grant.await_peer()),
            Handle::Grant(grant) => Handle::Ending(grant.revoke()),
            Handle::Mapping(mapping) if by_peer => Handle::Ending(mapping.await_peer()),
            Handle::Mapping(mapping) => match mapping.release() {
                Ok(ending) => Handle::Ending(ending),
                // A message of it is on its way.
                Err((mapping, _)) => Handle::Mapping(mapping),
            },
            ending => ending,
        };
        Live { handle, ..live }
    }

    /// Drops one in flight, with its blocks, which go back to the pool by themselves.
    fn drop_live(&mut self) {
        let Some(live) = self.random.take(&mut self.live) else { return };
        // Not while the client is likely to use it, unless now and then.
        if live.since.elapsed() < live.patience / 2 && !self.random.one_in(10)
            || live.blocks.iter().any(|(block, _)| block.mapping.is_some())
        {
            return self.live.push(live);
        }
        let Live { handle, key, serial, blocks, .. } = live;
        self.world().counts.dropped_live.add();
        self.world().ledger.forget(key, serial);
        if self.random.one_in(2) {
            drop(blocks);
            drop(handle);
        } else {
            drop(handle);
            drop(blocks);
        }
    }

    /// Waits for the end of one.
    fn wait(&mut self) {
        let Some(live) = self.random.take(&mut self.live) else { return };
        let Live { handle, key, serial, blocks, asked, since, patience } = self.ending(live);
        let Handle::Ending(ending) = handle else {
            return self.live.push(Live { handle, key, serial, blocks, asked, since, patience });
        };
        let timeout = Duration::from_millis(self.random.below(10) as u64);
        let mut others = Vec::new();
        let cq = self.session.cq().clone();
        let ended = ending.wait_polling(&cq, timeout, |other| others.push(other));
        for other in others {
            self.session.seen(&other);
            self.completed(other);
        }
        self.closed(key, serial, blocks, ended);
    }

    /// What has ended, and what takes too long.
    fn look(&mut self) {
        let mut at = 0;
        while let Some(live) = self.live.get(at) {
            let ended = match &live.handle {
                Handle::Grant(grant) => grant.ended(),
                Handle::Mapping(mapping) => mapping.ended(),
                Handle::Ending(ending) => ending.ended(),
            };
            let late = live.since.elapsed() > live.patience;
            match (ended, late) {
                (Ok(None), false) => at += 1,
                (Ok(None), true) => {
                    let live = self.live.swap_remove(at);
                    let live = match live.handle {
                        Handle::Ending(ending) => {
                            self.world().counts.abandoned.add();
                            let ended = ending.abandon();
                            self.closed(live.key, live.serial, live.blocks, ended);
                            continue;
                        }
                        _ => self.ending(live),
                    };
                    self.live.push(Live { since: Instant::now(), ..live });
                    at += 1;
                }
                (ended, _) => {
                    let Live { key, serial, blocks, .. } = self.live.swap_remove(at);
                    self.closed(key, serial, blocks, ended.map(|how| how.unwrap_or(Ended::Unused)));
                }
            }
        }
    }

    /// The end was reported: nobody but this server has the blocks.
    fn closed(
        &mut self,
        key: u32,
        serial: u64,
        blocks: Vec<(Block, Opened)>,
        ended: mkey::Result<Ended>,
    ) {
        let world = self.session.world;
        match ended {
            Ok(Ended::Revoked) => world.counts.revoked.add(),
            Ok(Ended::ByPeer) => world.counts.by_peer.add(),
            Ok(Ended::Dropped { .. }) => world.counts.lost.add(),
            other => world.fail(format!("a grant that was posted ended with {other:?}")),
        }
        world.ledger.over(key, serial);
        for (block, opened) in &blocks {
            world.check(block.check_opened(*opened));
        }
        self.keep_all(blocks);
    }

    fn keep_all(&mut self, blocks: Vec<(Block, Opened)>) {
        blocks.into_iter().for_each(|(block, _)| self.keep(block));
    }

    /// Takes a block that was to be granted, or was, back.
    fn keep(&mut self, mut block: Block) {
        if let Some(mapping) = block.mapping {
            drop(block);
            if let Some(mapping) = self.mappings.get_mut(mapping) {
                mapping.busy = None;
            }
            return;
        }
        let world = self.session.world;
        world.check(block.fill(self.serials.next()));
        if self.random.one_in(4) {
            // Nothing else holds it.
            match block.slice.into_local() {
                Ok(local) => block.slice = local.into_slice(),
                Err((_, error)) => return world.fail(format!("after its grant: {error}")),
            }
        }
        self.owned.push(block);
    }

    /// A block in foreign memory.
    fn cached(&mut self) -> Option<Block> {
        let at = self.free_mapping()?;
        let len = (32 + self.random.below(224)) * 8;
        let access = Access::local().windows();
        let slice = self.get(at, len, access)?;
        let block = Block::new(slice, self.serials.next(), Some(at));
        self.mappings[at].busy = Some(Busy::Granted);
        block.map_err(|what| self.world().fail(what)).ok()
    }

    fn free_mapping(&mut self) -> Option<usize> {
        let at = self.random.below(self.mappings.len());
        let mapping = &mut self.mappings[at];
        if mapping.busy.is_some() {
            return None;
        }
        if self.random.one_in(2) {
            self.session.world.counts.remapped.add();
            mapping.remap(&self.session.world.cache, &mut self.random);
        }
        Some(at)
    }

    fn get(&mut self, at: usize, len: usize, access: Access) -> Option<Slice> {
        let offset = self.random.below((foreign::LEN - len) / 8 + 1) * 8;
        let start = self.mappings[at].start().wrapping_add(offset);
        // SAFETY: the mapping is not touched while it is busy: until the work or the grant that
        // uses the slice has ended. No reference to its bytes is ever made.
        match unsafe { self.world().cache.get(start, len, access) } {
            Ok(cached) => Some(cached.into_slice()),
            Err(_) => {
                self.world().counts.cache_refused.add();
                None
            }
        }
    }

    /// Sends a block that is not kept.
    fn send(&mut self) {
        let Some(mut block) = self.random.take(&mut self.owned) else { return };
        self.world().check(block.check());
        let serial = self.serials.next();
        self.world().check(block.fill(serial));
        let len = block.slice.len().min(MESSAGE);
        let Ok(part) = block.slice.part(..len) else { return };
        drop(block);
        let id = self.session.id();
        let parts = [part];
        let work = Work::send(&parts).id(id);
        let posted = match self.random.one_in(3) {
            true => self.session.post(&[work.unsignaled()], &[]),
            false => self.session.post(&[work], &[id]),
        };
        if posted.is_ok() {
            self.world().counts.sent_dropped.add();
        }
    }

    /// Sends foreign memory, registered by the cache.
    fn foreign(&mut self) {
        let Some(at) = self.free_mapping() else { return };
        let words = 32 + self.random.below(MESSAGE / 8 - 32 + 1);
        let Some(slice) = self.get(at, words * 8, Access::local()) else { return };
        let offset = slice.as_ptr().addr() - self.mappings[at].start().addr();
        self.mappings[at].fill(offset, words, self.serials.next());
        let id = self.session.id();
        if self.session.post(&[Work::send(&[slice]).id(id)], &[id]).is_ok() {
            self.world().counts.sent_foreign.add();
            self.mappings[at].busy = Some(Busy::Posted(id));
        }
    }

    fn receive(&mut self) {
        while self.landing.len() < 6 {
            let Ok(slice) = self.world().pool.alloc(8) else { return };
            let id = self.session.id();
            if !self.session.post_recv(&[Recv::new(std::slice::from_ref(&slice)).id(id)]) {
                return;
            }
            self.landing.insert(id, slice);
        }
    }

    fn rarely(&mut self) {
        match self.random.below(1000) {
            0..20 => self.world().cache.flush(),
            20..200 => self.world().cache.maintain(),
            200..400 => drop(self.world().pool.trim()),
            _ => {}
        }
    }

    fn poll(&mut self) {
        for done in self.session.poll() {
            self.completed(done);
        }
        self.session.look();
    }

    fn completed(&mut self, done: Completion) {
        for mapping in &mut self.mappings {
            if mapping.busy == Some(Busy::Posted(done.wr_id)) {
                mapping.busy = None;
            }
        }
        let Some(slice) = self.landing.remove(&done.wr_id) else { return };
        if done.status != WcStatus::Success {
            return;
        }
        let mut serial = [0; 8];
        self.world().check(slice.read(0, &mut serial).map_err(|error| error.to_string()));
        let serial = u64::from_ne_bytes(serial);
        let place = self.live.iter().position(|live| live.serial == serial);
        if let Some(place) = place {
            // The client is done with it.
            let live = self.live.swap_remove(place);
            let live = self.ending(live);
            self.live.push(live);
        }
    }

    fn leave(mut self) {
        // What was posted has ended by that.
        self.session.close();
        self.reconnected();
        for live in std::mem::take(&mut self.live) {
            let live = self.ending(live);
            if let Handle::Ending(ending) = live.handle {
                let ended = ending.abandon();
                self.closed(live.key, live.serial, live.blocks, ended);
            } else {
                self.world().fail("a mapping is used although its queue pair is gone".to_owned());
            }
        }
    }
}
