//! What happened over time: in buckets of one width, at most [`MOST_BUCKETS`] of them.

use super::ground::{Ground, Kind, has_bytes};
use super::spans::{Step, level};
use super::thresholds::MOST_BUCKETS;
use mkey_trace::format::{Recording, Sample};
use serde::Serialize;

/// What happened over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OverTime {
    /// The width of a bucket, ns: 1, 2 or 5 times a power of ten, at least 1 ms.
    pub bucket_ns: u64,
    /// Registrations that began in each.
    pub registrations: Vec<u64>,
    /// Deregistrations that began in each.
    pub deregistrations: Vec<u64>,
    /// Work requests posted in each, as the samples tell; between two samples they are taken as even.
    pub posts: Vec<u64>,
    /// The most bytes registered at once in each.
    pub registered: Vec<u64>,
    /// The most bytes pinned (VmPin) in each, of all processes together, as the samples tell.
    pub pinned: Vec<u64>,
    /// The most bytes registered at once, and when. Bytes that are registered twice count twice; all of the
    /// address space (implicit on-demand) does not count.
    pub peak_registered: u64,
    /// See `peak_registered`.
    pub peak_registered_at: u64,
    /// The most that VmPin was seen at, and when.
    pub peak_pinned: u64,
    /// See `peak_pinned`.
    pub peak_pinned_at: u64,
}

impl OverTime {
    /// Of a recording.
    pub fn of(ground: &Ground<'_>) -> Self {
        let recording = ground.recording;
        let last = last(recording);
        let width = width(last);
        let count =
            usize::try_from((last / width).saturating_add(1).min(MOST_BUCKETS)).unwrap_or(1);
        let mut over = Self {
            bucket_ns: width,
            registrations: vec![0; count],
            deregistrations: vec![0; count],
            posts: vec![0; count],
            ..Self::default()
        };
        let bucket = |at: u64| usize::try_from(at / width).unwrap_or(usize::MAX).min(count - 1);
        for (call, kind) in ground.registration() {
            let of = match kind {
                Kind::Register | Kind::Reregister => &mut over.registrations,
                Kind::Deregister => &mut over.deregistrations,
            };
            if let Some(calls) = of.get_mut(bucket(call.begin)) {
                *calls += 1;
            }
        }
        let mut steps: Vec<Step> = Vec::with_capacity(recording.regions.len() * 2);
        for region in recording.regions.iter().filter(|region| has_bytes(region)) {
            steps.push(Step { at: region.from, comes: true, much: region.len });
            let end = ground.end(region).max(region.from);
            steps.push(Step { at: end, comes: false, much: region.len });
        }
        let registered = level(&mut steps, width, count);
        (over.peak_registered, over.peak_registered_at) = (registered.peak, registered.peak_at);
        over.registered = registered.buckets;
        let samples = by_process(recording);
        let pinned = level(&mut pinned(recording, &samples), width, count);
        (over.peak_pinned, over.peak_pinned_at) = (pinned.peak, pinned.peak_at);
        over.pinned = pinned.buckets;
        for (from, to, posted) in posted(recording, &samples) {
            spread(&mut over.posts, width, from, to, posted);
        }
        over
    }
}

/// The last instant that something is told of.
fn last(recording: &Recording) -> u64 {
    let calls = recording.calls.iter().map(|call| call.begin).max();
    let samples = recording.samples.iter().map(|sample| sample.at).max();
    recording.job.wall.saturating_sub(1).max(calls.unwrap_or(0)).max(samples.unwrap_or(0))
}

/// The least width of buckets with which they are not too many.
fn width(last: u64) -> u64 {
    let mut scale = 1_000_000u64;
    loop {
        for factor in [1, 2, 5] {
            let width = scale.saturating_mul(factor);
            if last / width < MOST_BUCKETS || width == u64::MAX {
                return width;
            }
        }
        scale = scale.saturating_mul(10);
    }
}

/// Samples by process, in order of time.
fn by_process(recording: &Recording) -> Vec<Vec<&Sample>> {
    let mut samples: Vec<Vec<&Sample>> = vec![Vec::new(); recording.processes.len()];
    for sample in &recording.samples {
        let n = (sample.process as usize).checked_sub(1);
        if let Some(of) = n.and_then(|n| samples.get_mut(n)) {
            of.push(sample);
        }
    }
    for of in &mut samples {
        of.sort_by_key(|sample| sample.at);
    }
    samples
}

/// Each sample holds until the next one of its process, the last one until that ends.
fn pinned(recording: &Recording, samples: &[Vec<&Sample>]) -> Vec<Step> {
    let mut steps = Vec::new();
    for (process, samples) in recording.processes.iter().zip(samples) {
        let ended = process.ended.unwrap_or(recording.job.wall);
        for (n, sample) in samples.iter().enumerate() {
            let to = samples.get(n + 1).map_or(ended, |next| next.at).max(sample.at);
            steps.push(Step { at: sample.at, comes: true, much: sample.pinned });
            steps.push(Step { at: to, comes: false, much: sample.pinned });
        }
    }
    steps
}

