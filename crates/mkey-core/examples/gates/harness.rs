//! Runs one scenario a given number of times, so that the difference between two runs is the
//! work of the iterations between them and nothing else: start-up and set-up cancel out.

use std::hint::black_box;
use std::process::ExitCode;

/// Something whose instructions are counted.
pub struct Scenario {
    /// What `gates/limits.toml` calls it.
    pub name: &'static str,
    /// Makes what the iterations share and gives back one iteration. An iteration leaves things
    /// as it found them and passes what it computes through `black_box`.
    pub setup: fn() -> Box<dyn FnMut()>,
}

/// Does what the arguments ask:
///
/// - `list` prints the names of the scenarios;
/// - `run NAME ITERATIONS` runs one, a multiple of four times;
/// - `slow NAME ITERATIONS` runs its slowed copy, in which every fourth iteration is done twice
///   (a quarter more work).
pub fn main(scenarios: &[Scenario]) -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match *words.as_slice() {
        ["list"] => {
            for scenario in scenarios {
                println!("{}", scenario.name);
            }
            ExitCode::SUCCESS
        }
        [speed @ ("run" | "slow"), name, iterations] => {
            let scenario = scenarios.iter().find(|scenario| scenario.name == name);
            match (scenario, iterations.parse::<u64>()) {
                (Some(_), Ok(iterations)) if iterations % 4 != 0 => {
                    refused(&format!("{iterations} iterations are no multiple of four"))
                }
                (Some(scenario), Ok(iterations)) => {
                    repeat((scenario.setup)(), iterations, speed == "slow");
                    ExitCode::SUCCESS
                }
                (None, _) => refused(&format!("no scenario is called `{name}`")),
                (Some(_), Err(error)) => refused(&format!("`{iterations}` iterations: {error}")),
            }
        }
        _ => refused("usage: gates list | (run | slow) NAME ITERATIONS"),
    }
}

/// Both speeds run this same loop, so that the copy is slower by its iterations alone. Four at a
/// time, to keep the loop's own instructions few.
fn repeat(mut iteration: Box<dyn FnMut()>, iterations: u64, slow: bool) {
    for _ in 0..iterations / 4 {
        iteration();
        iteration();
        iteration();
        iteration();
        if black_box(slow) {
            iteration();
        }
    }
}

fn refused(why: &str) -> ExitCode {
    eprintln!("gates: {why}");
    ExitCode::from(2)
}
