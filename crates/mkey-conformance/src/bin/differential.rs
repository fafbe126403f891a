//! Runs random programs of verbs over the software RNIC and over another device, and prints in
//! what they differ, each difference with the smallest program that shows it.

use clap::Parser;
use mkey_conformance::differential::campaign::{Campaign, Comparison};
use mkey_conformance::differential::deviations::{self, Deviation, Linux, RXE};
use mkey_conformance::differential::program::Program;
use mkey_conformance::differential::{document, generate};
use mkey_conformance::fixture::Subject;
use mkey_conformance::ibverbs::Ibverbs;
use mkey_conformance::soft::Soft;
use mkey_core::device::Device;
use std::path::PathBuf;
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
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let same = if arguments.device == "soft" {
        run(&arguments, &[], || (Soft::with_seed(1), Soft::with_seed(2)))
    } else {
        let table = deviations::of(RXE, Linux::of(&release()));
        run(&arguments, &table, || (Soft::new(), Ibverbs::new(&arguments.device)))
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

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Whether no difference was found that is not known.
fn run<O: Subject, T: Subject>(
    arguments: &Arguments,
    table: &[Deviation],
    pair: impl Fn() -> (O, T) + Sync,
) -> anyhow::Result<bool> {
    if arguments.print || arguments.replay.is_some() {
        let (ours, theirs) = pair();
        return one(arguments, &Comparison::new(&ours, &theirs, table));
    }
    let &Arguments { seed: first, programs, threads, most, .. } = arguments;
    let campaign = Campaign { first, programs, threads, most };
    let begin = |number: u64| {
        if arguments.each {
            eprintln!("program {number}");
        } else if number.is_multiple_of(100) {
            eprintln!("{} programs", number - first);
        }
    };
    match campaign.run(table, &pair, begin) {
        Err(found) => {
            found.iter().for_each(|report| println!("{report}"));
            Ok(false)
        }
        Ok(tally) if arguments.device == "soft" => {
            print!("{}", document::front(&campaign, &tally));
            Ok(true)
        }
        Ok(tally) => {
            let driver = pair().1.open().0.capabilities().driver.clone();
            print!("{}", document::section(&driver, &release(), table, &tally));
            Ok(true)
        }
    }
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
