//! Rows 6 and 7: registration with the kernel's pin.

use super::{Setup, confined};
use crate::bare::Pin;
use crate::measure::{Failed, Samples, alternate, once, timed};
use crate::report::{Aim, Line, Unit};
use crate::station::{Registered, Station, memory};
use anyhow::Result;
use mkey_core::device::Device;
use mkey_os::hugepages;
use mkey_os::mapping::{Mapping, PageKind};
use std::sync::Arc;

const GIB: usize = 1 << 30;
const PAGE: usize = 4096;
/// Pairs of a large registration and a bare pin.
const LARGE_PAIRS: usize = 61;
/// Small pairs of one round.
const SMALL_PAIRS: u64 = 500;
/// Regions that live meanwhile, for the row that has some.
const LIVE: usize = 100_000;

/// Row 6.
pub fn large(setup: &Setup) -> Result<Vec<Line>> {
    let small = {
        let work = "beyond the pin, 4 KiB pages";
        let (aim, unit) = (Aim::AtMost(5.0), Unit::Percent);
        match pairs(setup, PageKind::Base) {
            Ok((registered, pinned)) => {
                let beyond = 100.0 * (registered.over(&pinned) - 1.0);
                Line::new(work, aim, unit, beyond).beside(format!(
                    "reg_mr: {:.2} ms, io_uring: {:.2} ms",
                    registered.median() / 1e6,
                    pinned.median() / 1e6
                ))
            }
            Err(error) => Line::not_measured(work, aim, unit, format!("{error:#}")),
        }
    };
    let huge = {
        let work = "beyond the pin, 2 MiB pages";
        let (aim, unit) = (Aim::AtMost(30.0), Unit::Microseconds);
        match on_huge_pages(GIB, || pairs(setup, PageKind::Huge2M)) {
            Ok((registered, pinned)) => {
                Line::new(work, aim, unit, registered.beyond(&pinned) / 1e3).beside(format!(
                    "reg_mr: {:.1} us, io_uring: {:.1} us",
                    registered.median() / 1e3,
                    pinned.median() / 1e3
                ))
            }
            Err(error) => Line::not_measured(work, aim, unit, format!("{error:#}")),
        }
    };
    Ok(vec![small, huge])
}

/// Runs `work` with enough huge pages reserved for `bytes`, and gives them back.
fn on_huge_pages<R>(bytes: usize, work: impl FnOnce() -> Result<R>) -> Result<R> {
    let size = PageKind::Huge2M.size();
    let need = bytes.div_ceil(size) as u64;
    let have = hugepages::pool(size).map_or(0, |pool| pool.available());
    let reserved = match need.saturating_sub(have) {
        0 => None,
        more => Some(hugepages::reserve(size, more).map_err(|error| {
            let mend = error.mend();
            anyhow::Error::new(error).context(format!("no huge pages ({mend})"))
        })?),
    };
    let result = work();
    // Gives the pages back.
    drop(reserved);
    result
}

/// Nanoseconds of registering 1 GiB and of pinning the same memory by the kernel alone, by pair.
fn pairs(setup: &Setup, pages: PageKind) -> Result<(Samples, Samples)> {
    let mapping = memory(GIB, pages)?;
    let station = Station::open()?;
    let pin = Pin::new()?;
    let failed = Failed::default();
    let [registered, pinned] = alternate(
        LARGE_PAIRS.min(setup.rounds),
        [
            &mut || {
                let (time, region) = once(|| station.register(&mapping, 0, GIB));
                failed.note(region);
                time
            },
            &mut || {
                // SAFETY: the mapping outlives this closure, which unpins.
                let (time, result) = once(|| unsafe { pin.pin(mapping.addr(), GIB) });
                failed.note(result.and_then(|()| pin.unpin()));
                time
            },
        ],
    );
    failed.check()?;
    Ok((registered, pinned))
}

/// Measures a registration and its bare pin.
type Case<'a> = dyn Fn() -> Result<(f64, f64)> + 'a;

/// Row 7.
pub fn small(setup: &Setup) -> Result<Vec<Line>> {
    let unit = Unit::Nanoseconds;
    let cases: [(&str, f64, &Case<'_>); 4] = [
        ("4 KiB, not pinned yet", 950.0, &|| fresh(setup)),
        ("the same with 100,000 live regions", 1200.0, &|| with_live(setup)),
        ("the same inside a huge page", 1200.0, &|| {
            on_huge_pages(PageKind::Huge2M.size(), || {
                measure(setup, &memory(PageKind::Huge2M.size(), PageKind::Huge2M)?, 0, &[])
            })
        }),
        ("the same where the span is pinned", 150.0, &|| pinned(setup)),
    ];
    let mut lines: Vec<Line> = cases
        .into_iter()
        .map(|(work, most, case)| match case() {
            Ok((pair, bare)) => Line::new(work, Aim::AtMost(most), unit, pair)
                .beside(format!("a bare pin pair: {bare:.0} ns")),
            Err(error) => Line::not_measured(work, Aim::AtMost(most), unit, format!("{error:#}")),
        })
        .collect();
    lines.push(confined::line());
    Ok(lines)
}

fn fresh(setup: &Setup) -> Result<(f64, f64)> {
    measure(setup, &memory(16 * PAGE, PageKind::Base)?, 0, &[])
}

fn pinned(setup: &Setup) -> Result<(f64, f64)> {
    measure(setup, &memory(512 * PAGE, PageKind::Base)?, 8 * PAGE, &[(0, 512 * PAGE)])
}

fn with_live(setup: &Setup) -> Result<(f64, f64)> {
    let live: Vec<(usize, usize)> = (0..LIVE).map(|page| (page * PAGE, PAGE)).collect();
    measure(setup, &memory((LIVE + 1) * PAGE, PageKind::Base)?, LIVE * PAGE, &live)
}

/// Nanoseconds of registering and deregistering the page at `at`, while regions over `live` live,
/// and of pinning and unpinning it by the kernel alone, in one slot.
fn measure(
    setup: &Setup,
    mapping: &Arc<Mapping>,
    at: usize,
    live: &[(usize, usize)],
) -> Result<(f64, f64)> {
    let station = Station::open()?;
    let regions = live.iter().map(|(at, len)| station.register(mapping, *at, *len));
    let _regions = regions.collect::<Result<Vec<Registered>>>()?;
    let pin = Pin::new()?;
    let failed = Failed::default();
    let spec = station.spec(mapping, at, PAGE)?;
    let [pair, bare] = alternate(
        setup.rounds,
        [
            &mut || {
                timed(SMALL_PAIRS, || {
                    // SAFETY: the mapping outlives the registration, which ends here.
                    let region = unsafe { station.device.reg_mr(station.pd, &spec) };
                    let gone = region.and_then(|region| station.device.dereg_mr(region.handle));
                    failed.note(gone.map_err(anyhow::Error::from));
                })
            },
            &mut || {
                timed(SMALL_PAIRS, || {
                    // SAFETY: the mapping outlives the pin, which ends here.
                    let pinned = unsafe { pin.pin(mapping.addr() + at, PAGE) };
                    failed.note(pinned.and_then(|()| pin.unpin()));
                })
            },
        ],
    );
    failed.check()?;
    Ok((pair.median(), bare.median()))
}
