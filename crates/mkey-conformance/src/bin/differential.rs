//! Runs random programs of verbs over the software RNIC and over another device, and prints in
//! what they differ, each difference with the smallest program that shows it.

use clap::Parser;
use mkey_conformance::differential::campaign::{Comparison, Tally};
use mkey_conformance::differential::deviations::RXE;
use mkey_conformance::differential::program::Program;
use mkey_conformance::differential::{document, generate};
use mkey_conformance::fixture::Subject;
use mkey_conformance::ibverbs::Ibverbs;
use mkey_conformance::soft::Soft;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Random programs of verbs over the software RNIC and over another device")]
struct Arguments {
    /// The other device; "soft" is another software RNIC
    #[arg(long, default_value = "rxe0")]
    device: String,
    /// How many programs
    #[arg(long, default_value_t = 2000)]
    programs: u64,
    /// The number of the first program
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop after so many differences
    #[arg(long, default_value_t = 5)]
    most: usize,
    /// Run the program in this file instead, and print what both devices showed
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Print the first program instead, for --replay
    #[arg(long)]
    print: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let soft = Soft::new();
    let same = if arguments.device == "soft" {
        run(&arguments, &Comparison::new(&soft, &Soft::with_seed(2), &[]))
    } else {
        run(&arguments, &Comparison::new(&soft, &Ibverbs::new(&arguments.device), RXE))
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

/// Whether no difference was found that is not known.
fn run<O: Subject, T: Subject>(
    arguments: &Arguments,
    comparison: &Comparison<'_, O, T>,
) -> anyhow::Result<bool> {
    if let Some(path) = &arguments.replay {
        let program =
            Program::parse(&std::fs::read_to_string(path)?).map_err(anyhow::Error::msg)?;
        let compared = comparison.compare(&program).map_err(anyhow::Error::msg)?;
        print!("{}", comparison.report(0, &program, &compared));
        return Ok(compared.unknown.is_none());
    }
    if arguments.print {
        print!("{}", generate::program(arguments.seed, comparison.offer()));
        return Ok(true);
    }
    let tell = |tally: &Tally, found: Option<&str>| match found {
        Some(report) => println!("{report}"),
        None if tally.programs.is_multiple_of(10) => eprintln!("{} programs", tally.programs),
        None => {}
    };
    let (seed, programs, most) = (arguments.seed, arguments.programs, arguments.most);
    let Ok(tally) = comparison.many(seed, programs, most, tell) else { return Ok(false) };
    print!("{}", document::section(comparison, &tally));
    Ok(true)
}
