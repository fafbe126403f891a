//! How a buffer is registered when it is pushed.

use super::args::Name;
use super::link::Link;
use crate::bench::arena::Arena;
use crate::bench::error::{Result, RowError};
use crate::bench::stop::Stop;

use mkey::{Access, Cache, Invalidation, Memory, Mr, PageKind, Pool, PoolOptions, Slice};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one push took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Push {
    /// From wanting to push to having the buffer back.
    pub total: Duration,
    /// Of that, registering and deregistering.
    pub registration: Duration,
}

/// A cold push and the warm one after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// The buffer's first push.
    pub cold: Push,
    /// Its next.
    pub warm: Push,
    /// Page faults of the device in the cold push; `None`: the strategy has none, or the device does not tell.
    pub faults: Option<u64>,
}

/// What all pushes of a buffer share.
#[derive(Debug)]
pub struct Ground<'a> {
    /// The two ends.
    pub link: &'a mut Link,
    /// Bytes of the buffer.
    pub bytes: usize,
    /// Tells pushes apart, so that what came last is known from what came before.
    pub turn: u64,
    /// Asked at safe points.
    pub stop: &'a Stop,
}

/// The application's buffer: ordinary memory on 4 KiB pages, all of it there.
///
/// # Errors
/// As the kernel refuses.
pub fn application(bytes: usize) -> Result<Arc<Arena>> {
    let arena = Arena::map(bytes as u64, PageKind::Base)?;
    arena.fill(0x5a);
    Ok(Arc::new(arena))
}

impl Ground<'_> {
    /// Pushes twice, cold and warm, by a strategy that registers memory of the application.
    ///
    /// # Errors
    /// As the device refuses, or bytes do not arrive.
    pub fn pair(&mut self, name: Name, arena: &Arc<Arena>) -> Result<Pair> {
        match name {
            Name::Register => self.register(arena),
            Name::Cache => self.cache(arena),
            Name::OnDemand => self.on_demand(arena),
            Name::Pool => Err(RowError::Protocol("a pool has memory of its own")),
        }
    }

    fn register(&mut self, arena: &Arc<Arena>) -> Result<Pair> {
        let mut once = || {
            self.stamp(|at, word| arena.set_word(at as u64, word))?;
            let memory: Arc<dyn Memory> = arena.clone();
            let start = Instant::now();
            let mr = Mr::builder(&self.link.side.pd).access(SOURCE).register_shared(memory)?;
            let registered = start.elapsed();
            self.push(&mr.slice(..self.bytes)?)?;
            let pushed = start.elapsed();
            mr.close().map_err(|(_, error)| RowError::Verb(error))?;
            let total = start.elapsed();
            self.check()?;
            let registration = registered + total.saturating_sub(pushed);
            Ok::<_, RowError>(Push { total, registration })
        };
        Ok(Pair { cold: once()?, warm: once()?, faults: None })
    }

    fn cache(&mut self, arena: &Arc<Arena>) -> Result<Pair> {
        let build = |by| Cache::builder(&self.link.side.pd).invalidation(by).build();
        let cache = build(Invalidation::Events).or_else(|_| build(Invalidation::Explicit))?;
        let mut once = || {
            self.stamp(|at, word| arena.set_word(at as u64, word))?;
            let start = Instant::now();
            let cached = arena.cached(&cache, 0, self.bytes as u64, SOURCE)?;
            let registration = start.elapsed();
            self.push(&cached.slice())?;
            drop(cached);
            let total = start.elapsed();
            self.check()?;
            Ok::<_, RowError>(Push { total, registration })
        };
        let pair = Pair { cold: once()?, warm: once()?, faults: None };
        cache.flush();
        Ok(pair)
    }

    fn on_demand(&mut self, arena: &Arc<Arena>) -> Result<Pair> {
        let memory: Arc<dyn Memory> = arena.clone();
        self.stamp(|at, word| arena.set_word(at as u64, word))?;
        let start = Instant::now();
        let builder = Mr::builder(&self.link.side.pd).access(SOURCE).on_demand();
        let mr = builder.register_shared(memory)?;
        let registration = start.elapsed();
        let buffer = mr.slice(..self.bytes)?;
        self.push(&buffer)?;
        let cold = Push { total: start.elapsed(), registration };
        self.check()?;
        // Not every driver counts them, and the kernel tells not every user of it.
        let faults = mr.odp_stats().ok().map(|stats| stats.faults);
        self.stamp(|at, word| arena.set_word(at as u64, word))?;
        let start = Instant::now();
        self.push(&buffer)?;
        let warm = Push { total: start.elapsed(), registration: Duration::ZERO };
        self.check()?;
        Ok(Pair { cold, warm, faults })
    }

    /// Pushes twice out of a pool that is registered here, cold: its registration, with the mapping
    /// and the faults that it brings, is the cold push's.
    ///
    /// # Errors
    /// As the memory or the device refuses, or bytes do not arrive.
    pub fn pool(&mut self) -> Result<(Pair, PageKind)> {
        let options = PoolOptions::default()
            .slab(self.bytes)
            .floor(self.bytes)
            .ceiling(self.bytes.saturating_mul(2))
            .access(SOURCE);
        let start = Instant::now();
        let pool = Pool::new(&self.link.side.pd, &options)?;
        let registration = start.elapsed();
        let pages = pool.slabs().first().map_or(PageKind::Base, |slab| slab.page_kind);
        let mut once = |registration: Duration| {
            let start = Instant::now();
            let buffer = pool.alloc(self.bytes)?;
            let allocated = start.elapsed();
            // The application makes what is to be pushed in place.
            self.stamp(|at, word| Ok(buffer.store(at, word)?))?;
            let start = Instant::now();
            self.push(&buffer)?;
            drop(buffer);
            let total = registration + allocated + start.elapsed();
            self.check()?;
            Ok::<_, RowError>(Push { total, registration })
        };
        let pair = Pair { cold: once(registration)?, warm: once(Duration::ZERO)?, faults: None };
        Ok((pair, pages))
    }

    fn push(&mut self, buffer: &Slice) -> Result<()> {
        self.link.push(buffer, self.stop)
    }

    /// Begins a push: writes a word of its own at the start of each chunk.
    fn stamp(&mut self, set: impl Fn(usize, u64) -> Result<()>) -> Result<()> {
        self.turn = self.turn.wrapping_add(1);
        for (number, at) in (0..self.bytes).step_by(self.link.chunk().max(1)).enumerate() {
            set(at, word(self.turn, number))?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.link.check(self.bytes, |number| word(self.turn, number))
    }
}

/// The buffer is only read by work requests of this process.
const SOURCE: Access = Access::local_read();

fn word(turn: u64, number: usize) -> u64 {
    (turn << 32 ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}
