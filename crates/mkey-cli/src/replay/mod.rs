//! `mkey replay`: the registrations of a recording, again, on any device and by any strategy.
//!
//! * [`args`]: what is asked. [`strategy`]: the ways. [`script`]: what a process of a recording registered,
//!   [`left`] what of it can not be played. [`layout`]: where its memory lay; [`memory`]: the same here.
//! * [`stage`]: a script on a device; [`player`]: one file a way; [`mod@rounds`]: whole replays.
//! * [`report`]: the figures, which [`text`] prints.

pub mod args;
pub mod layout;
pub mod left;
pub mod memory;
pub mod player;
pub mod report;
pub mod rounds;
#[cfg(test)]
pub(crate) mod sample;
pub mod script;
pub mod stage;
pub mod strategy;
#[cfg(test)]
pub(crate) mod tests;
pub mod text;

use crate::bench::error::RowError;
use crate::bench::outputs::{Outputs, check_apart};
use crate::bench::progress::Progress;
use crate::bench::stop::Stop;
use crate::bench::{ended, facts, judge, measure};
use crate::device::Opened;
use crate::exit::End;
use crate::input;
use crate::model::check::printable;
pub use args::ReplayArgs;
use left::Left;
use mkey_trace::format::{Process, Recording};
use report::Replayed;
use script::Script;
use stage::Stage;
use std::io::BufReader;
use std::time::Instant;

/// Replays a recording.
///
/// # Errors
/// [`End`]: how the run ended before it was done.
pub fn run(args: &ReplayArgs) -> Result<(), End> {
    let outputs = Outputs { json: args.json.clone(), csv: None };
    outputs.check()?;
    check_apart([("--json", args.json.as_deref())], &args.trace)?;
    let name = printable(&args.trace.display().to_string());
    let opened = input::open(&args.trace, &name)?;
    let recording = Recording::read(BufReader::new(opened.bytes))
        .map_err(|error| End::failed(format!("{name}: {}", printable(&error.to_string()))))?;
    let scripts = chosen(&recording, args.process)?;
    let opened = Opened::open(&args.device, args.pin, args.command_cost)?;
    let stop = Stop::on_signals().map_err(End::failed)?;
    let mut replayed = replay(args, &recording, scripts, &opened, &stop).map_err(ended)?;
    if let Some(mode) = opened.pin_mode() {
        // What was asked for may have been refused: known only after the registrations.
        mode.name().clone_into(&mut replayed.device.pin);
    }
    outputs.write(&replayed, || Ok(Vec::new()), || text::replayed(&replayed))?;
    judge("strategy", replayed.rows.iter().map(|row| row.outcome.missing()))
}

/// The scripts of the process that was asked for, or of all.
fn chosen(recording: &Recording, process: Option<u32>) -> Result<Vec<Script>, End> {
    let Some(number) = process else {
        let scripts = Script::all(recording);
        if scripts.iter().all(|script| script.ranges.is_empty()) {
            let mut left = Left::default();
            scripts.iter().for_each(|script| left.merge(&script.left));
            let why: Vec<String> = left.sentences().collect();
            let why =
                if why.is_empty() { "it has no registration".to_owned() } else { why.join("; ") };
            return Err(End::failed(format!("nothing of this recording can be replayed: {why}")));
        }
        return Ok(scripts);
    };
    let by = |is: fn(&Process, u32) -> bool| recording.processes.iter().find(|p| is(p, number));
    match by(|process, number| process.id == number).or_else(|| by(|p, number| p.pid == number)) {
        None => {
            let known: Vec<String> =
                recording.processes.iter().map(|p| format!("{} (pid {})", p.id, p.pid)).collect();
            Err(End::Usage(format!(
                "there is no process {number} in this recording; there are: {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            )))
        }
        Some(process) => {
            let script = Script::of(recording, process);
            if script.ranges.is_empty() {
                let why: Vec<String> = script.left.sentences().collect();
                let why = why.join("; ");
                return Err(End::failed(format!(
                    "nothing of process {number} can be replayed: {why}"
                )));
            }
            Ok(vec![script])
        }
    }
}

/// Plays scripts on a device.
///
/// # Errors
/// `Stopped`; as the device refuses.
pub fn replay(
    args: &ReplayArgs,
    recording: &Recording,
    scripts: Vec<Script>,
    opened: &Opened,
    stop: &Stop,
) -> Result<Replayed, RowError> {
    let start = Instant::now();
    let strategies = args.strategies();
    let machine = facts::machine(measure::clock_cost());
    let progress = Progress::new(strategies.len());
    let registrations = scripts.iter().map(|script| script.ranges.len() as u64).sum();
    let processes = scripts.iter().map(|script| script.process).collect();
    let known = scripts.iter().flat_map(|script| &script.ranges).any(|r| r.register_ns.is_some());
    let spent = scripts.iter().map(Script::spent_ns).fold(0, u64::saturating_add);
    let mut left = Left::default();
    scripts.iter().for_each(|script| left.merge(&script.left));
    // Pools and the program's own memory of `bounce` need as much again, twice.
    let mut room = args.room() / 3;
    let stages = scripts
        .into_iter()
        .map(|script| Stage::new(&opened.device, script, &strategies, &mut room, stop, &progress));
    let stages = stages.collect::<Result<Vec<_>, _>>();
    let rows = stages.and_then(|stages| {
        let rows = rounds::play(&stages, &strategies, args.speed, args.time, stop, &progress)?;
        Ok((rows, stages.iter().flat_map(Stage::notes).collect()))
    });
    progress.finish();
    let (rows, notes) = rows?;
    Ok(Replayed {
        schema: report::SCHEMA,
        mkey: env!("CARGO_PKG_VERSION").to_owned(),
        command: recording.job.command.clone(),
        processes,
        registrations,
        recorded_ns: known.then_some(spent),
        device: facts::device(&**opened.device.control(), args.pin),
        machine,
        as_recorded_speed: args.speed == rounds::Speed::Recorded,
        left,
        notes,
        rows,
        seconds: (start.elapsed().as_secs_f64() * 10.0).round() / 10.0,
    })
}
