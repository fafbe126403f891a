//! Pool, cache, grants and fast mappings used together, against a naive model, with failures
//! injected.
//!
//! The model knows what each block holds, whom it was opened to, and which memory is out. It does
//! not know when the device gets round to things: what has not ended may be open or not, but its
//! memory is nobody else's; what has ended is shut. Each end, each access of the peer and each
//! allocation is held against that, and from time to time, when nothing is on its way, all counts.

use mkey::testing::{Call, Faults, LeakCheck, Pair, When};
use mkey::{
    Access, Cache, CacheError, Ended, Ending, FastMapping, FastMrPool, Grant, GrantOptions, Grants,
    Mr, PageKind, PeerAccess, Pool, PoolError, PoolOptions, QpState, Reason, Recv, Region,
    RemoteKey, Slice, Stale, WcOpcode, WcStatus, Work,
};
use proptest::prelude::*;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ops::Range;
use std::time::Duration;

const PAGE: usize = 4096;
const PAGES: usize = 6;
const GRAIN: usize = 256;
const SLAB: usize = 8 * PAGE;
const CEILING: usize = 3 * SLAB;
const MOST_GRANTS: u32 = 4;
const MOST_MAPPINGS: u32 = 3;

#[derive(Clone, Debug)]
enum Op {
    Alloc {
        len: usize,
    },
    /// A registration of foreign pages, from the cache.
    Get {
        page: usize,
        pages: usize,
    },
    Free {
        block: usize,
    },
    Grant {
        block: usize,
        writable: bool,
        posted: bool,
    },
    Map {
        blocks: usize,
        writable: bool,
    },
    Revoke {
        live: usize,
    },
    PeerEnds {
        live: usize,
    },
    Abandon {
        live: usize,
    },
    Drop {
        live: usize,
    },
    Probe {
        live: usize,
        write: bool,
    },
    /// Other pages at the same place.
    Remap {
        page: usize,
        pages: usize,
    },
    Stall,
    Unstall,
    Fail,
    Quiesce,
    Trim,
    Fault {
        kind: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let (block, live) = (0..16usize, 0..8usize);
    let pages = || (0..PAGES, 1..3usize);
    prop_oneof![
        8 => (1..3 * PAGE).prop_map(|len| Op::Alloc { len }),
        3 => pages().prop_map(|(page, pages)| Op::Get { page, pages }),
        3 => block.clone().prop_map(|block| Op::Free { block }),
        8 => (block, any::<bool>(), prop::bool::weighted(0.9))
            .prop_map(|(block, writable, posted)| Op::Grant { block, writable, posted }),
        4 => (1..4usize, any::<bool>()).prop_map(|(blocks, writable)| Op::Map { blocks, writable }),
        4 => live.clone().prop_map(|live| Op::Revoke { live }),
        3 => live.clone().prop_map(|live| Op::PeerEnds { live }),
        1 => live.clone().prop_map(|live| Op::Abandon { live }),
        2 => live.clone().prop_map(|live| Op::Drop { live }),
        6 => (live, any::<bool>()).prop_map(|(live, write)| Op::Probe { live, write }),
        3 => pages().prop_map(|(page, pages)| Op::Remap { page, pages }),
        1 => Just(Op::Stall),
        1 => Just(Op::Unstall),
        1 => Just(Op::Fail),
        2 => Just(Op::Quiesce),
        1 => Just(Op::Trim),
        3 => (0..FAULTS).prop_map(|kind| Op::Fault { kind }),
    ]
}

const FAULTS: usize = 9;

/// The next of its kind goes wrong.
fn inject(faults: &Faults, kind: usize) {
    let no_memory = Reason::System { call: "ioctl", errno: 12 };
    let next = When::Nth(1);
    match kind {
        0 => faults.refuse(Call::RegMr, no_memory, next),
        1 => faults.refuse(Call::AllocMw, no_memory, next),
        2 => faults.refuse(Call::AllocFastMr, no_memory, next),
        3 => faults.refuse(Call::PostSend, no_memory, next),
        4 => faults.fail(WcOpcode::BindMw, next),
        5 => faults.fail(WcOpcode::RegMr, next),
        6 => faults.fail(WcOpcode::LocalInv, next),
        7 => faults.lose(WcOpcode::LocalInv, next),
        _ => faults.delay(WcOpcode::LocalInv, Duration::from_millis(5), next),
    };
}

/// Memory of the test's own.
struct Foreign(*mut c_void);

impl Foreign {
    const PROT: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

