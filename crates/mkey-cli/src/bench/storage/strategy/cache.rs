//! The registration cache, over memory of the application: each I/O asks it for a registration, and
//! gives that back.

use super::{Shape, Strategy, no_buffer, stride};
use crate::bench::arena::{Arena, Kept};
use crate::bench::error::Result;
use crate::bench::storage::capsule::Op;
use crate::bench::storage::content::Words;
use crate::bench::storage::side::Side;
use mkey::{Access, Cache, Invalidation, PageKind, RemoteKey};
use std::sync::Arc;

/// The strategy.
#[derive(Debug)]
pub struct Cached {
    buffers: Vec<(Arc<Arena>, Option<Kept>)>,
    bytes: u64,
    // Told of all arenas before they go: dropped before them, it has nothing left.
    cache: Cache,
}

impl Cached {
    /// Maps all buffers, each on pages of its own, and registers none. Where the operating system
    /// tells of memory that goes the cache listens to it.
    ///
    /// # Errors
    /// As the memory refuses.
    pub fn new(side: &Side, shape: Shape) -> Result<Self> {
        let build = |by| Cache::builder(&side.pd).invalidation(by).build();
        let cache = build(Invalidation::Events).or_else(|_| build(Invalidation::Explicit))?;
        let buffer = |_| Ok((Arc::new(Arena::map(stride(shape) as u64, PageKind::Base)?), None));
        let buffers = (0..shape.depth).map(buffer).collect::<Result<Vec<_>>>()?;
        Ok(Self { buffers, bytes: shape.block as u64, cache })
    }
}

impl Strategy for Cached {
    fn open(&mut self, _: &Side, slot: usize, _: Op) -> Result<RemoteKey> {
        let (arena, kept) = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        let access = Access::local().remote_read().remote_write();
        let registration = arena.cached(&self.cache, 0, self.bytes, access)?;
        let key = registration.slice().remote_key()?;
        *kept = Some(registration);
        Ok(key)
    }

    fn close(&mut self, slot: usize, _: Op) -> Result<()> {
        let (_, kept) = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        *kept = None;
        Ok(())
    }

    fn buffer(&mut self, slot: usize) -> Result<&mut dyn Words> {
        let (arena, _) = self.buffers.get_mut(slot).ok_or_else(no_buffer)?;
        Ok(arena)
    }

    fn how(&self) -> String {
        format!("get a registration and give it back; invalidation: {}", self.cache.invalidation())
    }

    fn pages(&self) -> PageKind {
        PageKind::Base
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        self.buffers.iter_mut().for_each(|(_, kept)| *kept = None);
        self.cache.flush();
    }
}
