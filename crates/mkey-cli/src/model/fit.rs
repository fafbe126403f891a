//! Fits of `T = T(fixed) + pages x T(page)`: weighted least squares on relative error.
//!
//! The spread of a time grows with the time, so that each point is weighted by one over the square
//! of what the line says there; the weights and the line are found in turns (iteratively reweighted
//! least squares). Intervals are Student's at 95 %, and assume that what the line misses is spread
//! as noise is: where the relation bends, they are too narrow, and the error on sizes left out is
//! what tells.

use serde::{Deserialize, Serialize};

/// A measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Pages registered.
    pub pages: f64,
    /// Nanoseconds.
    pub ns: f64,
}

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

impl Estimate {
    fn around(value: f64, half: f64) -> Self {
        Self { value, low: value - half, high: value + half }
    }

    /// Whether zero is within the interval: the value is then not told apart from nothing.
    pub fn may_be_zero(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }
}

/// Why there is no line.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// An interval needs a point more than there are coefficients.
    #[error("{sizes} sizes measured, {LEAST} needed")]
    TooFew {
        /// How many sizes there are.
        sizes: usize,
    },
    /// A time or a number of pages that no registration has.
    #[error("{pages:e} pages in {ns:e} ns: not within {LOWEST:e} to {HIGHEST:e}")]
    OutOfRange {
        /// The pages.
        pages: f64,
        /// Nanoseconds.
        ns: f64,
    },
    /// The times are so far apart that nothing is left of some beside the others.
    #[error("the times are too far apart for a line")]
    TooFarApart,
}

/// The least of pages and of nanoseconds that is fitted: squares of less weigh beyond all numbers.
const LOWEST: f64 = 1e-3;
/// The most.
const HIGHEST: f64 = 1e18;

/// Different sizes that a fit needs.
pub const LEAST: usize = 3;

/// A fitted line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// T(fixed), nanoseconds.
    pub fixed: Estimate,
    /// T(page), nanoseconds a page.
    pub page: Estimate,
    /// The weighted coefficient of determination: 1 if the line explains all.
    pub r_squared: f64,
    /// The standard deviation of the relative errors.
    pub relative_sd: f64,
    basis: Basis,
}

/// Where the points lie and what they weigh: all of a fit but the times.
#[derive(Clone, Debug, PartialEq)]
struct Basis {
    pages: Vec<f64>,
    weights: Vec<f64>,
    weight: f64,
    mean: f64,
    spread: f64,
    student: f64,
}

impl Basis {
    fn new(pages: Vec<f64>, weights: Vec<f64>) -> Self {
        let weight: f64 = weights.iter().sum();
        let mean = weighted(&weights, &pages) / weight;
        let squares = pages.iter().zip(&weights).map(|(x, w)| w * (x - mean).powi(2));
        let (spread, student) = (squares.sum(), student_975(pages.len().saturating_sub(2)));
        Self { pages, weights, weight, mean, spread, student }
    }

    /// The line's value at no page, and its slope.
    fn solve(&self, ns: &[f64]) -> (f64, f64) {
        let mean = weighted(&self.weights, ns) / self.weight;
        let products = self.pages.iter().zip(&self.weights).zip(ns);
        let slope =
            products.map(|((x, w), y)| w * (x - self.mean) * (y - mean)).sum::<f64>() / self.spread;
        (mean - slope * self.mean, slope)
    }

    /// The line through these times, of the same points and weights.
    fn line(&self, ns: &[f64]) -> Line {
        let (fixed, page) = self.solve(ns);
        let mean = weighted(&self.weights, ns) / self.weight;
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            let points = self.pages.iter().zip(&self.weights).zip(ns);
            points.map(|((x, w), y)| w * of(*x, *y).powi(2)).sum()
        };
        let residual = sum(&|x, y| y - fixed - page * x);
        let all = sum(&|_, y| y - mean);
        let variance = residual / self.pages.len().saturating_sub(2).max(1) as f64;
        let fixed_sd = (variance * (1.0 / self.weight + self.mean.powi(2) / self.spread)).sqrt();
        let page_sd = (variance / self.spread).sqrt();
        Line {
            fixed: Estimate::around(fixed, self.student * fixed_sd),
            page: Estimate::around(page, self.student * page_sd),
            r_squared: if all > 0.0 { 1.0 - residual / all } else { 1.0 },
            relative_sd: variance.sqrt(),
            basis: self.clone(),
        }
    }
}

fn weighted(weights: &[f64], values: &[f64]) -> f64 {
    weights.iter().zip(values).map(|(w, v)| w * v).sum()
}

