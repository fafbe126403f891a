//! Measures what the engine and the software RNIC cost, each beside its bare reference in the same
//! run, and says which aims are met.
//!
//! Everything here is software: no figure is a NIC's. The process is pinned to one processor (rows
//! with two threads: two); each figure is the median of many short rounds that alternate with
//! rounds of its reference, so that what disturbs the machine disturbs both.

mod bare;
mod machine;
mod measure;
mod peer;
mod report;
mod rows;
mod second;
mod station;

use anyhow::{Result, ensure};
use clap::Parser;
use report::Report;
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "mkey-perf",
    about = "Measures the costs of mkey's engine and software RNIC beside their bare references",
    after_help = "Exit status: 0 if at most two rows miss their aim, none of them by more than \
                  twice; 1 otherwise; 2 wrong usage."
)]
struct Args {
    /// Measure only this row; may be given more than once
    #[arg(long, value_name = "ROW")]
    only: Vec<u8>,
    /// Say which rows there are
    #[arg(long)]
    list: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Rounds per figure
    #[arg(long, value_name = "N", default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// What a child process is for; used by row 7
    #[arg(long, value_name = "PINNED", hide = true)]
    confined: Option<bool>,
    /// The memory that a second process shares with the first; used by rows 13 to 16
    #[arg(long, value_name = "FILE", hide = true)]
    second: Option<String>,
    /// Its processor
    #[arg(long, value_name = "CPU", hide = true, default_value_t = 0)]
    second_cpu: usize,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("mkey-perf: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    if let Some(pinned) = args.confined {
        return rows::confined::child(pinned);
    }
    if let Some(file) = &args.second {
        return peer::second(file, args.second_cpu, rows::links::TASKS);
    }
    if args.list {
        for row in rows::ALL {
            println!("{:>2}  {}", row.number, row.work);
        }
        return Ok(ExitCode::SUCCESS);
    }
    for number in &args.only {
        let known = rows::ALL.iter().any(|row| row.number == *number);
        ensure!(known, "there is no row {number}; --list says which there are");
    }
    let cpus = machine::cpus()?;
    machine::pin_to(&cpus[..1])?;
    let setup = rows::Setup { rounds: args.rounds as usize, cpus };
    let mut report = Report::default();
    for row in rows::ALL {
        if args.only.is_empty() || args.only.contains(&row.number) {
            eprintln!("row {}: {}", row.number, row.work);
            let load = machine::Load::now()?;
            let lines = (row.measure)(&setup);
            machine::pin_to(&setup.cpus[..1])?;
            report.add(row, lines, load.others()?);
        }
    }
    if args.json {
        println!("{}", report.json()?);
    } else {
        print!("{report}");
    }
    Ok(if report.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
