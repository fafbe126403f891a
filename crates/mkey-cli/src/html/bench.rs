//! The page of `mkey bench`.

use super::page::{Page, Plot, Section, Table, TableRow};
use super::svg::{self, Bar};
use crate::bench::report::{Figures, Outcome, Report, Row};
use crate::bench::text;
use crate::bench::units::size;

/// The page of a report.
pub fn page(report: &Report) -> Page {
    let mut page = Page::new(
        "What memory registration costs, by strategy",
        &report.device,
        &report.machine,
        report.command_cost_ns,
        report.seconds,
    );
    page.facts.push(("registered".to_owned(), size(report.memory.bytes)));
    page.facts.push(("one I/O".to_owned(), size(report.io.bytes)));
    page.sections.push(Section {
        title: "Before and during I/O".to_owned(),
        notes: vec![
            "Medians; axes are logarithmic: each line is ten times the one before.".to_owned(),
        ],
        plots: plots(report),
        ..Section::default()
    });
    let (heads, rows) = text::strategy_rows(report);
    let words = heads.iter().enumerate().filter(|(n, head)| *n < 2 || **head == "\nmark");
    page.sections.push(Section {
        title: "All strategies".to_owned(),
        notes: text::reading_lines(report),
        table: Some(Table {
            words: words.map(|(n, _)| n).collect(),
            heads: heads.iter().map(|head| head.trim().to_owned()).collect(),
            long: Vec::new(),
            rows: rows
                .into_iter()
                .zip(&report.rows)
                .map(|(cells, row)| match &row.outcome {
                    Outcome::Measured(_) => TableRow::cells(cells),
                    Outcome::NotMeasured(missing) => TableRow::missing(cells, missing),
                })
                .collect(),
        }),
        ..Section::default()
    });
    let table = |heads: [&str; 4], long: &[usize], rows: Vec<Vec<String>>| Table {
        heads: heads.iter().filter(|head| !head.is_empty()).map(|h| (*h).to_owned()).collect(),
        words: vec![0],
        long: long.to_vec(),
        rows: rows.into_iter().map(TableRow::cells).collect(),
    };
    let mechanisms = report
        .mechanisms
        .iter()
        .map(|m| vec![m.name.clone(), m.what_for.clone(), m.cost.clone(), m.needs.clone()]);
    page.sections.push(Section {
        title: "The four mechanisms, cost classes as measured here".to_owned(),
        table: Some(table(
            ["mechanism", "what for", "cost class here", "needs"],
            &[1, 2, 3],
            mechanisms.collect(),
        )),
        ..Section::default()
    });
    let claims =
        report.claims.iter().map(|c| vec![c.claim.clone(), c.measured.clone(), c.why.clone()]);
    page.sections.push(Section {
        title: "Widely copied claims beside this run".to_owned(),
        table: Some(table(
            ["claim", "measured here", "why they differ", ""],
            &[0, 1, 2],
            claims.collect(),
        )),
        ..Section::default()
    });
    page.limits(&report.missing, &report.device);
    page
}

fn plots(report: &Report) -> Vec<Plot> {
    let bars = |caption: &str, ns: &dyn Fn(&Figures) -> Option<f64>, colour| {
        let bar = |row: &Row| {
            let name = format!("{}, {}", row.strategy, row.page);
            Some(Bar { name, colour, ns: ns(row.figures()?)? })
        };
        let bars: Vec<Bar> = report.rows.iter().filter_map(bar).collect();
        Some(Plot { svg: svg::bars(caption, &bars)?, caption: caption.to_owned() })
    };
    [
        bars(
            "registering all of the memory once: prefault and reg_mr",
            &|figures| figures.register.map(|register| register.total_ns()),
            0,
        ),
        bars(
            "of that, reg_mr alone",
            &|figures| figures.register.map(|register| register.verb.median_ns),
            1,
        ),
        bars(
            "what one I/O needs besides its data, there and back",
            &|figures| figures.map.map(|map| map.median_ns),
            2,
        ),
        bars("CPU time of one I/O", &|figures| figures.cpu.map(|cpu| cpu.median_ns), 3),
    ]
    .into_iter()
    .flatten()
    .collect()
}
