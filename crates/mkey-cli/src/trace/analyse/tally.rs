//! What calls cost, by the place that they were made at.

use super::list::List;
use super::places::{Place, Places};
use super::times::share;
use serde::Serialize;

/// What calls at a place cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SiteCost {
    /// The place.
    pub place: Place,
    /// Calls, or things, that it is about.
    pub calls: u64,
    /// The time that they took.
    pub ns: u64,
    /// That, as a share of the time that the traced processes lived.
    pub share: f64,
    /// The bytes that they were about: in all, the least, the most.
    pub bytes: u64,
    /// See `bytes`.
    pub least_bytes: u64,
    /// See `bytes`.
    pub most_bytes: u64,
}

/// Costs by place.
#[derive(Clone, Debug)]
pub struct Tally {
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    calls: u64,
    ns: u64,
    bytes: u64,
    least: u64,
    most: u64,
}

impl Tally {
    /// None yet.
    pub fn new(places: &Places) -> Self {
        let none = Row { calls: 0, ns: 0, bytes: 0, least: u64::MAX, most: 0 };
        Self { rows: vec![none; places.count()] }
    }

    /// One more at the place of this number.
    pub fn add(&mut self, place: usize, ns: u64, bytes: u64) {
        if let Some(row) = self.rows.get_mut(place) {
            row.calls += 1;
            row.ns = row.ns.saturating_add(ns);
            row.bytes = row.bytes.saturating_add(bytes);
            row.least = row.least.min(bytes);
            row.most = row.most.max(bytes);
        }
    }

    /// How many there were, their time and bytes.
    pub fn total(&self) -> (u64, u64, u64) {
        self.rows.iter().fold((0, 0, 0), |(calls, ns, bytes), row| {
            (calls + row.calls, ns.saturating_add(row.ns), bytes.saturating_add(row.bytes))
        })
    }

    /// The costliest first, as shares of `whole` ns.
    pub fn costliest(&self, places: &Places, whole: u64) -> List<SiteCost> {
        self.sorted(places, whole, |row| (row.ns, row.calls))
    }

    /// Those with the most bytes first.
    pub fn largest(&self, places: &Places, whole: u64) -> List<SiteCost> {
        self.sorted(places, whole, |row| (row.bytes, row.calls))
    }

    fn sorted(
        &self,
        places: &Places,
        whole: u64,
        by: impl Fn(&Row) -> (u64, u64),
    ) -> List<SiteCost> {
        let mut rows: Vec<(usize, &Row)> =
            self.rows.iter().enumerate().filter(|(_, row)| row.calls > 0).collect();
        rows.sort_by(|a, b| by(b.1).cmp(&by(a.1)).then(a.0.cmp(&b.0)));
        List::of(rows).map(|(place, row)| SiteCost {
            place: places.get(place),
            calls: row.calls,
            ns: row.ns,
            share: share(row.ns, whole),
            bytes: row.bytes,
            least_bytes: row.least,
            most_bytes: row.most,
        })
    }
}
