//! The arguments of `mkey trace`.

use clap::Args;
use std::ffi::OsString;

/// What to run, and what to make of it.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true)]
    pub program: Vec<OsString>,
}
