//! Makes `docs/conformance.md` by running all rule tests over the software RNIC, beside what is
//! recorded of other devices.

use clap::Parser;
use mkey_conformance::ibverbs::Ibverbs;
use mkey_conformance::registry::Outcome;
use mkey_conformance::results::{self, Results, Seen};
use mkey_conformance::{document, rules};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Parser)]
#[command(about = "The page of rules and whether they hold, by device; prints it")]
struct Arguments {
    /// Put the page in its place
    #[arg(long)]
    write: bool,
    /// Run the rule tests over this device of the machine instead, and record the results in a
    /// file of the folder here
    #[arg(long, value_name = "DEVICE")]
    record: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.record {
        Some(device) => record(&Ibverbs::new(device)),
        None => page(arguments.write),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("conformance-doc: {error}");
            ExitCode::FAILURE
        }
    }
}

fn page(write: bool) -> Result<(), String> {
    let page = document::document()?;
    if !write {
        print!("{page}");
        return Ok(());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
    std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))
}

fn record(device: &Ibverbs) -> Result<(), String> {
    let (driver, kernel) = (device.driver().to_owned(), device.kernel());
    let file = results::file(&driver, &kernel)
        .ok_or_else(|| format!("{} has no column in the page", device.about()))?;
    let (mut tests, mut broken) = (BTreeMap::new(), 0);
    for test in rules::all() {
        let begun = Instant::now();
        let outcome = test.outcome(device);
        let took = begun.elapsed().as_secs_f64();
        match Seen::of(&outcome) {
            Ok(seen) => {
                match &outcome {
                    Outcome::Deviated(_, why) => {
                        eprintln!("{took:5.1} s {}: {seen}: {why}", test.name);
                    }
                    _ => eprintln!("{took:5.1} s {}: {seen}", test.name),
                }
                tests.insert(test.name.to_owned(), seen);
            }
            Err(why) => {
                eprintln!("{took:5.1} s {}: broken: {why}", test.name);
                broken += 1;
            }
        }
    }
    if broken > 0 {
        return Err(format!("{broken} tests fail as no deviation explains: nothing is recorded"));
    }
    let results = Results { driver, kernel, tests };
    let mut json = serde_json::to_string_pretty(&results).map_err(|error| error.to_string())?;
    json.push('\n');
    std::fs::write(file, json).map_err(|error| format!("{file}: {error}"))
}