/// From when to when how many work requests were posted.
fn posted(recording: &Recording, samples: &[Vec<&Sample>]) -> Vec<(u64, u64, u64)> {
    let mut posted = Vec::new();
    for (process, samples) in recording.processes.iter().zip(samples) {
        let (mut at, mut before) = (process.began, 0);
        for sample in samples {
            posted.push((at.min(sample.at), sample.at, sample.posts.saturating_sub(before)));
            (at, before) = (sample.at, before.max(sample.posts));
        }
    }
    posted
}

/// Spreads a count evenly over the buckets between two times, so that their sum is the count.
fn spread(buckets: &mut [u64], width: u64, from: u64, to: u64, count: u64) {
    let Some(last) = buckets.len().checked_sub(1) else { return };
    let index = |at: u64| usize::try_from(at / width).unwrap_or(usize::MAX).min(last);
    let (first, end) = (index(from), index(to));
    let whole = u128::from(to.saturating_sub(from));
    let mut given = 0u64;
    for (n, bucket) in buckets.iter_mut().enumerate().take(end + 1).skip(first) {
        let until = (n as u64 + 1).saturating_mul(width).min(to);
        let share = if n == end || whole == 0 {
            count
        } else {
            let part = u128::from(until.saturating_sub(from)) * u128::from(count) / whole;
            u64::try_from(part).unwrap_or(count)
        };
        *bucket = bucket.saturating_add(share.saturating_sub(given));
        given = given.max(share);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Builder;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn calls_posts_and_bytes_fall_into_their_buckets() {
        let mut builder = Builder::new();
        builder.recording.job.wall = 500_000_000;
        builder.recording.processes[0].ended = Some(500_000_000);
        builder.region(0, 4096, 12_000_000, 1_000_000, 0);
        builder.dereg(31_000_000, 10, 0);
        builder.region(0, 8192, 32_000_000, 1_000_000, 0);
        builder.recording.samples = vec![
            Sample { process: 1, at: 10_000_000, posts: 1000, pinned: 7, ..Sample::default() },
            Sample { process: 1, at: 20_000_000, posts: 1300, pinned: 3, ..Sample::default() },
        ];
        let over = OverTime::of(&Ground::new(&builder.recording));
        assert_eq!((over.bucket_ns, over.posts.len()), (5_000_000, 100));
        assert_eq!((over.registrations[2], over.registrations[6]), (1, 1));
        assert_eq!((over.deregistrations[6], over.registrations.iter().sum::<u64>()), (1, 2));
        assert_eq!(over.posts[..5], [500, 500, 150, 150, 0]);
        assert_eq!(over.registered[1..8], [0, 4096, 4096, 4096, 4096, 8192, 8192]);
        assert_eq!((over.peak_registered, over.peak_registered_at), (8192, 33_000_000));
        assert_eq!(over.pinned[..6], [0, 0, 7, 7, 7, 3]);
        assert_eq!((over.peak_pinned, over.peak_pinned_at), (7, 10_000_000));
    }

    #[test]
    fn all_of_the_address_space_is_no_bytes() {
        let mut builder = Builder::new();
        builder.region(0, u64::MAX, 0, 1, 0).origin = mkey_trace::format::Origin::Implicit;
        assert_eq!(OverTime::of(&Ground::new(&builder.recording)).peak_registered, 0);
    }

    #[test]
    fn nothing_and_all_times_have_buckets() {
        let empty = OverTime::of(&Ground::new(&Recording::default()));
        assert_eq!((empty.bucket_ns, empty.posts), (1_000_000, vec![0]));
        for last in [0, 99_999_999, 100_000_000, u64::MAX / 3, u64::MAX] {
            assert!(last / width(last) < MOST_BUCKETS, "{last}");
        }
        assert_eq!((width(99_999_999), width(100_000_000)), (1_000_000, 2_000_000));
    }

    proptest! {
        #[test]
        fn spreading_keeps_the_sum_and_is_even(
            from in 0u64..100, long in 0u64..100, count in 0u64..1000, width in 1u64..30,
        ) {
            let mut buckets = vec![0; 210];
            spread(&mut buckets, width, from, from + long, count);
            prop_assert_eq!(buckets.iter().sum::<u64>(), count);
            for (n, bucket) in buckets.iter().enumerate() {
                let (a, b) = (n as u64 * width, (n as u64 + 1) * width);
                let overlap = b.min(from + long).saturating_sub(a.max(from));
                if long > 0 {
                    let exact = overlap as f64 * count as f64 / long as f64;
                    prop_assert!((*bucket as f64 - exact).abs() <= 1.0, "{} {} {}", n, bucket, exact);
                }
            }
        }
    }
}
