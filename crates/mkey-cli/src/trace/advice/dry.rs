//! The library's own cache and pool, asked for what a recording asked for, on a device that pins
//! nothing: what they would have registered, and what being asked costs.
//!
//! A cache looks at pages, and at nothing but which ranges contain which: each stretch of memory
//! between two ends of ranges is one page here, so that no recording is too large.

use crate::bench::arena::{Arena, Kept};
use crate::bench::error::{Result, RowError};
use crate::replay::script::{Act, PAGE, Registered, Script};
use mkey::{Access, Cache, Device, Pd, Pool, PoolOptions, Rights, Slice, SoftOptions};
use mkey_os::mapping::PageKind;
use mkey_soft::{Link, PinMode};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Requests that are timed at most: their cost does not change further on.
const TIMED: u64 = 1 << 18;
/// Times that they are: other programs only add to what they take, so that the least is taken.
const PASSES: usize = 3;

/// What a cache did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CacheRun {
    /// For each range of the script whether it was registered for it.
    pub missed: Vec<bool>,
    /// Requests that were served by what was there.
    pub hits: u64,
    /// The most bytes registered at a time.
    pub most_bytes: u64,
    /// What a request that is served again costs there and back, nanoseconds; `None`: there was
    /// none to time.
    pub hit_ns: Option<f64>,
}

/// What a pool did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolRun {
    /// Bytes of each slab that was registered.
    pub slabs: Vec<u64>,
    /// Buffers that were taken.
    pub takes: u64,
    /// What taking a buffer and giving it back costs, nanoseconds.
    pub take_ns: Option<f64>,
}

/// A device that pins and counts nothing.
fn device() -> Result<Device> {
    let options = SoftOptions {
        link: Link::None,
        pin: PinMode::None,
        watch: false,
        accounting: false,
        ..SoftOptions::default()
    };
    Ok(Device::soft(options)?)
}

/// Ranges of pages that relate to each other as those of a script do, and how many pages that are.
pub fn squeezed(ranges: &[Registered]) -> (Vec<Range<u64>>, u64) {
    let around = ranges.iter().map(Registered::around);
    let mut ends: Vec<u64> = around.flat_map(|range| [range.start, range.end]).collect();
    ends.sort_unstable();
    ends.dedup();
    let at = |end: u64| ends.binary_search(&end).unwrap_or_default() as u64;
    let pages = ranges.iter().map(|range| {
        let Range { start, end } = range.around();
        at(start)..at(end)
    });
    (pages.collect(), ends.len() as u64)
}

/// Asks a cache in each domain.
///
/// # Errors
/// As the memory or the cache refuses.
pub fn cache(script: &Script) -> Result<CacheRun> {
    let device = device()?;
    let (pages, count) = squeezed(&script.ranges);
    let arena = Arc::new(Arena::map(count.max(1).saturating_mul(PAGE), PageKind::Base)?);
    // On-demand registrations serve only requests for such: a cache of their own does the same.
    let domains = script.domains.saturating_mul(2);
    let caches = (0..domains).map(|_| Ok(Cache::builder(&Pd::new(&device)?).build()?));
    let caches: Vec<Cache> = caches.collect::<Result<_>>()?;
    let asked: Vec<Asked<'_>> = script
        .ranges
        .iter()
        .zip(&pages)
        .map(|(range, pages)| Asked::new(&caches, range, pages))
        .collect::<Result<_>>()?;
    let mut live: Vec<Option<Kept>> = script.ranges.iter().map(|_| None).collect();
    let mut run = CacheRun { missed: vec![false; script.ranges.len()], ..CacheRun::default() };
    let mut book = Book::new(caches.len());
    for step in &script.steps {
        let Some(slot) = live.get_mut(step.range) else { continue };
        *slot = None;
        if step.act == Act::Deregister {
            continue;
        }
        let (Some(asked), Some(range)) = (asked.get(step.range), script.ranges.get(step.range))
        else {
            continue;
        };
        let before = device.stats().registrations;
        *slot = Some(asked.get(&arena)?);
        if device.stats().registrations == before {
            run.hits += 1;
            continue;
        }
        if let Some(missed) = run.missed.get_mut(step.range) {
            *missed = true;
        }
        book.registered(asked.number, range, asked.cache.stats().merged);
    }
    run.most_bytes = book.most;
    live.iter_mut().for_each(|kept| *kept = None);
    // Once more: all of it is served now.
    run.hit_ns = least(|| {
        let (start, mut timed) = (Instant::now(), 0);
        for step in &script.steps {
            let (Some(slot), Some(asked)) = (live.get_mut(step.range), asked.get(step.range))
            else {
                continue;
            };
            *slot = None;
            if step.act == Act::Register {
                *slot = Some(asked.get(&arena)?);
                timed += 1;
                if timed >= TIMED {
                    break;
                }
            }
        }
        Ok(per(start, timed))
    })?;
    drop(live);
    Ok(run)
}

/// A request, ready to be made.
struct Asked<'a> {
    cache: &'a Cache,
    number: usize,
    offset: u64,
    len: u64,
    access: Access,
}

