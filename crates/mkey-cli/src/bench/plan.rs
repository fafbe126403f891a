//! The rows in the order of the table, the order they are measured in, and the time each gets.

use super::error::{Result, RowError};
use super::mend;
use super::report::{Figures, Missing, Outcome, Row};
use super::rows::grant::{self, Mechanism};
use super::rows::on_demand::{self, Pages};
use super::rows::{Context, per_io, pool, region};
use mkey_core::data_plane::DataPlane;
use mkey_os::hugepages::{self, Reservation};
use mkey_os::mapping::PageKind;
use std::time::Duration;

/// What a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// One region on pages of one kind.
    Region(PageKind),
    /// A region for each I/O.
    PerIo,
    /// A copy through a registered pool.
    Pool,
    /// A grant for each I/O.
    Grant(Mechanism),
    /// On-demand paging.
    OnDemand(Pages),
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// A stable name for programs.
    pub id: &'static str,
    /// The name for people.
    pub name: &'static str,
    /// What it measures.
    pub strategy: Strategy,
    /// Its share of the time.
    pub share: u32,
}

/// The rows, in the order of the table.
pub const ROWS: &[Planned] = &[
    planned("mr-4k", "MR", Strategy::Region(PageKind::Base), 14),
    planned("mr-thp", "MR", Strategy::Region(PageKind::Thp), 12),
    planned("mr-2m", "MR", Strategy::Region(PageKind::Huge2M), 10),
    planned("mr-1g", "MR", Strategy::Region(PageKind::Huge1G), 8),
    planned("mr-per-io", "MR for each I/O", Strategy::PerIo, 8),
    planned("pool-copy", "copy through a pool", Strategy::Pool, 8),
    planned("frmr-pool", "FRMR pool", Strategy::Grant(Mechanism::FastMr), 8),
    planned("mw-type2", "MW type 2", Strategy::Grant(Mechanism::Window), 8),
    planned("odp-first-touch", "ODP, first touch", Strategy::OnDemand(Pages::FirstTouch), 8),
    planned("odp-warm", "ODP, warm", Strategy::OnDemand(Pages::Warm), 8),
    planned("odp-prefetch", "ODP, prefetched", Strategy::OnDemand(Pages::Prefetched), 8),
];

const fn planned(id: &'static str, name: &'static str, strategy: Strategy, share: u32) -> Planned {
    Planned { id, name, strategy, share }
}

/// Rows that need the same huge pages, one group after another: pages are reserved for a group and
/// given back before the next, so that no two reservations stand at once. The largest come first:
/// memory is least fragmented then.
const GROUPS: [Option<PageKind>; 3] = [Some(PageKind::Huge1G), Some(PageKind::Huge2M), None];

impl Strategy {
    /// The huge pages that it wants.
    fn pages(self) -> Option<PageKind> {
        match self {
            Self::Region(kind) => Some(kind).filter(|kind| kind.is_hugetlb()),
            Self::Pool | Self::Grant(_) => Some(PageKind::Huge2M),
            Self::PerIo | Self::OnDemand(_) => None,
        }
    }

    fn pins(self) -> bool {
        !matches!(self, Self::OnDemand(_))
    }
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// For all rows.
    pub time: Duration,
    /// Whether huge pages may be reserved.
    pub reserve: bool,
    /// Whether registrations hold a declared device command.
    pub simulated: bool,
    /// What keeps the memory below what was asked for.
    pub limit: Option<Missing>,
    /// Why nothing of use may be pinned.
    pub unpinnable: Option<Missing>,
}

/// Measures all rows.
///
/// # Errors
/// `Stopped`; whatever else keeps a row from being measured stands in the row.
pub fn measure<D: DataPlane>(context: &Context<'_, D>, options: &Options) -> Result<Vec<Row>> {
    let mut measured: Vec<(usize, Row)> = Vec::with_capacity(ROWS.len());
    for group in GROUPS {
        let rows = ROWS.iter().enumerate().filter(|(_, row)| row.strategy.pages() == group);
        let wanted = group.filter(|_| options.reserve && options.unpinnable.is_none());
        // Held until the group is done; dropped on every way out of here.
        let reserved = wanted.map_or(Ok(None), |kind| reserve(context.memory, kind));
        for (place, planned) in rows {
            context.stop.check()?;
            context.progress.row(measured.len(), planned.name);
            let refused = reserved.as_ref().err();
            measured.push((place, measure_row(context, options, planned, refused)?));
        }
    }
    measured.sort_unstable_by_key(|(place, _)| *place);
    Ok(measured.into_iter().map(|(_, row)| row).collect())
}

