//! Counters of on-demand memory, which drivers keep by region and forget with it.

use mkey_os::rdma_netlink::{NetlinkError, mr_counters};
use mkey_trace::format::Counter;
use std::collections::{BTreeMap, VecDeque};

/// Regions that are asked for: those that came last.
const MOST: usize = 16;
/// Between two times that the kernel is asked, ns.
const EVERY: u64 = 1_000_000_000;

/// What was counted so far.
#[derive(Debug, Default)]
pub struct OnDemand {
    /// The device and the local key.
    regions: VecDeque<(String, u32)>,
    /// By region and name: the last that was told.
    counted: BTreeMap<(String, u32, String), u64>,
    next: u64,
    /// The kernel does not tell.
    off: bool,
}

impl OnDemand {
    /// A region that was registered.
    pub fn add(&mut self, device: String, lkey: u32) {
        if self.regions.len() >= MOST {
            self.regions.pop_front();
        }
        self.regions.push_back((device, lkey));
        // What faults first is the most of it.
        self.next = 0;
    }

    /// Asks for them, if it is time to.
    pub fn look(&mut self, now: u64) {
        if self.off || self.regions.is_empty() || now < self.next {
            return;
        }
        self.next = now.saturating_add(EVERY);
        let mut off = false;
        let counted = &mut self.counted;
        self.regions.retain(|(device, lkey)| match mr_counters(device, *lkey) {
            Ok(counters) => {
                for counter in counters {
                    counted.insert((device.clone(), *lkey, counter.name), counter.value);
                }
                true
            }
            // It is deregistered.
            Err(NetlinkError::NoRegion { .. } | NetlinkError::NoDevice { .. }) => false,
            Err(_) => {
                off = true;
                false
            }
        });
        self.off = off;
    }

    /// By device and name.
    pub fn counters(&self) -> Vec<Counter> {
        let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for ((device, _, name), value) in &self.counted {
            let sum = sums.entry((device, name)).or_default();
            *sum = sum.saturating_add(*value);
        }
        let moved = sums.into_iter().filter(|(_, after)| *after > 0);
        let counter = |((device, name), after): ((&str, &str), u64)| Counter {
            device: device.to_owned(),
            name: name.to_owned(),
            before: 0,
            after,
        };
        moved.map(counter).collect()
    }
}
