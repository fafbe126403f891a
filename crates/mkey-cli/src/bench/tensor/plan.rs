//! All rows: sizes one after the other, each with all strategies.

use super::args::{Name, TensorArgs};
use super::link::{Link, landing};
use super::report::{Figures, Push, Row};
use super::strategy::{self, Ground, Pair};
use crate::bench::arena::Arena;
use crate::bench::error::{Result, RowError};
use crate::bench::measure::{median, nanoseconds};
use crate::bench::memory::{self, Bounds};
use crate::bench::plan::reserve;
use crate::bench::progress::Progress;
use crate::bench::report::{Missing, Outcome};
use crate::bench::stop::Stop;
use crate::bench::units::size;
use mkey::{Device, PageKind};
use std::sync::Arc;

/// What all rows share.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The device.
    pub device: &'a Device,
    /// What is asked.
    pub args: &'a TensorArgs,
    /// What bounds the memory.
    pub bounds: Bounds,
    /// Asked at safe points.
    pub stop: &'a Stop,
    /// Told how far the run is.
    pub progress: &'a Progress,
}

/// Measures all rows.
///
/// # Errors
/// `Stopped`; whatever else keeps a row from being measured stands in the row.
pub fn measure(plan: &Plan<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for bytes in plan.args.sizes.0.iter().copied() {
        let mut arena: Option<Arc<Arena>> = None;
        for name in plan.args.strategies() {
            plan.stop.check()?;
            plan.progress.row(rows.len(), &format!("{} of {}", name.title(), size(bytes)));
            let outcome = match too_much(plan, name, bytes) {
                Some(missing) => Err(RowError::Missing(missing)),
                None => row(plan, name, bytes, &mut arena),
            };
            let outcome = match outcome {
                Ok(figures) => Outcome::Measured(Box::new(figures)),
                Err(RowError::Stopped(signal)) => return Err(RowError::Stopped(signal)),
                Err(error) => Outcome::NotMeasured(error.missing()),
            };
            rows.push(Row {
                id: name.id().to_owned(),
                strategy: name.title().to_owned(),
                bytes,
                simulated: !plan.args.command_cost.is_zero() && outcome.figures().is_some(),
                outcome,
            });
        }
    }
    Ok(rows)
}

/// Why a buffer of this size does not fit, beside the peer's memory.
fn too_much(plan: &Plan<'_>, name: Name, bytes: u64) -> Option<Missing> {
    let all = bytes.saturating_add(landing(plan.args.chunk));
    let on_demand = Bounds { lockable: None, ..plan.bounds };
    let fit = memory::fit(all, if name.pins() { &plan.bounds } else { &on_demand });
    if let Some(unpinnable) = fit.unpinnable {
        return Some(unpinnable);
    }
    let limit = fit.limits.into_iter().next_back()?;
    // The limit tells what would be registered instead, which is nothing here.
    let why = limit.what.split_once(": ").map_or(limit.what.as_str(), |(why, _)| why);
    let what = format!("{} are needed, and {why}", size(all));
    Some(Missing::new(what, limit.command))
}

fn row(plan: &Plan<'_>, name: Name, bytes: u64, arena: &mut Option<Arc<Arena>>) -> Result<Figures> {
    let mut link = Link::connect(plan.device, plan.args.chunk)?;
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut ground = Ground { link: &mut link, bytes: len, turn: 0, stop: plan.stop };
    let mut pairs = Vec::with_capacity(plan.args.iterations as usize);
    let (mut pages, mut smaller) = (PageKind::Base, None);
    if name == Name::Pool {
        // Both at a time would be twice the memory.
        *arena = None;
        let wanted = !plan.args.no_reserve;
        let reserved = if wanted { reserve(bytes, PageKind::Huge2M) } else { Ok(None) };
        for _ in 0..plan.args.iterations {
            plan.stop.check()?;
            let (pair, kind) = ground.pool()?;
            pages = kind;
            pairs.push(pair);
        }
        smaller = reserved.err().filter(|_| !pages.is_hugetlb());
    } else {
        if arena.is_none() {
            plan.progress.step("the buffer");
            *arena = Some(strategy::application(len)?);
        }
        for _ in 0..plan.args.iterations {
            plan.stop.check()?;
            if let Some(arena) = arena {
                pairs.push(ground.pair(name, arena)?);
            }
        }
    }
    Ok(Figures {
        pages: pages.to_string(),
        cold: summary(bytes, pairs.iter().map(|pair| pair.cold)),
        warm: summary(bytes, pairs.iter().map(|pair| pair.warm)),
        faults: middle_faults(&pairs),
        smaller_pages: smaller,
    })
}

fn summary(bytes: u64, pushes: impl Iterator<Item = strategy::Push> + Clone) -> Push {
    let of = |figure: fn(&strategy::Push) -> f64| {
        median(&mut pushes.clone().map(|push| figure(&push)).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let total_ns = of(|push| nanoseconds(push.total) as f64);
    Push {
        total_ns,
        registration_ns: of(|push| nanoseconds(push.registration) as f64),
        registration_percent: of(|push| {
            let share = push.registration.as_secs_f64() / push.total.as_secs_f64().max(1e-12);
            share * 100.0
        }),
        bytes_per_second: bytes as f64 / (total_ns / 1e9).max(1e-12),
    }
}

fn middle_faults(pairs: &[Pair]) -> Option<u64> {
    let mut faults: Vec<f64> = pairs.iter().filter_map(|pair| Some(pair.faults? as f64)).collect();
    median(&mut faults).map(|faults| faults as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn shares_are_of_the_same_push() {
        let push = |registration, total| strategy::Push {
            total: Duration::from_millis(total),
            registration: Duration::from_millis(registration),
        };
        let pushes = [push(10, 100), push(90, 100), push(30, 200)];
        let push = summary(1 << 20, pushes.into_iter());
        assert_eq!((push.total_ns, push.registration_ns), (100e6, 30e6));
        assert!((push.registration_percent - 15.0).abs() < 1e-9, "{push:?}");
        assert!((push.bytes_per_second - 1_048_576.0 / 0.1).abs() < 1.0, "{push:?}");
        assert_eq!(summary(1, std::iter::empty()).total_ns, 0.0);
    }
}
