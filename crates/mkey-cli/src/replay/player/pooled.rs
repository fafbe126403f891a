//! The library's pool: each registration becomes a buffer, with or without a copy of its bytes.

use super::{Player, access, no_range, rights_of};
use crate::bench::error::{Result, RowError};
use crate::bench::report::Missing;
use crate::bench::units::size;
use crate::replay::script::{Act, Registered};
use crate::replay::stage::Stage;
use mkey::{Pool, PoolOptions, Slice};

/// The least that a pool registers.
const LEAST: u64 = 1 << 20;

/// One pool a domain.
pub struct Pooled<'a> {
    stage: &'a Stage,
    /// The program's own memory, area by area; empty: nothing is copied.
    application: Vec<Vec<u8>>,
    live: Vec<Option<Slice>>,
    pools: Vec<Pool>,
    made: u64,
    most: u64,
}

impl<'a> Pooled<'a> {
    /// The program's memory, if it is to be copied.
    pub fn new(stage: &'a Stage, copied: bool) -> Self {
        let application = match copied {
            true => stage
                .areas()
                .iter()
                .map(|area| {
                    let bytes = area.as_ref().map_or(0, |arena| arena.bytes());
                    vec![1; usize::try_from(bytes).unwrap_or(0)]
                })
                .collect(),
            false => Vec::new(),
        };
        let live = stage.script.ranges.iter().map(|_| None).collect();
        Self { stage, application, live, pools: Vec::new(), made: 0, most: 0 }
    }

    fn look(&mut self) {
        let stats = self.pools.iter().map(Pool::stats);
        let (bytes, made) = stats.fold((0, 0), |(bytes, made), stats| {
            (bytes + stats.registered_bytes, made + stats.grows)
        });
        self.most = self.most.max(bytes);
        self.made = self.made.max(made);
    }

    /// The program's bytes of a range.
    fn bytes(&mut self, range: usize) -> Option<&mut [u8]> {
        let of = self.stage.range(range)?;
        let area = self.stage.area(range)?;
        let (_, offset) = self.stage.place(super::Strategy::Bounce, range)?;
        let (start, len) = (usize::try_from(offset).ok()?, usize::try_from(of.len).ok()?);
        self.application.get_mut(area)?.get_mut(start..start.checked_add(len)?)
    }
}

impl Player for Pooled<'_> {
    /// Registers pools for the most that was registered in each domain at a time.
    fn begin(&mut self) -> Result<()> {
        let stage = self.stage;
        let needed = (0..stage.domains.len()).map(|domain| most_bytes(stage, domain).max(LEAST));
        let needed = needed.fold(0, u64::saturating_add);
        if needed > stage.room {
            let (needed, room) = (size(needed), size(stage.room));
            let what = format!("the pool would register {needed}, and there is room for {room}");
            return Err(RowError::Missing(Missing::plain(what)));
        }
        // Where blocks lie so that not all of a slab serves, another one is registered, if it fits.
        let spare = (stage.room - needed) / (stage.domains.len() as u64).max(1);
        let pool = |(domain, pd)| {
            let bytes = most_bytes(stage, domain).max(LEAST);
            let most = usize::try_from(bytes.saturating_add(spare)).unwrap_or(usize::MAX);
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let access = access(rights_of(stage, domain))?;
            let options =
                PoolOptions::default().slab(bytes).floor(bytes).ceiling(most).access(access);
            Ok::<_, RowError>(Pool::new(pd, &options)?)
        };
        self.pools = stage.domains.iter().enumerate().map(pool).collect::<Result<Vec<_>>>()?;
        self.look();
        Ok(())
    }

    #[inline]
    fn register(&mut self, range: usize) -> Result<()> {
        let of = self.stage.range(range).ok_or_else(no_range)?;
        let pool = self.pools.get(of.domain).ok_or_else(no_range)?;
        let slice = pool.alloc(usize::try_from(of.len).unwrap_or(usize::MAX))?;
        if of.is_source && !self.application.is_empty() {
            slice.write(0, self.bytes(range).ok_or_else(no_range)?)?;
        }
        *self.live.get_mut(range).ok_or_else(no_range)? = Some(slice);
        Ok(())
    }

    #[inline]
    fn deregister(&mut self, range: usize) -> Result<()> {
        let Some(slice) = self.live.get_mut(range).and_then(Option::take) else { return Ok(()) };
        let copies = self.stage.range(range).is_some_and(|of| of.is_target);
        if copies && !self.application.is_empty() {
            slice.read(0, self.bytes(range).ok_or_else(no_range)?)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.look();
        self.live.iter_mut().for_each(|slice| *slice = None);
        self.pools.clear();
        Ok(())
    }

    fn made(&self) -> u64 {
        self.made
    }

    fn most_bytes(&self) -> u64 {
        self.most
    }
}

/// The most that was registered in a domain at a time, in blocks as pools hand them out.
fn most_bytes(stage: &Stage, domain: usize) -> u64 {
    let (mut now, mut most) = (0u64, 0u64);
    for step in &stage.script.steps {
        let range = stage.range(step.range).filter(|range| range.domain == domain);
        let bytes = range.map_or(0, block_bytes);
        now = match step.act {
            Act::Register => now.saturating_add(bytes),
            Act::Deregister => now.saturating_sub(bytes),
        };
        most = most.max(now);
    }
    most
}

/// Bytes of the block that a registration becomes.
fn block_bytes(range: &Registered) -> u64 {
    range.len.checked_next_multiple_of(crate::replay::script::PAGE).unwrap_or(range.len)
}
