//! A snapshot as OpenMetrics text.

use crate::cache::CacheStats;
use crate::device::DeviceStats;
use crate::fast_mr::FastMrStats;
use crate::grant::GrantStats;
use crate::pool::PoolStats;
use crate::stats::Stats;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// What a figure is.
#[derive(Clone, Copy)]
enum Kind {
    /// Goes up for ever.
    Counter,
    /// Of now.
    Gauge,
    /// Of now, in bytes.
    Bytes,
}

/// A figure of an object of type `S`.
struct Figure<S> {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    of: fn(&S) -> f64,
}

/// The figures of a type, by field: no field without a line, as the pattern names all.
macro_rules! figures {
    ($table:ident: $stats:ident { $($field:ident: $kind:ident $help:literal,)* }) => {
        const $table: &[Figure<$stats>] = &[$(Figure {
            name: stringify!($field),
            help: $help,
            kind: Kind::$kind,
            of: |stats| stats.$field as f64,
        },)*];

        const _: fn($stats) = |$stats { $($field: _,)* }| ();
    };
}

figures! { DEVICE: DeviceStats {
    registrations: Counter "Memory regions registered",
    deregistrations: Counter "Memory regions deregistered",
    registered_bytes: Bytes "Registered now",
    failed_drops: Counter "Objects that the device refused to free",
    kept: Gauge "Registrations kept because the device would not end them",
    kept_bytes: Bytes "Memory of registrations that the device would not end",
} }

figures! { POOL: PoolStats {
    registered_bytes: Bytes "Registered",
    in_use_bytes: Bytes "Handed out",
    resting_bytes: Bytes "Free, in the magazines of threads",
    high_water_bytes: Bytes "The most handed out or resting at a time",
    slabs: Gauge "Registered slabs",
    allocations: Counter "Allocations that succeeded",
    fast_allocations: Counter "Allocations without a lock",
    waits: Counter "Allocations that had to wait",
    failures: Counter "Allocations that failed",
    waiting: Gauge "Requests waiting",
    largest_free_bytes: Bytes "The largest free block",
    fragmentation: Gauge "1 - largest free block / free bytes",
    grows: Counter "Slabs registered",
    shrinks: Counter "Slabs deregistered",
} }

figures! { CACHE: CacheStats {
    gets: Counter "Requests",
    fast_hits: Counter "Requests served without a lock",
    slow_hits: Counter "Requests served from the shared index",
    misses: Counter "Requests that went to register",
    waits: Counter "Requests that waited for another thread's registration",
    negative_hits: Counter "Requests answered with a remembered failure",
    refused: Counter "Requests refused by a limit or an error",
    merged: Counter "Registrations given up for a later, larger one",
    evictions: Counter "Registrations given up to make room",
    events: Counter "Unmap events, by range",
    invalidated_by_events: Counter "Registrations ended by unmap events",
    invalidated_explicitly: Counter "Registrations ended by invalidate and flush",
    unwatched: Counter "Registrations of memory that reports no events",
    registrations: Counter "Registrations made",
    failures: Counter "Registrations refused by the device",
    deregistrations: Counter "Deregistrations done",
    registered: Gauge "Registrations",
    registered_bytes: Bytes "Registered",
    invalid_in_use: Gauge "Registrations that ended and are in use still",
    invalid_in_use_bytes: Bytes "Memory of registrations that ended and are in use still",
    queued: Gauge "Unmap events not yet applied, by range",
    queued_bytes: Bytes "Memory of unmap events not yet applied",
    queue_widened_bytes: Bytes "Invalidated beyond what events named",
} }

