//! `mkey run`: programs that know nothing of mkey on software RNICs.
//!
//! * [`args`]: what can be asked for. [`library`]: where the library to preload is. [`program`]: what
//!   kind of file a program is. [`launch`]: starting it. [`check`]: what it left behind. [`offer`]: the
//!   devices that it would find.

pub mod args;
pub mod check;
pub mod launch;
pub mod library;
pub mod offer;
pub mod program;

use crate::bench::outputs::check_output;
use crate::exit::End;
use args::{RunArgs, SoftArgs};
use mkey_soft::CaptureFile;
use std::env;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Runs a program, or shows what it would find.
///
/// # Errors
/// [`End`]: how it ended, or why it could not begin. Without `--check` a program that begins takes
/// the place of this one, so there is nothing to come back from.
pub fn run(args: &RunArgs) -> Result<(), End> {
    let library = library::find()?;
    match args.program.split_first() {
        None if args.check => Err(End::Usage("--check: of which program?".to_owned())),
        None => offer::show(args, &library),
        Some((program, _)) if program.as_bytes().starts_with(b"-") => Err(End::Usage(format!(
            "{}: there is no such option (see mkey run --help)",
            program.display()
        ))),
        Some((program, arguments)) => {
            let path = program::find(program)?;
            let about = program::About::of(&path);
            about.warn();
            prepare(&args.soft)?;
            let devices = (args.devices, &args.soft);
            let command = launch::command(devices, program, arguments, &[&library], &about)?;
            launch::check_loads(&library)?;
            match args.check {
                true => check::run(command, &about),
                false => Err(launch::become_it(command, program)),
            }
        }
    }
}

/// Refuses what the devices could not do, and begins their capture.
///
/// # Errors
/// `Failed`, with what can not be.
pub fn prepare(soft: &SoftArgs) -> Result<(), End> {
    soft.link.link().check(soft.address).map_err(End::failed)?;
    if let Some(path) = soft.refusals.as_ref().filter(|path| *path != "-") {
        let path = Path::new(path);
        check_output(path)
            .map_err(|error| End::failed(format_args!("--refusals {}: {error}", path.display())))?;
    }
    // One that was begun by who has started this is gone on with.
    if let Some(path) = &soft.capture
        && env::var_os("MKEY_CAPTURE").is_none_or(|begun| begun != *path)
    {
        CaptureFile::create(path)
            .map_err(|error| End::failed(format_args!("{}: {error}", path.display())))?;
    }
    Ok(())
}
