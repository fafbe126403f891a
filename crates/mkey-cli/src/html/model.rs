//! The page of `mkey model`.

use super::page::{Item, Page, Plot, Section, Table, TableRow};
use super::registration;
use super::svg::{self, Dot, Series};
use crate::model::report::{Coefficients, Model, PageFit, PredictionOutcome};
use crate::model::text;

/// The page of a model.
pub fn page(model: &Model) -> Page {
    let sweep = &model.sweep;
    let mut page = Page::new(
        "What registering memory costs, as a formula",
        &sweep.device,
        &sweep.machine,
        sweep.command_cost_ns,
        sweep.seconds,
    );
    page.facts.push(("fitted to".to_owned(), model.from.clone()));
    page.sections.push(Section {
        title: "T = T(fixed) + pages x T(page)".to_owned(),
        notes: vec![
            registration::POINTS.to_owned(),
            "Lines are the formula; where they are dashed it is stretched beyond what was \
             measured, with the 95 % interval of a prediction."
                .to_owned(),
        ],
        plots: plots(model),
        ..Section::default()
    });
    page.sections.push(Section {
        title: "Coefficients".to_owned(),
        notes: [text::READING.to_owned()].into_iter().chain(text::fit_notes(model)).collect(),
        table: Some(Table {
            heads: text::FIT_HEADS.map(|head| head.trim().to_owned()).to_vec(),
            words: vec![0, 1],
            long: Vec::new(),
            rows: text::fit_rows(model).into_iter().map(row).collect(),
        }),
        ..Section::default()
    });
    page.sections.push(Section {
        title: "What the coefficients consist of".to_owned(),
        notes: vec![text::split_reading(model)],
        table: Some(Table {
            heads: text::SPLIT_HEADS.map(str::to_owned).to_vec(),
            words: vec![0, 1],
            long: Vec::new(),
            rows: text::split_rows(model).into_iter().map(TableRow::cells).collect(),
        }),
        items: text::split_notes(model)
            .into_iter()
            .map(|text| Item { text, command: None })
            .collect(),
        ..Section::default()
    });
    page.sections.extend(registration::terms(sweep));
    if !model.predictions.is_empty() {
        let rows = model.predictions.iter().map(text::prediction_cells).map(row);
        page.sections.push(Section {
            title: "Predicted, with 95 % intervals".to_owned(),
            notes: vec![text::PREDICTION_READING.to_owned()],
            table: Some(Table {
                heads: text::PREDICTION_HEADS.map(str::to_owned).to_vec(),
                words: vec![0],
                long: Vec::new(),
                rows: rows.collect(),
            }),
            ..Section::default()
        });
    }
    page.sections.extend(registration::stages(sweep));
    page.sections.extend(registration::iommu(sweep));
    page.limits(&sweep.missing, &sweep.device);
    page
}

fn row(row: Result<Vec<String>, (String, String)>) -> TableRow {
    match row {
        Ok(cells) => TableRow::cells(cells),
        Err((name, why)) => TableRow { cells: vec![name], why: Some(why), command: None },
    }
}

fn plots(model: &Model) -> Vec<Plot> {
    [("register", false), ("deregister", true)]
        .into_iter()
        .filter_map(|(verb, deregister)| {
            let fits = model.fits.iter().enumerate();
            let series: Vec<Series> =
                fits.filter_map(|(colour, fit)| series(model, fit, colour, deregister)).collect();
            let caption = format!("{verb}: measured and fitted");
            Some(Plot { svg: svg::log_log(&caption, &series)?, caption })
        })
        .collect()
}

fn series(model: &Model, fit: &PageFit, colour: usize, deregister: bool) -> Option<Series> {
    let points = registration::points(&model.sweep, &fit.page, deregister);
    let largest = points.iter().map(|dot| dot.bytes).fold(0.0, f64::max);
    let coefficients = fit.fitted().and_then(|fitted| {
        if deregister { fitted.deregister.as_ref() } else { Some(&fitted.register) }
    });
    let line = coefficients.map(|of| curve(of, fit.page_bytes, &points)).unwrap_or_default();
    let end = coefficients
        .map(|of| (largest, value(of, fit.page_bytes, largest)))
        .map(|(bytes, ns)| (bytes, ns, ns, ns));
    let mut far: Vec<(f64, f64, f64, f64)> = model
        .predictions
        .iter()
        .filter(|predicted| predicted.page == fit.page && predicted.bytes as f64 > largest)
        .filter_map(|predicted| match &predicted.outcome {
            PredictionOutcome::Predicted(of) if deregister => Some((predicted, of.deregister?)),
            PredictionOutcome::Predicted(of) => Some((predicted, of.register)),
            PredictionOutcome::NotPredicted(_) => None,
        })
        .map(|(predicted, of)| (predicted.bytes as f64, of.value, of.low, of.high))
        .collect();
    far.sort_by(|a, b| a.0.total_cmp(&b.0));
    if !far.is_empty() {
        far.splice(0..0, end);
    }
    let name = format!("{} pages", fit.page);
    (!points.is_empty()).then_some(Series { name, colour, points, line, far })
}

fn value(of: &Coefficients, page_bytes: u64, bytes: f64) -> f64 {
    let pages = (bytes / page_bytes.max(1) as f64).ceil();
    of.fixed.value + of.page.value * pages
}

/// The formula between the smallest and the largest size, which is bent where axes are
/// logarithmic.
fn curve(of: &Coefficients, page_bytes: u64, points: &[Dot]) -> Vec<(f64, f64)> {
    const STEPS: u32 = 60;
    let low = points.iter().map(|dot| dot.bytes).fold(f64::INFINITY, f64::min);
    let high = points.iter().map(|dot| dot.bytes).fold(0.0, f64::max);
    if !(low > 0.0 && low <= high) {
        return Vec::new();
    }
    let at = |step: u32| low * (high / low).powf(f64::from(step) / f64::from(STEPS));
    let ns = |bytes: f64| of.fixed.value + of.page.value * bytes / page_bytes.max(1) as f64;
    (0..=STEPS).map(|step| (at(step), ns(at(step)))).collect()
}
