//! A sweep as text for people.

use super::report::{Figures, Iommu, Probes, Row, Stages, Sweep, Term};
use super::sweep::ENOUGH_PROBED;
use crate::bench::report::Outcome;
use crate::bench::report::Summary;
use crate::bench::table::{Line, Side, WIDTH, render};
use crate::bench::text::{ending, head, whose};
use crate::bench::units::{count, size, time};
use std::fmt::Write;

const NONE: &str = "-";

/// The whole sweep.
pub fn sweep(sweep: &Sweep) -> String {
    let mut out = String::new();
    head(&mut out, "bench registration", &sweep.device, &sweep.machine, sweep.seconds);
    let whose = whose(&sweep.device, sweep.command_cost_ns);
    let _ = writeln!(out, "\nRegistering and deregistering by size and page\n({whose})");
    out.push_str(&figures(sweep));
    out.push_str(&wrapped(&reading(sweep)));
    if let Some(probes) = &sweep.probes {
        let _ = write!(out, "\n{}({whose})\n", wrapped(&stages_title(probes)));
        out.push_str(&stages(sweep, probes));
    }
    if let Some(of) = &sweep.iommu {
        let _ = write!(out, "\n{}({IOMMU_LABEL})\n", wrapped(&iommu_title(of)));
        out.push_str(&iommu(sweep, of));
    }
    ending(&mut out, &sweep.missing, &sweep.device);
    out
}

/// How to read the first table.
pub fn reading(sweep: &Sweep) -> String {
    let mut text = terms_reading(sweep).to_owned();
    text.push_str(
        " Each registration takes another part of the memory, so that what the kernel keeps of its \
         pages is not in the processor's caches yet. Registrations during which something else ran \
         in this thread's place are not counted",
    );
    let disturbed: Vec<String> = sweep
        .rows
        .iter()
        .filter(|row| row.figures().is_some_and(|figures| figures.disturbed))
        .map(|row| format!("{} on {} pages", size(row.bytes), row.page))
        .collect();
    if disturbed.is_empty() {
        text.push('.');
    } else {
        let _ = write!(
            text,
            ", but for sizes where nearly all were so: {}. The machine is too busy for these, and \
             their figures are too high.",
            disturbed.join(", ")
        );
    }
    text
}

fn terms_reading(sweep: &Sweep) -> &'static str {
    if sweep.rows.iter().all(|row| row.figures().is_none()) {
        "register and deregister: the verbs from call to return, of memory that is brought in \
         already."
    } else if sweep.rows.iter().filter_map(Row::figures).any(|figures| figures.terms.is_some()) {
        "register and deregister: the verbs from call to return, of memory that is brought in \
         already. pin, table and unpin are terms as the device counts them, medians of their own; \
         rest is what is left of register."
    } else {
        "register and deregister: the verbs from call to return, of memory that is brought in \
         already. This device does not tell its own terms; --stages asks the kernel."
    }
}

fn wrapped(text: &str) -> String {
    textwrap::wrap(text, WIDTH).join("\n") + "\n"
}

fn median(summary: Option<Summary>) -> String {
    summary.map_or(NONE.to_owned(), |summary| time(summary.median_ns))
}

/// A time that may come out below zero, as a difference of medians does.
pub fn signed(ns: f64) -> String {
    if ns < 0.0 { format!("-{}", time(-ns)) } else { time(ns) }
}

/// The heads of the table of figures: two lines each.
pub fn heads(sweep: &Sweep) -> Vec<&'static str> {
    let mut heads = vec![
        "\npage",
        "\nsize",
        "\npages",
        "register\np50",
        "\np99",
        "deregister\np50",
        "\np99",
        "\nsamples",
        "register:\npin",
        "\ntable",
    ];
    if sweep.command_cost_ns > 0 {
        heads.push("\ncommand");
    }
    heads.extend(["\nrest", "deregister:\nunpin"]);
    if sweep.command_cost_ns > 0 {
        heads.push("\nmark");
    }
    heads
}

/// The cells of a row up to its figures.
pub fn names(row: &Row) -> Vec<String> {
    vec![row.page.clone(), size(row.bytes)]
}

/// The cells of a row with its figures.
pub fn cells(sweep: &Sweep, row: &Row, figures: &Figures) -> Vec<String> {
    let terms = figures.terms;
    let rest = figures.split(false).and_then(|(_, split)| {
        split.iter().find(|(term, _)| *term == Term::Rest).map(|(_, ns)| signed(*ns))
    });
    let mut cells = names(row);
    cells.extend([
        count(row.pages()),
        time(figures.register.median_ns),
        time(figures.register.p99_ns),
        time(figures.deregister.median_ns),
        time(figures.deregister.p99_ns),
        count(figures.register.samples),
        median(terms.and_then(|t| t.pin)),
        median(terms.map(|t| t.table)),
    ]);
    if sweep.command_cost_ns > 0 {
        cells.push(median(terms.and_then(|t| t.command)));
    }
    cells.push(rest.unwrap_or_else(|| NONE.to_owned()));
    cells.push(median(terms.and_then(|t| t.unpin)));
    if sweep.command_cost_ns > 0 {
        cells.push(if row.simulated { "simulated" } else { "" }.to_owned());
    }
    cells
}

