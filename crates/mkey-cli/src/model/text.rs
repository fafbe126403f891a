//! A model as text for people.

use super::fit::Estimate;
use super::report::{
    Coefficients, FitOutcome, LeftOutErrors, Model, Part, Prediction, PredictionOutcome,
};
use crate::bench::registration::text::{few_probed, signed};
use crate::bench::table::{Line, Side, WIDTH, render};
use crate::bench::text::{ending, head, whose};
use crate::bench::units::{count, size, time};
use std::fmt::Write;

const NONE: &str = "-";

/// What is fitted and how good it is.
pub const READING: &str = "T = T(fixed) + pages x T(page), by least squares on relative error over the medians of all \
     sizes; intervals are 95 %. left out: how far off each size is when the others predict it.";
/// What the terms are.
pub fn split_reading(model: &Model) -> String {
    let probed = model.fits.iter().any(|fit| fit.fitted().is_some_and(|f| f.probed.is_some()));
    let whole = if probed {
        format!(
            "The parts of a coefficient add up to \"{PROBED_ROW}\", the verb while it was probed: \
             slower than register above by what the probes take."
        )
    } else {
        "The parts of a coefficient add up to it.".to_owned()
    };
    format!(
        "{whole} An interval with zero inside says that the part is not told apart from nothing."
    )
}

/// The whole model.
pub fn model(model: &Model) -> String {
    let sweep = &model.sweep;
    let mut out = String::new();
    head(&mut out, "model", &sweep.device, &sweep.machine, sweep.seconds);
    let _ = writeln!(out, "Fitted to {}.", model.from);
    let whose = whose(&sweep.device, sweep.command_cost_ns);
    let mut table = |title: &str, table: String, note: &str| {
        let _ = writeln!(out, "\n{title}\n({whose})\n{table}{}", wrapped(note));
    };
    let mut reading = READING.to_owned();
    for note in fit_notes(model) {
        reading.push(' ');
        reading.push_str(&note);
    }
    table("What a registration costs, as a formula", fits(model), &reading);
    table("What the coefficients consist of", splits(model), &split_reading(model));
    if !model.predictions.is_empty() {
        table("Predicted, with 95 % intervals", predictions(model), PREDICTION_READING);
    }
    ending(&mut out, &sweep.missing, &sweep.device);
    out
}

/// What was left out of fits, a sentence each.
pub fn fit_notes(model: &Model) -> Vec<String> {
    let disturbed: Vec<String> = model
        .fits
        .iter()
        .flat_map(|fit| fit.fitted().map(|fitted| (fit, fitted)))
        .flat_map(|(fit, fitted)| {
            let told = |bytes: &u64| format!("{} on {} pages", size(*bytes), fit.page);
            fitted.disturbed_bytes.iter().map(told)
        })
        .collect();
    if disturbed.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "Not fitted, since the machine was too busy to measure them: {}.",
        disturbed.join(", ")
    )]
}

/// What a prediction is.
pub const PREDICTION_READING: &str = "Beyond the sizes measured the formula is stretched: caches, NUMA and the device's own limits \
     may add what no smaller size shows.";

fn wrapped(text: &str) -> String {
    textwrap::wrap(text, WIDTH).join("\n")
}

/// An interval.
pub fn interval(estimate: &Estimate) -> String {
    format!("{} to {}", signed(estimate.low), signed(estimate.high))
}

fn percent(errors: Option<LeftOutErrors>, of: impl Fn(LeftOutErrors) -> f64) -> String {
    errors.map_or(NONE.to_owned(), |errors| format!("{:.1} %", of(errors) * 100.0))
}

/// The heads of the table of fits.
pub const FIT_HEADS: [&str; 11] = [
    "\npage",
    "\nverb",
    "\nsizes",
    "\nT(fixed)",
    "\n95 %",
    "\nT(page)",
    "\n95 %",
    "\nR^2",
    "left out:\nmedian",
    ">= 1 MiB:\nmedian",
    "\nworst",
];