figures! { FAST_MR: FastMrStats {
    allocated: Gauge "Fast registrations at the device",
    in_use: Gauge "Prepared, mapped, or ending",
    most_in_use: Gauge "The most in use at a time",
    entries: Gauge "Slices that one takes",
    mapped: Counter "Mappings begun",
    released: Counter "Mappings ended by this side",
    released_by_peer: Counter "Mappings ended by the peer",
    timed_out: Counter "Mappings ended by freeing, as no confirmation came",
    lost: Counter "Freed as their end was in doubt",
    flushed: Counter "Flushed with their queue pair",
    kept: Gauge "Not freed by the device",
    renewed: Counter "Replaced, as their key had no variant left",
    waits: Counter "Waits for an idle one",
    exhausted: Counter "Refused as all were in use",
} }

figures! { GRANTS: GrantStats {
    allocated: Gauge "Windows at the device",
    in_use: Gauge "Prepared, live, or ending",
    most_in_use: Gauge "The most in use at a time",
    binds: Counter "Grants begun",
    revoked: Counter "Grants ended by this side",
    revoked_by_peer: Counter "Grants ended by the peer",
    timed_out: Counter "Grants ended by freeing the window, as no confirmation came",
    lost: Counter "Windows freed as their end was in doubt",
    kept: Gauge "Windows that the device would not free",
    renewed: Counter "Windows replaced, as their key had no variant left",
    waits: Counter "Waits for a window",
    exhausted: Counter "Refused as all windows were in use",
} }

pub(crate) fn text(stats: &Stats) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collector(stats.clone())));
    let mut text = String::new();
    // A string takes all that is written to it.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Collector(Stats);

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode(&mut encoder, "device", &self.0.devices, DEVICE)?;
        encode(&mut encoder, "pool", &self.0.pools, POOL)?;
        encode(&mut encoder, "cache", &self.0.caches, CACHE)?;
        encode(&mut encoder, "fast_mr", &self.0.fast_mr_pools, FAST_MR)?;
        encode(&mut encoder, "grants", &self.0.grants, GRANTS)
    }
}

/// One family a figure, one line an object.
fn encode<S>(
    encoder: &mut DescriptorEncoder<'_>,
    what: &str,
    objects: &[(String, S)],
    figures: &[Figure<S>],
) -> fmt::Result {
    for figure in figures.iter().filter(|_| !objects.is_empty()) {
        let (kind, unit) = match figure.kind {
            Kind::Counter => (prometheus_client::metrics::MetricType::Counter, None),
            Kind::Gauge => (prometheus_client::metrics::MetricType::Gauge, None),
            Kind::Bytes => (prometheus_client::metrics::MetricType::Gauge, Some(&Unit::Bytes)),
        };
        let stem = figure.name.strip_suffix("_bytes").unwrap_or(figure.name);
        let name = format!("mkey_{what}_{stem}");
        let mut family = encoder.encode_descriptor(&name, figure.help, unit, kind)?;
        for (label, stats) in objects {
            let labels = [(what, label.as_str())];
            let line = family.encode_family(&labels)?;
            let value = (figure.of)(stats);
            match figure.kind {
                Kind::Counter => ConstCounter::new(value).encode(line)?,
                Kind::Gauge | Kind::Bytes => ConstGauge::new(value).encode(line)?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_has_a_line_under_its_name() {
        let pool =
            |in_use_bytes| PoolStats { in_use_bytes, allocations: 7, ..PoolStats::default() };
        let stats = Stats {
            pools: vec![("a".to_owned(), pool(4096)), ("b\"".to_owned(), pool(0))],
            caches: vec![(
                "c".to_owned(),
                CacheStats { registered_bytes: 5, ..Default::default() },
            )],
            ..Stats::default()
        };
        let text = text(&stats);
        for line in [
            "# TYPE mkey_pool_in_use_bytes gauge",
            "# UNIT mkey_pool_in_use_bytes bytes",
            "mkey_pool_in_use_bytes{pool=\"a\"} 4096.0",
            "mkey_pool_in_use_bytes{pool=\"b\\\"\"} 0.0",
            "mkey_pool_allocations_total{pool=\"a\"} 7.0",
            "mkey_cache_registered_bytes{cache=\"c\"} 5.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("mkey_device") && text.ends_with("# EOF\n"), "{text}");
    }
}
