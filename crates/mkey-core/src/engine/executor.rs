//! Executor slots: how the engine knows which keys are in use this instant.
//!
//! An access publishes what it uses in its own slot, then fences, then looks the key up; revoking
//! a key changes the entry, then fences, then reads all slots. One of the two sees the other, and
//! no access writes a cache line that another thread writes. The fences carry the protocol, also
//! that of a pause: a word instead of an entry, which accesses load where they load the entry. loom
//! checks both in
//! `tests/loom_revocation.rs`. Built with `--cfg mkey_break_fence` or `--cfg mkey_break_scan` the
//! protocol is broken on purpose: tests that watch over it must fail then.

use super::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence, lock};
use std::sync::{Arc, OnceLock};

/// Slots that are allocated together: as many as make 256 words, so that a byte finds each of them.
const BLOCK: usize = if cfg!(loom) { 2 } else { 16 };
const BLOCKS: usize = if cfg!(loom) { 1 } else { 4096 };

/// Low bits of a published word: engine, a bit that is set, slot. The rest counts the accesses of
/// the lane, so that a word tells one access from the next.
pub(super) const TAG_BITS: u32 = 33;
const ENGINE_SHIFT: u32 = 25;
const SET: u64 = 1 << 24;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const ENGINE_MASK: u64 = TAG_MASK & !(SET - 1);
const IDLE: u64 = 0;

/// Words from one slot to the next, 128 bytes: no false sharing, nor by adjacent-line prefetch.
const SLOT: usize = if cfg!(loom) { LANES } else { 16 };
/// Words of a slot that are used.
const LANES: usize = 2;
const WORDS: usize = BLOCK * SLOT;
/// Slots that a revocation looks at together; a divisor of [`BLOCK`].
const GROUP: usize = if cfg!(loom) { 1 } else { 16 };

#[derive(Debug)]
#[repr(align(128))]
struct Block([AtomicU64; WORDS]);

impl Block {
    fn new() -> Self {
        Self(core::array::from_fn(|_| AtomicU64::new(IDLE)))
    }

    /// A word of it.
    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.0[at % WORDS]
    }
}

/// All executor slots of a process; several engines may share one.
#[derive(Debug)]
pub struct Executors {
    blocks: Box<[OnceLock<Arc<Block>>]>,
    high: AtomicU32,
    engines: AtomicU32,
    paused: AtomicU32,
    free: Mutex<Vec<u32>>,
}

