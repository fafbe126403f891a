//! A replay as text.

use super::report::{Figures, Replayed, Row};
use crate::bench::report::Outcome;
use crate::bench::table::{Line, Side, WIDTH, render};
use crate::bench::units::{count, size, time};
use crate::model::check::printable;

/// The table and what there is to say about it.
pub fn replayed(replayed: &Replayed) -> String {
    let Replayed { device, machine, .. } = replayed;
    let mut out = String::new();
    let mut say = |text: &str| {
        for line in textwrap::wrap(text, WIDTH) {
            out.push_str(&line);
            out.push('\n');
        }
    };
    let command: Vec<String> = replayed.command.iter().map(|word| printable(word)).collect();
    say(&format!(
        "{} registrations of {} on {} ({}{})",
        count(replayed.registrations),
        if command.is_empty() { "a recording".to_owned() } else { command.join(" ") },
        printable(&device.name),
        printable(&device.driver),
        if device.software { "; no figure of a NIC" } else { "" }
    ));
    let recorded = match replayed.recorded_ns {
        Some(ns) => {
            format!("in registration in the recorded program: {} (recorded)", time(ns as f64))
        }
        None => "in registration in the recorded program: not recorded".to_owned(),
    };
    say(&recorded);
    out.push('\n');
    let columns = [
        ("strategy", Side::Left, None),
        ("regions\nmade", Side::Right, None),
        ("in\nregistration", Side::Right, None),
        ("one\np50", Side::Right, None),
        ("one\np99", Side::Right, None),
        ("of\nas-recorded", Side::Right, None),
        ("\nsaves", Side::Right, None),
        ("registered\nat most", Side::Right, None),
        ("\nregistration becomes", Side::Left, Some(34)),
    ];
    let lines: Vec<Line> = replayed.rows.iter().map(line).collect();
    out.push_str(&render(&columns, &lines));
    out.push('\n');
    let mut say = |text: &str| {
        for line in textwrap::wrap(&printable(text), WIDTH) {
            out.push_str(&line);
            out.push('\n');
        }
    };
    let rounds = replayed.rows.iter().filter_map(Row::figures).map(|f| f.rounds).max();
    say(&format!(
        "Measured now, by one thread in the order of the calls: the median of {} whole replays; each call's time \
         has one reading of the clock in it ({}). `one`: what a registration of the recording becomes.",
        rounds.unwrap_or(0),
        time(machine.clock_ns as f64)
    ));
    for sentence in replayed.left.sentences() {
        say(&format!("not replayed: {sentence}"));
    }
    for row in &replayed.rows {
        let Some(figures) = row.figures() else { continue };
        for sentence in figures.left.sentences() {
            say(&format!("{}: not replayed: {sentence}", row.strategy));
        }
        if let Some(why) = &figures.refused {
            say(&format!("{}: refused: {why}", row.strategy));
        }
    }
    for note in &replayed.notes {
        say(&format!("note: {note}"));
    }
    out
}

fn line(row: &Row) -> Line {
    let name = row.strategy.to_string();
    let figures = match &row.outcome {
        Outcome::Measured(figures) => figures,
        Outcome::NotMeasured(missing) => return Line::not_measured(vec![name], missing),
    };
    let Figures { register, .. } = &**figures;
    let of = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), time);
    let saves = match figures.saving_ns {
        ns if ns < 0.0 => format!("-{}", time(-ns)),
        ns => time(ns),
    };
    Line::Cells(vec![
        name,
        count(figures.made),
        time(figures.total_ns),
        of(register.map(|summary| summary.median_ns)),
        of(register.map(|summary| summary.p99_ns)),
        format!("{:.3}", figures.ratio),
        saves,
        size(figures.most_bytes),
        row.strategy.what().to_owned(),
    ])
}
