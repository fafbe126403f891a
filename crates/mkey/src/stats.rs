//! Counts and gauges of everything, in one snapshot.

use crate::cache::{Cache, CacheStats};
use crate::device::{Device, DeviceStats};
use crate::fast_mr::{FastMrPool, FastMrStats};
use crate::grant::{GrantStats, Grants};
use crate::pool::{Pool, PoolStats};

/// A snapshot of what a program shows of itself, each object under a name of its choice.
///
/// ```no_run
/// # use mkey::{Device, Pool, Stats};
/// # fn show(device: &Device, blocks: &Pool) {
/// let stats = Stats::default().device(device).pool("blocks", blocks);
/// assert_eq!(stats.pools[0].1.in_use_bytes, 0);
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Devices, by their own names.
    pub devices: Vec<(String, DeviceStats)>,
    /// Pools.
    pub pools: Vec<(String, PoolStats)>,
    /// Caches.
    pub caches: Vec<(String, CacheStats)>,
    /// Pools of fast registrations.
    pub fast_mr_pools: Vec<(String, FastMrStats)>,
    /// Grants of protection domains.
    pub grants: Vec<(String, GrantStats)>,
}

impl Stats {
    /// Adds a device.
    pub fn device(mut self, device: &Device) -> Self {
        self.devices.push((device.name().to_owned(), device.stats()));
        self
    }

    /// Adds a pool.
    pub fn pool(mut self, name: impl Into<String>, pool: &Pool) -> Self {
        self.pools.push((name.into(), pool.stats()));
        self
    }

    /// Adds a cache.
    pub fn cache(mut self, name: impl Into<String>, cache: &Cache) -> Self {
        self.caches.push((name.into(), cache.stats()));
        self
    }

    /// Adds a pool of fast registrations.
    pub fn fast_mr_pool(mut self, name: impl Into<String>, pool: &FastMrPool) -> Self {
        self.fast_mr_pools.push((name.into(), pool.stats()));
        self
    }

    /// Adds the grants of a protection domain.
    pub fn grants(mut self, name: impl Into<String>, grants: &Grants) -> Self {
        self.grants.push((name.into(), grants.stats()));
        self
    }

    /// As OpenMetrics text, for Prometheus and its like: `mkey_pool_in_use_bytes{pool="blocks"}`.
    #[cfg(feature = "metrics")]
    pub fn open_metrics(&self) -> String {
        crate::metrics::text(self)
    }
}