fn figures(sweep: &Sweep) -> String {
    let side = |n: usize, head: &str| match (n, head) {
        (0, _) | (_, "\nmark") => Side::Left,
        _ => Side::Right,
    };
    let heads = heads(sweep);
    let columns: Vec<_> =
        heads.iter().enumerate().map(|(n, head)| (*head, side(n, head), None)).collect();
    let lines: Vec<Line> = sweep
        .rows
        .iter()
        .map(|row| match &row.outcome {
            Outcome::Measured(figures) => Line::Cells(cells(sweep, row, figures)),
            Outcome::NotMeasured(missing) => Line::not_measured(names(row), missing),
        })
        .collect();
    render(&columns, &lines)
}

/// The title of the mappings through an IOMMU.
pub fn iommu_title(iommu: &Iommu) -> String {
    format!("The same memory mapped through an IOMMU, by VFIO group {}", iommu.group)
}

/// Whose figures they are.
pub const IOMMU_LABEL: &str = "figures of this machine's IOMMU and kernel, not of a NIC";

/// What they are.
pub const IOMMU_READING: &str = "map and unmap: by VFIO, which pins the memory for that; pin: only pinned, as the software RNIC \
     does. \"added\" is what the map takes longer: about what a NIC behind this IOMMU pays for each \
     registration beyond what stands above. The device that is measured has no part in it.";

/// The heads of the mappings.
pub const IOMMU_HEADS: [&str; 7] = ["page", "size", "pages", "map", "unmap", "pin", "added"];

/// The rows of the mappings.
pub fn iommu_rows(sweep: &Sweep) -> Vec<Vec<String>> {
    let row = |row: &Row| {
        let dma = row.figures()?.dma?;
        let mut cells = names(row);
        cells.push(count(row.pages()));
        cells.extend([dma.map, dma.unmap, dma.pin].map(|of| time(of.median_ns)));
        cells.push(signed(dma.added_ns()));
        Some(cells)
    };
    sweep.rows.iter().filter_map(row).collect()
}

fn iommu(sweep: &Sweep, iommu: &Iommu) -> String {
    if let Some(missing) = &iommu.missing {
        return wrapped(&format!("not measured: {}", missing.what));
    }
    let side = |n| if n == 0 { Side::Left } else { Side::Right };
    let columns: Vec<_> =
        IOMMU_HEADS.iter().enumerate().map(|(n, head)| (*head, side(n), None)).collect();
    let lines: Vec<Line> = iommu_rows(sweep).into_iter().map(Line::Cells).collect();
    render(&columns, &lines) + &wrapped(IOMMU_READING)
}

/// The title of the stages.
pub fn stages_title(probes: &Probes) -> String {
    let note = probes.note.as_ref().map_or(String::new(), |note| format!(" ({note})"));
    format!("Where the time of a registration goes in the kernel: {}{note}", probes.chain)
}

/// What the stages are.
pub const STAGES_READING: &str = "Medians of each function's own time, without the probed functions that it called. \"outside\" \
     is the verb without the outermost of them: the library, entering the kernel, what is not \
     probed. Probes cost time themselves, so \"probed\" is longer than register above.";

/// Of which sizes so few registrations were probed that their medians say little.
pub fn few_probed(sweep: &Sweep) -> Option<String> {
    let few: Vec<String> = measured_stages(sweep)
        .filter(|(_, stages)| stages.samples < ENOUGH_PROBED)
        .map(|(row, _)| format!("{} on {} pages", size(row.bytes), row.page))
        .collect();
    (!few.is_empty()).then(|| {
        format!(
            "Few samples: of {} less than {ENOUGH_PROBED} registrations were probed, whose \
             medians scatter; a longer --time, or fewer --sizes and --pages, take more.",
            few.join(", ")
        )
    })
}

/// The heads of the stages before those of their functions.
pub const STAGE_HEADS: [&str; 5] = ["page", "size", "samples", "probed", "outside"];

/// The heads of the stages that ran in any row, after page and size.
pub fn stage_names(sweep: &Sweep, probes: &Probes) -> Vec<String> {
    let ran = |name: &str| {
        let mut stages = measured_stages(sweep).flat_map(|(_, stages)| &stages.stages);
        stages.any(|stage| stage.stage == name)
    };
    let names = probes.functions.iter().map(|probed| probed.stage.clone());
    names.filter(|name| ran(name)).collect()
}

/// The rows that were probed.
pub fn measured_stages(sweep: &Sweep) -> impl Iterator<Item = (&Row, &Stages)> {
    sweep.rows.iter().filter_map(|row| Some((row, row.figures()?.stages.as_ref()?)))
}