    fn new() -> Self {
        let (len, at) = (PAGES * PAGE, std::ptr::null_mut());
        // SAFETY: at a place of the kernel's choice.
        let at = unsafe { mmap_anonymous(at, len, Self::PROT, MapFlags::PRIVATE) };
        Self(at.expect("memory"))
    }

    fn page(&self, page: usize) -> *mut u8 {
        self.0.cast::<u8>().wrapping_add(page * PAGE)
    }

    /// Other pages, zeroed, in the place of these, which nothing uses.
    fn remap(&self, pages: Range<usize>) {
        let (at, flags) = (self.page(pages.start).cast(), MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: pages of this mapping, which nothing uses.
        unsafe { mmap_anonymous(at, pages.len() * PAGE, Self::PROT, flags) }.expect("memory");
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and its registrations are gone.
        unsafe { munmap(self.0, PAGES * PAGE) }.expect("unmapped");
    }
}

/// Memory that is out, and what it holds.
struct Block {
    slice: Slice,
    bytes: Vec<u8>,
    foreign: Option<Range<usize>>,
}

impl Block {
    fn range(&self) -> Range<usize> {
        let start = self.slice.as_ptr().addr();
        start..start + self.slice.len()
    }

    fn check(&self) {
        assert!(self.slice.to_vec().expect("read") == self.bytes, "{:?} has changed", self.slice);
    }
}

enum Handle {
    Grant(Grant),
    Mapping(FastMapping),
    Ending(Ending),
}

struct Live {
    handle: Handle,
    of_grant: bool,
    key: RemoteKey,
    writable: bool,
    blocks: Vec<Block>,
    /// It is known to be open: as of this connection.
    open: Option<u32>,
}

struct World {
    pair: Pair,
    faults: Faults,
    leaks: LeakCheck,
    pool: Pool,
    grants: Grants,
    fast: FastMrPool,
    cache: Cache,
    foreign: Foreign,
    /// The peer's.
    landing: Slice,
    blocks: Vec<Block>,
    lives: Vec<Live>,
    /// Memory of what was dropped before its end was known, with its key.
    adrift: Vec<(Range<usize>, RemoteKey)>,
    /// Counts connections.
    connection: u32,
    stalled: bool,
    stamp: u8,
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

impl World {
    fn new() -> Self {
        let faults = Faults::new(0);
        let pair = Pair::builder()
            // As a NIC does: what is stale is read all the same.
            .options(|options| mkey::SoftOptions { stale: Stale::Nic, ..options })
            .faults(&faults)
            .connect()
            .expect("connected");
        let leaks = LeakCheck::new(&pair.a.device);
        let pd = &pair.a.pd;
        let options = PoolOptions::default().slab(SLAB).ceiling(CEILING).min_block(GRAIN);
        let options = options.pages(PageKind::Base).access(Access::local().windows());
        let pool = Pool::new(pd, &options).expect("a pool");
        let grants = pd.set_grants(GrantOptions::default().max(MOST_GRANTS)).expect("grants");
        let fast = FastMrPool::builder(pd).entries(3).max(MOST_MAPPINGS).build().expect("a pool");
        let cache = Cache::builder(pd).max_bytes(4 * PAGE as u64).build().expect("a cache");
        let landing = Mr::new(&pair.b.pd, Region::new(16 * PAGE).expect("memory"));
        let landing = landing.expect("registered").into_slice();
        Self {
            faults,
            leaks,
            pool,
            grants,
            fast,
            cache,
            foreign: Foreign::new(),
            landing,
            blocks: Vec::new(),
            lives: Vec::new(),
            adrift: Vec::new(),
            connection: 0,
            stalled: false,
            stamp: 0,
            pair,
        }
    }