/// The cells of a fit after its page.
pub fn fit_cells(verb: &str, sizes: u64, simulated: bool, of: &Coefficients) -> Vec<String> {
    vec![
        if simulated { format!("{verb}, simulated") } else { verb.to_owned() },
        sizes.to_string(),
        signed(of.fixed.value),
        interval(&of.fixed),
        signed(of.page.value),
        interval(&of.page),
        format!("{:.4}", of.r_squared),
        percent(of.left_out, |e| e.median),
        percent(of.left_out_large, |e| e.median),
        percent(of.left_out_large, |e| e.worst),
    ]
}

/// The rows of the table of fits: cells, or the page and why there is no fit.
pub fn fit_rows(model: &Model) -> Vec<Result<Vec<String>, (String, String)>> {
    let mut rows = Vec::new();
    for fit in &model.fits {
        match &fit.outcome {
            FitOutcome::NotFitted(why) => rows.push(Err((fit.page.clone(), why.clone()))),
            FitOutcome::Fitted(fitted) => {
                let verbs = [
                    ("register", Some(&fitted.register)),
                    ("deregister", fitted.deregister.as_ref()),
                ];
                for (verb, coefficients) in verbs {
                    let Some(coefficients) = coefficients else { continue };
                    let mut cells = vec![fit.page.clone()];
                    cells.extend(fit_cells(verb, fitted.sizes, fitted.simulated, coefficients));
                    rows.push(Ok(cells));
                }
            }
        }
    }
    rows
}

fn columns<'a>(heads: &[&'a str], words: usize) -> Vec<(&'a str, Side, Option<usize>)> {
    let side = |n| if n < words { Side::Left } else { Side::Right };
    heads.iter().enumerate().map(|(n, head)| (*head, side(n), None)).collect()
}

fn lines(rows: Vec<Result<Vec<String>, (String, String)>>) -> Vec<Line> {
    let line = |row| match row {
        Ok(cells) => Line::Cells(cells),
        Err((name, why)) => Line::Text(vec![name], format!("not measured: {why}"), None),
    };
    rows.into_iter().map(line).collect()
}

fn fits(model: &Model) -> String {
    render(&columns(&FIT_HEADS, 2), &lines(fit_rows(model)))
}

/// The heads of the table of terms.
pub const SPLIT_HEADS: [&str; 6] = ["page", "term", "T(fixed)", "95 %", "T(page)", "95 %"];

/// The row of what an IOMMU adds.
const IOMMU_ROW: &str = "+ IOMMU map, by VFIO";

/// The row of what probed terms add up to.
const PROBED_ROW: &str = "= register, probed";

/// The rows of the table of terms.
pub fn split_rows(model: &Model) -> Vec<Vec<String>> {
    let cells = |part: &Part| match part {
        Part::Measured(estimate) => [signed(estimate.value), interval(estimate)],
        Part::NotMeasured(_) => ["not measured".to_owned(), NONE.to_owned()],
        Part::Elsewhere => [NONE.to_owned(), NONE.to_owned()],
    };
    let mut rows = Vec::new();
    for fit in &model.fits {
        for split in fit.fitted().into_iter().flat_map(|fitted| &fitted.split) {
            let mut row = vec![fit.page.clone(), split.term.name().to_owned()];
            row.extend(cells(&split.fixed));
            row.extend(cells(&split.page));
            rows.push(row);
        }
        let beside = [
            (PROBED_ROW, fit.fitted().and_then(|fitted| fitted.probed)),
            (IOMMU_ROW, fit.fitted().and_then(|fitted| fitted.iommu)),
        ];
        for (name, of) in beside {
            let Some(of) = of else { continue };
            let mut row = vec![fit.page.clone(), name.to_owned()];
            row.extend(cells(&Part::Measured(of.fixed)));
            row.extend(cells(&Part::Measured(of.page)));
            rows.push(row);
        }
    }
    rows
}

