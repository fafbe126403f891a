//! The discipline of measuring: samples, batches, budgets, clocks.
//!
//! Nothing is subtracted from a reading. Where one operation is too short for the clock, several
//! are timed together and the sample is their mean; the batch is in the output.

use super::report::Summary;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Times taken of one operation.
#[derive(Clone, Debug)]
pub struct Samples {
    /// Nanoseconds of a whole batch.
    histogram: Option<Histogram<u64>>,
    batch: u32,
}

impl Samples {
    /// Samples of `batch` operations each.
    pub fn new(batch: u32) -> Self {
        // Three digits is a legal precision; if it were not, there would be no summary.
        Self { histogram: Histogram::new(3).ok(), batch: batch.max(1) }
    }

    /// Adds a sample: the time of one batch.
    pub fn record(&mut self, time: Duration) {
        self.record_ns(nanoseconds(time));
    }

    /// Adds a sample in nanoseconds.
    pub fn record_ns(&mut self, ns: u64) {
        if let Some(histogram) = &mut self.histogram {
            // Grows as needed; a value that still does not fit is centuries.
            let _ = histogram.record(ns);
        }
    }

    /// The time per operation; `None` without samples.
    pub fn summary(&self) -> Option<Summary> {
        let histogram = self.histogram.as_ref().filter(|h| !h.is_empty())?;
        let per_operation = |quantile| {
            let ns = histogram.value_at_quantile(quantile) as f64 / f64::from(self.batch);
            (ns * 1000.0).round() / 1000.0
        };
        Some(Summary {
            median_ns: per_operation(0.5),
            p99_ns: per_operation(0.99),
            samples: histogram.len(),
            batch: self.batch,
        })
    }
}

/// The median of a few values; `None` without any.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get((values.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

/// Nanoseconds of a duration; what does not fit is the largest.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What two readings of the clock in a row cost: median of many.
pub fn clock_cost() -> Duration {
    let mut samples = Samples::new(16);
    for _ in 0..1001 {
        let start = Instant::now();
        for _ in 0..15 {
            std::hint::black_box(Instant::now());
        }
        samples.record(start.elapsed());
    }
    let ns = samples.summary().map_or(0.0, |s| s.median_ns);
    Duration::from_nanos(ns.ceil() as u64)
}

/// How many operations of about `one` to time together so that the clock's own cost stays below
/// 2 %: a power of two, at most 1024.
pub fn batch_for(one: Duration, clock: Duration) -> u32 {
    let enough = clock.saturating_mul(50);
    let mut batch = 1;
    while batch < 1024 && one.saturating_mul(batch) < enough {
        batch *= 2;
    }
    batch
}

/// CPU time of all threads of this process so far.
pub fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// How long to go on: at least `least` times, at most `most`, else until the time is used up.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    until: Instant,
    least: u64,
    most: u64,
}

impl Budget {
    /// From now on for `time`.
    pub fn new(time: Duration, least: u64, most: u64) -> Self {
        let now = Instant::now();
        Self { until: now.checked_add(time).unwrap_or(now), least, most }
    }

    /// Whether to go on after `done` times.
    pub fn more(&self, done: u64) -> bool {
        done < self.least || (done < self.most && Instant::now() < self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_known_samples() {
        let mut samples = Samples::new(1);
        assert_eq!(samples.summary(), None);
        for ns in 1..=1000 {
            samples.record(Duration::from_nanos(ns));
        }
        let summary = samples.summary().unwrap();
        assert_eq!((summary.median_ns, summary.p99_ns, summary.samples), (500.0, 990.0, 1000));
    }

    #[test]
    fn a_batch_divides() {
        let mut samples = Samples::new(16);
        samples.record(Duration::from_nanos(160));
        let summary = samples.summary().unwrap();
        assert_eq!((summary.median_ns, summary.p99_ns, summary.batch), (10.0, 10.0, 16));
    }

    #[test]
    fn three_digits_are_kept() {
        let mut samples = Samples::new(1);
        samples.record(Duration::from_nanos(18_012_345));
        let median = samples.summary().unwrap().median_ns;
        assert!((median / 18_012_345.0 - 1.0).abs() < 0.001, "{median}");
    }

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn batches_outweigh_the_clock() {
        let clock = Duration::from_nanos(25);
        assert_eq!(batch_for(Duration::from_nanos(1250), clock), 1);
        assert_eq!(batch_for(Duration::from_nanos(100), clock), 16);
        assert_eq!(batch_for(Duration::ZERO, clock), 1024);
        assert_eq!(batch_for(Duration::from_nanos(1), Duration::ZERO), 1);
    }

    #[test]
    fn a_budget_gives_the_least_and_no_more_than_the_most() {
        let spent = Budget::new(Duration::ZERO, 2, 5);
        assert!(spent.more(0) && spent.more(1) && !spent.more(2));
        let ample = Budget::new(Duration::from_secs(3600), 2, 5);
        assert!(ample.more(4) && !ample.more(5));
    }

    #[test]
    fn clocks_move() {
        assert!(clock_cost() > Duration::ZERO);
        let before = cpu_time();
        let mut sum = 0u64;
        while cpu_time() == before {
            sum = std::hint::black_box(sum + 1);
        }
    }
}
