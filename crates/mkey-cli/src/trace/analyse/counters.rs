//! Counters of the devices that moved: page faults of on-demand memory, and the others.

use mkey_trace::format::{Counter, Recording};
use serde::Serialize;

/// Counters that moved during the job. They count for the whole device: what else ran on it is in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Pages of on-demand memory that were brought in as they were touched.
    pub page_faults: u64,
    /// Pages of on-demand memory that the kernel took away.
    pub page_invalidations: u64,
    /// Pages of on-demand memory that were asked for before.
    pub page_prefetches: u64,
    /// Each counter.
    pub moved: Vec<Moved>,
}

/// A counter that moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// The device.
    pub device: String,
    /// The counter.
    pub name: String,
    /// By how much.
    pub by: u64,
    /// Whether it is about on-demand memory.
    pub on_demand: bool,
}

impl Counters {
    /// Of a recording.
    pub fn of(recording: &Recording) -> Self {
        let mut all = Self::default();
        for Counter { device, name, before, after } in &recording.counters {
            let by = after.saturating_sub(*before);
            let into = on_demand(name, &mut all);
            let on_demand = into.is_some();
            if let Some(sum) = into {
                *sum = sum.saturating_add(by);
            }
            if by > 0 {
                all.moved.push(Moved { device: device.clone(), name: name.clone(), by, on_demand });
            }
        }
        all.moved.sort_by(|a, b| (&a.device, &a.name).cmp(&(&b.device, &b.name)));
        all
    }
}

/// Which sum a counter belongs to: `page_faults`, `page_invalidations`, `page_prefetch` of `rdma statistic show
/// mr`, `num_page_faults` and the like elsewhere.
fn on_demand<'a>(name: &str, all: &'a mut Counters) -> Option<&'a mut u64> {
    if name.contains("page_fault") {
        Some(&mut all.page_faults)
    } else if name.contains("page_invalidation") {
        Some(&mut all.page_invalidations)
    } else if name.contains("prefetch") {
        Some(&mut all.page_prefetches)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_on_demand_memory_are_told_apart() {
        let counter = |device: &str, name: &str, before, after| Counter {
            device: device.to_owned(),
            name: name.to_owned(),
            before,
            after,
        };
        let recording = Recording {
            counters: vec![
                counter("mlx5_0", "page_faults", 3, 10),
                counter("mlx5_1", "num_page_faults", 0, 1),
                counter("mlx5_0", "page_invalidations", 0, 2),
                counter("mlx5_0", "page_prefetch", 0, 4),
                counter("mlx5_0", "out_of_buffer", 0, 5),
                counter("mlx5_0", "went_back", 9, 5),
            ],
            ..Recording::default()
        };
        let all = Counters::of(&recording);
        assert_eq!((all.page_faults, all.page_invalidations, all.page_prefetches), (8, 2, 4));
        assert_eq!(all.moved.len(), 5);
        assert_eq!(all.moved.iter().filter(|moved| moved.on_demand).count(), 4);
    }
}
