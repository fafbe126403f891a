//! Row 11: the pool.

use super::Setup;
use crate::measure::{Failed, alternate, timed};
use crate::report::{Aim, Line, Unit};
use anyhow::Result;
use mimalloc::MiMalloc;
use mkey::{Device, Pd, Pool, PoolOptions, SoftOptions};
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;

const IN_FLIGHT: usize = 32;
const BLOCK: usize = 4096;
const PAIRS: u64 = 20_000;

/// Row 11: the oldest of 32 blocks is given back and another one taken.
pub fn measure(setup: &Setup) -> Result<Vec<Line>> {
    let device = Device::soft(SoftOptions::default())?;
    let pool = Pool::new(&Pd::new(&device)?, &PoolOptions::default())?;
    let layout = Layout::from_size_align(BLOCK, BLOCK)?;
    let failed = Failed::default();
    let mut slices = Vec::new();
    for _ in 0..IN_FLIGHT {
        slices.push(Some(pool.alloc(BLOCK)?));
    }
    // SAFETY: the layout is not empty.
    let mut blocks = [(); IN_FLIGHT].map(|()| unsafe { MiMalloc.alloc(layout) });
    let (mut next, mut turn) = (0, 0);
    let registered = device.stats().registrations;
    let [ours, theirs] = alternate(
        setup.rounds,
        [
            &mut || {
                timed(PAIRS, || {
                    next = (next + 1) % IN_FLIGHT;
                    if let Some(place) = slices.get_mut(next) {
                        *place = None;
                        *place = failed.note(pool.alloc(black_box(BLOCK)).map_err(Into::into));
                    }
                })
            },
            &mut || {
                timed(PAIRS, || {
                    turn = (turn + 1) % IN_FLIGHT;
                    if let Some(block) = blocks.get_mut(turn) {
                        // SAFETY: it was allocated with this layout, and is not used again.
                        unsafe { MiMalloc.dealloc(*block, layout) };
                        // SAFETY: the layout is not empty.
                        *block = black_box(unsafe { MiMalloc.alloc(layout) });
                    }
                })
            },
        ],
    );
    failed.check()?;
    for block in blocks {
        // SAFETY: it was allocated with this layout, and is not used again.
        unsafe { MiMalloc.dealloc(block, layout) };
    }
    let registrations = device.stats().registrations - registered;
    let reference = format!("mimalloc: {:.1} ns", theirs.median());
    let pair = "pool allocate + free, 4 KiB, 32 in flight";
    Ok(vec![
        Line::new(pair, Aim::AtMost(20.0), Unit::Nanoseconds, ours.median()).beside(reference),
        Line::new("the same against mimalloc", Aim::AtMost(1.0), Unit::Times, ours.over(&theirs)),
        Line::new("registrations meanwhile", Aim::AtMost(0.0), Unit::Count, registrations as f64),
    ])
}