/// Fits a line to points of at least [`LEAST`] different sizes.
///
/// # Errors
/// [`FitError`].
pub fn fit(points: &[Point]) -> Result<Line, FitError> {
    let usable = |v: f64| (LOWEST..=HIGHEST).contains(&v);
    if let Some(p) = points.iter().find(|p| !usable(p.pages) || !usable(p.ns)) {
        return Err(FitError::OutOfRange { pages: p.pages, ns: p.ns });
    }
    let mut sizes: Vec<f64> = points.iter().map(|p| p.pages).collect();
    sizes.sort_unstable_by(f64::total_cmp);
    sizes.dedup();
    if sizes.len() < LEAST {
        return Err(FitError::TooFew { sizes: sizes.len() });
    }
    let pages: Vec<f64> = points.iter().map(|p| p.pages).collect();
    let ns: Vec<f64> = points.iter().map(|p| p.ns).collect();
    // The first weights are of the times themselves, later ones of the line.
    let mut expected = ns.clone();
    let mut basis = Basis::new(Vec::new(), Vec::new());
    for _ in 0..30 {
        let weights = expected.iter().map(|t| t.powi(-2)).collect();
        basis = Basis::new(pages.clone(), weights);
        let (fixed, page) = basis.solve(&ns);
        let next: Vec<f64> = pages
            .iter()
            .zip(&ns)
            // A line below a tenth of what was measured there would give the point all the weight.
            .map(|(x, y)| (fixed + page * x).max(y / 10.0))
            .collect();
        let moved = next.iter().zip(&expected).map(|(a, b)| (a / b - 1.0).abs());
        let moved = moved.fold(0.0, f64::max);
        expected = next;
        if moved < 1e-9 {
            break;
        }
    }
    let line = basis.line(&ns);
    let Line { fixed, page, r_squared, relative_sd, .. } = &line;
    let values = [fixed.low, fixed.high, page.low, page.high, *r_squared, *relative_sd];
    if values.iter().all(|value| value.is_finite()) { Ok(line) } else { Err(FitError::TooFarApart) }
}

impl Line {
    /// The same fit of other times at the same points, in their order: a term of the whole. As the
    /// weights are the same, the lines of terms that add up to the whole add up to its line.
    pub fn of_term(&self, ns: &[f64]) -> Option<Line> {
        let usable = ns.len() == self.basis.pages.len() && ns.iter().all(|v| v.is_finite());
        usable.then(|| self.basis.line(ns))
    }

    /// The time of so many pages, nanoseconds, without an interval.
    pub fn at(&self, pages: f64) -> f64 {
        self.fixed.value + self.page.value * pages
    }

    /// What one registration of so many pages will take, with its 95 % interval (that of the
    /// median of as many samples as each point has), never below zero.
    pub fn predict(&self, pages: f64) -> Estimate {
        let value = self.at(pages);
        let Basis { weight, mean, spread, student, .. } = &self.basis;
        let of_line = 1.0 / weight + (pages - mean).powi(2) / spread;
        let of_point = value.powi(2);
        let half = student * self.relative_sd * (of_line + of_point).sqrt();
        Estimate { low: (value - half).max(0.0), ..Estimate::around(value, half) }
    }
}

/// A size that was left out of the fit and predicted by the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeftOut {
    /// Its pages.
    pub pages: f64,
    /// Predicted against measured: 0.1 is 10 % too much.
    pub error: f64,
}

/// Each point predicted by a fit of all others; empty where too few are left.
pub fn leave_one_out(points: &[Point]) -> Vec<LeftOut> {
    let predicted = |(n, point): (usize, &Point)| {
        let others: Vec<Point> =
            points.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, p)| *p).collect();
        let line = fit(&others).ok()?;
        Some(LeftOut { pages: point.pages, error: line.at(point.pages) / point.ns - 1.0 })
    };
    points.iter().enumerate().filter_map(predicted).collect()
}