impl Executors {
    /// An empty set, with room for 65,536 threads at a time.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            blocks: (0..BLOCKS).map(|_| OnceLock::new()).collect(),
            high: AtomicU32::new(0),
            engines: AtomicU32::new(0),
            paused: AtomicU32::new(0),
            free: Mutex::new(Vec::new()),
        })
    }

    /// Takes a slot for the calling thread, or `None` if all are taken.
    pub fn enter(self: &Arc<Self>) -> Option<Executor> {
        let number = {
            let mut free = lock(&self.free);
            match free.pop() {
                Some(number) => number,
                None => {
                    let number = self.high.load(Ordering::Relaxed);
                    if number as usize >= BLOCK * BLOCKS {
                        return None;
                    }
                    self.blocks[number as usize / BLOCK].get_or_init(|| Arc::new(Block::new()));
                    // The slot's first access fences after this store. A revoker that misses the
                    // store has fenced before that, so the access sees that the key is gone.
                    self.high.store(number + 1, Ordering::Release);
                    number
                }
            }
        };
        let block = self.blocks[number as usize / BLOCK].get()?;
        let lane = |lane| Lane {
            block: block.clone(),
            word: (number as usize % BLOCK * SLOT + lane) as u8,
            sequence: 0,
        };
        Some(Executor { source: lane(0), target: lane(1), number, executors: self.clone() })
    }

    /// Stops new accesses of all engines until [`Executors::resume`]: called before an event that
    /// takes pages away is read, since the program goes on once it has been read. Pauses nest.
    pub fn pause(&self) {
        self.paused.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.paused.fetch_sub(1, Ordering::AcqRel);
    }

    /// In a forked child: ends what threads of the parent were in the middle of, which do not exist
    /// here. Allocates nothing and takes no lock.
    pub fn forget_other_threads(&self) {
        self.paused.store(0, Ordering::Release);
        for block in self.blocks.iter().map_while(OnceLock::get) {
            block.0.iter().for_each(|word| word.store(IDLE, Ordering::Release));
        }
    }

    /// Whether accesses answer [`Denied::Paused`](super::Denied::Paused).
    #[inline(always)]
    pub fn paused(&self) -> bool {
        self.paused.load(Ordering::Acquire) != 0
    }

    /// Calls `wait` until every access that is running now has ended; after a pause, none runs
    /// then. Allocates nothing: who drains may be the thread that an allocator waits for, while it
    /// unmaps.
    pub fn drain(&self, mut wait: impl FnMut()) {
        self.drain_while(|| {
            wait();
            true
        });
    }

    /// As [`Executors::drain`], but gives up when `wait` answers false: an access may be stopped
    /// for as long as a signal handler runs on its thread, and that may wait for the caller.
    /// Whether all accesses have ended.
    pub fn drain_while(&self, mut wait: impl FnMut() -> bool) -> bool {
        fence(Ordering::SeqCst);
        let high = self.high.load(Ordering::Acquire) as usize;
        for slot in 0..high {
            let Some(block) = self.blocks.get(slot / BLOCK).and_then(OnceLock::get) else { break };
            for lane in 0..LANES {
                let word = block.word(slot % BLOCK * SLOT + lane);
                let running = word.load(Ordering::Acquire);
                while running != IDLE && word.load(Ordering::Acquire) == running {
                    if !wait() {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// A tag for a new engine. Engines that share a tag wait for each other's accesses now and
    /// then, which costs time but nothing else.
    pub(super) fn engine_tag(&self) -> u64 {
        u64::from(self.engines.fetch_add(1, Ordering::Relaxed) % 256) << ENGINE_SHIFT | SET
    }

    /// The accesses that are running now and match, after a fence.
    #[inline]
    fn scan(&self, matches: impl Fn(u64) -> bool) -> Waits {
        fence(Ordering::SeqCst);
        let mut waits = Waits::default();
        if cfg!(mkey_break_scan) {
            return waits;
        }
        let mut left = self.high.load(Ordering::Acquire) as usize;
        for block in &self.blocks {
            if left == 0 {
                break;
            }
            let Some(block) = block.get() else { break };
            let shared: &Block = block;
            // Nearly all slots are idle nearly all the time, so some are looked at as one. Those
            // that were never taken are idle, too.
            for group in (0..left.min(BLOCK)).step_by(GROUP) {
                let words =
                    (group..group + GROUP).flat_map(|slot| slot * SLOT..slot * SLOT + LANES);
                let word = |at| shared.word(at).load(Ordering::Acquire);
                if words.clone().fold(IDLE, |all, at| all | word(at)) == IDLE {
                    continue;
                }
                for at in words {
                    let word = word(at);
                    if word != IDLE && matches(word) {
                        waits.push(block, at, word);
                    }
                }
            }
            left = left.saturating_sub(BLOCK);
        }
        waits
    }

    /// The accesses running through any table slot of one engine.
    pub(super) fn users_of_engine(&self, engine_tag: u64) -> Waits {
        self.scan(|word| word & ENGINE_MASK == engine_tag)
    }

    /// The accesses running through one table slot of one engine.
    #[inline]
    pub(super) fn users_of(&self, tag: u64) -> Waits {
        self.scan(|word| word & TAG_MASK == tag)
    }
}

/// One thread's executor slot, with a lane for each of the two keys that a copy uses at once.
#[derive(Debug)]
pub struct Executor {
    /// For the memory that is read.
    pub source: Lane,
    /// For the memory that is written.
    pub target: Lane,
    number: u32,
    executors: Arc<Executors>,
}

impl Drop for Executor {
    fn drop(&mut self) {
        lock(&self.executors.free).push(self.number);
    }
}

/// One access at a time.
#[derive(Debug)]
pub struct Lane {
    block: Arc<Block>,
    /// Which word of the block.
    word: u8,
    sequence: u64,
}

impl Lane {
    /// Publishes the use of a table slot. The caller looks at the entry only afterwards.
    #[inline(always)]
    pub(super) fn publish(&mut self, tag: u64) -> Published<'_> {
        self.sequence = self.sequence.wrapping_add(1 << TAG_BITS);
        let word = self.block.word(usize::from(self.word));
        // Release, not relaxed: a revoker that reads this word instead of the idle one before it
        // must see that the earlier access has ended.
        word.store(self.sequence | tag, Ordering::Release);
        if !cfg!(mkey_break_fence) {
            fence(Ordering::SeqCst);
        }
        Published { word }
    }
}

/// An access that revokers can see; ends when dropped.
#[derive(Debug)]
pub(super) struct Published<'a> {
    word: &'a AtomicU64,
}

impl Drop for Published<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.word.store(IDLE, Ordering::Release);
    }
}

/// The tag that accesses through table slot `slot` of an engine publish.
#[inline(always)]
pub(super) const fn tag(engine_tag: u64, slot: u32) -> u64 {
    engine_tag | slot as u64
}

#[derive(Debug)]
struct Wait {
    block: Arc<Block>,
    at: usize,
    word: u64,
}

/// Accesses that were running at one moment, as when a key was revoked, and may run still.
#[derive(Debug, Default)]
pub(super) struct Waits(Vec<Wait>);

impl Waits {
    #[cold]
    fn push(&mut self, block: &Arc<Block>, at: usize, word: u64) {
        self.0.push(Wait { block: block.clone(), at, word });
    }

    /// Whether none was running.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all of them have ended.
    #[inline]
    pub(super) fn quiet(&mut self) -> bool {
        if self.0.is_empty() {
            return true;
        }
        self.0.retain(|wait| wait.block.word(wait.at).load(Ordering::Acquire) == wait.word);
        self.0.is_empty()
    }
}