impl<'a> Asked<'a> {
    fn new(caches: &'a [Cache], range: &Registered, pages: &Range<u64>) -> Result<Self> {
        let number = range.domain * 2 + usize::from(range.on_demand);
        let cache = caches.get(number).ok_or(RowError::Protocol("a domain that is not there"))?;
        let offset = pages.start.saturating_mul(PAGE);
        let len = (pages.end - pages.start).saturating_mul(PAGE);
        let access = Access::from_rights(range.rights)?;
        Ok(Self { cache, number, offset, len, access })
    }

    fn get(&self, arena: &Arc<Arena>) -> Result<Kept> {
        arena.cached(self.cache, self.offset, self.len, self.access)
    }
}

/// What caches have registered, in bytes of the recording.
struct Book {
    /// By cache.
    entries: Vec<Vec<(Range<u64>, Rights)>>,
    merged: Vec<u64>,
    now: u64,
    most: u64,
}

impl Book {
    fn new(caches: usize) -> Self {
        Self { entries: vec![Vec::new(); caches], merged: vec![0; caches], now: 0, most: 0 }
    }

    /// A range was registered in a cache, which has given up so many registrations so far.
    fn registered(&mut self, cache: usize, range: &Registered, merged: u64) {
        let (Some(entries), Some(before)) =
            (self.entries.get_mut(cache), self.merged.get_mut(cache))
        else {
            return;
        };
        let (Range { start, end }, rights) = (range.around(), range.rights);
        // Given up for what does all that they do: they are deregistered when nobody uses them.
        if merged > *before {
            *before = merged;
            let given_up = |(span, had): &mut (Range<u64>, Rights)| {
                let ordering = (rights ^ *had) & Rights::RELAXED_ORDERING;
                start <= span.start
                    && span.end <= end
                    && rights.contains(*had)
                    && ordering.is_empty()
            };
            let given_up = entries.extract_if(.., given_up).map(|(span, _)| span.end - span.start);
            self.now = self.now.saturating_sub(given_up.sum());
        }
        entries.push((start..end, rights));
        self.now = self.now.saturating_add(end - start);
        self.most = self.most.max(self.now);
    }
}

/// Takes buffers of a pool in each domain, that registers the most that was registered at a time.
///
/// # Errors
/// As the memory or the pool refuses.
pub fn pool(script: &Script) -> Result<PoolRun> {
    let device = device()?;
    let mut pools = Vec::with_capacity(script.domains);
    for domain in 0..script.domains {
        let most = usize::try_from(most_bytes(script, domain)).unwrap_or(usize::MAX);
        let most = most.max(PAGE as usize);
        // Never touched, so that its pages do not matter.
        let options = PoolOptions::default().slab(most).floor(most).pages(PageKind::Base);
        pools.push(Pool::new(&Pd::new(&device)?, &options)?);
    }
    let (taken, _) = takes(script, &pools, u64::MAX)?;
    let take_ns = least(|| takes(script, &pools, TIMED).map(|(taken, start)| per(start, taken)))?;
    let slabs = pools.iter().flat_map(Pool::slabs).map(|slab| slab.bytes as u64).collect();
    Ok(PoolRun { slabs, takes: taken, take_ns })
}

/// Takes and gives back, so many at most; how many, and since when.
fn takes(script: &Script, pools: &[Pool], most: u64) -> Result<(u64, Instant)> {
    let mut live: Vec<Option<Slice>> = script.ranges.iter().map(|_| None).collect();
    let (start, mut taken) = (Instant::now(), 0);
    for step in &script.steps {
        let (Some(slot), Some(range)) = (live.get_mut(step.range), script.ranges.get(step.range))
        else {
            continue;
        };
        *slot = None;
        if step.act == Act::Register
            && let Some(pool) = pools.get(range.domain)
        {
            *slot = Some(pool.alloc(usize::try_from(range.len).unwrap_or(usize::MAX))?);
            taken += 1;
            if taken >= most {
                break;
            }
        }
    }
    Ok((taken, start))
}

/// The most bytes that a domain had registered at a time, in whole pages of a buffer each.
fn most_bytes(script: &Script, domain: usize) -> u64 {
    let (mut now, mut most) = (0u64, 0u64);
    for step in &script.steps {
        let range = script.ranges.get(step.range).filter(|range| range.domain == domain);
        let bytes = range.map_or(0, |range| range.len.div_ceil(PAGE).saturating_mul(PAGE));
        now = match step.act {
            Act::Register => now.saturating_add(bytes),
            Act::Deregister => now.saturating_sub(bytes),
        };
        most = most.max(now);
    }
    most
}

/// The least of several passes.
fn least(mut pass: impl FnMut() -> Result<Option<f64>>) -> Result<Option<f64>> {
    let mut least: Option<f64> = None;
    for _ in 0..PASSES {
        let ns = pass()?;
        least = match (least, ns) {
            (Some(least), Some(ns)) => Some(least.min(ns)),
            (least, ns) => least.or(ns),
        };
    }
    Ok(least)
}

fn per(start: Instant, times: u64) -> Option<f64> {
    (times > 0).then(|| start.elapsed().as_secs_f64() * 1e9 / times as f64)
}
