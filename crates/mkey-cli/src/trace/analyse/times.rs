//! How long calls took.

use serde::Serialize;

/// How long calls took, nanoseconds. A percentile is the least of the values that so many hundredths of them
/// do not pass: one that was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// How many.
    pub calls: u64,
    /// All of them together.
    pub ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Times {
    /// Of these; their order is not kept.
    pub fn of(values: &mut [u64]) -> Self {
        Self {
            calls: values.len() as u64,
            ns: values.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns)),
            p50_ns: percentile(values, 50),
            p99_ns: percentile(values, 99),
            max_ns: values.iter().copied().max().unwrap_or(0),
        }
    }
}

fn percentile(values: &mut [u64], hundredths: usize) -> u64 {
    let rank = values.len().saturating_mul(hundredths).div_ceil(100);
    match rank.checked_sub(1).filter(|at| *at < values.len()) {
        Some(at) => *values.select_nth_unstable(at).1,
        None => 0,
    }
}

/// A part of a whole, from 0 to 1 where it is one; 0 of nothing.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn of_nothing_is_zeros() {
        assert_eq!(Times::of(&mut []), Times::default());
        assert_eq!((share(1, 0), share(1, 4)), (0.0, 0.25));
    }

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_sorted_list(
            mut values in prop::collection::vec(0u64..1000, 1..300),
        ) {
            let times = Times::of(&mut values);
            values.sort_unstable();
            let naive = |hundredths: usize| {
                *values.iter().find(|v| {
                    values.iter().filter(|other| other <= v).count() * 100 >= values.len() * hundredths
                }).unwrap()
            };
            prop_assert_eq!(times.p50_ns, naive(50));
            prop_assert_eq!(times.p99_ns, naive(99));
            prop_assert_eq!(times.max_ns, *values.last().unwrap());
            prop_assert_eq!(times.ns, values.iter().sum::<u64>());
            prop_assert_eq!(times.calls, values.len() as u64);
        }
    }
}
