//! Pages as browsers and XML readers meet them.

use super::page::{Page, render};
use super::{bench, model, registration, trace};
use crate::bench::registration::sample as sweeps;
use crate::bench::sample as reports;
use crate::model::analyse;
use crate::trace::analyse::{Report, tests::server};
use roxmltree::{Document, ParsingOptions};

fn pages() -> Vec<(&'static str, Page)> {
    let mut sweep = sweeps::sweep();
    sweep.device.name = "<script>alert(1)</script>&\"'".to_owned();
    let sweep_name = sweep.device.name.clone();
    let fitted = analyse::model(sweep.clone(), "a<b&c.json".to_owned(), &[64 << 30]);
    let mut report = reports::report();
    report.device.name = sweep.device.name.clone();
    report.rows[0].strategy = "MR <i>&".to_owned();
    let mut recording = server();
    recording.devices[0].name = sweep_name;
    vec![
        ("bench", bench::page(&report)),
        ("registration", registration::page(&sweep)),
        ("model", model::page(&fitted)),
        ("trace", trace::page(&Report::of(&recording))),
    ]
}

fn parse(html: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(html, options).unwrap_or_else(|error| panic!("{error}\n{html}"))
}

#[test]
fn pages_are_well_formed_with_plots_and_tables() {
    for (name, page) in pages() {
        let html = render(&page).unwrap();
        let document = parse(&html);
        let count = |tag| document.descendants().filter(|node| node.has_tag_name(tag)).count();
        assert!(count("svg") >= 3, "{name}: {} plots", count("svg"));
        assert!(count("table") >= 1 && count("tr") > 8, "{name}");
        assert_eq!((count("h1"), count("title") > 0, count("script")), (1, true, 0), "{name}");
        for cells in document.descendants().filter(|node| node.has_tag_name("tr")) {
            let width = |node: roxmltree::Node<'_, '_>| {
                node.attribute("colspan").map_or(1, |span| span.parse::<usize>().unwrap())
            };
            let table = cells.ancestors().find(|node| node.has_tag_name("table")).unwrap();
            let heads = table.descendants().filter(|node| node.has_tag_name("th")).count();
            let sum: usize = cells.children().filter(|c| c.is_element()).map(width).sum();
            assert_eq!(sum, heads, "{name}: a row does not fill its table");
        }
    }
}

#[test]
fn pages_need_nothing_from_elsewhere() {
    for (name, page) in pages() {
        let html = render(&page).unwrap();
        for reference in ["http:", "https:", "//", "url(", "@import", "src=", "href="] {
            let found = html.find(reference).map(|at| &html[at.saturating_sub(40)..at + 20]);
            assert_eq!(found, None, "{name}: {reference}");
        }
    }
}

#[test]
fn names_are_escaped_and_come_back() {
    for (name, page) in pages() {
        let html = render(&page).unwrap();
        assert!(!html.contains("<script") && !html.contains("<i>"), "{name}");
        let document = parse(&html);
        let text: String = document.descendants().filter_map(|node| node.text()).collect();
        assert!(text.contains("<script>alert(1)</script>&\"'"), "{name}");
    }
}

#[test]
fn every_table_says_whose_figures_they_are() {
    for (name, page) in pages() {
        let html = render(&page).unwrap();
        let document = parse(&html);
        for scroll in
            document.descendants().filter(|node| node.attribute("class") == Some("scroll"))
        {
            let label = scroll.prev_sibling_element().unwrap();
            assert!(label.text().unwrap().contains("software RNIC"), "{name}");
        }
    }
}

#[test]
fn both_lights_have_all_colours() {
    let style = include_str!("page.html");
    for colour in 0..super::svg::COLOURS {
        assert_eq!(style.matches(&format!("--s{colour}: #")).count(), 2);
    }
    assert!(style.contains("prefers-color-scheme: dark"));
}

#[test]
fn notes_of_the_device_have_a_section_of_their_own() {
    let mut report = reports::report();
    report.missing.clear();
    report.device.notes = vec!["it is slow".to_owned()];
    let titles: Vec<String> = bench::page(&report).sections.into_iter().map(|s| s.title).collect();
    assert_eq!(titles.last().map(String::as_str), Some(crate::bench::text::NOTES));
    assert!(!titles.iter().any(|title| title.contains("does not allow")), "{titles:?}");
}
