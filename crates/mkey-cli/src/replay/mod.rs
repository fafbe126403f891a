//! `mkey replay`: the registrations of a recording, again, on any device and by any strategy.

use crate::exit::End;
use clap::Args;
use std::path::PathBuf;

/// Which recording, and how.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// A recording of `mkey trace --output`
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
}

/// Replays a recording.
///
/// # Errors
/// [`End`].
pub fn run(args: &ReplayArgs) -> Result<(), End> {
    let _ = args;
    Ok(())
}
