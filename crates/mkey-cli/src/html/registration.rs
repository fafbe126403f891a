//! The page of `mkey bench registration`, and plots of sweeps.

use super::page::{Item, Page, Plot, Section, Table, TableRow};
use super::svg::{self, Dot, Part, Series};
use crate::bench::registration::report::{Figures, Row, Sweep, Term};
use crate::bench::registration::text;
use crate::bench::report::Outcome;
use crate::bench::units::size;

/// How to read points.
pub const POINTS: &str = "Points are medians, with a line up to the 99th percentile; hollow where the machine was too \
     busy to measure. Both axes are logarithmic.";

/// The page of a sweep.
pub fn page(sweep: &Sweep) -> Page {
    let mut page = Page::new(
        "What registering memory costs, by size and page",
        &sweep.device,
        &sweep.machine,
        sweep.command_cost_ns,
        sweep.seconds,
    );
    page.sections.push(Section {
        title: "Time by size".to_owned(),
        notes: vec![
            "Medians, with a line up to the 99th percentile; both axes are logarithmic.".to_owned(),
        ],
        plots: verb_plots(sweep),
        ..Section::default()
    });
    page.sections.extend(terms(sweep));
    page.sections.push(figures(sweep));
    page.sections.extend(stages(sweep));
    page.sections.extend(iommu(sweep));
    page.limits(&sweep.missing, &sweep.device);
    page
}

/// The kinds of pages of a sweep, in its order.
pub fn kinds(sweep: &Sweep) -> Vec<&str> {
    let mut kinds: Vec<&str> = Vec::new();
    for row in &sweep.rows {
        if !kinds.contains(&row.page.as_str()) {
            kinds.push(&row.page);
        }
    }
    kinds
}

/// The measured rows of a kind of page.
fn measured<'a>(sweep: &'a Sweep, kind: &'a str) -> impl Iterator<Item = (&'a Row, &'a Figures)> {
    let rows = sweep.rows.iter().filter(move |row| row.page == kind);
    rows.filter_map(|row| Some((row, row.figures()?)))
}

/// A kind's points of registration, or of deregistration.
pub fn points(sweep: &Sweep, kind: &str, deregister: bool) -> Vec<Dot> {
    let point = |(row, figures): (&Row, &Figures)| {
        let summary = if deregister { figures.deregister } else { figures.register };
        Dot {
            bytes: row.bytes as f64,
            median: summary.median_ns,
            p99: summary.p99_ns,
            disturbed: figures.disturbed,
        }
    };
    measured(sweep, kind).map(point).collect()
}

fn verb_plots(sweep: &Sweep) -> Vec<Plot> {
    [("register", false), ("deregister", true)]
        .into_iter()
        .filter_map(|(verb, deregister)| {
            let series: Vec<Series> = kinds(sweep)
                .into_iter()
                .enumerate()
                .map(|(colour, kind)| {
                    let points = points(sweep, kind, deregister);
                    let line = points.iter().map(|dot| (dot.bytes, dot.median)).collect();
                    let name = format!("{kind} pages");
                    Series { name, colour, points, line, far: Vec::new() }
                })
                .filter(|series| !series.points.is_empty())
                .collect();
            let caption = format!("{verb}, from call to return");
            Some(Plot { svg: svg::log_log(&caption, &series)?, caption })
        })
        .collect()
}

