//! `mkey trace`: what registration costs a program, and what would mend it.
//!
//! * [`args`]: what can be asked for. [`mod@gather`]: runs the program, and makes a recording of what its
//!   processes have written. [`mod@analyse`]: what the recording shows. [`advice`]: what other strategies would
//!   have cost for the same run.

pub mod advice;
pub mod analyse;
pub mod args;
pub mod gather;

use crate::exit::End;
use args::TraceArgs;

/// Runs a program and reports what registration cost it; or reports what a recording shows.
///
/// # Errors
/// [`End`]: how the program ended, or why it could not begin.
pub fn run(args: &TraceArgs) -> Result<(), End> {
    let _ = args;
    Ok(())
}
