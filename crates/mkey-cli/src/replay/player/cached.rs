//! The library's cache of registrations.

use super::{Player, access, no_range};
use crate::bench::arena::Kept;
use crate::bench::error::Result;
use crate::replay::stage::Stage;
use crate::replay::strategy::Strategy;
use mkey::{Access, Cache, Invalidation};

/// One cache a domain, told of nothing: the memory of a replay stays mapped.
pub struct Cached<'a> {
    stage: &'a Stage,
    access: Vec<Access>,
    live: Vec<Option<Kept>>,
    caches: Vec<Cache>,
    most: u64,
}

impl<'a> Cached<'a> {
    /// Nothing is registered yet.
    pub fn new(stage: &'a Stage) -> Result<Self> {
        let cache = |pd| Cache::builder(pd).invalidation(Invalidation::Explicit).build();
        let caches = stage.domains.iter().map(cache).collect::<mkey::Result<Vec<_>>>()?;
        let ranges = &stage.script.ranges;
        let access = ranges.iter().map(|range| access(stage.rights(range)));
        let access = access.collect::<Result<Vec<_>>>()?;
        let live = ranges.iter().map(|_| None).collect();
        Ok(Self { stage, access, live, caches, most: 0 })
    }

    fn registered_bytes(&self) -> u64 {
        self.caches.iter().map(|cache| cache.stats().registered_bytes).sum()
    }
}

impl Player for Cached<'_> {
    #[inline]
    fn register(&mut self, range: usize) -> Result<()> {
        let of = self.stage.range(range).ok_or_else(no_range)?;
        let (arena, offset) = self.stage.place(Strategy::Cache, range).ok_or_else(no_range)?;
        let cache = self.caches.get(of.domain).ok_or_else(no_range)?;
        let access = *self.access.get(range).ok_or_else(no_range)?;
        let kept = arena.cached(cache, offset, of.len, access)?;
        *self.live.get_mut(range).ok_or_else(no_range)? = Some(kept);
        Ok(())
    }

    #[inline]
    fn deregister(&mut self, range: usize) -> Result<()> {
        drop(self.live.get_mut(range).and_then(Option::take));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        // It has no limit, so that what is registered only grows, but for what is merged.
        self.most = self.registered_bytes();
        self.live.iter_mut().for_each(|kept| *kept = None);
        self.caches.iter().for_each(Cache::flush);
        Ok(())
    }

    fn made(&self) -> u64 {
        self.caches.iter().map(|cache| cache.stats().registrations).sum()
    }

    fn most_bytes(&self) -> u64 {
        self.most.max(self.registered_bytes())
    }
}
