//! Running a program with the recorder in it, and watching it meanwhile.

use super::assemble::{Assembled, assemble};
use super::counters::{self, DEVICES};
use super::descendants;
use super::folder::Folder;
use super::watch::Watch;
use super::{host, now};
use crate::exit::End;
use crate::run::check::{ended, passed_on, wait};
use crate::run::program::About;
use crate::run::{launch, library, prepare, program};
use crate::trace::args::TraceArgs;
use mkey_trace::format::Job;
use mkey_trace::record::{FOLDER, LIMIT};
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The library that tells of memory that is given back, beside the one that is preloaded.
const WATCH: &str = "libmkey_watch.so";
/// The library that is preloaded opens no software RNIC where it is told of none.
const NONE: u8 = 0;

/// What came of a program.
#[derive(Debug, Default)]
pub struct Gathered {
    /// The recording, and what could not be read.
    pub assembled: Assembled,
    /// What else is to be said, in words.
    pub notes: Vec<String>,
    /// Why the program itself could not be recorded, if that can be told.
    pub unreachable: Option<String>,
}

/// Runs the program of `args`; hands what was recorded to `finish` when it has ended, or when the time is
/// over for which it was to be watched: then it goes on, and this waits for it.
///
/// # Errors
/// How the program ended, if not well; else what `finish` says; else why it could not begin.
pub fn run(
    args: &TraceArgs,
    finish: impl FnOnce(Gathered) -> Result<(), End> + Send,
) -> Result<(), End> {
    let Some((name, arguments)) = args.program.split_first() else {
        return Err(End::Usage("of which program? (see mkey trace --help)".to_owned()));
    };
    if name.as_bytes().starts_with(b"-") {
        let name = name.display();
        return Err(End::Usage(format!("{name}: there is no such option (see mkey trace --help)")));
    }
    let library = library::find()?;
    let about = About::of(&program::find(name)?);
    prepare(&args.soft)?;
    let watch = library.with_file_name(WATCH);
    let libraries: Vec<&Path> = match watch.is_file() {
        true => vec![&library, &watch],
        false => vec![&library],
    };
    let has_device = counters::has_device();
    let devices = args.devices.unwrap_or(if has_device { NONE } else { 1 });
    if devices == NONE && args.soft.only {
        let why = "--only hides real devices, and --devices 0 leaves no others";
        return Err(End::Usage(why.to_owned()));
    }
    let with = (devices, &args.soft);
    let mut command = launch::command(with, name, arguments, &libraries, &about)?;
    libraries.iter().try_for_each(|library| launch::check_loads(library))?;
    let folder = Folder::new(args.limit).map_err(End::failed)?;
    command.env(FOLDER, folder.path()).env(LIMIT, args.limit.to_string());
    let mut notes = Vec::new();
    if libraries.len() == 1 {
        let place = watch.display();
        notes.push(format!(
            "memory that is freed while it is registered is not seen: there is no {place}"
        ));
    }
    let unreachable = about.unreachable.clone();
    let gathered = Gathered { notes, unreachable, ..Gathered::default() };
    supervise(command, folder, args, &about, gathered, finish)
}

/// How it came that nothing more is recorded.
enum Over {
    /// The program has ended.
    Ended(ExitStatus),
    /// The time is over.
    Time,
}

fn supervise(
    mut command: Command,
    folder: Folder,
    args: &TraceArgs,
    about: &About,
    mut gathered: Gathered,
    finish: impl FnOnce(Gathered) -> Result<(), End> + Send,
) -> Result<(), End> {
    let name = command.get_program().to_owned();
    // Before the program begins, so that none is missed.
    let signals =
        Signals::new(passed_on()).map_err(|error| End::failed(format_args!("signals: {error}")))?;
    let before = counters::read(Path::new(DEVICES));
    let mut job = job(&command, args.soft.command_cost);
    let began = now();
    let child = command.spawn().map_err(|error| launch::not_begun(&name, &error))?;
    if let Some(why) = &about.unreachable {
        crate::run::check::say(&format!(
            "the program itself is not recorded: {why}; the programs that it starts may be"
        ));
    }
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let watching = scope.spawn(move || {
            let mut watch = Watch::default();
            let over = watch_until(&mut watch, &folder, &told, args.duration);
            job.wall = now().saturating_sub(began);
            job.end = in_words(&over);
            // What it wrote at its very end.
            watch.look(folder.files());
            let running = watch.running();
            let named: Vec<_> = running.iter().map(u32::to_string).collect();
            gathered.notes.extend(descendants::words(&named));
            gathered.notes.extend(descendants::note(folder.path(), &running));
            let mut moved = counters::moved(&before, &counters::read(Path::new(DEVICES)));
            moved.extend(watch.counters());
            gathered.assembled = assemble(job, began, &folder.files(), watch.into_seen(), moved);
            drop(folder);
            finish(gathered)
        });
        let status = wait(child, signals);
        if let Ok(status) = status {
            // It may have ended by itself.
            let _ = tell.send(status);
        }
        drop(tell);
        let finished = watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let status =
            status.map_err(|error| End::failed(format_args!("{}: {error}", name.display())))?;
        match (ended(status), finished) {
            (None, finished) => finished,
            (Some(end), Ok(())) => Err(end),
            (Some(end), Err(failed)) => {
                // The program's end is what is answered with; the other is told.
                failed.finish();
                Err(end)
            }
        }
    })
}

/// Looks at the processes of a job until it is over.
fn watch_until(
    watch: &mut Watch,
    folder: &Folder,
    told: &Receiver<ExitStatus>,
    most: Option<Duration>,
) -> Over {
    let until = most.and_then(|most| Instant::now().checked_add(most));
    loop {
        let rest = watch.look(folder.files());
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Over::Time;
        }
        match told.recv_timeout(left.map_or(rest, |left| rest.min(left))) {
            Ok(status) => return Over::Ended(status),
            // Nobody waits for the program: there is nothing more to wait for here.
            Err(RecvTimeoutError::Disconnected) => return Over::Time,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn in_words(over: &Over) -> String {
    let status = match over {
        Over::Time => return "--duration".to_owned(),
        Over::Ended(status) => status,
    };
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".to_owned(),
    }
}

fn job(command: &Command, cost: Duration) -> Job {
    let text = |word: &OsStr| word.to_string_lossy().into_owned();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let command_cost = u64::try_from(cost.as_nanos()).ok().filter(|ns| *ns > 0);
    Job { command: words.map(text).collect(), command_cost, ..host::job() }
}