/// What a registration consists of, a plot a kind of page; nothing where no term is known.
pub fn terms(sweep: &Sweep) -> Option<Section> {
    // What does not tell its own terms is split by the kernel's stages, where they were probed.
    let tells = sweep.rows.iter().filter_map(Row::figures).any(|figures| figures.terms.is_some());
    let kernel = !tells && text::measured_stages(sweep).next().is_some();
    let plots: Vec<Plot> = kinds(sweep)
        .into_iter()
        .filter_map(|kind| {
            let rows: Vec<_> = measured(sweep, kind)
                .filter_map(|(row, figures)| Some((size(row.bytes), figures.split(kernel)?.1)))
                .collect();
            let columns: Vec<String> = rows.iter().map(|(name, _)| name.clone()).collect();
            let part = |(colour, term): (usize, Term)| {
                let value = |split: &Vec<(Term, f64)>| {
                    split.iter().find(|(known, _)| *known == term).map(|(_, ns)| *ns)
                };
                let values: Vec<Option<f64>> = rows.iter().map(|(_, s)| value(s)).collect();
                values.iter().any(Option::is_some).then(|| Part {
                    name: term.name().to_owned(),
                    colour,
                    values: values.into_iter().map(Option::unwrap_or_default).collect(),
                })
            };
            let parts: Vec<Part> = Term::ALL.into_iter().enumerate().filter_map(part).collect();
            let whole = if kernel { "register while it is probed" } else { "register" };
            let caption = format!("{kind} pages: shares of {whole}");
            Some(Plot { svg: svg::stacked(&caption, &columns, &parts)?, caption })
        })
        .collect();
    let by = if kernel {
        "By the kernel's functions, probed; the table of stages has their names."
    } else {
        "By what the device says of itself; rest is what its terms leave of the verb."
    };
    (!plots.is_empty()).then(|| Section {
        title: "Where the time goes".to_owned(),
        notes: vec![by.to_owned()],
        plots,
        ..Section::default()
    })
}

/// The same memory behind an IOMMU.
pub fn iommu(sweep: &Sweep) -> Option<Section> {
    let iommu = sweep.iommu.as_ref()?;
    let rows: Vec<TableRow> = text::iommu_rows(sweep).into_iter().map(TableRow::cells).collect();
    let heads = text::IOMMU_HEADS.map(str::to_owned).to_vec();
    let missing = iommu.missing.iter().map(|missing| Item {
        text: format!("not measured: {}", missing.what),
        command: missing.command.clone(),
    });
    Some(Section {
        title: text::iommu_title(iommu),
        notes: vec![text::IOMMU_LABEL.to_owned(), text::IOMMU_READING.to_owned()],
        table: (!rows.is_empty()).then(|| Table { heads, words: vec![0], long: Vec::new(), rows }),
        items: missing.collect(),
        ..Section::default()
    })
}

fn figures(sweep: &Sweep) -> Section {
    let heads = text::heads(sweep);
    let words = heads.iter().enumerate().filter(|(n, head)| *n == 0 || **head == "\nmark");
    let row = |row: &Row| match &row.outcome {
        Outcome::Measured(figures) => TableRow::cells(text::cells(sweep, row, figures)),
        Outcome::NotMeasured(missing) => TableRow::missing(text::names(row), missing),
    };
    Section {
        title: "All figures".to_owned(),
        notes: vec![text::reading(sweep)],
        table: Some(Table {
            words: words.map(|(n, _)| n).collect(),
            heads: heads.into_iter().map(|head| head.trim().to_owned()).collect(),
            long: Vec::new(),
            rows: sweep.rows.iter().map(row).collect(),
        }),
        ..Section::default()
    }
}

/// The kernel's stages, if they were asked for.
pub fn stages(sweep: &Sweep) -> Option<Section> {
    let probes = sweep.probes.as_ref()?;
    let names = text::stage_names(sweep, probes);
    let mut heads = text::STAGE_HEADS.map(str::to_owned).to_vec();
    heads.extend(names.iter().cloned());
    let rows: Vec<TableRow> = text::measured_stages(sweep)
        .map(|(row, stages)| TableRow::cells(text::stage_cells(row, stages, &names)))
        .collect();
    let item = |text: String| Item { text, command: None };
    let mut items: Vec<Item> = text::probe_lines(probes).into_iter().map(item).collect();
    if let Some(missing) = &probes.missing {
        items.push(Item {
            text: format!("not measured: {}", missing.what),
            command: missing.command.clone(),
        });
    }
    Some(Section {
        title: text::stages_title(probes),
        notes: [text::STAGES_READING.to_owned()]
            .into_iter()
            .chain(text::few_probed(sweep))
            .collect(),
        table: (!rows.is_empty()).then(|| Table { heads, words: vec![0], long: Vec::new(), rows }),
        items,
        ..Section::default()
    })
}