    fn up(&self) -> bool {
        [&self.pair.a, &self.pair.b]
            .iter()
            .all(|side| side.qp.query().is_ok_and(|attr| attr.state == QpState::Rts))
    }

    fn injected(&self) -> usize {
        self.faults.injected().len()
    }

    /// What is out can not be had again.
    fn is_free(&self, range: &Range<usize>) -> bool {
        let lives = self.lives.iter().flat_map(|live| &live.blocks);
        let mut out = self.blocks.iter().chain(lives).map(Block::range);
        !out.any(|other| overlap(&other, range))
    }

    /// What was dropped can be had again only when its key opens nothing any more.
    fn is_shut(&mut self, range: &Range<usize>) {
        let before = std::mem::take(&mut self.adrift);
        let (reused, adrift) = before.into_iter().partition(|(other, _)| overlap(other, range));
        self.adrift = adrift;
        let reused: Vec<(Range<usize>, RemoteKey)> = reused;
        for (_, key) in reused {
            if self.up() {
                let bytes = self.filling(key.length as usize);
                let status = self.access(key, false, &bytes);
                assert_ne!(status, Some(WcStatus::Success), "open, and its memory is in use again");
                self.restart();
            }
        }
    }

    fn filling(&mut self, len: usize) -> Vec<u8> {
        self.stamp = self.stamp.wrapping_add(1);
        (0..len).map(|at| (at as u8) ^ self.stamp).collect()
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Alloc { len } => self.alloc(len),
            Op::Get { page, pages } => self.get(page..(page + pages).min(PAGES)),
            Op::Free { block } => {
                if let Some(at) = block.checked_rem(self.blocks.len()) {
                    self.blocks.swap_remove(at).check();
                }
            }
            Op::Grant { block, writable, posted } => self.grant(block, writable, posted),
            Op::Map { blocks, writable } => self.map(blocks, writable),
            Op::Remap { page, pages } => self.remap(page..(page + pages).min(PAGES)),
            Op::Stall if !self.stalled => {
                // Nobody receives it: all that is posted behind it waits.
                let work = Work::send_inline(b"").unsignaled();
                self.stalled = self.up() && self.pair.a.qp.post(&[work]).is_ok();
            }
            Op::Stall => {}
            Op::Unstall => self.unstall(),
            Op::Fail => self.pair.a.qp.fail().expect("to ERR"),
            Op::Quiesce => self.quiesce(),
            Op::Trim => drop(self.pool.trim()),
            Op::Fault { kind } => inject(&self.faults, kind),
            Op::Revoke { live }
            | Op::PeerEnds { live }
            | Op::Abandon { live }
            | Op::Drop { live }
            | Op::Probe { live, .. } => {
                if let Some(at) = live.checked_rem(self.lives.len()) {
                    self.with(op, at);
                }
            }
        }
        self.settle();
    }

    fn alloc(&mut self, len: usize) {
        let before = self.injected();
        match self.pool.alloc(len) {
            Ok(slice) => self.out(slice, None),
            Err(PoolError::Full(shortage)) => {
                assert!(shortage.registered + SLAB > CEILING, "it could grow: {shortage}");
            }
            Err(PoolError::Source { .. }) => assert!(self.injected() > before, "no fault"),
            Err(error) => panic!("{error}"),
        }
    }

    /// A block that is new.
    fn out(&mut self, slice: Slice, foreign: Option<Range<usize>>) {
        let bytes = self.filling(slice.len());
        let block = Block { slice, bytes, foreign };
        assert!(self.is_free(&block.range()), "{:?} is handed out twice", block.slice);
        self.is_shut(&block.range());
        block.slice.write(0, &block.bytes).expect("written");
        self.blocks.push(block);
    }