/// Why terms were not measured, and by what they were, a sentence each.
pub fn split_notes(model: &Model) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for fitted in model.fits.iter().filter_map(super::report::PageFit::fitted) {
        let mut told = vec![format!("measured by {}", fitted.split_by)];
        for split in &fitted.split {
            for part in [&split.fixed, &split.page] {
                if let Part::NotMeasured(why) = part {
                    told.push(format!("{}: {why}", split.term.name()));
                }
            }
        }
        for note in told {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    if model.fits.iter().any(|fit| fit.fitted().is_some_and(|fitted| fitted.probed.is_some())) {
        notes.extend(few_probed(&model.sweep));
    }
    if let (Some(iommu), true) = (
        &model.sweep.iommu,
        model.fits.iter().any(|fit| fit.fitted().is_some_and(|f| f.iommu.is_some())),
    ) {
        notes.push(format!(
            "{IOMMU_ROW}: what mapping the same memory through the IOMMU of VFIO group {} takes \
             beyond pinning it. About what a NIC behind it pays; no part of the coefficients",
            iommu.group
        ));
    }
    notes
}

fn splits(model: &Model) -> String {
    let rows = split_rows(model).into_iter().map(Line::Cells).collect::<Vec<_>>();
    let mut out = render(&columns(&SPLIT_HEADS, 2), &rows);
    for note in split_notes(model) {
        let options = textwrap::Options::new(WIDTH).initial_indent("- ").subsequent_indent("  ");
        let _ = writeln!(out, "{}", textwrap::fill(&note, options));
    }
    out
}

/// The heads of the table of predictions.
pub const PREDICTION_HEADS: [&str; 8] =
    ["page", "size", "pages", "register", "95 %", "deregister", "95 %", "beyond what was measured"];

/// The cells of a prediction, or its name and why there is none.
pub fn prediction_cells(prediction: &Prediction) -> Result<Vec<String>, (String, String)> {
    let predicted = match &prediction.outcome {
        PredictionOutcome::NotPredicted(why) => {
            return Err((prediction.page.clone(), why.clone()));
        }
        PredictionOutcome::Predicted(predicted) => predicted,
    };
    let estimate = |estimate: Option<Estimate>| match estimate {
        Some(estimate) => [time(estimate.value), interval(&estimate)],
        None => [NONE.to_owned(), NONE.to_owned()],
    };
    let mut cells = vec![prediction.page.clone(), size(prediction.bytes), count(prediction.pages)];
    cells.extend(estimate(Some(predicted.register)));
    cells.extend(estimate(predicted.deregister));
    let mut beyond = if predicted.beyond > 1.0 {
        format!("{:.0} times", predicted.beyond)
    } else {
        "within".to_owned()
    };
    if predicted.simulated {
        beyond.push_str(", simulated");
    }
    cells.push(beyond);
    Ok(cells)
}

fn predictions(model: &Model) -> String {
    let rows = model.predictions.iter().map(prediction_cells).collect();
    render(&columns(&PREDICTION_HEADS, 1), &lines(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::registration::sample;
    use crate::model::analyse;

    fn sample() -> Model {
        analyse::model(sample::sweep(), "sweep.json".to_owned(), &[64 << 30])
    }

    #[test]
    fn every_table_says_whose_figures_they_are() {
        let text = model(&sample());
        let label = "(figures of the software RNIC mkey0, not of a NIC)";
        assert_eq!(text.matches(label).count(), 3, "{text}");
        for said in ["Fitted to sweep.json.", "not measured", "64 GiB", "1024 times", "70.0ns"] {
            assert!(text.contains(said), "{said} is not in\n{text}");
        }
    }

    #[test]
    fn a_declared_command_is_marked() {
        let mut sweep = sample::sweep();
        sweep.command_cost_ns = 16_000;
        for row in &mut sweep.rows {
            row.simulated = row.figures().is_some();
        }
        let text = model(&analyse::model(sweep, "x".to_owned(), &[64 << 30]));
        assert!(text.matches("simulated").count() >= 3 + 4 + 2, "{text}");
    }

    #[test]
    fn it_is_ascii_and_fits_the_width() {
        for line in model(&sample()).lines() {
            assert!(line.len() <= 120 && line.is_ascii(), "{} {line}", line.len());
        }
    }
}
