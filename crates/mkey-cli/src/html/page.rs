//! What a page consists of, and the template that it is filled into.
//!
//! The template escapes all texts; plots come as SVG, whose own texts [`super::svg`] escapes. A
//! page is well-formed XML as well as HTML.

use crate::bench::report::{DeviceFacts, Machine, Missing};
use crate::bench::text::{NOTES, whose};
use minijinja::{Environment, context};
use serde::Serialize;

/// A page.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    /// Its title.
    pub title: String,
    /// Whose figures they are; stands at every table.
    pub label: String,
    /// What they were taken on: names and values.
    pub facts: Vec<(String, String)>,
    /// From top to bottom.
    pub sections: Vec<Section>,
}

/// A part of a page under a title of its own.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// Its title.
    pub title: String,
    /// Paragraphs.
    pub notes: Vec<String>,
    /// Plots, side by side where there is room.
    pub plots: Vec<Plot>,
    /// A table.
    pub table: Option<Table>,
    /// A list.
    pub items: Vec<Item>,
}

/// A plot.
#[derive(Clone, Debug, Serialize)]
pub struct Plot {
    /// What it shows.
    pub caption: String,
    /// The SVG element.
    pub svg: String,
}

/// A table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// The heads of all columns.
    pub heads: Vec<String>,
    /// Columns of words, which stand left.
    pub words: Vec<usize>,
    /// Columns of sentences, which wrap.
    pub long: Vec<usize>,
    /// The rows.
    pub rows: Vec<TableRow>,
}

/// A row of a table.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TableRow {
    /// The cells of the first columns.
    pub cells: Vec<String>,
    /// Why there are no more.
    pub why: Option<String>,
    /// The command that would mend it.
    pub command: Option<String>,
}

/// An entry of a list.
#[derive(Clone, Debug, Serialize)]
pub struct Item {
    /// What it says.
    pub text: String,
    /// A command to copy.
    pub command: Option<String>,
}

impl TableRow {
    /// A row with all its cells.
    pub fn cells(cells: Vec<String>) -> Self {
        Self { cells, ..Self::default() }
    }

    /// A row that was not measured.
    pub fn missing(cells: Vec<String>, missing: &Missing) -> Self {
        Self { cells, why: Some(missing.what.clone()), command: missing.command.clone() }
    }
}

impl Page {
    /// A page of figures that were taken on this device and machine.
    pub fn new(
        title: &str,
        device: &DeviceFacts,
        machine: &Machine,
        command_cost_ns: u64,
        seconds: f64,
    ) -> Self {
        let fact = |name: &str, value: String| (name.to_owned(), value);
        let mut label = whose(device, command_cost_ns);
        if let Some(first) = label.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        Self {
            title: title.to_owned(),
            label,
            facts: vec![
                fact("device", format!("{} ({})", device.name, device.driver)),
                fact("pinned by", device.pin.clone()),
                fact("processor", machine.cpu.clone().unwrap_or_else(|| "unknown".to_owned())),
                fact("cores", machine.cores.to_string()),
                fact("Linux", machine.kernel.clone()),
                fact("measured in", format!("{seconds:.0} s")),
                fact("mkey", env!("CARGO_PKG_VERSION").to_owned()),
            ],
            sections: Vec::new(),
        }
    }

    /// Adds what the machine did not allow and what is to be known about the device, if anything.
    pub fn limits(&mut self, missing: &[Missing], device: &DeviceFacts) {
        let missing: Vec<Item> = missing
            .iter()
            .map(|missing| Item { text: missing.what.clone(), command: missing.command.clone() })
            .collect();
        let notes: Vec<Item> = device
            .notes
            .iter()
            .map(|note| Item { text: format!("{}: {note}", device.name), command: None })
            .collect();
        let limits = "What this machine does not allow, and the command that would";
        let items: [(&str, Vec<Item>); 2] = [(limits, missing), (NOTES, notes)];
        for (title, items) in items.into_iter().filter(|(_, items)| !items.is_empty()) {
            self.sections.push(Section { title: title.to_owned(), items, ..Section::default() });
        }
    }
}

/// The page as HTML.
///
/// # Errors
/// The template's, in words.
pub fn render(page: &Page) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.add_template("page.html", include_str!("page.html"))?;
    let Page { title, label, facts, sections } = page;
    let html = environment
        .get_template("page.html")?
        .render(context! { title, label, facts, sections })?;
    // What XML can not have, not even escaped.
    let can_not = |c: char| {
        (c.is_control() && c != '\n' && c != '\t') || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    Ok(html.replace(can_not, " "))
}