    fn get(&mut self, pages: Range<usize>) {
        let (at, len) = (self.foreign.page(pages.start), pages.len() * PAGE);
        if !self.is_free(&(at.addr()..at.addr() + len)) {
            return;
        }
        let before = self.injected();
        // SAFETY: the pages stay as long as the block is out: see `remap`; no reference to them is
        // made.
        match unsafe { self.cache.get(at, len, Access::local().windows()) } {
            Ok(cached) => self.out(cached.into_slice(), Some(pages)),
            Err(CacheError::Bytes { .. }) => {}
            Err(error) => assert!(self.injected() > before, "{error}"),
        }
    }

    fn remap(&mut self, pages: Range<usize>) {
        let (start, len) = (self.foreign.page(pages.start), pages.len() * PAGE);
        if self.is_free(&(start.addr()..start.addr() + len)) {
            self.cache.invalidate(start, len);
            self.foreign.remap(pages);
        }
    }

    fn grant(&mut self, block: usize, writable: bool, posted: bool) {
        let Some(at) = block.checked_rem(self.blocks.len()) else { return };
        let before = self.injected();
        let access = match writable {
            true => PeerAccess::READ | PeerAccess::WRITE,
            false => PeerAccess::READ,
        };
        match self.blocks[at].slice.prepare_grant(&self.pair.a.qp, access) {
            Err(error) => {
                let full = matches!(error.reason, Reason::Exhausted { .. });
                let most = self.grants.stats().in_use == u64::from(MOST_GRANTS);
                assert!(full && most || self.injected() > before, "{error}");
            }
            Ok(grant) if posted => {
                let done = self.pair.a.qp.post(&[grant.bind()]);
                let key = grant.remote_key();
                let blocks = vec![self.blocks.swap_remove(at)];
                self.begun(Handle::Grant(grant), key, writable, blocks, done.is_ok(), before);
            }
            Ok(_) => {}
        }
    }

    fn map(&mut self, blocks: usize, writable: bool) {
        let blocks = blocks.min(self.blocks.len());
        if blocks == 0 {
            return;
        }
        let before = self.injected();
        let access = match writable {
            true => Access::local().remote_read().remote_write(),
            false => Access::local_read().remote_read(),
        };
        let slices: Vec<_> = self.blocks[..blocks].iter().map(|one| one.slice.clone()).collect();
        match self.fast.prepare(&self.pair.a.qp, &slices, access) {
            Err(error) => {
                let full = matches!(error.reason, Reason::Exhausted { .. });
                let most = self.fast.stats().in_use == u64::from(MOST_MAPPINGS);
                assert!(full && most || self.injected() > before, "{error}");
            }
            Ok(mapping) => {
                drop(slices);
                let done = self.pair.a.qp.post(&[mapping.register()]);
                let key = mapping.remote_key().expect("exposed");
                let blocks = self.blocks.drain(..blocks).collect();
                self.begun(Handle::Mapping(mapping), key, writable, blocks, done.is_ok(), before);
            }
        }
    }

    fn begun(
        &mut self,
        handle: Handle,
        key: RemoteKey,
        writable: bool,
        blocks: Vec<Block>,
        posted: bool,
        before: usize,
    ) {
        if !posted {
            assert!(self.injected() > before, "posting failed without a fault");
            drop(handle);
            return self.blocks.extend(blocks);
        }
        let sure = self.up() && !self.stalled && self.injected() == before;
        let open = sure.then_some(self.connection);
        let of_grant = matches!(handle, Handle::Grant(_));
        self.lives.push(Live { handle, of_grant, key, writable, blocks, open });
    }

    fn with(&mut self, op: Op, at: usize) {
        match op {
            Op::Revoke { .. } => {
                let live = self.lives.swap_remove(at);
                let live = revoked(live);
                self.lives.push(live);
            }
            Op::PeerEnds { .. } => self.peer_ends(at),
            Op::Abandon { .. } => {
                let live = revoked(self.lives.swap_remove(at));
                let Handle::Ending(ending) = live.handle else { return };
                ending.abandon().expect("the device frees it");
                self.ended(live.key, live.writable, live.blocks);
            }
            Op::Drop { .. } => {
                let live = self.lives.swap_remove(at);
                let foreign = live.blocks.iter().any(|block| block.foreign.is_some());
                self.adrift.extend(live.blocks.iter().map(|block| (block.range(), live.key)));
                drop((live.blocks, live.handle));
                if foreign {
                    self.quiesce();
                }
            }
            Op::Probe { write, .. } => self.probe(at, write),
            _ => {}
        }
    }

