//! `mkey trace`: what registration costs a program, and what would mend it.
//!
//! * [`args`]: what can be asked for. [`mod@gather`]: runs the program, and makes a recording of what its
//!   processes have written. [`mod@analyse`]: what the recording shows. [`advice`]: what other strategies would
//!   have cost for the same run.

pub mod advice;
pub mod analyse;
pub mod args;
pub mod gather;

use crate::bench::export;
use crate::cli::print;
use crate::exit::End;
use crate::html;
use crate::model::check::printable;
use crate::run::check::say;
use advice::Advice;
use analyse::Report;
use analyse::text::text;
use args::TraceArgs;
use gather::launch::{self, Gathered};
use gather::merge::merge;
use mkey_trace::format::Recording;
use serde::Serialize;
use std::fs::File;
use std::io::{BufReader, Write, stderr};
use std::path::Path;

/// Runs a program and reports what registration cost it; or reports what a recording shows.
///
/// # Errors
/// [`End`]: how the program ended, or why it could not begin.
pub fn run(args: &TraceArgs) -> Result<(), End> {
    args.check_outputs()?;
    if args.read.is_empty() {
        return launch::run(args, |gathered| finish(args, gathered));
    }
    let recordings = args.read.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let recording = merge(recordings);
    write_outputs(args, &recording, None)
}

/// Reads a recording of `--output`.
///
/// # Errors
/// `Failed`, with its name and what is wrong with it.
pub fn read(path: &Path) -> Result<Recording, End> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| End::failed(format_args!("{shown}: {error}")))?;
    Recording::read(BufReader::with_capacity(1 << 20, file))
        .map_err(|error| End::failed(format_args!("{shown}: {error}")))
}

/// A process that could not write (a sandbox, a root of its own, a full disk) leaves as little as one that
/// opened no device.
const NOTHING: &str = "no RDMA device was opened, or it could not be recorded";

/// Tells what came of a program.
fn finish(args: &TraceArgs, gathered: Gathered) -> Result<(), End> {
    let Gathered { assembled, notes, unreachable } = gathered;
    let recording = assembled.recording;
    assembled.untold.iter().for_each(|words| say(&format!("not all could be read: {words}")));
    notes.iter().for_each(|words| say(words));
    if recording.processes.is_empty() {
        let why = unreachable.map_or_else(String::new, |why| format!(" ({why})"));
        let end = &recording.job.end;
        let program = recording.job.command.join(" ");
        let words = format!("{NOTHING}: {program}{why}; {end}");
        return write_outputs(args, &recording, Some(&words));
    }
    write_outputs(args, &recording, None)
}

/// All that is told of a recording.
#[derive(Serialize)]
struct Told<'a> {
    report: &'a Report,
    advice: &'a Advice,
}

/// Writes what was asked for: whatever can be written, so that nothing is lost with a file. `instead`: what
/// is said in place of a report.
fn write_outputs(
    args: &TraceArgs,
    recording: &Recording,
    instead: Option<&str>,
) -> Result<(), End> {
    // The recording first: all else can be had from it.
    let saved = args.output.as_deref().map_or(Ok(()), |path| {
        let mut bytes = Vec::new();
        recording.write(&mut bytes).map_err(|error| End::output(path.display(), &error))?;
        export::write(path, &bytes)
    });
    let report = Report::told(recording, args.lang.lang());
    let advice = Advice::of(recording);
    let words = || match instead {
        Some(words) => format!("mkey: {}\n", printable(words)),
        None => format!("{}\n{}", text(&report), advice::text::text(&advice)),
    };
    let printed = match &args.report {
        Some(path) => export::write(path, words().as_bytes()),
        // On standard output there is the program's own, unless there was none.
        None if !args.read.is_empty() && !args.json.as_deref().is_some_and(export::is_stdout) => {
            print(words().as_bytes())
        }
        None if !args.read.is_empty() => Ok(()),
        None => {
            // If standard error is closed there is nobody to tell.
            let _ = stderr().write_all(words().as_bytes());
            Ok(())
        }
    };
    let json = args.json.as_deref().map_or(Ok(()), |path| {
        export::write(path, &export::json(&Told { report: &report, advice: &advice })?)
    });
    let page = html::write(&args.html, || html::trace::page(&report));
    let all = [saved, printed, json, page].into_iter().filter_map(Result::err);
    // A reader that went away is told last: it is no failure.
    let (closed, failed): (Vec<_>, Vec<_>) = all.partition(|end| *end == End::ClosedPipe);
    failed.into_iter().chain(closed).next().map_or(Ok(()), Err)
}
