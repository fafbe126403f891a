//! What `mkey model` found, as it is written to JSON and printed. Times are nanoseconds.

use super::fit::Estimate;
use crate::bench::registration::report::{Sweep, Term};
use serde::{Deserialize, Serialize};

/// The version of the JSON form; grows when a field changes its meaning or goes.
pub const MODEL_SCHEMA: u32 = 1;

/// A model of what registration costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// [`MODEL_SCHEMA`].
    pub schema: u32,
    /// The version of mkey.
    pub mkey: String,
    /// Where the sweep came from.
    pub from: String,
    /// One a kind of page.
    pub fits: Vec<PageFit>,
    /// One a kind of page and size asked for.
    pub predictions: Vec<Prediction>,
    /// The sweep that was fitted: device, machine and figures.
    pub sweep: Sweep,
}

/// A kind of page and its fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageFit {
    /// The kind: `4 KiB`, `THP`, `2 MiB`, `1 GiB`.
    pub page: String,
    /// Bytes of such a page.
    pub page_bytes: u64,
    /// The fit, or why there is none.
    pub outcome: FitOutcome,
}

/// What became of a fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FitOutcome {
    /// Fitted.
    Fitted(Box<Fitted>),
    /// Not fitted, and why.
    NotFitted(String),
}

/// T = T(fixed) + pages x T(page).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fitted {
    /// Sizes that were fitted.
    pub sizes: u64,
    /// The largest, in bytes.
    pub largest_bytes: u64,
    /// Sizes that were measured and not fitted, since the machine was too busy for them.
    pub disturbed_bytes: Vec<u64>,
    /// Whether a declared device command is in the times.
    pub simulated: bool,
    /// The verb of registration.
    pub register: Coefficients,
    /// The verb of deregistration; `None` where it does not fit.
    pub deregister: Option<Coefficients>,
    /// What the terms were measured by, in words.
    pub split_by: String,
    /// Each term's part of the coefficients of the whole that it was measured in.
    pub split: Vec<Split>,
    /// That whole where it is another than `register`: the verb while it was probed, which is
    /// slower. `None`: it is `register`.
    #[serde(default)]
    pub probed: Option<FixedAndPage>,
    /// What an IOMMU adds, measured by VFIO with the same memory; no part of the coefficients.
    /// `None`: not measured.
    #[serde(default)]
    pub iommu: Option<FixedAndPage>,
}

/// What something takes of a registration, or adds to one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FixedAndPage {
    /// Of T(fixed), nanoseconds.
    pub fixed: Estimate,
    /// Of T(page), nanoseconds a page.
    pub page: Estimate,
}

/// The coefficients of one verb.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coefficients {
    /// T(fixed), nanoseconds.
    pub fixed: Estimate,
    /// T(page), nanoseconds a page.
    pub page: Estimate,
    /// The weighted coefficient of determination.
    pub r_squared: f64,
    /// The standard deviation of the relative errors of the fit; 0.1 is 10 %.
    pub relative_sd: f64,
    /// How well sizes are predicted that were left out; `None`: too few sizes.
    pub left_out: Option<LeftOutErrors>,
    /// The same of sizes of 1 MiB and more; `None`: too few sizes.
    pub left_out_large: Option<LeftOutErrors>,
}

/// Errors of predictions of sizes that were left out of the fit, relative; 0.1 is 10 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeftOutErrors {
    /// The median of their amounts.
    pub median: f64,
    /// The largest amount.
    pub worst: f64,
}

/// A term's part of the coefficients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// The term.
    pub term: Term,
    /// Of T(fixed).
    pub fixed: Part,
    /// Of T(page).
    pub page: Part,
}

/// A part of a coefficient.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Measured, nanoseconds.
    Measured(Estimate),
    /// Not measured, and why.
    NotMeasured(String),
    /// The term has no such part: it is counted elsewhere.
    Elsewhere,
}

/// A size that was not measured and what it will take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The kind of page.
    pub page: String,
    /// Bytes.
    pub bytes: u64,
    /// Pages.
    pub pages: u64,
    /// The prediction, or why there is none.
    pub outcome: PredictionOutcome,
}

/// What became of a prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PredictionOutcome {
    /// Predicted.
    Predicted(Predicted),
    /// Not predicted, and why.
    NotPredicted(String),
}

/// What a size will take, nanoseconds, with 95 % intervals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// To register it.
    pub register: Estimate,
    /// To deregister it; `None` where that does not fit.
    pub deregister: Option<Estimate>,
    /// How many times larger it is than the largest size measured; below 1 it is within.
    pub beyond: f64,
    /// Whether a declared device command is in it.
    pub simulated: bool,
}

impl PageFit {
    /// The fit, if there is one.
    pub fn fitted(&self) -> Option<&Fitted> {
        match &self.outcome {
            FitOutcome::Fitted(fitted) => Some(fitted),
            FitOutcome::NotFitted(_) => None,
        }
    }
}