    /// The peer invalidates the key.
    fn peer_ends(&mut self, at: usize) {
        if !self.up() {
            return;
        }
        let live = &mut self.lives[at];
        if live.open != Some(self.connection) || !matches!(live.handle, Handle::Grant(_)) {
            return;
        }
        let [a, b] = [&self.pair.a, &self.pair.b];
        let before = self.faults.injected().len();
        let inbox = [live.blocks[0].slice.part(..0).expect("empty")];
        a.qp.post_recv(&[Recv::new(&inbox)]).expect("posted");
        let posted = b.qp.post(&[Work::send_inline(b"").invalidating(live.key.key)]);
        if posted.is_err() {
            assert!(self.injected() > before);
            return self.restart();
        }
        live.open = None;
        self.pair.advance(Duration::from_millis(1));
        self.settle_until_ended(at);
    }

    fn settle_until_ended(&mut self, at: usize) {
        self.pair.done(&self.pair.b);
        self.pair.done(&self.pair.a);
        let ended = match &self.lives[at].handle {
            Handle::Grant(grant) => grant.ended(),
            Handle::Mapping(mapping) => mapping.ended(),
            Handle::Ending(ending) => ending.ended(),
        };
        assert_eq!(ended, Ok(Some(Ended::ByPeer)), "the peer has ended it");
    }

    /// The peer reads or writes by a key that is out.
    fn probe(&mut self, at: usize, write: bool) {
        if !self.up() {
            return;
        }
        let live = &self.lives[at];
        let sure = live.open == Some(self.connection);
        if write && live.writable && !sure {
            return;
        }
        let len = live.key.length as usize;
        let open = live.open.is_some() && (!write || live.writable);
        let bytes = self.filling(len);
        let status = self.access(self.lives[at].key, write, &bytes);
        let Some(status) = status else { return };
        let live = &mut self.lives[at];
        if write && !live.writable {
            assert_ne!(status, WcStatus::Success, "written by a key to read by");
        } else if sure && open {
            assert_eq!(status, WcStatus::Success, "it is open");
        }
        if status != WcStatus::Success {
            return self.restart();
        }
        let mut done = 0;
        for block in &mut live.blocks {
            let part = done..done + block.slice.len();
            done = part.end;
            if write {
                block.bytes.copy_from_slice(&bytes[part]);
            } else {
                let read = self.landing.part(part).expect("within").to_vec().expect("read");
                assert!(read == block.bytes, "read other bytes");
            }
            block.check();
        }
    }

    /// How work of the peer by this key ends; `None` if it could not be posted.
    fn access(&mut self, key: RemoteKey, write: bool, bytes: &[u8]) -> Option<WcStatus> {
        let part = [self.landing.part(..bytes.len()).expect("within")];
        part[0].write(0, bytes).expect("written");
        let work = match write {
            true => Work::write(&part, key),
            false => Work::read(&part, key),
        };
        let before = self.injected();
        if self.pair.b.qp.post(&[work.id(9)]).is_err() {
            assert!(self.injected() > before);
            return None;
        }
        loop {
            let done = self.pair.next(&self.pair.b);
            if done.wr_id == 9 {
                return Some(done.status);
            }
        }
    }

    /// Its end was confirmed: its memory is as it was, and the key opens nothing.
    fn ended(&mut self, key: RemoteKey, writable: bool, blocks: Vec<Block>) {
        blocks.iter().for_each(Block::check);
        if self.up() {
            let bytes = self.filling(key.length as usize);
            let status = self.access(key, writable, &bytes);
            assert_ne!(status, Some(WcStatus::Success), "open after its end");
            self.restart();
        }
        for mut block in blocks {
            block.check();
            if block.foreign.is_none() {
                // Nothing holds it any more.
                block.slice = match block.slice.into_local() {
                    Ok(local) => local.into_slice(),
                    Err((_, error)) => panic!("after its end: {error}"),
                };
            }
            self.blocks.push(block);
        }
    }

