//! Runs random programs of verbs over the software RNIC and over another device, and prints in
//! what they differ, each difference with the smallest program that shows it.

use anyhow::Context;
use clap::Parser;
use mkey_conformance::differential::campaign::{Campaign, Comparison, Tally, Told};
use mkey_conformance::differential::deviations::{self, Deviation};
use mkey_conformance::differential::program::Program;
use mkey_conformance::differential::record::{self, Record};
use mkey_conformance::differential::{document, generate};
use mkey_conformance::fixture::Subject;
use mkey_conformance::ibverbs::Ibverbs;
use mkey_conformance::soft::Soft;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Random programs of verbs over the software RNIC and over another device")]
struct Arguments {
    /// The other device; "soft" is another software RNIC
    #[arg(long, default_value = "rxe0")]
    device: String,
    /// How many programs
    #[arg(long, default_value_t = Campaign::USUAL.programs)]
    programs: u64,
    /// The number of the first program
    #[arg(long, default_value_t = Campaign::USUAL.first)]
    seed: u64,
    /// How many run at the same time
    #[arg(long, default_value_t = Campaign::USUAL.threads)]
    threads: usize,
    /// Stop after so many differences
    #[arg(long, default_value_t = Campaign::USUAL.most)]
    most: usize,
    /// Print the number of each program before it runs, to find one that the machine dies of
    #[arg(long)]
    each: bool,
    /// Run the program in this file instead, and print what both devices showed
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Print the first program instead, for --replay
    #[arg(long)]
    print: bool,
    /// Record what is seen in a file of the folder here
    #[arg(long)]
    record: bool,
    /// Run over two software RNICs and print the page, with what is recorded of other devices
    #[arg(long)]
    page: bool,
    /// Put the page in its place
    #[arg(long, requires = "page")]
    write: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let same = if arguments.page || arguments.device == "soft" {
        run(
            &arguments,
            &[],
            || (Soft::with_seed(1), Soft::with_seed(2)),
            |campaign, tally| page(&arguments, campaign, tally),
        )
    } else {
        let device = Ibverbs::new(&arguments.device);
        let (driver, kernel) = (device.driver(), device.kernel());
        let table = deviations::of(driver, &kernel);
        run(
            &arguments,
            &table,
            || (Soft::new(), device.clone()),
            |_, tally| shown(&arguments, &Record::of(driver, &kernel, &table, tally)),
        )
    };
    match same {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("differential: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether no difference was found that is not known. `done` is told what was seen.
fn run<O: Subject, T: Subject>(
    arguments: &Arguments,
    table: &[Deviation],
    pair: impl Fn() -> (O, T) + Sync,
    done: impl FnOnce(&Campaign, &Tally) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    if arguments.print || arguments.replay.is_some() {
        let (ours, theirs) = pair();
        return one(arguments, &Comparison::new(&ours, &theirs, table));
    }
    let &Arguments { seed: first, programs, threads, most, .. } = arguments;
    let campaign = Campaign { first, programs, threads, most };
    let tell = |told: Told<'_>| match told {
        Told::Begins(number) if arguments.each || number.is_multiple_of(100) => {
            eprintln!("program {number}");
        }
        Told::Begins(_) => {}
        Told::Found(report) => println!("{report}"),
    };
    match campaign.run(table, &pair, tell) {
        Err(_) => Ok(false),
        Ok(tally) => done(&campaign, &tally).map(|()| true),
    }
}

/// What was seen over another device: told, or recorded.
fn shown(arguments: &Arguments, record: &Record) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(record)? + "\n";
    if !arguments.record {
        print!("{json}");
        return Ok(());
    }
    let (file, _) = record::find(&record.driver, &record.kernel).map_err(anyhow::Error::msg)?;
    std::fs::write(file, json).context(file)
}

fn page(arguments: &Arguments, campaign: &Campaign, tally: &Tally) -> anyhow::Result<()> {
    let recorded = record::recorded().map_err(anyhow::Error::msg)?;
    let page = document::page(campaign, tally, &recorded);
    if !arguments.write {
        print!("{page}");
        return Ok(());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/differential.md");
    std::fs::write(&path, page).with_context(|| path.display().to_string())
}

/// One program: prints it, or replays one.
fn one<O: Subject, T: Subject>(
    arguments: &Arguments,
    comparison: &Comparison<'_, O, T>,
) -> anyhow::Result<bool> {
    let Some(path) = &arguments.replay else {
        print!("{}", generate::program(arguments.seed, comparison.offer()));
        return Ok(true);
    };
    let program = Program::parse(&std::fs::read_to_string(path)?).map_err(anyhow::Error::msg)?;
    let compared = comparison.compare(&program, 1).map_err(anyhow::Error::msg)?;
    print!("{}", comparison.report(0, &program, &compared));
    Ok(compared.unknown.is_none())
}
