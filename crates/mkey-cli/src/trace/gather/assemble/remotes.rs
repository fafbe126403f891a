//! Whose the keys are that requests named.

use mkey_trace::format::{Recording, Remote};
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// Keys that were granted, and those that were named.
#[derive(Debug, Default)]
pub struct Remotes {
    /// By remote key: what a peer names as its addresses, and the region.
    granted: HashMap<u32, Vec<(RangeInclusive<u64>, u32)>>,
    /// The lowest address named and the highest.
    named: Vec<(RangeInclusive<u64>, Remote)>,
}

impl Remotes {
    /// A region has this remote key, and these addresses for peers.
    pub fn grant(&mut self, rkey: u32, iova: u64, len: u64, region: u32) {
        let last = iova.saturating_add(len);
        self.granted.entry(rkey).or_default().push((iova..=last, region));
    }

    /// Requests named a key, and addresses from the first to the last of `addresses`.
    pub fn name(&mut self, addresses: RangeInclusive<u64>, remote: Remote) {
        self.named.push((addresses, remote));
    }

    /// Adds what was named to a recording: with the region, where there is one alone that fits.
    pub fn resolve(&mut self, recording: &mut Recording) {
        for (addresses, mut remote) in self.named.drain(..) {
            let granted = self.granted.get(&remote.rkey).map_or(&[][..], Vec::as_slice);
            let mut fitting = granted.iter().filter(|(range, _)| {
                range.contains(addresses.start()) && range.contains(addresses.end())
            });
            remote.region = match (fitting.next(), fitting.next()) {
                (Some((_, region)), None) => Some(*region),
                _ => None,
            };
            recording.remotes.push(remote);
        }
    }
}