/// The cells of a probed row.
pub fn stage_cells(row: &Row, stages: &Stages, heads: &[String]) -> Vec<String> {
    let mut cells = names(row);
    cells.extend([count(stages.samples), time(stages.verb_ns), time(stages.outside_ns)]);
    cells.extend(heads.iter().map(|name| {
        let found = stages.stages.iter().find(|stage| stage.stage == *name);
        found.map_or(NONE.to_owned(), |stage| time(stage.own_ns))
    }));
    cells
}

fn stages(sweep: &Sweep, probes: &Probes) -> String {
    if let Some(missing) = &probes.missing {
        return wrapped(&format!("not measured: {}", missing.what));
    }
    let names = stage_names(sweep, probes);
    // One word a line keeps the columns narrow.
    let heads: Vec<String> = names.iter().map(|name| name.replace(' ', "\n")).collect();
    let side = |n| if n == 0 { Side::Left } else { Side::Right };
    let fixed = STAGE_HEADS.iter().enumerate();
    let mut columns: Vec<_> = fixed.map(|(n, head)| (*head, side(n), None)).collect();
    columns.extend(heads.iter().map(|head| (head.as_str(), Side::Right, None)));
    let cells = measured_stages(sweep);
    let lines: Vec<Line> =
        cells.map(|(row, stages)| Line::Cells(stage_cells(row, stages, &names))).collect();
    let mut out = render(&columns, &lines);
    out.push_str(&wrapped(STAGES_READING));
    if let Some(few) = few_probed(sweep) {
        out.push_str(&wrapped(&few));
    }
    for line in probe_lines(probes) {
        out.push_str(&textwrap::fill(
            &line,
            textwrap::Options::new(WIDTH).initial_indent("- ").subsequent_indent("  "),
        ));
        out.push('\n');
    }
    out
}

/// What was probed and what could not be, a line each.
pub fn probe_lines(probes: &Probes) -> Vec<String> {
    let stage = |probed: &super::report::Probed| {
        let functions = if probed.functions.is_empty() {
            "nothing probed".to_owned()
        } else {
            probed.functions.join(", ")
        };
        let not = probed.not_probed.iter().map(|why| format!("; not probed: {why}"));
        format!(
            "{} ({}): {functions} [{}]{}",
            probed.stage,
            probed.term.name(),
            probed.source,
            not.collect::<String>()
        )
    };
    let absent = probes.absent.iter().map(|(term, why)| format!("no {}: {why}", term.name()));
    probes.functions.iter().map(stage).chain(absent).collect()
}

#[cfg(test)]
mod tests {
    use crate::bench::registration::sample;
    use crate::bench::report::Outcome;

    #[test]
    fn every_table_says_whose_figures_they_are() {
        let text = super::sweep(&sample::sweep());
        let label = "(figures of the software RNIC mkey0, not of a NIC)";
        assert_eq!(text.matches(label).count(), 2, "{text}");
        for said in ["4 KiB", "64 MiB", "not measured: ", "uverbs", "no device command"] {
            assert!(text.contains(said), "{said} is not in\n{text}");
        }
    }

    #[test]
    fn stages_say_how_many_samples_they_are_of_and_where_that_is_few() {
        let mut sweep = sample::sweep();
        let stages = |text: &str| text.split("in the kernel: ").nth(1).unwrap().to_owned();
        let text = stages(&super::sweep(&sweep));
        assert!(text.contains("samples") && !text.contains("Few samples"), "{text}");
        let line = text.lines().find(|line| line.starts_with("4 KiB")).unwrap();
        assert_eq!(line.split_whitespace().nth(4), Some("15"), "{line}");
        for row in sweep.rows.iter_mut().filter(|row| row.bytes == 64 << 20) {
            let Outcome::Measured(figures) = &mut row.outcome else { panic!() };
            if let Some(stages) = &mut figures.stages {
                stages.samples = 3;
            }
        }
        let text = stages(&super::sweep(&sweep));
        assert!(text.contains("Few samples: of 64 MiB on 4 KiB pages less than 7"), "{text}");
    }

    #[test]
    fn a_declared_command_adds_its_column_and_mark() {
        let mut sweep = sample::sweep();
        sweep.command_cost_ns = 16_000;
        sweep.rows[0].simulated = true;
        let text = super::sweep(&sweep);
        let line = text.lines().find(|line| line.starts_with("4 KiB")).unwrap();
        assert!(line.ends_with("simulated"), "{text}");
        assert!(text.contains("simulated device command of 16.0us"), "{text}");
    }

    #[test]
    fn it_fits_the_width_and_is_ascii() {
        for line in super::sweep(&sample::sweep()).lines().filter(|l| !l.starts_with("    ")) {
            assert!(line.len() <= 120 && line.is_ascii(), "{} {line}", line.len());
        }
    }
}
