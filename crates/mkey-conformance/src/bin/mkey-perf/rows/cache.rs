//! Row 12: the registration cache, for memory that the library does not own.

use super::Setup;
use crate::measure::{Failed, Sequence, alternate, timed};
use crate::report::{Aim, Line, Unit};
use crate::second::beside_second;
use anyhow::Result;
use mkey::{Access, Cache, CacheError, Device, PageKind, Pd, PinMode, SoftOptions};
use mkey_os::mapping::Mapping;
use std::hint::black_box;

const PAGE: usize = 4096;
const HITS: u64 = 10_000;

/// Row 12: a hit is a get and a put.
pub fn measure(setup: &Setup) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (regions, aim) in [(1, 15.0), (1_000, 15.0), (10_000, 15.0), (100_000, 60.0)] {
        lines.push(random(setup, regions, aim)?);
    }
    lines.push(shared(setup)?);
    Ok(lines)
}

/// A page of memory is a region.
struct Regions {
    cache: Cache,
    memory: Mapping,
}

impl Regions {
    fn new(count: usize) -> Result<Self> {
        // What pinning costs is of no account for hits.
        let options = SoftOptions { pin: PinMode::None, accounting: false, ..Default::default() };
        let device = Device::soft(options)?;
        let cache = Cache::builder(&Pd::new(&device)?).build()?;
        let memory = Mapping::new(count * PAGE, PageKind::Base)?;
        let regions = Self { cache, memory };
        for index in 0..count {
            regions.hit(index)?;
        }
        let stats = regions.cache.stats();
        anyhow::ensure!(stats.registered == count as u64, "{count} regions: {stats:?}");
        Ok(regions)
    }

    /// Get and put.
    #[inline(always)]
    fn hit(&self, index: usize) -> Result<(), CacheError> {
        let at = self.memory.as_ptr().wrapping_add(index * PAGE);
        // SAFETY: within the mapping, which outlives the result; no reference to it exists.
        let cached = unsafe { self.cache.get(at, PAGE, Access::local()) }?;
        black_box(cached.lkey());
        Ok(())
    }
}

fn random(setup: &Setup, count: usize, aim: f64) -> Result<Line> {
    let regions = Regions::new(count)?;
    let mut sequence = Sequence::new(5);
    let failed = Failed::default();
    let mut hit = || {
        let index = sequence.below(count as u64) as usize;
        failed.note(regions.hit(index).map_err(Into::into));
    };
    let mut choice = Sequence::new(5);
    let [hits, bare] = alternate(
        setup.rounds,
        [&mut || timed(HITS, &mut hit), &mut || {
            timed(HITS, || {
                black_box(choice.below(count as u64));
            })
        }],
    );
    failed.check()?;
    let line = Line::new(
        format!("cache hit among {count} regions, at random"),
        Aim::AtMost(aim),
        Unit::Nanoseconds,
        hits.beyond(&bare),
    );
    Ok(line.beside(format!("the choice alone: {:.1} ns", bare.median())))
}

/// Two threads hit one region.
fn shared(setup: &Setup) -> Result<Line> {
    let (work, aim, unit) =
        ("cache hit of two threads on one region", Aim::AtMost(25.0), Unit::Nanoseconds);
    let [here, there, ..] = setup.cpus[..] else {
        let why = "there is one processor".to_owned();
        return Ok(Line::not_measured(work, aim, unit, why));
    };
    let regions = Regions::new(1)?;
    let failed = Failed::default();
    // Errors of the other thread are this one's too, that asks for the same.
    let there_too = || drop(black_box(regions.hit(0)));
    let [two, one] = beside_second(setup.rounds, [here, there], there_too, || {
        timed(HITS, || {
            failed.note(regions.hit(0).map_err(Into::into));
        })
    })?;
    failed.check()?;
    let reference = format!("one: {:.1} ns", one.median());
    Ok(Line::new(work, aim, unit, two.median()).beside(reference))
}