/// Reserves the pages of `kind` that are missing for `bytes`; `None`: there are enough.
///
/// # Errors
/// Why they can not be had, and the command that would mend it.
pub fn reserve(bytes: u64, kind: PageKind) -> std::result::Result<Option<Reservation>, Missing> {
    let needed = bytes.div_ceil(kind.size() as u64);
    if bytes < kind.size() as u64 {
        return Ok(None);
    }
    let free = hugepages::pool(kind.size()).map_or(0, |pool| pool.available());
    match needed.checked_sub(free).filter(|more| *more > 0) {
        None => Ok(None),
        Some(more) => hugepages::reserve(kind.size(), more)
            .map(Some)
            .map_err(|error| mend::reserve(kind, needed, free, &error)),
    }
}

fn measure_row<D: DataPlane>(
    context: &Context<'_, D>,
    options: &Options,
    planned: &Planned,
    refused: Option<&Missing>,
) -> Result<Row> {
    let time = options.time * planned.share / 100;
    let unpinnable = options.unpinnable.as_ref().filter(|_| planned.strategy.pins());
    let (page, outcome) = match unpinnable {
        Some(missing) => (first_page(planned.strategy), Err(RowError::Missing(missing.clone()))),
        None => by_strategy(context, options, planned.strategy, refused, time),
    };
    let outcome = match outcome {
        Ok(figures) => Outcome::Measured(Box::new(figures)),
        Err(RowError::Stopped(signal)) => return Err(RowError::Stopped(signal)),
        Err(error) => Outcome::NotMeasured(error.missing()),
    };
    Ok(Row {
        id: planned.id.to_owned(),
        strategy: planned.name.to_owned(),
        page: page.to_string(),
        simulated: options.simulated && matches!(outcome, Outcome::Measured(_)),
        outcome,
    })
}

fn first_page(strategy: Strategy) -> PageKind {
    match strategy {
        Strategy::Region(kind) => kind,
        _ => PageKind::Base,
    }
}

fn by_strategy<D: DataPlane>(
    context: &Context<'_, D>,
    options: &Options,
    strategy: Strategy,
    refused: Option<&Missing>,
    time: Duration,
) -> (PageKind, Result<Figures>) {
    match strategy {
        Strategy::Region(kind) if kind.size() as u64 > context.memory => {
            (kind, Err(RowError::Missing(too_large(kind, context.memory, options))))
        }
        Strategy::Region(kind) => {
            let refused = refused.cloned().map(RowError::Missing);
            (kind, refused.map_or_else(|| region::measure(context, kind, time), Err))
        }
        Strategy::PerIo => (PageKind::Base, per_io::measure(context, time)),
        Strategy::OnDemand(pages) => (PageKind::Base, on_demand::measure(context, pages, time)),
        Strategy::Pool => best(refused, |kind| pool::measure(context, kind, time)),
        Strategy::Grant(mechanism) => {
            best(refused, |kind| grant::measure(context, mechanism, kind, time))
        }
    }
}

/// Why a page is not used that holds more than is registered.
fn too_large(kind: PageKind, memory: u64, options: &Options) -> Missing {
    let more = || {
        format!("mkey bench --memory {}", super::units::size(kind.size() as u64).replace(' ', ""))
    };
    let command = match &options.limit {
        Some(limit) => limit.command.clone(),
        None => Some(more()),
    };
    let registered = super::units::size(memory);
    Missing::new(format!("a page of {kind} is larger than the {registered} registered"), command)
}

/// On the largest pages that can be had: 2 MiB, transparent, 4 KiB.
fn best(
    refused: Option<&Missing>,
    measure: impl Fn(PageKind) -> Result<Figures>,
) -> (PageKind, Result<Figures>) {
    if refused.is_none() {
        match measure(PageKind::Huge2M) {
            Err(RowError::Missing(_)) => {}
            other => return (PageKind::Huge2M, other),
        }
    }
    match measure(PageKind::Thp) {
        Err(RowError::Missing(_)) => (PageKind::Base, measure(PageKind::Base)),
        other => (PageKind::Thp, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn shares_add_up_and_ids_differ() {
        assert_eq!(ROWS.iter().map(|row| row.share).sum::<u32>(), 100);
        let ids: BTreeSet<_> = ROWS.iter().map(|row| row.id).collect();
        assert_eq!(ids.len(), ROWS.len());
    }

    #[test]
    fn every_row_is_in_one_group() {
        for row in ROWS {
            let groups = GROUPS.iter().filter(|group| **group == row.strategy.pages());
            assert_eq!(groups.count(), 1, "{}", row.id);
        }
    }

    #[test]
    fn smaller_pages_follow_where_larger_are_missing() {
        let only = |has: PageKind| {
            move |kind| {
                if kind == has {
                    Ok(Figures::default())
                } else {
                    Err(RowError::Missing(Missing::plain("none")))
                }
            }
        };
        for kind in [PageKind::Huge2M, PageKind::Thp, PageKind::Base] {
            let (got, outcome) = best(None, only(kind));
            assert_eq!(got, kind);
            assert!(outcome.is_ok());
        }
        let refused = Missing::plain("not allowed");
        assert!(best(Some(&refused), only(PageKind::Huge2M)).1.is_err());
    }
}