    /// What has ended by now.
    fn settle(&mut self) {
        for side in [&self.pair.a, &self.pair.b] {
            self.pair.done(side);
        }
        let mut at = 0;
        while let Some(live) = self.lives.get(at) {
            let ended = match &live.handle {
                Handle::Grant(grant) => grant.ended(),
                Handle::Mapping(mapping) => mapping.ended(),
                Handle::Ending(ending) => ending.ended(),
            };
            if ended.expect("nothing is kept").is_some() {
                let Live { handle, key, writable, blocks, .. } = self.lives.swap_remove(at);
                drop(handle);
                self.ended(key, writable, blocks);
                at = 0;
            } else {
                at += 1;
            }
        }
    }

    fn unstall(&mut self) {
        if !std::mem::take(&mut self.stalled) {
            return;
        }
        let inbox = [self.landing.part(..0).expect("empty")];
        if self.pair.b.qp.post_recv(&[Recv::new(&inbox)]).is_ok() {
            self.pair.advance(Duration::from_secs(1));
        }
    }

    /// A new connection: nothing is on its way any more.
    fn restart(&mut self) {
        self.pair.reconnect().expect("connected again");
        self.connection += 1;
        self.stalled = false;
        for side in [&self.pair.a, &self.pair.b] {
            self.pair.done(side);
        }
        self.adrift.clear();
    }

    /// With nothing on its way, counts are exact.
    fn quiesce(&mut self) {
        self.unstall();
        self.pair.advance(Duration::from_secs(1));
        self.settle();
        self.restart();
        self.settle();
        let grants = self.lives.iter().filter(|live| live.of_grant).count() as u64;
        let mappings = self.lives.len() as u64 - grants;
        assert_eq!(self.grants.stats().in_use, grants, "windows");
        assert_eq!(self.fast.stats().in_use, mappings, "fast registrations");
        let lives = self.lives.iter().flat_map(|live| &live.blocks);
        let pooled = self.blocks.iter().chain(lives).filter(|block| block.foreign.is_none());
        let bytes: u64 = pooled.map(|block| block.slice.len().next_multiple_of(GRAIN) as u64).sum();
        // Blocks come in sizes of at most half as much again.
        let in_use = self.pool.stats().in_use_bytes;
        assert!((bytes..=bytes + bytes / 2).contains(&in_use), "{in_use} in use, {bytes} are out");
        for block in &self.blocks {
            block.check();
        }
    }

    fn finish(mut self) {
        self.faults.stop();
        self.lives.clear();
        self.quiesce();
        self.blocks.clear();
        assert_eq!(self.pool.stats().in_use_bytes, 0);
        self.cache.flush();
        let stats = self.cache.stats();
        assert_eq!((stats.registered, stats.invalid_in_use), (0, 0), "{stats:?}");
        let Self { leaks, pair, pool, grants, fast, cache, landing, foreign, .. } = self;
        drop((grants, fast, cache, pool, landing));
        drop(pair);
        drop(foreign);
        leaks.finish();
    }
}

fn revoked(live: Live) -> Live {
    let handle = match live.handle {
        Handle::Grant(grant) => Handle::Ending(grant.revoke()),
        Handle::Mapping(mapping) => match mapping.release() {
            Ok(ending) => Handle::Ending(ending),
            Err((_, error)) => panic!("no slice of it is out: {error}"),
        },
        ending => ending,
    };
    Live { handle, open: None, ..live }
}

proptest! {
    #[test]
    fn all_parts_together_do_as_the_model(ops in prop::collection::vec(op(), 1..100)) {
        let mut world = World::new();
        for op in ops {
            world.step(op);
        }
        world.finish();
    }
}