/// The 97.5 % quantile of Student's t with so many degrees of freedom (at least 1).
///
/// To 30 the common table; beyond, the expansion of Cornish and Fisher (Abramowitz and Stegun
/// 26.7.5), good to four digits there.
fn student_975(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010,
        2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739,
        2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
    ];
    const NORMAL: f64 = 1.959_964;
    TABLE.get(freedom.max(1) - 1).copied().unwrap_or_else(|| {
        let (z, v) = (NORMAL, freedom as f64);
        z + (z.powi(3) + z) / (4.0 * v)
            + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * v * v)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Powers of two, as a sweep measures them.
    fn sizes(count: u32) -> Vec<f64> {
        (0..count).map(|n| f64::from(n).exp2()).collect()
    }

    fn exact(fixed: f64, page: f64, count: u32) -> Vec<Point> {
        let time = |pages: f64| Point { pages, ns: fixed + page * pages };
        sizes(count).into_iter().map(time).collect()
    }

    /// Numbers of the normal distribution, the same for the same seed (SplitMix64, Box-Muller).
    struct Normal(u64);

    impl Normal {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }

        fn next(&mut self) -> f64 {
            let (a, b) = (self.uniform().max(1e-300), self.uniform());
            (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
        }
    }

    fn noisy(fixed: f64, page: f64, count: u32, sd: f64, normal: &mut Normal) -> Vec<Point> {
        let mut points = exact(fixed, page, count);
        for point in &mut points {
            point.ns *= (1.0 + sd * normal.next()).max(0.05);
        }
        points
    }

    proptest! {
        #[test]
        fn known_coefficients_come_back(fixed in 10.0..1e6f64, page in 0.01..1e5f64, count in 3u32..20) {
            let line = fit(&exact(fixed, page, count)).unwrap();
            prop_assert!((line.fixed.value / fixed - 1.0).abs() < 1e-6, "{line:?}");
            prop_assert!((line.page.value / page - 1.0).abs() < 1e-6, "{line:?}");
            prop_assert!(line.r_squared > 0.999_999);
            let at = line.predict(1e7);
            prop_assert!((at.value / (fixed + page * 1e7) - 1.0).abs() < 1e-6);
        }

        #[test]
        fn noise_of_a_few_percent_moves_them_as_little(
            fixed in 500.0..20_000.0f64, page in 20.0..500.0f64, seed in any::<u64>(),
        ) {
            let points = noisy(fixed, page, 19, 0.03, &mut Normal(seed));
            let line = fit(&points).unwrap();
            prop_assert!((line.page.value / page - 1.0).abs() < 0.1, "{line:?}");
            prop_assert!((line.fixed.value / fixed - 1.0).abs() < 0.3, "{line:?}");
            prop_assert!(line.page.low < line.page.value && line.page.value < line.page.high);
        }

        #[test]
        fn no_input_panics(points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..12)) {
            let points: Vec<Point> =
                points.into_iter().map(|(pages, ns)| Point { pages, ns }).collect();
            if let Ok(line) = fit(&points) {
                line.predict(f64::MAX);
                prop_assert!(line.page.value.is_finite() && line.fixed.value.is_finite());
            }
            leave_one_out(&points);
        }

        #[test]
        fn terms_add_up_to_the_whole(fixed in 10.0..1e4f64, page in 1.0..1e3f64, share in 0.0..1.0f64) {
            let mut normal = Normal(7);
            let points = noisy(fixed, page, 12, 0.1, &mut normal);
            let line = fit(&points).unwrap();
            let part: Vec<f64> = points.iter().map(|p| p.ns * share + 3.0 * normal.next()).collect();
            let rest: Vec<f64> = points.iter().zip(&part).map(|(p, part)| p.ns - part).collect();
            let (part, rest) = (line.of_term(&part).unwrap(), line.of_term(&rest).unwrap());
            let sum = part.page.value + rest.page.value;
            prop_assert!((sum / line.page.value - 1.0).abs() < 1e-6);
            let sum = part.fixed.value + rest.fixed.value;
            prop_assert!((sum - line.fixed.value).abs() < 1e-6 * fixed);
        }
    }

    /// Of many noisy sweeps, 95 % have the truth within the interval: of the coefficients, and of
    /// a prediction 16 times beyond the largest size.
    #[test]
    fn intervals_cover_what_they_say() {
        let (fixed, page, runs) = (2_000.0, 70.0, 4_000);
        let far = 16.0 * 18f64.exp2();
        let mut normal = Normal(0x6d6b_6579);
        let mut hits = [0u32; 3];
        for _ in 0..runs {
            let line = fit(&noisy(fixed, page, 19, 0.05, &mut normal)).unwrap();
            let measured = (fixed + page * far) * (1.0 + 0.05 * normal.next());
            let inside = |e: Estimate, truth: f64| u32::from(e.low <= truth && truth <= e.high);
            hits[0] += inside(line.fixed, fixed);
            hits[1] += inside(line.page, page);
            hits[2] += inside(line.predict(far), measured);
        }
        for hit in hits {
            let covered = f64::from(hit) / f64::from(runs);
            assert!((0.935..=0.965).contains(&covered), "{hits:?} of {runs}");
        }
    }

    #[test]
    fn sizes_left_out_are_predicted_by_the_others() {
        let mut points = exact(1_000.0, 50.0, 10);
        assert!(leave_one_out(&points).iter().all(|left| left.error.abs() < 1e-9));
        points[5].ns *= 2.0;
        let left = leave_one_out(&points);
        assert_eq!(left.len(), 10);
        assert!((left[5].error + 0.5).abs() < 1e-6, "{:?}", left[5]);
        assert!(leave_one_out(&points[..3]).is_empty());
    }

    #[test]
    fn what_can_not_be_fitted_is_said() {
        let points = exact(1.0, 1.0, 2);
        assert_eq!(fit(&points), Err(FitError::TooFew { sizes: 2 }));
        let same = [points[0], points[0], points[0], points[1]];
        assert_eq!(fit(&same), Err(FitError::TooFew { sizes: 2 }));
        for ns in [0.0, -1.0, 1e-308, 1e308, f64::NAN, f64::INFINITY] {
            let points = [Point { pages: 1.0, ns }; 4];
            let why = fit(&points).unwrap_err();
            assert!(matches!(why, FitError::OutOfRange { pages: 1.0, .. }), "{why:?}");
            assert!(why.to_string().contains(&format!("{ns:e} ns: not within")), "{why}");
        }
    }

    #[test]
    fn quantiles_of_student() {
        for (freedom, expected) in
            [(0, 12.7062), (1, 12.7062), (10, 2.2281), (30, 2.0423), (40, 2.0211), (120, 1.9799)]
        {
            assert!((student_975(freedom) - expected).abs() < 1e-3, "{freedom}");
        }
    }
}
