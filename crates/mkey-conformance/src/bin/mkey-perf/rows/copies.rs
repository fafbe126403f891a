//! Rows 8 and 9: RDMA WRITE between two queue pairs of one process.

use super::Setup;
use crate::measure::{Failed, alternate, timed};
use crate::report::{Aim, Line, Unit};
use crate::station::{Registered, Station, Write, memory};
use anyhow::Result;
use mkey_os::mapping::{Mapping, PageKind};
use std::hint::black_box;
use std::sync::Arc;

/// What a WRITE may take beyond its copy, in nanoseconds.
const BEYOND: f64 = 50.0;
/// Bytes that one round moves, about.
const ROUND: u64 = 4 << 20;

/// Two halves of one mapping, the source and the target.
struct Halves {
    station: Station,
    region: Registered,
    mapping: Arc<Mapping>,
    half: usize,
}

impl Halves {
    fn new(half: usize) -> Result<Self> {
        let station = Station::open()?;
        let mapping = memory(2 * half, PageKind::Base)?;
        let region = station.register(&mapping, 0, 2 * half)?;
        Ok(Self { station, region, mapping, half })
    }

    /// Nanoseconds of a WRITE and of a bare copy of `len` bytes, by median.
    fn measure(&self, setup: &Setup, len: usize) -> Result<(f64, f64)> {
        let Self { station, region, mapping, half } = self;
        let write = Write { from: region.sge(0, len as u32), to: region.remote(*half as u64) };
        let from = [write.from];
        let times = (ROUND / len as u64).clamp(8, 4096);
        let failed = Failed::default();
        let [posted, copied] = alternate(
            setup.rounds,
            [
                &mut || {
                    timed(times, || {
                        let post = station.post(&[write.request(&from)]);
                        failed.note(post.and_then(|()| station.reap(1)));
                    })
                },
                &mut || {
                    timed(times, || {
                        let from = black_box(mapping.as_ptr());
                        // SAFETY: both halves lie in the mapping and do not overlap, `len` is at
                        // most a half, and only this thread uses the bytes.
                        unsafe { from.add(*half).copy_from_nonoverlapping(from, len) };
                        black_box(from);
                    })
                },
            ],
        );
        failed.check()?;
        Ok((posted.median(), copied.median()))
    }
}

/// Row 8.
pub fn latency(setup: &Setup) -> Result<Vec<Line>> {
    let (posted, copied) = Halves::new(4096)?.measure(setup, 8)?;
    let line =
        Line::new("WRITE of 8 B, post + poll", Aim::AtMost(100.0), Unit::Nanoseconds, posted);
    Ok(vec![line.beside(format!("a bare copy: {copied:.1} ns"))])
}

/// Row 9.
pub fn bandwidth(setup: &Setup) -> Result<Vec<Line>> {
    let halves = Halves::new(1 << 20)?;
    let sizes = [("256 B", 256, 70.0), ("4 KiB", 4 << 10, 70.0), ("1 MiB", 1 << 20, 95.0)];
    sizes
        .into_iter()
        .map(|(name, len, least)| {
            let (posted, copied) = halves.measure(setup, len)?;
            let share = 100.0 * (copied + BEYOND) / posted;
            let work = format!("WRITE of {name} against a bare copy + 50 ns");
            let line = Line::new(work, Aim::AtLeast(least), Unit::Percent, share);
            Ok(line.beside(format!("WRITE: {posted:.1} ns, copy: {copied:.1} ns")))
        })
        .collect()
}
