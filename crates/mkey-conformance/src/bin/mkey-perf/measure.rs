//! Short rounds, alternated, and their medians.

use anyhow::{Error, Result};
use std::cell::RefCell;
use std::time::Instant;

/// Nanoseconds that one of `iterations` takes.
#[inline(always)]
pub fn timed(iterations: u64, mut iteration: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..iterations {
        iteration();
    }
    start.elapsed().as_nanos() as f64 / iterations as f64
}

/// Nanoseconds that `work` takes, once.
#[inline(always)]
pub fn once<R>(work: impl FnOnce() -> R) -> (f64, R) {
    let start = Instant::now();
    let result = work();
    (start.elapsed().as_nanos() as f64, result)
}

/// Runs all of `works` in turn, `rounds` times, after a round that does not count; each gives a
/// figure a round. The figures, by work.
pub fn alternate<const N: usize>(
    rounds: usize,
    mut works: [&mut dyn FnMut() -> f64; N],
) -> [Samples; N] {
    let mut samples = [const { Samples(Vec::new()) }; N];
    for round in 0..=rounds {
        for (work, samples) in works.iter_mut().zip(&mut samples) {
            let figure = work();
            if round > 0 {
                samples.0.push(figure);
            }
        }
    }
    samples
}

/// The first error of what is measured; a round has no other way to tell of one.
#[derive(Default)]
pub struct Failed(RefCell<Option<Error>>);

impl Failed {
    /// Notes an error, unless there was one before.
    pub fn note<T>(&self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.borrow_mut().get_or_insert(error);
                None
            }
        }
    }

    /// The figure of a round; none is begun any more after one has failed, as it may have left the other
    /// process in the middle of its part.
    pub fn round(&self, round: impl FnOnce() -> Result<f64>) -> f64 {
        let begun = self.0.borrow().is_none();
        begun.then(|| self.note(round())).flatten().unwrap_or(f64::NAN)
    }

    /// The error, if there was one.
    pub fn check(self) -> Result<()> {
        self.0.into_inner().map_or(Ok(()), Err)
    }
}

/// Figures of many rounds.
pub struct Samples(pub Vec<f64>);

impl Samples {
    /// The middle one; of an even number, the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        median(&self.0)
    }

    /// The median of the quotients of figures taken in the same round.
    pub fn over(&self, reference: &Samples) -> f64 {
        let quotients: Vec<f64> = self.0.iter().zip(&reference.0).map(|(a, b)| a / b).collect();
        median(&quotients)
    }

    /// The median of the differences of figures taken in the same round.
    pub fn beyond(&self, reference: &Samples) -> f64 {
        let beyond: Vec<f64> = self.0.iter().zip(&reference.0).map(|(a, b)| a - b).collect();
        median(&beyond)
    }
}

/// See [`Samples::median`]; not a number if there are no figures.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (None, _) => f64::NAN,
        (Some(&one), 1) => one,
        (Some(&one), _) => (one + sorted[middle - 1]) / 2.0,
    }
}

/// A sequence of numbers that looks random and can be repeated (xorshift64).
pub struct Sequence(u64);

impl Sequence {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        // A state of 0 would stay 0.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn quotients_and_differences_are_those_of_a_round() {
        let (a, b) = (Samples(vec![10.0, 40.0, 90.0]), Samples(vec![10.0, 20.0, 30.0]));
        assert_eq!(a.over(&b), 2.0);
        assert_eq!(a.beyond(&b), 20.0);
    }

    #[test]
    fn the_first_round_does_not_count() {
        let mut count = 0.0;
        let [samples] = alternate(
            3,
            [&mut || {
                count += 1.0;
                count
            }],
        );
        assert_eq!(samples.0, [2.0, 3.0, 4.0]);
    }
}
