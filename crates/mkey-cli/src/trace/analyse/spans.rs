//! Spans of time: how long at least one of them lasted, and how much was there at once.

/// How long at least one of these spans lasted. Their order is not kept.
pub fn union(spans: &mut [(u64, u64)]) -> u64 {
    spans.sort_unstable();
    let (mut sum, mut reached) = (0u64, 0u64);
    for &mut (from, to) in spans {
        sum = sum.saturating_add(to.saturating_sub(from.max(reached)));
        reached = reached.max(to);
    }
    sum
}

/// A step of what is there: when, how much comes, how much goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// When.
    pub at: u64,
    /// Whether it comes: what goes at the same time has gone before.
    pub comes: bool,
    /// How much.
    pub much: u64,
}

/// What was there over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The most at once.
    pub peak: u64,
    /// When that was first.
    pub peak_at: u64,
    /// The most in each bucket of time.
    pub buckets: Vec<u64>,
}

/// What was there over time, in so many buckets of `width` from 0 on; the last one has all that comes later,
/// too. The order of the steps is not kept.
pub fn level(steps: &mut [Step], width: u64, buckets: usize) -> Level {
    steps.sort_unstable();
    let mut level = Level { buckets: vec![0; buckets], ..Level::default() };
    let (mut now, mut bucket) = (0u128, 0usize);
    let width = width.max(1);
    for step in steps {
        let at = usize::try_from(step.at / width).unwrap_or(usize::MAX);
        let at = at.min(buckets.saturating_sub(1));
        // What lasted over the buckets between is the most of each.
        let kept = clipped(now);
        for most in level.buckets.iter_mut().take(at + 1).skip(bucket + 1) {
            *most = kept;
        }
        bucket = bucket.max(at);
        let much = u128::from(step.much);
        now = if step.comes { now + much } else { now.saturating_sub(much) };
        let kept = clipped(now);
        if kept > level.peak {
            (level.peak, level.peak_at) = (kept, step.at);
        }
        if let Some(most) = level.buckets.get_mut(bucket) {
            *most = kept.max(*most);
        }
    }
    for most in level.buckets.iter_mut().skip(bucket + 1) {
        *most = clipped(now);
    }
    level
}

fn clipped(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn touching_spans_count_once() {
        assert_eq!(union(&mut []), 0);
        assert_eq!(union(&mut [(5, 9), (0, 5), (6, 7), (20, 10), (30, 31)]), 10);
    }

    #[test]
    fn what_goes_has_gone_before_what_comes() {
        let mut steps = [
            Step { at: 0, comes: true, much: 4 },
            Step { at: 5, comes: true, much: 4 },
            Step { at: 5, comes: false, much: 4 },
        ];
        assert_eq!(level(&mut steps, 2, 4), Level { peak: 4, peak_at: 0, buckets: vec![4; 4] });
        assert_eq!(level(&mut [], 1, 0), Level::default());
    }

    #[test]
    fn sums_beyond_64_bits_are_clipped() {
        let step = Step { at: 1, comes: true, much: u64::MAX };
        assert_eq!(level(&mut [step, step], 1, 1).peak, u64::MAX);
    }

    proptest! {
        #[test]
        fn unions_are_what_counting_each_instant_gives(
            mut spans in prop::collection::vec((0u64..60, 0u64..60), 0..12),
        ) {
            let naive = (0..60).filter(|t| spans.iter().any(|(from, to)| from <= t && t < to)).count();
            prop_assert_eq!(union(&mut spans), naive as u64);
        }

        #[test]
        fn levels_are_what_counting_at_each_instant_gives(
            regions in prop::collection::vec((0u64..40, 1u64..20, 1u64..9), 0..12), width in 1u64..7,
        ) {
            let mut steps: Vec<Step> = regions.iter().flat_map(|(from, long, much)| [
                Step { at: *from, comes: true, much: *much },
                Step { at: from + long, comes: false, much: *much },
            ]).collect();
            let at = |t: u64| -> u64 {
                regions.iter().filter(|(from, long, _)| (*from..from + long).contains(&t)).map(|r| r.2).sum()
            };
            let buckets = 60u64.div_ceil(width);
            let found = level(&mut steps, width, buckets as usize);
            let peak = (0..60).map(at).max().unwrap();
            prop_assert_eq!(found.peak, peak);
            if peak > 0 {
                prop_assert_eq!(Some(found.peak_at), (0..60).find(|t| at(*t) == peak));
            }
            for (n, most) in found.buckets.iter().enumerate() {
                let from = n as u64 * width;
                // What was there just before a bucket and goes at its first instant is in it for no time.
                let naive = (from..from + width).map(at).max().unwrap();
                let before = from.checked_sub(1).map_or(0, at);
                prop_assert!(*most == naive || (*most == before && before > naive), "{} {}", n, most);
            }
        }
    }
}
